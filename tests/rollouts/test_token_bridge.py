"""Later turns as token ids, over real HTTP: what is sent, what is read, and what a rollout says where that cannot be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gymdata.cli.main import main
from gymdata.rollouts import agent
from gymdata.rollouts.chat import Inexpressible, messages
from gymdata.rollouts.chat_reply import Turn, from_chat, to_items
from gymdata.rollouts.overflow import Overflow
from gymdata.rollouts.policy import Policy, RequestFailed, Settings
from gymdata.rollouts.tokens import TOKEN_IDS, check, join
from tests.servers.templated import TemplatedServer, decode, encode

CALL = '<tool_call>\n{{"name": "add", "arguments": {{"one": {}}}}}\n</tool_call>'
MISTRAL = '[TOOL_CALLS][{{"name": "add", "arguments": {{"one": {}}}}}]'
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
PARAMS = {"input": "Shall there be another thing?", "max_output_tokens": 300}


def add(row: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    def add(one: int) -> str:
        """Another thing."""
        return f"the other thing is here: {one + 1}"

    return {"add": add}


def calls_then_speaks(call: str = CALL, calls: int = 5) -> Callable[[dict[str, Any]], str]:
    """A model that calls so many times and then says what there is."""
    seen = [0]

    def answer(body: dict[str, Any]) -> str:
        seen[0] += 1
        return f"<think>\nhere {seen[0]}\n</think>\n\n" + (call.format(seen[0]) if seen[0] <= calls else "There, all of it.")

    return answer


def rollout(server: TemplatedServer, params: Mapping[str, Any] = PARAMS, *, seed: int | None = 3, **settings: Any) -> Any:
    async def work() -> Any:
        async with (
            asyncio.timeout(30),
            Policy(Settings((server.url,), attempts=2, **settings)) as policy,
            await policy.begin() as trajectory,
        ):
            return await agent.run(trajectory, {}, params, add, seed=seed)

    return asyncio.run(work())


def respond(server: TemplatedServer, params: Mapping[str, Any], **settings: Any) -> Turn | Overflow:
    async def work() -> Turn | Overflow:
        async with (
            asyncio.timeout(30),
            Policy(Settings((server.url,), attempts=2, **settings)) as policy,
            await policy.begin() as trajectory,
        ):
            return await trajectory.respond(params)

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("template", "end", "call"),
    [("qwen2_5", "<|im_end|>", CALL), ("qwen3", "<|im_end|>", CALL), ("mistral", "</s>", MISTRAL)],
)
def test_six_turns_with_results_of_tools_are_one_sequence(template: str, end: str, call: str) -> None:
    with TemplatedServer(calls_then_speaks(call), template=template, end=end) as server:
        made = rollout(server)
    row = {"response": made.response}
    checked = check(row)
    assert not checked.faults and len(checked.turns) == 6 and made.unbridged == {}
    joined = join(checked)
    assert joined.ids == checked.turns[-1].prompt + checked.turns[-1].sampled
    assert decode(joined.ids).count("the other thing is here") == 5
    kinds = [item["type"] for item in made.response["output"]]
    assert kinds == ["reasoning", "function_call", "function_call_output"] * 5 + ["reasoning", "message"]
    assert made.response["usage"]["output_tokens"] == checked.sampled
    first, *later = server.requests
    assert "messages" in first and all("messages" not in body and "tools" not in body for body in later)
    assert [body["seed"] for body in server.requests] == [3, 4, 5, 6, 7, 8]


def test_rendered_anew_the_same_turns_are_not() -> None:
    with TemplatedServer(calls_then_speaks()) as server:
        made = rollout(server, token_bridge="off")
    assert [fault.kind for fault in check({"response": made.response}).faults] == ["diverges"] * 5
    assert all("messages" in body for body in server.requests)


def test_limits_and_sampling_parameters_go_with_the_ids() -> None:
    params = {"input": PARAMS["input"], "temperature": 0.5, "top_p": 0.9, "top_logprobs": 2, "tools": []}
    with TemplatedServer(calls_then_speaks(calls=1), max_model_len=5000) as server:
        rollout(server, params, extra_body={"stop": ["x"], "chat_template_kwargs": {"k": 1}})
    body = server.requests[1]
    assert (body["temperature"], body["top_p"], body["logprobs"], body["stop"]) == (0.5, 0.9, 2, ["x"])
    assert body["max_tokens"] == 5000 - len(body["prompt"]) and not body["skip_special_tokens"]
    assert not {"chat_template_kwargs", "tool_choice", "top_logprobs", "messages"} & body.keys()


def test_a_context_that_is_full_ends_the_rollout_as_ever() -> None:
    with TemplatedServer(calls_then_speaks()) as server:
        server.script.extend(["", "overflow1"])
        made = rollout(server)
    assert made.stop_reason == "context_length" and not check({"response": made.response}).faults


def test_a_turn_that_was_cut_short_is_ended_by_the_template() -> None:
    said = "and so on and so on"
    with TemplatedServer(lambda body: said) as server:
        first = respond(server, {"input": "What?", "max_output_tokens": 10})
        assert isinstance(first, Turn) and first.stopped == "max_output_tokens"
        items = [{"role": "user", "content": "What?"}, *first.items, {"role": "user", "content": "Go on."}]
        second = respond(server, {"input": items})
    assert isinstance(second, Turn)
    glue = second.items[-1]["prompt_token_ids"][len(first.items[-1]["prompt_token_ids"]) + 10 :]
    assert decode(glue) == "<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("options", "params", "reason"),
    [
        ({"renders": False}, {}, "no_rendering"),
        ({"template": "phi", "end": "<|end|>"}, {}, "message_dropped"),
        ({}, {"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_what_cannot_be_bridged_says_so_or_fails(options: dict[str, Any], params: dict[str, Any], reason: str) -> None:
    items = {"input": PARAMS["input"], **params}
    with TemplatedServer(calls_then_speaks(calls=1), **options) as server:
        made = rollout(server, items)
        assert {turn: why.reason for turn, why in made.unbridged.items()} == {1: reason}
    with TemplatedServer(calls_then_speaks(calls=1), **options) as server, pytest.raises(RequestFailed) as failed:
        rollout(server, items, token_bridge="require")
    assert failed.value.kind == "unbridgeable" and reason in failed.value.message


def test_without_token_ids_there_is_no_bridge() -> None:
    with TemplatedServer(calls_then_speaks(calls=1), renders=False) as server:
        assert rollout(server, token_ids=False).unbridged == {}


@pytest.mark.parametrize("keeps", [True, False])
def test_a_server_patched_as_nemo_rls_is_taken_at_its_deeds(keeps: bool) -> None:
    with TemplatedServer(calls_then_speaks(calls=1), renders=False, keeps_prefix=keeps) as server:
        made = rollout(server, token_bridge="prefix")
    first, second = (turn for turn in server.requests)
    told = second["messages"][1]
    assert second["required_prefix_token_ids"] == told["prompt_token_ids"] + told["generation_token_ids"]
    assert "required_prefix_token_ids" not in first
    assert {turn: why.reason for turn, why in made.unbridged.items()} == ({} if keeps else {1: "prefix_ignored"})


def test_such_a_server_is_not_asked_to_begin_before_a_message_that_has_no_ids() -> None:
    """It would put the ids in place of all up to that message, and what stands between would vanish without a sound."""
    ids = dict(zip(TOKEN_IDS, ([1, 2], [3], [-1.0]), strict=True))
    said = {"type": "message", "role": "assistant", "content": "It."}
    items = [
        {"role": "user", "content": "What?"},
        {**said, **ids},
        {"role": "user", "content": "And?"},
        said,
        {"role": "user", "content": "So?"},
    ]
    with TemplatedServer(lambda body: "Well.", keeps_prefix=True) as server:
        turn = respond(server, {"input": items}, token_bridge="prefix")
    assert isinstance(turn, Turn) and turn.unbridged and turn.unbridged.reason == "prefix_ignored"
    assert "required_prefix_token_ids" not in server.requests[0]


def test_chat_requests_whose_messages_carry_ids_are_bridged_as_well() -> None:
    async def work(url: str) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "What?"}]
        async with asyncio.timeout(30), Policy(Settings((url,), attempts=2)) as policy, await policy.begin() as trajectory:
            for turn in range(3):
                reply = await trajectory.chat({"messages": messages, "tools": TOOLS, "logprobs": turn > 0})
                assert isinstance(reply, dict) and "unbridged" not in reply
                (choice,) = reply["choices"]
                messages = [*messages, choice["message"]]
                if calls := choice["message"].get("tool_calls"):
                    assert choice["finish_reason"] == "tool_calls" and (choice["logprobs"] is None) == (turn == 0)
                    messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": "the result"})
        return messages

    with TemplatedServer(calls_then_speaks(calls=2)) as server:
        messages = asyncio.run(work(server.url))
    checked = check({"response": {"output": to_items(messages[1:])}})
    assert not checked.faults and len(checked.turns) == 3
    assert decode(join(checked).ids).count("the result") == 2 and "There, all of it." in messages[-1]["content"]


class Thinking(TemplatedServer):
    """One with a parser of thoughts: those of its chat replies are in a field."""

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        reply = super()._completion(body)
        message = reply["choices"][0]["message"]
        thought, _, text = message["content"].removeprefix("<think>").partition("</think>")
        message |= {"reasoning": thought, "content": text}
        return reply


def test_thoughts_stay_in_the_field_in_which_the_server_tells_them() -> None:
    async def work(url: str) -> Any:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "What?"}]
        async with asyncio.timeout(60), Policy(Settings((url,), attempts=2)) as policy, await policy.begin() as trajectory:
            for _ in range(2):
                reply = await trajectory.chat({"messages": messages})
                assert isinstance(reply, dict) and "unbridged" not in reply
                messages = [*messages, reply["choices"][0]["message"], {"role": "user", "content": "So?"}]
        return [message for message in messages if message["role"] == "assistant"]

    with Thinking(lambda body: "<think>Hm.</think>It is.") as server:
        said = asyncio.run(work(server.url))
    assert [(message["reasoning"], message["content"]) for message in said] == [("Hm.", "It is.")] * 2
    assert "prompt" in server.requests[-1] and server.requests[-1]["skip_special_tokens"] is False


def test_a_chat_reply_says_why_it_is_not() -> None:
    messages = [
        {"role": "user", "content": "What?"},
        {"role": "assistant", "content": "It.", **IDS},
        {"role": "user", "content": "So?"},
    ]

    async def work(url: str) -> dict[str, Any] | Overflow:
        async with asyncio.timeout(30), Policy(Settings((url,), attempts=2)) as policy, await policy.begin() as trajectory:
            return await trajectory.chat({"messages": messages})

    with TemplatedServer(lambda body: "Well.") as server:
        reply = asyncio.run(work(server.url))
    assert isinstance(reply, dict) and reply["unbridged"]["reason"] == "rendering_differs"


def collect(server: TemplatedServer, folder: Path, *more: str) -> tuple[int, list[dict[str, Any]]]:
    (folder / "rows.jsonl").write_text(
        json.dumps({"responses_create_params": {"input": "Count."}, "initial_count": 0, "expected_count": 3})
    )
    output = folder / "r.jsonl"
    command = ["rollouts", "collect", str(folder / "rows.jsonl"), "--env", "session_state", "--model-url", server.url]
    code = main([*command, "--output", str(output), "--workers", "1", *more])
    return code, [json.loads(line) for line in output.read_text().splitlines()]


COUNT = '<tool_call>\n{{"name": "increment_counter", "arguments": {{"count": {}}}}}\n</tool_call>'


def test_collected_rollouts_are_whole_and_have_no_faults(tmp_path: Path) -> None:
    with TemplatedServer(calls_then_speaks(COUNT, 2)) as server:
        code, (row,) = collect(server, tmp_path)
    assert code == 0 and "token_faults" not in row and row["reward"] == 1.0
    assert main(["rollouts", "check-tokens", str(tmp_path / "r.jsonl")]) == 0


def test_a_collected_rollout_says_which_of_its_turns_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TemplatedServer(calls_then_speaks(COUNT, 2), renders=False) as server:
        code, (row,) = collect(server, tmp_path)
    assert code == 0
    told = [(fault["kind"], fault["turn"], fault.get("reason")) for fault in row["token_faults"]]
    assert told[0] == ("rerendered", 1, "no_rendering") and ("diverges", 2, None) in told
    assert "1 have token ids that are not one sequence" in capsys.readouterr().out


def test_or_is_a_failure_that_says_why(tmp_path: Path) -> None:
    with TemplatedServer(calls_then_speaks(COUNT, 2), renders=False) as server:
        code, rows = collect(server, tmp_path, "--token-bridge", "require")
    failure = json.loads((tmp_path / "r_failures.jsonl").read_text())
    assert code == 3 and not rows and failure["_ng_failure_type"] == "unbridgeable"


IDS: dict[str, Any] = dict(zip(TOKEN_IDS, (encode("What?"), [5, 6], [-0.5, -0.25]), strict=True))


def test_ids_on_a_chat_message_become_those_of_its_last_item_and_back() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "I call.", "tool_calls": [call], **IDS}
    items = to_items([message])
    assert [key in items[0] for key in TOKEN_IDS] == [False] * 3 and {key: items[1][key] for key in TOKEN_IDS} == IDS
    assert messages(items, with_ids=True) == [message]
    assert not any(key in messages(items)[0] for key in TOKEN_IDS)
    reply = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    assert {key: from_chat(reply).items[-1][key] for key in TOKEN_IDS} == IDS


@pytest.mark.parametrize(
    ("finish", "stop", "end"),
    [
        ("stop", None, 6),
        ("stop", 6, 6),
        ("tool_calls", 6, 6),  # a second end of the model's, which the server names
        ("tool_calls", None, None),  # said of calls that were cut short, too
        ("stop", "END", None),  # a text of the request's, whose last token may be any
        ("length", None, None),
    ],
)
def test_with_which_token_a_reply_ended_is_learnt_from_the_server(finish: str, stop: int | str | None, end: int | None) -> None:
    choice = {"message": {"content": "It."}, "finish_reason": finish, "stop_reason": stop, "token_ids": [5, 6]}
    choice["logprobs"] = {"content": [{"token": "x", "logprob": -0.5}] * 2}
    assert from_chat(json.dumps({"choices": [choice], "prompt_token_ids": [1]}).encode()).end == end


def test_some_of_the_ids_without_the_others_are_refused() -> None:
    item = {"type": "message", "role": "assistant", "content": "It.", **{key: IDS[key] for key in TOKEN_IDS[:2]}}
    with pytest.raises(Inexpressible, match=r"input\[0\]"):
        messages([item], with_ids=True)
