"""NeMo Gym's numbers where the reference cases do not reach: repeats, several datasets, awkward names, mixed types."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.rows.columns import Columns
from gymdata.statistics import metrics as module
from gymdata.statistics.metrics import Moments, count_distinct, gym_metrics, to_json

numbers = st.integers(-(10**6), 10**6) | st.floats(-1e9, 1e9)


def columns_of(*fields: dict[str, Any], **params: Any) -> Columns:
    columns = Columns()
    for line, extra in enumerate(fields, 1):
        create = {"input": "a b c", **params}
        columns.add_row(line, {"responses_create_params": create, **extra}, create)
    return columns


def gym_observe(values: list[float]) -> tuple[int, float, float]:
    """Welford's algorithm as published, one value after the other."""
    count, mean, squares = 0, 0.0, 0.0
    for value in values:
        count += 1
        delta = value - mean
        mean += delta / count
        squares += delta * (value - mean)
    return count, mean, squares


@given(st.lists(st.lists(numbers, max_size=8), max_size=4))
def test_observing_in_pieces_is_observing_all_bit_for_bit(pieces: list[list[float]]) -> None:
    moments = Moments()
    for piece in pieces:
        moments.observe(piece, piece)
    assert (moments.total, moments.mean, moments.squares) == gym_observe([value for piece in pieces for value in piece])


@given(st.lists(numbers, max_size=20))
def test_merging_each_value_is_merging_sequences_of_one_bit_for_bit(values: list[float]) -> None:
    at_once, one_by_one = Moments(), Moments()
    at_once.merge_each(values, values)
    for value in values:
        single = Moments()
        single.observe([value], [value])
        one_by_one.merge(single)
    assert vars(at_once) == vars(one_by_one)


@given(st.lists(numbers | st.lists(numbers, max_size=3), max_size=8), st.integers(1, 4))
def test_repeats_are_the_rows_written_so_often(column: list[Any], repeats: int) -> None:
    rows = [{"x": value} for value in column]
    written_out = columns_of(*(row for row in rows for _ in range(repeats)))
    assert gym_metrics([(columns_of(*rows), repeats)]) == gym_metrics([(written_out, 1)])


def test_columns_of_several_datasets_are_pooled() -> None:
    metrics = gym_metrics([(columns_of({"x": 1, "s": "a"}, {"x": 3, "s": "b"}), 1), (columns_of({"x": 100, "s": "a"}), 2)])
    assert metrics["x"] == {
        "Total # non-null values": 4,
        "Average": 51.0,
        "Min": 1.0,
        "Max": 100.0,
        "Standard deviation": 56.59,
    }
    assert metrics["s"] == {"unique_count": 2, "total_count": 4}


def test_numbers_and_strings_of_one_column_have_both_summaries() -> None:
    assert gym_metrics([(columns_of({"x": "a"}, {"x": 2}, {"x": [None, "a", True]}), 1)])["x"] == {
        "Total # non-null values": 2,
        "Average": 1.5,
        "Min": 1.0,
        "Max": 2.0,
        "Standard deviation": 0.707,
        "unique_count": 1,
        "total_count": 2,
    }


@pytest.mark.parametrize("key", ["_x", "__class__", "json", "copy", "model_config", "add"])
def test_columns_that_gym_loses_by_their_name_are_lost_here(key: str) -> None:
    assert key not in gym_metrics([(columns_of({key: 1}), 1)])


@pytest.mark.parametrize("key", ["temperature", "number_of_examples", "is_aggregated", "aggregate", "model_extra", ""])
def test_columns_on_whose_name_gym_dies_are_columns_like_others(key: str) -> None:
    assert gym_metrics([(columns_of({key: 4}), 1)])[key]["Average"] == 4.0


def test_a_column_named_like_one_of_gyms_own_takes_its_place() -> None:
    metrics = gym_metrics([(columns_of({"Temperature": "hot", "x": 1}, temperature=0.5), 1)])
    assert metrics["Temperature"] == {"unique_count": 1, "total_count": 1}
    assert list(metrics)[-2:] == ["Temperature", "x"]


def test_tools_count_where_declared_and_turns_where_there_are_any() -> None:
    with_tools = gym_metrics([(columns_of({}, tools=[]), 1)])
    without = gym_metrics([(columns_of({}, input=[]), 1)])
    assert [metrics["Number of tools"]["Total # non-null values"] for metrics in (with_tools, without)] == [1, 0]
    assert [metrics["Number of turns"]["Total # non-null values"] for metrics in (with_tools, without)] == [1, 0]


def test_tasks_add_their_own_numbers() -> None:
    columns = Columns()
    for line in range(105):
        row = {"task_id": {"taskset": f"set{min(line, 102):03}", "task_id": "1"}, "task_input": {"q": "a b"}}
        columns.add_row(line, row, None)
    metrics = gym_metrics([(columns, 1)])
    assert metrics["Number of tasks"] == 105
    assert metrics["Json-dumped task-input words (proxy for token count)"]["Average"] == 3.0
    assert metrics["Tasksets"]["unique_count"] == 101
    assert metrics["Tasksets"]["counts"]["Other"] == 5


def test_what_no_double_can_hold_is_null_and_the_file_stays_json() -> None:
    text = to_json(gym_metrics([(columns_of({"x": 1e308}, {"x": -1e308}), 1)]))
    assert json.loads(text, parse_constant=pytest.fail)["x"]["Standard deviation"] is None


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5)))
def test_many_values_are_as_distinct_as_few(values: list[int]) -> None:
    many = module.MANY
    try:
        module.MANY = 1
        assert count_distinct(array("Q", values)) == len(set(values))
    finally:
        module.MANY = many
