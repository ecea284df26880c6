"""Numbers in arguments: one that makes no sense is told before anything begins."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def whole(least: int) -> Callable[[str], int]:
    """A type for argparse: a whole number from `least` on."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return number

    return read


def number(least: float = 0.0, *, above: bool = False) -> Callable[[str], float]:
    """A type for argparse: a finite number from `least` on, or `above` it."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least or (above and value == least):
            bound = "" if least == -math.inf else f" above {least:g}" if above else f" from {least:g} on"
            raise argparse.ArgumentTypeError(f"{text!r} is no number{bound}")
        return value

    return read
