"""A time limit on what a verifier does with a response, short of killing the worker that does it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class LimitError(BaseException):
    """The response costs more than it may. Not an Exception: libraries swallow those where they try one way after the other."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise LimitError after so many seconds of computing, in the main thread; elsewhere, and inside one operation in C, a worker's
    limit must do. Waiting does not count: a verdict must not depend on what else the machine does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, where: object) -> None:
        raise LimitError(f"reading and comparing the answer took longer than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    # Again and again: what is raised in a finaliser, or while collecting garbage, is swallowed.
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.1)
    try:
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_PROF, 0)
        finally:  # the next signal may come before the line above is run
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
