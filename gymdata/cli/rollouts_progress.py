"""The line that shows how a run of rollouts fares: once a second on a terminal, once a minute in a log."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymdata.rollouts.run import Progress


class Line:
    """Shows progress on standard error from `start` to `stop`, from a thread of its own."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._terminal = sys.stderr.isatty()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, progress: Progress) -> None:
        before = f", {progress.before:,} of them there," if progress.before else ""
        _say(f"{progress.total:,} rollouts{before} from {progress.model} to {self._output}\n")
        self._thread = threading.Thread(target=self._show, args=(progress,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def _show(self, progress: Progress) -> None:
        while not self._over.wait(1 if self._terminal else 60):
            text = line(progress, time.monotonic())
            _say("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1] if self._terminal else text + "\n")
        if self._terminal:
            _say("\r\x1b[2K")


def line(progress: Progress, now: float) -> str:
    """The progress at the time `now` of time.monotonic()."""
    seconds = max(1e-9, now - progress.started)
    rate = progress.done / seconds
    parts = [f"{progress.before + progress.done:,}/{progress.total:,}"]
    # What the user is to do or to know at once, before what a narrow terminal may cut off.
    if progress.interrupted:
        parts.append(f"finishing {progress.in_flight:,} in flight; Ctrl-C again gives them up")
    if ill := sum(not server.healthy for server in progress.servers):
        parts.append(f"{ill} of {len(progress.servers)} servers not answering")
    parts += [f"{rate:,.1f}/s", f"{progress.output_tokens / seconds:,.0f} tok/s"]
    if not progress.interrupted:
        parts.append(f"in flight {progress.in_flight:,}")
    if progress.retries:
        parts.append(f"retries {progress.retries:,}")
    if failed := sum(progress.failed.values()):
        parts.append(f"failed {failed:,}")
    if progress.rewards.mean is not None:
        parts.append(f"mean reward {progress.rewards.mean:.3f}")
    if rate and progress.owed and not progress.interrupted:
        left = int(progress.owed / rate)
        parts.append(f"left {left // 3600}:{left // 60 % 60:02}:{left % 60:02}")
    return "  ".join(parts)


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
