"""The client of NeMo Gym's servers: agents that make whole rollouts, resources servers that have the tools and the rewards.

What is sent twice is the same rollout, by its indices and its Idempotency-Key; what a server may already have done is not sent twice.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import aiohttp
import msgspec
import yaml

from gymdata.errors import ExternalError, UsageError
from gymdata.rollouts.endpoints import Endpoint, Endpoints
from gymdata.rollouts.plan import Who
from gymdata.rollouts.policy import REFUSALS, Counts, Settings
from gymdata.rollouts.replies import retry_after, told
from gymdata.verifiers import Verdict

Role = Literal["agent", "resources"]
URL = re.compile(r"https?://\S+")
_OWN = frozenset({"seed_session", "close_session", "verify", "aggregate_metrics"})
"""Routes of a resources server that are no tools: a model that calls them would begin or end its own session."""
_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses of a server that has not done what it was asked for."""


@dataclass(frozen=True)
class Remote:
    """Servers of NeMo Gym that make rollouts (agents) or score those of our model (resources): given, or found by asking a head server.

    With `seeds` each rollout's seed is put into its request as NeMo Gym has it, which its vLLM models alone understand.
    """

    role: Role
    urls: tuple[str, ...] = ()
    head: str | None = None
    seeds: bool = False


class GymFailed(Exception):
    """A rollout to which one of Gym's servers did not bring a reward; the class is Gym's name for it where it has one."""

    def __init__(self, failure: str, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.failure, self.kind, self.message, self.status = failure, kind, message, status


class Gym:
    """`async with Gym(remote, who, settings) as gym`, for the rows of `who`.

    Entering finds the servers. Raises UsageError where the head server knows none for a row, ExternalError if nothing answers.
    """

    def __init__(self, remote: Remote, who: Iterable[Who], settings: Settings) -> None:
        self.remote, self.counts = remote, Counts()
        self._settings, self._who = settings, tuple(who)
        self._pools: dict[tuple[str, ...], Endpoints] = {}
        self._urls: dict[Who, tuple[str, ...]] = {}

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            headers={"Content-Type": "application/json"},
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=self._settings.timeout),
            cookie_jar=aiohttp.DummyCookieJar(),  # each rollout has its own
        )
        try:
            config = await self._ask_head(self.remote.head) if self.remote.head else {}
            for who in self._who:
                self._urls[who] = urls_of(who, self.remote, config)
            for url in dict.fromkeys(url for urls in self._urls.values() for url in urls):
                await self._meet(url)
            for urls in self._urls.values():
                for one in [urls] if self.remote.role == "agent" else [(url,) for url in urls]:
                    self._pool(one)
        except BaseException:
            await self._http.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        for pool in self._pools.values():
            await pool.close()
        await self._http.close()

    @property
    def servers(self) -> list[Endpoint]:
        """All of them."""
        return [endpoint for pool in self._pools.values() for endpoint in pool.all]

    def manifest(self) -> dict[str, Any]:
        """What a run's rollouts come from; not where it stands, which may change."""
        return {"nemo_gym": self.remote.role, "seeds": self.remote.seeds}

    async def begin(self, who: Who, wish: int = 0) -> Agent:
        """Room for one rollout at an agent of `who`; waits for it."""
        pool = self._pool(self._urls[who])
        return Agent(self, pool, await pool.acquire(wish))

    async def seed(self, who: Who, row: Mapping[str, Any], wish: int = 0) -> Session:
        """A session of a row at a resources server, the only one for it: state stays where it is. Raises GymFailed."""
        urls = self._urls[who]
        pool = self._pool((urls[wish % len(urls)],))
        session = Session(self, pool, pool.all[0], row)
        await session.seed()
        return session

    def _pool(self, urls: tuple[str, ...]) -> Endpoints:
        if urls not in self._pools:
            settings = self._settings
            self._pools[urls] = Endpoints(urls, self._http, most=settings.most, fixed=settings.fixed, patience=settings.patience)
        return self._pools[urls]

    async def _ask_head(self, url: str) -> dict[str, Any]:
        text = await self._get(f"{url.rstrip('/')}/global_config_dict_yaml")
        try:
            config = yaml.safe_load(msgspec.json.decode(text, type=str))
        except (msgspec.MsgspecError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(
                f"{url} is no head server of NeMo Gym: {error}", "--head-url is its address, such as http://127.0.0.1:11000"
            ) from error
        return config if isinstance(config, dict) else {}

    async def _meet(self, url: str) -> None:
        """Wait until something answers there, whatever it says."""
        await self._get(f"{url.rstrip('/')}/health")

    async def _get(self, url: str) -> bytes:
        """What is there, whatever its status. Raises UsageError if that is no address, ExternalError if nothing answers in time."""
        deadline = time.monotonic() + self._settings.wait
        while True:
            limit = aiohttp.ClientTimeout(total=min(10.0, max(1.0, deadline - time.monotonic())))
            try:
                async with self._http.get(url, timeout=limit) as reply:
                    return await reply.read()
            except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
                raise UsageError(f"{url!r} is not the address of a server", "such as http://127.0.0.1:11000") from None
            except (aiohttp.ClientError, TimeoutError) as error:
                trouble = str(error) or type(error).__name__
            if time.monotonic() + 0.5 > deadline:
                hint = "start NeMo Gym's servers, or check the address; --wait SECONDS gives them longer"
                raise ExternalError(f"{url}: {trouble}", hint)
            await asyncio.sleep(0.5)


class _Place:
    """One rollout's requests to one server, with its cookies."""

    def __init__(self, gym: Gym, pool: Endpoints, endpoint: Endpoint) -> None:
        self._gym, self._pool, self._endpoint = gym, pool, endpoint
        self._cookies: dict[str, str] = {}
        self._answered = False

    async def _send(
        self, path: str, body: bytes, *, again: bool = True, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body of the reply, after as many tries as it takes; without `again` only if nothing was done yet.

        Raises GymFailed where there is no reply, ExternalError if no server answers for too long.
        """
        settings, counts = self._gym._settings, self._gym.counts
        failures = refusals = 0
        while True:
            self._endpoint = await self._pool.move(self._endpoint)
            wait, counts.requests = 0.0, counts.requests + 1
            try:
                url = self._endpoint.root + path
                async with self._gym._http.post(url, data=body, headers=headers, cookies=self._cookies) as reply:
                    data = await reply.read()
                    self._cookies |= {name: morsel.value for name, morsel in reply.cookies.items()}
                    if reply.status not in _AGAIN:
                        self._answered = True
                        self._pool.succeeded(self._endpoint)
                        return reply.status, data
                    failure = GymFailed("agent_request_failed", f"http_{reply.status}", told(data)[0], reply.status)
                    wait = retry_after(reply.headers)
                    if reply.status in (429, 503):
                        refusals += 1
                        self._pool.refused(self._endpoint)
                    else:
                        failures += 1
                        self._pool.failed(self._endpoint)
                        if not again:
                            raise failure
            except aiohttp.ClientConnectorError as error:
                self._pool.failed(self._endpoint, gone=True)
                failure = GymFailed("agent_request_failed", "connection", str(error))
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                failures += 1
                self._pool.failed(self._endpoint)
                kind = "timeout" if isinstance(error, TimeoutError) else "connection"
                failure = GymFailed("agent_request_failed", kind, str(error) or type(error).__name__)
                if not again:
                    raise failure from error
            if failures >= settings.attempts or refusals >= REFUSALS:
                raise failure
            counts.retries += 1
            await asyncio.sleep(wait + random.uniform(0, min(30.0, 0.25 * 2 ** min(failures + refusals, 10))))


class Agent(_Place):
    """Room at an agent for one rollout."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._pool.release(self._endpoint, well=self._answered)

    async def run(self, row: Mapping[str, Any], key: str) -> dict[str, Any]:
        """What /run replies to a row: it with `response` and a finite `reward`. `key` is the rollout's own, in every run. Raises GymFailed."""
        status, data = await self._send("/run", msgspec.json.encode(row), headers={"Idempotency-Key": key})
        if status == 404:
            raise UsageError(
                f"{self._endpoint.root}/run: {told(data)[0]}", "--agent-url is the address of an agent or environment server"
            )
        if status != 200:
            raise GymFailed("agent_run_error", f"http_{status}", told(data)[0], status)
        reply = _scored(data, "agent_run_error")
        usage = reply["response"].get("usage")
        if isinstance(usage, dict) and isinstance(sampled := usage.get("output_tokens"), int):
            self._gym.counts.output_tokens += sampled
        return reply


class Session(_Place):
    """A rollout's session at a resources server."""

    def __init__(self, gym: Gym, pool: Endpoints, endpoint: Endpoint, row: Mapping[str, Any]) -> None:
        super().__init__(gym, pool, endpoint)
        self._row = row

    async def seed(self) -> None:
        """Begin it. Raises GymFailed."""
        status, data = await self._send("/seed_session", msgspec.json.encode(self._row))
        if status == 404:
            raise UsageError(
                f"{self._endpoint.root}/seed_session: {told(data)[0]}", "--resources-url is the address of a resources server"
            )
        if status != 200:
            raise GymFailed("session_failed", f"http_{status}", told(data)[0], status)

    async def call(self, name: str, arguments: str) -> str:
        """What a tool says, errors of the server included: they are the model's to read. Raises GymFailed without a reply."""
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            return json.dumps({"error": f"the arguments are not JSON: {error}"})
        if not re.fullmatch(r"[\w.-]+", name) or name in _OWN:
            return json.dumps({"error": f"there is no tool {name!r}"})
        _, data = await self._send(f"/{name}", msgspec.json.encode(given), again=False)
        return data.decode("utf-8", "replace")

    async def verify(self, response: Mapping[str, Any]) -> Verdict:
        """The server's reward, and what it adds to the row. Raises GymFailed."""
        status, data = await self._send("/verify", msgspec.json.encode({**self._row, "response": response}))
        if status != 200:
            raise GymFailed("verifier_failed", f"http_{status}", told(data)[0], status)
        reply = _scored(data, "verifier_failed")
        return Verdict(float(reply["reward"]), added(reply, self._row))


def added(reply: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """What a reply says beyond the row that was sent, its response and reward."""
    own = {"response", "reward", "responses_create_params"}
    return {key: value for key, value in reply.items() if key not in own and (key not in row or row[key] != value)}


def urls_of(who: Who, remote: Remote, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Where the rows of `who` go: to the URL that they name as their agent, to those given, or to what the head server says.

    Gym's collector speaks to the environment server in front of an agent, as is done here; to the agent itself if there is none.
    Raises UsageError.
    """
    name = who[0] or who[1]
    if name is not None and URL.fullmatch(name) and remote.role == "agent":
        return (name,)
    if remote.urls:
        return remote.urls
    servers = {key: found for key, entry in config.items() if (found := _server(entry))}
    agents = [key for key, (kind, _) in servers.items() if kind == "responses_api_agents"]
    if name is None and len(agents) == 1:
        name = agents[0]
    if name not in servers:
        said = "the rows name no agent" if name is None else f"the head server knows no {name!r}"
        raise UsageError(
            f"{said}; it has {', '.join(sorted(servers)) or 'no servers'}", "see `agent_ref` of the rows, and --head-url"
        )
    kind, body = servers[name]
    if remote.role == "resources" and kind != "resources_servers":
        name = _named(body, "resources_server")
    elif remote.role == "agent":
        if kind == "resources_servers":
            bound = [agent for agent in agents if _named(servers[agent][1], "resources_server") == name]
            name = bound[0] if len(bound) == 1 else None
        fronts = [
            key for key, (kind, body) in servers.items() if kind == "environment_servers" and _named(body, "agent_server") == name
        ]
        name = fronts[0] if len(fronts) == 1 else name
    body = servers.get(name or "", ("", {}))[1]
    if not body.get("host") or not body.get("port"):
        raise UsageError(
            f"the head server does not say where the {remote.role} server of {who[0] or who[1]!r} is",
            "give its address: --agent-url, --resources-url",
        )
    return (f"http://{body['host']}:{body['port']}",)


def with_seed(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """A request with its seed where NeMo Gym's vLLM models look for it: in `metadata.extra_body`, a JSON text."""
    metadata = params.get("metadata") or {}
    extra = {**json.loads(metadata.get("extra_body") or "{}"), "seed": seed}
    return {**params, "metadata": {**metadata, "extra_body": json.dumps(extra)}}


def _scored(data: bytes, failure: str) -> dict[str, Any]:
    """A reply that has a reward. Raises GymFailed of any other, also of one that says itself that it failed."""
    try:
        reply = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GymFailed(failure, "malformed_reply", f"not a JSON object: {error}") from error
    if said := reply.get("_ng_failure_class"):
        why = (
            reply.get("_ng_failure_message")
            or reply.get("failure_reason")
            or reply.get("_ng_failure_judge_error")
            or "no message"
        )
        kind = reply.get("_ng_failure_type") or reply.get("failure_kind") or said
        raise GymFailed(str(said), str(kind), str(why))
    reward, response = reply.get("reward"), reply.get("response")
    if not isinstance(reward, int | float) or not abs(reward) <= sys.float_info.max:
        raise GymFailed(failure, "no_reward", f"the reply's reward is {repr(reward)[:100]}")
    output = response.get("output") if isinstance(response, dict) else None
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise GymFailed(failure, "no_response", "the reply has no response with an `output` of items")
    return reply


def _server(entry: Any) -> tuple[str, dict[str, Any]] | None:
    """The type and the body of one server of Gym's configuration; None for any other entry."""
    for kind in ("responses_api_agents", "resources_servers", "environment_servers"):
        if isinstance(entry, dict) and isinstance(bodies := entry.get(kind), dict):
            for body in bodies.values():
                return kind, body if isinstance(body, dict) else {}
    return None


def _named(body: Mapping[str, Any], field: str) -> str | None:
    """The server that a body refers to."""
    reference = body.get(field)
    return reference.get("name") if isinstance(reference, dict) else None
