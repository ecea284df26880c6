"""Two prepared datasets side by side: rows added, removed and changed by content key, statistics before and after."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from gymdata.errors import UsageError
from gymdata.rows.facts import describe, encode
from gymdata.rows.lines import ByteRange, chunks
from gymdata.sources.data_files import kind_of

SPLITS = ("train", "validation", "test", "example", "benchmark")
EXAMPLES = 3
"""Line numbers named per kind of difference."""

_FOLLOWS = re.compile(
    r"(: (rows|valid)|(\.| )(count|total|total_count|present|Total # non-null values)"
    r"|\.(kinds|element_kinds)\.[^.]+|: (roles|item_types|part_types)\.[^.]+)$"
)
"""Names of numbers that follow the number of rows, and say nothing more where that has changed."""


@dataclass(frozen=True)
class SplitDiff:
    """The difference of one split. A row is changed if a row with the same prompt and another content is on each side."""

    split: str
    before: int | None
    """Rows; None if the side has no such split."""
    after: int | None
    added: int
    removed: int
    changed: int
    reordered: bool
    """The same rows in another order."""
    added_lines: tuple[int, ...]
    """The first few, 1-based, in the file after."""
    removed_lines: tuple[int, ...]
    """The first few, in the file before."""
    changed_lines: tuple[int, ...]
    """The first few, in the file after."""

    @property
    def same(self) -> bool:
        return self.before == self.after and not (self.added or self.removed or self.changed or self.reordered)


@dataclass(frozen=True)
class Change:
    """A number of the statistics that differs; None where a side does not have it."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Diff:
    """What differs between two datasets."""

    before: str
    after: str
    splits: tuple[SplitDiff, ...]
    statistics: tuple[Change, ...]

    @property
    def same(self) -> bool:
        return all(split.same for split in self.splits) and not self.statistics

    @property
    def telling(self) -> list[Change]:
        """The statistics but for counts that only follow the number of rows."""
        resized = tuple(f"{split.split}: " for split in self.splits if split.before != split.after)
        return [one for one in self.statistics if not (one.name.startswith(resized) and _FOLLOWS.search(one.name))]


def content_key(line: bytes) -> tuple[bytes, int]:
    """Identity of a row's content (16 bytes) and of its prompt; of the line's bytes, and 0, if it is no row."""
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return xxhash.xxh3_128_digest(line), 0
    try:
        facts = describe(row)
        return facts.key, facts.prompt_key
    except (AttributeError, KeyError, TypeError, ValueError):
        return xxhash.xxh3_128_digest(encode(row)), 0


def compare(before: Mapping[str, Path], after: Mapping[str, Path], names: tuple[str, str] = ("before", "after")) -> Diff:
    """Compare the files of two datasets, given by split, and the `_metrics.json` and `_statistics.json` beside them."""
    order = [*after, *(split for split in before if split not in after)]
    splits = tuple(_compare_split(split, before.get(split), after.get(split)) for split in order)
    changes = [change for split in order for change in _compare_statistics(split, before.get(split), after.get(split))]
    return Diff(*names, splits, tuple(changes))


def splits_of(directory: Path) -> dict[str, Path]:
    """The split files of a prepared directory, or a JSONL file as the split of its name. Raises UsageError if there are none."""
    if directory.is_file():
        if kind_of(directory.name) != ".jsonl":
            raise UsageError(
                f"{directory} is not called .jsonl", "give a JSONL file, or a directory that `gymdata prepare` wrote"
            )
        return {directory.name.split(".")[0]: directory}
    found = {split: path for split in SPLITS if (path := directory / f"{split}.jsonl").is_file()}
    if not found:
        raise UsageError(
            f"{directory}: no prepared dataset there", "give a directory that `gymdata prepare` wrote, or a JSONL file"
        )
    return found


def _keys(path: Path | None) -> Iterator[tuple[int, bytes, int]]:
    if path is None:
        return
    number = 0
    for chunk in chunks(ByteRange(path, 0, path.stat().st_size)):
        for line in [b"%d" % chunk] if isinstance(chunk, int) else chunk.split(b"\n"):
            number += 1
            if line.strip():
                yield number, *content_key(line)


def _compare_split(split: str, before: Path | None, after: Path | None) -> SplitDiff:
    old: Counter[bytes] = Counter()
    prompts: dict[bytes, int] = {}
    sequence, rows_before, rows_after = xxhash.xxh3_64(), 0, 0
    for _, key, prompt in _keys(before):
        rows_before += 1
        old[key] += 1
        prompts[key] = prompt
        sequence.update(key)
    order_before, sequence = sequence.digest(), xxhash.xxh3_64()
    new: list[tuple[int, int]] = []
    for number, key, prompt in _keys(after):
        rows_after += 1
        sequence.update(key)
        if old[key]:
            old[key] -= 1
        else:
            new.append((number, prompt))
    gone = +old
    reordered = not new and not gone and order_before != sequence.digest()
    # Of what is only on one side, equal prompts pair up: those rows changed.
    unpaired: Counter[int] = Counter()
    for key, count in gone.items():
        if prompts[key]:
            unpaired[prompts[key]] += count
    changed: list[int] = []
    added: list[int] = []
    for number, prompt in new:
        if prompt and unpaired[prompt]:
            unpaired[prompt] -= 1
            changed.append(number)
        else:
            added.append(number)
    left = Counter({prompt: count for prompt, count in unpaired.items() if count})
    removed = sum(gone.values()) - len(changed)
    lines = _removed_lines(before, gone, left) if removed else ()
    return SplitDiff(
        split,
        rows_before if before else None,
        rows_after if after else None,
        len(added),
        removed,
        len(changed),
        reordered,
        tuple(added[:EXAMPLES]),
        lines,
        tuple(changed[:EXAMPLES]),
    )


def _removed_lines(path: Path | None, gone: Counter[bytes], unpaired: Counter[int]) -> tuple[int, ...]:
    lines: list[int] = []
    for number, key, prompt in _keys(path):
        if gone[key] and (not prompt or unpaired[prompt]):
            gone[key] -= 1
            unpaired[prompt] -= bool(prompt)
            lines.append(number)
            if len(lines) == EXAMPLES:
                break
    return tuple(lines)


def _compare_statistics(split: str, before: Path | None, after: Path | None) -> Iterator[Change]:
    old, new = _numbers(before), _numbers(after)
    if not old or not new:
        return
    for name in [*new, *(name for name in old if name not in new)]:
        if old.get(name) != new.get(name):
            yield Change(f"{split}: {name}", old.get(name), new.get(name))


def _numbers(path: Path | None) -> dict[str, Any]:
    """The numbers of the statistics beside a split file, by their dotted names; metrics first."""
    found: dict[str, Any] = {}
    if path is None:
        return found
    for suffix in ("_metrics.json", "_statistics.json"):
        beside = path.with_name(path.name.split(".")[0] + suffix)
        if beside.is_file():
            found |= {name: value for name, value in _leaves(json.loads(beside.read_bytes())) if name not in found}
    return found


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value


def to_json(diff: Diff) -> dict[str, Any]:
    """The document that `--format json` prints."""
    return {"same": diff.same, **asdict(diff)}


def to_text(diff: Diff) -> str:
    """A few lines for a terminal."""
    if diff.same:
        return f"{diff.before} and {diff.after} hold the same rows in the same order, with the same statistics"
    lines = [f"{diff.before} -> {diff.after}"]
    for split in diff.splits:
        rows = f"{_count(split.before)} -> {_count(split.after)} rows"
        lines.append(f"  {split.split}: {rows}; {_summary(split)}")
        for word, numbers in (("added", split.added_lines), ("removed", split.removed_lines), ("changed", split.changed_lines)):
            if numbers:
                more = " …" if getattr(split, word) > len(numbers) else ""
                lines.append(f"    {word}: line {', '.join(map(str, numbers))}{more}{' (before)' if word == 'removed' else ''}")
    if shown := diff.telling:
        width = max(len(change.name) for change in shown)
        lines += ["  statistics:"] + [f"    {one.name:<{width}}  {_count(one.before)} -> {_count(one.after)}" for one in shown]
    if more := len(diff.statistics) - len(shown):
        lines.append(f"    and {more} counts that follow the number of rows (--format json has them)")
    return "\n".join(lines)


def to_markdown(diff: Diff, limit: int = 20) -> str:
    """A short comment for a pull request; at most `limit` numbers."""
    if diff.same:
        return f"**No difference** between `{diff.before}` and `{diff.after}`.\n"
    lines = ["| split | rows before | rows after | added | removed | changed |", "|---|---:|---:|---:|---:|---:|"]
    for split in diff.splits:
        note = " (reordered)" if split.reordered else ""
        counts = f"{split.added:,} | {split.removed:,} | {split.changed:,}"
        lines.append(f"| {split.split}{note} | {_count(split.before)} | {_count(split.after)} | {counts} |")
    if shown := diff.telling[:limit]:
        lines += ["", "| statistic | before | after |", "|---|---:|---:|"]
        lines += [f"| {_cell(one.name)} | {_count(one.before)} | {_count(one.after)} |" for one in shown]
    if len(diff.statistics) > len(shown):
        lines.append(f"\n… and {len(diff.statistics) - len(shown)} more numbers differ.")
    return "\n".join(lines) + "\n"


def _summary(split: SplitDiff) -> str:
    if split.same:
        return "no difference"
    if split.reordered:
        return "the same rows in another order"
    return f"{split.added:,} added, {split.removed:,} removed, {split.changed:,} changed"


def _count(value: Any) -> str:
    return "–" if value is None else f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
