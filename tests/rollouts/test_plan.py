"""Plans: which rollouts, with which seeds, in which shard; and the manifest that a resumed run must match."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.errors import DataError, UsageError
from gymdata.rollouts.files import RunFiles, agree, shard_files
from gymdata.rollouts.plan import Options, Plan, parse_shard
from gymdata.rollouts.tasks import Samples, expected_rollouts


def row(text: str, **more: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": [{"role": "user", "content": text}]}, **more}


def rows_file(folder: Path, *rows: Any, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def owed(plan: Plan) -> list[tuple[int, int]]:
    return list(plan.owed())


def test_each_task_has_its_repeats(tmp_path: Path):
    plan = Plan([rows_file(tmp_path, row("a"), row("b"))], Options(num_repeats=4))
    assert (owed(plan), plan.rollouts) == ([(0, 4), (1, 4)], 8)


def test_rows_of_equal_bytes_are_one_task_whose_rollouts_add_up(tmp_path: Path):
    path = rows_file(tmp_path, row("a"), row("b"), row("a"))
    plan = Plan([path], Options(num_repeats=2))
    assert owed(plan) == [(0, 4), (1, 2)]
    assert {(index, count) for (index, _), count in expected_rollouts([path], Samples(), 2)[0].items()} == {(0, 4), (1, 2)}


def test_a_row_may_bring_its_index(tmp_path: Path):
    path = rows_file(tmp_path, row("a", _ng_task_index=7), row("b", _ng_task_index=3), row("a", _ng_task_index=7))
    assert owed(Plan([path], Options())) == [(7, 2), (3, 1)]


def test_materialized_inputs_of_nemo_gym_stand_for_one_rollout_each(tmp_path: Path):
    path = rows_file(tmp_path, *(row("a", _ng_task_index=0, _ng_rollout_index=index) for index in range(3)))
    assert owed(Plan([path], Options(num_repeats=9))) == [(0, 3)]


def test_one_index_for_two_rows_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match=r"rows.jsonl:2: another row has the `_ng_task_index` 7"):
        Plan([rows_file(tmp_path, row("a", _ng_task_index=7), row("b", _ng_task_index=7))], Options())


@pytest.mark.parametrize(
    "bad", [[], {"x": 1}, {"responses_create_params": {}}, row("a", _ng_task_index="0"), row("a", _ng_task_index=-1)]
)
def test_what_is_no_task_row_is_named(tmp_path: Path, bad: Any):
    with pytest.raises(DataError, match=r"rows.jsonl:2: "):
        Plan([rows_file(tmp_path, row("a"), bad)], Options())


def test_the_limit_counts_the_tasks_of_each_agent(tmp_path: Path):
    rows = [row(f"{agent}{number}", agent_ref={"name": agent}) for agent in ("one", "two") for number in range(5)]
    assert owed(Plan([rows_file(tmp_path, *rows)], Options(limit=2))) == [(0, 1), (1, 1), (5, 1), (6, 1)]


def test_the_keys_of_a_row_keep_their_bytes(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"responses_create_params": {"input": "x", "top_p": 0.50}, "answer": 1.10, "big": 123456789012345678901234567890}\n'
    )
    (task,) = Plan([path], Options(overrides={"temperature": 0.7})).tasks()
    assert bytes(task.row["answer"]) == b"1.10" and bytes(task.row["big"]) == b"123456789012345678901234567890"
    assert task.params == {"input": "x", "top_p": 0.5, "temperature": 0.7}


def test_compressed_rows_are_read(tmp_path: Path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(row("a")).encode() + b"\n\n" + json.dumps(row("é")).encode()))
    texts = [task.params["input"][0]["content"] for task in Plan([path], Options()).tasks()]
    assert texts == ["a", "é"]


def test_seeds_differ_between_repeats_and_tasks_and_stay(tmp_path: Path):
    path = rows_file(tmp_path, *(row(str(number)) for number in range(50)))
    plan, again, other = Plan([path], Options()), Plan([path], Options()), Plan([path], Options(seed=1))
    seeds = [plan.seed_of(task, rollout) for task in plan.tasks() for rollout in range(16)]
    assert len(set(seeds)) == len(seeds) and all(seed is not None and 0 <= seed < 2**31 for seed in seeds)
    assert seeds == [again.seed_of(task, rollout) for task in again.tasks() for rollout in range(16)]
    assert not {*seeds} & {other.seed_of(task, rollout) for task in other.tasks() for rollout in range(16)}
    assert Plan([path], Options(seed=None)).seed_of(next(plan.tasks()), 0) is None


@given(st.integers(1, 12))
def test_shards_part_the_tasks(tmp_path_factory: pytest.TempPathFactory, shards: int):
    plan = Plan([rows_file(tmp_path_factory.mktemp("rows"), *(row(str(number)) for number in range(60)))], Options(num_repeats=2))
    parts = [list(plan.owed(shard, shards)) for shard in range(shards)]
    assert sorted(task for part in parts for task in part) == owed(plan)


def test_a_tasks_shard_does_not_depend_on_its_place(tmp_path: Path):
    rows = [row(str(number)) for number in range(20)]
    one = Plan([rows_file(tmp_path, *rows)], Options())
    two = Plan([rows_file(tmp_path, *reversed(rows), name="two.jsonl")], Options())
    for shard in range(3):
        assert {task.key for task in one.tasks(shard, 3)} == {task.key for task in two.tasks(shard, 3)}


@pytest.mark.parametrize("text", ["3/3", "-1/2", "1", "a/b", "0/0"])
def test_a_shard_that_is_none_is_refused(text: str):
    with pytest.raises(UsageError):
        parse_shard(text)


def test_a_run_that_differs_is_refused_and_each_difference_named(tmp_path: Path):
    path = rows_file(tmp_path, row("a"))
    files = RunFiles(tmp_path / "out" / "math.jsonl")
    first = {**Plan([path], Options(num_repeats=4)).manifest(), "model": {"id": "m"}, "gymdata": "1"}
    assert not agree(files.manifest, first)
    assert agree(files.manifest, {**first, "gymdata": "2"})
    rows_file(tmp_path, row("b"))
    second = {**Plan([path], Options(num_repeats=8, overrides={"temperature": 0.5})).manifest(), "model": {"id": "n"}}
    with pytest.raises(UsageError) as error:
        agree(files.manifest, second)
    for place in (
        "num_repeats: was 4, is 8",
        "overrides.temperature: was not there, is 0.5",
        'model.id: was "m", is "n"',
        "rows.sha256",
    ):
        assert place in error.value.message
    assert files.set_aside() == tmp_path / "out" / "math.previous-1"
    assert not agree(files.manifest, second)


def test_the_files_of_shards_are_found_whatever_their_number(tmp_path: Path):
    output = tmp_path / "math.jsonl"
    mine = RunFiles(output, 1, 4)
    for name in (
        "math-shard-1-of-4.jsonl",
        "math-shard-0-of-2.jsonl",
        "math-shard-0-of-2_failures.jsonl",
        "math2-shard-0-of-2.jsonl",
        "math.jsonl",
    ):
        (tmp_path / name).touch()
    assert [path.name for path in shard_files(output)] == ["math-shard-0-of-2.jsonl", "math-shard-1-of-4.jsonl"]
    assert [path.name for path in mine.others()] == ["math-shard-0-of-2.jsonl", "math.jsonl"]
    assert mine.failures.name == "math-shard-1-of-4_failures.jsonl"
