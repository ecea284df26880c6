"""How fast requests are kept in flight: gymdata's client beside a bare aiohttp loop, httpx and openai, against a stub on this machine.

The stub answers each request after a second, from a process of its own. Each client sends `--requests` of them, `--in-flight` at a time,
until all are answered or `--limit-seconds` are over.

    python benchmarks/collect.py --in-flight 16000 --requests 48000
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

DELAY = 1.0
CLIENTS = ("gymdata", "aiohttp", "httpx", "openai")
ASK = {"input": [{"role": "user", "content": "What is 2 + 3? " * 20}], "max_output_tokens": 64}
BODY = {"model": "stub", "messages": ASK["input"], "max_tokens": 64}
ANSWER = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "stub",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "The answer is \\boxed{5}. " * 8}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 64, "total_tokens": 164},
}  # fmt: skip

Send = Callable[[], Awaitable[Any]]


class Stub(asyncio.Protocol):
    """HTTP/1.1 as far as these clients need it: one request at a time on a connection."""

    reply = json.dumps(ANSWER).encode()
    models = json.dumps({"object": "list", "data": [{"id": "stub", "max_model_len": 2048}]}).encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._data, self._needed = transport, b"", 0

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        if self._data.startswith(b"GET"):
            self._data = b""
            self._send(self.models)
            return
        head = self._data[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._data) >= end + 4 + length:
            self._data = b""
            asyncio.get_running_loop().call_later(DELAY, self._send, self.reply)

    def _send(self, body: bytes) -> None:
        if not self._transport.is_closing():
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            self._transport.write(head + body)


async def stub(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port, backlog=65_535)
    async with server:
        await server.serve_forever()


async def measure(client: str, url: str, in_flight: int, requests: int, limit: float) -> dict[str, float]:
    """Requests answered within the limit, seconds to the first and the last of them, requests per second of CPU, peak memory in MB."""
    send, close = await _client(client, url, in_flight)
    left, answered, first = requests, 0, 0.0
    started, cpu = time.perf_counter(), time.process_time()

    async def worker() -> None:
        nonlocal left, answered, first
        while left:
            left -= 1
            await send()
            answered += 1
            first = first or time.perf_counter() - started

    def told() -> dict[str, float]:
        wall, used = time.perf_counter() - started, time.process_time() - cpu
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"answered": answered, "first": first, "wall": wall, "memory": memory, "per_core": answered / used}

    def over() -> None:
        print(json.dumps(told()), flush=True)
        os._exit(0)

    # From a thread: a client may be so busy that its event loop never learns how late it is.
    timer = threading.Timer(limit, over)
    timer.start()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    timer.cancel()
    found = told()
    await close()
    return found


async def _client(client: str, url: str, in_flight: int) -> tuple[Send, Callable[[], Awaitable[Any]]]:
    if client == "gymdata":
        from gymdata.rollouts.policy import Policy, Settings

        policy = await Policy(Settings((url,), most=in_flight, fixed=True, token_ids=False)).__aenter__()

        async def send() -> None:
            async with await policy.begin() as trajectory:
                await trajectory.respond(ASK, 1)

        return send, lambda: policy.__aexit__(None, None, None)
    if client == "aiohttp":
        import aiohttp

        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

        async def send() -> None:
            async with session.post(f"{url}/chat/completions", json=BODY) as reply:
                await reply.json()

        return send, session.close
    if client == "httpx":
        import httpx

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        http = httpx.AsyncClient(limits=limits, timeout=None)

        async def send() -> None:
            (await http.post(f"{url}/chat/completions", json=BODY)).json()

        return send, http.aclose
    import httpx2
    import openai  # pyright: ignore[reportMissingImports]

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    http = openai.DefaultAsyncHttpxClient(limits=limits, timeout=None)
    api = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=http, timeout=None, max_retries=0)

    async def send() -> None:
        await api.chat.completions.create(**BODY)  # pyright: ignore[reportArgumentType, reportCallIssue]

    return send, http.aclose


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-flight", type=int, default=16_000)
    parser.add_argument("--requests", type=int, default=48_000)
    parser.add_argument("--limit-seconds", type=int, default=120, help="for each client")
    parser.add_argument("--clients", nargs="+", default=CLIENTS, choices=CLIENTS)
    parser.add_argument("--stub", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    if args.stub:
        asyncio.run(stub(args.stub))
    if args.measure:
        client, url = args.measure
        print(json.dumps(asyncio.run(measure(client, url, args.in_flight, args.requests, args.limit_seconds))))
        return
    if args.in_flight + 500 > files[1]:
        sys.exit(f"{args.in_flight} connections need as many open files; this machine allows {files[1]} (ulimit -Hn)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, __file__, "--stub", str(port)])
    sizes = ["--in-flight", str(args.in_flight), "--requests", str(args.requests), "--limit-seconds", str(args.limit_seconds)]
    print(
        f"{args.requests:,} requests, {args.in_flight:,} in flight, {DELAY:g} s each; {os.cpu_count()} cores, the stub has one of them"
    )
    print(f"{'client':<10}{'answered':>9}{'first':>8}{'all':>8}{'per s':>8}{'per CPU s':>10}{'memory':>9}")
    try:
        for client in args.clients:
            if importlib.util.find_spec(client) is None:
                print(f"{client:<10}is not installed")
                continue
            command = [sys.executable, __file__, "--measure", client, f"http://127.0.0.1:{port}/v1", *sizes]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or not done.stdout:
                print(f"{client:<10}failed: {''.join(done.stderr.strip().splitlines()[-1:])[:100]}")
                continue
            told = json.loads(done.stdout)
            first = f"{told['first']:.1f} s" if told["answered"] else "none"
            rate, each = told["answered"] / told["wall"], f"{told['answered']:>9,}{first:>8}{told['wall']:>6.1f} s"
            print(f"{client:<10}{each}{rate:>8,.0f}{told['per_core']:>10,.0f}{told['memory']:>6,.0f} MB", flush=True)
    finally:
        server.kill()


if __name__ == "__main__":
    main()
