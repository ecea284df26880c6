"""Which rollouts a run is to make: the tasks in its row files, how often each, with which seeds, and which of them in this shard."""

from __future__ import annotations

import shutil
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import xxhash

from gymdata.errors import DataError, UsageError
from gymdata.manifest import sha256
from gymdata.rollouts.tasks import ROLLOUT_INDEX, TASK_INDEX
from gymdata.rows.facts import describe
from gymdata.rows.lines import COMPRESSED_SUFFIXES, MAX_LINE_BYTES, ByteRange, chunks, open_stream

Who = tuple[str | None, str | None]
"""What runs a row: the names in its `agent_ref` and its `task_source`."""

_row = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decode = msgspec.json.decode


@dataclass(frozen=True)
class Options:
    """What a run asks for. `overrides` replace keys of every row's `responses_create_params`."""

    num_repeats: int = 1
    limit: int = 0
    """Tasks of each agent that are used, 0 for all."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = 0
    """What the seeds of the rollouts are derived from; None sends none."""


@dataclass(frozen=True)
class Task:
    """One row: its keys but for the indices, as they stand in the file, its request with the overrides, and its rollouts."""

    index: int
    key: bytes
    repeats: int
    row: dict[str, msgspec.Raw]
    params: dict[str, Any]
    who: Who


class Plan:
    """The tasks of row files: each once, in order of appearance, where it stands but not what it says.

    A row without `_ng_task_index` is numbered as NeMo Gym numbers it, rows of equal bytes being one task whose rollouts add up. A row
    with `_ng_rollout_index` (NeMo Gym's materialized inputs) stands for one rollout. Raises DataError for a line that is no task row,
    or an index that two different rows have; UsageError where there is nothing to do.
    """

    def __init__(self, paths: Sequence[Path], options: Options, agents: Mapping[Path, str] | None = None) -> None:
        """`agents` says, by file, what runs the rows that do not name it."""
        if options.num_repeats < 1:
            raise UsageError(f"--num-repeats {options.num_repeats} asks for nothing", "give 1 or more")
        self.options = options
        self.paths = tuple(paths)
        self.who: Counter[Who] = Counter()
        """Tasks by what runs them."""
        self._agents = [(agents or {}).get(path) for path in paths]
        self._files: list[IO[bytes]] = []
        self._indices, self._starts = array("q"), array("Q")
        self._sizes, self._repeats, self._file = array("Q"), array("L"), array("H")
        self._keys = bytearray()
        numbers: dict[bytes, int] = {}
        places: dict[int, int] = {}
        for path in paths:
            self._read(path, numbers, places)
        if not len(self):
            raise UsageError(f"no rows in {', '.join(map(str, paths))}", "give a file of task rows; see `gymdata validate`")

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def rollouts(self) -> int:
        """How many rollouts there will be of all tasks."""
        return sum(self._repeats)

    def owed(self, shard: int = 0, shards: int = 1) -> Iterator[tuple[int, int]]:
        """(`_ng_task_index`, rollouts) of the shard's tasks; which shard a task is in depends on what it says, not where it stands."""
        return ((self._indices[place], self._repeats[place]) for place in self._places(shard, shards))

    def tasks(self, shard: int = 0, shards: int = 1) -> Iterator[Task]:
        """The tasks of a shard, read one by one."""
        return (self._task(place) for place in self._places(shard, shards))

    def seed_of(self, task: Task, rollout: int) -> int | None:
        """The seed of one rollout: another for each repeat, the same in every run."""
        if self.options.seed is None:
            return None
        salt = b"%d:%d" % (self.options.seed, rollout)
        return xxhash.xxh3_64_intdigest(task.key + salt) & 0x7FFFFFFF

    def manifest(self) -> dict[str, Any]:
        """What of a run must not change between its parts: rows, how many, how they are asked."""
        return {
            "rows": {"sha256": [sha256(path) for path in self.paths], "tasks": len(self), "rollouts": self.rollouts,
                     "digest": xxhash.xxh3_128_hexdigest(bytes(self._keys) + self._indices.tobytes())},
            "num_repeats": self.options.num_repeats,
            "limit": self.options.limit,
            "parameters": {"overrides": dict(self.options.overrides), "seed": self.options.seed},
        }  # fmt: skip

    def close(self) -> None:
        """Close the row files."""
        for file in self._files:
            file.close()

    def _read(self, path: Path, numbers: dict[bytes, int], places: dict[int, int]) -> None:
        if not path.is_file():
            raise UsageError(
                f"{path}: no such file", "give a file of rows, or the name of an environment; see `gymdata envs list`"
            )
        path = self._open(path)
        for number, line, start in _lines(path):
            where = f"{self.paths[len(self._files) - 1]}:{number}"
            try:
                row = _row.decode(line)
                indices = [_decode(row.pop(key), type=int) if key in row else None for key in (TASK_INDEX, ROLLOUT_INDEX)]
                _decode(row["responses_create_params"], type=dict)
                key = describe(_decode(line)).key
            except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
                raise DataError(f"{where}: not a task row: {_reason(error, line)}", "see `gymdata validate`") from error
            task, rollout = indices
            if task is None:
                task = numbers.setdefault(xxhash.xxh3_128_digest(line), len(numbers))
            if not 0 <= task < 2**62:
                raise DataError(f"{where}: `{TASK_INDEX}` is {task}", "a task's index is a whole number from 0 on")
            times = self.options.num_repeats if rollout is None else 1
            if task in places:
                place = places[task]
                if self._keys[place * 16 : place * 16 + 16] != key:
                    raise DataError(
                        f"{where}: another row has the `{TASK_INDEX}` {task}, too", "remove the key to have rows numbered"
                    )
                self._repeats[place] += times
                continue
            if not self._within_limit(row, self._agents[len(self._files) - 1]):
                continue
            places[task] = len(self)
            self._indices.append(task)
            self._starts.append(start)
            self._sizes.append(len(line))
            self._repeats.append(times)
            self._file.append(len(self._files) - 1)
            self._keys += key

    def _within_limit(self, row: Mapping[str, msgspec.Raw], agent: str | None) -> bool:
        who = _who(row, agent)
        if self.options.limit and self.who[who] >= self.options.limit:
            return False
        self.who[who] += 1
        return True

    def _open(self, path: Path) -> Path:
        """Open a file for reading single rows; a compressed one is unpacked into a temporary file first."""
        if path.suffix in COMPRESSED_SUFFIXES:
            unpacked = tempfile.NamedTemporaryFile(suffix=".jsonl")  # noqa: SIM115 (as long as the plan; gone with it)
            with open_stream(path) as source:
                shutil.copyfileobj(source, unpacked)
            unpacked.flush()
            self._files.append(unpacked)
            return Path(unpacked.name)
        self._files.append(open(path, "rb"))  # noqa: SIM115 (closed by close)
        return path

    def _places(self, shard: int, shards: int) -> Iterator[int]:
        for place in range(len(self)):
            if int.from_bytes(self._keys[place * 16 : place * 16 + 8], "big") % shards == shard:
                yield place

    def _task(self, place: int) -> Task:
        file = self._files[self._file[place]]
        file.seek(self._starts[place])
        row = _row.decode(file.read(self._sizes[place]))
        for key in (TASK_INDEX, ROLLOUT_INDEX):
            row.pop(key, None)
        params = {**_decode(row["responses_create_params"]), **self.options.overrides}
        key = bytes(self._keys[place * 16 : place * 16 + 16])
        who = _who(row, self._agents[self._file[place]])
        return Task(self._indices[place], key, self._repeats[place], row, params, who)


def parse_shard(text: str) -> tuple[int, int]:
    """`i/n` as (i, n), shards counted from 0 as Slurm's array tasks. Raises UsageError."""
    try:
        shard, shards = (int(part) for part in text.split("/"))
    except ValueError:
        raise UsageError(f"--shard {text!r} is no shard", "give i/n, such as 0/8 for the first of eight") from None
    if not 0 <= shard < shards:
        raise UsageError(f"--shard {text}: shards are counted from 0, the last of {shards} is {shards - 1}/{shards}")
    return shard, shards


def _reason(error: Exception, line: bytes) -> str:
    """What is wrong with a row, as `gymdata validate` says it."""
    from gymdata.validation.judge import is_error, judge

    told = next((f"{finding.path}: {finding.message}" for finding in judge(line, "task").findings if is_error(finding)), "")
    return told or (f"it has no `{error.args[0]}`" if isinstance(error, KeyError) else str(error))


def _who(row: Mapping[str, msgspec.Raw], agent: str | None) -> Who:
    named = _name(row, "agent_ref"), _name(row, "task_source")
    return named if any(named) else (agent, None)


def _name(row: Mapping[str, msgspec.Raw], key: str) -> str | None:
    value = _decode(row[key]) if key in row else None
    name = value.get("name") if isinstance(value, dict) else value
    return name if isinstance(name, str) else None


def _lines(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """The non-blank lines of a file: number, bytes, and the offset at which each begins."""
    number = start = 0
    for chunk in chunks(ByteRange(path, 0, path.stat().st_size)):
        if isinstance(chunk, int):
            raise DataError(f"{path}:{number + 1}: the line has {chunk:,} bytes; the longest that is read has {MAX_LINE_BYTES:,}")
        for line in chunk.split(b"\n"):
            number += 1
            if line.strip():
                yield number, line, start
            start += len(line) + 1
