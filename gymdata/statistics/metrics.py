"""NeMo Gym's numbers: what its `X_metrics.json` holds, number for number.

Gym sees one row after the other, each repeated `num_repeats` times. Its own quantities are merged row by row, other columns
are observed value by value; the two formulas round differently, so both are kept, in its order of additions. Where several
datasets make a split, Gym merges its own quantities but lets the last dataset overwrite every other column; here these are
pooled. On a column with numbers and strings Gym dies; here it has the keys of both kinds of summary.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, repeat
from typing import Any

from gymdata.rows.columns import Columns
from gymdata.rows.fields import Field

EXAMPLES = "Number of examples"
TASKS = "Number of tasks"
TOOLS = "Number of tools"
WORDS = "Json-dumped number of words (proxy for token count)"
TASK_WORDS = "Json-dumped task-input words (proxy for token count)"
TURNS = "Number of turns"
TEMPERATURE = "Temperature"
TASKSETS = "Tasksets"

MAX_LABELS = 100
"""Tasksets counted by name; the occurrences of all others are summed up."""

MANY = 250_000
"""From this number of values on polars is worth its import: a set or a sorted list would take 100 bytes a value."""

LOST_KEYS = frozenset(
    "add construct copy dict from_orm json model_computed_fields model_config model_construct model_copy model_dump"
    " model_dump_for_output model_dump_json model_fields model_json_schema model_parametrized_name model_post_init model_rebuild"
    " model_validate model_validate_json model_validate_strings parse_file parse_obj parse_raw schema schema_json"
    " update_forward_refs validate".split()
)
"""Columns that Gym's metrics silently lack, because its model has attributes of that name; so do all that begin with "_"."""


class Moments:
    """Running count, mean, sum of squared deviations, minimum and maximum of a sequence."""

    def __init__(self) -> None:
        self.total = 0
        self.mean = 0.0
        self.squares = 0.0
        self.low = math.inf
        self.high = -math.inf

    def observe(self, values: Sequence[float], repeats: Iterable[float]) -> None:
        """Add values one after the other, as Gym observes other columns. `repeats` are the values with their repetitions."""
        if self._extend_range(values):
            self.total += sum(1 for _ in repeats)
            return
        total, mean, squares = self.total, self.mean, self.squares
        for value in repeats:
            total += 1
            delta = value - mean
            mean += delta / total
            squares += delta * (value - mean)
        self.total, self.mean, self.squares = total, mean, squares

    def merge_each(self, values: Sequence[float], repeats: Iterable[float]) -> None:
        """Merge every value as a sequence of its own, as Gym does with its own quantities."""
        if self._extend_range(values):
            self.total += sum(1 for _ in repeats)
            return
        mean, squares, total = self.mean, self.squares, self.total
        for total, value in zip(count(self.total + 1.0), repeats):
            delta = value - mean
            if delta:
                mean += delta * (1.0 / total)
                squares += (delta * delta) * ((total - 1.0) / total)
        self.total, self.mean, self.squares = int(total), mean, squares

    def merge(self, other: Moments) -> None:
        """Add another sequence."""
        if not other.total:
            return
        if self.total:
            total = self.total + other.total
            delta = other.mean - self.mean
            self.mean += delta * (other.total / total)
            self.squares = self.squares + other.squares + (delta * delta) * (self.total * other.total / total)
            self.total = total
        else:
            self.total, self.mean, self.squares = other.total, other.mean, other.squares
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def summary(self) -> dict[str, float | None]:
        """The five numbers as Gym writes them: rounded to two digits, to three between -1 and 1; all 0 of no values."""
        variance = self.squares / (self.total - 1) if self.total > 1 else 0.0
        return {
            "Total # non-null values": self.total,
            "Average": _round(self.mean),
            "Min": _round(self.low) if self.total else 0.0,
            "Max": _round(self.high) if self.total else 0.0,
            "Standard deviation": _round(math.sqrt(variance)) if variance >= 0 else None,
        }

    def _extend_range(self, values: Sequence[float]) -> bool:
        """Take in minimum and maximum of `values`; True if adding them would change nothing but the count."""
        if not values:
            return True
        low, high = min(values), max(values)
        self.low, self.high = min(self.low, low), max(self.high, high)
        if low == high and not self.total:
            self.mean = low + 0.0
        return low == high == self.mean


def gym_metrics(datasets: Sequence[tuple[Columns, int]]) -> dict[str, Any]:
    """The metrics of one dataset, or of the datasets of a split in order, each with its `num_repeats`."""
    examples = tasks = 0
    own = {name: Moments() for name in (TOOLS, WORDS, TASK_WORDS, TURNS, TEMPERATURE)}
    tasksets: dict[str, int] = {}
    fields: dict[str, _FieldMoments] = {}
    for columns, repeats in datasets:
        columns.flush()
        examples += len(columns) * repeats
        tasks += len(columns.task_words) * repeats
        values: dict[str, Sequence[float]] = {
            TOOLS: array("i", (value for value in columns.tools if value >= 0)),
            WORDS: _without_zeros(columns.words),
            TASK_WORDS: columns.task_words,
            TURNS: _without_zeros(columns.turns),
            TEMPERATURE: array("d", (value for value in columns.temperatures if value == value)),
        }
        for name, column in values.items():
            part = Moments()
            part.merge_each(column, _repeated(column, repeats))
            own[name].merge(part)
        for label, occurrences in columns.tasksets.items():
            tasksets[label] = tasksets.get(label, 0) + occurrences * repeats
        for key in columns.observed:
            if not key.startswith("_") and key not in LOST_KEYS:
                fields.setdefault(key, _FieldMoments()).add(columns.fields[key], repeats)
    metrics: dict[str, Any] = {EXAMPLES: examples}
    if tasks:
        metrics[TASKS] = tasks
    for name, moments in own.items():
        if tasks or name != TASK_WORDS:
            metrics[name] = moments.summary()
    if tasksets:
        metrics[TASKSETS] = _categories(tasksets)
    # As in Gym, a column named like one of its own quantities takes that one's place.
    return metrics | {key: moments.summary() for key, moments in fields.items()}


def to_json(document: dict[str, Any]) -> bytes:
    """A metrics document as Gym writes it."""
    return json.dumps(document, indent=4).encode()


def count_distinct(values: array[int]) -> int:
    """Number of distinct values."""
    if len(values) < MANY:
        return len(set(values))
    import polars

    ordered = polars.Series(values, dtype=polars.UInt64).sort()
    return 1 + int((ordered != ordered.shift()).sum())


class _FieldMoments:
    """Summary of one column over several datasets."""

    def __init__(self) -> None:
        self.numbers = Moments()
        self.strings = 0
        self.digests = array("Q")

    def add(self, field: Field, repeats: int) -> None:
        blocks = _repeated(field.numbers, repeats) if field.runs is None else _repeated_runs(field.numbers, field.runs, repeats)
        self.numbers.observe(field.numbers, blocks)
        self.strings += field.strings.total * repeats
        self.digests.extend(field.strings.values)

    def summary(self) -> dict[str, Any]:
        numbers = self.numbers.summary() if self.numbers.total else {}
        strings = {"unique_count": count_distinct(self.digests), "total_count": self.strings} if self.strings else {}
        return numbers | strings


def _without_zeros(values: array[int]) -> Sequence[int]:
    return array("I", filter(None, values)) if 0 in values else values


def _repeated(values: Sequence[float], repeats: int) -> Iterable[float]:
    if repeats == 1:
        return values
    return chain.from_iterable(repeat(value, repeats) for value in values)


def _repeated_runs(values: Sequence[float], runs: array[int], repeats: int) -> Iterator[float]:
    """The values of a row follow each other, and then once more in the row's next repetition."""
    start = 0
    for run in runs:
        for _ in range(repeats):
            yield from values[start : start + run]
        start += run


def _round(value: float) -> float | None:
    """Gym's rounding; None beyond the range of a double, where it writes `Infinity`, which no JSON reader takes."""
    if not math.isfinite(value):
        return None
    return round(float(value), 2 if abs(value) >= 1 else 3)


def _categories(occurrences: dict[str, int]) -> dict[str, Any]:
    labels = list(occurrences)
    counts = {label: occurrences[label] for label in sorted(labels[:MAX_LABELS])}
    if rest := sum(occurrences[label] for label in labels[MAX_LABELS:]):
        counts["Other" if "Other" not in counts else "Other (overflow)"] = rest
    return {"counts": counts, "unique_count": len(counts), "total_count": sum(occurrences.values())}
