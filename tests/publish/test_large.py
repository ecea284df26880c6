"""Much data in little memory: the peak of each command does not follow the size of the rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.publish.test_command import CONFIG, ROOT
from tests.servers.fixtures import OWNER
from tests.servers.hub import Hub

MEGABYTES = int(os.environ.get("GYMDATA_LARGE_MB", "200"))
MOST = 650
"""Megabytes of memory; the libraries alone take 200."""


def peak(*arguments: object, cwd: Path) -> float:
    """Megabytes that a command had in memory at most, counting files it maps."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_TOKEN": OWNER}
    command = [sys.executable, "-m", "gymdata.cli.main", *map(str, arguments)]
    with subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, arguments
    return usage.ru_maxrss / 1024


@pytest.mark.slow
def test_publishing_and_fetching_take_bounded_memory(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    text = "It is what it is, and 0.6 of it is 1.25 of that. " * 40
    with open(tmp_path / "mine.jsonl", "w") as rows:
        number = 0
        while rows.tell() < MEGABYTES * 1_000_000:
            rows.write(
                f'{{"responses_create_params": {{"input": "{number} {text}"}}, "question": "?", "expected_answer": "4"}}\n'
            )
            number += 1
    send = ("publish", "--input", "mine.jsonl", "--config", "c.yaml", "--license", "MIT", "--repo-id", "acme/large")
    fetch = ("download", "--repo-id", "acme/large", "--split", "train", "--output", "back.jsonl")
    peaks = {"publish": peak(*send, cwd=tmp_path), "download": peak(*fetch, cwd=tmp_path)}
    assert (tmp_path / "back.jsonl").read_bytes().count(b"\n") == number
    assert max(peaks.values()) < MOST, peaks
    print(f"{MEGABYTES} MB: {peaks}")
