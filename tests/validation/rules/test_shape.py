"""Findings of shape: the cause, told once, at the place where the remedy goes."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gymdata.validation.findings import Finding, Rule
from gymdata.validation.rules import rollout, schema
from gymdata.validation.rules.schema_catalogue import SCHEMA_RULES

PARAMS = "$.responses_create_params"
TOOL = {"type": "function", "name": "f", "parameters": {}, "strict": None}


def findings(**params: Any) -> list[Finding]:
    return schema.check({"responses_create_params": {"input": "x", **params}})[0]


def places(**params: Any) -> list[tuple[str, str]]:
    return [(finding.code, finding.path.removeprefix(PARAMS)) for finding in findings(**params)]


def all_findings(text: str) -> list[str]:
    row = json.loads(text)
    found = schema.check(row)[0]
    return [finding.code for finding in (found + rollout.check(row) if rollout.looks_like_rollout(row) else found)]


@pytest.mark.parametrize("rule", SCHEMA_RULES, ids=lambda rule: rule.code)
def test_the_bad_row_of_a_rule_has_that_finding_alone_and_the_good_row_none(rule: Rule) -> None:
    assert all_findings(rule.bad) == [rule.code]
    assert all_findings(rule.good) == []


@pytest.mark.parametrize(
    ("item", "code", "path"),
    [
        ("What is 2+2?", "GD202", ""),
        ({}, "GD205", ""),
        ({"role": "User", "content": "x"}, "GD203", ".role"),
        ({"role": "usr", "content": "x", "type": "message"}, "GD203", ".role"),
        ({"content": "x"}, "GD201", ".role"),
        ({"role": "user"}, "GD201", ".content"),
        ({"role": "user", "content": None}, "GD208", ".content"),
        ({"role": "user", "content": 7}, "GD202", ".content"),
        ({"role": "user", "content": ["x"]}, "GD202", ".content[0]"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "GD217", ".content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "GD201", ".content[0].text"),
        ({"role": "user", "content": [{"type": "input_foo"}]}, "GD203", ".content[0].type"),
        ({"role": "user", "content": [{"text": "x"}]}, "GD201", ".content[0].type"),
        ({"role": "tool", "tool_call_id": "c", "content": "4"}, "GD216", ".role"),
        ({"role": "assistant", "content": None, "tool_calls": [{}]}, "GD216", ".tool_calls"),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]}, "GD201", ".id"),
        ({"from": "human", "value": "x"}, "GD218", ".role"),
        ({"type": "tool_call", "name": "f"}, "GD203", ".type"),
        ({"type": "item_reference", "id": "i"}, "GD203", ".type"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "GD201", ".name"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "GD202", ".arguments"),
        ({"type": "function_call_output", "output": "4"}, "GD201", ".call_id"),
        ({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}, "GD202", ".output"),
    ],
)
def test_a_wrong_item_has_one_finding_at_its_place(item: Any, code: str, path: str) -> None:
    assert places(input=[{"role": "user", "content": "x"}, item]) == [(code, f".input[1]{path}")]


@pytest.mark.parametrize(
    ("tool", "code", "path"),
    [
        ({"type": "function", "function": {"name": "f", "parameters": {}}}, "GD206", ".function"),
        ({key: value for key, value in TOOL.items() if key != "strict"}, "GD207", ".strict"),
        (TOOL | {"type": "func"}, "GD203", ".type"),
        (TOOL | {"parameters": '{"type": "object"}'}, "GD215", ".parameters"),
        (TOOL | {"parameters": []}, "GD202", ".parameters"),
        (TOOL | {"name": ""}, "GD213", ".name"),
        (TOOL | {"input_schema": {}}, "GD204", ".input_schema"),
        ({key: value for key, value in TOOL.items() if key != "type"}, "GD201", ".type"),
    ],
)
def test_a_wrong_tool_has_one_finding_at_its_place(tool: Any, code: str, path: str) -> None:
    assert places(tools=[tool]) == [(code, f".tools[0]{path}")]


@pytest.mark.parametrize(
    ("params", "code", "path", "hint"),
    [
        ({"max_tokens": 9}, "GD204", ".max_tokens", "max_output_tokens"),
        ({"temprature": 1}, "GD204", ".temprature", "did you mean `temperature`"),
        ({"stop": ["x"]}, "GD204", ".stop", "extra_body"),
        ({"tools": None}, "GD208", ".tools", "leave the key out"),
        ({"temperature": "hot"}, "GD202", ".temperature", "a number"),
        ({"tool_choice": "always"}, "GD203", ".tool_choice", 'did you mean "required"'),
        ({"metadata": {"a b": 1}}, "GD202", '.metadata["a b"]', "a string"),
        ({"stream": True}, "GD203", ".stream", "leave `stream` out"),
        ({"input": '[{"role": "user"}]'}, None, "", ""),
    ],
)
def test_a_wrong_parameter_says_what_to_write_instead(params: dict[str, Any], code: str, path: str, hint: str) -> None:
    found = findings(**params)
    assert [(finding.code, finding.path) for finding in found] == ([(code, PARAMS + path)] if code else [])
    assert all(hint in finding.hint for finding in found)


def test_every_cause_in_a_row_is_told_in_one_pass() -> None:
    row = {
        "responses_create_params": {
            "input": [{"role": "usr", "content": "x"}, {"type": "message", "role": "user", "content": 4}],
            "tools": [{"type": "function", "function": {}}, TOOL | {"name": " "}],
            "seed": 1,
        },
        "agent_ref": {"name": None},
    }
    paths = {finding.path for finding in schema.check(row)[0]}
    assert paths == {
        f"{PARAMS}.input[0].role",
        f"{PARAMS}.input[1].content",
        f"{PARAMS}.tools[0].function",
        f"{PARAMS}.tools[1].name",
        f"{PARAMS}.seed",
        "$.agent_ref.name",
    }


@pytest.mark.parametrize(
    ("row", "code", "hint"),
    [
        ({"question": "x"}, "GD201", "add"),
        ({"Responses_Create_Params": {"input": "x"}}, "GD201", "Rename"),
        ({"messages": []}, "GD201", "gymdata convert"),
        ({"responses_create_params": None}, "GD208", "write"),
        ({"responses_create_params": '{"input": "x"}'}, "GD215", "encoded twice"),
        ({"responses_create_params": []}, "GD202", "object"),
    ],
)
def test_a_row_without_a_request_is_told_how_to_get_one(row: dict[str, Any], code: str, hint: str) -> None:
    [finding] = schema.check(row)[0]
    assert (finding.code, finding.path) == (code, PARAMS)
    assert hint in finding.hint


@pytest.mark.parametrize("row", [[1], 42, None, "text", '{"responses_create_params": {}}'])
def test_what_is_no_object_is_no_row(row: Any) -> None:
    found, params = schema.check(row)
    assert [(finding.code, finding.path) for finding in found] == [("GD200", "$")]
    assert params is None


def test_a_materialized_task_has_no_create_params_and_no_finding() -> None:
    assert schema.check({"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"any": 1}}) == ([], None)


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"task_id": {"taskset": "t", "task_id": "1"}, "task_input": []}, "$.task_input"),
        ({"task_id": {"taskset": ""}, "task_input": {}}, "$.task_id.taskset"),
        ({"task_id": {"taskset": "t", "task_id": "1", "x": 1}, "task_input": {}}, "$.task_id.x"),
    ],
)
def test_a_malformed_materialized_task_is_an_error(row: dict[str, Any], path: str) -> None:
    assert path in {finding.path for finding in schema.check(row)[0]}


@pytest.mark.parametrize(
    ("params", "code", "path"),
    [
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "GD212", ".tool_choice"),
        (
            {"tools": [{"type": "file_search", "vector_store_ids": [], "filters": {"type": "and", "filters": []}}]},
            "GD212",
            ".tools[0].filters",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://a.example/b.png"}]}]},
            "GD211",
            ".input[0].content[0].detail",
        ),
        (
            {"input": [{"role": "assistant", "content": "x", "tool_calls": [{"id": "c"}]}]},
            "GD221",
            ".input[0].tool_calls",
        ),
    ],
)
def test_what_only_nemo_gym_minds_is_a_warning_and_the_row_is_taken(params: dict[str, Any], code: str, path: str) -> None:
    found, dumped = schema.check({"responses_create_params": {"input": "x", **params}})
    assert [(finding.code, finding.path) for finding in found] == [(code, PARAMS + path)]
    assert dumped is not None


def test_log_probabilities_stop_nemo_gym_only_in_parts_that_may_have_them() -> None:
    token = {"token": "x", "bytes": [], "logprob": 0, "top_logprobs": []}
    said = {"type": "output_text", "text": "x", "annotations": [], "logprobs": [token]}
    assert places(input=[{"role": "assistant", "id": "m", "content": [said]}]) == [("GD212", ".input[0].content[0].logprobs")]
    assert places(input=[{"role": "user", "content": [{"type": "input_text", "text": "x", "logprobs": "any"}]}]) == []


@pytest.mark.parametrize("agent", ["math", None, [], {"type": "responses_api_agents"}, {"name": 1}, {"name": ""}])
def test_an_agent_ref_must_name_an_agent(agent: Any) -> None:
    found, params = schema.check({"responses_create_params": {"input": "x"}, "agent_ref": agent})
    assert [finding.code for finding in found] == ["GD214"]
    assert params is None


@pytest.mark.parametrize("tool", [TOOL, TOOL | {"description": None, "defer_loading": True}, TOOL | {"parameters": None}])
def test_a_plain_function_tool_is_one_that_the_schema_takes_unchanged(tool: dict[str, Any]) -> None:
    assert schema.is_plain_function_tool(tool)
    assert schema.check({"responses_create_params": {"input": "x", "tools": [tool]}}) == (
        [],
        {"input": "x", "tools": [tool]},
    )


@pytest.mark.parametrize(
    "change", [{"name": ""}, {"strict": 1}, {"parameters": []}, {"x": 1}, {"type": "custom"}, {"defer_loading": None}]
)
def test_any_other_tool_is_no_plain_function_tool(change: dict[str, Any]) -> None:
    assert not schema.is_plain_function_tool(copy.deepcopy(TOOL) | change)
    assert not schema.is_plain_function_tool({"type": "function", "name": "f", "parameters": {}})
