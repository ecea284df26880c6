"""Numbers and sidecar verdicts against those that NeMo Gym 0.7.0 gave (cases beside the repository)."""

from __future__ import annotations

import json
import re
from array import array
from pathlib import Path
from typing import Any

import pytest

from gymdata.rows.columns import Columns, count_turns, count_words
from gymdata.statistics.metrics import Moments, gym_metrics
from gymdata.statistics.sidecar import compare

CASES = Path(__file__).parents[3] / "shared" / "cases"
if not CASES.is_dir():
    pytest.skip("the reference cases (../shared/cases) are not here", allow_module_level=True)

ENTRY = {"name", "type", "jsonl_fpath", "num_repeats", "source", "gitlab_identifier", "huggingface_identifier", "license"}
EXAMPLES = sorted((CASES / "gym_examples").iterdir())
SEQUENCES = json.loads((CASES / "numeric.json").read_bytes())


def dump(row: dict[str, Any]) -> dict[str, Any] | None:
    """The create-params as Gym dumps them, None for a materialised task."""
    if isinstance(row.get("task_id"), dict) and "task_input" in row:
        return None
    schema = pytest.importorskip("gymdata.validation.rules.schema")
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
            assert (count_words(params), count_turns(params) or None) == (words, turns)
            assert len(params.get("tools") or ()) == (tools or 0)
            assert params.get("temperature") == temperature


def test_a_column_of_numbers_and_strings_on_which_gym_dies_has_both_summaries() -> None:
    metrics = gym_metrics([(columns_of(CASES / "gym_examples" / "iheval"), 1)])
    assert metrics["id"] == {
        "Total # non-null values": 3,
        "Average": 667.0,
        "Min": 1.0,
        "Max": 1000.0,
        "Standard deviation": 576.77,
        "unique_count": 2,
        "total_count": 2,
    }


@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case.name)
def test_a_committed_sidecar_has_gyms_differences(case: Path) -> None:
    if not (case / "gym_metrics.json").exists():
        pytest.skip("Gym dies on this one")
    fresh = json.loads((case / "gym_metrics.json").read_bytes())
    committed = json.loads((case / "committed_metrics.json").read_bytes())
    # The dataset's entry in the configuration is no part of `gym_metrics.json`; as Gym was run, it agreed.
    entry = {key: value for key, value in committed.items() if key in ENTRY}
    places = [
        re.match(r"(?:Missing key in new metrics: |[A-Z][\w ]*? at )(.*?)(?:: |$)", difference)
        for difference in json.loads((case / "gym_result.json").read_bytes())["metric_diffs"]
    ]
    assert [difference.path for difference in compare(committed, entry | fresh)] == [place and place[1] for place in places]
