"""Things kept under a name for a while: so many at most, each until nobody has asked for it for so long."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class Full(Exception):
    """There are as many as may be, none of them old enough to go."""


@dataclass
class _Entry(Generic[T]):
    value: T
    touched: float
    users: int = 0


class Kept(Generic[T]):
    """At most `most` values; one that is not in use goes `seconds` after its last use."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()  # the longest unused first

    def __len__(self) -> int:
        self._expire()
        return len(self._entries)

    def get(self, name: str) -> T | None:
        """The value of that name, used now; None if there is none, or none any more."""
        self._expire()
        entry = self._entries.get(name)
        return None if entry is None else self._touch(name, entry)

    def add(self, name: str, value: T) -> T:
        """Keep a value, in place of an earlier one of that name. Raises Full."""
        self._expire()
        if name not in self._entries and len(self._entries) >= self._most:
            raise Full
        entry = self._entries[name] = _Entry(value, 0.0)
        return self._touch(name, entry)

    def pop(self, name: str) -> T | None:
        """Keep it no longer."""
        self._expire()
        entry = self._entries.pop(name, None)
        return None if entry is None else entry.value

    @contextmanager
    def using(self, name: str, make: Callable[[], T]) -> Iterator[T]:
        """The value of that name, made if there is none; it stays while it is used. Raises Full."""
        value = self.get(name)
        if value is None:
            value = self.add(name, make())
        entry = self._entries[name]
        entry.users += 1
        try:
            yield value
        finally:
            entry.users -= 1
            if self._entries.get(name) is entry:
                self._touch(name, entry)

    def _touch(self, name: str, entry: _Entry[T]) -> T:
        entry.touched = self._clock()
        self._entries.move_to_end(name)
        return entry.value

    def _expire(self) -> None:
        before = self._clock() - self._seconds
        while self._entries:
            name, entry = next(iter(self._entries.items()))
            if entry.touched > before:
                return
            if entry.users:
                self._touch(name, entry)
            else:
                del self._entries[name]
