"""Which rollouts of some files can be exported, why the others cannot, and their rows, task by task; one task at a time is held."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import msgspec
import xxhash

from gymdata.errors import DataError, UsageError
from gymdata.rollouts.facts import unusable
from gymdata.rollouts.outcome import decode_response, truncation
from gymdata.rollouts.tasks import ROLLOUT_INDEX, TASK_INDEX, TaskKey, run_of
from gymdata.rows.lines import COMPRESSED_SUFFIXES, MAX_LINE_BYTES, ByteRange, DamagedFile, chunks
from gymdata.validation.findings import Finding

_row = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decode = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a rollout stands, and what picking goes by."""

    store: IO[bytes]
    place: str
    offset: int
    size: int
    index: int
    reward: float


class Rollout:
    """A rollout that can be exported. `place` is its file and line."""

    def __init__(self, entry: Entry, task: int) -> None:
        self._entry = entry
        self.place, self.task, self.index, self.reward = entry.place, task, entry.index, entry.reward

    @cached_property
    def row(self) -> dict[str, Any]:
        self._entry.store.seek(self._entry.offset)
        return _decode(self._entry.store.read(self._entry.size))


@dataclass
class Source:
    """The rollouts of some files. `removed`: by reason, those that cannot be exported."""

    rollouts: int = 0
    removed: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    """By file, what is wrong with lines that are no rollouts."""
    sets_template: bool = False
    """Whether a row has `metadata.chat_template_kwargs`."""
    _tasks: dict[TaskKey, list[Entry]] = field(default_factory=dict)

    def tasks(self) -> Iterator[list[Rollout]]:
        """The rollouts of each task by index; tasks by index, then those without one as they come in the files."""
        numbers = {key: key[0] for key in self._tasks if isinstance(key[0], int)}
        following = max(numbers.values(), default=-1) + 1
        for key in self._tasks:
            if key not in numbers:
                numbers[key], following = following, following + 1
        for key, number in sorted(numbers.items(), key=lambda item: (item[1], item[0][1] or "")):
            yield [Rollout(entry, number) for entry in sorted(self._tasks[key], key=lambda entry: entry.index)]


def read(
    paths: Sequence[Path],
    *,
    answered: bool = True,
    truncated: bool = False,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Source:
    """Find the rollouts that can be exported: neither failed nor masked, with a request and, if `answered`, an answer and a reward.

    Those whose answer was cut off count only if `truncated`. Rows without indices are tasks by their request and rollouts by
    their order, as a profile has them. Raises UsageError for a file that is not there, DataError if no line can be used, or two have the
    same indices.
    """
    source = Source()
    seen: set[tuple[TaskKey, int]] = set()
    unnumbered: Counter[TaskKey] = Counter()
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: no such file", "give rollout files, as `gymdata rollouts collect` writes them")
        findings = source.findings.setdefault(str(path), [])
        for number, store, offset, line in _lines(path, findings, on_progress):
            row = _members(line)
            if row is None or not (row.keys() & {"response", "reward"} or (not answered and "responses_create_params" in row)):
                findings += [finding.at(number) for finding in unusable(line)]
                continue
            source.rollouts += 1
            run, _ = run_of(row)
            name = _index(row.get(TASK_INDEX))
            # A row that is no rollout yet is all that it says, not its request alone.
            said = bytes(row.get("responses_create_params", b"")) if row.keys() & {"response", "reward"} else line
            key: TaskKey = (xxhash.xxh3_128_digest(said) if name is None else name, run)
            index = _index(row.get(ROLLOUT_INDEX))
            if index is None:
                index = unnumbered[key]
                unnumbered[key] += 1
            if (key, index) in seen:
                raise DataError(
                    f"{path}:{number}: a second rollout with {TASK_INDEX} {key[0] if name is not None else 'missing'} and "
                    f"{ROLLOUT_INDEX} {index} of {run or 'one environment'}",
                    "give each file of a run once, or put shards together with `gymdata rollouts merge`",
                )
            seen.add((key, index))
            reward = _reward(row.get("reward"))
            if (reason := _refused(row, reward, answered, truncated)) is not None:
                source.removed[reason] += 1
                continue
            source.sets_template |= b'"chat_template_kwargs"' in bytes(row["responses_create_params"])
            entry = Entry(store, f"{path}:{number}", offset, len(line), index, math.nan if reward is None else reward)
            source._tasks.setdefault(key, []).append(entry)
    if not source.rollouts:
        raise DataError(
            f"{', '.join(map(str, paths))}: no line is a rollout", "`gymdata validate --kind rollout` says what the lines are"
        )
    return source


def _lines(
    path: Path, findings: list[Finding], on_progress: Callable[[str, int, int], None]
) -> Iterator[tuple[int, IO[bytes], int, bytes]]:
    """The lines of a file that are not blank: number, the open file in which they can be found again (a copy if it is compressed), offset."""
    total = path.stat().st_size
    compressed = path.suffix in COMPRESSED_SUFFIXES
    store: IO[bytes] = tempfile.TemporaryFile() if compressed else open(path, "rb")  # noqa: SIM115 (open until the rows are read)
    number = offset = 0
    try:
        for chunk in chunks(ByteRange(path, 0, total)):
            if isinstance(chunk, int):
                number += 1
                offset += 0 if compressed else chunk + 1
                message = f"the line has {chunk:,} bytes; the longest that is read has {MAX_LINE_BYTES:,}"
                findings.append(Finding("GD109", "$", message, line=number))
                continue
            if compressed:
                store.write(chunk + b"\n")
            for line in chunk.split(b"\n"):
                number += 1
                if line.strip():
                    yield number, store, offset, line
                offset += len(line) + 1
            on_progress(str(path), min(offset, total), total)
    except DamagedFile as error:
        message = f"the compressed file is damaged after line {number}: {error.reason}"
        findings.append(Finding("GD100", "$", message, "fetch or compress it again", line=number + 1))


def _members(line: bytes) -> dict[str, msgspec.Raw] | None:
    """The members of a line that is a JSON object through and through."""
    try:
        _decode(line)
        return _row.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _refused(row: Mapping[str, msgspec.Raw], reward: float | None, answered: bool, truncated: bool) -> str | None:
    """Why a rollout cannot be exported; None if it can."""
    if not isinstance(_value(row, "responses_create_params"), dict):
        return "without a request"
    if not answered:
        return None
    if row.keys() & {"_ng_failure_class"} or _value(row, "failure_kind"):
        return "failed"
    if _value(row, "mask_sample"):
        return "masked"
    response = decode_response(row.get("response"))
    if response is None:
        return "without a response"
    if not response.output:
        return "without an answer"
    if reward is None:
        return "without a reward"
    reason = truncation(response)
    return f"truncated ({reason})" if reason is not None and not truncated else None


def _value(row: Mapping[str, msgspec.Raw], key: str) -> Any:
    return _decode(row[key]) if key in row else None


def _index(raw: msgspec.Raw | None) -> int | None:
    value = None if raw is None else _decode(raw)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _reward(raw: msgspec.Raw | None) -> float | None:
    value = None if raw is None else _decode(raw)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
