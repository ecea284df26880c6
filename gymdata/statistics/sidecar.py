"""The `{stem}_metrics.json` beside a source file: compared with fresh metrics by NeMo Gym's rule, written if it is not there."""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gymdata.atomic import disk_errors, write_bytes
from gymdata.errors import ExternalError
from gymdata.rows.columns import Columns
from gymdata.statistics.metrics import gym_metrics, to_json

ABSENT = "(absent)"
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

HEADER = ("name", "type", "jsonl_fpath", "num_repeats", "source", "gitlab_identifier", "huggingface_identifier", "license",
          "prepare_script", "prompt_config", "prepare_dependencies")  # fmt: skip
"""Keys before the metrics: of the dataset's entry."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something an existing sidecar has otherwise. `path` is dotted ("" for all of it), `new` is ABSENT for a lost key."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.path or 'the file'}: {_short(self.old)} there, {_short(self.new)} now"


@dataclass(frozen=True, slots=True)
class SidecarCheck:
    """What became of a sidecar. `differences` tells why it is a conflict, or was one before it was overwritten."""

    path: Path
    status: Literal["missing", "written", "up to date", "conflict", "overwritten", "not written, the folder is read-only"]
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.status}", *(f"  {difference}" for difference in self.differences)]
        return "\n".join(lines)


def sidecar_path(source: Path) -> Path:
    """Where the sidecar of a JSONL file is."""
    return source.with_name(f"{source.stem}_metrics.json")


def check_sidecar(path: Path, document: Mapping[str, Any]) -> SidecarCheck:
    """Compare the sidecar at `path`, if there is one, with what it should hold (the dataset's entry, then its metrics).

    Changes nothing. A sidecar that cannot be read as JSON is a conflict. Raises ExternalError if the disk refuses.
    """
    with disk_errors(path):
        if not path.exists():
            return SidecarCheck(path, "missing")
        data = path.read_bytes()
    try:
        old = json.loads(data)
        differences = tuple(compare(old, dict(document)))
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, ValueError) else "nested too deeply"
        differences = (Difference("", f"(not JSON: {what})", "metrics"),)
    return SidecarCheck(path, "conflict" if differences else "up to date", differences)


def update_sidecar(path: Path, document: Mapping[str, Any], overwrite: bool = False) -> SidecarCheck:
    """Check the sidecar at `path` and write it if there is none, or if it is in conflict and `overwrite` is set.

    One that agrees, if for columns that it lacks, is left as it is; where nobody may write, none is made. Raises ExternalError
    if the disk refuses otherwise.
    """
    check = check_sidecar(path, document)
    if check.status == "missing" or (check.status == "conflict" and overwrite):
        try:
            write_bytes(path, to_json(dict(document)))
        except ExternalError as error:
            reason = error.__cause__
            if check.status == "missing" and isinstance(reason, OSError) and reason.errno in _READ_ONLY:
                return SidecarCheck(path, "not written, the folder is read-only")
            raise
        return SidecarCheck(path, "written" if check.status == "missing" else "overwritten", check.differences)
    return check


def recheck(source: Path, columns_of: Callable[[], Columns]) -> SidecarCheck:
    """Compare the numbers in the sidecar of a data file with those of its rows, which are read only if there is a sidecar.

    What it says of the dataset besides (name, license, …) is taken from it. Raises ExternalError if the disk refuses.
    """
    path = sidecar_path(source)
    if not path.exists():
        return SidecarCheck(path, "missing")
    with disk_errors(path):
        try:
            old = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            old = {}
    header = {key: old[key] for key in HEADER if key in old} if isinstance(old, dict) else {}
    repeats = header.get("num_repeats", 1)
    metrics = gym_metrics([(columns_of(), repeats if isinstance(repeats, int) and repeats > 0 else 1)])
    return check_sidecar(path, header | metrics)


def compare(old: Any, new: Any, path: str = "") -> list[Difference]:
    """Differences by Gym's rule: everything in `old` must be in `new`, which may have more keys.

    Floats may differ by rounding (0.005; 0.0005 below 1), lists in order; the rest must be equal.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        differences: list[Difference] = []
        for key, value in old.items():
            place = f"{path}.{key}" if path else key
            differences += compare(value, new[key], place) if key in new else [Difference(place, value, ABSENT)]
        return differences
    if isinstance(old, list) and isinstance(new, list):
        return _compare_lists(old, new, path)
    if isinstance(old, float) and isinstance(new, float):
        tolerance = 5e-3 if max(abs(old), abs(new)) >= 1 else 5e-4
        return [] if old == new or abs(old - new) <= tolerance else [Difference(path, old, new)]
    return [] if old == new else [Difference(path, old, new)]


def _compare_lists(old: list[Any], new: list[Any], path: str) -> list[Difference]:
    if len(old) != len(new):
        return [Difference(path, old, new)]
    try:
        return [] if Counter(old) == Counter(new) else [Difference(path, old, new)]
    except TypeError:  # elements that are lists or objects: each takes the first one left that agrees
        left = list(new)
        differences: list[Difference] = []
        for index, element in enumerate(old):
            for position, candidate in enumerate(left):
                if not compare(element, candidate):
                    del left[position]
                    break
            else:
                differences.append(Difference(f"{path}[{index}]", element, ABSENT))
        return differences


def _short(value: Any) -> str:
    if isinstance(value, str) and value.startswith("("):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
