"""Rollouts of the train split from a model server, measured, and the tasks that they recommend."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster_defs.conftest import Project, failures, made, row

pytest.importorskip("aiohttp", reason="the extra `rollouts` is not installed")
pytest.importorskip("math_verify", reason="the extra `verifiers` is not installed")
from tests.servers.model import ModelServer

ASSETS = ("rollouts", "rewards", "reward_profile", "selected_split")
ROWS = [row(f"What is {one} plus {one + 3}?", str(2 * one + 3)) for one in range(6)]


def test_rollouts_are_made_measured_and_select_tasks(project: Project) -> None:
    project.declare(train=ROWS)
    assert project.run().success
    with ModelServer() as server:
        sampling = {"model_urls": [server.url], "num_repeats": 4}
        result = project.run("", *ASSETS, resources={"sampling": sampling})
        asked = len(server.requests)
        again = project.run("", "rollouts", resources={"sampling": sampling})
        assert len(server.requests) == asked
    assert failures(result) == failures(again) == []
    shown = made(result)
    assert shown["rollouts"].metadata["dagster/row_count"].value == 24
    assert shown["rewards"].metadata["dagster/row_count"].value == 24
    assert shown["rewards"].metadata["other rewards than stored"].value == shown["rewards"].metadata["not scored"].value == 0
    assert shown["rewards"].metadata["mean reward"].value == shown["rollouts"].metadata["mean reward"].value
    assert shown["reward_profile"].metadata["tasks"].value == 6
    assert made(again)["rollouts"].metadata["made by this run"].value == 0
    selected = [json.loads(line) for line in Path("rollouts/math_selected.jsonl").read_text().splitlines()]
    assert shown["selected_split"].metadata["dagster/row_count"].value == len(selected) > 0
    assert all(0 < one["pass_rate"] < 1 for one in selected)


def test_rewards_follow_the_verifier_without_asking_the_model(project: Project) -> None:
    project.declare(train=ROWS)
    assert project.run().success
    with ModelServer() as server:
        sampling = {"model_urls": [server.url], "num_repeats": 2}
        assert not failures(project.run("", "rollouts", resources={"sampling": sampling}))
    stored = Path("rollouts/math.jsonl")
    rows = [json.loads(line) for line in stored.read_text().splitlines()]
    rows[0]["reward"] = 1 - rows[0]["reward"]
    rows[1]["response"] = None
    stored.write_text("".join(json.dumps(one) + "\n" for one in rows))
    result = project.run("", *ASSETS[1:])
    assert failures(result) == []
    shown = made(result)["rewards"].metadata
    assert (shown["dagster/row_count"].value, shown["other rewards than stored"].value, shown["not scored"].value) == (11, 1, 1)
    changed, failed = shown["changed"], shown["failed"]
    assert isinstance(changed, dg.TableMetadataValue) and changed.records[0].data["line"] == 1
    assert isinstance(failed, dg.TableMetadataValue) and failed.records[0].data["kind"] == "error"
    statistics = json.loads(Path("rollouts/math_reward_statistics.json").read_text())
    assert (statistics["overall"]["rollouts"], statistics["coverage"]["expected_rollouts"]) == (11, 12)


def test_without_a_server_the_failure_says_what_to_set(project: Project) -> None:
    project.declare(train=ROWS)
    assert project.run().success
    result = project.run("", "rollouts")
    assert "model server" in failures(result)[0]


@pytest.mark.parametrize(
    ("asset", "before"), [("rewards", "rollouts"), ("reward_profile", "rewards"), ("selected_split", "rollouts")]
)
def test_what_was_never_made_is_named_at_once(project: Project, asset: str, before: str) -> None:
    project.declare(train=ROWS)
    assert project.run().success
    result = project.run("", asset)
    (failure,) = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    assert failure and f"materialize `{before}` first" in str(failure.metadata["what to do"].value)
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_a_run_that_names_a_server_makes_splits_and_rollouts_together(project: Project) -> None:
    project.declare(train=ROWS)
    with ModelServer() as server:
        sampling = {"model_urls": [server.url], "num_repeats": 4}
        result = project.run("", "source_files", "validated_rows", "train_split", *ASSETS, resources={"sampling": sampling})
    assert failures(result) == []
    assert made(result).keys() >= set(ASSETS)


def test_missing_rollouts_are_told_with_their_reasons(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_defs.failures.ExternalError", ())  # nothing is worth another try, which comes after 10 seconds
    project.declare(train=ROWS)
    config = project.folder / "environments" / "math.yaml"
    config.write_text(config.read_text().replace("should_use_judge: false", "should_use_judge: true"))
    assert project.run().success
    with ModelServer() as server:  # which answers what a judge is asked with a number, too
        sampling = {"model_urls": [server.url], "num_repeats": 8}
        result = project.run("", "rollouts", resources={"sampling": sampling})
    assert "rollouts are missing" in failures(result)[0] and "judge_failed: no_label" in failures(result)[0]


def test_a_run_that_makes_the_train_split_asks_no_model(project: Project) -> None:
    project.declare(train=ROWS)
    result = project.run("", "source_files", "validated_rows", "train_split", *ASSETS)
    assert result.success and not made(result).keys() & set(ASSETS)
