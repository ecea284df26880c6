"""Findings of rollouts."""

from __future__ import annotations

from typing import Any

import pytest

from gymdata.validation.rules import rollout

ANSWER = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "4", "annotations": []}]}
RESPONSE = {
    "id": "r",
    "created_at": 1,
    "model": "m",
    "object": "response",
    "output": [ANSWER],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def places(response: dict[str, Any], reward: Any = 1.0) -> list[tuple[str, str]]:
    row = {"responses_create_params": {"input": "x"}, "response": response, "reward": reward}
    return [(finding.code, finding.path) for finding in rollout.check(row)]


def test_a_response_and_a_number_make_a_rollout() -> None:
    assert places(RESPONSE) == []
    assert places({**RESPONSE, "usage": None, "extra": 1}) == []


@pytest.mark.parametrize("key", ["id", "created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools"])
def test_a_response_needs_each_of_its_required_keys(key: str) -> None:
    assert places({k: v for k, v in RESPONSE.items() if k != key}) == [("GD201", f"$.response.{key}")]


@pytest.mark.parametrize(
    ("item", "code", "path"),
    [
        ([ANSWER], "GD202", ""),
        ({key: value for key, value in ANSWER.items() if key != "type"}, "GD604", ".type"),
        ({"type": "thought"}, "GD203", ".type"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "GD202", ".arguments"),
    ],
)
def test_an_output_item_must_be_one_that_nemo_gym_knows(item: Any, code: str, path: str) -> None:
    assert places({**RESPONSE, "output": [ANSWER, item]}) == [(code, f"$.response.output[1]{path}")]


def test_items_of_the_prompt_may_stand_in_the_output() -> None:
    output = [
        {"type": "message", "role": "user", "content": "x"},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
    ]
    assert places({**RESPONSE, "output": output}) == []


@pytest.mark.parametrize(
    ("reward", "code"), [(None, "GD208"), ("good", "GD202"), ([], "GD202"), (True, "GD605"), ("0.5", "GD605"), (0, None)]
)
def test_a_reward_is_a_number(reward: Any, code: str | None) -> None:
    assert places(RESPONSE, reward) == ([(code, "$.reward")] if code else [])


def test_usage_as_chat_completions_counts_it_is_one_finding() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    assert places({**RESPONSE, "usage": usage}) == [("GD603", "$.response.usage")]


def test_a_rollout_is_told_by_a_response_or_a_reward() -> None:
    task = {"responses_create_params": {"input": "x"}}
    assert not rollout.looks_like_rollout(task)
    assert not rollout.looks_like_rollout({"reward": 1})
    assert not rollout.looks_like_rollout([])
    assert rollout.looks_like_rollout(task | {"reward": None})
    assert rollout.looks_like_rollout(task | {"response": RESPONSE})
