"""Sidecars: what agrees, what is in conflict, what is written."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from gymdata.errors import ExternalError
from gymdata.statistics.sidecar import compare, sidecar_path, update_sidecar


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1, "b": 2}, {"a": 1}, ["b"]),
        ({"a": {"b": 1.0}}, {"a": {"b": 1.006}}, ["a.b"]),
        ({"a": {"b": 1.0}}, {"a": {"b": 1.004}}, []),
        ({"a": 0.5}, {"a": 0.5006}, ["a"]),
        ({"a": 0.5}, {"a": 0.5004}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 100}, {"a": 100.001}, ["a"]),
        ({"a": "x"}, {"a": {"x": 1}}, ["a"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, []),
        ({"a": [1, 2]}, {"a": [2, 2]}, ["a"]),
        ({"a": [1]}, {"a": [1, 1]}, ["a"]),
        ({"a": [{"x": 1.0}, {"y": 2.0}]}, {"a": [{"y": 2.001, "z": 0}, {"x": 1.0}]}, []),
        ({"a": [{"x": 1.0}, {"x": 1.0}]}, {"a": [{"x": 1.0}, {"x": 2.0}]}, ["a[1]"]),
        ([], {}, [""]),
    ],
)
def test_everything_old_must_be_in_the_new(old: Any, new: Any, paths: list[str]) -> None:
    assert [difference.path for difference in compare(old, new)] == paths


def test_a_missing_sidecar_is_written_as_gym_writes_it(tmp_path: Path) -> None:
    path = sidecar_path(tmp_path / "train.jsonl")
    assert update_sidecar(path, {"name": "train", "Average": 1.0}).status == "written"
    assert path.name == "train_metrics.json"
    assert path.read_text() == '{\n    "name": "train",\n    "Average": 1.0\n}'


def test_a_sidecar_that_lacks_new_columns_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "train_metrics.json"
    path.write_text('{"a": 1.0}')
    assert update_sidecar(path, {"a": 1.0, "b": 2.0}).status == "up to date"
    assert path.read_text() == '{"a": 1.0}'


def test_a_conflict_names_each_number_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train_metrics.json"
    path.write_text('{"Number of turns": {"Average": 2.0, "Median": 1.0}}')
    check = update_sidecar(path, {"Number of turns": {"Average": 1.5}})
    assert check.status == "conflict"
    assert [str(difference) for difference in check.differences] == [
        "Number of turns.Average: 2.0 there, 1.5 now",
        "Number of turns.Median: 1.0 there, (absent) now",
    ]
    assert json.loads(path.read_bytes()) == {"Number of turns": {"Average": 2.0, "Median": 1.0}}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_corrupt_sidecar_is_a_conflict(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train_metrics.json"
    path.write_bytes(content)
    check = update_sidecar(path, {"a": 1})
    assert check.status == "conflict"
    assert "not JSON" in str(check)
    assert path.read_bytes() == content


def test_a_conflict_is_overwritten_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "train_metrics.json"
    path.write_bytes(b"{")
    check = update_sidecar(path, {"a": 1}, overwrite=True)
    assert (check.status, len(check.differences)) == ("overwritten", 1)
    assert json.loads(path.read_bytes()) == {"a": 1}


def test_rows_that_nobody_can_write_beside_have_no_sidecar_and_are_no_failure(tmp_path: Path, monkeypatch) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise ExternalError("read-only") from OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr("gymdata.statistics.sidecar.write_bytes", refuse)
    check = update_sidecar(tmp_path / "a_metrics.json", {"a": 1})
    assert str(check).endswith("a_metrics.json: not written, the folder is read-only")
    (tmp_path / "a_metrics.json").write_text('{"a": 2}')
    with pytest.raises(ExternalError):
        update_sidecar(tmp_path / "a_metrics.json", {"a": 1}, overwrite=True)
