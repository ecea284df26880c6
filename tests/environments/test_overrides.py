"""Overrides mean what Hydra makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.environments import overrides
from gymdata.errors import UsageError

# Measured: hydra-core 1.3.8's OverridesParser.
AS_HYDRA = [
    ("1e3", 1000.0), ("yes", "yes"), ("true", True), ("TRUE", True), ("null", None), ("NULL", None), ("", ""), ("[1,a,{b:c}]", [1, "a", {"b": "c"}]),
    ("{b: c, d: [1]}", {"b": "c", "d": [1]}), ("'x,y'", "x,y"), ('"q"', "q"), ("x y", "x y"), ("${b}", "${b}"), ("/p/q.jsonl", "/p/q.jsonl"), ("1_000", 1000),
    ("0x1F", "0x1F"), ("1:30", "1:30"), ("a:b", "a:b"), ("-1", -1), ("+5", 5), (".5", 0.5), ("$x", "$x"), ("x\\,y", "x,y"), ("'it\\'s'", "it's"), ("[]", []),
    ("{}", {}), (" 1 ", 1), ("[a b, 'c d']", ["a b", "c d"]), ("*", "*"), ("007", "007"), ("1.0", 1.0), ("${oc.env:HOME}/x", "${oc.env:HOME}/x"),
    ("{name: t, jsonl_fpath: a/b.jsonl, license: 'Apache 2.0'}", {"name": "t", "jsonl_fpath": "a/b.jsonl", "license": "Apache 2.0"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), AS_HYDRA)
def test_values_are_what_hydra_makes_of_them(text, value):
    found = overrides.parse(f"++a.b={text}").value.plain()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("plus", ["", "+", "++"])
def test_one_plus_two_or_none_all_set_the_key(plus):
    assert overrides.parse(f"{plus}a.0.b=1").path == ("a", 0, "b")


@pytest.mark.parametrize(
    "text", ["a", "=1", "a..b=1", "a@b=1", "~a", "a=x,y", "a=[1", "a={b}", "a=[1]x", "a='x", "a={b:1", "a b=1", "a=" + "[" * 60]
)
def test_what_is_no_override_is_a_usage_error(text):
    with pytest.raises(UsageError):
        overrides.parse(text)


def test_an_error_never_repeats_the_value():
    with pytest.raises(UsageError) as caught:
        overrides.parse("+hf_token='hunter2")
    assert "hunter2" not in str(caught.value)


words = st.from_regex(r"[a-z][a-z0-9_/]{0,8}", fullmatch=True).filter(
    lambda word: word not in ("true", "false", "null", "inf", "nan")
)
scalars = st.none() | st.booleans() | st.integers() | st.text("abc ,:[]{}'=é", max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4), max_leaves=12
)


def written(value):
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case list():
            return "[" + ",".join(map(written, value)) + "]"
        case dict():
            return "{" + ",".join(f"{key}:{written(child)}" for key, child in value.items()) + "}"
        case str():
            return "'" + value.replace("'", "\\'") + "'"
    return str(value)


@given(values)
def test_what_is_written_is_read_back(value):
    assert overrides.parse(f"a={written(value)}").value.plain() == value


@given(st.text(max_size=40))
def test_no_text_crashes_the_parser(text):
    try:
        overrides.parse(text)
    except UsageError as error:
        assert error.message
