"""A model server on the loopback, over real HTTP: answers as vLLM does, and drops, delays, cuts and refuses as it is told to.

`with ModelServer(…) as server` runs it in a thread; `python -m tests.servers.model --faults 0.2` as a process that prints its URL.
It has one token per byte of text, and an end token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiohttp import web

END = 2
FAULTS = ("drop", "cut", "slow", "429", "500", "503", "malformed", "empty", "abort")
OVERFLOWS = {
    "overflow1": "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens. Please reduce it.",
    "overflow2": "max_tokens must be at least 1, got 0.",
    "overflow3": "max_tokens=5000 cannot be greater than max_model_len=max_total_tokens=2048. Please request fewer output tokens.",
    "overflow4": "The decoder prompt (length 3000) is longer than the maximum model length of 2048. Make sure that it is no longer.",
}
"""What vLLM 0.32.0 says, by the shapes of its answers."""

Answer = Callable[[dict[str, Any]], "str | dict[str, Any]"]
"""From a request to the text, or to the message."""


def arithmetic(body: dict[str, Any]) -> str:
    """Adds the two numbers of the last user message; wrongly where the request's seed is odd."""
    text = next(message["content"] for message in reversed(body["messages"]) if message["role"] == "user")
    one, two = (int(number) for number in re.findall(r"\d+", text)[-2:])
    return f"<think>Let me add.</think>It is \\boxed{{{one + two + (body.get('seed') or 0) % 2}}}."


@dataclass
class ModelServer:
    """`script` names what the next requests get, in order: one of FAULTS or OVERFLOWS, `401`, `400 MESSAGE`, or "" for an answer.

    After it, each request meets a random fault with the probability `faults`.
    """

    answer: Answer = arithmetic
    model: str = "adder"
    max_model_len: int = 2048
    script: deque[str] = field(default_factory=deque)
    faults: float = 0.0
    seed: int = 0
    delay: float = 0.0
    key: str = ""
    metrics: str = ""
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    aborted: int = 0
    healthy: bool = True
    keep: bool = True
    """Whether `requests` are kept."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._random = random.Random(self.seed)
        started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(60)
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.serve(started))

    async def serve(self, started: threading.Event | None = None) -> None:
        """Serve until stopped."""
        self._random = random.Random(self.seed)
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=1 << 30)
        self.add_routes(app)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=8192, reuse_address=True)
        await site.start()
        self.port = runner.addresses[0][1]
        if started:
            started.set()
        else:
            print(self.url, flush=True)
        await self._stop.wait()
        await runner.cleanup()

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._responses)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _models(self, request: web.Request) -> web.Response:
        if self._denied(request):
            return _error(401, "Unauthorized")
        return web.json_response(
            {"object": "list", "data": [{"id": self.model, "max_model_len": self.max_model_len, "root": "/models/x"}]}
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.metrics) if self.metrics else web.Response(status=404)

    def _denied(self, request: web.Request) -> bool:
        return bool(self.key) and request.headers.get("Authorization") != f"Bearer {self.key}"

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, self._completion)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, self._response)

    async def _answered(self, request: web.Request, make: Callable[[dict[str, Any]], dict[str, Any]]) -> web.StreamResponse:
        body = await request.json()
        if self.keep:
            self.requests.append(body)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            what = self.script.popleft() if self.script else ""
            if not what and self._random.random() < self.faults:
                what = self._random.choice(FAULTS)
            if what == "slow":
                await asyncio.sleep(self._random.random() / 5)
            if self.delay:
                await asyncio.sleep(self.delay)
            return await self._give(request, what, body, make)
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.in_flight -= 1

    async def _give(
        self, request: web.Request, what: str, body: dict[str, Any], make: Callable[..., dict[str, Any]]
    ) -> web.StreamResponse:
        if what == "401" or self._denied(request):
            return _error(401, "Unauthorized")
        if what == "hang":
            await asyncio.sleep(3600)
        if what.startswith("400 "):
            return _error(400, what[4:])
        if what in OVERFLOWS:
            return _error(400, OVERFLOWS[what])
        if what in ("429", "503"):
            return web.Response(status=int(what), text="busy", headers={"Retry-After": "0"})
        if what == "500":
            return web.Response(status=500, text="Internal Server Error")
        if what in ("drop", "cut"):
            assert request.transport is not None
            if what == "cut":
                data = json.dumps(make(body)).encode()
                request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data[: len(data) // 2])
            request.transport.abort()
            raise asyncio.CancelledError
        if what == "malformed":
            return web.Response(text='{"choices": [{"mess', content_type="application/json")
        prompt = sum(map(len, _prompt(body)))
        if prompt > self.max_model_len:
            return _error(400, OVERFLOWS["overflow1"].replace("2048", str(self.max_model_len)))
        if what == "empty":
            return web.json_response({"id": "x", "choices": []})
        reply = make(body)
        if what == "abort":
            reply["choices"][0]["finish_reason"] = "abort"
        return web.json_response(reply)

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        message = self.answer(body)
        message = {"role": "assistant", "content": message} if isinstance(message, str) else {"role": "assistant", **message}
        finish = message.pop("finish_reason", "tool_calls" if message.get("tool_calls") else "stop")
        tokens = (
            [byte + 3 for byte in json.dumps(message).encode()]
            if message.get("tool_calls")
            else [byte + 3 for byte in (message.get("content") or "").encode()]
        )
        tokens.append(END)
        prompt = [byte + 3 for text in _prompt(body) for byte in text.encode()]
        limit = body.get("max_tokens")
        if limit and len(tokens) > limit:
            tokens, finish = tokens[:limit], "length"
            message["content"] = bytes(token - 3 for token in tokens).decode("utf-8", "replace")
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        reply: dict[str, Any] = {
            "id": f"chatcmpl-{len(self.requests)}",
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [choice],
        }
        if body.get("logprobs"):
            choice["logprobs"] = {
                "content": [{"token": chr(token), "logprob": -token / 1000, "bytes": [], "top_logprobs": []} for token in tokens]
            }
        if body.get("return_token_ids"):
            reply["prompt_token_ids"], choice["token_ids"] = prompt, tokens
        reply["usage"] = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(tokens),
            "total_tokens": len(prompt) + len(tokens),
        }
        return reply

    def _response(self, body: dict[str, Any]) -> dict[str, Any]:
        items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        text = self.answer({**body, "messages": items})
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": self.model,
            "status": "completed",
            "output": [item],
            "usage": usage,
        }

    def seeds(self) -> Counter[int]:
        """The seeds that came, and how often each."""
        return Counter(body["seed"] for body in self.requests)


def collect_command(url: str, rows: Path) -> list[str]:
    """`gymdata rollouts collect` of rows of mathematics, as a process of its own."""
    collect = [sys.executable, "-m", "gymdata.cli.main", "rollouts", "collect"]
    return [*collect, str(rows), "--env", "math", "--model-url", url]


def _prompt(body: dict[str, Any]) -> list[str]:
    return [json.dumps(message.get("content")) for message in body.get("messages") or [{"content": body.get("input")}]]


def _error(status: int, message: str) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}, status=status
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    asyncio.run(ModelServer(keep=False, **vars(parser.parse_args())).serve())
