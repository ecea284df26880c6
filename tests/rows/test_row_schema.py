"""The definition of a row: what it takes, what it drops, what it keeps, what it coerces."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from gymdata.rows import schema

MESSAGE = {"role": "user", "content": "What is 2+2?"}


def dump(**params: Any) -> dict[str, Any]:
    return schema.task_row().validate_python({"responses_create_params": {"input": "x", **params}})["responses_create_params"]


def refused(**params: Any) -> bool:
    try:
        dump(**params)
    except ValidationError:
        return True
    return False


def test_unknown_keys_of_a_message_and_its_parts_are_dropped() -> None:
    part = {"type": "input_text", "text": "a", "note": 1}
    item = {"role": "user", "content": [part], "name": "Ann"}
    assert dump(input=[item])["input"] == [{"content": [{"text": "a", "type": "input_text"}], "role": "user"}]


def test_unknown_keys_of_hosted_calls_are_kept() -> None:
    item = {"type": "mcp_call", "name": "f", "arguments": "{}", "id": None, "trace": [1]}
    assert dump(input=[item])["input"] == [item]


def test_unknown_keys_of_the_request_and_of_tools_are_refused() -> None:
    assert refused(max_tokens=1)
    assert refused(tools=[{"type": "web_search", "depth": 2}])
    assert refused(prompt={"id": "p", "variables": {"a": {"type": "input_text", "text": "t", "note": 1}}})


def test_the_same_tool_keeps_unknown_keys_in_an_additional_tools_item() -> None:
    tool = {"type": "function", "name": "f", "note": 1, "description": None}
    item = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    assert dump(input=[item])["input"][0]["tools"] == [tool]


def test_only_what_was_given_is_dumped_with_numbers_coerced() -> None:
    given = {"temperature": "0.7", "max_output_tokens": "10", "parallel_tool_calls": "yes", "top_p": True}
    assert dump(**given) == {
        "input": "x",
        "temperature": 0.7,
        "max_output_tokens": 10,
        "parallel_tool_calls": True,
        "top_p": 1.0,
    }


@pytest.mark.parametrize("key", ["tools", "tool_choice", "parallel_tool_calls", "input"])
def test_null_is_refused_where_nemo_gym_has_a_default(key: str) -> None:
    assert refused(**{key: None})


def test_null_is_taken_for_the_other_parameters() -> None:
    keys = ("temperature", "text", "reasoning", "metadata", "conversation", "stream", "prompt", "include")
    assert dump(**dict.fromkeys(keys)) == {"input": "x", **dict.fromkeys(keys)}


@pytest.mark.parametrize(
    ("item", "keys"),
    [
        ({"id": "m", "content": [{"type": "output_text", "text": "4", "annotations": []}]}, {"id", "content"}),
        ({"call_id": "c", "name": "f", "arguments": "{}", "x": 1}, {"call_id", "name", "arguments"}),
        ({"call_id": "c", "output": "4", "x": 1}, {"call_id", "output"}),
        ({"id": "r", "summary": [], "x": 1}, {"id", "summary"}),
    ],
)
def test_an_item_without_type_is_told_by_its_keys(item: dict[str, Any], keys: set[str]) -> None:
    assert dump(input=[item])["input"][0].keys() == keys


@pytest.mark.parametrize(
    "item", [{}, {"role": "usr", "content": "x"}, {"from": "human", "value": "x"}, {"role": "user", "content": 7}]
)
def test_an_item_that_nothing_tells_is_no_list_of_mcp_tools(item: dict[str, Any]) -> None:
    assert refused(input=[item])


def test_token_ids_come_together_or_not_at_all() -> None:
    ids = {"prompt_token_ids": [1], "generation_token_ids": ["2"], "generation_log_probs": [-1]}
    assert dump(input=[MESSAGE | ids])["input"][0]["generation_token_ids"] == [2]
    assert refused(input=[MESSAGE | {"prompt_token_ids": [1]}])
    assert refused(input=[{"type": "compaction_trigger", "prompt_token_ids": [1]}])


def test_what_an_answer_spells_otherwise_is_smoothed_for_replay() -> None:
    items = [
        {"type": "additional_tools", "role": "tool", "tools": []},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}, "status": "failed"},
    ]
    tool = {"type": "custom", "name": "c", "defer_loading": None}
    params = dump(input=items, tools=[tool])
    assert params["input"][0]["role"] == "developer"
    assert "status" not in params["input"][1]
    assert params["tools"][0]["defer_loading"] is False


def test_a_request_is_never_streamed() -> None:
    assert dump(stream=False)["stream"] is False
    assert refused(stream=True)


def test_the_row_it_is_given_stays_as_it_was() -> None:
    row = {"responses_create_params": {"input": [MESSAGE | {"junk": 1}], "tools": [{"type": "custom", "name": "c"}]}, "x": 1}
    before = json.dumps(row)
    schema.task_row().validate_python(row)
    assert json.dumps(row) == before


def test_the_module_loads_no_pydantic_before_it_is_used() -> None:
    code = "import sys, gymdata.rows.schema; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
