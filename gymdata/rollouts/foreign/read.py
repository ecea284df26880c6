"""Writes foreign rollouts as ours: a file of rollouts, one of failures beside it; the indices say which are of one task."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gymdata.atomic import disk_errors, writing
from gymdata.errors import DataError, UsageError
from gymdata.rollouts.files import failures_of
from gymdata.rollouts.foreign import gym, skills, verifiers
from gymdata.rollouts.foreign.record import Found, Misfit, Settings
from gymdata.rollouts.tasks import ROLLOUT_INDEX, TASK_INDEX
from gymdata.rows.lines import MAX_LINE_BYTES, ByteRange, DamagedFile, chunks
from gymdata.validation.rules.files import HEAD_BYTES, sniff

READERS: dict[str, Callable[[dict[str, Any], Settings], Found]] = {
    "gym": gym.read,
    "verifiers": verifiers.read,
    "skills": skills.read,
}

_DEFAULTS = Settings()


@dataclass(slots=True)
class Imported:
    """What came of it: `problems` says, with file, line and key, why records are no rollouts."""

    records: int = 0
    rollouts: int = 0
    failures: int = 0
    tasks: int = 0
    problems: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)


def import_rollouts(
    paths: Sequence[Path],
    form: str,
    output: Path,
    settings: Settings = _DEFAULTS,
    skip_invalid: bool = False,
) -> Imported:
    """Write the rollouts of `paths` to `output`, in their order, and failures to the file beside it.

    Raises UsageError for a file that is not there or is the output, DataError, with every problem, where a record is no rollout, unless
    `skip_invalid`, or none is. Nothing is written then.
    """
    read = READERS[form]
    found = Imported()
    tasks: dict[str, int] = {}
    counts: Counter[int] = Counter()
    seen: set[tuple[object, ...]] = set()
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
        if path.resolve() == output.resolve():
            raise UsageError(f"{output} is one of the files themselves, which are never overwritten", "name another --output")
    with disk_errors(output), writing(output) as done, writing(failures_of(output)) as failed:
        with open(done, "wb") as rollouts, open(failed, "wb") as failures:
            for place, line in (one for path in paths for one in _lines(path)):
                found.records += 1
                try:
                    if isinstance(line, str):
                        raise Misfit("$", line)
                    one = read(_object(line), settings)
                except Misfit as problem:
                    found.problems.append(f"{place}: {problem}")
                    continue
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    found.problems.append(f"{place}: $: of another form than --from {form} is about ({error!r})")
                    continue
                found.notes.update(one.notes)
                if one.task is not None:
                    task = tasks.setdefault(one.task, len(tasks))
                    one.row |= {TASK_INDEX: task, ROLLOUT_INDEX: counts[task]}
                    counts[task] += 1
                elif one.failure is None and (index := _free(one.row, seen)) is not None:
                    one.row |= {ROLLOUT_INDEX: index}
                    found.notes["a second rollout with the same indices got another _ng_rollout_index"] += 1
                if one.failure is not None:
                    kind, message = one.failure
                    one.row |= {"_ng_failure_class": one.row.get("_ng_failure_class") or "imported", "_ng_failure_type": kind}
                    one.row |= {"_ng_failure_message": message}
                    found.failures += 1
                else:
                    found.rollouts += 1
                (failures if one.failure else rollouts).write(json.dumps(one.row, ensure_ascii=False).encode() + b"\n")
        found.tasks = len(tasks)
        if found.problems and not skip_invalid:
            shown = "\n".join(f"    {problem}" for problem in found.problems[:20])
            more = f"\n    and {len(found.problems) - 20:,} more" if len(found.problems) > 20 else ""
            raise DataError(
                f"{len(found.problems):,} of {found.records:,} records are no rollouts:\n{shown}{more}",
                "--skip-invalid leaves them out" if found.rollouts else f"is this what --from {form} is about?",
            )
        if not found.rollouts:
            raise DataError(
                f"{', '.join(map(str, paths))}: no rollout in {found.records:,} records ({found.failures:,} are failures)"
            )
    if not found.failures:
        failures_of(output).unlink(missing_ok=True)
    return found


def _free(row: dict[str, Any], seen: set[tuple[object, ...]]) -> int | None:
    """Another index for a row whose indices `seen` has, in which it is then too; None for one that can keep its own."""
    task, index = row.get(TASK_INDEX), row.get(ROLLOUT_INDEX)
    if not isinstance(task, int) or not isinstance(index, int):
        return None
    agent = json.dumps(row.get("agent_ref"), sort_keys=True)
    free = index
    while (task, free, agent) in seen:
        free += 1
    seen.add((task, free, agent))
    return None if free == index else free


def _object(line: bytes) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Misfit("$", f"not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Misfit("$", "no JSON object")
    return record


def _lines(path: Path) -> Iterator[tuple[str, bytes | str]]:
    """The lines of a file that are not blank, and where they stand; of one that cannot be read, or a file that has none, why."""
    with open(path, "rb") as stream:
        if other := sniff(stream.read(HEAD_BYTES), path.name):
            yield str(path), f"{other.message}: {other.hint}"
            return
    number = 0
    try:
        for chunk in chunks(ByteRange(path, 0, path.stat().st_size)):
            if isinstance(chunk, int):
                number += 1
                yield f"{path}:{number}", f"the line has {chunk:,} bytes; the longest that is read has {MAX_LINE_BYTES:,}"
                continue
            for line in chunk.split(b"\n"):
                number += 1
                if line.strip():
                    yield f"{path}:{number}", line
    except DamagedFile as error:
        yield f"{path}:{number + 1}", f"the compressed file is damaged from here on: {error.reason}"
