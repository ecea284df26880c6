"""The pull request, on a Hub of the test's own."""

from __future__ import annotations

import dagster as dg
import pytest

from tests.dagster_defs.conftest import Project, made, row
from tests.servers.fixtures import OWNER
from tests.servers.hub import Hub

CONFIG = {"hub": {"repo_id": "acme/sums"}}
MADE_BEFORE = {"source_files", "validated_rows", "row_facts", "dataset_metrics", "train_split", "validation_split"}


def test_a_prepared_dataset_is_proposed_and_read_back(project: Project, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", OWNER)
    project.declare(train=[row("2 + 2"), row("3 + 1")], validation=[row("5 - 1")])
    assert project.run().success
    result = project.run("", "hub_pull_request", resources=CONFIG)
    shown = made(result)["hub_pull_request"].metadata
    assert len(hub.open_pull_requests("acme/sums")) == 1
    assert isinstance(shown["pull request"], dg.UrlMetadataValue) and str(shown["pull request"].value).endswith("/discussions/1")
    assert (shown["rows, train"].value, shown["rows, validation"].value) == (2, 1)
    again = made(project.run("", "hub_pull_request", resources=CONFIG))["hub_pull_request"]
    assert again.metadata["sent"].value is False and len(hub.open_pull_requests("acme/sums")) == 1


def test_what_may_not_leave_is_not_sent_and_the_failure_says_why(
    project: Project, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", OWNER)
    project.declare(license="TBD", train=[row("2 + 2")])
    assert project.run().success
    result = project.run("", "hub_pull_request", resources=CONFIG)
    (failure,) = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    assert failure
    objections = failure.metadata["objections"]
    assert isinstance(objections, dg.TableMetadataValue) and [one.data["code"] for one in objections.records] == ["GD703"]
    assert "acme/sums" not in hub.repos


def test_a_run_that_makes_other_assets_too_proposes_nothing(project: Project, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", OWNER)
    project.declare(train=[row("2 + 2")])
    result = project.run("", *MADE_BEFORE, "hub_pull_request", resources=CONFIG)
    assert result.success and made(result).keys() == MADE_BEFORE
    assert "acme/sums" not in hub.repos
