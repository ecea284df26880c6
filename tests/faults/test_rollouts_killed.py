"""Each rollout once: runs killed with -9 at random moments, resumed, resharded, against a server that drops, cuts and refuses.

A few kills here; GYMDATA_KILLS=100 for the proof.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from gymdata.cli.main import main
from tests.servers.model import ModelServer, collect_command

pytest.importorskip("math_verify", reason="the extra `verifiers` is not installed")

KILLS = int(os.environ.get("GYMDATA_KILLS", "5"))
TASKS, REPEATS = 20 * KILLS, 4


def start(server: ModelServer, rows: Path, *more: str) -> subprocess.Popen[bytes]:
    command = collect_command(server.url, rows)
    command += ["--num-repeats", str(REPEATS), "--output", str(rows.with_name("r.jsonl")), "--workers", "1", "--concurrency", "8"]
    return subprocess.Popen([*command, "--max-attempts", "1000", *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_killed_resumed_and_resharded_each_rollout_stands_once(tmp_path: Path):
    chance = random.Random(KILLS)
    rows = tmp_path / "rows.jsonl"
    texts = [
        json.dumps({"responses_create_params": {"input": f"{one} plus {one + 3}?"}, "expected_answer": str(2 * one + 3)})
        for one in range(TASKS)
    ]
    rows.write_text("\n".join(texts))
    known: set[bytes] = set()
    with ModelServer(faults=0.25, seed=KILLS, delay=0.05, keep=False) as server:
        for _ in range(KILLS):
            shards = chance.choice([1, 1, 2, 3])
            runs = [start(server, rows, "--shard", f"{shard}/{shards}") for shard in range(shards)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                runs[0].wait(1 + chance.random() * 2)
            for run in runs:
                run.kill()
            for run in runs:
                _, error = run.communicate(timeout=60)
                assert b"Traceback" not in error, error.decode()
            stands = whole_lines(tmp_path)
            assert known <= stands, "a rollout that was on the disk is gone"
            known = stands
        for _ in range(20):
            run = start(server, rows)
            _, error = run.communicate(timeout=900)
            assert b"Traceback" not in error, error.decode()
            if run.returncode == 0:
                break
    assert run.returncode == 0, error.decode()
    assert main(["rollouts", "merge", str(tmp_path / "r.jsonl")]) == 0
    assert known <= whole_lines(tmp_path)
    found = [json.loads(line) for line in (tmp_path / "r.jsonl").read_bytes().splitlines()]
    counts = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in found)
    assert counts == {(task, rollout): 1 for task in range(TASKS) for rollout in range(REPEATS)}
    for row in found:
        said = re.search(r"boxed\{(\d+)\}", row["response"]["output"][-1]["content"][0]["text"])
        assert said and row["reward"] == float(said[1] == row["expected_answer"])
        odd = int(row["response"]["metadata"]["seed"]) % 2
        assert int(said[1]) == int(row["expected_answer"]) + odd, "the answer to another question"


def whole_lines(folder: Path) -> set[bytes]:
    lines: set[bytes] = set()
    for path in [folder / "r.jsonl", *folder.glob("r-shard-*-of-?.jsonl")]:
        if path.exists():
            lines |= {line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")}
    return lines
