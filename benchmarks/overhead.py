"""What collecting costs beside the model: `gymdata rollouts collect` against a real vLLM that is busy, beside a bare loop.

vLLM serves the tiny model, whose replies cost next to nothing. The same requests, `--in-flight` at a time, in alternating rounds: a bare
aiohttp loop that keeps nothing, gymdata's client, the whole collector (scored, on the disk), and vLLM's own `vllm bench serve`.

    python benchmarks/overhead.py --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHON = os.environ.get("GYMDATA_VLLM_PYTHON") or str(ROOT / ".venv-vllm" / "bin" / "python")
CLIENTS = ("bare", "client", "collect", "vllm")
TOKENS = 64
IDS = {"logprobs": True, "top_logprobs": 0, "return_token_ids": True}
MORE = {"ignore_eos": True}
"""Every answer has as many tokens."""


def prompt(number: int) -> str:
    return f"Solve the following math problem. Put the final answer inside \\boxed{{}}.\n\nWhat is {number} + {number % 7}?"


async def bare(url: str, count: int, in_flight: int) -> None:
    """The least that a client can do: send, read, decode."""
    import aiohttp
    import msgspec

    body = {"model": "tiny", "max_tokens": TOKENS, **IDS, **MORE}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def send(number: int) -> None:
            asked = {**body, "messages": [{"role": "user", "content": prompt(number)}], "seed": number}
            async with session.post(f"{url}/chat/completions", json=asked) as reply:
                msgspec.json.decode(await reply.read())["choices"][0]["token_ids"]

        await all_of(send, count, in_flight)


async def client(url: str, count: int, in_flight: int) -> None:
    from gymdata.rollouts.policy import Policy, Settings

    async with Policy(Settings((url,), most=in_flight, fixed=True, extra_body=MORE)) as policy:

        async def send(number: int) -> None:
            asked = {"input": [{"role": "user", "content": prompt(number)}], "max_output_tokens": TOKENS}
            async with await policy.begin() as trajectory:
                await trajectory.respond(asked, number)

        await all_of(send, count, in_flight)


async def all_of(send: Callable[[int], Awaitable[Any]], count: int, in_flight: int) -> None:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await send(number)

    await asyncio.gather(*(worker() for _ in range(in_flight)))


def measured(name: str, url: str, count: int, in_flight: int) -> dict[str, float]:
    """Seconds, and seconds of processor time of the client, its children included."""
    if name in ("bare", "client"):
        started = time.perf_counter()
        asyncio.run({"bare": bare, "client": client}[name](url, count, in_flight))
        seconds = time.perf_counter() - started
    else:
        with tempfile.TemporaryDirectory() as folder:
            seconds = {"collect": collect, "vllm": vllm}[name](Path(folder), url, count, in_flight)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {"seconds": seconds, "cpu": sum(one.ru_utime + one.ru_stime for one in used)}


def collect(folder: Path, url: str, count: int, in_flight: int) -> float:
    rows = (
        {"responses_create_params": {"input": [{"role": "user", "content": prompt(number)}]}, "expected_answer": str(number)}
        for number in range(count)
    )
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = [sys.executable, "-m", "gymdata.cli.main", "rollouts", "collect", "rows.jsonl", "--env", "math", "--format", "json"]
    command += ["--model-url", url, "--concurrency", str(in_flight), "--max-output-tokens", str(TOKENS)]
    done = subprocess.run([*command, "--extra-body", json.dumps(MORE)], cwd=folder, capture_output=True, check=True)
    return json.loads(done.stdout)["seconds"]


def vllm(folder: Path, url: str, count: int, in_flight: int) -> float:
    """`vllm bench serve`, with prompts of random words, as many tokens; it streams its answers, as no other does here."""
    # Not by the command: of the CPU build it ends with an error, because that is installed under another name.
    script = (
        "import argparse, vllm.benchmarks.serve as s; p = argparse.ArgumentParser(); s.add_cli_args(p); s.main(p.parse_args())"
    )
    command = [PYTHON, "-c", script, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--ignore-eos"]
    command += ["--base-url", url.removesuffix("/v1"), "--model", "tiny", "--tokenizer", str(ROOT / ".models" / "tiny")]
    command += ["--dataset-name", "random", "--random-input-len", "80", "--random-output-len", str(TOKENS)]
    command += ["--num-prompts", str(count), "--max-concurrency", str(in_flight), "--disable-tqdm"]
    # With a seed and a temperature, as the others: both cost the server time.
    command += ["--temperature", "1.0", "--extra-body", json.dumps({**IDS, "seed": 1})]
    command += ["--save-result", "--result-dir", str(folder), "--result-filename", "result.json"]
    subprocess.run(command, capture_output=True, check=True)
    return json.loads((folder / "result.json").read_text())["duration"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", nargs="+", default=CLIENTS, choices=CLIENTS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measured(args.measure[0], args.measure[1], args.requests, args.in_flight)))
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, ROOT / "serving" / "serve.py", "tiny", "--port", str(port), "--disable-uvicorn-access-log"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait(server, port)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in args.clients}
        sizes = ["--requests", str(args.requests), "--in-flight", str(args.in_flight)]
        for number in range(args.rounds + 1):  # the first is not counted
            for name in args.clients if number % 2 else reversed(args.clients):
                command = [sys.executable, __file__, "--measure", name, f"http://127.0.0.1:{port}/v1", *sizes]
                told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout.splitlines()[-1])
                if number:
                    found[name].append(told)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
    print(f"{args.requests:,} requests of {TOKENS} tokens, {args.in_flight} in flight; medians of {args.rounds} rounds")
    print(f"{'client':<10}{'seconds':>9}{'per s':>8}{'beside bare':>13}{'CPU s':>8}   rounds")
    least = statistics.median(one["seconds"] for one in found[args.clients[0]])
    for name, rounds in found.items():
        seconds, cpu = (statistics.median(one[key] for one in rounds) for key in ("seconds", "cpu"))
        each = " ".join(f"{one['seconds']:.1f}" for one in rounds)
        print(f"{name:<10}{seconds:>9.2f}{args.requests / seconds:>8.0f}{seconds / least - 1:>+12.1%}{cpu:>9.1f}   {each}")


def wait(server: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(600):
        if server.poll() is not None:
            sys.exit("vLLM did not start; `make serve MODEL=tiny` shows why")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    sys.exit("vLLM did not start within five minutes")


if __name__ == "__main__":
    main()
