"""Finished rollouts as numbers: what a profile needs of each row, in columns; the rows themselves are not held.

320,000 rollouts of five numeric fields take some 60 MB, however long their responses are.
"""

from __future__ import annotations

import functools
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
import xxhash

from gymdata.engine.local import ordered_map
from gymdata.errors import DataError
from gymdata.rollouts.outcome import count_turns, decode_response, truncation
from gymdata.rollouts.tasks import ROLLOUT_INDEX, TASK_INDEX, Samples, TaskKey, run_of
from gymdata.rows.lines import MAX_LINE_BYTES, ByteRange, DamagedFile, chunks, ranges
from gymdata.validation.findings import Finding
from gymdata.validation.rules.dataset import empty_file

OUTCOME_KEYS = frozenset({"response", "reward", "mask_sample", "failure_kind", "failure_reason", "ng_trajectory", "ng_perf"})
"""Keys of a finished rollout that its task did not have, besides those that begin with `_` and the verifier's own."""

NAN = float("nan")
_DETAILS = (("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens"))

LARGEST = 1e100
"""Numbers beyond it, whose squares cannot be added up, are an error in a row and not there in what it nests."""

NO_ROLLOUT = Finding("GD202", "$", "the line is no rollout that can be read")

_NUMBER_STARTS = frozenset(b"-0123456789tf")
_row = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decode = msgspec.json.decode


@dataclass(slots=True)
class Column:
    """A numeric field: per rollout a value (NaN where it has none) and its kind (0 none, 1 int, 2 float)."""

    values: array[float] = field(default_factory=lambda: array("d"))
    kinds: bytearray = field(default_factory=bytearray)

    def pad(self, rows: int) -> None:
        """Say that the field is missing from all rollouts up to the number `rows`."""
        if missing := rows - len(self.kinds):
            self.values.extend([NAN] * missing)
            self.kinds.extend(bytes(missing))

    def number(self, row: int) -> int | float:
        """The value as it stood in the row, which must have one."""
        return int(self.values[row]) if self.kinds[row] == 1 else self.values[row]


@dataclass(slots=True)
class Rollouts:
    """Finished rollouts in file order. All arrays have one value per rollout; a missing number is NaN, a missing index -1."""

    tasks: array[int] = field(default_factory=lambda: array("q"))
    indices: array[int] = field(default_factory=lambda: array("q"))
    runs: list[str | None] = field(default_factory=list)
    """What ran each rollout: its environment server, else its agent (see `agents`)."""
    agents: dict[str, str | None] = field(default_factory=dict)
    """By run, the agent."""
    fields: dict[str, Column] = field(default_factory=dict)
    """What NeMo Gym aggregates: the row's numbers and booleans, and those of `response.usage`, which take precedence."""
    odd: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The numbers of the rollouts whose `rollout_infos` entry is not made of `fields`."""
    rewards: array[float] = field(default_factory=lambda: array("d"))
    """NaN of a rollout that nobody scored."""
    masked: bytearray = field(default_factory=bytearray)
    answers: array[int] = field(default_factory=lambda: array("Q"))
    """Digest of the extracted answer; 0 if there is none."""
    turns: array[int] = field(default_factory=lambda: array("l"))
    """How often the model was asked: runs of its own items, between what tools and users said. -1 without a response."""
    calls: array[int] = field(default_factory=lambda: array("l"))
    """Tool calls; -1 without a response."""
    truncated: list[str | None] = field(default_factory=list)
    """Why the response is incomplete."""
    components: dict[str, Column] = field(default_factory=dict)
    """`reward_components`."""
    details: dict[str, Column] = field(default_factory=dict)
    """The cached and the reasoning tokens, one level deeper in `response.usage`."""
    performance: dict[int, dict[str, Any]] = field(default_factory=dict)
    """`ng_perf` of the rollouts that have one."""
    has_answers: bool = False
    anonymous: list[tuple[int, bytes]] = field(default_factory=list)
    """Number of each rollout without a task index, and the digest of its request."""
    samples: dict[TaskKey, tuple[int, bytes]] = field(default_factory=dict)
    """By task, the lowest rollout index and the task's row as JSON, of those not yet taken by a Samples."""
    findings: list[Finding] = field(default_factory=list)
    lines: int = 0

    def __len__(self) -> int:
        return len(self.tasks)

    def merge(self, other: Rollouts) -> None:
        """Append the rollouts of `other`, whose lines follow these."""
        before, rows = len(self), len(self) + len(other)
        for name in ("tasks", "indices", "runs", "rewards", "masked", "answers", "turns", "calls", "truncated"):
            getattr(self, name).extend(getattr(other, name))
        for name in ("fields", "components", "details"):
            mine, theirs = getattr(self, name), getattr(other, name)
            for key, column in theirs.items():
                own = mine.setdefault(key, Column())
                own.pad(before)
                own.values.extend(column.values)
                own.kinds.extend(column.kinds)
            for column in mine.values():
                column.pad(rows)
        self.agents = other.agents | self.agents
        self.odd |= {before + row: info for row, info in other.odd.items()}
        self.performance |= {before + row: record for row, record in other.performance.items()}
        self.anonymous += [(before + row, digest) for row, digest in other.anonymous]
        self.has_answers |= other.has_answers
        self.findings += [finding.at(finding.line + self.lines) for finding in other.findings]
        self.lines += other.lines


def read(
    paths: Sequence[Path],
    samples: Samples,
    *,
    answer_key: str = "extracted_answer",
    jobs: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> tuple[Rollouts, dict[str, list[Finding]]]:
    """Read rollout files as one; returns their rollouts and, by file, the findings of the lines that cannot be used.

    Rows without `_ng_task_index` are tasks by their request, rows without `_ng_rollout_index` are counted, both in file order.
    `samples` takes the tasks' rows, as far as rollouts show them. Raises DataError where two rollouts have the same indices,
    and OSError where a file cannot be read.
    """
    rollouts = Rollouts()
    findings: dict[str, list[Finding]] = {}
    for path in paths:
        parts = ranges(path)
        total, start = path.stat().st_size, len(rollouts)
        rollouts.lines = 0
        work = functools.partial(_read_range, answer_key=answer_key)
        for part, found in zip(parts, ordered_map(work, parts, jobs if total > 8_000_000 else 1), strict=True):
            samples.take(found.samples)
            rollouts.merge(found)
            on_progress(str(path), min(part.stop, total), total)
        findings[str(path)], rollouts.findings = rollouts.findings, []
        if len(rollouts) == start and not findings[str(path)]:
            findings[str(path)] = empty_file()
    samples.rename(_number(rollouts))
    return rollouts, findings


def _number(rollouts: Rollouts) -> dict[bytes, int]:
    """Give indices to the rollouts that have none; the digests of their tasks by index. Raises DataError for repeated pairs."""
    following = max(rollouts.tasks, default=-1) + 1
    names: dict[bytes, int] = {}
    for row, digest in rollouts.anonymous:
        rollouts.tasks[row] = names.setdefault(digest, following + len(names))
    counts: Counter[tuple[int, str | None]] = Counter()
    seen: set[tuple[int, int, str | None]] = set()
    for row, (task, index, run) in enumerate(zip(rollouts.tasks, rollouts.indices, rollouts.runs, strict=True)):
        if index < 0:
            index = rollouts.indices[row] = counts[task, run]
            counts[task, run] += 1
        if (task, index, run) in seen:
            raise DataError(
                f"two rollouts of {run or 'one environment'} have {TASK_INDEX} {task} and {ROLLOUT_INDEX} {index}",
                "a (task, rollout) counts once: give each file of a run once, or put shards together with `gymdata rollouts merge`",
            )
        seen.add((task, index, run))
    return names


def _read_range(part: ByteRange, answer_key: str) -> Rollouts:
    rollouts = Rollouts()
    try:
        for chunk in chunks(part):
            if isinstance(chunk, int):
                rollouts.lines += 1
                message = f"the line has {chunk:,} bytes; the longest that is read has {MAX_LINE_BYTES:,}"
                rollouts.findings.append(Finding("GD109", "$", message, line=rollouts.lines))
                continue
            for line in chunk.split(b"\n"):
                rollouts.lines += 1
                if line.strip() and not _add(rollouts, line, answer_key):
                    rollouts.findings += [finding.at(rollouts.lines) for finding in unusable(line)]
    except DamagedFile as error:
        message = f"the compressed file is damaged after line {rollouts.lines}: {error.reason}"
        rollouts.findings.append(Finding("GD100", "$", message, "fetch or compress it again", line=rollouts.lines + 1))
    for column in (*rollouts.fields.values(), *rollouts.components.values(), *rollouts.details.values()):
        column.pad(len(rollouts))
    return rollouts


def unusable(line: bytes) -> list[Finding]:
    """Why a line cannot be used: it is no JSON, or of its numbers some cannot be counted with; else all that is wrong with it."""
    from gymdata.validation.judge import is_error, judge

    errors = [finding for finding in judge(line, "rollout").findings if is_error(finding)]
    return [finding for finding in errors if finding.code < "GD200"] or list(_uncountable(line)) or errors or [NO_ROLLOUT]


def _uncountable(line: bytes) -> Iterator[Finding]:
    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        for key, raw in _row.decode(line).items():
            if key in (TASK_INDEX, ROLLOUT_INDEX):
                value = _decode(raw)
                if type(value) is not int or not 0 <= value < 2**62:
                    yield Finding("GD202", f"$.{key}", f"{key} is no whole number from 0 on")
            elif memoryview(raw)[0] in _NUMBER_STARTS and key[:1] != "_" and not _is_number(_decode(raw)):
                yield Finding("GD202", f"$.{key}", f"`{key}` is beyond {LARGEST:g}: such numbers cannot be added up")


def _add(rollouts: Rollouts, line: bytes, answer_key: str) -> bool:
    """Take in one line; False, and nothing taken, if it is no rollout."""
    try:
        row = _row.decode(line)
        numbers = {
            key: _decode(raw)
            for key, raw in row.items()
            if memoryview(raw)[0] in _NUMBER_STARTS and (key[:1] != "_" or key in (TASK_INDEX, ROLLOUT_INDEX))
        }
        response = decode_response(row.get("response"))
        reward, components, record, masked = (
            _decode(row[key]) if key in row else None for key in ("reward", "reward_components", "ng_perf", "mask_sample")
        )
        answer = _answer(row.get(answer_key))
        run, agent = run_of(row)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    task, index = (numbers.pop(key, None if key in row else -1) for key in (TASK_INDEX, ROLLOUT_INDEX))
    if not ("reward" in row or "response" in row) or not all(map(_is_number, numbers.values())):
        return False
    for key, value in ((TASK_INDEX, task), (ROLLOUT_INDEX, index)):
        if type(value) is not int or (value >= 0) != (key in row) or value >= 2**62:
            return False
    number = len(rollouts)
    if run is not None:
        rollouts.agents.setdefault(run, agent)
    numbers.pop("mask_sample", None)
    _add_numbers(rollouts, row, numbers, reward, response.usage if response is not None else None)
    for key, value in components.items() if isinstance(components, dict) else ():
        if _is_number(value):
            _append(rollouts.components, key, value, number)
    if isinstance(record, dict):
        rollouts.performance[number] = record
    rollouts.tasks.append(task)
    rollouts.indices.append(index)
    rollouts.runs.append(run)
    failed = "_ng_failure_class" in row
    rollouts.rewards.append(float(reward) if _is_number(reward) and not failed else NAN)
    rollouts.masked.append(bool(masked))
    rollouts.answers.append(answer)
    rollouts.has_answers |= answer_key in row
    turns, calls = (-1, -1) if response is None else count_turns(response.output)
    rollouts.turns.append(turns)
    rollouts.calls.append(calls)
    rollouts.truncated.append(None if response is None else truncation(response))
    name: int | bytes = task
    if task < 0:
        name = digest = xxhash.xxh3_128_digest(bytes(row.get("responses_create_params", b"")))
        rollouts.anonymous.append((number, digest))
    if (name, run) not in rollouts.samples or index < rollouts.samples[name, run][0]:
        kept = {key: raw for key, raw in row.items() if key not in OUTCOME_KEYS and not key.startswith("_")}
        rollouts.samples[name, run] = (index, msgspec.json.encode(kept))
    return True


def _add_numbers(rollouts: Rollouts, row: Mapping[str, Any], numbers: Mapping[str, Any], reward: Any, usage: Any) -> None:
    """Put the numbers of a rollout into `fields`, and what its `rollout_infos` entry says beyond them into `odd`."""
    usage = usage if isinstance(usage, dict) else {}
    counted = {key: value for key, value in usage.items() if _is_number(value)}
    metrics = {key: value for key, value in numbers.items() if key not in usage}
    metrics |= {key: value for key, value in counted.items() if not key.startswith("_")}
    number = len(rollouts)
    for key, value in metrics.items():
        _append(rollouts.fields, key, value, number)
    for group, key in _DETAILS:
        detail = usage.get(group)
        if isinstance(detail, dict) and _is_number(value := detail.get(key)):
            _append(rollouts.details, key, value, number)
    info = counted | {key: value for key, value in numbers.items() if key != "reward"}
    info = {key: int(value) if isinstance(value, bool) else value for key, value in info.items()}
    if "reward" in row and "reward" not in counted:
        info["reward"] = reward
    if info != metrics or isinstance(info.get("reward"), bool):
        rollouts.odd[number] = info


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and -LARGEST <= value <= LARGEST


def _append(columns: dict[str, Column], key: str, value: float, row: int) -> None:
    column = columns.get(key)
    if column is None:
        column = columns[key] = Column()
    column.pad(row)
    column.values.append(value)
    column.kinds.append(2 if type(value) is float else 1)


def _answer(raw: msgspec.Raw | None) -> int:
    value = None if raw is None else _decode(raw)
    if value is None:
        return 0
    text = value.strip() if isinstance(value, str) else value
    return xxhash.xxh3_64_intdigest(msgspec.json.encode(text, order="sorted")) or 1
