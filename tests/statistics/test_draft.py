"""A drafted suite holds for the data that it was made from, whatever that is, and says where each limit comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gymdata.errors import UsageError
from gymdata.statistics.draft import draft
from gymdata.statistics.expectations import run_suite
from gymdata.statistics.prepared import read_splits

pytest.importorskip("great_expectations", reason="the extra `expectations` is not installed")

Rows = list[dict[str, Any]]


def as_it_is(rows: Rows) -> None:
    pass


def empty_prompts(rows: Rows) -> None:
    for row in rows[:3]:
        row["responses_create_params"]["input"] = []


def half_without_a_user(rows: Rows) -> None:
    for row in rows[::2]:
        row["responses_create_params"]["input"] = [{"role": "assistant", "content": str(row)}]


def all_the_same(rows: Rows) -> None:
    rows[:] = [rows[0]] * 5


def one_row(rows: Rows) -> None:
    del rows[1:]


def hot_and_cold(rows: Rows) -> None:
    for row, temperature in zip(rows, (0, 0.25, 1), strict=False):
        row["responses_create_params"]["temperature"] = temperature


@pytest.mark.parametrize("change", [as_it_is, empty_prompts, half_without_a_user, all_the_same, one_row, hot_and_cold])
@pytest.mark.parametrize("name", ["math", "multi_step", "instruction_following"])
def test_a_draft_holds_for_what_it_was_made_from(
    prepared: Any, tmp_path: Path, name: str, change: Callable[[Rows], None]
) -> None:
    directory, environment = prepared(name, change)
    suite = draft(name, read_splits(directory, environment))
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(suite))
    outcomes = run_suite(directory, environment, path)
    assert [outcome for outcome in outcomes if not outcome.success] == []
    assert len(outcomes) == len(suite["expectations"])
    assert all(entry["description"] and entry["notes"] for entry in suite["expectations"])


def test_there_is_nothing_to_draft_from_without_rows(prepared: Any) -> None:
    directory, environment = prepared()
    (split,) = read_splits(directory, environment).values()
    with pytest.raises(UsageError, match="no valid rows"):
        draft("math", {"train": replace(split, facts=split.facts.clear())})
