"""The agent loop: turns, tools, limits; a model's mistakes are told to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from gymdata.rollouts import agent
from gymdata.rollouts.chat_reply import Turn
from gymdata.rollouts.overflow import Overflow
from gymdata.rows.schema import rollout_row

NONE = {"reasoning_tokens": None}


def says(text: str, stopped: str = "stop") -> Turn:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    return Turn(
        [item],
        stopped,
        {"input_tokens": 10, "input_tokens_details": {"cached_tokens": None}, "output_tokens": 2, "total_tokens": 12},
    )


def calls(*named: tuple[str, str]) -> Turn:
    items = [
        {"type": "function_call", "call_id": f"c{place}", "name": name, "arguments": text}
        for place, (name, text) in enumerate(named)
    ]
    details = {"input_tokens_details": {"cached_tokens": 8}, "output_tokens_details": NONE}
    return Turn(items, "stop", {"input_tokens": 20, "output_tokens": 3, "total_tokens": 23, **details})


class Scripted:
    """A model that says what it was told to, and keeps what it was asked."""

    def __init__(self, *turns: Turn | Overflow) -> None:
        self.turns, self.asked, self.seeds = list(turns), [], []

    async def respond(self, params: Mapping[str, Any], seed: int | None = None) -> Turn | Overflow:
        self.asked.append(params)
        self.seeds.append(seed)
        return self.turns.pop(0)


def run(model: Scripted, implementation: str = "", row: Mapping[str, Any] | None = None, params: Any = None, **more: Any) -> Any:
    return asyncio.run(agent.run(model, row or {}, params or {"input": "go"}, agent.tools_for(implementation), **more))


def outputs(trajectory: agent.Trajectory) -> list[Any]:
    return [json.loads(item["output"]) for item in trajectory.response["output"] if item["type"] == "function_call_output"]


def test_one_turn():
    trajectory = run(Scripted(says("4")))
    assert (trajectory.stop_reason, trajectory.steps, trajectory.response["status"]) == ("completed", 1, "completed")
    assert trajectory.response["usage"]["total_tokens"] == 12


def test_a_session_has_its_own_state():
    steps = [calls(("increment_counter", '{"count": 3}')), calls(("get_counter_value", "{}")), says("23")]
    for _ in range(2):
        trajectory = run(Scripted(*steps), "example_session_state_mgmt", {"initial_count": 20})
        assert outputs(trajectory) == [{"success": True}, {"count": 23}]


def test_what_was_said_is_shown_again_with_seeds_of_its_own():
    model = Scripted(
        calls(("get_synonym_value", '{"synonym": "Rapid"}'), ("get_synonym_value", '{"synonym": "Swift"}')), says("done")
    )
    trajectory = run(model, "example_multi_step", seed=7)
    kinds = [item.get("type", "user") for item in model.asked[1]["input"]]
    assert kinds == ["user", "function_call", "function_call", "function_call_output", "function_call_output"]
    assert outputs(trajectory) == [{"synonym_value": 496}, {"synonym_value": 525}]
    assert model.seeds == [7, 8]
    assert trajectory.response["usage"] == {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens": 5,
        "output_tokens_details": NONE,
        "total_tokens": 35,
    }


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("increment_counter", '{"count": 3', "not JSON"),
        ("increment_counter", "[" * 100_000, "not JSON"),
        ("increment_counter", "[3]", "must be a JSON object"),
        ("increment_counter", '{"count": "many"}', "count: Input should be a valid integer"),
        ("increment_counter", "{}", "count: Missing required argument"),
        ("increment_counter", '{"count": 1, "by": 2}', "by: Unexpected keyword argument"),
        ("fly", "{}", "there is no tool 'fly'; there are get_counter_value, increment_counter"),
    ],
)
def test_a_call_that_cannot_be_made_is_told_to_the_model(name: str, arguments: str, said: str):
    trajectory = run(Scripted(calls((name, arguments)), says("sorry")), "example_session_state_mgmt")
    assert said in outputs(trajectory)[0]["error"]


def test_a_tool_that_fails_or_hangs_is_told_to_the_model():
    def broken() -> None:
        raise KeyError("oops")

    async def endless() -> None:
        await asyncio.sleep(3600)

    tools = {"broken": broken, "endless": endless}
    assert "KeyError" in asyncio.run(agent.answer(tools, "broken", ""))
    assert "longer than 0.01 s" in asyncio.run(agent.answer(tools, "endless", "", seconds=0.01))


def test_a_row_without_tools_gets_those_of_the_functions():
    model = Scripted(says("hi"))
    run(model, "example_single_tool_call")
    (tool,) = model.asked[0]["tools"]
    assert (tool["name"], tool["description"]) == ("get_weather", "The weather in a city right now.")
    assert (tool["parameters"]["properties"]["city"]["type"], tool["parameters"]["required"]) == ("string", ["city"])
    own = [{"type": "function", "name": "get_weather", "parameters": {}}]
    run(model := Scripted(says("hi")), "example_single_tool_call", params={"input": "go", "tools": own})
    assert model.asked[0]["tools"] == own


def test_without_functions_a_call_ends_the_rollout():
    assert run(Scripted(calls(("anything", "{}")))).steps == 1


def test_steps_are_limited():
    trajectory = run(Scripted(*[calls(("get_counter_value", "{}"))] * 3), "example_session_state_mgmt", max_steps=3)
    assert (trajectory.stop_reason, trajectory.steps, len(outputs(trajectory))) == ("max_steps", 3, 3)


def test_an_answer_that_was_cut_ends_the_rollout():
    trajectory = run(Scripted(says("so the", "max_output_tokens")))
    assert trajectory.response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_context_that_is_full_ends_it_with_what_was_said():
    full = Overflow("prompt_too_long", "no room")
    assert run(Scripted(full)) == full
    trajectory = run(Scripted(calls(("get_counter_value", "{}")), full), "example_session_state_mgmt")
    assert (trajectory.stop_reason, trajectory.response["status"]) == ("context_length", "incomplete")


def test_the_response_is_what_nemo_gym_accepts():
    trajectory = run(Scripted(calls(("get_counter_value", "{}")), says("0")), "example_session_state_mgmt")
    response = {**trajectory.response, "model": "m"}
    rollout_row().validate_python({"responses_create_params": {"input": "x"}, "response": response, "reward": 1.0})
