"""Our own statistics of a split (`<split>_statistics.json`): lengths with quantiles, what is unique, what every field holds.

They describe the accepted rows as their authors wrote them: `num_repeats` multiplies nothing here.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from gymdata.rows.columns import Columns
from gymdata.rows.fields import Field, Tally
from gymdata.statistics.metrics import MANY, count_distinct
from gymdata.statistics.tokens import Tokenizer

TOP = 50
"""Values that are listed by name, the most frequent first."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Distribution(_Model):
    """Of some numbers; all but `count` are None if there are none. `std` is that of the sample.

    A quantile is an observed value: the least that is not exceeded by that percentage of the values.
    """

    count: int
    min: float | None = None
    mean: float | None = None
    max: float | None = None
    std: float | None = None
    p01: float | None = None
    p05: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


class Values(_Model):
    """Values by occurrences, the 50 most frequent. Above 10,000 different ones `unique` is None and nothing is listed."""

    total: int
    unique: int | None
    top: dict[str, int]


class Strings(_Model):
    """Strings of a field, arrays flattened by one level."""

    total: int
    unique: int


class FieldStatistics(_Model):
    """One top-level key of the rows. `mixed`: it holds strings in some places and numbers in others."""

    present: int
    absent: int
    kinds: dict[str, int]
    element_kinds: dict[str, int]
    mixed: bool
    numbers: Distribution | None
    strings: Strings | None


class Unique(_Model):
    """Different ones among the rows. `rows` goes by content, stamps apart; `prompts` by roles and texts, however spelled."""

    rows: int
    duplicate_rows: int
    create_params: int
    prompts: int
    user_messages: int


class Lengths(_Model):
    """Per row: words as NeMo Gym counts them, tokens and characters of all texts, user messages, tools where declared."""

    tokens: Distribution
    words: Distribution
    characters: Distribution
    turns: Distribution
    tools: Distribution


class Statistics(_Model):
    """A split, or a file."""

    rows: int
    """Non-blank lines."""
    valid: int
    """Rows without an error; all that follows is about these."""
    tokenizer: Tokenizer | None
    """None if tokens were not counted."""
    lengths: Lengths
    unique: Unique
    roles: dict[str, int]
    item_types: dict[str, int]
    part_types: dict[str, int]
    tools: Values
    parameters: dict[str, Values]
    """Create-params other than `input` and `tools`, by their JSON text."""
    fields: dict[str, FieldStatistics]
    tasksets: dict[str, int]
    """Materialised tasks by taskset."""


def summarise(columns: Columns, rows: int | None = None, tokenizer: Tokenizer | None = None) -> Statistics:
    """Statistics of the rows in `columns`, of `rows` non-blank lines in all."""
    columns.flush()
    keys = array("Q")
    keys.frombytes(columns.keys)
    unique = count_distinct(keys[::2])
    valid = len(columns)
    return Statistics(
        rows=valid if rows is None else rows,
        valid=valid,
        tokenizer=tokenizer,
        lengths=Lengths(
            tokens=distribution(_at_least(columns.tokens, 0)),
            words=distribution(_at_least(columns.words, 1)),
            characters=distribution(columns.characters),
            turns=distribution(columns.turns),
            tools=distribution(_at_least(columns.tools, 0)),
        ),
        unique=Unique(
            rows=unique,
            duplicate_rows=valid - unique,
            create_params=count_distinct(columns.params_keys),
            prompts=count_distinct(columns.prompt_keys),
            user_messages=count_distinct(columns.user_messages.values),
        ),
        roles=_ordered(columns.roles),
        item_types=_ordered(columns.item_types),
        part_types=_ordered(columns.part_types),
        tools=_values(columns.tool_names),
        parameters={name: _values(tally) for name, tally in sorted(columns.parameters.items())},
        fields={key: _field(field, valid) for key, field in columns.fields.items()},
        tasksets=_ordered(columns.tasksets, TOP),
    )


def distribution(values: array[int] | array[float]) -> Distribution:
    """Exact summary of finite numbers, the same in any order of them."""
    if not values:
        return Distribution(count=0)
    count = len(values)
    ordered = _sorted(values)
    low, high = ordered[0], ordered[-1]
    # Squares of what is beyond this would overflow; a power of two changes no digit.
    scale = 2.0**-600 if max(abs(low), abs(high)) > 1e150 else 1.0
    mean = math.fsum([value * scale for value in values] if scale != 1.0 else values) / count
    squares = math.fsum((value * scale - mean) * (value * scale - mean) for value in values) if low != high else 0.0
    quantiles = {f"p{percent:02}": ordered[-(-percent * count // 100) - 1] for percent in (1, 5, 25, 50, 75, 90, 95, 99)}
    return Distribution(
        count=count,
        min=low,
        mean=mean / scale,
        max=high,
        std=min(math.sqrt(squares / (count - 1)) / scale, sys.float_info.max) if count > 1 else 0.0,
        **quantiles,
    )


def render_text(statistics: Statistics) -> str:
    """The statistics as plain, aligned tables."""
    head = f"{statistics.valid:,} of {statistics.rows:,} rows valid, {statistics.unique.duplicate_rows:,} of them duplicates"
    lengths: list[Sequence[str]] = [("", "count", "min", "mean", "max", "std", "p05", "p50", "p95", "p99")]
    for name, numbers in statistics.lengths:
        if numbers.count:
            lengths.append((name, *(_number(getattr(numbers, column)) for column in lengths[0][1:])))
    blocks = [head, _table(lengths)]
    unique = [(name.replace("_", " "), f"{count:,}") for name, count in statistics.unique if name != "duplicate_rows"]
    blocks.append(_table([("unique", ""), *unique]))
    tallies: dict[str, Mapping[str, int]] = {
        "role": statistics.roles,
        "item type": statistics.item_types,
        "part type": statistics.part_types,
        "tool": statistics.tools.top,
        "taskset": statistics.tasksets,
    }
    tallies |= {name: values.top for name, values in statistics.parameters.items()}
    for name, counts in tallies.items():
        if counts:
            blocks.append(_table([(name, "count"), *((key, f"{count:,}") for key, count in [*counts.items()][:10])]))
    fields: list[Sequence[str]] = [("field", "present", "kinds", "numbers", "strings", "unique")]
    for key, field in statistics.fields.items():
        kinds = ", ".join(field.kinds) + (" of " + ", ".join(field.element_kinds) if field.element_kinds else "")
        span = f"{_number(field.numbers.min)} to {_number(field.numbers.max)}" if field.numbers else ""
        strings = (f"{field.strings.total:,}", f"{field.strings.unique:,}") if field.strings else ("", "")
        fields.append((key, f"{field.present:,}", kinds + (" (mixed)" if field.mixed else ""), span, *strings))
    if statistics.fields:
        blocks.append(_table(fields))
    if statistics.tokenizer:
        blocks.append(f"tokens: {statistics.tokenizer.encoding}")
    return "\n\n".join(blocks) + "\n"


def _at_least(values: array[int], least: int) -> array[int]:
    return array(values.typecode, [value for value in values if value >= least])


def _sorted(values: array[int] | array[float]) -> Sequence[float]:
    if len(values) < MANY:
        return sorted(values)
    import polars

    return polars.Series(values).sort()  # type: ignore[return-value]  # indexed like a sequence


def _field(field: Field, rows: int) -> FieldStatistics:
    strings = Strings(total=field.strings.total, unique=count_distinct(field.strings.values)) if field.strings.total else None
    return FieldStatistics(
        present=field.present,
        absent=rows - field.present,
        kinds=_ordered(field.kinds),
        element_kinds=_ordered(field.elements),
        mixed=bool(field.numbers) and strings is not None,
        numbers=distribution(field.numbers) if field.numbers else None,
        strings=strings,
    )


def _values(tally: Tally) -> Values:
    if tally.counts is None:
        return Values(total=tally.total, unique=None, top={})
    return Values(total=tally.total, unique=len(tally.counts), top=_ordered(tally.counts, TOP))


def _ordered(counts: Counter[str], limit: int | None = None) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit])


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.6g}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned, numbers to the right; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = [all(_NUMERIC.issuperset(row[column]) for row in rows[1:]) for column in range(len(widths))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width) for cell, width, flush in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    )


_NUMERIC = frozenset("0123456789,.-+e")
