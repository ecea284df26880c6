"""Numbers in JSON text, spelled so that every reader gets the same double.

`datasets` decodes JSON columns with pandas' ujson, which multiplies by inexact powers of ten: "0.6" becomes
0.6000000000000001, and four of five log probabilities are off by a bit. The same double has many spellings ("0.60"), and
almost always one that ujson reads right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

import msgspec

from gymdata.errors import DataError

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?', re.DOTALL)
_MOST_DIGITS = 19


def faithful(text: str) -> str:
    """The same JSON value in a spelling that ujson decodes exactly; `text` itself if it does already.

    Raises DataError if there is none (an integer beyond 64 bits, or a very rare double).
    """
    value = msgspec.json.decode(text)
    if _reads_as(text, value):
        return text
    respelled = _TOKEN.sub(lambda match: match[0] if match[0][0] == '"' else _respelled(match[0]), text)
    if not _reads_as(respelled, value):
        hint = "integers must fit 64 bits: write greater ones as strings"
        raise DataError("a number, or the depth of a value, is more than `datasets` can read", hint)
    return respelled


def _reads_as(text: str, value: Any) -> bool:
    try:
        return bool(_ujson()(text) == value)
    except (ValueError, OverflowError, RecursionError):
        return False


@lru_cache(maxsize=65536)
def _respelled(number: str) -> str:
    if not any(mark in number for mark in ".eE"):
        return number
    value = float(number)
    return next((one for one in (number, *_spellings(value)) if float(one) == value and _reads_as(one, value)), number)


def _spellings(value: float) -> Iterator[str]:
    """Decimal spellings of a finite double: trailing zeros, the point moved, an exponent."""
    negative, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    sign = "-" if negative else ""
    plain = "".join(map(str, digits))
    for zeros in range(12):
        number, power = plain + "0" * zeros, exponent - zeros
        if power < 0 and -power < len(number):
            yield f"{sign}{number[:power]}.{number[power:]}"
        elif len(number) <= -power < 25:
            yield f"{sign}0.{'0' * (-power - len(number))}{number}"
        if len(number) <= _MOST_DIGITS:
            yield f"{sign}{number}.0e{power}"
        for point in range(1, min(len(number), _MOST_DIGITS)):
            if len(number) - point < _MOST_DIGITS:
                yield f"{sign}{number[:point]}.{number[point:]}e{power + len(number) - point}"


@cache
def _ujson() -> Callable[[str], Any]:
    from datasets.utils.json import ujson_loads

    return ujson_loads
