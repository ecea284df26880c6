"""The journal: once reported, always there; once, never twice."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymdata.errors import ExternalError, UsageError
from gymdata.rollouts.journal import Journal, Keys, records


def record(task: int, rollout: int, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **more}


def written(path: Path) -> list[tuple[int, int]]:
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in map(json.loads, path.read_text().splitlines())]


def append(path: Path, *rows: dict[str, Any], unique: bool = True) -> list[bool]:
    async def run() -> list[bool]:
        async with Journal(path, unique=unique) as journal:
            return await asyncio.gather(*(journal.append(row) for row in rows))

    return asyncio.run(run())


def test_a_record_stands_once(tmp_path: Path):
    path = tmp_path / "new" / "r.jsonl"
    assert append(path, record(0, 0), record(0, 1), record(0, 0, reward=2)) == [True, True, False]
    assert append(path, record(0, 1), record(1, 0)) == [False, True]
    assert written(path) == [(0, 0), (0, 1), (1, 0)]


def test_failures_may_repeat(tmp_path: Path):
    path = tmp_path / "r_failures.jsonl"
    append(path, record(0, 0), record(0, 0), unique=False)
    append(path, record(0, 0), unique=False)
    assert written(path) == [(0, 0)] * 3


def test_a_torn_tail_is_cut(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    append(path, record(0, 0))
    with open(path, "ab") as file:
        file.write(b'{"_ng_task_index": 0, "_ng_rollout_index": 1, "resp')
    journal = Journal(path)
    assert "unfinished line" in journal.repaired
    asyncio.run(journal.close())
    append(path, record(0, 1))
    assert written(path) == [(0, 0), (0, 1)]


def test_damage_in_the_middle_costs_its_lines_only(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    good = [json.dumps(record(task, 0)).encode() + b"\n" for task in range(3)]
    path.write_bytes(good[0] + b"\0" * 50 + b"\n" + good[1] + good[0] + b"{}\n" + good[2] + b"{")
    journal = Journal(path)
    assert (len(journal.keys), (3, 0) in journal.keys) == (3, False)
    assert "2 unreadable lines, 1 repeated rollouts, 1 bytes" in journal.repaired
    asyncio.run(journal.append(record(3, 0)))
    asyncio.run(journal.close())
    assert path.read_bytes().startswith(b"".join(good)) and written(path) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_a_file_has_one_writer(tmp_path: Path):
    journal = Journal(tmp_path / "r.jsonl")
    with pytest.raises(UsageError, match="another run is writing"):
        Journal(tmp_path / "r.jsonl")
    asyncio.run(journal.close())
    asyncio.run(Journal(tmp_path / "r.jsonl").close())


def test_a_full_disk_leaves_whole_records(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    append(path, record(0, 0))
    script = (
        "import asyncio, resource, signal, sys, pathlib\n"
        "from gymdata.rollouts.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "async def main():\n"
        "    async with Journal(pathlib.Path(sys.argv[1])) as journal:\n"
        "        await journal.append({'_ng_task_index': 1, '_ng_rollout_index': 0, 'text': 'x' * 9000})\n"
        "asyncio.run(main())\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    assert ExternalError.__name__ in run.stderr
    assert written(path) == [(0, 0)]


def test_thousands_of_records_share_few_fsyncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda handle: (calls.append(handle), real(handle)))
    append(tmp_path / "r.jsonl", *(record(task, 0, text="x" * 100) for task in range(5000)))
    assert len(written(tmp_path / "r.jsonl")) == 5000
    assert len(calls) < 50


def test_records_of_a_missing_file_are_none(tmp_path: Path):
    assert list(records(tmp_path / "none.jsonl")) == []


keys = st.tuples(st.integers(0, 5), st.integers(0, 3))


@given(st.lists(keys))
def test_keys_are_a_set(drawn: list[tuple[int, int]]):
    found, seen = Keys(), set()
    for key in drawn:
        assert found.add(key) == (key not in seen)
        seen.add(key)
    assert len(found) == len(seen) and all(
        (key in found) == (key in seen) for key in [(t, r) for t in range(6) for r in range(4)]
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(keys, max_size=8), st.integers(0, 400), st.lists(keys, max_size=8))
def test_cut_anywhere_and_carried_on_each_rollout_stands_once(tmp_path: Path, first: list[Any], cut: int, then: list[Any]):
    path = tmp_path / "r.jsonl"
    path.unlink(missing_ok=True)
    append(path, *(record(*key) for key in first))
    os.truncate(path, min(cut, path.stat().st_size))
    append(path, *(record(*key) for key in [*first, *then]))
    assert sorted(written(path)) == sorted({*first, *then})
