"""An ordered map over this process or a pool of local processes.

Threads would not help: no JSON parser releases the interpreter lock.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, forkserver, resource_tracker
from typing import TypeVar

from gymdata.errors import ExternalError

SMALL_BYTES = 8 * 1024 * 1024
"""Below this size the start of worker processes costs more than they save."""

LARGE_BYTES = 500 * 1024 * 1024
"""From this size on it is not worth the memory to start them sooner."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_jobs() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_imports(*modules: str, now: bool) -> None:
    """Let the server that workers are forked from, where there is one, import modules: once for all of them.

    `now` starts it while the caller goes on; else the first worker does.
    """
    if sys.platform == "linux":
        multiprocessing.set_forkserver_preload(list(modules))
        _shared.extend(modules)
        if now:
            _start_server()


def _start_server() -> None:
    """Start the server that workers are forked from, deaf to Ctrl-C: while it imports it would print a traceback."""
    resource_tracker.ensure_running()  # which the server would start, and which lets all signals through afterwards
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_sharing() -> None:
    """Let go of what `share_imports` had imported, with the memory it takes; the next worker imports for itself."""
    if _shared:
        _shared.clear()
        multiprocessing.set_forkserver_preload([])
        forkserver._forkserver._stop()  # pyright: ignore (there is no public way; CPython's own tests end it so)


_shared: list[str] = []


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> Iterator[Result]:
    """Yield `function(item)` for each item in order; with `jobs` > 1 in processes, at most 2 x `jobs` items ahead.

    `function`, items and results must be picklable. Raises what `function` raises, and ExternalError if a process died.
    """
    queue = iter(items)
    first = next(queue, None)
    if first is None:
        return
    second = next(queue, None) if jobs > 1 else None
    if second is None:
        yield function(first)
        yield from map(function, queue)
        return
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    if sys.platform == "linux":
        _start_server()
    pool = ProcessPoolExecutor(jobs, context, initializer=_start_worker)
    try:
        pending: deque[Future[Result]] = deque(pool.submit(function, item) for item in (first, second))
        while pending:
            while len(pending) < 2 * jobs and (item := next(queue, None)) is not None:
                pending.append(pool.submit(function, item))
            yield pending.popleft().result()
    except KeyboardInterrupt:
        # A worker that the server has yet to fork would find nothing left of what it was given.
        if server := getattr(forkserver._forkserver, "_forkserver_pid", None):  # pyright: ignore[reportAttributeAccessIssue]
            os.kill(server, signal.SIGKILL)
        raise
    except BrokenProcessPool as error:
        raise ExternalError(
            "a worker process died, most likely because the machine ran out of memory",
            "run again with fewer --jobs; nothing was written",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """Ctrl-C is the parent's to handle; and a worker must not outlive a parent that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
