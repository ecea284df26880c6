"""Structured outputs: five formats against a schema, as NeMo Gym judges them, and no text that can grow without bound."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install 'gymdata[verifiers]'")
pytest.importorskip("re2", reason="google-re2 is not installed: pip install 'gymdata[verifiers]'")
pytest.importorskip("xmltodict", reason="xmltodict is not installed: pip install 'gymdata[verifiers]'")

from gymdata.verifiers import VerifierFailure
from gymdata.verifiers.responses import calls, message
from gymdata.verifiers.schemas import instance, strict, validator
from gymdata.verifiers.structured_outputs import FORMATS, StructuredOutputs
from tests.verifiers.gym import needs_gym, verdicts

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {"type": "object", "properties": {"city": {"type": "string"}, "primary": {"type": "boolean"}}},
        "score": {"type": ["number", "null"]},
    },
}
TABLE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": ["number", "null"]}, "c": {"type": "boolean"}},
    },
}
RIGHT = {"name": "Ada", "age": 36, "tags": ["x", "y"], "address": {"city": "Ay", "primary": True}, "score": 1.5}
TEXTS = {
    "json": [
        json.dumps(RIGHT), json.dumps(RIGHT | {"score": None}), json.dumps(RIGHT | {"more": 1}), json.dumps(RIGHT | {"age": -1}),
        json.dumps(RIGHT | {"age": "36"}), json.dumps(RIGHT | {"age": 36.0}), json.dumps(RIGHT | {"name": "ada"}), json.dumps(RIGHT | {"address": {}}),
        json.dumps(RIGHT | {"tags": [1]}), "```json\n" + json.dumps(RIGHT) + "\n```", "", "  ", "{", "[]", "null", "NaN", '{"name": "Ada", "name": "Bob"}',
    ],
    "yaml": [
        "name: Ada\nage: 36\ntags: [x, y]\naddress: {city: Ay, primary: yes}\nscore: 1.5",
        "name: Ada\nage: 36\ntags: []\naddress: {city: Ay, primary: true}\nscore:",
        "name: Ada", "- 1", "a: b: c", json.dumps(RIGHT), "!!python/object:os.system x", "\tx",
    ],
    "toml": [
        'name = "Ada"\nage = 36\ntags = ["x"]\nscore = 1.5\n[address]\ncity = "Ay"\nprimary = true', 'name = "Ada"', "name = Ada", "[a]\n[a]",
    ],
    "xml": [
        "<name>Ada</name>", "<root><name>Ada</name></root>", "<a", "<name/>", "text",
    ],
    "csv": ["a,b,c\n1,2.5,true\n2,,0", "a,b,c\n1,2,maybe", "a,b\n1,2", "a,b,c\nx,2,1", "a,b,c", "a,b,c\n1,2,1,4", ""],
}  # fmt: skip
XML_SCHEMA = {"type": "object", "properties": {"person": PERSON}}
XML = [
    "<person><name>Ada</name><age>36</age><tags><tag>x</tag><tag>y</tag></tags><address><city/><primary>1</primary></address><score>1.5</score></person>",
    "<person><name>Ada</name><age>36</age><tags>x</tags><address><city>Ay</city><primary>true</primary></address><score>x</score></person>",
    "<person><name>Ada</name><age/><tags/><address><city>Ay</city><primary>no</primary></address><score/></person>",
]


def row(schema, kind="json", **more):
    return {"schema_str": json.dumps(schema), "schema_type": kind} | more


CASES = [(row(TABLE if kind == "csv" else PERSON, kind), message(text)) for kind in FORMATS for text in TEXTS[kind]]
CASES += [(row(XML_SCHEMA, "xml"), message(text)) for text in XML]
TOOL = {"response_mode": "tool_call", "tool_name": "save", "tool_payload_key": "person"}
CASES += [
    (row(PERSON, **TOOL), response)
    for response in (
        calls(("save", {"person": RIGHT})), calls(("save", RIGHT)), calls(("other", {"person": RIGHT})), calls(), message("hello"),
        calls(("save", {"person": RIGHT}), ("save", {"person": RIGHT})), calls(("save", {"person": {}})), calls(("save", [])),
        {"output": [{"type": "function_call", "call_id": "c", "name": "save", "arguments": "{"}]},
    )
]  # fmt: skip
CASES += [(row(PERSON, response_mode="tool_call"), calls(("any", RIGHT)))]


@needs_gym
@pytest.mark.parametrize("coerced", [True, False])
def test_verdicts_are_those_of_nemo_gym(coerced):
    theirs = verdicts("structured_outputs", CASES, xml_coerce_types=coerced)
    for (asked, response), expected in zip(CASES, theirs, strict=True):
        verdict = StructuredOutputs(coerced).verify(asked, response)
        assert (verdict.reward, verdict.extras["error_type"]) == (expected["reward"], expected["error_type"]), (asked, response)


def test_a_verdict_says_where_the_value_is_wrong():
    verdict = StructuredOutputs().verify(row(PERSON), message(json.dumps(RIGHT | {"age": -1})))
    assert verdict.extras["reason"] == "validation_error: $.age: -1 is less than the minimum of 0"


def test_equal_values_have_equal_answers_however_they_are_written():
    kinds = [(row(PERSON), json.dumps(RIGHT)), (row(PERSON, "yaml"), json.dumps(dict(reversed(RIGHT.items())), indent=1))]
    first, second = (StructuredOutputs().verify(asked, message(text)).extras["extracted_answer"] for asked, text in kinds)
    assert first == second


@pytest.mark.parametrize("schema", ["{", "[]", "3", '{"type": "nothing"}', '{"type": "object", "properties": 3}'])
def test_a_schema_that_is_none_is_a_failure_of_the_row(schema):
    with pytest.raises(VerifierFailure):
        StructuredOutputs().verify({"schema_str": schema}, message("{}"))


BOMBS = {
    "yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)),
    "xml": '<!DOCTYPE l [<!ENTITY a "xxxxxxxxxx"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><l>&b;</l>',
    "json": "[" * 200_000,
    "toml": "a = " + "[" * 5_000,
    "csv": "a\n" + '"' * 1_000_000,
}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_bomb_is_a_wrong_answer(kind):
    verdict = StructuredOutputs().verify(row(PERSON, kind), message(BOMBS[kind]))
    assert (verdict.reward, verdict.extras["error_type"]) in ((0, "parse_error"), (0, "validation_error"))


def test_ten_megabytes_are_refused():
    assert "characters" in StructuredOutputs().verify(row(PERSON), message("x" * 10_000_000)).extras["reason"]


def test_no_document_is_fetched_for_a_schema():
    with pytest.raises(Exception, match="nowhere"):
        StructuredOutputs().verify(row({"$ref": "http://127.0.0.1:9/nowhere"}), message("{}"))


@pytest.mark.parametrize(
    "schema",
    [PERSON | {"properties": PERSON["properties"] | {"name": {"type": "string", "maxLength": 2}}}, TABLE],
    ids=["object", "array"],
)
def test_the_gold_check_makes_a_value_that_fits_and_one_that_does_not(schema):
    verifier, asked = StructuredOutputs(), row(schema)
    gold = verifier.gold(asked)
    assert gold.right is not None
    assert verifier.verify(asked, gold.right).reward == 1
    assert all(verifier.verify(asked, wrong).reward == 0 for wrong in gold.wrong)


SCALARS = st.one_of(
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, st.integers(-50, 50), st.integers(0, 9)
    ),
    st.builds(
        lambda low, more: {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + more},
        st.integers(-9, 9),
        st.integers(1, 9),
    ),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, st.integers(0, 5), st.integers(0, 5)
    ),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"enum": ["a", "b"]}, {"const": 3}, {"type": ["integer", "null"]}]),
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: (
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3))
        | st.builds(
            lambda properties: {"type": "object", "properties": properties},
            st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
        )
        | st.builds(lambda choices: {"anyOf": choices}, st.lists(inner, min_size=1, max_size=2))
    ),
)


@given(SCHEMAS)
def test_a_made_value_fits_its_schema(schema):
    schema = strict(schema)
    assert validator(schema).is_valid(instance(schema))
