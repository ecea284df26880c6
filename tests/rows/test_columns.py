"""Columns: the same from any split of a file, and words counted without a dump."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymdata.rows import fields as module
from gymdata.rows.columns import Columns, count_turns, count_words
from gymdata.rows.facts import Facts
from gymdata.rows.fields import Digests, Tally
from gymdata.statistics.metrics import gym_metrics
from gymdata.statistics.statistics import summarise

text = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(' \t\n\u00a0"\\'), max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)

plain_rows = st.builds(
    lambda prompt, temperature, fields: {
        "responses_create_params": {"input": prompt} | ({} if temperature is None else {"temperature": temperature}),
        **fields,
    },
    st.sampled_from(["a b", "Say it", [{"role": "user", "content": "x  y"}, {"role": "user", "content": "z"}]]),
    st.sampled_from([None, 0.5, 1.0]),
    st.dictionaries(
        st.sampled_from(["score", "answer", "tags", "_hidden", "Temperature"]),
        st.integers(-3, 3)
        | st.sampled_from(["yes", "no", 0.25, None, True])
        | st.lists(st.sampled_from([1, 2.5, "yes", None, [3]])),
    ),
)
tasks = st.builds(
    lambda name, words: {"task_id": {"taskset": name, "task_id": "1"}, "task_input": {"question": words}},
    st.sampled_from(["a", "b"]),
    text,
)
tables = st.lists(plain_rows | tasks, max_size=12)


def columns_of(rows: list[dict[str, Any]], first: int = 1) -> Columns:
    columns = Columns()
    for line, row in enumerate(rows, first):
        columns.add_row(line, row, row.get("responses_create_params"))
    return columns


@given(values)
def test_words_are_those_of_the_dump(params: Any) -> None:
    assert count_words(params) == len(json.dumps(params).split())


@given(tables, st.lists(st.integers(0, 12)), st.integers(1, 3))
def test_any_split_of_a_file_merges_to_the_same_numbers(rows: list[dict[str, Any]], cuts: list[int], repeats: int) -> None:
    whole, merged = columns_of(rows), Columns()
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for start, stop in pairwise(edges):
        part = pickle.loads(pickle.dumps(columns_of(rows[start:stop])))
        part.shift_lines(start)
        merged.merge(part)
    assert json.dumps(gym_metrics([(merged, repeats)])) == json.dumps(gym_metrics([(whole, repeats)]))
    assert summarise(merged).model_dump_json() == summarise(whole).model_dump_json()
    assert (merged.lines, merged.keys) == (whole.lines, whole.keys)


@given(tables)
def test_measuring_row_by_row_equals_measuring_a_chunk(rows: list[dict[str, Any]]) -> None:
    one_by_one = Columns()
    for line, row in enumerate(rows, 1):
        one_by_one.add_row(line, row, row.get("responses_create_params"))
        one_by_one.flush()
    assert json.dumps(gym_metrics([(one_by_one, 1)])) == json.dumps(gym_metrics([(columns_of(rows), 1)]))
    assert summarise(one_by_one).model_dump_json() == summarise(columns_of(rows)).model_dump_json()


@given(tables.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
def test_the_order_of_rows_changes_no_statistic(orders: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    before, after = (summarise(columns_of(rows)).model_dump() for rows in orders)
    assert before == after


def test_a_field_counts_as_observed_from_its_first_number_or_string_on() -> None:
    params = {"responses_create_params": {"input": "x"}}
    columns = columns_of([params | {"late": None, "early": 1}, params | {"late": 2, "never": None}])
    columns.flush()
    assert list(columns.fields) == ["late", "early", "never"]
    assert list(columns.observed) == ["early", "late"]


def test_a_task_has_no_words_of_create_params() -> None:
    columns = columns_of([{"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"question": "one two"}}])
    columns.flush()
    assert (list(columns.words), list(columns.task_words), columns.tasksets) == ([0], [3], {"t": 1})


def test_tokens_are_counted_only_if_asked_for() -> None:
    def two_each(facts: Any) -> list[int]:
        assert all(isinstance(fact, Facts) for fact in facts)
        return [2] * len(facts)

    row = {"responses_create_params": {"input": "x"}}
    counted, uncounted = Columns(two_each), Columns()
    for columns in (counted, uncounted):
        columns.add_row(1, row, row["responses_create_params"])
        columns.flush()
    assert (list(counted.tokens), list(uncounted.tokens)) == ([2], [-1])


def test_turns_are_user_messages_and_a_string_is_one() -> None:
    messages = [{"role": "user"}, {"role": "assistant"}, {"type": "function_call"}, {"role": "user"}]
    assert [count_turns({"input": prompt}) for prompt in ("x", messages, [])] == [1, 2, 0]


@given(st.lists(st.text("abcdef", min_size=1, max_size=1)), st.integers(0, 40))
def test_a_tally_of_too_many_values_knows_its_total_however_it_was_split(names: list[str], cut: int) -> None:
    limit, module.MAX_DISTINCT = module.MAX_DISTINCT, 3
    try:
        left, right = Tally(), Tally()
        for tally, part in ((left, names[:cut]), (right, names[cut:])):
            for name in part:
                tally.add({name: 1})
        left.merge(right)
    finally:
        module.MAX_DISTINCT = limit
    assert left.total == len(names)
    assert left.counts == (None if len(set(names)) > 3 else {name: names.count(name) for name in names})


def test_digests_of_few_values_take_little_room() -> None:
    digests = Digests()
    for start in range(0, 1_000_000, 10_000):
        digests.add(value % 1000 for value in range(start, start + 10_000))
    assert digests.total == 1_000_000
    assert len(digests.values) < 100_000
    assert set(digests.values) == set(range(1000))
