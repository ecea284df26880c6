"""Whether trajectories stay one sequence of tokens on a real vLLM, and their log probabilities right: python -m benchmarks.continuity.

Makes trajectories of calls, results of tools, answers and further questions, at a temperature at which models often spell what they
say in another way than a tokenizer would: once with prompts of token ids, once with messages rendered anew. Then the server is asked
for the log probabilities of each whole sequence, which must be those that were told while it was sampled. Starts a server in
single precision (serving/serve.py) unless --model-url names one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymdata.rollouts.chat_reply import Turn
from gymdata.rollouts.policy import Policy, Settings, TokenBridge
from gymdata.rollouts.tokens import Checked, check, check_joined, join

ROOT = Path(__file__).parents[1]
CALL = r"<tool_call>\n\{\"name\": \"look_up\", \"arguments\": \{\"what\": \"[A-Za-z ,.]{4,40}\"\}\}\n</tool_call>"
CALL_TOKENS = 96
PARAMETERS = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
TOOL = {"type": "function", "name": "look_up", "description": "Looks something up.", "parameters": PARAMETERS, "strict": False}
QUESTIONS = ("What grows in the garden?", "And what else is there?", "Is that all? Explain.", "Which of these is the best?")


@dataclass
class Found:
    """What came of the trajectories of one kind."""

    whole: int = 0
    turns: int = 0
    broken: Counter[int] = field(default_factory=Counter)
    unbridged: Counter[str] = field(default_factory=Counter)
    sampled: int = 0
    seconds: float = 0.0
    sequences: list[Checked] = field(default_factory=list)


async def trajectory(policy: Policy, number: int, turns: int, tokens: int, temperature: float, found: Found) -> None:
    items: list[dict[str, Any]] = [{"role": "user", "content": f"{QUESTIONS[number % len(QUESTIONS)]} (number {number})"}]
    async with await policy.begin() as place:
        for step in range(turns):
            params = {"input": items, "tools": [TOOL], "temperature": temperature, "max_output_tokens": tokens}
            if _forced(step):
                params["max_output_tokens"] = CALL_TOKENS
                params["metadata"] = {"extra_body": json.dumps({"structured_outputs": {"regex": CALL}})}
            said = await place.respond(params, number * turns + step)
            if not isinstance(said, Turn):
                raise SystemExit(f"the context is full: {said.message}")
            items = [*items, *said.items]
            if said.unbridged:
                found.unbridged[said.unbridged.reason] += 1
            calls = [item for item in said.items if item["type"] == "function_call"]
            for call in calls:
                result = json.dumps({"number": number, "found": f"{len(call['arguments'])} things: trees, weather, rivers"})
                items.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})
            if not calls:
                items.append({"role": "user", "content": QUESTIONS[(number + step) % len(QUESTIONS)]})
    checked = check({"response": {"output": items}})
    found.whole += not checked.faults
    found.turns += len(checked.turns)
    found.broken.update(fault.turn for fault in checked.faults)
    found.sampled += checked.sampled
    found.sequences.append(checked)


async def trajectories(url: str, bridge: TokenBridge, args: argparse.Namespace) -> Found:
    found = Found()
    started = time.monotonic()
    settings = Settings((url,), token_bridge=bridge, most=args.concurrency, fixed=True)
    async with Policy(settings) as policy:
        for first in range(0, args.trajectories, args.concurrency):
            numbers = range(first, min(first + args.concurrency, args.trajectories))
            await asyncio.gather(
                *(trajectory(policy, number, args.turns, args.tokens, args.temperature, found) for number in numbers)
            )
    found.seconds = time.monotonic() - started
    return found


async def rescored(url: str, sequences: list[Checked]) -> list[tuple[int, float, float]]:
    """How far the log probabilities told while sampling are from those of the whole sequence: of replies that were free, and of those
    that were forced to be calls, the number of tokens, the largest and the mean difference.
    """
    differences: tuple[list[float], list[float]] = ([], [])
    async with Policy(Settings((url,))) as policy:
        for checked in sequences:
            joined = join(checked)
            assert check_joined(checked, joined) == ""
            body = {"model": policy.model, "prompt": joined.ids, "max_tokens": 1, "prompt_logprobs": 0}
            status, _, data = await policy.post(policy.endpoints.all[0], "/completions", json.dumps(body).encode())
            assert status == 200, data
            scores = json.loads(data)["choices"][0]["prompt_logprobs"]
            for number, turn in enumerate(checked.turns):
                for place, (token, logprob) in enumerate(zip(turn.sampled, turn.logprobs, strict=True), len(turn.prompt)):
                    differences[_forced(number)].append(abs(scores[place][str(token)]["logprob"] - logprob))
    return [(len(found), max(found, default=0.0), sum(found) / max(1, len(found))) for found in differences]


def _forced(step: int) -> bool:
    return step % 2 == 0


@contextlib.contextmanager
def server(model: str) -> Iterator[str]:
    """A vLLM of our own in single precision; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        command = [sys.executable, str(ROOT / "serving" / "serve.py"), model, "--port", str(port), "--dtype", "float32"]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            while not _healthy(port):
                if process.poll() is not None:
                    raise SystemExit(f"vLLM did not start:\n{Path(log.name).read_text()[-3000:]}")
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the engine, too
            process.wait()


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def main() -> int:
    """Print what was found; 1 unless every trajectory with the bridge is whole and its log probabilities are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="tiny, smollm2, or the folder of a model (default: tiny)")
    parser.add_argument("--model-url", metavar="URL", help="a vLLM that runs, in place of one of our own")
    parser.add_argument("--trajectories", type=int, default=200)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64, help="at most so many in an answer")
    parser.add_argument("--temperature", type=float, default=1.5)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="of log probabilities (default: 0.001)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server goes, too
    with contextlib.nullcontext(args.model_url) if args.model_url else server(args.model) as url:
        bridged = asyncio.run(trajectories(url, "auto", args))
        _show("token ids", bridged, args)
        scores = asyncio.run(rescored(url, [checked for checked in bridged.sequences if not checked.faults]))
        for name, (count, largest, mean) in zip(("free", "forced by a grammar"), scores, strict=True):
            text = f"log probabilities of {count:,} tokens, {name}, against the whole sequence"
            print(f"{text}: at most {largest:.1e} apart, {mean:.1e} on average", flush=True)
        _show("messages", asyncio.run(trajectories(url, "off", args)), args)
    # Under a grammar vLLM tells the log probabilities among the tokens that it allows.
    return 0 if bridged.whole == args.trajectories and scores[0][1] <= args.tolerance else 1


def _show(name: str, found: Found, args: argparse.Namespace) -> None:
    print(
        f"prompts of {name}: {found.whole} of {args.trajectories} trajectories of {args.turns} turns whole "
        f"({found.whole / args.trajectories:.1%}), {sum(found.broken.values())} of {found.turns} turns broken, "
        f"{found.sampled:,} tokens in {found.seconds:.1f} s",
        flush=True,
    )
    for reason, times in found.unbridged.items():
        print(f"  {times} turns not bridged: {reason}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
