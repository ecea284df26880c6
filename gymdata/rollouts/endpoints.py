"""The model servers of a run: which is well, which has room, and how many rollouts each may have at a time.

A trajectory stays with its server, whose prefix cache knows it. How much a server takes is learnt from it: vLLM's `/metrics` where
there are any, else from what it refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp

from gymdata.errors import ExternalError, UsageError

FIRST = 32
"""Rollouts that an unknown server is given to begin with."""
_NO_ROUTE = frozenset({404, 405})
_FAILURES = 3
"""Failures one after the other by which a server is taken to be ill."""
_METRIC = re.compile(rb"^(vllm:[a-z_]+)(?:\{[^}]*\})? ([0-9.eE+-]+|NaN)$", re.MULTILINE)


@dataclass
class Endpoint:
    """One server: its base URL (ending in /v1), and how it fares."""

    url: str
    most: int
    limit: float = 0
    in_flight: int = 0
    healthy: bool = True
    failures: int = 0
    slowed: float = 0
    """When it last refused: one refusal is told by many replies."""
    steady: bool = False
    """Whether it has refused before: from then on the limit grows by little."""
    measured: bool = False
    """Whether its /metrics are read: then they alone move the limit up."""
    probe: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    @property
    def free(self) -> bool:
        return self.healthy and self.in_flight < int(self.limit)

    def grow(self) -> None:
        """A rollout went well: twice the limit per round at first, one more per round once it has refused."""
        if not self.measured and self.in_flight >= 0.8 * self.limit:
            self.limit = min(self.most, self.limit + (1 / max(1.0, self.limit) if self.steady else 1))

    def shrink(self) -> None:
        """It refused (429, 503): half the limit, once per second."""
        now = time.monotonic()
        if now - self.slowed >= 1:
            self.slowed, self.steady = now, True
            self.limit = max(1, self.limit / 2)

    def observe(self, running: float, waiting: float, cache: float) -> None:
        """What its metrics say: room for more while nothing waits, less when many wait or its cache is full."""
        self.measured = True
        if waiting > max(4, 0.25 * running) or cache > 0.97:
            self.limit = max(1, min(self.limit, self.in_flight) * 0.9)
        elif waiting <= max(1, 0.05 * running) and cache < 0.9 and self.in_flight >= 0.8 * int(self.limit):
            self.limit = min(self.most, max(self.limit + 8, self.limit * 1.5))


class Endpoints:
    """A pool of servers. `most` bounds what is in flight over all of them; with `fixed` it is also what they are given at once.

    Raises UsageError for what is not the address of a server.
    """

    def __init__(self, urls: Sequence[str], http: aiohttp.ClientSession, *, most: int, fixed: bool, patience: float) -> None:
        share = max(1, -(-most // len(urls)))
        first = share if fixed else min(FIRST, share)
        self.all = [Endpoint(_base(url), share, first) for url in urls]
        self._fixed, self._most, self._patience, self._http = fixed, most, patience, http
        self._freed = asyncio.Condition()
        self._watcher: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        return sum(endpoint.in_flight for endpoint in self.all)

    async def acquire(self, wish: int = 0) -> Endpoint:
        """A place at the server with the most room; of equally free ones the one that `wish` points at. Waits for room.

        Raises ExternalError when no server is well for longer than the patience of this run.
        """
        if self._watcher is None and not self._fixed:
            self._watcher = asyncio.create_task(self._watch())
        async with self._freed:
            while True:
                free = [endpoint for endpoint in self.all if endpoint.free] if self.in_flight < self._most else []
                if free:
                    count = len(self.all)
                    order = {id(one): (place - wish) % count for place, one in enumerate(self.all)}
                    best = min(free, key=lambda one: (one.in_flight / one.limit, order[id(one)]))
                    best.in_flight += 1
                    return best
                await self._wait()

    async def release(self, endpoint: Endpoint, *, well: bool = False) -> None:
        """Give a place back; `well` if the server answered."""
        endpoint.in_flight -= 1
        if well and not self._fixed:
            endpoint.grow()
        await self._wake()

    async def move(self, endpoint: Endpoint) -> Endpoint:
        """Another place for a trajectory whose server is ill; the same one if it is well again. Waits for one that is well.

        It does not wait for room: what is under way comes before what is new. Raises ExternalError as `acquire`.
        """
        async with self._freed:
            while not endpoint.healthy:
                well = [one for one in self.all if one.healthy]
                if well:
                    endpoint.in_flight -= 1
                    endpoint = min(well, key=lambda one: one.in_flight / max(1.0, one.limit))
                    endpoint.in_flight += 1
                    return endpoint
                await self._wait()
        return endpoint

    def succeeded(self, endpoint: Endpoint) -> None:
        endpoint.failures = 0

    def refused(self, endpoint: Endpoint) -> None:
        """It is well but has too much to do."""
        if not self._fixed:
            endpoint.shrink()

    def failed(self, endpoint: Endpoint, *, gone: bool = False) -> None:
        """It did not answer; after some such, or when it is `gone` (nothing listens), it gets nothing until it is well again."""
        endpoint.failures += 1
        if endpoint.healthy and (gone or endpoint.failures >= _FAILURES):
            endpoint.healthy = False
            endpoint.probe = asyncio.create_task(self._probe(endpoint))

    async def close(self) -> None:
        tasks = [task for task in [self._watcher, *(one.probe for one in self.all)] if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self) -> None:
        """Wait for a change. Raises ExternalError if all servers stay ill."""
        if any(endpoint.healthy for endpoint in self.all):
            await self._freed.wait()
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._freed.wait_for(lambda: any(endpoint.healthy for endpoint in self.all))
        except TimeoutError:
            names = ", ".join(endpoint.url for endpoint in self.all)
            raise ExternalError(
                f"no model server has answered for {self._patience:g} s: {names}",
                "what was finished is on the disk: start the server and run the same command again",
            ) from None

    async def _wake(self) -> None:
        async with self._freed:
            self._freed.notify_all()

    async def _probe(self, endpoint: Endpoint) -> None:
        """Ask an ill server how it is, ever more seldom, until it is well."""
        pause = 0.25
        while not endpoint.healthy:
            await asyncio.sleep(pause)
            pause = min(15.0, pause * 2)
            said: set[int] = set()
            for path in (f"{endpoint.root}/health", f"{endpoint.url}/models"):
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with self._http.get(path, timeout=aiohttp.ClientTimeout(total=10)) as reply:
                        said.add(reply.status)
                        if reply.status not in _NO_ROUTE:
                            break
            if said and said <= {200, *_NO_ROUTE}:  # one that has neither route has answered, at least
                endpoint.healthy, endpoint.failures = True, 0
        await self._wake()

    async def _watch(self) -> None:
        while True:
            await asyncio.gather(*(self._measure(endpoint) for endpoint in self.all if endpoint.healthy))
            await self._wake()
            await asyncio.sleep(1)

    async def _measure(self, endpoint: Endpoint) -> None:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError):
            async with self._http.get(f"{endpoint.root}/metrics", timeout=aiohttp.ClientTimeout(total=5)) as reply:
                found = _metrics(await reply.read()) if reply.status == 200 else {}
                if "vllm:num_requests_running" in found:
                    cache = found.get("vllm:kv_cache_usage_perc", 0.0)
                    endpoint.observe(found["vllm:num_requests_running"], found.get("vllm:num_requests_waiting", 0.0), cache)


def _metrics(text: bytes) -> dict[str, float]:
    """vLLM's gauges and counters, summed over its engines; of the cache the fullest."""
    found: dict[str, float] = {}
    for name, value in _METRIC.findall(text):
        key, number = name.decode(), float(value)
        found[key] = max(found.get(key, 0.0), number) if key.endswith("_perc") else found.get(key, 0.0) + number
    return found


def _base(url: str) -> str:
    try:
        address = urlsplit(url)
        usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"{url!r} is not the address of a server", "such as http://HOST:8000/v1")
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"
