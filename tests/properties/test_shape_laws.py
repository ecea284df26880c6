"""Laws of the rules of shape, on generated JSON and on mutated rows."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.validation.rules import rollout, schema
from gymdata.validation.rules.schema_catalogue import SCHEMA_RULES

ERRORS = {rule.code for rule in SCHEMA_RULES if rule.severity == "error"}
WORDS = sorted(
    {"role", "content", "type", "input", "text", "name", "id", "call_id", "output", "arguments", "summary", "tools", "detail"}
    | {"user", "assistant", "message", "function_call", "function_call_output", "input_text", "input_image", "function"}
    | {"prompt_token_ids", "parameters", "strict", "messages", "status", "completed", "from", "value", "@text", "@list"}
)
WORD = st.sampled_from(WORDS) | st.text(max_size=4)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=4),
    max_leaves=12,
)
ROWS = [
    {"responses_create_params": json.loads(rule.good)["responses_create_params"], "agent_ref": {"name": "a"}}
    for rule in SCHEMA_RULES
]


@st.composite
def mutated_rows(draw: st.DrawFn) -> Any:
    """A good row with one or two of its values removed, replaced or joined by another."""
    row = copy.deepcopy(draw(st.sampled_from(ROWS)))
    for _ in range(draw(st.integers(1, 2))):
        holder: Any = row
        while True:
            key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
            if isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 4)):
                holder = holder[key]
                continue
            action = draw(st.sampled_from(("remove", "replace", "add")))
            if action == "replace":
                holder[key] = draw(JSON)
            elif action == "add" and isinstance(holder, dict):
                holder[draw(WORD)] = draw(JSON)
            else:
                del holder[key]
            break
        if not row:
            break
    return row


def check_laws(row: Any) -> None:
    before = json.dumps(row)
    findings, params = schema.check(row)
    assert json.dumps(row) == before
    paths = [finding.path for finding in findings]
    assert len(paths) == len(set(paths))
    for finding in findings:
        assert finding.message
        assert finding.hint
        assert leads_somewhere(row, finding.path)
    if params is not None:
        assert not {finding.code for finding in findings} & ERRORS
        again, same = schema.check({"responses_create_params": params})
        assert json.dumps(same) == json.dumps(params), again
    if isinstance(row, dict):
        rollout.check(row)


def leads_somewhere(row: Any, path: str) -> bool:
    """Whether all but the last step of a path exist in the row: a missing key may only be the last."""
    steps = re.findall(r'\.([A-Za-z_]\w*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]', path)
    keys = [name or (int(index) if index else json.loads(quoted)) for name, index, quoted in steps]
    for key in keys[:-1]:
        row = row[key]
    return not keys or isinstance(row, dict) or (isinstance(row, list) and isinstance(keys[-1], int) and keys[-1] < len(row))


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_any_json_is_judged_without_a_traceback(value: Any) -> None:
    check_laws(value)
    check_laws({"responses_create_params": {"input": value}})
    check_laws({"responses_create_params": {"input": [value], "tools": [value]}, "response": value, "reward": value})


@given(mutated_rows())
@settings(max_examples=300, deadline=None)
def test_a_mutated_row_is_judged_lawfully(row: Any) -> None:
    check_laws(row)
