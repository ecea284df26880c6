"""Numbers against those that NeMo Gym 0.7.0 gave (cases beside the repository)."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from gymdata.rows.columns import Columns, count_turns, count_words
from gymdata.statistics.metrics import Moments, gym_metrics

CASES = Path(__file__).parents[3] / "shared" / "cases"
if not CASES.is_dir():
    pytest.skip("the reference cases (../shared/cases) are not here", allow_module_level=True)

EXAMPLES = sorted((CASES / "gym_examples").iterdir())
SEQUENCES = json.loads((CASES / "numeric.json").read_bytes())


def dump(row: dict[str, Any]) -> dict[str, Any] | None:
    """The create-params as Gym dumps them, None for a materialised task."""
    from gymdata.validation.rules import schema

    if isinstance(row.get("task_id"), dict) and "task_input" in row:
        return None
    findings, params = schema.check(row)
    assert params is not None, findings
    return params


def columns_of(case: Path) -> Columns:
    columns = Columns()
    for number, line in enumerate((case / "example.jsonl").read_bytes().splitlines(), 1):
        row = json.loads(line)
        columns.add_row(number, row, dump(row))
    return columns


@pytest.mark.parametrize("index", range(len(SEQUENCES)))
def test_a_sequence_has_gyms_average_minimum_maximum_and_deviation(index: int) -> None:
    case = SEQUENCES[index]
    values = array("d", case["values"])
    observed, merged = Moments(), Moments()
    observed.observe(values, values)
    merged.merge_each(values, values)
    assert json.dumps(observed.summary()) == case["observe"]
    assert json.dumps(merged.summary()) == case["merge"]


@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case.name)
def test_metrics_of_a_public_environment_equal_gyms(case: Path) -> None:
    if not (case / "gym_metrics.json").exists():
        pytest.skip("Gym dies on this one")
    assert json.dumps(gym_metrics([(columns_of(case), 1)]), indent=4) == (case / "gym_metrics.json").read_text()


@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case.name)
def test_rows_of_a_public_environment_have_gyms_words_and_turns(case: Path) -> None:
    if not (case / "gym_rows.json").exists():
        pytest.skip("Gym dies on this one")
    lines = (case / "example.jsonl").read_bytes().splitlines()
    for line, (_, tools, turns, words, temperature) in zip(lines, json.loads((case / "gym_rows.json").read_bytes()), strict=True):
        params = dump(json.loads(line))
        if params is not None:
            assert (count_words(params), count_turns(params)) == (words, turns)
            assert len(params.get("tools") or ()) == (tools or 0)
            assert params.get("temperature") == temperature
