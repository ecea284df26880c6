"""What is kept of many values: counts, digests, numbers; each merges by concatenation, so no split of a file shows."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import xxhash

MAX_DISTINCT = 10_000
"""Above this number of distinct values a `Tally` keeps their total only."""

KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", list: "array", dict: "object"}
"""Names of what JSON values are, as JSON Schema has them."""

_NUMERIC = frozenset({int, float, bool})
_FEW = 32_768
_h64 = xxhash.xxh3_64_intdigest


def is_observable(value: Any) -> bool:
    """Whether a field's value has a number or a string in it, at the first level of an array at most."""
    return any(map(_is_scalar, value)) if type(value) is list else _is_scalar(value)


class Tally:
    """Counts by value, all or none: `counts` is None once there are more than MAX_DISTINCT values."""

    def __init__(self) -> None:
        self.total = 0
        self.counts: Counter[str] | None = Counter()

    def add(self, counts: Mapping[str, int]) -> None:
        """Add counts by value."""
        self.total += sum(counts.values())
        if self.counts is not None:
            self.counts.update(counts)
            if len(self.counts) > MAX_DISTINCT:
                self.counts = None

    def merge(self, other: Tally) -> None:
        """Add the counts of `other`."""
        total = self.total + other.total
        if other.counts is None:
            self.counts = None
        else:
            self.add(other.counts)
        self.total = total


class Digests:
    """64-bit digests of strings: how many there were (`total`), and each at least once, first seen first (`values`).

    Repetitions are thrown out while that is cheap, that is while there are few distinct ones.
    """

    def __init__(self) -> None:
        self.total = 0
        self.values = array("Q")
        self._limit: float = 4096

    def add(self, values: Iterable[int]) -> None:
        """Append digests."""
        before = len(self.values)
        self.values.extend(values)
        self.total += len(self.values) - before
        self._compact()

    def add_strings(self, strings: Sequence[str]) -> None:
        """Append the digests of `strings`."""
        self.total += len(strings)
        # A column of few values, as most that are not unique, is hashed by value only.
        distinct = dict.fromkeys(strings) if strings and strings[0] == strings[-1] else strings
        self.values.extend([_h64(string.encode()) for string in distinct])
        self._compact()

    def merge(self, other: Digests) -> None:
        """Append the digests of `other`."""
        self.total += other.total
        self.values.extend(other.values)
        self._compact()

    def _compact(self) -> None:
        if len(self.values) > self._limit:
            self.values = array("Q", dict.fromkeys(self.values))
            self._limit = math.inf if len(self.values) > _FEW else max(4096, 2 * len(self.values))


class Field:
    """The values of one top-level key, over the rows that have it."""

    def __init__(self) -> None:
        self.present = 0
        self.kinds: Counter[str] = Counter()
        self.elements: Counter[str] = Counter()
        """Kinds of the elements of arrays."""
        self.numbers = array("d")
        """Every number in order, booleans as 0 and 1, arrays flattened by one level."""
        self.runs: array[int] | None = None
        """Numbers per row that has any; None while that is one each."""
        self.strings = Digests()
        """The strings, arrays flattened by one level."""

    @property
    def observed(self) -> bool:
        """Whether any number or string was seen."""
        return bool(self.numbers or self.strings.total)

    def add(self, values: Sequence[Any]) -> None:
        """Append the values of consecutive rows."""
        self.present += len(values)
        types = set(map(type, values))
        if len(types) == 1:
            kind = types.pop()
            if kind is not list:
                self.kinds[KINDS[kind]] += len(values)
                if kind is str:
                    self.strings.add_strings(values)
                elif kind is int or kind is float or kind is bool:
                    self.numbers.extend(values)
                    if self.runs is not None:
                        self.runs.extend([1] * len(values))
                return
        strings: list[str] = []
        for value in values:
            self.kinds[KINDS[type(value)]] += 1
            before = len(self.numbers)
            if type(value) is list:
                for element in value:
                    self.elements[KINDS[type(element)]] += 1
                    self._observe(element, strings)
            else:
                self._observe(value, strings)
            run = len(self.numbers) - before
            if run > 1 and self.runs is None:
                self.runs = array("I", [1]) * before
            if run and self.runs is not None:
                self.runs.append(run)
        self.strings.add_strings(strings)

    def _observe(self, value: Any, strings: list[str]) -> None:
        if type(value) is str:
            strings.append(value)
        elif type(value) in _NUMERIC:
            self.numbers.append(value)

    def merge(self, other: Field) -> None:
        """Append the values of `other`."""
        if self.runs is None and other.runs is not None:
            self.runs = array("I", [1]) * len(self.numbers)
        if self.runs is not None:
            self.runs.extend(array("I", [1]) * len(other.numbers) if other.runs is None else other.runs)
        self.present += other.present
        self.kinds.update(other.kinds)
        self.elements.update(other.elements)
        self.numbers.extend(other.numbers)
        self.strings.merge(other.strings)


def _is_scalar(value: Any) -> bool:
    return type(value) is str or type(value) in _NUMERIC
