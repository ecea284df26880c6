"""The files of a run: what they are called, which shards there are, and the manifest that says what the run is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymdata.atomic import disk_errors, fsync, writing
from gymdata.errors import DataError, UsageError

FORMAT = 1
UNCOMPARED = ("gymdata",)
"""Keys of a manifest in which a resumed run may differ."""

_SHARD = re.compile(r"-shard-(\d+)-of-(\d+)$")


@dataclass(frozen=True)
class RunFiles:
    """The files beside `output`, such as rollouts/math.jsonl. Of n shards each writes its own, `math-shard-i-of-n.jsonl`."""

    output: Path
    shard: int = 0
    shards: int = 1

    @property
    def rollouts(self) -> Path:
        part = f"-shard-{self.shard}-of-{self.shards}" if self.shards > 1 else ""
        return self.output.with_name(f"{self.output.stem}{part}.jsonl")

    @property
    def failures(self) -> Path:
        return failures_of(self.rollouts)

    @property
    def manifest(self) -> Path:
        return self.output.with_name(f"{self.output.stem}_manifest.json")

    def others(self) -> Iterator[Path]:
        """Rollouts of the same run in other files: of all shards, however many they were, and of a run or merge without shards."""
        found = [*shard_files(self.output), self.output]
        return (path for path in found if path != self.rollouts and path.exists())

    def refuse_strangers(self, rows: Iterable[Path], *, new_run: bool) -> None:
        """Raise UsageError where a file that this run would write to is none of its own: the rows themselves, or, unless it is set
        aside by a `new_run`, one without a manifest."""
        parts = [path for rollouts in (self.output, self.rollouts, *self.others()) for path in (rollouts, failures_of(rollouts))]
        ours = {path.resolve() for path in (self.manifest, *parts)}
        if clash := next((path for path in rows if path.resolve() in ours), None):
            raise UsageError(f"{clash} holds the rows: rollouts cannot be written there", "choose another --output")
        # Looked for before the manifest is: a shard that has just begun makes that first.
        filled = [path for path in parts if path.is_file() and path.stat().st_size]
        if filled and not new_run and not self.manifest.exists():
            raise UsageError(
                f"{filled[0]} is there, but not {self.manifest.name}, which says how its rollouts were made",
                "choose another --output; --new-run sets the file aside",
            )

    def set_aside(self) -> Path | None:
        """Move all there is of this run into a folder of its own, `<stem>.previous-N`; where it went, None if there was nothing."""
        parts = [self.output, *shard_files(self.output)]
        there = [path for path in [self.manifest, *parts, *map(failures_of, parts)] if path.exists()]
        if not there:
            return None
        with disk_errors(self.output):
            number = 1
            while (folder := self.output.with_name(f"{self.output.stem}.previous-{number}")).exists():
                number += 1
            folder.mkdir()
            for path in there:
                os.rename(path, folder / path.name)
            fsync(folder.parent)
        return folder


def shard_files(output: Path) -> list[Path]:
    """The rollout files of the shards of a run, sorted by number of shards and shard."""
    found = []
    for path in output.parent.glob("*-shard-*-of-*.jsonl"):
        match = _SHARD.search(path.stem)
        if match and path.stem[: match.start()] == output.stem:
            found.append((int(match[2]), int(match[1]), path))
    return [path for _, _, path in sorted(found)]


def failures_of(rollouts: Path) -> Path:
    """The file of the failures beside a file of rollouts."""
    return rollouts.with_name(f"{rollouts.stem}_failures.jsonl")


def agree(path: Path, wanted: Mapping[str, Any]) -> bool:
    """Make the manifest, or hold it against what this run is; whether it was there. Shards that start at once agree on one.

    Raises UsageError that names each difference; DataError if the file cannot be read.
    """
    content = (json.dumps({"format": FORMAT, **wanted}, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode()
    known = read(path)
    if known is None:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            with writing(draft) as temporary:
                temporary.write_bytes(content)
            try:
                os.link(draft, path)
                return False
            except FileExistsError:
                known = read(path) or {}
            finally:
                draft.unlink()
                fsync(path.parent)
    found = sorted(_differences(known, json.loads(content)))
    if found:
        raise UsageError(
            f"{path}: the rollouts that are there were made in another way:\n" + "\n".join(f"    {line}" for line in found),
            "run it as before to go on with it; --new-run sets what is there aside and starts anew; --output keeps both",
        )
    return True


def read(path: Path) -> dict[str, Any] | None:
    """A run's manifest; None if there is none. Raises DataError."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataError(f"{path}: not a manifest: {error}", "--new-run sets the run aside and starts anew") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: not a manifest", "--new-run sets the run aside and starts anew")
    return value


def _differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            if place or key not in UNCOMPARED:
                yield from _differences(old.get(key), new.get(key), f"{place}.{key}" if place else key)
    elif old != new or type(old) is not type(new):
        yield f"{place}: was {_shown(old)}, is {_shown(new)}"


def _shown(value: Any) -> str:
    return "not there" if value is None else json.dumps(value, ensure_ascii=False)
