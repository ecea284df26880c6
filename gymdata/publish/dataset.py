"""What is to be published: a prepared directory and its environment, and the reasons not to let it leave."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gymdata.environments import licenses
from gymdata.environments.model import Environment
from gymdata.errors import UsageError
from gymdata.manifest import Manifest, is_intact, read_manifest, sha256
from gymdata.publish.diff import SPLITS
from gymdata.rows.lines import ByteRange, chunks
from gymdata.validation.findings import Finding

PUBLISHABLE = ("train", "validation", "test", "example", "benchmark")


@dataclass(frozen=True)
class Split:
    """One split file of the directory."""

    name: str
    path: Path
    rows: int
    metrics: dict[str, Any]
    """NeMo Gym's statistics, without its header."""


@dataclass(frozen=True)
class Dataset:
    """A prepared directory, ready to be looked at."""

    directory: Path
    environment: Environment
    manifest: Manifest
    splits: tuple[Split, ...]
    licenses: tuple[str, ...]
    """NeMo Gym's strings, or SPDX identifiers, of what went into the splits."""

    @property
    def sidecars(self) -> tuple[Path, ...]:
        """Statistics files of the splits that are published."""
        names = {f"{split.name}_{kind}.json" for split in self.splits for kind in ("metrics", "statistics")}
        return tuple(sorted(path for name in names if (path := self.directory / name).is_file()))


@dataclass(frozen=True)
class Objection:
    """A finding and the file that it is about."""

    file: str
    finding: Finding


def load_dataset(directory: Path, environment: Environment, splits: tuple[str, ...] = (), license: str | None = None) -> Dataset:
    """A prepared directory as a dataset; `splits` empty means all but the examples, if there are others.

    Raises UsageError if the directory is not prepared, or lacks a split that was asked for.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        raise UsageError(
            f"{directory} holds no prepared dataset", f"run `gymdata prepare {environment.name}` first, or name its --output-dir"
        )
    rows = {Path(output.path).stem: output.rows for output in manifest.outputs if output.path.endswith(".jsonl")}
    found = [name for name in SPLITS if name in rows]
    wanted = list(splits) or [name for name in found if name != "example"] or found
    if missing := [name for name in wanted if name not in rows]:
        raise UsageError(f"{directory} has no split {', '.join(missing)}", f"it has {', '.join(found)}")
    types = {*wanted, *(["train"] if "validation" in wanted else [])}  # a validation split may be a part of the train rows
    entries = [entry for entry in manifest.config if entry.get("type") in types] or manifest.config
    declared = [licenses.canonical(license)] if license else [str(entry["license"]) for entry in entries if entry.get("license")]
    return Dataset(
        directory,
        environment,
        manifest,
        tuple(
            Split(name, directory / f"{name}.jsonl", rows[name] or 0, read_metrics(directory / f"{name}_metrics.json"))
            for name in wanted
        ),
        tuple(sorted(set(declared))),
    )


def objections(dataset: Dataset, accept_secrets: bool = False) -> Iterator[Objection]:
    """Why the dataset may not leave, each as a finding (GD7xx): nothing yielded means that it may."""
    manifest = dataset.manifest
    again = f"run `gymdata prepare {' '.join(manifest.environments)}` again"
    if not is_intact(dataset.directory, manifest):
        yield Objection("manifest.json", Finding("GD701", "$", "the files are not the ones that were validated", again))
    for source in manifest.inputs:
        path = Path(source.path)
        if path.is_file() and sha256(path) != source.sha256:
            yield Objection(source.path, Finding("GD702", "$", "the source has changed since it was prepared", again))
    yield from _license(dataset)
    for split in dataset.splits:
        if not split.rows:
            yield Objection(split.path.name, Finding("GD707", "$", "the split has no rows", "leave it out with --split"))
        if not split.metrics:
            yield Objection(split.path.name, Finding("GD702", "$", "the split has no statistics beside it", again))
        if split.name == "train":
            yield from _verifier_fields(split, dataset.environment)
        if not accept_secrets:
            from gymdata.publish.secrets import find_secrets

            for finding in find_secrets(split.path):
                yield Objection(split.path.name, finding)


def _license(dataset: Dataset) -> Iterator[Objection]:
    where = "manifest.json"
    if not dataset.licenses:
        hint = "give the dataset's entry a `license`, or --license"
        yield Objection(where, Finding("GD703", "$.config", "there is no license", hint))
    for name in dataset.licenses:
        if re.search(r"internal.use|do.not.distribute", name, re.IGNORECASE):
            yield Objection(where, Finding("GD703", "$.config", f"the license forbids it: {name}", "it must not be published"))
        elif licenses.spdx(name) == "NOASSERTION":
            hint = "settle the license first, then give the dataset's entry a `license`, or --license"
            yield Objection(where, Finding("GD703", "$.config", "the license is still to be decided (TBD)", hint))


def _verifier_fields(split: Split, environment: Environment) -> Iterator[Objection]:
    """At most one finding per field, with the first line that lacks it."""
    missing: dict[str, tuple[int, int]] = {}
    fields = environment.required_fields
    number = 0
    for chunk in chunks(ByteRange(split.path, 0, split.path.stat().st_size)) if fields else ():
        for line in [b""] if isinstance(chunk, int) else chunk.split(b"\n"):
            number += 1
            if not line.strip():
                continue
            row = msgspec.json.decode(line)
            for field in fields:
                if not field.locate(row)[0]:
                    first, count = missing.get(field.path, (number, 0))
                    missing[field.path] = (first, count + 1)
    for name, (first, count) in missing.items():
        hint = f"the verifier of {environment.name} cannot score a row without it"
        yield Objection(split.path.name, Finding("GD705", f"$.{name}", f"{count:,} rows lack {name!r}", hint, first))


def read_metrics(path: Path) -> dict[str, Any]:
    """NeMo Gym's statistics in a `_metrics.json` without its header; {} if there is no such file, or it is not one."""
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    header = {"name", "type", "jsonl_fpath", "num_repeats", "source", "gitlab_identifier", "huggingface_identifier", "license"}
    return {name: value for name, value in document.items() if name not in header} if isinstance(document, dict) else {}
