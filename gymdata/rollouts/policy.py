"""The client of model servers: one request, its retries, and what came of it, as types.

aiohttp, because httpx looks through its whole queue for every request and stands still at thousands of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import aiohttp
import msgspec
from pydantic import SecretStr

from gymdata.errors import ExternalError, UsageError
from gymdata.rollouts.bridge import Bridge, Conversation, Prompt, Refused, Server, Unbridgeable, of_items, of_messages
from gymdata.rollouts.chat import Inexpressible, ReasoningStyle, to_chat, to_responses
from gymdata.rollouts.chat_reply import MalformedReply, Turn, chat_completion, from_chat, from_completion
from gymdata.rollouts.endpoints import Endpoint, Endpoints
from gymdata.rollouts.overflow import Overflow, overflow
from gymdata.rollouts.replies import Card, Models, from_response, retry_after, told
from gymdata.rollouts.tokens import PROMPT, SAMPLED, TOKEN_IDS

FailureKind = Literal[
    "bad_request", "rate_limited", "server_error", "timeout", "connection", "malformed_reply", "inexpressible", "unbridgeable"
]
TokenBridge = Literal["auto", "require", "prefix", "off"]

T = TypeVar("T")

REFUSALS = 30
"""Times that a server may say that it is too busy, one after the other."""
_LONGEST_PAUSE = 30.0


class RequestFailed(Exception):
    """A request that came to nothing after its retries. The rollout has no reward; another run may try it again."""

    def __init__(self, kind: FailureKind, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message, self.status = message, status


@dataclass(frozen=True)
class Settings:
    """How servers are spoken to. `urls` end in /v1 or not; `model` may be None where a server has only one.

    `most` bounds the rollouts in flight; with `fixed` that many are sent at once, without learning what the servers take.
    `timeout` is the longest silence within a request, `patience` the longest time without any server, `wait` the same before
    the first request; all in seconds. `attempts` counts the tries of a request; `token_ids` asks for them where they can be had.

    `token_bridge` says what a prompt is made of once earlier turns have ids: of these (`auto`; what cannot be is sent as messages,
    and says so), of these alone (`require`; what cannot be fails), of messages with `required_prefix_token_ids`, for servers patched
    as NeMo-RL's (`prefix`), or of messages (`off`).
    """

    urls: tuple[str, ...]
    model: str | None = None
    api: Literal["chat", "responses"] = "chat"
    api_key: SecretStr | None = None
    most: int = 16_384
    fixed: bool = False
    timeout: float = 1800.0
    attempts: int = 5
    patience: float = 600.0
    wait: float = 10.0
    token_ids: bool = True
    token_bridge: TokenBridge = "auto"
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Counts:
    """What has been sent and received so far."""

    requests: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Policy:
    """A model behind one or more servers; `async with Policy(settings) as policy`.

    Entering finds out which model there is. Raises UsageError for an address, model or key that is wrong, ExternalError if no server answers.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.model = settings.model or ""
        self.max_model_len: int | None = None
        self.counts = Counts()
        self.bridge = Bridge()
        self.renders = True
        """Whether its servers render conversations; found out when first asked."""
        self.thinks_by_field = False
        """Whether its servers were seen to tell thoughts from text."""
        self.dropped: Counter[str] = Counter()
        """Optional keys of requests that the server did not know: they are no longer sent."""

    async def __aenter__(self) -> Self:
        settings = self.settings
        headers = {"Content-Type": "application/json"}
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        # A server closes a connection that was idle for 5 s (uvicorn), at times just as the next request is on its way.
        self._http = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=settings.timeout),
            read_bufsize=1 << 18,
        )
        most = min(settings.most, connections())
        try:
            self.endpoints = Endpoints(settings.urls, self._http, most=most, fixed=settings.fixed, patience=settings.patience)
            await self._meet()
        except BaseException:
            await self._http.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.endpoints.close()
        await self._http.close()

    def manifest(self) -> dict[str, Any]:
        """The model as its servers report it."""
        return {"id": self.model, "max_model_len": self.max_model_len, "api": self.settings.api}

    async def begin(self, wish: int = 0) -> Trajectory:
        """Room for one trajectory at a server; waits for it. `wish` is equal for those that share a prompt."""
        return Trajectory(self, await self.endpoints.acquire(wish))

    async def post(self, endpoint: Endpoint, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """One request, without retries: status, headers, body."""
        self.counts.requests += 1
        async with self._http.post(endpoint.url + path, data=body) as reply:
            return reply.status, reply.headers, await reply.read()

    async def _meet(self) -> None:
        """Ask every server for its models. Those that do not answer now are left to recover."""
        cards: dict[str, list[Card]] = {}
        trouble = ""
        try:
            async with asyncio.timeout(self.settings.wait):
                while not cards:
                    for endpoint in self.endpoints.all:
                        try:
                            cards[endpoint.url] = await self._models(endpoint)
                        except (aiohttp.ClientError, TimeoutError, ExternalError) as error:
                            trouble = f"{endpoint.url}: {error}"
                    if not cards:
                        await asyncio.sleep(0.5)
        except TimeoutError:
            hint = "start the model server (`make serve`), or check --model-url; --wait SECONDS gives it longer"
            raise ExternalError(f"no model server answers: {trouble or ', '.join(self.settings.urls)}", hint) from None
        for endpoint in self.endpoints.all:
            if endpoint.url not in cards:
                self.endpoints.failed(endpoint, gone=True)
        self._choose(cards)

    async def _models(self, endpoint: Endpoint) -> list[Card]:
        async with self._http.get(f"{endpoint.url}/models", timeout=aiohttp.ClientTimeout(total=10)) as reply:
            body = await reply.read()
            if reply.status in (401, 403):
                raise _denied(endpoint, reply.status, body)
            if reply.status == 404:
                raise UsageError(
                    f"{endpoint.url}/models: not found", "--model-url is the base of an OpenAI API, such as http://HOST:8000/v1"
                )
            if reply.status != 200:
                raise ExternalError(f"HTTP {reply.status}: {told(body)[0]}")
        try:
            return msgspec.json.decode(body, type=Models).data
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(
                f"{endpoint.url}/models: not a list of models: {error}", "--model-url is the base of an OpenAI API"
            ) from error

    def _choose(self, cards: Mapping[str, list[Card]]) -> None:
        for url, found in cards.items():
            names = [card.id for card in found]
            if not self.model and len(names) == 1:
                self.model = names[0]
            if not self.model:
                raise UsageError(f"{url} has {len(names)} models: {', '.join(names[:20])}", "say which: --model NAME")
            card = next((card for card in found if card.id == self.model), None)
            if card is None:
                raise UsageError(
                    f"{url} has no model {self.model!r}; it has {', '.join(names[:20]) or 'none'}",
                    "--model NAME says which to use",
                )
            if self.max_model_len not in (None, card.max_model_len):
                raise UsageError(
                    f"{url}: {self.model!r} has a context of {card.max_model_len}, elsewhere of {self.max_model_len}",
                    "the servers of a run must be alike",
                )
            self.max_model_len = card.max_model_len


class Trajectory:
    """The requests of one rollout, one after the other, to one server as long as that is well. `close` gives the place back."""

    def __init__(self, policy: Policy, endpoint: Endpoint) -> None:
        self._policy, self._endpoint = policy, endpoint
        self._style: ReasoningStyle = "tags"
        self._answered = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._policy.endpoints.release(self._endpoint, well=self._answered)

    async def respond(self, params: Mapping[str, Any], seed: int | None = None) -> Turn | Overflow:
        """What the model says to a Responses request. Raises RequestFailed; UsageError or ExternalError if the whole run must stop.

        Where items of its input carry token ids, the prompt begins with these (`Settings.token_bridge`); if that cannot be, the turn
        says why.
        """
        settings = self._policy.settings
        path, body = self._request(params, seed)
        keep_logprobs = params.get("top_logprobs") is not None or bool(params.get("include"))
        try:
            made = await self._bridged(of_items(params, self._style), body) if settings.api == "chat" else None
        except Inexpressible as error:
            raise RequestFailed("inexpressible", f"responses_create_params.{error}") from error
        if isinstance(made, Prompt):
            ids = made.ids
            completion = self._completion(body, ids)
            return await self._send(
                "/completions", completion, lambda data: self._count(from_completion(data, ids, body, keep_logprobs))
            )

        def read(data: bytes) -> Turn:
            if settings.api == "responses":
                return self._count(from_response(data))
            turn = from_chat(data, keep_logprobs)
            if turn.reasoning_by_field:
                self._style = "field"
            return self._count(turn)

        turn = await self._send(path, body, read)
        if not isinstance(turn, Turn):
            return turn
        unbridged = made or _prefix_ignored(body, turn.items[-1].get(PROMPT))
        return replace(turn, unbridged=unbridged) if unbridged else turn

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any] | Overflow:
        """The reply to a Chat Completions request, both as they stand but for the model's name and the token ids, all three fields of
        which are on the reply's message. Raises as `respond`.

        A request whose messages carry ids is bridged as those of `respond` are; why it could not be is the reply's `unbridged`.
        """
        settings = self._policy.settings
        asked = {**settings.extra_body, **body, "model": self._policy.model}
        if settings.token_ids and "return_token_ids" not in self._policy.dropped:
            asked |= {"return_token_ids": True, "logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
        made = await self._bridged(of_messages(body["messages"]), asked)
        if isinstance(made, Prompt):
            ids, keep = made.ids, bool(body.get("logprobs"))
            return await self._send("/completions", self._completion(asked, ids), lambda data: self._told(data, ids, asked, keep))

        def read(data: bytes) -> dict[str, Any]:
            turn = self._count(from_chat(data))
            reply = msgspec.json.decode(data, type=dict[str, Any])
            choice = reply["choices"][0]
            choice["message"] |= {key: turn.items[-1][key] for key in TOKEN_IDS if key in turn.items[-1]}
            if not body.get("return_token_ids"):
                reply.pop("prompt_token_ids", None)
                choice.pop("token_ids", None)
            if not body.get("logprobs"):
                choice["logprobs"] = None
            if unbridged := made or _prefix_ignored(asked, choice["message"].get(PROMPT)):
                reply["unbridged"] = asdict(unbridged)
            return reply

        return await self._send("/chat/completions", asked, read)

    def _told(self, data: bytes, ids: list[int], asked: Mapping[str, Any], keep_logprobs: bool) -> dict[str, Any]:
        """A completion told as a chat completion."""
        turn = self._count(from_completion(data, ids, asked))
        by_field = self._policy.thinks_by_field
        return {"created": int(time.time()), **chat_completion(data, turn, asked, keep_logprobs, by_field)}

    async def _bridged(self, conversation: Conversation | None, body: dict[str, Any]) -> Prompt | Unbridgeable | None:
        """The prompt as ids; None where none are to be sent, be it that `body` now asks the server to keep to them. Raises as `respond`."""
        settings = self._policy.settings
        if conversation is None or not settings.token_ids or settings.token_bridge == "off":
            return None
        if settings.token_bridge == "prefix":
            # Such a server puts the ids in place of all up to the last of the model's messages, whether this has ids or not.
            if any(message["role"] == "assistant" for message in conversation.tail):
                return Unbridgeable("prefix_ignored", "the model's latest message has no ids, an earlier one has")
            body["required_prefix_token_ids"] = [*conversation.ids.get(PROMPT, ()), *conversation.ids[SAMPLED]]
            return None
        made = await self._prompt(conversation, body)
        if isinstance(made, Unbridgeable) and settings.token_bridge == "require":
            raise RequestFailed("unbridgeable", f"{made.reason}: {made.message}")
        return made

    async def _prompt(self, conversation: Conversation, body: Mapping[str, Any]) -> Prompt | Unbridgeable:
        policy = self._policy
        if not policy.renders:
            return Unbridgeable("no_rendering", "the server does not tell how it renders conversations (/tokenize)")
        if isinstance(body.get("tool_choice"), Mapping) or body.get("tool_choice") == "required":
            return Unbridgeable("tool_choice", "that a tool must be called is known to chat requests alone")
        if (
            body.get("continue_final_message")
            or body.get("add_generation_prompt") is False
            or body.get("echo")
            or body.get("documents")
        ):
            return Unbridgeable("custom_prompt", "the request has more to say on its prompt than its messages")
        shared = {key: body[key] for key in _RENDERED if body.get(key) is not None}
        if body.get("reasoning_effort"):
            effort = {"reasoning_effort": body["reasoning_effort"]}
            shared["chat_template_kwargs"] = {**effort, **shared.get("chat_template_kwargs", {})}

        async def render(told: Sequence[Mapping[str, Any]], begin: bool) -> list[int]:
            return await self._tokenizer("/tokenize", {**shared, "messages": told, "add_generation_prompt": begin}, _Tokens)

        async def text(ids: list[int]) -> str:
            return await self._tokenizer("/detokenize", {"tokens": ids}, _Text)

        template = msgspec.json.encode([shared, body.get("tool_choice")], order="sorted")
        tools = () if body.get("tool_choice") == "none" else body.get("tools") or ()
        made = await policy.bridge.prompt(conversation, Server(render, text, template, tools))
        if isinstance(made, Unbridgeable) and made.reason == "no_rendering":
            policy.renders = False
        return made

    async def _tokenizer(self, path: str, body: dict[str, Any], kind: type[_Tokens | _Text]) -> Any:
        """What /tokenize or /detokenize say. Raises Refused, and as `respond`."""

        def read(data: bytes) -> Any:
            try:
                return msgspec.json.decode(data, type=kind).value
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise MalformedReply(f"not what {path} says: {error}") from error

        try:
            said = await self._send(f"/..{path}", {"model": self._policy.model, **body}, read)
            if isinstance(said, Overflow):
                raise Refused(said.message)
            return said
        except UsageError as error:  # 404
            raise Refused(f"{path}: {error.message}", missing=True) from error
        except RequestFailed as error:
            if error.kind == "bad_request":
                raise Refused(error.message, missing=error.status == 405) from error
            raise

    def _completion(self, body: Mapping[str, Any], ids: list[int]) -> dict[str, Any]:
        """The request of /completions that asks for what a chat request asks, after other tokens."""
        asked = {key: value for key, value in body.items() if key not in _CHAT_ONLY}
        most = body.get("max_completion_tokens") or body.get("max_tokens")
        if most is None and self._policy.max_model_len:
            most = max(1, self._policy.max_model_len - len(ids))
        if most is not None:
            asked["max_tokens"] = most
        # Some of the marks around calls and thoughts are special tokens; a chat request shows them to its parsers, too.
        asked["skip_special_tokens"] = body.get("skip_special_tokens", not (body.get("tools") or self._policy.thinks_by_field))
        asked.setdefault("spaces_between_special_tokens", False)
        return {**asked, "prompt": ids, "logprobs": body.get("top_logprobs") or 0, "return_token_ids": True}

    async def _send(self, path: str, body: dict[str, Any], read: Callable[[bytes], T]) -> T | Overflow:
        """What `read` makes of the reply, after as many tries as it takes. `read` raises MalformedReply of one that is none."""
        policy, settings = self._policy, self._policy.settings
        failures = refusals = 0
        while True:
            self._endpoint = await policy.endpoints.move(self._endpoint)
            wait = 0.0
            for key in policy.dropped.keys() & body.keys():
                del body[key]
            try:
                status, headers, data = await policy.post(self._endpoint, path, msgspec.json.encode(body))
                if status == 200:
                    said = read(data)
                    policy.endpoints.succeeded(self._endpoint)
                    return said
                if found := self._refusal(status, data, body):
                    return found
                failure = RequestFailed("server_error", f"HTTP {status}: {told(data)[0]}", status)
                if status in (429, 503):
                    failure = RequestFailed("rate_limited", failure.message, status)
                    refusals += 1
                    policy.endpoints.refused(self._endpoint)
                    wait = retry_after(headers)
                elif status == 400:  # an optional key was dropped just now
                    continue
                else:
                    failures += 1
                    policy.endpoints.failed(self._endpoint)
            except aiohttp.ClientConnectorError as error:
                # Nothing listens: that is about the server, not about this request, and `move` waits for it.
                policy.endpoints.failed(self._endpoint, gone=True)
                failure = RequestFailed("connection", str(error))
            except (TimeoutError, aiohttp.ClientError, ssl.SSLError, OSError) as error:
                failures += 1
                policy.endpoints.failed(self._endpoint)
                kind = "timeout" if isinstance(error, TimeoutError) else "connection"
                failure = RequestFailed(kind, str(error) or type(error).__name__)
            except MalformedReply as error:
                failures += 1
                failure = RequestFailed("malformed_reply", str(error))
            if failures >= settings.attempts or refusals >= REFUSALS:
                raise failure
            policy.counts.retries += 1
            longest = min(_LONGEST_PAUSE, 0.25 * 2 ** min(failures + refusals, 10))
            await asyncio.sleep(wait + random.uniform(0, longest))

    def _request(self, params: Mapping[str, Any], seed: int | None) -> tuple[str, dict[str, Any]]:
        settings = self._policy.settings
        own: dict[str, Any] = {**settings.extra_body, "model": self._policy.model}
        if seed is not None:
            own["seed"] = seed
        try:
            if settings.api == "responses":
                return "/responses", {**to_responses(params), **own}
            body = {**to_chat(params, self._style, with_ids=settings.token_bridge == "prefix"), **own}
        except Inexpressible as error:
            raise RequestFailed("inexpressible", f"responses_create_params.{error}") from error
        except (TypeError, KeyError, AttributeError) as error:
            raise _malformed(params, error) from error
        if settings.token_ids and "return_token_ids" not in self._policy.dropped:
            body |= {"return_token_ids": True, "logprobs": True, "top_logprobs": body.get("top_logprobs", 0)}
        return "/chat/completions", body

    def _refusal(self, status: int, data: bytes, body: Mapping[str, Any]) -> Overflow | None:
        """What a reply other than 200 says that a retry would not change; None if one might. Raises as `respond`."""
        message, code = told(data)
        if found := overflow(status, message, code):
            self._answered = True
            return found
        if status in (401, 403):
            raise _denied(self._endpoint, status, data)
        if code == "insufficient_quota":
            raise ExternalError(
                f"{self._endpoint.url}: {message}", "what was finished is on the disk: run again when there is quota"
            )
        if status == 404:
            raise UsageError(
                f"{self._endpoint.url}: {message}", "check --model-url and --model, and that the server has this API (--api)"
            )
        if status in (400, 405, 413, 415, 422):
            unknown = [key for key in ("seed", "return_token_ids") if key in body and key in message]
            if not unknown or status != 400:
                raise RequestFailed("bad_request", f"HTTP {status}: {message}", status)
            self._policy.dropped.update(unknown)
        return None

    def _count(self, turn: Turn) -> Turn:
        self._answered = True
        self._policy.thinks_by_field |= turn.reasoning_by_field
        if turn.end is not None:
            self._policy.bridge.ends.add(turn.end)
        usage = turn.usage or {}
        self._policy.counts.input_tokens += usage.get("input_tokens") or 0
        self._policy.counts.output_tokens += usage.get("output_tokens") or 0
        return turn


class _Tokens(msgspec.Struct):
    """The reply of /tokenize."""

    value: list[int] = msgspec.field(name="tokens")


class _Text(msgspec.Struct):
    """The reply of /detokenize."""

    value: str = msgspec.field(name="prompt")


_RENDERED = ("tools", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "add_special_tokens")
"""What, beside the messages, decides how a conversation is rendered."""
_CHAT_ONLY = frozenset(
    {
        "messages", "tools", "tool_choice", "parallel_tool_calls", "chat_template", "chat_template_kwargs", "reasoning_effort", "verbosity",
        "top_logprobs", "max_completion_tokens", "add_generation_prompt", "continue_final_message", "store", "mm_processor_kwargs",
        "service_tier", "prompt_cache_key", "safety_identifier", "add_special_tokens", "include_reasoning", "documents",
    }
)  # fmt: skip


def _prefix_ignored(body: Mapping[str, Any], prompt: list[int] | None) -> Unbridgeable | None:
    """That a server did not keep to the ids which it was asked to begin with: others do not know the key, and say nothing."""
    prefix = body.get("required_prefix_token_ids")
    if prefix is None or (prompt is not None and prompt[: len(prefix)] == prefix):
        return None
    return Unbridgeable("prefix_ignored", "the server does not keep to required_prefix_token_ids")


def _malformed(params: Mapping[str, Any], error: Exception) -> Exception:
    """What is wrong with a request on which the translation failed; the error itself where nothing is."""
    from gymdata.validation.judge import is_error
    from gymdata.validation.rules.schema import check as check_row

    wrong = [finding for finding in check_row({"responses_create_params": dict(params)})[0] if is_error(finding)]
    return RequestFailed("inexpressible", f"{wrong[0].path[2:]}: {wrong[0].message}") if wrong else error


def _denied(endpoint: Endpoint, status: int, data: bytes) -> UsageError:
    return UsageError(
        f"{endpoint.url} refuses us (HTTP {status}): {told(data)[0]}",
        "put a valid key into the environment variable that --api-key-env names",
    )


def connections() -> int:
    """How many connections this process may have, once it has asked for all that it may; some files are for other uses."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if allowed == resource.RLIM_INFINITY else max(1, allowed - 256)
