"""A stamp changes its own key and no other byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.rows.stamp import Stamper, StampKind, stamps

AGENT = {"type": "responses_api_agents", "name": "math_agent"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("agent_ref"), inner, max_size=3),
    max_leaves=8,
)
ROWS = st.dictionaries(st.text() | st.sampled_from(["agent_ref", "task_source", "a"]), JSON, max_size=5)


def stamp(line: str, kind: StampKind = "agent_ref") -> str:
    return Stamper(stamps(kind, "math_agent", "math_agent"))(line.encode(), json.loads(line)).decode()


@given(ROWS, st.sampled_from([None, (",", ":"), (" ,  ", " : ")]), st.booleans())
def test_the_row_is_the_same_but_for_the_stamp(row, separators, escape):
    line = json.dumps(row, separators=separators, ensure_ascii=escape, default=str)
    try:
        line.encode()
    except UnicodeEncodeError:
        return
    assert json.loads(stamp(line)) == row | {"agent_ref": AGENT}
    both = json.loads(stamp(line, "both"))
    assert both == row | {"agent_ref": AGENT, "task_source": "math_agent"}
    without = {key: value for key, value in row.items() if key != "agent_ref"}
    assert json.loads(stamp(line, "task_source")) == without | {"task_source": "math_agent"}


@pytest.mark.parametrize(
    ("line", "stamped"),
    [
        ('{"x": 1e2,  "y":"007"}', '{"x": 1e2,  "y":"007", "agent_ref": %s}'),
        ("{}", '{"agent_ref": %s}'),
        ('{"agent_ref":{"name": "old"},"x":1.50}', '{"agent_ref":%s,"x":1.50}'),
        ('{"x":1.50, "agent_ref" : {"name":"old"}}', '{"x":1.50, "agent_ref": %s}'),
        ('{"a":{"agent_ref":{"name":"old"}},"agent_ref":{"name":"old"}}', '{"a":{"agent_ref":{"name":"old"}},"agent_ref": %s}'),
        ('{"agent_ref":{"name":"old"},"a":{"agent_ref":{"name":"old"}}}', '{"agent_ref":%s,"a":{"agent_ref":{"name":"old"}}}'),
    ],
)
def test_no_other_byte_changes(line, stamped):
    assert stamp(line) == stamped % json.dumps(AGENT)


def test_a_right_stamp_stays_as_it_is_spelled():
    line = '{"agent_ref":{"name":"math_agent","type":"responses_api_agents"},"x":1}'
    assert stamp(line) == line


def test_a_byte_order_mark_and_a_carriage_return_are_no_part_of_a_row():
    row = Stamper(stamps("agent_ref", "math_agent", ""))(b'\xef\xbb\xbf {"x":1} \r', {"x": 1})
    assert row == b'{"x":1, "agent_ref": ' + json.dumps(AGENT).encode() + b"}"
