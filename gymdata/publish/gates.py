"""Why a dataset may not leave: what is not validated, stale, forbidden, secret, or cannot be scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gymdata.environments import licenses
from gymdata.environments.model import Environment, RowField
from gymdata.environments.registry import load, required_fields
from gymdata.errors import UsageError
from gymdata.manifest import InputFile, Manifest, is_intact, sha256
from gymdata.publish.dataset import Dataset, Split
from gymdata.rows.columns import Columns
from gymdata.rows.lines import ByteRange, chunks
from gymdata.scan import check_file, scan_file
from gymdata.statistics.metrics import gym_metrics
from gymdata.statistics.sidecar import Difference, compare, recheck
from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding
from gymdata.validation.judge import Kind

_STAMPS = ("agent_ref", "task_source")
_LAST_DIGIT = 0.0101
"""Metrics are rounded to two digits; rows added up in another order may round the other way."""


@dataclass(frozen=True)
class Objection:
    """A finding and the file that it is about."""

    file: str
    finding: Finding


def objections(dataset: Dataset, accept_secrets: bool = False, jobs: int = 1) -> Iterator[Objection]:
    """Why the dataset may not leave, each as a finding (GD7xx): nothing yielded means that it may.

    The rows are judged and measured once more, whatever the manifest says of them.
    """
    manifest = dataset.manifest
    again = "run `gymdata prepare` again"
    if not is_intact(dataset.directory, manifest):
        yield Objection("manifest.json", Finding("GD701", "$", "the files are not the ones that were validated", again))
    for source in manifest.inputs:
        yield from _source(source, manifest, again, jobs)
    yield from _license(dataset)
    for split in dataset.splits:
        if not split.rows:
            yield Objection(split.path.name, Finding("GD707", "$", "the split has no rows", "leave it out with --split"))
            continue
        yield from _rows(split, again, jobs)
        if split.name == "train":
            yield from _verifier_fields(split, dataset.environment, manifest.environments)
        if not accept_secrets:
            from gymdata.publish.secrets import find_secrets

            for finding in find_secrets(split.path, jobs):
                yield Objection(split.path.name, finding)


def _source(source: InputFile, manifest: Manifest, again: str, jobs: int) -> Iterator[Objection]:
    """Whether a source, and the metrics file beside it, are still what was prepared."""
    path = Path(source.path)
    if not path.is_file():
        return
    if sha256(path) != source.sha256:
        yield Objection(source.path, Finding("GD702", "$", "the source has changed since it was prepared", again))
        return
    entry = next((one for one in manifest.config if one.get("jsonl_fpath") == source.path), {})
    in_part = manifest.options.get("limit") is not None or any(entry.get(key) is not None for key in ("start_idx", "end_idx"))
    if in_part or entry.get("prompt_config"):
        return
    check = recheck(path, lambda: _measured(path, jobs)[0])
    if check.status == "conflict":
        hint = "prepare again with --overwrite-metrics"
        yield Objection(source.path, Finding("GD702", "$", _shown(f"{check.path.name} is stale", check.differences), hint))


def _rows(split: Split, again: str, jobs: int) -> Iterator[Objection]:
    """Whether the rows are valid, and the statistics beside them theirs."""
    columns, findings = _measured(split.path, jobs)
    errors = [one for one in findings if RULES[one.code].severity == "error"]
    if errors:
        first = f"{len(errors):,} errors, first {errors[0].code} ({errors[0].message})"
        hint = f"`gymdata validate {split.path}` shows them"
        yield Objection(split.path.name, Finding("GD701", errors[0].path, first, hint, errors[0].line))
    if not split.metrics:
        yield Objection(split.path.name, Finding("GD702", "$", "the split has no statistics beside it", again))
        return
    own = {name: value for name, value in split.metrics.items() if name not in _STAMPS}
    differences = [one for one in compare(own, gym_metrics([(columns, 1)])) if not _rounded(one)]
    if differences and not errors:
        name = split.path.with_name(f"{split.path.stem}_metrics.json").name
        yield Objection(name, Finding("GD702", "$", _shown("these are not the numbers of the rows", differences), again))


def _measured(path: Path, jobs: int) -> tuple[Columns, list[Finding]]:
    columns, rows = Columns(), 0
    kind: Kind = "task"
    findings: list[Finding] = []
    for scan in scan_file(path, jobs=jobs):
        rows += scan.rows
        kind = scan.kind
        findings += scan.findings
        for part in scan.columns.values():
            columns.merge(part)
    return columns, check_file(path, [columns], rows, findings, [], kind)


def _rounded(difference: Difference) -> bool:
    old, new = difference.old, difference.new
    return isinstance(old, float) and isinstance(new, float) and abs(old - new) <= _LAST_DIGIT


def _shown(what: str, differences: Any) -> str:
    more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
    return f"{what}: {'; '.join(map(str, differences[:3]))}{more}"


def _license(dataset: Dataset) -> Iterator[Objection]:
    where = "manifest.json"
    if not dataset.licenses:
        hint = "give the dataset's entry a `license`, or --license"
        yield Objection(where, Finding("GD703", "$.config", "there is no license", hint))
    for name in dataset.licenses:
        if licenses.forbids_publishing(name):
            yield Objection(where, Finding("GD703", "$.config", f"the license forbids it: {name}", "it must not be published"))
        elif licenses.spdx(name) == "NOASSERTION":
            hint = "settle the license first, then give the dataset's entry a `license`, or --license"
            yield Objection(where, Finding("GD703", "$.config", "the license is still to be decided (TBD)", hint))


def _verifier_fields(split: Split, environment: Environment, names: Sequence[str]) -> Iterator[Objection]:
    """At most one finding per field, with the first line that lacks it. `names` are of the environments collated together."""
    missing: dict[str, tuple[int, int]] = {}
    by_server: dict[str, tuple[RowField, ...]] = {}
    for name in names:
        with suppress(UsageError):  # one that was given by its path is the environment itself
            by_server |= required_fields(load(name)) if name != environment.name else {}
    by_server |= required_fields(environment)
    number = 0
    anything = environment.required_fields or any(by_server.values())
    for chunk in chunks(ByteRange(split.path, 0, split.path.stat().st_size)) if anything else ():
        for line in [b""] if isinstance(chunk, int) else chunk.split(b"\n"):
            number += 1
            if not line.strip():
                continue
            row = msgspec.json.decode(line)
            for field in _fields_of(row, environment, by_server):
                if not field.locate(row)[0]:
                    first, count = missing.get(field.path, (number, 0))
                    missing[field.path] = (first, count + 1)
    for name, (first, count) in missing.items():
        hint = "the verifier cannot score a row without it"
        yield Objection(split.path.name, Finding("GD705", f"$.{name}", f"{count:,} rows lack {name!r}", hint, first))


def _fields_of(row: Any, environment: Environment, by_server: Mapping[str, tuple[RowField, ...]]) -> tuple[RowField, ...]:
    """The fields that a row needs, by its stamp, which may be of another environment; without one those that this one names."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else row.get("task_source")
    return by_server.get(name, ()) if isinstance(name, str) and by_server else environment.required_fields
