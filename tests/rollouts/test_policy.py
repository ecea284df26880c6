"""The client against a model server over real HTTP: what comes of an answer, a fault, a refusal, a server that dies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import SecretStr

from gymdata.errors import ExternalError, UsageError
from gymdata.rollouts.chat_reply import Turn
from gymdata.rollouts.endpoints import Endpoint, _metrics
from gymdata.rollouts.overflow import Overflow, overflow
from gymdata.rollouts.policy import Policy, RequestFailed, Settings
from tests.servers.model import OVERFLOWS, ModelServer

ASK = {"input": [{"role": "user", "content": "3 and 4?"}]}


@pytest.fixture
def server():
    with ModelServer() as running:
        yield running


def using(*servers: ModelServer, **settings: Any) -> Callable[[Callable[[Policy], Awaitable[Any]]], Any]:
    """Run a coroutine function with a policy."""

    def run(work: Callable[[Policy], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with asyncio.timeout(30), Policy(Settings(tuple(one.url for one in servers), **settings)) as policy:
                return await work(policy)

        return asyncio.run(main())

    return run


async def ask(policy: Policy, params: Any = ASK, seed: int | None = 2) -> Turn | Overflow:
    async with await policy.begin() as trajectory:
        return await trajectory.respond(params, seed)


def text(turn: Any) -> str:
    return turn.items[-1]["content"][0]["text"]


def test_an_answer_with_its_tokens(server: ModelServer):
    turn = using(server)(ask)
    assert [item["type"] for item in turn.items] == ["reasoning", "message"]
    assert text(turn) == "It is \\boxed{7}."
    last = turn.items[-1]
    assert len(last["generation_token_ids"]) == len(last["generation_log_probs"]) == turn.usage["output_tokens"]
    assert bytes(token - 3 for token in last["prompt_token_ids"]) == b'"3 and 4?"'
    assert server.requests[0]["seed"] == 2 and server.requests[0]["model"] == "adder"


def test_without_token_ids_none_are_asked_for(server: ModelServer):
    turn = using(server, token_ids=False)(ask)
    assert "prompt_token_ids" not in turn.items[-1] and "logprobs" not in server.requests[0]


def test_a_responses_endpoint_is_spoken_to_in_its_language(server: ModelServer):
    turn = using(server, api="responses")(ask)
    assert "7" in text(turn) and server.requests[0]["input"] == ASK["input"]


def test_what_metadata_asks_for_is_sent_to_a_responses_endpoint_too(server: ModelServer):
    asked = {**ASK, "top_p": 0.5, "metadata": {"extra_body": '{"top_k": 3, "top_p": 1}', "name": "x"}}
    using(server, api="responses")(lambda policy: ask(policy, asked))
    sent = server.requests[0]
    assert (sent["top_k"], sent["top_p"], sent["metadata"]) == (3, 0.5, {"name": "x"})


@pytest.mark.parametrize("fault", ["drop", "cut", "slow", "429", "500", "503", "malformed", "empty", "abort"])
def test_a_passing_fault_is_tried_again(server: ModelServer, fault: str):
    server.script = deque([fault])
    assert "7" in text(using(server)(ask))
    assert len(server.requests) == (1 if fault == "slow" else 2)


@pytest.mark.parametrize(("fault", "kind"), [("500", "server_error"), ("cut", "connection"), ("empty", "malformed_reply")])
def test_a_lasting_fault_is_a_typed_failure(server: ModelServer, fault: str, kind: str):
    server.script = deque([fault] * 2)
    with pytest.raises(RequestFailed) as failure:
        using(server, attempts=2)(ask)
    assert failure.value.kind == kind and len(server.requests) == 2


def test_silence_is_a_timeout(server: ModelServer):
    server.script = deque(["hang"] * 2)
    with pytest.raises(RequestFailed) as failure:
        using(server, attempts=1, timeout=0.3)(ask)
    assert failure.value.kind == "timeout"


@pytest.mark.parametrize("shape", OVERFLOWS)
def test_a_context_that_is_too_long_is_a_typed_outcome(server: ModelServer, shape: str):
    server.script = deque([shape])
    outcome = using(server)(ask)
    assert isinstance(outcome, Overflow) and len(server.requests) == 1
    assert outcome.kind == {"overflow2": "no_room", "overflow3": "max_tokens_too_large"}.get(shape, "prompt_too_long")


def test_other_errors_about_max_tokens_are_no_overflow():
    assert overflow(400, "max_tokens must be at least 1, got -5.") is not None
    assert overflow(400, "max_tokens must be an integer") is None
    assert overflow(500, OVERFLOWS["overflow1"]) is None
    assert overflow(400, "The engine prompt length 2048 exceeds the max_model_len 2048. Please reduce prompt.") is not None


def test_a_request_that_the_server_does_not_take_is_not_repeated(server: ModelServer):
    server.script = deque(['400 "auto" tool choice requires --enable-auto-tool-choice'])
    with pytest.raises(RequestFailed, match="auto") as failure:
        using(server)(ask)
    assert failure.value.kind == "bad_request" and len(server.requests) == 1


def test_what_chat_cannot_say_is_a_failure_before_it_is_sent(server: ModelServer):
    with pytest.raises(RequestFailed, match=r"responses_create_params.truncation"):
        using(server)(lambda policy: ask(policy, {**ASK, "truncation": "auto"}))
    assert not server.requests


def test_a_key_that_is_not_ours_to_ask_for_is_left_out(server: ModelServer):
    server.script = deque(["400 Unrecognized request argument supplied: return_token_ids"])

    async def work(policy: Policy) -> Any:
        return await ask(policy), dict(policy.dropped)

    turn, dropped = using(server)(work)
    assert "7" in text(turn) and dropped == {"return_token_ids": 1}
    assert "return_token_ids" not in server.requests[1]


def test_a_key_that_is_refused_stops_at_once():
    with ModelServer(key="secret-canary") as server:
        with pytest.raises(UsageError, match="refuses us") as error:
            using(server, api_key=SecretStr("wrong-canary"))(ask)
        assert "canary" not in str(error.value)
        assert "7" in text(using(server, api_key=SecretStr("secret-canary"))(ask))
        server.script = deque(["401"])
        with pytest.raises(UsageError, match="refuses us"):
            using(server, api_key=SecretStr("secret-canary"))(ask)


def test_a_model_that_is_not_there_is_named(server: ModelServer):
    with pytest.raises(UsageError, match=r"no model 'other'; it has adder"):
        using(server, model="other")(ask)


def test_no_server_is_one_message():
    with ModelServer() as server:
        pass
    with pytest.raises(ExternalError, match=r"no model server answers.*127\.0\.0\.1"):
        using(server, wait=0.2)(ask)


def test_a_dead_server_is_left_for_another():
    with ModelServer(model="m") as first, ModelServer(model="m") as second:

        async def work(policy: Policy) -> list[Any]:
            await ask(policy)
            await asyncio.to_thread(first.__exit__)
            return await asyncio.gather(*(ask(policy) for _ in range(20)))

        assert all("7" in text(turn) for turn in using(first, second)(work))
        assert len(second.requests) >= 20
        first.__enter__()


def test_a_server_that_comes_back_goes_on():
    with ModelServer() as server:

        async def work(policy: Policy) -> Any:
            await ask(policy)
            await asyncio.to_thread(server.__exit__)
            waiting = asyncio.create_task(ask(policy))
            while policy.endpoints.all[0].healthy:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.__enter__)
            return await waiting

        assert "7" in text(using(server)(work))


def test_no_server_for_too_long_ends_the_run():
    with ModelServer() as server:

        async def work(policy: Policy) -> Any:
            await asyncio.to_thread(server.__exit__)
            await ask(policy)

        with pytest.raises(ExternalError, match=r"no model server has answered for 0\.3 s"):
            using(server, patience=0.3)(work)
        server.__enter__()


def test_a_trajectory_stays_with_its_server():
    with ModelServer(model="m") as first, ModelServer(model="m") as second:

        async def work(policy: Policy) -> None:
            async with await policy.begin(wish=0) as one, await policy.begin(wish=0) as two:
                for _ in range(3):
                    await one.respond(ASK, 2)
                    await two.respond(ASK, 4)

        using(first, second)(work)
        assert [len(first.seeds()), len(second.seeds())] == [1, 1]


def test_cancelling_reaches_the_server(server: ModelServer):
    async def work(policy: Policy) -> None:
        server.script = deque(["hang"])
        waiting = asyncio.create_task(ask(policy))
        while not server.in_flight:
            await asyncio.sleep(0.01)
        waiting.cancel()
        while not server.aborted:
            await asyncio.sleep(0.01)

    using(server)(work)
    assert server.in_flight == 0


def test_what_is_in_flight_is_bounded(server: ModelServer):
    server.delay = 0.01

    async def work(policy: Policy) -> None:
        await asyncio.gather(*(ask(policy) for _ in range(100)))

    using(server, most=7)(work)
    assert server.most_in_flight <= 7


def test_a_limit_doubles_until_it_is_refused_then_creeps():
    endpoint = Endpoint("http://127.0.0.1/v1", most=1000, limit=8, in_flight=8)
    for _ in range(8):
        endpoint.grow()
        endpoint.in_flight = int(endpoint.limit)
    assert endpoint.limit == 16
    endpoint.shrink()
    endpoint.shrink()
    assert endpoint.limit == 8
    for _ in range(8):
        endpoint.grow()
    assert 8.9 < endpoint.limit < 9.1


def test_metrics_move_the_limit():
    endpoint = Endpoint("http://127.0.0.1/v1", most=1000, limit=32, in_flight=32)
    endpoint.observe(running=32, waiting=0, cache=0.3)
    assert endpoint.limit == 48
    endpoint.in_flight = 48
    endpoint.observe(running=20, waiting=28, cache=0.3)
    assert endpoint.limit < 48
    endpoint.grow()
    assert endpoint.limit < 48
    assert _metrics(b'# HELP x\nvllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4.0\n') == {
        "vllm:num_requests_running": 7.0
    }
