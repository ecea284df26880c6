"""What runs by itself: what changed and what is made from it, and nothing else."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest

from dagster_defs import automation
from dagster_defs.definitions import defs
from tests.dagster_defs.conftest import Project, made, row
from tests.servers.hub import Hub

ROWS = [row("2 + 2"), row("3 + 1"), row("1 + 3")]
PRODUCTS = {"row_facts", "dataset_metrics", "train_split", "validation_split"}


@dataclass
class Daemon:
    """Evaluates the automation conditions as Dagster's daemon does, tick by tick, and runs what they ask for."""

    project: Project
    cursor: Any = None
    checks: list[str] = field(default_factory=list)
    """The checks asked for by themselves, tick by tick."""

    def tick(self) -> set[str]:
        """The assets asked for."""
        result = dg.evaluate_automation_conditions(
            defs, self.project.instance, asset_selection=dg.AssetSelection.all(), cursor=self.cursor
        )
        self.cursor = result.cursor
        self.checks += [
            one.key.name
            for one in result.results
            if isinstance(one.key, dg.AssetCheckKey) and "math" in one.true_subset.expensively_compute_partition_keys()
        ]
        asked = {
            one.key.to_user_string()
            for one in result.results
            if isinstance(one.key, dg.AssetKey) and "math" in one.true_subset.expensively_compute_partition_keys()
        }
        if asked:
            self.project.run("", *asked, overwrite_metrics=True)
        return asked

    def settle(self) -> list[set[str]]:
        """What is asked for until nothing is."""
        ticks = []
        while asked := self.tick():
            ticks.append(asked)
        return ticks


def suite(project: Project) -> None:
    """Expect of `math` what the built-in suites expect of theirs under the same name."""
    pytest.importorskip("great_expectations")
    turns = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "turns", "min_value": 1},
        "meta": {"name": "turns"},
    }
    path = project.folder / "environments" / "math.expectations.json"
    path.write_text(json.dumps({"name": "math", "expectations": [turns]}))


@pytest.fixture
def daemon(project: Project) -> Daemon:
    """A daemon that has been up since before `math` was looked at."""
    project.declare(train=ROWS)
    daemon = Daemon(project)
    assert daemon.settle() == []
    return daemon


def test_what_is_made_from_new_files_follows(daemon: Daemon) -> None:
    daemon.project.run("look_at_sources")
    assert daemon.settle() == [{"validated_rows"}, PRODUCTS]


def test_checks_that_ran_with_their_assets_are_not_asked_for_again(daemon: Daemon) -> None:
    suite(daemon.project)
    daemon.project.run("look_at_sources")
    daemon.settle()
    assert "turns" not in daemon.checks
    key = dg.AssetCheckKey(dg.AssetKey("row_facts"), "turns")
    history = daemon.project.instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    assert len(history) == 1


def test_checks_that_a_run_of_their_assets_left_out_are_asked_for_once(daemon: Daemon) -> None:
    suite(daemon.project)
    daemon.project.run("splits")
    daemon.settle()
    assert daemon.checks.count("turns") == 1


def test_a_file_that_was_only_touched_changes_nothing(daemon: Daemon) -> None:
    daemon.project.run("look_at_sources")
    daemon.settle()
    os.utime(daemon.project.folder / "train.jsonl")
    daemon.project.run("look_at_sources")
    assert daemon.settle() == []


def test_an_edited_file_has_its_rows_and_products_made_again(daemon: Daemon) -> None:
    daemon.project.run("look_at_sources")
    daemon.settle()
    (daemon.project.folder / "train.jsonl").write_text("\n".join(ROWS[:2]) + "\n")
    daemon.project.run("look_at_sources")
    assert daemon.settle() == [{"validated_rows"}, PRODUCTS]


def test_after_invalid_rows_nothing_follows_until_they_are_mended(daemon: Daemon) -> None:
    daemon.project.run("look_at_sources")
    daemon.settle()
    source, kept = daemon.project.folder / "train.jsonl", daemon.project.splits / "train.jsonl"
    before = kept.read_bytes()
    source.write_text("\n".join([*ROWS, "{nonsense"]) + "\n")
    daemon.project.run("look_at_sources")
    assert daemon.settle() == [{"validated_rows"}]
    assert kept.read_bytes() == before
    source.write_text("\n".join(ROWS[:2]) + "\n")
    daemon.project.run("look_at_sources")
    assert set().union(*daemon.settle()) == {"validated_rows", *PRODUCTS}
    assert kept.read_bytes().count(b"\n") == 2


def test_unchanged_inputs_are_not_computed_again_and_keep_their_data_versions(project: Project) -> None:
    project.declare(train=ROWS)
    first, second = made(project.run()), made(project.run())
    assert [run["validated_rows"].metadata["up to date"].value for run in (first, second)] == [False, True]
    versions = [{asset: (one.tags or {})["dagster/data_version"] for asset, one in run.items()} for run in (first, second)]
    assert versions[0] == versions[1]


def test_publishing_is_never_automatic() -> None:
    assert defs.get_assets_def("hub_pull_request").automation_conditions_by_key == {}
    for job in ("prepare", "splits", "look_at_sources"):
        assert "hub_pull_request" not in {
            key.to_user_string() for key in defs.resolve_job_def(job).asset_layer.executable_asset_keys
        }


def look(project: Project, sensor: dg.SensorDefinition, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
    with dg.build_sensor_context(project.instance, cursor=cursor, definitions=defs) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return result


def test_the_sensor_asks_for_environments_whose_files_were_written_to(project: Project) -> None:
    project.declare(train=ROWS)
    assert isinstance(look(project, automation.edited_files), dg.SkipReason)  # it was never looked at
    project.run("look_at_sources")
    first = look(project, automation.edited_files)
    assert isinstance(first, dg.SensorResult) and [one.partition_key for one in first.run_requests or ()] == ["math"]
    assert isinstance(look(project, automation.edited_files, first.cursor), dg.SkipReason)
    (project.folder / "train.jsonl").write_text("\n".join(ROWS[:2]) + "\n")
    again = look(project, automation.edited_files, first.cursor)
    assert isinstance(again, dg.SensorResult) and [one.partition_key for one in again.run_requests or ()] == ["math"]
    assert first.run_requests and again.run_requests and first.run_requests[0].run_key != again.run_requests[0].run_key


def test_the_schedule_asks_for_every_environment_once_a_day() -> None:
    from datetime import datetime

    asked = []
    for hour in (5, 6):
        context = dg.build_schedule_context(scheduled_execution_time=datetime(2026, 1, 2, hour))
        asked.append({one.run_key: one.partition_key for one in cast("Any", automation.every_day(context))})
    assert set(asked[0].values()) == set(automation.environments.get_partition_keys())
    assert asked[0] == asked[1]


def test_a_new_revision_on_the_hub_is_fetched_and_seen(project: Project, hub: Hub) -> None:
    source = "huggingface, repo_id: acme/sums, artifact_fpath: train.jsonl"
    hub.add_repo("acme/sums", {"train.jsonl": "\n".join(ROWS).encode() + b"\n"})
    project.declare(train=ROWS)
    path = project.folder / "environments" / "math.yaml"
    path.write_text(path.read_text().replace("license: MIT", f"license: MIT, source: {{type: {source}}}"))
    (project.folder / "train.jsonl").unlink()
    assert project.run("look_at_sources", download=True).success
    assert isinstance(look(project, automation.new_revisions), dg.SkipReason)
    hub.commit("acme/sums", {"train.jsonl": "\n".join(ROWS[:2]).encode() + b"\n"})
    result = look(project, automation.new_revisions)
    assert isinstance(result, dg.SensorResult) and result.run_requests
    request = result.run_requests[0]
    assert request.partition_key == "math"
    assert project.run("look_at_sources", **request.run_config["resources"]["preparation"]["config"]).success
    assert Path("train.jsonl").read_bytes().count(b"\n") == 2
    assert isinstance(look(project, automation.new_revisions), dg.SkipReason)
