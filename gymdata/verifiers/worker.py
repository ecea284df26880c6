"""The process that `gymdata.verifiers.isolation` starts: one verification after the other, until its standard input ends."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import resource
import signal
import sys
from typing import Any, BinaryIO

import msgspec

from gymdata.verifiers import Undecided, Verdict, VerifierFailure
from gymdata.verifiers.isolation import frame

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Read tasks from standard input and write verdicts to what was standard output; whatever prints goes nowhere."""
    tasks, verdicts = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    settings = msgspec.json.decode(_read(tasks) or b"{}")
    _confine(settings["memory"], settings["parent"])
    while task := _read(tasks):
        verdicts.write(frame(_reply(task)))
        verdicts.flush()


def _confine(memory: int, parent: int) -> None:
    """Limit the memory, and die with the parent even in the middle of a long computation."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _reply(task: bytes) -> bytes:
    try:
        verifier, row, response = pickle.loads(task)  # noqa: S301 - from the parent, which made it
        outcome: Verdict | Undecided = verifier.verify(row, response)
        told = {"ask": outcome.ask} if isinstance(outcome, Undecided) else {"reward": outcome.reward}
        return _encoded({**told, "extras": outcome.extras})
    except VerifierFailure as failure:
        return _error(str(failure))
    except MemoryError:
        return _error("the verifier ran out of memory", leaving=True)
    except BaseException as error:  # math-verify's own time limit is not an Exception
        return _error(f"{type(error).__name__}: {_text(error)}")


def _encoded(reply: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(reply, enc_hook=str)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON from a model may hold and UTF-8 may not
        text = json.dumps(reply, ensure_ascii=False, default=str)
        return text.encode(errors="replace")


def _error(message: str, **more: Any) -> bytes:
    return msgspec.json.encode({"error": message[:2_000], **more})


def _text(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return str(error)[:1_000].encode(errors="replace").decode()
    return ""


def _read(stream: BinaryIO) -> bytes:
    size = stream.read(8)
    return stream.read(int.from_bytes(size, "big")) if len(size) == 8 else b""


if __name__ == "__main__":
    main()
