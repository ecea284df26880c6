"""Findings of JSON text."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.validation.rules import syntax
from gymdata.validation.rules.schema_words import json_path

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=15
)
PATHS = st.lists(st.integers(0, 3) | TEXTS, min_size=1, max_size=6)
FAULTS = [
    ("NaN", "GD106"), ("-Infinity", "GD106"), ("1e309", "GD110"), (str(2**64), "GD110"), ("9" * 310, "GD107"),
    ('"\\udead"', "GD102"), ('"\\q"', "GD101"), ('"\t"', "GD101"), ("True", "GD101"), ("0x1F", "GD101"), ("007", "GD101"),
]  # fmt: skip


def places(line: str | bytes) -> list[tuple[str, str]]:
    _, findings = syntax.parse(line if isinstance(line, bytes) else line.encode())
    return [(finding.code, finding.path) for finding in findings]


def around(keys: list[str | int], token: str) -> str:
    """A JSON text with `token` where `keys` lead."""
    for key in reversed(keys):
        token = (
            f"[{'0, ' * key}{token}, 1]" if isinstance(key, int) else f'{{"before ": 1, {json.dumps(key)}: {token}, " after": 2}}'
        )
    return token


@given(VALUES, st.booleans(), st.sampled_from([None, (",", ":"), (" , ", " :\t")]))
def test_the_value_of_json_is_what_the_standard_library_reads(value: Any, ascii_only: bool, separators: Any) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
    parsed, findings = syntax.parse(line.encode())
    assert findings == []
    assert json.dumps(parsed) == json.dumps(json.loads(line))


@given(st.binary(max_size=200) | st.text(st.sampled_from("{}[]\":,\\u0eE+-. dNntruefals\x00\t'#/")).map(str.encode))
def test_any_bytes_are_either_json_or_have_a_finding(line: bytes) -> None:
    value, findings = syntax.parse(line)
    try:
        json.loads(line.decode())
    except (ValueError, RecursionError):
        assert value is syntax.MISSING
        assert findings
    else:
        assert value is not syntax.MISSING


@given(PATHS, st.sampled_from(FAULTS))
def test_a_fault_is_found_where_it_is(keys: list[str | int], fault: tuple[str, str]) -> None:
    token, code = fault
    assert places(around(keys, token)) == [(code, json_path(keys))]


@given(PATHS)
def test_a_repeated_key_is_found_where_it_is(keys: list[str | int]) -> None:
    assert places(around(keys, '{"a": 1, "\\u0061": 2}')) == [("GD105", json_path([*keys, "a"]))]


@pytest.mark.parametrize(
    ("line", "path", "words"),
    [
        (r'{"a": "\sqrt{2}"}', "$.a", r"column 8: \s is no escape"),
        (r'{"a": "\u12"}', "$.a", "four hexadecimal digits"),
        ('{"a": "x\x00"}', "$.a", "U+0000"),
        ("{'a': 1}", "$", "Python's repr"),
        ('{"a": None}', "$.a", "None is no JSON value"),
        ('{"a": nan}', "$.a", "nan is no JSON value"),
        ('{"a": .5}', "$.a", "not how JSON spells a number"),
        ('{"a": 1,}', "$", "a comma before the closing bracket"),
        ('{"a": [1,]}', "$.a", "a comma before the closing bracket"),
        ("// rows", "$", "a comment"),
        ('{"a": 1} # note', "$", "text follows the row"),
        ('{"a": 1},', "$", "a comma follows the row"),
        ('{"a": 1}{"a": 2}', "$", "a second row follows"),
        ('{"a": 1', "$", "ends in the middle of a row"),
        ('{"a": "b', "$", "ends inside the string"),
        ('  "a": {', "$", "a piece of a row"),
        ("},", "$", "a piece of a row"),
        ("{a: 1}", "$", "the key a is not in double quotes"),
        ('{"a": “b”}', "$.a", "typographic quote"),
        ('{\u00a0"a": 1}', "$", "invisible character U+00A0"),
        ('{"a": 1 "b": 2}', "$.a", "a comma or a closing bracket is missing"),
        ('{"a" 1}', "$", "a colon is missing"),
        ("<PLACEHOLDER ROW>", "$", "no JSON"),
    ],
)
def test_what_is_wrong_is_said_in_words(line: str, path: str, words: str) -> None:
    value, (finding,) = syntax.parse(line.encode())
    assert value is syntax.MISSING
    assert (finding.code, finding.path) == ("GD101", path)
    assert words in finding.message
    assert finding.hint


def test_every_fault_of_a_line_is_found() -> None:
    line = r'{"a": "\sqrt", "b": NaN, "c": "\alpha", "d": 007, "e": True, "f": [1,], "a": 1, "g": 99999999999999999999}'
    assert places(line) == [
        ("GD101", "$.a"), ("GD106", "$.b"), ("GD101", "$.c"), ("GD101", "$.d"), ("GD101", "$.e"), ("GD101", "$.f"),
        ("GD105", "$.a"), ("GD110", "$.g"),
    ]  # fmt: skip


def test_a_million_faults_are_cut_to_some_of_each_kind() -> None:
    found = places(f'{{"a": [{"NaN," * 1000} 1], "b": {10**400}}}')
    assert found.count(("GD107", "$.b")) == 1
    assert len(found) == syntax.MAX_REPEATS + 1


@pytest.mark.parametrize(
    ("line", "path", "words"),
    [
        (b'{"a": ["b", "caf\xe9"]}', "$.a[1]", "byte 17 of the line is E9"),
        (b'{"a": "\xc0\xaf"}', "$.a", "overlong"),
        (b'{"a": "\xed\xa0\xbd\xed\xb8\x80"}', "$.a", "CESU-8"),
        (b'{"a": 1}\xff', "$", "FF"),
    ],
)
def test_bytes_that_are_not_utf_8_are_named(line: bytes, path: str, words: str) -> None:
    value, (finding,) = syntax.parse(line)
    assert value is syntax.MISSING
    assert (finding.code, finding.path) == ("GD102", path)
    assert words in finding.message


def test_a_surrogate_pair_is_one_character_and_half_of_one_none() -> None:
    assert places(r'{"a": "\ud83d\ude00"}') == []
    assert places(r'{"a": "\ud83d x", "\udc00": 1}') == [("GD102", "$.a"), ("GD102", r'$["\udc00"]')]


@pytest.mark.parametrize("line", [b"", b"   ", b"\t\r", b"\r"])
def test_a_blank_line_is_no_row(line: bytes) -> None:
    assert syntax.parse(line)[0] is syntax.MISSING
    assert places(line) == [("GD104", "$")]


def test_a_byte_order_mark_is_skipped() -> None:
    value, findings = syntax.parse(b'\xef\xbb\xbf{"a": 1}\r')
    assert value == {"a": 1}
    assert [finding.code for finding in findings] == ["GD103"]


def test_numbers_are_judged_by_what_readers_keep() -> None:
    assert places(f'{{"a": {2**64 - 1}, "b": {-(2**63)}, "c": 1e308, "d": 1E-400, "e": -0}}') == []
    assert places(f'{{"a": {2**64}, "b": {-(2**63) - 1}, "c": {10**308}, "d": {10**309}, "e": -1e400}}') == [
        ("GD110", "$.a"), ("GD110", "$.b"), ("GD110", "$.c"), ("GD107", "$.d"), ("GD110", "$.e"),
    ]  # fmt: skip
    assert math.isinf(syntax.parse(b"[" + b"9" * 10_000 + b"]")[0][0])


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_has_a_limit_and_no_reader_overflows(opening: str, closing: str) -> None:
    def row(depth: int) -> str:
        return f'{{"x": 1, "deep": {opening * depth}1{closing * depth}}}'

    assert places(row(syntax.MAX_DEPTH - 1)) == []
    assert places(row(syntax.MAX_DEPTH)) == [("GD108", "$.deep")]
    assert places(row(100_000)) == [("GD108", "$.deep")]
    assert places(f'{{"x": "{"[" * 1000}"}}') == []


@pytest.mark.parametrize(("key", "path"), [("a\tb", r'$["a\tb"]'), (r"a\x", r'$["a\\x"]'), ("é", r'$["\u00e9"]')])
def test_what_is_too_deep_is_found_under_a_key_that_is_no_json(key: str, path: str) -> None:
    assert places(f'{{"{key}": {"[" * 600}') == [("GD108", path)]


@pytest.mark.parametrize(
    "line", ['["' + '\\"[' * 100_000, "[" * 600 + '"' + '\\"[' * 100_000, '{"a": "' + "\\\\" * 100_000, "[1," * 100_000]
)
def test_a_line_that_invites_looking_twice_is_refused_all_the_same(line: str) -> None:
    assert syntax.parse(line.encode())[0] is syntax.MISSING
