"""Makes one file of the shards of a run: every rollout once, its bytes untouched, in order; and says what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gymdata.atomic import writing
from gymdata.errors import DataError, UsageError
from gymdata.rollouts.files import RunFiles, failures_of, read, shard_files
from gymdata.rollouts.journal import Key, Record, records


@dataclass(frozen=True)
class Merged:
    """What a merge found. `expected`, rollouts and tasks, are 0 where no manifest says them."""

    output: Path
    files: int
    rollouts: int
    tasks: int
    repeated: int
    """Records of rollouts that another record had: equal ones are one, of others the first stays."""
    differing: int
    """How many of the repeated were not equal."""
    unreadable: int
    expected_rollouts: int
    expected_tasks: int
    failed: dict[str, int]
    """Missing rollouts that have failed, by class and kind of the last failure."""

    @property
    def missing(self) -> int:
        return max(0, self.expected_rollouts - self.rollouts)


def merge(output: Path, inputs: Sequence[Path] = ()) -> Merged:
    """Write `output`, sorted by task and rollout, from `inputs`, or from all shards of its run and what it holds already.

    The failures of rollouts that are missing go to the file beside it. Files of shards stay as they are.
    Raises UsageError if there is nothing to merge, DataError for an input that holds no rollouts.
    """
    paths = list(inputs) or [path for path in [output, *shard_files(output)] if path.exists()]
    if not paths:
        raise UsageError(f"{output}: no shards of this run", "name the run's --output, or the files to merge")
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
    found: dict[Key, tuple[int, Record]] = {}
    repeated = differing = unreadable = 0
    for number, path in enumerate(paths):
        for record in records(path):
            if record.key is None:
                unreadable += 1
            elif record.key in found:
                first, kept = found[record.key]
                repeated += 1
                differing += _bytes(paths[first], kept) != _bytes(path, record)
            else:
                found[record.key] = (number, record)
    if not found and unreadable:
        raise DataError(f"{', '.join(map(str, paths))}: none of {unreadable:,} lines is a rollout")
    _write(output, paths, found)
    failed = _merge_failures(output, paths, found)
    manifest = read(RunFiles(output).manifest) or {}
    rows = manifest.get("rows") or {}
    tasks = len({task for task, _ in found})
    return Merged(
        output, len(paths), len(found), tasks, repeated, differing, unreadable,
        rows.get("rollouts") or 0, rows.get("tasks") or 0, dict(failed),
    )  # fmt: skip


def _write(output: Path, paths: Sequence[Path], found: dict[Key, tuple[int, Record]]) -> None:
    files = [open(path, "rb") for path in paths]  # noqa: SIM115 (closed below)
    try:
        with writing(output) as temporary, open(temporary, "wb") as target:
            for key in sorted(found):
                number, record = found[key]
                files[number].seek(record.start)
                target.write(files[number].read(record.size))
    finally:
        for file in files:
            file.close()


def _merge_failures(output: Path, paths: Iterable[Path], found: dict[Key, tuple[int, Record]]) -> Counter[str]:
    """Write the failures of missing rollouts, each line once; the last failure of each, counted."""
    lines: dict[bytes, None] = {}
    last: dict[Key, str] = {}
    for path in map(failures_of, paths):
        for record in records(path):
            if record.key is None or record.key in found:
                continue
            line = _bytes(path, record)
            failure = msgspec.json.decode(line)
            lines[line] = None
            last[record.key] = f"{failure.get('_ng_failure_class')}: {failure.get('_ng_failure_type')}"
    target = failures_of(output)
    if lines or target.exists():
        with writing(target) as temporary:
            temporary.write_bytes(b"".join(lines))
    return Counter(last.values())


def _bytes(path: Path, record: Record) -> bytes:
    with open(path, "rb") as file:
        file.seek(record.start)
        return file.read(record.size)
