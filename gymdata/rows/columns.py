"""What is kept of the accepted rows of a file or a part of it: compact columns, from which every statistic is made.

Parts merge by concatenation in file order, so nothing made from columns can depend on how a file was split.
"""

from __future__ import annotations

import functools
import json
import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from gymdata.rows.facts import Facts, describe
from gymdata.rows.fields import Digests, Field, Tally, is_observable

_MAX_VALUE = 80
"""Characters; a longer value of a sampling parameter is tallied as `LONG_VALUE`."""
LONG_VALUE = "(long)"

_NO_FIELDS = ("responses_create_params", "response")
_NAN = math.nan
_decode = msgspec.json.decode
_encode = msgspec.json.encode

CountTokens = Callable[[Sequence[Facts]], list[int]]


class Columns:
    """The accepted rows, in file order; `len()` is their number.

    Rows come in by `add`, which only remembers them, and are measured by `flush`, a chunk at a time: call it before the
    rows of a chunk are let go. `count_tokens` gives the tokens of some rows; without it they are not counted.
    """

    def __init__(self, count_tokens: CountTokens | None = None) -> None:
        self.count_tokens = count_tokens
        self.pending: list[tuple[int, Mapping[str, Any], Mapping[str, Any], Facts, int, int]] = []
        """Rows not measured yet: line, row, create-params, facts, words, turns."""

        # One entry per row.
        self.lines = array("I")
        self.words = array("I")
        """Words of the dumped create-params; 0 for a materialised task."""
        self.turns = array("I")
        """User messages."""
        self.tools = array("i")
        """Tools; -1 without the key."""
        self.temperatures = array("d")
        """NaN where not set."""
        self.tokens = array("i")
        """Tokens of all texts and tool definitions; -1 where not counted."""
        self.characters = array("I")
        """Characters of all texts."""
        self.keys = bytearray()
        """Content keys, 16 bytes each."""
        self.params_keys = array("Q")
        self.prompt_keys = array("Q")
        self.answer_keys = array("Q")
        """0 without an expected answer."""

        self.user_messages = Digests()
        self.item_types: Counter[str] = Counter()
        self.roles: Counter[str] = Counter()
        self.part_types: Counter[str] = Counter()
        """Types of content parts; "string" for content that is a plain string."""
        self.tool_names = Tally()
        self.parameters: dict[str, Tally] = {}
        """Create-params other than `input` and `tools`: their values as JSON text."""
        self.fields: dict[str, Field] = {}
        """Top-level keys of the row, in the order in which they were first seen."""
        self.observed: dict[str, None] = {}
        """Those of `fields` with a number or a string, in the order in which the first of these was seen."""

        # Materialised tasks (rows with `task_id` and `task_input`).
        self.task_words = array("I")
        """Words of the dumped `task_input`."""
        self.tasksets: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.lines) + len(self.pending)

    def add(self, line: int, row: Mapping[str, Any], params: Mapping[str, Any], facts: Facts, words: int, turns: int) -> None:
        """Append an accepted row. `params` are its create-params as NeMo Gym dumps them (tools and temperature are read)."""
        self.pending.append((line, row, params, facts, words, turns))

    def add_row(self, line: int, row: Mapping[str, Any], params: Mapping[str, Any] | None) -> None:
        """Append an accepted row, measuring all of it; `params` None says that it is a materialised task."""
        if params is None:
            self.add(line, row, {}, describe(row), 0, 0)
        else:
            self.add(line, row, params, describe(row), count_words(params), count_turns(params))

    def flush(self) -> None:
        """Measure the rows added since the last call, and let them go."""
        if not self.pending:
            return
        lines, rows, params, facts, words, turns = zip(*self.pending, strict=True)
        self.pending = []
        self.lines.extend(lines)
        self.words.extend(words)
        self.turns.extend(turns)
        self.tools.extend([-1 if (tools := p.get("tools")) is None else len(tools) for p in params])
        self.temperatures.extend([_NAN if (value := p.get("temperature")) is None else value for p in params])
        self.tokens.extend([-1] * len(facts) if self.count_tokens is None else self.count_tokens(facts))
        keys, params_keys, prompt_keys, user_keys, answer_keys, texts, tool_texts, layouts, sampling, _ = zip(*facts, strict=True)
        self.characters.extend([sum(map(len, row_texts)) for row_texts in texts])
        self.keys += b"".join(keys)
        self.params_keys.extend(params_keys)
        self.prompt_keys.extend(prompt_keys)
        self.answer_keys.extend([key or 0 for key in answer_keys])
        self.user_messages.add(chain.from_iterable(user_keys))
        self._add_layouts(Counter(chain.from_iterable(layouts)))
        self._add_tools(Counter(chain.from_iterable(tool_texts)))
        self._add_parameters(Counter(sampling))
        if not all(words):
            self._add_tasks([row for row, count in zip(rows, words, strict=True) if not count])
            rows = [row for row, count in zip(rows, words, strict=True) if count]
        self._add_fields(rows)

    def merge(self, other: Columns) -> None:
        """Append the rows of `other`, which come after these in the file."""
        self.flush()
        other.flush()
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if isinstance(mine, array | bytearray):
                mine.extend(theirs)
            elif isinstance(mine, Counter):
                mine.update(theirs)
        self.user_messages.merge(other.user_messages)
        self.tool_names.merge(other.tool_names)
        for name, tally in other.parameters.items():
            self.parameters.setdefault(name, Tally()).merge(tally)
        for name, field in other.fields.items():
            self.fields.setdefault(name, Field()).merge(field)
        self.observed |= other.observed

    def shift_lines(self, lines: int) -> None:
        """Add to every line number."""
        self.flush()
        if lines:
            self.lines = array("I", (line + lines for line in self.lines))

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {**vars(self), "count_tokens": None}

    def _add_layouts(self, items: Counter[tuple[str, str, tuple[str, ...]]]) -> None:
        for (item_type, role, parts), count in items.items():
            self.item_types[item_type] += count
            if role:
                self.roles[role] += count
            for part in parts:
                self.part_types[part] += count

    def _add_tools(self, tools: Counter[bytes]) -> None:
        names: Counter[str] = Counter()
        for text, count in tools.items():
            names[_tool_name(text)] += count
        self.tool_names.add(names)

    def _add_parameters(self, parameters: Counter[bytes]) -> None:
        for text, count in parameters.items():
            for name, value in _spelled_values(text):
                self.parameters.setdefault(name, Tally()).add({value: count})

    def _add_tasks(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self.task_words.append(len(json.dumps(row["task_input"]).split()))
            self.tasksets[row["task_id"]["taskset"]] += 1

    def _add_fields(self, rows: Sequence[Mapping[str, Any]]) -> None:
        by_key = _values_by_key(rows)
        for key in _NO_FIELDS:
            by_key.pop(key, None)
        new: set[str] = set()
        for key, values in by_key.items():
            field = self.fields.get(key)
            if field is None:
                field = self.fields[key] = Field()
            field.add(values)
            if field.observed and key not in self.observed:
                new.add(key)
        for row in rows if new else ():
            for key, value in row.items():
                if key in new and is_observable(value):
                    new.discard(key)
                    self.observed[key] = None
            if not new:
                break


# Rows share tools and sampling parameters: each is decoded once, not once in every chunk.
@functools.lru_cache(16_384)
def _tool_name(text: bytes) -> str:
    tool = _decode(text)
    return tool.get("name") or tool.get("type") or ""


@functools.lru_cache(1024)
def _spelled_values(parameters: bytes) -> list[tuple[str, str]]:
    spelled = [(name, _encode(value).decode()) for name, value in _decode(parameters).items()]
    return [(name, value if len(value) <= _MAX_VALUE else LONG_VALUE) for name, value in spelled]


def _values_by_key(rows: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Any]]:
    keys = list(rows[0]) if rows else []
    if all(list(row) == keys for row in rows):
        return dict(zip(keys, zip(*[row.values() for row in rows], strict=True), strict=True)) if rows else {}
    by_key: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for key, value in row.items():
            by_key[key].append(value)
    return dict(by_key)


def count_words(params: Any) -> int:
    """`len(json.dumps(params).split())` without the dump.

    The dump has white space only between the elements of containers (", ") and after keys (": "), and where strings have
    U+0020: any other white space is escaped in it.
    """
    return 1 + _gaps(params)


def count_turns(params: Mapping[str, Any]) -> int:
    """Number of user messages of create-params; a string counts as one."""
    prompt = params.get("input")
    if isinstance(prompt, str):
        return 1
    return sum(item.get("role") == "user" for item in prompt or ())


def _gaps(value: Any) -> int:
    if isinstance(value, str):
        return len(_SPACES.findall(value))
    if isinstance(value, Mapping):
        return 2 * len(value) - 1 + sum(map(_gaps, value)) + sum(map(_gaps, value.values())) if value else 0
    if isinstance(value, list | tuple):
        return len(value) - 1 + sum(map(_gaps, value)) if value else 0
    return 0


_SPACES = re.compile(" +")
