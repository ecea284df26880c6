"""`gymdata validate` and `gymdata stats`: what the command makes of folders, summaries and damaged files."""

from __future__ import annotations

import errno
import gzip
import os
import random
from pathlib import Path

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
