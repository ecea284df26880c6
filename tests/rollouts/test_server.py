"""`gymdata serve` over real HTTP: NeMo Gym's contract, the proxy that keeps token ids, and rollouts that do not see each other."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gymdata.cli.main import main
from gymdata.environments.registry import load
from gymdata.rollouts.policy import Settings
from gymdata.rollouts.server import Server, Serving, aggregate
from tests.rollouts.test_vllm import PYTHON, missing
from tests.servers.model import ModelServer

pytest.importorskip("math_verify", reason="the extra `verifiers` is not installed")

MATH = load("math")
COUNTER = load("session_state")
AGENTS = {name: f"{name}_simple_agent" for name in ("math_with_judge", "example_session_state_mgmt")}


class Client:
    """One client of the server, with the cookies of one rollout or none."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http, self.url = http, url

    async def __call__(self, path: str, body: Any = None, method: str = "POST", **more: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http.request(method, self.url + path, data=data, **more) as reply:
            return reply.status, json.loads(await reply.read())


Story = Callable[[Client], Awaitable[Any]]


def serving(story: Story, model: ModelServer | None = None, **options: Any) -> Any:
    """What a story with a client comes to."""

    async def run() -> Any:
        settings = Settings(urls=(model.url,), attempts=2, patience=60, wait=60) if model else None
        options.setdefault("environments", (MATH, COUNTER))
        async with Server(Serving(settings=settings, workers=1, **options)) as server:
            jar = aiohttp.CookieJar(unsafe=True)  # of an address that is a number, too
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=jar) as http:
                return await story(Client(http, server.url))

    return asyncio.run(run())


def said(*texts: str) -> dict[str, Any]:
    items = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]} for text in texts]
    return {"id": "resp_1", "object": "response", "output": items}


def sum_row(one: int = 2, two: int = 3) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": f"What is {one} plus {two}?"},
        "expected_answer": str(one + two),
        "agent_ref": {"type": "responses_api_agents", "name": AGENTS["math_with_judge"]},
    }


def counter_row(start: int = 3, end: int = 8) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": f"Bring the counter to {end}."},
        "initial_count": start,
        "expected_count": end,
        "agent_ref": {"type": "responses_api_agents", "name": AGENTS["example_session_state_mgmt"]},
    }


@pytest.fixture
def model():
    with ModelServer() as running:
        yield running


def test_verify_replies_with_the_row_its_response_and_a_reward():
    async def story(client: Client) -> None:
        for text, reward in (("It is \\boxed{5}.", 1.0), ("It is \\boxed{6}.", 0.0)):
            row = {**sum_row(), "note": [1, None]}
            status, reply = await client("/verify", {**row, "response": said(text)})
            assert status == 200 and {key: reply[key] for key in row} == row
            assert (reply["reward"], reply["response"]) == (reward, said(text))
            assert reply["extracted_answer"] == text[13:14]

    serving(story)


@pytest.mark.parametrize("reference", [AGENTS["math_with_judge"], {"name": AGENTS["math_with_judge"]}])
def test_an_agent_is_an_object_or_a_name(reference: Any):
    async def story(client: Client) -> Any:
        return await client("/verify", {**sum_row(), "agent_ref": reference, "response": said("\\boxed{5}")})

    status, reply = serving(story)
    assert (status, reply["reward"]) == (200, 1.0)


def test_a_row_that_names_no_agent_belongs_to_the_only_one():
    async def story(client: Client) -> Any:
        row = sum_row()
        del row["agent_ref"]
        return await client("/verify", {**row, "response": said("\\boxed{5}")})

    assert serving(story, environments=(MATH,))[1]["reward"] == 1.0
    status, reply = serving(story)
    assert status == 400 and "names no agent" in reply["error"]["message"]


def test_a_verifier_that_cannot_decide_is_an_error_and_no_reward():
    async def story(client: Client) -> Any:
        return await client("/verify", {**sum_row(), "expected_answer": None, "response": said("\\boxed{5}")})

    status, reply = serving(story)
    assert status == 500 and reply["error"]["type"] == "verifier_failed" and reply.keys() == {"error"}


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/verify", b"{", 400, "no JSON object"),
        ("/verify", b"[1]", 400, "no JSON object"),
        ("/verify", sum_row(), 422, "`response`"),
        ("/verify", {**sum_row(), "agent_ref": {"name": "nobody"}, "response": said("x")}, 400, "'nobody' is none of"),
        ("/run", {"agent_ref": {"name": AGENTS["math_with_judge"]}}, 422, "responses_create_params"),
        ("/v1/responses", {"model": "x"}, 400, "`input` is missing"),
        ("/run", {"responses_create_params": {"input": "x", "stream": True}}, 400, "not streamed"),
        ("/run", {"responses_create_params": {"input": 5}}, 422, "`input`"),
        ("/v1/responses", {"input": None}, 400, "`input` is missing"),
        ("/v1/responses", {"input": ["x"]}, 400, 'input[0]: the item is the string "x"'),
        ("/v1/responses", {"input": [{"type": "function_call"}]}, 400, "`arguments` is missing"),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, 400, "`text` is missing"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "function"}]}, 400, "`name` is missing"),
        ("/v1/responses", {"input": "x", "tools": 5}, 400, "tools: `tools` is the number 5"),
        ("/v1/chat/completions", {"messages": [5]}, 400, "$.messages[0]"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": 5}]}, 400, "$.messages[0].content"),
        ("/v1/chat/completions", {"messages": [], "tools": [{"type": "function"}]}, 400, "$.tools[0]"),
        ("/v1/chat/completions", {"messages": [], "stream": True, "stream_options": 5}, 400, "$.stream_options"),
        ("/v1/responses", {"input": "x", "max_output_tokens": 501}, 400, "gives 500 at most"),
        ("/v1/responses", {"input": "x", "max_output_tokens": "many"}, 400, "whole number"),
        ("/v1/responses", {"input": "x", "previous_response_id": "y"}, 400, "previous_response_id"),
        ("/v1/responses", {"input": "x" * 3000}, 400, "maximum context length"),
        ("/v1/chat/completions", {"messages": "x"}, 400, "$.messages"),
        ("/v1/chat/completions", {"messages": [], "n": 2}, 400, "`n` must be 1"),
        ("/v1/responses", b'"' + b"x" * (1 << 20) + b'"', 413, "Maximum request body size"),
        ("/rollouts/no%20id/v1/responses", {"input": "x"}, 400, "no id of a rollout"),
        ("/increment_counter", {"count": 1}, 404, "/seed_session"),
        ("/aggregate_metrics", {"verify_responses": []}, 422, "verify_responses"),
        ("/v1/embeddings", {"input": "x"}, 404, "Not Found"),
    ],
)
def test_what_cannot_be_done_is_told_as_openai_tells_it(model: ModelServer, path: str, body: Any, status: int, told: str):
    async def story(client: Client) -> Any:
        return await client(path, body)

    found, reply = serving(story, model, max_request_bytes=1 << 20, max_output_tokens=500)
    assert found == status, reply
    assert reply["error"].keys() == {"message", "type", "param", "code"} and told in reply["error"]["message"]


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [("500", 502, "server_error"), ("malformed", 502, "malformed_reply"), ("drop", 502, "connection"), ("400 no such key", 400, "refused_by_the_model_server")],
)  # fmt: skip
def test_errors_of_the_model_server_are_typed(model: ModelServer, fault: str, status: int, kind: str):
    async def story(client: Client) -> Any:
        model.script.extend([fault] * 4)
        return [await client("/v1/responses", {"input": "What is 1 plus 2?"}), await client("/run", sum_row())]

    for found, reply in serving(story, model):
        assert (found, reply["error"]["code"]) == (status, kind) and "reward" not in reply


def test_a_judge_decides_what_its_verifier_leaves_open():
    judged = load("math", ["math_with_judge.resources_servers.math_with_judge.should_use_judge=true"])
    row = {"responses_create_params": {"input": "?"}, "question": "?", "expected_answer": "6"}
    said = {
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "\\boxed{half a dozen}"}]}
        ]
    }

    async def story(client: Client) -> Any:
        return await client("/verify", {**row, "response": said})

    with ModelServer(answer=lambda body: "[[A=B]]") as judge:
        status, reply = serving(story, environments=(judged,), judge=Settings((judge.url,)))
        assert (status, reply["reward"], len(reply["judge_evaluations"])) == (200, 1.0, 2)
        judge.answer = lambda body: "Hm."
        status, reply = serving(story, judge, environments=(judged,))
        assert (status, reply["error"]["type"], reply["error"]["code"]) == (500, "judge_failed", "no_label")
    status, reply = serving(story, environments=(judged,))
    assert status == 400 and "where is it?" in reply["error"]["message"]


def test_without_a_model_only_verifiers_are_served():
    async def story(client: Client) -> Any:
        return await client("/run", sum_row()), await client("/health", method="GET")

    (status, reply), health = serving(story)
    assert status == 503 and "--model-url" in reply["error"]["message"] and health == (200, {"status": "ok"})


def test_a_session_has_tools_with_state_and_a_cookie():
    async def story(client: Client) -> None:
        assert await client("/seed_session", counter_row(start=3)) == (200, {})
        assert await client("/increment_counter", {"count": 4}) == (200, {"success": True})
        assert await client("/seed_session", counter_row(start=3)) == (200, {}), "sent again, it changes nothing"
        assert await client("/get_counter_value", {}) == (200, {"count": 7})
        assert "no tool 'launch'" in (await client("/launch", {}))[1]["error"]
        assert "do not fit" in (await client("/increment_counter", {"count": "many"}))[1]["error"]
        assert await client("/seed_session", counter_row(start=5)) == (200, {})
        assert await client("/get_counter_value", {}) == (200, {"count": 5}), "another row begins another session"
        assert await client("/close_session", {}) == (200, {})
        assert (await client("/get_counter_value", {}))[0] == 404

    serving(story)


def test_sessions_are_bounded_in_number_and_verifying_ends_one():
    async def story(client: Client) -> None:
        for number in range(2):
            assert (await client(f"/rollouts/r{number}/seed_session", counter_row()))[0] == 200
        status, reply = await client("/rollouts/r2/seed_session", counter_row())
        assert (status, reply["error"]["type"]) == (429, "too_many_rollouts")
        assert (await client("/rollouts/r0/seed_session", counter_row(start=4)))[0] == 409
        assert (await client("/rollouts/r0/verify", {**counter_row(), "response": said("x")}))[0] == 200
        assert (await client("/rollouts/r2/seed_session", counter_row()))[0] == 200

    serving(story, max_rollouts=2)


def test_the_proxy_returns_responses_with_token_ids_on_the_last_item(model: ModelServer):
    async def story(client: Client) -> Any:
        return await client("/v1/responses", {"model": "any", "input": "What is 1 plus 2?", "temperature": 0.5, "seed": None})

    status, reply = serving(story, model, environments=())
    assert status == 200 and (reply["object"], reply["model"], reply["status"]) == ("response", "adder", "completed")
    text = model.answer(model.requests[0])
    assert isinstance(text, str)
    assert reply["output"][-1]["generation_token_ids"] == [byte + 3 for byte in text.encode()] + [2]
    assert len(reply["output"][-1]["generation_log_probs"]) == len(reply["output"][-1]["generation_token_ids"])
    assert reply["usage"]["total_tokens"] > 0 and model.requests[0]["temperature"] == 0.5


def test_chat_completions_are_passed_on_as_they_are(model: ModelServer):
    async def story(client: Client) -> Any:
        messages = [
            {"role": "system", "content": "A"},
            {"role": "system", "content": "B"},
            {"role": "user", "content": "1 and 2"},
        ]
        return await client("/v1/chat/completions", {"model": "x", "messages": messages, "stop": ["!"], "top_k": 3})

    status, reply = serving(story, model)
    sent = model.requests[0]
    assert status == 200 and [message["content"] for message in sent["messages"]] == ["A", "B", "1 and 2"]
    assert (sent["stop"], sent["top_k"], sent["model"]) == (["!"], 3, "adder")
    message = reply["choices"][0]["message"]
    assert "boxed{3}" in message["content"] and message["prompt_token_ids"] and message["generation_token_ids"][-1] == 2
    assert reply["choices"][0]["logprobs"] is None and "prompt_token_ids" not in reply


def test_a_chat_completion_is_streamed_to_who_asks_for_that(model: ModelServer):
    async def story(client: Client) -> Any:
        body = {"messages": [{"role": "user", "content": "1 and 2"}], "stream": True, "stream_options": {"include_usage": True}}
        async with client.http.post(client.url + "/v1/chat/completions", json=body) as reply:
            return reply.content_type, (await reply.read()).decode()

    model.answer = lambda body: {
        "content": "So.",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    kind, text = serving(story, model)
    *events, done, _ = text.split("\n\n")
    said, end, usage = (json.loads(event.removeprefix("data: ")) for event in events)
    assert (kind, done) == ("text/event-stream", "data: [DONE]") and "stream" not in model.requests[0]
    delta = said["choices"][0]["delta"]
    assert (delta["content"], delta["tool_calls"][0]["index"], delta["generation_token_ids"][-1]) == ("So.", 0, 2)
    assert end["choices"][0]["finish_reason"] == "tool_calls" and usage["usage"]["completion_tokens"] > 0


def test_a_port_that_is_none_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "math", "--port", "99999"]) == 3
    assert "cannot listen at 127.0.0.1:99999" in capsys.readouterr().err


SAYS = {
    "content": "<think>Hm.</think>So.",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


def test_a_response_is_streamed_to_who_asks_for_that_in_the_order_of_openai(model: ModelServer):
    async def story(client: Client) -> Any:
        body = {"input": "1 and 2", "stream": True, "stream_options": {"include_obfuscation": False}}
        async with client.http.post(client.url + "/v1/responses", json=body) as reply:
            return reply.content_type, (await reply.read()).decode()

    model.answer = lambda body: dict(SAYS)
    kind, text = serving(story, model)
    events = [json.loads(event.partition("data: ")[2]) for event in text.split("\n\n")[:-1]]
    assert kind == "text/event-stream" and [event["sequence_number"] for event in events] == list(range(len(events)))
    item = ["output_item.added", "{}", "output_item.done"]
    parts = "{0}_part.added {1}.delta {1}.done {0}_part.done"
    inner = [
        parts.format("reasoning_summary", "reasoning_summary_text"),
        parts.format("content", "output_text"),
        "function_call_arguments.delta function_call_arguments.done",
    ]
    told = ["created", "in_progress", *" ".join(" ".join(item).format(one) for one in inner).split(), "completed"]
    assert [event["type"] for event in events] == [f"response.{name}" for name in told]
    assert [event["delta"] for event in events if "delta" in event] == ["Hm.", "So.", "{}"]
    whole = events[-1]["response"]
    assert [one["type"] for one in whole["output"]] == ["reasoning", "message", "function_call"]
    assert whole["output"][-1]["generation_token_ids"][-1] == 2 and "generation_token_ids" not in events[-5]["item"]


STREAMED = """
import json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="x", max_retries=0)
with client.responses.stream(model="m", input="1 and 2") as stream:
    text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    final = stream.get_final_response()
print(json.dumps([text, final.output_text, [item.type for item in final.output], final.output[-1].arguments]))
"""


@pytest.mark.vllm
@missing(PYTHON, "vLLM, with whose Python OpenAI's client comes,")
def test_openais_own_client_reads_the_stream(model: ModelServer):
    async def story(client: Client) -> Any:
        command = [str(PYTHON), "-c", STREAMED, client.url + "/v1"]
        return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)

    model.answer = lambda body: dict(SAYS)
    found = serving(story, model)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == ["So.", "So.", ["reasoning", "message", "function_call"], "{}"]


def test_a_rollout_is_kept_as_sequences_to_train_on(model: ModelServer):
    async def story(client: Client) -> Any:
        first = await client("/rollouts/a/v1/responses", {"input": "1 and 2"})
        await client("/rollouts/a/v1/chat/completions", {"messages": [{"role": "user", "content": "4 and 5"}]})
        shown = await client("/rollouts/a", method="GET")
        gone = await client("/rollouts/a", method="DELETE"), await client("/rollouts/a", method="DELETE")
        return first, shown, gone, await client("/rollouts/a", method="GET")

    (_, first), (_, shown), (once, again), (status, _) = serving(story, model)
    item = first["output"][-1]
    sequence = shown["sequences"][0]
    assert (shown["requests"], shown["without_token_ids"], len(shown["sequences"])) == (2, 0, 2)
    assert sequence["token_ids"] == item["prompt_token_ids"] + item["generation_token_ids"]
    assert sequence["loss_mask"] == [0] * len(item["prompt_token_ids"]) + [1] * len(item["generation_token_ids"])
    assert sequence["logprobs"][-len(item["generation_token_ids"]) :] == item["generation_log_probs"]
    assert once[1]["deleted"] and not again[1]["deleted"] and status == 404


def test_a_rollout_may_have_so_many_tokens(model: ModelServer):
    async def story(client: Client) -> Any:
        return [await client("/rollouts/a/v1/responses", {"input": "1 and 2"}) for _ in range(2)]

    (first, _), (second, reply) = serving(story, model, max_rollout_tokens=50)
    assert first == 200 and (second, reply["error"]["code"]) == (400, "rollout_too_long")


def test_run_makes_a_whole_rollout_with_tools(model: ModelServer):
    calls = iter([("increment_counter", '{"count": 5}'), ("get_counter_value", "{}"), None])

    def speak(body: dict[str, Any]) -> str | dict[str, Any]:
        call = next(calls)
        if call is None:
            return f"It is {json.loads(body['messages'][-1]['content'])['count']}."
        function = {"name": call[0], "arguments": call[1]}
        return {"content": None, "tool_calls": [{"id": f"c_{call[0]}", "type": "function", "function": function}]}

    async def story(client: Client) -> Any:
        return await client("/run", {**counter_row(), "_ng_task_index": 4, "_ng_rollout_index": 1})

    model.answer = speak
    status, reply = serving(story, model)
    kinds = [item["type"] for item in reply["response"]["output"]]
    assert status == 200 and (reply["reward"], reply["_ng_task_index"], reply["stop_reason"]) == (1.0, 4, "completed")
    assert kinds == ["function_call", "function_call_output"] * 2 + ["message"]
    assert reply["response"]["output"][-1]["content"][0]["text"] == "It is 8."


def test_a_run_that_is_sent_again_with_its_key_is_made_once(model: ModelServer):
    async def story(client: Client) -> Any:
        headers = {"Idempotency-Key": "run-1:4:1"}
        both = await asyncio.gather(*(client("/run", sum_row(), headers=headers) for _ in range(2)))
        other = await client("/run", sum_row(4, 5), headers=headers)
        return both, other

    (one, other_reply), other = serving(story, model)
    assert one == other_reply and one[1]["reward"] == 1.0
    assert other[1]["expected_answer"] == "9" and len(model.requests) == 2


def test_failures_may_be_rows_for_nemo_gyms_collector(model: ModelServer):
    async def story(client: Client) -> Any:
        model.script.extend(["500", "500"])
        return await client("/run", sum_row()), await client("/run", {**sum_row(), "expected_answer": None})

    (status, reply), (_, unscored) = serving(story, model, failure_rows=True)
    assert status == 200 and (reply["_ng_failure_class"], reply["_ng_failure_type"]) == ("model_server_error", "server_error")
    assert unscored["_ng_failure_class"] == "verifier_failed" and "reward" not in reply and "reward" not in unscored


def test_tools_that_cannot_be_made_for_a_row_are_its_failure(model: ModelServer, monkeypatch: pytest.MonkeyPatch):
    async def story(client: Client) -> Any:
        return await client("/run", sum_row())

    monkeypatch.setattr("gymdata.rollouts.agent.tools_for", lambda implementation: lambda row: row["no_such_key"])
    status, reply = serving(story, model, failure_rows=True)
    assert (status, reply["_ng_failure_class"], reply["_ng_failure_type"]) == (200, "tools_failed", "KeyError")


def test_it_tells_where_its_servers_are_as_a_head_server_does():
    async def story(client: Client) -> Any:
        return client.url, await client("/server_instances", method="GET"), await client("/global_config_dict_yaml", method="GET")

    url, (_, instances), (_, config) = serving(story)
    assert {one["process_name"]: one["url"] for one in instances}[AGENTS["math_with_judge"]] == url
    found = json.loads(config)
    agent = found[AGENTS["math_with_judge"]]["responses_api_agents"]["simple_agent"]
    assert (agent["resources_server"]["name"], str(agent["port"])) == ("math_with_judge", url.rpartition(":")[2])
    relays = [
        body["legacy_agent"]["agent_server"]["name"]
        for one in found.values()
        for body in [one.get("environment_servers")]
        if body
    ]
    assert sorted(relays) == sorted(AGENTS.values())


def test_aggregate_metrics_are_those_of_the_profile():
    rows = [{**sum_row(), "_ng_task_index": 0, "_ng_rollout_index": number, "reward": float(number)} for number in range(2)]
    found = aggregate(rows)
    assert found["agent_metrics"]["mean/reward"] == 0.5 and found["key_metrics"]["mean/reward"] == 0.5
    assert [group["num_rollouts"] for group in found["group_level_metrics"]] == [2]
    assert [entry["_ng_rollout_index"] for entry in found["repeat_level_metrics"]] == [0, 1]


def test_a_thousand_rollouts_at_once_see_nothing_of_each_other():
    """Each has a secret in its prompt, which the model repeats, and a counter of its own that its tools add to."""

    def echo(body: dict[str, Any]) -> str:
        return " ".join(re.findall(r"canary-\d+-turn-\d", json.dumps(body["messages"])))

    def decoded(ids: list[int]) -> str:
        return bytes(token - 3 for token in ids if token > 2).decode()

    async def rollout(client: Client, number: int, all_of_them: asyncio.Barrier) -> None:
        mine = {f"canary-{number}-turn-{turn}" for turn in range(2)}
        base = f"/rollouts/r-{number}"
        assert (await client(f"{base}/seed_session", counter_row(start=number)))[0] == 200
        history: list[dict[str, Any]] = []
        for turn in range(2):
            await all_of_them.wait()
            history.append({"role": "user", "content": f"canary-{number}-turn-{turn}"})
            status, reply = await client(f"{base}/v1/responses", {"input": history})
            assert status == 200
            history += reply["output"]
            item = reply["output"][-1]
            assert set(item["content"][0]["text"].split()) <= mine
            assert (
                set(re.findall(r"canary-\d+-turn-\d", decoded(item["prompt_token_ids"] + item["generation_token_ids"]))) <= mine
            )
            assert (await client(f"{base}/increment_counter", {"count": number}))[0] == 200
        assert (await client(f"{base}/get_counter_value", {}))[1] == {"count": 3 * number}
        _, shown = await client(base, method="GET")
        seen = [decoded(sequence["token_ids"]) for sequence in shown["sequences"]]
        assert shown["requests"] == 2 and set(re.findall(r"canary-\d+-turn-\d", " ".join(seen))) == mine
        assert (await client(base, method="DELETE"))[1]["deleted"]

    async def story(client: Client) -> None:
        everyone = asyncio.Barrier(1000)
        await asyncio.gather(*(rollout(client, number, everyone) for number in range(1000)))

    with ModelServer(answer=echo, max_model_len=1 << 20, keep=False) as model:
        serving(story, model, max_rollouts=1000)


def test_ctrl_c_finishes_what_is_in_flight(tmp_path: Path):
    with ModelServer(delay=3.0) as model:
        command = [
            sys.executable,
            "-m",
            "gymdata.cli.main",
            "serve",
            "math",
            "--port",
            "0",
            "--model-url",
            model.url,
            "--workers",
            "1",
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        asked = urllib.request.Request(f"{url}/run", json.dumps(sum_row()).encode())

        async def story() -> Any:
            reply = asyncio.create_task(asyncio.to_thread(lambda: json.load(urllib.request.urlopen(asked))))
            while not model.in_flight:
                await asyncio.sleep(0.02)
            process.send_signal(signal.SIGINT)
            return await reply

        assert asyncio.run(story())["reward"] == 1.0
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and "finishing 1 requests" in errors and "stopped" in errors
