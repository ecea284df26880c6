"""Statistics of our own: quantiles, what is unique, what fields hold, and the text that people read."""

from __future__ import annotations

import math
import statistics as reference
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.rows.columns import Columns
from gymdata.statistics import statistics as module
from gymdata.statistics.statistics import Statistics, distribution, render_text, summarise
from gymdata.statistics.tokens import TokenCounter

TOOL = {"type": "function", "name": "add", "parameters": {}, "strict": True}


def sample() -> Columns:
    columns = Columns(TokenCounter().count)
    rows = [
        {"responses_create_params": {"input": "2 + 2 = ?", "temperature": 0.7, "tools": [TOOL]}, "answer": 4, "id": "a"},
        {"responses_create_params": {"input": [{"role": "user", "content": "2 + 2 = ?"}], "temperature": 1.0}, "answer": "four"},
        {"responses_create_params": {"input": "2 + 2 = ?", "temperature": 0.7, "tools": [TOOL]}, "answer": 4, "id": "a"},
    ]
    for line, row in enumerate(rows, 1):
        columns.add_row(line, row, row["responses_create_params"])
    return columns


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1).map(lambda values: array("I", values)))
def test_a_distribution_is_exact(values: array[int]) -> None:
    summary = distribution(values)
    ordered = sorted(values)
    assert (summary.count, summary.min, summary.max) == (len(values), ordered[0], ordered[-1])
    assert summary.mean == pytest.approx(reference.mean(values), rel=1e-12)
    assert summary.std == pytest.approx(reference.stdev(values) if len(values) > 1 else 0.0, rel=1e-9)
    for percent in (1, 5, 25, 50, 75, 90, 95, 99):
        quantile = getattr(summary, f"p{percent:02}")
        assert sum(value <= quantile for value in values) * 100 >= percent * len(values)
        assert sum(value < quantile for value in values) * 100 < percent * len(values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_no_number_overflows_a_distribution(values: list[float]) -> None:
    summary = distribution(array("d", values))
    assert all(math.isfinite(value) for value in summary.model_dump().values())


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_many_values_are_summarised_as_few(values: list[float]) -> None:
    many = module.MANY
    few = distribution(array("d", values))
    try:
        module.MANY = 1
        assert distribution(array("d", values)) == few
    finally:
        module.MANY = many


def test_no_values_have_a_count_only() -> None:
    assert distribution(array("I")).model_dump(exclude_none=True) == {"count": 0}


def test_the_statistics_of_a_file() -> None:
    columns = sample()
    statistics = summarise(columns, rows=4, tokenizer=TokenCounter().tokenizer)
    assert (statistics.rows, statistics.valid) == (4, 3)
    assert statistics.unique.model_dump() == {
        "rows": 2,
        "duplicate_rows": 1,
        "create_params": 2,
        "prompts": 1,
        "user_messages": 1,
    }
    assert statistics.roles == {"user": 3}
    assert statistics.item_types == {"string": 2, "message": 1}
    assert statistics.tools.model_dump() == {"total": 2, "unique": 1, "top": {"add": 2}}
    assert statistics.parameters["temperature"].top == {"0.7": 2, "1.0": 1}
    assert statistics.lengths.tools.count == 2
    assert statistics.lengths.tokens.min == 6
    answer = statistics.fields["answer"]
    assert (answer.present, answer.absent, answer.kinds, answer.mixed) == (3, 0, {"integer": 2, "string": 1}, True)
    assert statistics.fields["id"].model_dump()["strings"] == {"total": 2, "unique": 1}
    assert statistics.fields["id"].absent == 1


def test_statistics_survive_json() -> None:
    statistics = summarise(sample(), tokenizer=TokenCounter().tokenizer)
    assert Statistics.model_validate_json(statistics.model_dump_json()) == statistics


def test_the_text_is_aligned() -> None:
    text = render_text(summarise(sample(), rows=4, tokenizer=TokenCounter().tokenizer))
    assert text.splitlines()[0] == "3 of 4 rows valid, 1 of them duplicates"
    [answer] = [line for line in text.splitlines() if line.startswith("answer")]
    assert answer.split("  ")[-1].strip() == "1"
    assert "integer, string (mixed)" in answer
    assert all(line == line.rstrip() for line in text.splitlines())


def test_no_rows_have_a_text_too() -> None:
    assert render_text(summarise(Columns())).startswith("0 of 0 rows valid")
