"""The tasks behind rollouts: which there are, how many rollouts each is to get, and the row of each, kept on disk."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import xxhash

from gymdata.errors import DataError
from gymdata.rows.lines import COMPRESSED_SUFFIXES, MAX_LINE_BYTES, ByteRange, DamagedFile, chunks, ranges

TASK_INDEX, ROLLOUT_INDEX = "_ng_task_index", "_ng_rollout_index"

MEASURED = frozenset({"pass_rate", "weight"})
"""Keys that `rollouts select` writes into rows: no part of what a task says."""

TaskKey = tuple[int | bytes, str | None]
"""A task: its index, or the digest of its request where it has none, and what ran it. Environments may use the same indices."""

_row = msgspec.json.Decoder(dict[str, msgspec.Raw])
_index = msgspec.json.Decoder(int)
_decode = msgspec.json.decode


def run_of(row: Mapping[str, msgspec.Raw]) -> tuple[str | None, str | None]:
    """What runs a row, its environment server or else its agent; and its agent."""
    reference = _decode(row["agent_ref"]) if "agent_ref" in row else None
    agent = reference.get("name") if isinstance(reference, dict) else None
    server = _decode(row["_ng_environment_server"]) if "_ng_environment_server" in row else None
    run = server if isinstance(server, str) else agent
    return (sys.intern(run) if isinstance(run, str) else None), agent


class Samples:
    """One row per task, kept in a temporary file."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the profile; gone with it)
        self._places: dict[TaskKey, tuple[int, int, int]] = {}

    def take(self, samples: Mapping[TaskKey, tuple[int, bytes]]) -> None:
        """Keep, per task, the row with the lowest rollout index; of equal ones the first."""
        for task, (index, row) in samples.items():
            if task not in self._places or index < self._places[task][0]:
                self._places[task] = (index, self._file.seek(0, 2), len(row))
                self._file.write(row)

    def rename(self, names: Mapping[bytes, int]) -> None:
        """Give tasks that were known by a digest their index."""
        self._places = {
            (names.get(task, task) if isinstance(task, bytes) else task, run): place
            for (task, run), place in self._places.items()
        }

    def get(self, key: TaskKey) -> bytes | None:
        """The row of a task."""
        place = self._places.get(key)
        if place is None:
            return None
        self._file.seek(place[1])
        return self._file.read(place[2])


def identity(row: bytes | None) -> tuple[str | None, str | None]:
    """The digests, in hexadecimal, by which a task's row is found again: of all it says (`MEASURED` apart) and of its conversation.

    (None, None) for a row that is missing or no task.
    """
    from gymdata.rows.facts import describe

    try:
        values = msgspec.json.decode(row or b"")
        facts = describe({key: value for key, value in values.items() if key not in MEASURED})
    except (msgspec.DecodeError, UnicodeError, AttributeError, KeyError, TypeError, ValueError):
        return None, None
    return facts.key.hex(), f"{facts.prompt_key:016x}"


def conversation(row: bytes | None) -> int | None:
    """The digest of what a row's `input` says, however it is spelled; None for a row that has none."""
    from gymdata.rows.facts import describe

    try:
        return describe(
            {"responses_create_params": {"input": msgspec.json.decode(row or b"")["responses_create_params"]["input"]}}
        ).prompt_key
    except (msgspec.DecodeError, UnicodeError, AttributeError, KeyError, TypeError, ValueError):
        return None


def expected_rollouts(
    paths: Sequence[Path], samples: Samples, num_repeats: int
) -> tuple[Counter[tuple[int, str | None]], dict[str, str | None]]:
    """The tasks of input files, their rows given to `samples`: by task index and what is to run it, how many rollouts it gets;
    and the agent of each of what is to run them.

    A row with `_ng_rollout_index` (NeMo Gym's materialized inputs) stands for one rollout, any other for `num_repeats`. Rows
    without `_ng_task_index` are numbered as NeMo Gym numbers them: in file order, byte-identical ones as one task.
    Raises DataError for a line that is no object or has unusable indices.
    """
    expected: Counter[tuple[int, str | None]] = Counter()
    agents: dict[str, str | None] = {}
    numbers: dict[bytes, int] = {}
    for place, line in (found for path in paths for found in _lines(path)):
        try:
            row = _row.decode(line)
            run, agent = run_of(row)
            task, index = (_index.decode(row.pop(key)) if key in row else None for key in (TASK_INDEX, ROLLOUT_INDEX))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DataError(f"{place}: {error}", "see `gymdata validate`") from error
        if task is None:
            task = numbers.setdefault(xxhash.xxh3_128_digest(line), len(numbers))
        if run is not None:
            agents.setdefault(run, agent)
        expected[task, run] += num_repeats if index is None else 1
        samples.take({(task, run): (index or 0, msgspec.json.encode(row))})
    return expected, agents


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not blank, and where they stand."""
    number = 0
    whole = ranges(path) if path.suffix in COMPRESSED_SUFFIXES else [ByteRange(path, 0, path.stat().st_size)]
    try:
        for chunk in (chunk for part in whole for chunk in chunks(part)):
            if isinstance(chunk, int):
                raise DataError(
                    f"{path}:{number + 1}: the line has {chunk:,} bytes; the longest that is read has {MAX_LINE_BYTES:,}"
                )
            for line in chunk.split(b"\n"):
                number += 1
                if line.strip():
                    yield f"{path}:{number}", line
    except DamagedFile as error:
        raise DataError(
            f"{path}: the compressed file is damaged after line {number}: {error.reason}", "fetch or compress it again"
        ) from error
