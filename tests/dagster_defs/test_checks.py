"""Each check: a dataset that passes, one that fails, and that a blocking one stops what comes after."""

from __future__ import annotations

import json
import re

import dagster as dg
import pytest

from dagster_defs import checks
from dagster_defs.definitions import defs
from tests.dagster_defs.conftest import QUIET, Project, made, row
from tests.servers.fixtures import OWNER
from tests.servers.hub import Hub

GOOD = [row("2 + 2"), row("3 + 1"), row("1 + 3")]
DOWNSTREAM = {"row_facts", "dataset_metrics", "train_split", "validation_split"}


def table(value: dg.MetadataValue) -> list[dict]:
    assert isinstance(value, dg.TableMetadataValue)
    return [dict(record.data) for record in value.records]


def test_a_good_dataset_passes_every_blocking_check(project: Project) -> None:
    project.declare(train=GOOD, validation=[row("5 - 1")])
    result = project.run()
    assert result.success
    assert {one.check_name: one.passed for one in result.get_asset_check_evaluations()} == dict.fromkeys(
        ["license_present", "no_invalid_rows", "sidecars_current", "splits_disjoint"], True
    )
    assert made(result).keys() >= DOWNSTREAM


def test_invalid_rows_stop_the_run_and_are_shown_by_line(project: Project, check) -> None:
    project.declare(train=[*GOOD, "{nonsense", row("4"), json.dumps({"responses_create_params": {"input": 7}})])
    result = project.run()
    found = check(result, "no_invalid_rows")
    assert not result.success and not found.passed and found.blocking
    assert [(one["line"], one["code"]) for one in table(found.metadata["findings"])] == [(4, "GD101"), (6, "GD202")]
    assert "line 4, 6" in str(found.metadata["lines"].value)
    assert not made(result).keys() & DOWNSTREAM


def test_what_stops_a_run_is_said_where_the_rows_are_shown(project: Project) -> None:
    project.declare(train=GOOD)
    (project.folder / "train_metrics.json").write_text(json.dumps({"name": "x", "Number of examples": 7}))
    shown = made(project.run())["validated_rows"].metadata
    assert shown["written"].value is False and "train_metrics.json" in str(shown["not written because"].value)


def test_what_stops_a_run_leaves_the_last_good_splits(project: Project) -> None:
    project.declare(train=GOOD)
    assert project.run().success
    before = {path.name: path.read_bytes() for path in project.splits.iterdir()}
    project.declare(train=[*GOOD, "{nonsense"])
    assert not project.run().success
    assert {path.name: path.read_bytes() for path in project.splits.iterdir()} == before


def test_invalid_rows_may_be_left_out(project: Project, check) -> None:
    project.declare(train=[*GOOD, "{nonsense"])
    result = project.run(on_invalid="quarantine")
    assert result.success and check(result, "no_invalid_rows").passed
    assert made(result)["train_split"].metadata["dagster/row_count"].value == 3


def test_metrics_that_are_not_those_of_the_rows_stop_the_run(project: Project, check) -> None:
    project.declare(train=GOOD)
    assert project.run().success
    (project.folder / "train.jsonl").write_text("\n".join(GOOD[:2]) + "\n")
    result = project.run()
    found = check(result, "sidecars_current")
    assert not result.success and not found.passed and found.blocking
    assert {"file": "train_metrics.json", "number": "Number of examples", "there": 3, "now": 2} in table(
        found.metadata["differences"]
    )
    assert not made(result).keys() & DOWNSTREAM
    assert project.run(overwrite_metrics=True).success


def test_a_metrics_file_that_was_edited_is_seen_though_nothing_else_changed(project: Project, check) -> None:
    project.declare(train=GOOD)
    assert project.run().success
    path = project.folder / "train_metrics.json"
    path.write_text(path.read_text().replace('"Number of examples": 3', '"Number of examples": 4'))
    assert not check(project.run(), "sidecars_current").passed
    path.unlink()
    assert project.run().success


def test_prompts_in_both_splits_stop_the_run(project: Project, check) -> None:
    project.declare(train=GOOD, validation=[row("5 - 1"), row("3 + 1")])
    result = project.run()
    found = check(result, "splits_disjoint")
    assert not result.success and not found.passed and found.blocking
    assert [(one["file"], one["line"]) for one in table(found.metadata["findings"])] == [("validation.jsonl", 2)]
    assert not made(result).keys() & DOWNSTREAM and not project.splits.exists()


def test_prompts_in_both_splits_are_seen_though_the_splits_are_there_already(project: Project, check) -> None:
    from gymdata.environments import registry
    from gymdata.prepare import prepare

    project.declare(train=GOOD, validation=[row("3 + 1")])
    prepare([registry.load("math")], project.splits)
    assert not check(project.run(), "splits_disjoint").passed


def test_a_benchmark_without_a_license_stops_the_run(project: Project, check) -> None:
    project.declare(license=None, kind="benchmark", benchmark=GOOD)
    result = project.run()
    found = check(result, "license_present")
    assert not found.passed and found.blocking and found.severity == dg.AssetCheckSeverity.ERROR
    assert made(result).keys() == {"source_files"}


def test_a_license_that_is_to_be_decided_is_a_warning(project: Project, check) -> None:
    project.declare(license="TBD", train=GOOD)
    result = project.run()
    found = check(result, "license_present")
    assert result.success and not found.passed and found.severity == dg.AssetCheckSeverity.WARN


def expect(name: str, kind: str, severity: str = "critical", table: str = "facts", **kwargs) -> dict:
    return {"type": f"expect_column_values_to_be_{kind}", "kwargs": kwargs, "severity": severity, "description": f"{name}!",
            "meta": {"name": name, "table": table}}  # fmt: skip


@pytest.fixture
def suite(project: Project):
    """Writes the suite of `math`."""
    pytest.importorskip("great_expectations")

    def write(*expectations: dict) -> None:
        path = project.folder / "environments" / "math.expectations.json"
        path.write_text(json.dumps({"name": "math", "expectations": expectations}))

    return write


def test_each_expectation_is_a_check_which_names_the_unexpected_lines_and_does_not_block(project: Project, suite, check) -> None:
    project.declare(
        train=[*GOOD, row("one two three four five six seven")],
        validation=[row("5 - 1"), row("what is eight and eight and eight")],
    )
    suite(
        expect("tokens_in_context", "between", column="tokens", min_value=1, max_value=5),
        expect("turns", "between", "warning", column="turns", min_value=2),
        expect("unique_rows", "unique", column="key"),
        expect("rows_kept", "between", table="statistics", column="rows_kept", min_value=1),
    )
    result = project.run("prepare")
    assert result.success
    tokens, turns = check(result, "tokens_in_context"), check(result, "turns")
    assert not tokens.passed and not tokens.blocking and tokens.severity == dg.AssetCheckSeverity.ERROR
    assert [(one["split"], one["place"]) for one in table(tokens.metadata["unexpected rows"])] == [
        ("train", "train.jsonl:4"),
        ("validation", "validation.jsonl:2"),
    ]
    assert not turns.passed and turns.severity == dg.AssetCheckSeverity.WARN
    assert check(result, "unique_rows").passed and check(result, "rows_kept").passed
    assert check(result, "rows_kept").asset_key == dg.AssetKey("dataset_metrics")


def test_a_dataset_that_shrinks_does_not_meet_its_suite(project: Project, suite, check) -> None:
    suite_of = [expect("rows_kept", "between", table="statistics", column="rows_kept", min_value=1)]
    project.declare(train=GOOD)
    suite(*suite_of)
    assert check(project.run("prepare"), "rows_kept").passed
    project.declare(train=GOOD[:2])
    assert not check(project.run("prepare"), "rows_kept").passed


def test_rows_are_counted_against_what_is_published(
    project: Project, suite, check, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", OWNER)
    resources = {"hub": {"repo_id": "acme/sums"}}
    project.declare(train=GOOD)
    suite(expect("rows_kept", "between", table="statistics", column="rows_kept", min_value=1))
    assert check(project.run("prepare", resources=resources), "rows_kept").passed  # nothing is published: no matter
    hub.add_repo("acme/sums", {"train.jsonl": "\n".join([*GOOD, row("4 + 0")]).encode()})
    found = check(project.run("prepare", resources=resources), "rows_kept")
    assert not found.passed and "3 rows, 4 before" in (found.description or "")


def test_the_suite_is_not_run_for_expectations_of_other_environments(project: Project, suite, monkeypatch) -> None:
    project.declare(train=GOOD)
    suite(expect("unique_rows", "unique", column="key"))
    assert project.run().success
    monkeypatch.setattr("dagster_defs.checks.run_suite", lambda *_, **__: pytest.fail("it was run"))
    other = dg.AssetCheckKey(dg.AssetKey("row_facts"), "answer_readable")
    subset = defs.resolve_job_def("__ASSET_JOB").get_subset(asset_selection=set(), asset_check_selection={other})
    result = subset.execute_in_process(partition_key="math", instance=project.instance, run_config=QUIET)
    assert result.success and not result.get_asset_check_evaluations()


@pytest.mark.parametrize(
    "expectation",
    [
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "key"}, "meta": {"name": "größe"}},
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "key"}, "description": ["each row once"]},
    ],
)
def test_no_suite_keeps_the_others_from_being_loaded(project: Project, suite, expectation: dict) -> None:
    project.declare(train=GOOD)
    suite(expectation)
    names = [spec.name for spec in checks.specs()]
    assert "tokens_in_context" in names and all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in names)


def test_an_environment_without_a_suite_has_nothing_to_be_checked_against(project: Project) -> None:
    project.declare(train=GOOD)
    result = project.run("prepare")
    assert result.success
    assert len(result.get_asset_check_evaluations()) == 4
