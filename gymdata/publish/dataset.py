"""What is to be published: a prepared directory and its environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymdata import __version__
from gymdata.environments import licenses
from gymdata.environments.model import Environment
from gymdata.errors import UsageError
from gymdata.manifest import Manifest, read_manifest
from gymdata.publish.card import Origin
from gymdata.publish.diff import SPLITS
from gymdata.statistics.sidecar import HEADER

PUBLISHED_AS = {"benchmark": "test"}
"""Names of splits that are other than their file's: NeMo Gym fetches a benchmark's rows from the split `test`."""


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

    def origin(self, split: str) -> Origin:
        """How one of the splits came to be."""
        sources = [source for source in self.manifest.inputs if PUBLISHED_AS.get(source.type, source.type) == split]
        if split == "validation" and self.manifest.options.get("validation_fraction"):
            sources += [source for source in self.manifest.inputs if source.type == "train"]
        inputs = tuple((Path(source.path).name, source.sha256) for source in sources or self.manifest.inputs)
        made_by = self.manifest.versions.get("gymdata", __version__)
        return Origin(made_by, self.manifest.fingerprint, inputs, self.licenses)

    @property
    def sidecars(self) -> dict[str, Path]:
        """Statistics files of the splits that are published, by their names in the repository."""
        found = {}
        for split in self.splits:
            for kind in ("metrics", "statistics"):
                path = split.path.with_name(f"{split.path.stem}_{kind}.json")
                if path.is_file():
                    found[f"{split.name}_{kind}.json"] = path
        return found


def load_dataset(directory: Path, environment: Environment, splits: tuple[str, ...] = (), license: str | None = None) -> Dataset:
    """A prepared directory as a dataset; `splits` empty means all but the examples, if there are others.

    Raises UsageError if the directory is not prepared, or lacks a split that was asked for.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        raise UsageError(
            f"{directory} holds no prepared dataset", "run `gymdata prepare` first, or name the --output-dir that it wrote to"
        )
    files = {Path(output.path).stem: output for output in manifest.outputs if output.path.endswith(".jsonl")}
    stems = {PUBLISHED_AS.get(stem, stem): stem for stem in SPLITS if stem in files}
    wanted = [PUBLISHED_AS.get(name, name) for name in splits] or [name for name in stems if name != "example"] or list(stems)
    if missing := [name for name in wanted if name not in stems]:
        raise UsageError(f"{directory} has no split {', '.join(missing)}", f"it has {', '.join(stems)}")
    types = {*(stems[name] for name in wanted)}
    if "validation" in types:  # which may be a part of the train rows
        types.add("train")
    entries = [entry for entry in manifest.config if entry.get("type") in types] or manifest.config
    declared = [str(entry["license"]) for entry in entries if entry.get("license")]
    if license:  # which settles an open question, but lifts no prohibition
        declared = [licenses.canonical(license), *filter(licenses.forbids_publishing, declared)]
    chosen = []
    for name in dict.fromkeys(wanted):
        path = directory / files[stems[name]].path
        chosen.append(Split(name, path, files[stems[name]].rows or 0, read_metrics(path.with_name(f"{path.stem}_metrics.json"))))
    return Dataset(directory, environment, manifest, tuple(chosen), tuple(sorted(set(declared))))


def read_metrics(path: Path) -> dict[str, Any]:
    """NeMo Gym's statistics in a `_metrics.json` without its header; {} if there is no such file, or it is not one."""
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: value for name, value in document.items() if name not in HEADER} if isinstance(document, dict) else {}
