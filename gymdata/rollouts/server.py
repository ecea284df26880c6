"""NeMo Gym's HTTP contract for our environments, and a proxy in front of the model that keeps token ids: what `gymdata serve` runs.

All state is a rollout's own, in one object under its id, which goes after so much time; nothing is shared but the model's client, the
verifiers' processes and how rows are scored. A reward is only ever a verdict: whatever failed is an error (gymdata.rollouts.refusals).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import msgspec
from aiohttp import web

from gymdata.environments.model import Environment
from gymdata.errors import ExternalError
from gymdata.rollouts import agent, facts, gym_profile
from gymdata.rollouts.head import global_config, server_instances
from gymdata.rollouts.judge import Judge, judge_settings, score
from gymdata.rollouts.kept import Full, Kept
from gymdata.rollouts.overflow import Overflow
from gymdata.rollouts.plan import Who
from gymdata.rollouts.policy import Policy, RequestFailed, Settings
from gymdata.rollouts.refusals import Refused, refused
from gymdata.rollouts.run import Scoring, scoring
from gymdata.rollouts.sequences import Sequences
from gymdata.rollouts.sse import chat_events, response_events
from gymdata.rollouts.tasks import Samples
from gymdata.rollouts.tokens import TOKEN_IDS
from gymdata.verifiers import Verdict
from gymdata.verifiers.isolation import Workers

COOKIE = "gymdata_rollout"
"""Carries a rollout's id from /seed_session to its tools and /verify."""
REPLIES, REPLY_SECONDS = 1024, 120.0
"""How many answers of /run to requests with an Idempotency-Key are kept, and how long after the last asked for it."""
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_PREFIXES = ("", "/rollouts/{rollout}", "/ng-rollout/{unrecorded}", "/ng-rollout/{unrecorded}/training-token-capture")
"""Before any route; NeMo Gym's own for rollouts, the last two, are understood, and nothing is kept under them."""


@dataclass(frozen=True)
class Serving:
    """What is served: environments, and a model unless `settings` is None. `port` 0 takes a free one.

    `judge` is how the judge is reached that verifiers may ask; None where it is the model.

    A request may have `max_request_bytes` and ask for `max_output_tokens`; `max_rollouts` are kept at a time, each for
    `rollout_seconds` after its last request and with `max_rollout_tokens`. `failure_rows` answers a /run that failed with a row
    that NeMo Gym's collector takes for a failure, with status 200.
    """

    environments: tuple[Environment, ...]
    settings: Settings | None = None
    judge: Settings | None = None
    host: str = "127.0.0.1"
    port: int = 0
    max_steps: int = 32
    workers: int = 0
    verify_seconds: float = 30.0
    max_request_bytes: int = 64 << 20
    max_output_tokens: int | None = None
    max_rollouts: int = 16_384
    max_rollout_tokens: int = 1 << 20
    rollout_seconds: float = 3600.0
    failure_rows: bool = False


@dataclass
class Rollout:
    """The state of one rollout: its tools, once it was seeded, and the tokens that it was seen to ask for and get."""

    seeded_by: bytes = b""
    tools: agent.Tools | None = None
    recorded: bool = False
    requests: int = 0
    without_token_ids: int = 0
    sequences: Sequences = field(default_factory=Sequences)

    def take(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Note what the model said."""
        self.requests += 1
        last = items[-1] if items else {}
        if all(key in last for key in TOKEN_IDS):
            self.sequences.add(*(last[key] for key in TOKEN_IDS))
        else:
            self.without_token_ids += 1

    def to_json(self, name: str) -> dict[str, Any]:
        told = {"id": name, "requests": self.requests, "without_token_ids": self.without_token_ids}
        return {**told, "sequences": [sequence.to_json() for sequence in self.sequences.all]}


async def serve(serving: Serving, on_start: Callable[[Server], None]) -> bool:
    """Serve until Ctrl-C or SIGTERM, which lets finish what is in flight; a second one gives it up. Whether all was finished."""
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task is not None

    def leave() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    loop = asyncio.get_running_loop()
    try:
        async with Server(serving) as server:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, leave)
            on_start(server)
            await stop.wait()
            if server.in_flight:
                print(f"finishing {server.in_flight:,} requests; Ctrl-C again gives them up", file=sys.stderr, flush=True)
    except asyncio.CancelledError:
        return False
    return True


class Server:
    """`async with Server(serving) as server:` answers at `server.url` until it is left, which finishes what is in flight.

    Entering raises UsageError for a model, an address or a verifier that cannot be had, ExternalError if no model server answers.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._rollouts: Kept[Rollout] = Kept(serving.max_rollouts, serving.rollout_seconds)
        self._replies: Kept[asyncio.Task[dict[str, Any]]] = Kept(REPLIES, REPLY_SECONDS)
        self._tasks: set[asyncio.Task[dict[str, Any]]] = set()
        self._scoring: dict[Who, Scoring] = {}
        self._policy: Policy | None = None
        self._judge: Judge | None = None
        self.in_flight = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        serving = self._serving
        async with contextlib.AsyncExitStack() as stack:
            if serving.settings is not None:
                self._policy = await stack.enter_async_context(Policy(serving.settings))
            if judge := serving.judge or serving.settings:
                self._judge = await stack.enter_async_context(Judge(judge))
                if serving.judge:
                    await self._judge.meet()
            self._workers = await stack.enter_async_context(Workers(serving.workers, seconds=serving.verify_seconds))
            # A client that goes away ends what it asked for, at the model server, too.
            self._runner = web.AppRunner(self._app(), access_log=None, handler_cancellation=True, shutdown_timeout=24 * 3600)
            await self._runner.setup()
            site = web.TCPSite(self._runner, serving.host, serving.port, backlog=8192)
            try:
                await site.start()
            except (OSError, OverflowError) as error:
                await self._runner.cleanup()
                message = f"cannot listen at {serving.host}:{serving.port}: {error}"
                raise ExternalError(message, "choose another --port, or --host") from error
            self.url = f"http://{serving.host}:{self._runner.addresses[0][1]}"
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        try:
            await self._runner.cleanup()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._stack.aclose()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=self._serving.max_request_bytes, middlewares=[self._errors])
        for path in ("/", "/health", "/healthz", "/livez", "/readyz"):
            app.router.add_get(path, self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/reverify_mode", self._reverify_mode)
        app.router.add_get("/server_instances", self._server_instances)
        app.router.add_get("/global_config_dict_yaml", self._global_config)
        app.router.add_get("/rollouts/{rollout}", self._show)
        app.router.add_delete("/rollouts/{rollout}", self._forget)
        posts = {
            "/v1/responses": self._responses,
            "/v1/chat/completions": self._chat,
            "/seed_session": self._seed,
            "/close_session": self._close,
            "/verify": self._verify,
            "/run": self._run,
            "/aggregate_metrics": self._aggregate,
            "/{tool}": self._tool,
        }
        for prefix in _PREFIXES:
            for path, handler in posts.items():
                app.router.add_post(prefix + path, handler)
        return app

    @web.middleware
    async def _errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.in_flight += 1
        try:
            return await handler(request)
        except Exception as error:
            told = refused(error)
            if told.type == "internal_error":
                traceback.print_exception(error, file=sys.stderr)
            return _json(told.to_json(), told.status)
        finally:
            self.in_flight -= 1

    async def _health(self, request: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        policy = self._model()
        card = {"id": policy.model, "object": "model", "owned_by": "gymdata", "max_model_len": policy.max_model_len}
        return _json({"object": "list", "data": [card]})

    async def _reverify_mode(self, request: web.Request) -> web.Response:
        return _json("stateless")

    async def _server_instances(self, request: web.Request) -> web.Response:
        return _json(server_instances(self._config(request)))

    async def _global_config(self, request: web.Request) -> web.Response:
        return _json(msgspec.json.encode(self._config(request)).decode())  # JSON is YAML; as Gym has it, in a JSON text

    def _config(self, request: web.Request) -> dict[str, Any]:
        """With the address by which this server was reached."""
        return global_config(self._serving.environments, request.url.host or self._serving.host, request.url.port or 80)

    async def _responses(self, request: web.Request) -> web.Response:
        params = await _body(request)
        stream = params.pop("stream", None)
        params.pop("stream_options", None)
        if not _asks(params):
            raise Refused(400, "`input` is missing, or neither a text nor a list of items", param="input")
        params = self._limited(params, "max_output_tokens")
        started = time.time()
        with self._recording(request) as rollout:
            async with await self._model().begin(_wish(request)) as place:
                try:
                    turn = await place.respond(params)
                except RequestFailed as error:  # which tells places as they are in a row
                    error.message = error.message.removeprefix("responses_create_params.")
                    raise
            if isinstance(turn, Overflow):
                raise refused(turn)
            rollout.take(turn.items)
        reason = agent.REASONS[turn.stopped]
        reply = {**agent.response(params, turn.items, turn.usage, reason, started), "model": self._model().model}
        reply |= {"unbridged": asdict(turn.unbridged)} if turn.unbridged else {}
        return _stream(response_events(reply)) if stream else _json(reply)

    async def _chat(self, request: web.Request) -> web.Response:
        body = await _body(request)
        try:
            msgspec.convert(body, _ChatRequest)
        except msgspec.ValidationError as error:
            raise Refused(400, f"no chat request: {error}") from error
        if body.get("n") not in (None, 1):
            raise Refused(400, "one answer per request: `n` must be 1", param="n")
        stream, options = body.pop("stream", None), body.pop("stream_options", None) or {}
        body = self._limited(body, "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens")
        with self._recording(request) as rollout:
            async with await self._model().begin(_wish(request)) as place:
                reply = await place.chat(body)
            if isinstance(reply, Overflow):
                raise refused(reply)
            rollout.take([reply["choices"][0]["message"]])
        if stream:
            return _stream(chat_events(reply, bool(options.get("include_usage"))))
        return _json(reply)

    def _model(self) -> Policy:
        if self._policy is None:
            raise Refused(503, "no model is served: start `gymdata serve` with --model-url", "no_model")
        return self._policy

    def _limited(self, body: Mapping[str, Any], limit: str) -> dict[str, Any]:
        """A request without its nulls, and with the limit of tokens that it asks for or the server has. Raises Refused."""
        body = {key: value for key, value in body.items() if value is not None}
        if body.get("stream"):
            raise Refused(400, "a rollout is not streamed: leave `stream` out", param="stream")
        most = self._serving.max_output_tokens
        asked = body.get(limit, most)
        if asked is None:
            return body
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
            raise Refused(400, f"`{limit}` is {asked!r}, not a whole number from 1 on", param=limit)
        if most and asked > most:
            raise Refused(400, f"`{limit}` is {asked:,}; this server gives {most:,} at most", code="too_many_tokens", param=limit)
        return {**body, limit: asked}

    @contextlib.contextmanager
    def _recording(self, request: web.Request):
        """The rollout that a request to the model belongs to by its path; one of its own, forgotten at once, where there is none."""
        name = _path_id(request)
        if name is None:
            yield Rollout()
            return
        with self._rollouts.using(name, Rollout) as rollout:
            if rollout.sequences.tokens >= self._serving.max_rollout_tokens:
                message = f"the rollout {name!r} has {rollout.sequences.tokens:,} tokens; this server keeps {self._serving.max_rollout_tokens:,}"
                raise Refused(400, message, code="rollout_too_long")
            rollout.recorded = True
            yield rollout

    @property
    def model(self) -> str:
        """The model that is served; empty if there is none."""
        return self._policy.model if self._policy else ""

    async def _show(self, request: web.Request) -> web.Response:
        name = _path_id(request) or ""
        rollout = self._rollouts.get(name)
        if rollout is None:
            raise Refused(404, f"there is no rollout {name!r}, or none any more", code="no_such_rollout")
        return _json(rollout.to_json(name))

    async def _forget(self, request: web.Request) -> web.Response:
        name = _path_id(request) or ""
        return _json({"id": name, "deleted": self._rollouts.pop(name) is not None})

    async def _seed(self, request: web.Request) -> web.Response:
        """Begin a session: from here on the row's tools answer. Repeated with the same row it changes nothing."""
        row = await _body(request)
        make_tools = self._scored_by(row).make_tools
        digest = hashlib.sha256(msgspec.json.encode(row, order="sorted")).digest()
        name = _path_id(request)
        if name is None:
            name = request.cookies.get(COOKIE, "")
            known = self._rollouts.get(name)
            if known is None or known.seeded_by != digest:
                name = uuid4().hex
        rollout = self._rollouts.get(name) or self._rollouts.add(name, Rollout())
        if rollout.seeded_by not in (b"", digest):
            raise Refused(409, f"the rollout {name!r} was begun with another row", code="seeded_otherwise")
        if not rollout.seeded_by:
            rollout.tools = make_tools(row) if make_tools else {}
            rollout.seeded_by = digest
        reply = _json({})
        reply.set_cookie(COOKIE, name, httponly=True, samesite="Lax")
        return reply

    async def _tool(self, request: web.Request) -> web.Response:
        """What a tool says, as it is given to the model; also of calls that cannot be made."""
        name = _path_id(request) or request.cookies.get(COOKIE, "")
        rollout = self._rollouts.get(name)
        if rollout is None or rollout.tools is None:
            message = f"there is no session in which to call {request.match_info['tool']!r}"
            raise Refused(404, message + ": POST the row to /seed_session first and send its cookie back", code="no_session")
        arguments = (await request.read()).decode("utf-8", "replace")
        said = await agent.answer(rollout.tools, request.match_info["tool"], arguments)
        return web.Response(text=said, content_type="application/json")

    async def _close(self, request: web.Request) -> web.Response:
        self._end(request)
        return _json({})

    def _end(self, request: web.Request) -> None:
        """Give up a session; tokens that were recorded stay until they are fetched and deleted, or too old."""
        name = _path_id(request) or request.cookies.get(COOKIE, "")
        rollout = self._rollouts.get(name)
        if rollout is not None:
            rollout.tools, rollout.seeded_by = None, b""
            if not rollout.recorded:
                self._rollouts.pop(name)

    async def _verify(self, request: web.Request) -> web.Response:
        body = await _body(request)
        response = body.pop("response", None)
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise Refused(422, "`response` is no Responses object with a list of `output` items", param="response")
        reply = _json(await self._score(body, response))
        self._end(request)
        return reply

    async def _score(self, row: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
        """The row with its reward, as NeMo Gym's servers reply. Raises Refused if there is no verdict."""
        bare = [
            {key: value for key, value in item.items() if key not in TOKEN_IDS} if isinstance(item, dict) else item
            for item in response["output"]
        ]
        verifier = self._scored_by(row).verifier
        verdict = await score(self._workers, self._judge, verifier, row, {**response, "output": bare})
        if not isinstance(verdict, Verdict):
            raise refused(verdict)
        return {**row, **verdict.extras, "response": response, "reward": verdict.reward}

    def _scored_by(self, row: Mapping[str, Any]) -> Scoring:
        """How a row is scored. Raises UsageError if it names no agent that there is, or there is no judge for it."""
        reference, source = row.get("agent_ref"), row.get("task_source")
        name = reference.get("name") if isinstance(reference, dict) else reference
        who = (name if isinstance(name, str) else None, source if isinstance(source, str) else None)
        if who not in self._scoring:
            found = scoring(self._serving.environments, [who])
            if getattr(found[who].verifier, "judge", None):
                judge_settings([found[who].verifier], self._serving.judge, self._serving.settings)
            self._scoring |= found
        return self._scoring[who]

    async def _run(self, request: web.Request) -> web.Response:
        """A whole rollout of a row: asked for, with its tools, and scored."""
        row = await _body(request)
        params = row.get("responses_create_params")
        if not isinstance(params, dict) or not _asks(params):
            message = "`responses_create_params` is no object with an `input`, a text or a list of items"
            raise Refused(422, message, param="responses_create_params")
        params = self._limited(params, "max_output_tokens")
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return _json(await self._rollout(row, params))
        key = hashlib.sha256(key.encode() + b"\0" + await request.read()).hexdigest()
        task = self._replies.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.create_task(self._rollout(row, params))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            with contextlib.suppress(Full):
                self._replies.add(key, task)
        return _json(await asyncio.shield(task))

    async def _rollout(self, row: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        scored_by, policy = self._scored_by(row), self._model()
        try:
            async with await policy.begin(_number(msgspec.json.encode(params))) as place:
                said = await agent.run(place, row, params, scored_by.make_tools, max_steps=self._serving.max_steps)
            if isinstance(said, Overflow):
                raise refused(said)
            reply = await self._score(row, {**said.response, "model": policy.model})
            faults = agent.token_faults(reply, said)
            return {**reply, "stop_reason": said.stop_reason, **({"token_faults": faults} if faults else {})}
        except Exception as error:
            told = refused(error)
            if not self._serving.failure_rows or told.type == "internal_error":
                raise told from error
            failure = {
                "class": told.code if told.code == "context_length_exceeded" else told.type,
                "type": told.code,
                "message": told.message[:2000],
            }
            return {
                **row,
                **{f"_ng_failure_{name}": value for name, value in failure.items()},
                "_ng_failure_http_status": told.status,
            }

    async def _aggregate(self, request: web.Request) -> web.Response:
        rows = (await _body(request)).get("verify_responses")
        if not isinstance(rows, list) or not rows:
            raise Refused(422, "`verify_responses` is no list of rollouts", param="verify_responses")
        return _json(await asyncio.to_thread(aggregate, rows))


def aggregate(rows: Sequence[Any]) -> dict[str, Any]:
    """NeMo Gym's aggregate metrics of verify responses, taken for one agent's. Raises DataError, or Refused for rows that are no rollouts."""
    with tempfile.TemporaryDirectory(prefix="gymdata-aggregate-") as folder:
        path = Path(folder, "rollouts.jsonl")
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        rollouts, findings = facts.read([path], Samples())
    for finding in findings[str(path)][:1]:
        raise Refused(422, f"verify_responses[{finding.line - 1}]: {finding.message}", param="verify_responses")
    members = range(len(rollouts))
    found = gym_profile.aggregate(rollouts, members, "", "")
    groups = list(gym_profile.aggregate_groups(rollouts, members, ""))
    return {
        "perf_summary": None,
        **{key: value for key, value in found.items() if key.endswith(("metrics", "summary"))},
        "group_level_metrics": groups,
    }


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object that was sent. Raises Refused."""
    try:
        return msgspec.json.decode(await request.read(), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON object: {error}", code="malformed_json") from error


class _Function(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    """A call, or a tool: both have a function."""

    function: _Function


class _Part(msgspec.Struct):
    type: str


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part | str] | None = None
    tool_calls: list[_Named] | None = None


class _ChatRequest(msgspec.Struct):
    """What is read here of a chat request; all else is left to the model server."""

    messages: list[_Message]
    tools: list[_Named] | None = None
    stream_options: dict[str, Any] | None = None


def _asks(params: Mapping[str, Any]) -> bool:
    return isinstance(params.get("input"), str | list)


def _path_id(request: web.Request) -> str | None:
    """The rollout that a path names, if it names one."""
    name = request.match_info.get("rollout")
    if name is not None and not ID.fullmatch(name):
        raise Refused(400, f"{name[:80]!r} is no id of a rollout: letters, digits, `.`, `_` and `-`, up to 200", param="rollout")
    return name


def _wish(request: web.Request) -> int:
    """Equal for the requests of one rollout: where servers are equally busy, they go to the same one."""
    name = request.match_info.get("rollout") or request.match_info.get("unrecorded")
    return _number(name.encode()) if name else 0


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def _stream(events: bytes) -> web.Response:
    return web.Response(body=events, content_type="text/event-stream")


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
