"""What `gymdata rollouts profile` measures, on rollouts small enough to be counted by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.errors import DataError, UsageError
from gymdata.rollouts.profile import Options, Profile, beside, profile, write
from gymdata.rollouts.profile_text import to_markdown, to_text
from gymdata.rollouts.reward_statistics import AtK


def rollout(task: int | None, index: Any, reward: float | None, agent: str = "math_agent", **extras: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}
    row = {
        "responses_create_params": {"input": f"task {task}"},
        "expected_answer": "4",
        "agent_ref": {"type": "responses_api_agents", "name": agent},
        "response": {"output": [{"type": "message", "role": "assistant", "content": []}], "usage": usage},
        "reward": reward,
    }
    row |= {} if task is None else {"_ng_task_index": task}
    row |= {} if index is None else {"_ng_rollout_index": index}
    return row | extras


def save(path: Path, rows: Sequence[dict[str, Any] | str]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def measured(folder: Path, rows: Sequence[dict[str, Any] | str], **options: Any) -> Profile:
    return profile([save(folder / "run.jsonl", rows)], options=Options(**options))


def points(curve: Sequence[AtK] | None) -> dict[int, tuple[float | None, int]]:
    return {point.k: (point.value, point.tasks) for point in curve or ()}


def rewards(*tasks: Sequence[float]) -> list[dict[str, Any]]:
    return [rollout(task, index, reward) for task, found in enumerate(tasks) for index, reward in enumerate(found)]


def test_each_task_counts_once_however_many_rollouts_it_has(tmp_path: Path) -> None:
    overall = measured(tmp_path, rewards([1, 1, 1, 1], [0])).statistics.overall
    assert overall.mean_reward.value == 0.5 and overall.reward.mean == 0.8


def test_a_curve_is_over_the_same_tasks_for_every_k(tmp_path: Path) -> None:
    # NeMo Gym: pass@1 = 75, pass@2 = 50, because the second task drops out.
    tasks = [[1, 0, 0, 0]] * 19 + [[1, 1]]
    overall = measured(tmp_path, rewards(*tasks)).statistics.overall
    assert overall.comparable_k == 4
    assert points(overall.pass_at_k) == {1: (0.25, 19), 2: (0.5, 19), 4: (1.0, 19)}
    assert overall.pass_rate.value == pytest.approx((19 * 0.25 + 1) / 20)


def test_beyond_the_number_that_nearly_all_tasks_have_each_k_says_over_how_many_tasks_it_is(tmp_path: Path) -> None:
    overall = measured(tmp_path, rewards([1, 0], [0])).statistics.overall
    assert overall.comparable_k == 1
    assert points(overall.pass_at_k) == {1: (0.25, 2), 2: (1.0, 1)}
    assert points(overall.pass_hat_k) == {1: (0.25, 2), 2: (0.0, 1)}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6), min_size=1, max_size=6), st.randoms())
def test_nothing_depends_on_the_order_of_the_lines(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[list[float]], draw: Any
) -> None:
    folder = tmp_path_factory.mktemp("order")
    rows = rewards(*tasks)
    first = measured(folder, rows, resamples=20).statistics
    draw.shuffle(rows)
    assert measured(folder, rows, resamples=20).statistics == first
    curve = [point.value or 0 for point in first.overall.pass_at_k if point.k <= first.overall.comparable_k]
    assert curve == sorted(curve)


def test_rewards_between_0_and_1_pass_from_the_threshold_on_and_have_a_curve_of_the_best(tmp_path: Path) -> None:
    rows = rewards([0.2, 0.8], [0.5, 0.5])
    overall = measured(tmp_path, rows, threshold=0.5).statistics.overall
    assert overall.pass_rate.value == 0.75
    assert {k: value for k, (value, _) in points(overall.best_at_k).items()} == pytest.approx({1: 0.5, 2: 0.65})
    assert measured(tmp_path, rewards([0, 1])).statistics.overall.best_at_k is None


def test_majority_counts_answers_not_scores(tmp_path: Path) -> None:
    given = [("x", 1.0), ("x", 1.0), ("x", 0.0), ("z", 0.0), ("z", 0.0)]
    rows = [rollout(0, index, reward, extracted_answer=answer) for index, (answer, reward) in enumerate(given)]
    overall = measured(tmp_path, rows, ks=(5,)).statistics.overall
    assert points(overall.majority_at_k) == {5: (pytest.approx(2 / 3), 1)}
    assert measured(tmp_path, rewards([1, 0])).statistics.overall.majority_at_k is None


def test_shares_of_all_right_and_all_wrong_are_of_the_tasks_with_two_rollouts(tmp_path: Path) -> None:
    overall = measured(tmp_path, rewards([1, 1], [0, 0], [0, 0], [1, 0], [1], [0])).statistics.overall
    assert (overall.repeated_tasks, overall.all_right, overall.all_wrong, overall.mixed) == (4, 0.25, 0.5, 0.25)


def test_a_rollout_without_a_reward_is_no_rollout_with_a_reward_of_0(tmp_path: Path) -> None:
    rows = [
        rollout(0, 0, 1.0),
        rollout(0, 1, None),
        rollout(0, 2, 0.0, _ng_failure_class="judge_failed"),
        rollout(0, 3, 0.0, mask_sample=True),
    ]
    overall = measured(tmp_path, rows).statistics.overall
    assert (overall.rollouts, overall.scored, overall.masked, overall.mean_reward.value) == (4, 1, 1, 1.0)
    assert "2 rollouts have no reward" in to_text(measured(tmp_path, rows).statistics)


def test_truncation_turns_tools_and_tokens(tmp_path: Path) -> None:
    own, call = (
        {"type": "message", "role": "assistant", "content": []},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
    )
    answer, asked = (
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"type": "message", "role": "user", "content": "go on"},
    )
    output = [{"type": "reasoning", "summary": []}, call, call, answer, answer, own, asked, own]
    cut = {
        "output": [own],
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "usage": {"output_tokens": 40, "output_tokens_details": {"reasoning_tokens": 30}},
    }
    rows = [rollout(0, index, 1.0, response=response) for index, response in enumerate(({"output": output}, cut, None))]
    statistics = measured(tmp_path, rows).statistics
    overall = statistics.overall
    assert "of the responses are truncated (1 by max_output_tokens)" in to_text(statistics)
    assert (overall.turns.count, overall.turns.max, overall.turns.min, overall.tool_calls.max) == (2, 3, 1, 2)
    assert (overall.truncated, overall.truncation_rate, overall.truncation_reasons) == (1, 0.5, {"max_output_tokens": 1})
    assert (overall.tokens["output_tokens"].mean, overall.tokens["reasoning_tokens"].mean) == (40, 30)


def test_components_of_a_reward_and_whether_they_add_up(tmp_path: Path) -> None:
    rows = [
        rollout(0, 0, 1.0, reward_components={"format": 0.25, "answer": 0.75}),
        rollout(0, 1, 1.0, reward_components={"format": 0.25, "answer": 0.5}),
    ]
    overall = measured(tmp_path, rows).statistics.overall
    assert (overall.components["format"].mean, overall.components["answer"].mean) == (0.25, 0.625)
    assert overall.component_mismatches == 1


def test_environments_are_measured_apart_even_where_their_indices_are_the_same(tmp_path: Path) -> None:
    rows = [rollout(0, 0, 1.0, "one_agent"), rollout(0, 0, 0.0, "two_agent"), rollout(0, 1, 0.0, "two_agent")]
    statistics = measured(tmp_path, rows).statistics
    assert {name: one.mean_reward.value for name, one in statistics.environments.items()} == {"one_agent": 1.0, "two_agent": 0.0}
    assert (statistics.overall.tasks, statistics.overall.mean_reward.value) == (2, 0.5)


def test_rollouts_without_indices_are_tasks_by_their_request(tmp_path: Path) -> None:
    rows = [
        rollout(None, None, reward, responses_create_params={"input": text}) for text, reward in (("a", 1), ("b", 0), ("a", 0))
    ]
    found = measured(tmp_path, rows)
    assert [(group.task, len(group.rows)) for group in found.groups] == [(0, 2), (1, 1)]
    assert json.loads(found.sample(found.groups[1]) or b"")["responses_create_params"] == {"input": "b"}


def test_the_same_rollout_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two rollouts of math_agent have _ng_task_index 3 and _ng_rollout_index 1"):
        measured(tmp_path, [rollout(3, 1, 1.0), rollout(3, 1, 1.0)])


def test_lines_that_are_no_rollouts_are_named_and_the_others_measured(tmp_path: Path) -> None:
    rows = [
        rollout(0, 0, 1.0),
        '{"torn": ',
        "",
        "[1]",
        {"responses_create_params": {"input": "x"}},
        rollout(0, "1", 0.0),
        '{"reward": 1e999}',
    ]
    found = measured(tmp_path, rows)
    lines = sorted({finding.line for finding in found.findings[str(tmp_path / "run.jsonl")]})
    assert lines == [2, 4, 5, 6, 7]
    assert (found.statistics.coverage.rollouts, found.statistics.coverage.unusable_lines) == (1, 5)


def test_of_a_line_with_a_number_that_cannot_be_counted_only_that_is_said(tmp_path: Path) -> None:
    bare = {"responses_create_params": {"input": "x"}, "response": {"output": []}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    rows = [
        {**bare, "reward": 1.0},
        {**bare, "_ng_rollout_index": 1, "reward": 1e300},
        {**bare, "_ng_rollout_index": -1, "reward": 0},
    ]
    told = measured(tmp_path, rows).findings[str(tmp_path / "run.jsonl")]
    assert [(finding.line, finding.path) for finding in told] == [(2, "$.reward"), (3, "$._ng_rollout_index")]


def test_a_file_without_any_rollout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no line is a rollout"):
        measured(tmp_path, ["{}"])
    with pytest.raises(UsageError, match="no such file"):
        profile([tmp_path / "absent.jsonl"])


def test_coverage_counts_what_was_to_be(tmp_path: Path) -> None:
    tasks = [{"responses_create_params": {"input": f"task {task}"}, "expected_answer": "4"} for task in (0, 1, 2)]
    inputs = save(tmp_path / "tasks.jsonl", tasks)
    save(tmp_path / "run_failures.jsonl", [{"_ng_failure_class": "agent_run_error"}, {"_ng_failure_class": "agent_run_error"}])
    run = save(tmp_path / "run.jsonl", [rollout(0, 0, 1.0), rollout(0, 1, 1.0), rollout(1, 0, 0.0)])
    coverage = profile([run], [inputs], Options(num_repeats=2)).statistics.coverage
    assert (coverage.expected_rollouts, coverage.rollouts, coverage.missing_rollouts) == (6, 3, 3)
    assert (coverage.complete_tasks, coverage.partial_tasks, coverage.missing_tasks) == (1, 1, 1)
    assert coverage.failures == {"agent_run_error": 2}


def test_the_manifest_of_a_run_says_what_was_to_be(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.json").write_text(json.dumps({"rows": {"tasks": 3, "rollouts": 6}, "num_repeats": 2}))
    shards = [save(tmp_path / f"run-shard-{n}-of-2.jsonl", [rollout(n, 0, 1.0), *([rollout(n, 1, 1.0)] * n)]) for n in (0, 1)]
    coverage = profile(shards).statistics.coverage
    assert (coverage.expected_rollouts, coverage.rollouts, coverage.missing_tasks, coverage.partial_tasks) == (6, 3, 1, 1)


def test_rollouts_of_other_inputs_are_refused(tmp_path: Path) -> None:
    inputs = save(tmp_path / "tasks.jsonl", [{"responses_create_params": {"input": "a"}}])
    with pytest.raises(DataError, match="no task 5 of math_agent"):
        profile([save(tmp_path / "run.jsonl", [rollout(5, 0, 1.0)])], [inputs])


def test_inputs_in_another_order_are_noticed(tmp_path: Path) -> None:
    inputs = save(tmp_path / "tasks.jsonl", [{"responses_create_params": {"input": f"task {task}"}} for task in (1, 0)])
    with pytest.raises(DataError, match="task 0 is not what the rollouts of task 0 answer"):
        profile([save(tmp_path / "run.jsonl", [rollout(0, 0, 1.0)])], [inputs])


def test_shards_and_compressed_files_are_one_run(tmp_path: Path) -> None:
    one = save(tmp_path / "a.jsonl", [rollout(0, 0, 1.0)])
    two = tmp_path / "b.jsonl.gz"
    two.write_bytes(gzip.compress(json.dumps(rollout(0, 1, 0.0)).encode()))
    assert profile([one, two]).statistics.overall.pass_rate.value == 0.5
    assert beside(two, "failures.jsonl") == tmp_path / "b_failures.jsonl"


def test_the_result_does_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    rows = [rollout(task, index, float((task + index) % 3 == 0), note="x" * 20_000) for task in range(150) for index in range(4)]
    path = save(tmp_path / "run.jsonl", rows)
    assert profile([path], jobs=1).statistics == profile([path], jobs=2).statistics


def test_nemo_gyms_line_of_a_task(tmp_path: Path) -> None:
    rows = [rollout(7, 0, 1.0, correct=True), rollout(7, 1, 0.0, correct=False)]
    write(measured(tmp_path, rows), tmp_path / "run.jsonl")
    (line,) = [json.loads(line) for line in (tmp_path / "run_reward_profiling.jsonl").read_text().splitlines()]
    assert line["_ng_task_index"] == 7 and line["num_rollouts"] == 2 and line["reward_profile_completion_pct"] == 100.0
    assert (line["mean/reward"], line["max/reward"], line["min/reward"], line["median/reward"]) == (0.5, 1.0, 0.0, 0.5)
    assert line["std/reward"] == pytest.approx(0.7071067811865476) and line["std/output_tokens"] == 0
    assert line["mean/correct"] == 0.5
    assert line["sample"]["responses_create_params"] == {"input": "task 7"}
    assert line["rollout_infos"][0] == {
        "rollout_id": "7:0", "_ng_task_index": 7, "_ng_rollout_index": 0, "reward": 1.0, "correct": 1,
        "input_tokens": 10, "output_tokens": 20, "total_tokens": 30,
    }  # fmt: skip


def test_one_rollout_has_a_deviation_of_0_in_nemo_gyms_file(tmp_path: Path) -> None:
    write(measured(tmp_path, [rollout(0, 0, 1.0)]), tmp_path / "run.jsonl")
    line = json.loads((tmp_path / "run_reward_profiling.jsonl").read_text())
    assert line["std/reward"] == 0.0
    ours = json.loads((tmp_path / "run_task_statistics.jsonl").read_text())
    assert ours["std_reward"] is None and ours["pass_rate"] == 1.0 and ours["pass_rate_low"] == pytest.approx(0.2065, abs=1e-4)


def test_aggregate_metrics_have_an_entry_per_agent(tmp_path: Path) -> None:
    rows = [rollout(0, 0, 1.0, "one_agent"), rollout(0, 0, 0.0, "two_agent"), rollout(0, 1, 0.5, "two_agent")]
    write(measured(tmp_path, rows), tmp_path / "run.jsonl")
    one, two = json.loads((tmp_path / "run_aggregate_metrics.json").read_text())
    assert one["agent_ref"] == {"name": "one_agent"} and one["agent_metrics"]["num_repeats"] == 1
    assert two["key_metrics"]["mean/reward"] == 0.25 and len(two["group_level_metrics"]) == 1
    assert two["agent_metrics"]["mean_across_repeats/mean/reward"] == 0.25


def test_tables_for_the_terminal_and_for_markdown(tmp_path: Path) -> None:
    statistics = measured(tmp_path, rewards([1, 0], [1, 1])).statistics
    text, markdown = to_text(statistics), to_markdown(statistics)
    assert "4 of 4 rollouts (100 %) of 2 tasks" in text and "0.750" in text and "50.0 %" in text
    assert "| math_agent | k = 1 | k = 2 |" in markdown and "| pass@k | 0.750 | 1.000 |" in markdown
    assert "| pass^k | 0.750 | 0.500 |" in markdown


def test_the_plot_is_the_same_for_the_same_profile(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from gymdata.rollouts.plot import plot

    found = measured(tmp_path, rewards([1, 0], [1, 1], [0, 0]))
    for name in ("a.svg", "b.svg", "c.png"):
        plot(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="cannot be drawn"):
        plot(found, tmp_path / "a.gif")


KEYS = st.sampled_from(
    ["responses_create_params", "response", "reward", "usage", "output", "type", "role", "output_tokens", "output_tokens_details", "status",
     "incomplete_details", "reason", "agent_ref", "name", "_ng_environment_server", "_ng_task_index", "mask_sample", "reward_components",
     "extracted_answer", "ng_perf", "num_turns", "completion_tokens", "total_latency_ms", "score", "_ng_failure_class"]
)  # fmt: skip
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(KEYS, json_values, max_size=8), min_size=1, max_size=4))
def test_no_row_breaks_a_profile(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        found = measured(folder, [*rows, rollout(9, 9, 1.0)], resamples=2)
    except DataError as error:
        assert "two rollouts" in str(error)
        return
    unusable = {finding.line for finding in found.findings[str(folder / "run.jsonl")]}
    assert len(found.rollouts) + len(unusable) == len(rows) + 1
    for path in write(found, folder / "run.jsonl"):
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert to_text(found.statistics) and to_markdown(found.statistics)
