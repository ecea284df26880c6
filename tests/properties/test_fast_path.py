"""The fast path never accepts a row about which the exact path has anything to say, and measures what it accepts alike."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.rows.columns import count_turns, count_words
from gymdata.rows.facts import describe
from gymdata.rows.fast import has_repeated_key
from gymdata.scan import _fast_path
from gymdata.validation.judge import judge

SHARED = Path(__file__).parents[3] / "shared"
ROWS = Path(__file__).parents[2] / "fixtures"

TOOL = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a b": {"type": "number"}}},
    "strict": True,
}
CALL = {"type": "function_call", "call_id": "c 1", "name": "add", "arguments": '{"a b":  1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c 1", "output": "two  words"}
SAID = {"role": "assistant", "type": "message", "id": "m", "status": "completed",
        "content": [{"type": "output_text", "text": "It is 4.", "annotations": []}]}  # fmt: skip
SEEDS: list[dict[str, Any]] = [
    {"responses_create_params": {"input": "What is  2+2?"}, "expected_answer": "4", "n": 3, "tags": ["a", 1]},
    {
        "responses_create_params": {
            "instructions": "Add.", "input": [{"role": "user", "content": "Add 2 and 2."}, CALL, OUTPUT, SAID],
            "tools": [TOOL, {**TOOL, "name": "sum"}], "temperature": 1, "top_p": 0.5, "max_output_tokens": 10,
            "parallel_tool_calls": False, "tool_choice": "auto",
        },
        "verifier_metadata": {"deep": [{"x": None}, 1.5]}, "agent_ref": {"type": "responses_api_agents", "name": "a"},
    },
    {
        "responses_create_params": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Which?"}]}]},
        "options": [{"A": "0"}, {"B": "4"}], "expected_answer": "B",
    },
]  # fmt: skip
ODD: list[Any] = [
    None, True, 0, -1, 5, 2**53, 2**63, 2**64, 10**400, 1.5, "", " ", "  x  y ", "0.7", "user", "message", "function_call", "add",
    "c 1", "auto", "{question}", "Answer: 4", "\\boxed{B}", "Ã©", "\x0crac", "\ufffd", "é\u2028", "not json", "[1]", "{}", [], {}, [1], ["x"],
    [{"role": "user", "content": "hi"}], {"role": "user"}, {"name": ""}, [TOOL], [CALL], [OUTPUT], [SAID], "file:///x",
]  # fmt: skip
KEYS = ["input", "role", "content", "type", "call_id", "name", "arguments", "output", "id", "status", "tools", "strict", "text", "phase",
        "temperature", "metadata", "reasoning", "expected_answer", "options", "agent_ref", "task_id", "response", "_x", "annotations",
        "_ng_rollout_id", "capture_rollout_id"]  # fmt: skip


def mutate(row: Any, choose: random.Random) -> Any:
    """A copy of a row with one place changed: a value replaced, a key dropped, added or renamed, an element repeated."""
    row = copy.deepcopy(row)
    holders = [row]
    for holder in holders:
        values = holder.values() if isinstance(holder, dict) else holder
        holders += [value for value in values if isinstance(value, dict | list) and value]
    holder = choose.choice(holders)
    if isinstance(holder, list):
        index = choose.randrange(len(holder))
        match choose.randrange(3):
            case 0:
                holder[index] = choose.choice(ODD)
            case 1:
                holder.append(copy.deepcopy(holder[index]))
            case _:
                del holder[index]
        return row
    key = choose.choice(list(holder))
    match choose.randrange(4):
        case 0:
            holder[key] = choose.choice(ODD)
        case 1:
            del holder[key]
        case 2:
            holder[choose.choice(KEYS)] = choose.choice(ODD)
        case _:
            holder[choose.choice(KEYS)] = holder.pop(key)
    return row


def agree(line: bytes) -> bool:
    """Check one line on both paths; returns whether the fast path accepted it."""
    try:
        row = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    (accepted,) = _fast_path().accept([row], line)
    if accepted is None:
        return False
    facts = describe(row, accepted.request, accepted.tool_texts)
    if has_repeated_key(line, facts.size, accepted.separators):
        return False
    judgement = judge(line)
    assert judgement.findings == []
    assert judgement.row is not None
    assert judgement.params is not None
    assert accepted.words == count_words(judgement.params) == len(json.dumps(judgement.params).split())
    assert accepted.turns == count_turns(judgement.params)
    assert facts == describe(judgement.row)
    params = row["responses_create_params"]
    assert len(params.get("tools", [])) == len(judgement.params.get("tools", []))
    assert params.get("temperature") == judgement.params.get("temperature")
    return True


@pytest.mark.parametrize("row", SEEDS)
def test_common_rows_take_the_fast_path(row):
    assert agree(json.dumps(row).encode())
    assert agree(msgspec.json.encode(row))


@settings(max_examples=1500, deadline=None)
@given(
    st.sampled_from(SEEDS), st.integers(0), st.integers(1, 4), st.sampled_from([None, (",", ":"), (" , ", ": ")]), st.booleans()
)
def test_mutated_rows(row, seed, count, separators, escape):
    choose = random.Random(seed)
    for _ in range(count):
        row = mutate(row, choose)
    agree(json.dumps(row, separators=separators, ensure_ascii=escape).encode(errors="surrogatepass"))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_rows_with_a_byte_changed(row, data):
    line = bytearray(json.dumps(row).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    agree(bytes(line).replace(b"\n", b" "))


@pytest.mark.parametrize("key", ["_ng_rollout_id", "capture_rollout_id"])
def test_ids_of_rollouts_are_left_to_the_exact_path(key):
    assert not agree(json.dumps({**SEEDS[0], key: 5}).encode())


def test_repeated_keys_are_left_to_the_exact_path():
    for line in (
        b'{"responses_create_params": {"input": "a"}, "x": 1, "x": 2}',
        b'{"responses_create_params":{"input":"a","input":"b"}}',
        b'{"responses_create_params":{"input":"a"},"x":1,"\\u0078":2}',
        b'{"responses_create_params":{"input":"a"},"m":{"y" :1,"y":1}}',
    ):
        assert not agree(line)


@pytest.mark.parametrize("name", ["math", "mcqa", "code", "instruction_following", "structured_outputs", "multi_step"])
def test_bundled_rows_take_the_fast_path(name):
    lines = (ROWS / name / "train.jsonl").read_bytes().splitlines()
    assert sum(map(agree, lines)) == len(lines)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real rows of ../shared are not here")
@pytest.mark.parametrize("name", ["math_train", "math_validation", "tools", "mcqa", "code", "instruction_following"])
def test_real_rows_and_their_mutations(name):
    lines = (SHARED / "data" / f"{name}.jsonl").read_bytes().splitlines()[::40]
    choose = random.Random(name)
    assert sum(map(agree, lines)) > 0.9 * len(lines)
    for line in lines:
        agree(json.dumps(mutate(json.loads(line), choose)).encode())
