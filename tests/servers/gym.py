"""A server of NeMo Gym's contract on the loopback that drops, refuses and fails as it is told to: an agent and a resources server."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web


@dataclass
class GymServer:
    """`script` names what the next requests of `/run` and `/verify` get: `drop` (after it was done), a status, `failed` (a row that says so),
    `no reward`, a JSON text, or "" for a reward: 1 if the row's `expected_answer` is in the response's text.

    A session counts its calls of `/count`, whose reply is their number; it is known by a cookie that changes with every reply.
    """

    script: deque[str] = field(default_factory=deque)
    rows: list[dict[str, Any]] = field(default_factory=list)
    keys: Counter[str] = field(default_factory=Counter)
    counts: dict[str, int] = field(default_factory=dict)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(started)), daemon=True)
        self._thread.start()
        assert started.wait(30)
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        app = web.Application()
        for path, handler in {
            "/run": self._run,
            "/seed_session": self._seed,
            "/verify": self._verify,
            "/{tool}": self._tool,
        }.items():
            app.router.add_post(path, handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        started.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _run(self, request: web.Request) -> web.StreamResponse:
        row = await request.json()
        self.rows.append(row)
        self.keys[request.headers.get("Idempotency-Key", "")] += 1
        text = {"type": "output_text", "text": f"It is {row.get('expected_answer')}.", "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
        response = {"id": "r", "object": "response", "output": [item], "usage": {"output_tokens": 3}}
        return self._scored(request, {**row, "response": response})

    async def _verify(self, request: web.Request) -> web.StreamResponse:
        row = await request.json()
        return self._scored(request, {**row, "counted": self.counts.get(self._session(request), -1)})

    def _scored(self, request: web.Request, row: dict[str, Any]) -> web.StreamResponse:
        what = self.script.popleft() if self.script else ""
        if what == "drop":
            assert request.transport is not None
            request.transport.abort()
            raise asyncio.CancelledError
        if what.isdigit():
            return web.json_response("it broke", status=int(what), headers={"Retry-After": "0"})
        if what.startswith("{"):
            return web.Response(text=what)
        if what == "failed":
            return web.json_response(
                {**row, "reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "no judge"}
            )
        said = "".join(part["text"] for item in row["response"]["output"] for part in item.get("content") or ())
        reward = {} if what == "no reward" else {"reward": float(str(row.get("expected_answer")) in said)}
        return web.json_response({**row, **reward, "extracted_answer": said})

    async def _seed(self, request: web.Request) -> web.Response:
        name = f"s{len(self.counts)}"
        self.counts[name] = 0
        self.rows.append(await request.json())
        return self._with_cookie({}, name)

    async def _tool(self, request: web.Request) -> web.Response:
        name = self._session(request)
        if name not in self.counts or request.match_info["tool"] != "count":
            return web.json_response({"detail": "Not Found"}, status=404)
        self.counts[name] += 1
        return self._with_cookie({"count": self.counts[name]}, name)

    def _session(self, request: web.Request) -> str:
        return request.cookies.get("session", "").partition("/")[0]

    def _with_cookie(self, value: Any, name: str) -> web.Response:
        reply = web.json_response(value)
        reply.set_cookie("session", f"{name}/{self.counts[name]}")
        return reply
