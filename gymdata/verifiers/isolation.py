"""Runs verifiers in processes of their own that are killed and replaced when they take too long, too much memory, or crash.

A worker lives on from one verification to the next: starting one costs a second, mostly the imports of the verifier's library.
What a worker sends back is JSON, never a pickle, so that nothing a response does to a worker reaches this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gymdata.engine.local import default_jobs
from gymdata.verifiers import Ask, Response, Row, Undecided, Verdict, Verifier
from gymdata.verifiers.sandbox import UNSAFE_VARIABLE

STARTUP = 30.0
"""Seconds that a worker may take on top of the limit the first time that it runs a verifier: Python starts, its library is imported."""
LARGEST = 256 << 20
"""Bytes that a verdict may have."""


@dataclass(frozen=True)
class Failure:
    """No verdict: the time limit passed, the worker died, or the verifier raised. The rollout has no reward."""

    kind: Literal["timeout", "crashed", "error"]
    message: str


class Workers:
    """A pool of worker processes, used as `async with Workers() as workers: await workers.verify(…)`.

    `seconds` limits each verification, unless the verifier has a longer limit of its own (an attribute `seconds`);
    `memory` is the address space of a worker in bytes.
    """

    def __init__(self, count: int = 0, *, seconds: float = 30.0, memory: int = 4 << 30) -> None:
        self._workers = [_Worker(seconds, memory) for _ in range(count or default_jobs())]
        self._free: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()

    async def __aenter__(self) -> Workers:
        for worker in self._workers:
            self._free.put_nowait(worker)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def verify(self, verifier: Verifier, row: Row, response: Response) -> Verdict | Undecided | Failure:
        """Score one response, waiting for a free worker first. Never raises for what the verifier, row or response does."""
        worker = await self._free.get()
        try:
            return await worker.verify(verifier, row, response)
        finally:
            self._free.put_nowait(worker)


class _Worker:
    def __init__(self, seconds: float, memory: int) -> None:
        self._seconds, self._memory = seconds, memory
        self._process: asyncio.subprocess.Process | None = None
        self._imported: set[str] = set()

    async def verify(self, verifier: Verifier, row: Row, response: Response) -> Verdict | Undecided | Failure:
        task = pickle.dumps((verifier, row, response), protocol=pickle.HIGHEST_PROTOCOL)
        limit = max(self._seconds, getattr(verifier, "seconds", 0.0))
        whole = False
        try:
            allowance = 0.0 if verifier.name in self._imported else STARTUP
            process = self._process = self._process or await self._start()
            async with asyncio.timeout(limit + allowance):
                reply = await _exchange(process, task)
            whole = not reply.get("leaving")
            self._imported.add(verifier.name)
            return _outcome(verifier, reply)
        except TimeoutError:
            return Failure("timeout", f"the verifier {verifier.name!r} took longer than {limit:g} s")
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            return Failure("crashed", f"the worker of the verifier {verifier.name!r} died{await self._why(error)}")
        finally:  # also when cancelled: a worker that is still busy would answer the next question with this one's verdict
            if not whole:
                self._kill()

    async def stop(self) -> None:
        process = self._process
        self._kill()
        if process is not None:
            await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "gymdata.verifiers.worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True, env=_environment(),
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(frame(msgspec.json.encode({"memory": self._memory, "parent": os.getpid()})))
        return process

    def _kill(self) -> None:
        process, self._process = self._process, None
        self._imported.clear()
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with the programs that it may have started

    async def _why(self, error: Exception) -> str:
        process = self._process
        if process is None:
            return f": {error}"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                code = await process.wait()
                return f" of {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
        return ""


async def _exchange(process: asyncio.subprocess.Process, task: bytes) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame(task))
    await process.stdin.drain()
    size = int.from_bytes(await process.stdout.readexactly(8), "big")
    if size > LARGEST:
        raise ValueError(f"its verdict has {size:,} bytes")
    return msgspec.json.decode(await process.stdout.readexactly(size), type=dict[str, Any])


def _outcome(verifier: Verifier, reply: dict[str, Any]) -> Verdict | Undecided | Failure:
    if "ask" in reply:
        return Undecided(msgspec.convert(reply["ask"], Ask), reply["extras"])
    reward = reply.get("reward")
    if isinstance(reward, int | float) and not isinstance(reward, bool) and math.isfinite(reward):
        return Verdict(float(reward), reply["extras"])
    return Failure("error", reply.get("error") or f"the verifier {verifier.name!r} gave {reward!r}, which is no reward")


def _environment() -> dict[str, str]:
    """What a worker sees of the environment: no tokens, whatever they are called."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "NLTK_DATA", UNSAFE_VARIABLE)
        if name in os.environ
    }
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONUTF8": "1"}


def frame(payload: bytes) -> bytes:
    """A message on the pipe between this process and a worker: its length in 8 bytes, then itself."""
    return len(payload).to_bytes(8, "big") + payload
