"""Progress of long work: one line on a terminal's standard error, nothing elsewhere."""

from __future__ import annotations

import shutil
import sys
import time


class Progress:
    """Shows how far work on files has come, with its rate; call it as `on_progress(name, done, total)`."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._last = 0.0
        self._started: dict[str, float] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        started = self._started.setdefault(name, now)
        if not self._shown or (now - self._last < 0.1 and done < total):
            return
        self._last = now
        share = done / total if total else 1.0
        rate = done / (now - started) / 1e6 if now > started else 0.0
        filled = int(share * 24)
        line = f"{name}  [{'#' * filled}{'.' * (24 - filled)}] {share:4.0%}  {done / 1e6:,.0f}/{total / 1e6:,.0f} MB  {rate:,.0f} MB/s"
        sys.stderr.write("\r\x1b[2K" + line[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
