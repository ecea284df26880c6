"""Findings across the rows of a file, and between files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.rows.columns import Columns
from gymdata.validation.findings import Finding
from gymdata.validation.rules import dataset


def row(question: str, **rest: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": question}, **rest}


def columns(*rows: dict[str, Any], lines: list[int] | None = None) -> Columns:
    result = Columns()
    for line, value in zip(lines or range(1, len(rows) + 1), rows, strict=True):
        result.add_row(line, value, value["responses_create_params"])
    return result


def told(findings: list[Finding]) -> list[tuple[str, int, str]]:
    return [(finding.code, finding.line, finding.path) for finding in findings]


def uneven(*rows: dict[str, Any], required: tuple[str, ...] = ()) -> list[tuple[str, int, str]]:
    expectations = dataset.suspicious_fields(columns(*rows), dataset.VERIFIER_FIELDS, required)
    check = dataset.FieldCheck(expectations)
    for line, value in enumerate(rows, 1):
        check.add(line, value)
    return told(list(check.findings()))


def test_a_repeated_row_is_found_whatever_its_spelling_and_stamps() -> None:
    first = row("2+2?", expected_answer="4", dataset="d")
    again = {"agent_ref": {"name": "a"}, "dataset": "d", "expected_answer": "4", "responses_create_params": {"input": "2+2?"}}
    other = row("2+2?", expected_answer="4", dataset="e")
    findings = dataset.check_columns(columns(first, other, again, first, lines=[1, 2, 5, 9]))
    assert told(findings) == [("GD501", 5, "$"), ("GD501", 9, "$")]
    assert "line 1" in findings[0].message


def test_one_prompt_with_two_answers_is_found_on_the_later_row() -> None:
    rows = [row("2+2?"), row("2+2?", expected_answer="4"), row("3+3?", expected_answer="6"), row("2+2?", expected_answer="5")]
    findings = dataset.check_columns(columns(*rows))
    assert told(findings) == [("GD502", 4, "$.expected_answer")]
    assert "line 2" in findings[0].message


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", None])), max_size=12))
def test_duplicates_and_conflicts_are_those_of_a_comparison_of_all_pairs(content: list[tuple[str, str | None]]) -> None:
    rows = [row(question, **({} if answer is None else {"expected_answer": answer})) for question, answer in content]
    findings = dataset.check_columns(columns(*rows))
    repeated = {index for index, value in enumerate(content) if value in content[:index]}
    assert {finding.line - 1 for finding in findings if finding.code == "GD501"} == repeated
    answered = [(index, question, answer) for index, (question, answer) in enumerate(content) if answer is not None]
    firsts: dict[str, str] = {}
    for _, question, answer in answered:
        firsts.setdefault(question, answer)
    conflicting = {index for index, question, answer in answered if answer != firsts[question] and index not in repeated}
    assert {finding.line - 1 for finding in findings if finding.code == "GD502"} == conflicting


def test_many_rows_are_compared_as_few_are() -> None:
    many = columns(*[row(f"What is {number % 60_000}?", expected_answer=str(number % 60_001)) for number in range(60_002)])
    assert told(dataset.check_columns(many)) == [("GD502", 60_001, "$.expected_answer"), ("GD502", 60_002, "$.expected_answer")]


@pytest.mark.parametrize("odd", [4, 4.5, True])
def test_a_field_with_strings_and_numbers_is_found_where_it_differs(odd: Any) -> None:
    rows = [row("a", key="1"), row("b", key="2"), row("c", key=odd), row("d", key=None), row("e")]
    assert uneven(*rows) == [("GD503", 3, "$.key")]


def test_numbers_are_the_rule_where_most_are_numbers() -> None:
    assert uneven(row("a", level=1), row("b", level="2"), row("c", level=3.5)) == [("GD503", 2, "$.level")]
    assert uneven(row("a", level=1), row("b", level=2.5), row("c", level=True)) == []


def test_a_verifier_field_that_most_rows_have_is_missed_in_the_others() -> None:
    rows = [row("a", expected_answer="1"), row("b", expected_answer="2"), row("c"), row("d", expected_answer="3")]
    assert uneven(*rows) == [("GD504", 3, "$.expected_answer")]
    assert uneven(*[row(question, note="x") if question != "c" else row("c") for question in "abcd"]) == []


def test_a_field_that_the_environment_requires_is_missed_everywhere() -> None:
    assert uneven(row("a"), row("b"), required=("unit_tests",)) == [("GD504", 1, "$.unit_tests"), ("GD504", 2, "$.unit_tests")]


def test_a_prompt_of_both_splits_is_found_however_it_is_spelled() -> None:
    train = columns(row("2+2?", expected_answer="4"), row("3+3?"))
    spelled = {"responses_create_params": {"input": [{"role": "user", "content": "2+2?"}]}, "expected_answer": "4"}
    (finding,) = dataset.check_splits([("train.jsonl", train)], columns(row("5+5?"), spelled, lines=[1, 7]))
    assert (finding.code, finding.line) == ("GD505", 7)
    assert "train.jsonl:1" in finding.message


def test_an_empty_file_is_said_to_be_empty() -> None:
    assert told(dataset.empty_file()) == [("GD510", 0, "$")]
