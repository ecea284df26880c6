"""`gymdata validate` and `gymdata stats`: what the command makes of folders, summaries and damaged files."""

from __future__ import annotations

import errno
import gzip
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gymdata.cli.main import main

ROW = '{"responses_create_params": {"input": "What is 2+2?"}, "expected_answer": "4"}\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_is_its_data_files_and_one_without_any_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data/old.jsonl").mkdir(parents=True)
    assert main(["validate", "data"]) == 2
    assert "'data' holds no data file" in capsys.readouterr().err
    Path("data/old.jsonl/rows.jsonl").write_text(ROW)
    assert main(["validate", "data"]) == 0
    assert "1 file, 1 of 1 row valid" in capsys.readouterr().err


def test_a_summary_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.jsonl").write_text(ROW)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "nowhere/summary.md")
    assert main(["validate", "rows.jsonl", "--format", "github"]) == 3
    assert "nowhere/summary.md: No such file" in capsys.readouterr().err


def test_statistics_of_a_damaged_file_say_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    noise = random.Random(0)
    rows = "".join(ROW.replace("2+2", noise.randbytes(100).hex()) for _ in range(100))
    Path("rows.jsonl.gz").write_bytes(gzip.compress(rows.encode())[:-100])
    assert main(["stats", "rows.jsonl.gz", "--encoding", "none"]) == 0
    assert "the compressed file is damaged after line" in capsys.readouterr().err


def test_tasks_with_a_reward_of_their_own_are_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.jsonl").write_text(ROW.replace('"4"}', '"4", "reward": 0.5}') * 2)
    assert main(["validate", "rows.jsonl"]) == 0
    Path("rows.jsonl").write_text(ROW.replace('"4"}', '"4", "reward": 0.5, "_ng_rollout_index": 0}'))
    assert main(["validate", "rows.jsonl"]) == 1
    assert "GD600" in capsys.readouterr().out


def test_a_file_that_may_not_be_read_is_told_and_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("rows.jsonl").write_text(ROW)

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))  # root may read all

    monkeypatch.setattr("gymdata.scan._sniff", refuse)
    for command in ("validate", "stats"):
        assert main([command, "rows.jsonl"]) == 3
        assert capsys.readouterr().err.startswith("gymdata: error: rows.jsonl: Permission denied")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "error: the output: No space left on device"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "internal error: ConnectionRefusedError"),
    ],
)
def test_an_error_without_a_name_is_of_the_output_only_where_a_disk_gives_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, says: str
) -> None:
    Path("rows.jsonl").write_text(ROW)

    def refuse(path: Path) -> None:
        raise error

    monkeypatch.setattr("gymdata.scan._sniff", refuse)
    assert main(["validate", "rows.jsonl"]) == 3
    assert capsys.readouterr().err.startswith(f"gymdata: {says}")


def command(*arguments: str, **environment: str) -> dict[str, Any]:
    """What `subprocess` needs to run the command as a process of its own."""
    root = str(Path(__file__).parents[2])
    return {
        "args": [sys.executable, "-m", "gymdata.cli.main", *arguments],
        "env": os.environ | {"PYTHONPATH": root} | environment,
    }


def test_what_the_terminal_cannot_show_is_spelled_out() -> None:
    Path("rätsel.jsonl").write_text("{bad")
    done = subprocess.run(**command("validate", "rätsel.jsonl", PYTHONIOENCODING="ascii"), capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith("r\\xe4tsel.jsonl:1  GD101")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_full_disk_under_standard_output_is_no_bug() -> None:
    Path("rows.jsonl").write_text("{bad\n" * 3000)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            **command("validate", "rows.jsonl", "--format", "json"), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr.splitlines()[0]) == (3, "gymdata: error: the output: No space left on device")
