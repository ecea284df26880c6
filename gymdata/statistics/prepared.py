"""What `gymdata prepare` wrote, as two tables per split: the facts of its rows and the numbers of its statistics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from gymdata.errors import DataError, UsageError
from gymdata.manifest import Manifest, read_manifest
from gymdata.rows.facts import describe
from gymdata.rows.lines import ByteRange, chunks
from gymdata.validation.catalogue import RULES

if TYPE_CHECKING:
    import polars

    from gymdata.environments.model import Environment, RowField

READABLE = "readable"
"""The `answer` of a row that has what its verifier compares with; of any other row it is the reason why not."""

FACTS = "_facts.parquet"
NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Split:
    """One split of a prepared directory.

    `facts` has the columns of `statistics.facts`, with 0 for rows without tools, and `split` and `answer`. `statistics` are the
    numbers of `<split>_statistics.json` by dotted path, and `rows` (of the split's file), `rows_before` and `rows_kept`, the
    first divided by the second (None where nothing was before).
    """

    facts: polars.DataFrame
    statistics: dict[str, float | None]


def read_splits(
    directory: Path,
    environment: Environment,
    baseline: Mapping[str, int] | None = None,
    *,
    answers: bool = True,
    unreadable: Mapping[str, Mapping[int, str]] = NONE,
) -> dict[str, Split]:
    """The splits of a prepared directory, of which only the rows of `environment`.

    `baseline` are the rows of each split before: None for those of the state that the last `prepare` replaced.
    `answers` False leaves out that column, for which the rows are read; `unreadable` is what is already known for it: by split,
    the lines of its file, and why the verifier cannot read their answer. Raises UsageError if the directory is not prepared, or
    was not measured.
    """
    import polars as pl

    manifest = load_manifest(directory, environment.name)
    before = manifest.previous if baseline is None else baseline
    files = _files(manifest, environment)
    rows = {Path(output.path).stem: output.rows for output in manifest.outputs if output.path.endswith(".jsonl")}
    splits: dict[str, Split] = {}
    for output in manifest.outputs:
        if output.path.endswith(FACTS):
            name = output.path.removesuffix(FACTS)
            facts = pl.read_parquet(directory / output.path)
            if "findings" not in facts.columns:
                raise UsageError(
                    f"{directory} was written by an older gymdata", f"delete it, and run `gymdata prepare {environment.name}`"
                )
            facts = facts.filter(pl.col("file").is_in(files))
            facts = facts.with_columns(pl.col("tools").fill_null(0), pl.lit(name).alias("split"))
            if answers:
                found = dict(read_answers(directory / f"{name}.jsonl", environment, unreadable.get(name, {})))
                rows_found = zip(facts["key"], facts["findings"], strict=True)
                states = [_state(found.get(key, "not in the split's file"), codes) for key, codes in rows_found]
                facts = facts.with_columns(pl.Series("answer", states, dtype=pl.String))
            numbers = _numbers(directory / f"{name}_statistics.json")
            count, old = rows.get(name) or 0, before.get(name)
            numbers |= {"rows": count, "rows_before": old, "rows_kept": count / old if old else None}
            splits[name] = Split(facts, numbers)
    if not splits:
        raise UsageError(f"{directory} has no facts", f"run `gymdata prepare {environment.name}` (`collate` measures nothing)")
    return splits


def load_manifest(directory: Path, name: str) -> Manifest:
    """The manifest of a prepared directory. Raises UsageError if there is none."""
    manifest = read_manifest(directory)
    if manifest is None:
        raise UsageError(
            f"{directory} holds no prepared dataset", f"run `gymdata prepare {name}` first, or name its --output-dir"
        )
    return manifest


def read_answers(split: Path, environment: Environment, unreadable: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Content key (hexadecimal) and `answer` of each row of a split's file; that of the lines in `unreadable` is known."""
    number = 0
    for chunk in chunks(ByteRange(split, 0, split.stat().st_size)):
        for line in [b""] if isinstance(chunk, int) else chunk.split(b"\n"):
            number += 1
            if line.strip():
                row = msgspec.json.decode(line)
                yield describe(row).key.hex(), unreadable.get(number) or _answer(row, environment.required_fields)


_JSON_TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


_UNANSWERABLE = ("GD401", "GD403", "GD405", "GD407", "GD408")
"""Findings that say that no response, or only one with the very same text, can be right."""


def _state(answer: str, codes: str | None) -> str:
    """The `answer` of a row, its findings considered."""
    for code in _UNANSWERABLE:
        if answer == READABLE and code in (codes or ""):
            summary = RULES[code].summary.rstrip(".")
            return f"{summary[0].lower()}{summary[1:]} ({code})"
    return answer


def _answer(row: Mapping[str, Any], fields: Iterable[RowField]) -> str:
    """READABLE if the row has the fields that the verifier reads, or what is wrong with one."""
    for field in fields:
        found, value = field.locate(row)
        if not found:
            return f"{field.path} is missing"
        if value is None or value == [] or (isinstance(value, str) and not value.strip()):
            return f"{field.path} is empty"
        if not isinstance(value, _JSON_TYPES[field.type]) or (isinstance(value, bool) and field.type != "boolean"):
            return f"{field.path} is not of type {field.type}"
    return READABLE


def _files(manifest: Manifest, environment: Environment) -> list[str]:
    """The source files of an environment's rows; a directory may hold several environments."""
    instances = {dataset.instance for dataset in environment.datasets()}
    own = [source.path for source in manifest.inputs if source.instance in instances]
    return own if len(manifest.environments) > 1 else [source.path for source in manifest.inputs]


def _numbers(path: Path) -> dict[str, float | None]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read", "prepare the dataset again") from error
    numbers: dict[str, float | None] = {}

    def walk(value: Any, prefix: str) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(inner, f"{prefix}.{key}" if prefix else key)
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            numbers[prefix] = value

    walk(document, "")
    return numbers
