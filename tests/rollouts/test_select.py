"""Choosing rows by what was measured of their tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.errors import DataError, UsageError
from gymdata.rollouts.profile import profile, write
from gymdata.rollouts.select import Rules, Selection, select, to_text
from gymdata.validate import measure, targets

ANY = Rules()
RATES = {"never": 0, "seldom": 1, "half": 2, "often": 3, "always": 4}


def row(name: str, **extras: Any) -> str:
    return json.dumps({"responses_create_params": {"input": f"What is {name}?"}, "expected_answer": name} | extras)


def save(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Five tasks, solved 0 to 4 times in four rollouts; and their profile."""
    path = save(tmp_path / "tasks.jsonl", [row(name) for name in RATES])
    rollouts = [
        rollout(task, name, index, float(index < passes))
        for task, (name, passes) in enumerate(RATES.items())
        for index in range(4)
    ]
    run = save(tmp_path / "run.jsonl", rollouts)
    write(profile([run], [path]), run)
    return path


def rollout(task: int, name: str, index: int, reward: float, agent: str = "math_agent") -> str:
    indices = {"_ng_task_index": task, "_ng_rollout_index": index, "agent_ref": {"type": "responses_api_agents", "name": agent}}
    usage = {"output_tokens": 10 * (task + 1)}
    return row(name, response={"usage": usage, "output": []}, reward=reward, found="x", **indices)


def chosen(dataset: Path, rules: Rules = ANY, **options: Any) -> tuple[list[str], Selection, list[dict[str, Any]]]:
    """The names of the tasks that are left, what was removed, the rows."""
    output = dataset.with_name("selected.jsonl")
    found = select([dataset], dataset.with_name("run.jsonl"), output, rules, **options)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    return [one["expected_answer"] for one in rows], found, rows


def test_rows_keep_their_bytes_and_get_a_pass_rate(dataset: Path) -> None:
    odd = '{ "expected_answer":"half",\t"responses_create_params": {"input": "What is half?"}, "n": 1.50, "u": "\\u00e9" }'
    save(dataset, [odd])
    run = dataset.with_name("run.jsonl")
    save(run, [rollout(0, "half", index, float(index < 2)) for index in range(4)])
    write(profile([run], [dataset]), run)
    chosen(dataset)
    assert dataset.with_name("selected.jsonl").read_text() == odd[:-2] + ', "pass_rate": 0.5}\n'


def test_a_pass_rate_that_is_there_is_replaced_where_it_stands(dataset: Path) -> None:
    save(dataset, ['{"pass_rate": 0.9, ' + row("half")[1:]])
    chosen(dataset)
    assert dataset.with_name("selected.jsonl").read_text() == '{"pass_rate": 0.5, ' + row("half")[1:] + "\n"


def test_each_row_is_counted_at_the_first_rule_that_removes_it(dataset: Path) -> None:
    dataset.write_text(dataset.read_text() + row("unknown") + "\n")
    names, found, _ = chosen(dataset, Rules(min_pass_rate=0.1, max_pass_rate=0.9, max_output_tokens=35))
    assert names == ["seldom", "half"]
    assert {rule: count for rule, count in found.removed.items() if count} == {
        "not measured": 1,
        "pass rate below 0.1 or above 0.9": 2,
        "output tokens above 35": 1,
    }
    assert (found.rows, found.selected) == (6, 2)
    assert "  - not measured" in to_text(found)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(min_std=0.55), ["half"]),
        (Rules(max_std=0.0), ["never", "always"]),
        (Rules(min_output_tokens=40), ["often", "always"]),
        (Rules(min_rollouts=5, keep_unmeasured=True), []),
        (Rules(max_truncated=0.0), [*RATES]),
        (Rules(measure="mean_reward", min_pass_rate=0.75), ["often", "always"]),
    ],
)
def test_rules(dataset: Path, rules: Rules, expected: list[str]) -> None:
    if expected:
        assert chosen(dataset, rules)[0] == expected
    else:
        with pytest.raises(DataError, match="no row is left of 5"):
            chosen(dataset, rules)
        assert not dataset.with_name("selected.jsonl").exists()


def test_a_curriculum_goes_from_easy_to_hard_or_back(dataset: Path) -> None:
    assert chosen(dataset, order="easy-first")[0] == ["always", "often", "half", "seldom", "never"]
    assert chosen(dataset, order="hard-first", limit=2)[0] == ["never", "seldom"]
    assert chosen(dataset, order="hard-first", limit=2)[1].removed["beyond the limit"] == 3


def test_rows_without_rollouts_come_last_and_untouched(dataset: Path) -> None:
    dataset.write_text(row("unknown") + "\n" + dataset.read_text())
    names, _, rows = chosen(dataset, Rules(keep_unmeasured=True), order="easy-first")
    assert names[-1] == "unknown" and "pass_rate" not in rows[-1]


def test_weights_are_highest_where_half_of_the_rollouts_pass(dataset: Path) -> None:
    _, _, rows = chosen(dataset, weight=True, write_pass_rate=False)
    assert [one["weight"] for one in rows] == [0.36, 0.84, 1.0, 0.84, 0.36]
    assert not any("pass_rate" in one for one in rows)


def test_the_output_is_a_dataset_that_can_be_selected_from_again(dataset: Path) -> None:
    first, _, _ = chosen(dataset, Rules(min_pass_rate=0.1), weight=True)
    again = save(dataset.with_name("again.jsonl"), dataset.with_name("selected.jsonl").read_text().splitlines())
    (target,) = targets([str(again)])
    report = measure(target).report
    assert report.valid == report.rows == 4
    found = select([again], dataset.with_name("run.jsonl"), dataset.with_name("twice.jsonl"), Rules(max_pass_rate=0.9))
    assert found.selected == len(first) - 1


def test_rows_that_prepare_would_refuse_are_left_out_and_named(dataset: Path) -> None:
    dataset.write_text(dataset.read_text() + '{"responses_create_params": {}}\n{"torn\n')
    names, found, _ = chosen(dataset)
    assert names == [*RATES] and found.removed["not valid"] == 2
    assert sorted({finding.line for finding in found.findings[str(dataset)]}) == [6, 7]


def test_a_stamp_does_not_hide_a_task(dataset: Path) -> None:
    save(dataset, [row("half", agent_ref={"type": "responses_api_agents", "name": "math_agent"}, _ng_task_index=9)])
    assert chosen(dataset)[0] == ["half"]


def test_a_profile_made_without_the_tasks_finds_rows_by_their_conversation(dataset: Path) -> None:
    run = dataset.with_name("run.jsonl")
    write(profile([run]), run)
    names, found, _ = chosen(dataset, Rules(max_pass_rate=0.25))
    assert names == ["never", "seldom"] and found.by_prompt == 5


def test_nemo_gyms_profile_serves_too(dataset: Path) -> None:
    dataset.with_name("run_task_statistics.jsonl").unlink()
    gym = dataset.with_name("run_reward_profiling.jsonl")
    found = select([dataset], gym, dataset.with_name("selected.jsonl"), Rules(min_pass_rate=0.5, max_output_tokens=40))
    assert found.selected == 2


def test_a_task_of_several_environments_needs_one_named(dataset: Path) -> None:
    run = dataset.with_name("run.jsonl")
    other = [rollout(task, name, 9, 1.0, "other_agent") for task, name in enumerate(RATES)]
    save(run, run.read_text().splitlines() + other)
    write(profile([run], [dataset]), run)
    with pytest.raises(UsageError, match="several environments: math_agent, other_agent"):
        chosen(dataset)
    assert chosen(dataset, Rules(max_pass_rate=0.0), environment="math_agent")[0] == ["never"]
    with pytest.raises(UsageError, match="no task of the environment 'third'"):
        chosen(dataset, environment="third")


def test_files_that_are_no_profile_are_refused(dataset: Path) -> None:
    for wrong in (dataset, dataset.with_name("absent.jsonl")):
        with pytest.raises(UsageError):
            select([dataset], wrong, dataset.with_name("selected.jsonl"))
    with pytest.raises(UsageError, match="never overwritten"):
        select([dataset], dataset.with_name("run.jsonl"), dataset)


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1))
def test_what_is_selected_and_what_is_removed_are_all_rows(
    tmp_path_factory: pytest.TempPathFactory, low: float, high: float
) -> None:
    folder = tmp_path_factory.mktemp("law")
    path = save(folder / "tasks.jsonl", [row(name) for name in RATES])
    lines = [
        json.dumps({"key": None, "prompt_key": None, "environment": "", "scored": 4, "passes": passes, "pass_rate": passes / 4})
        for passes in RATES.values()
    ]
    from gymdata.rollouts.tasks import identity

    tasks = [json.loads(line) | {"key": identity(row(name).encode())[0]} for line, name in zip(lines, RATES, strict=True)]
    statistics = save(folder / "run_task_statistics.jsonl", [json.dumps(task) for task in tasks])
    kept = sum(low <= passes / 4 <= high for passes in RATES.values())
    try:
        found = select([path], statistics, folder / "out.jsonl", Rules(min_pass_rate=low, max_pass_rate=high))
    except DataError:
        assert kept == 0
    else:
        assert found.selected == kept == found.rows - sum(found.removed.values())
