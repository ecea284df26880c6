"""The first flow: datasets of environments, validated, measured, collated into splits, all or nothing."""

from __future__ import annotations

import contextlib
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gymdata import __version__
from gymdata.atomic import remove_leftovers, staged
from gymdata.collate import SplitWriter, shuffle
from gymdata.engine.local import end_sharing
from gymdata.environments.model import DatasetConfig, Environment
from gymdata.environments.registry import fixtures
from gymdata.errors import ConfigError, DataError, ExternalError, UsageError
from gymdata.manifest import MANIFEST, InputFile, Manifest, OutputFile, fingerprint, is_intact, read_manifest, sha256
from gymdata.rows.columns import Columns
from gymdata.rows.lines import COMPRESSED_SUFFIXES, offset_of_line
from gymdata.rows.stamp import StampKind, stamps
from gymdata.scan import REJECTED, Collation, check_file, scan_file
from gymdata.statistics.facts import facts_frames, write_facts
from gymdata.statistics.metrics import gym_metrics, to_json
from gymdata.statistics.sidecar import SidecarCheck, check_sidecar, sidecar_path, update_sidecar
from gymdata.statistics.statistics import summarise
from gymdata.statistics.tokens import TokenCounter
from gymdata.validation.findings import Finding
from gymdata.validation.judge import Kind
from gymdata.validation.report import FileReport, Report
from gymdata.validation.rules.dataset import check_splits

if TYPE_CHECKING:
    from polars import DataFrame

    from gymdata.sources.huggingface import Fetched

Mode = Literal["train_preparation", "example_validation"]
SPLITS: dict[str, tuple[str, ...]] = {
    "train_preparation": ("train", "validation", "benchmark"),
    "example_validation": ("example",),
}
"""Types of datasets in scope, and the splits they make: NeMo Gym's."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to prepare; every option that changes an output."""

    mode: Mode = "train_preparation"
    on_invalid: Literal["fail", "quarantine"] = "fail"
    stamp: StampKind = "agent_ref"
    validation_fraction: float = 0.0
    shuffle: int | None = None
    """Seed of a shuffle of the train split."""
    limit: int | None = None
    """Rows read of each dataset."""
    encoding: str | None = "o200k_base"
    """Tokenizer encoding; None counts no tokens."""
    measure: bool = True
    """Whether metrics, statistics and facts are written."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` did."""

    directory: Path
    manifest: Manifest
    report: Report
    cached: bool = False
    """Whether nothing was done, because inputs and options had not changed."""
    sidecars: tuple[SidecarCheck, ...] = ()
    """What became of the metrics file beside each source file."""


class InvalidRows(DataError):
    """Rows have errors, and they were not to be quarantined, or files cannot be read; `report` has every finding."""

    def __init__(self, report: Report) -> None:
        hint = (
            "mend the rows (`gymdata validate --fix` repairs what is mechanical), or leave them out with --on-invalid quarantine"
        )
        if _unreadable(report):
            hint = "mend the files that cannot be read, or take them out of the configuration"
        super().__init__(f"{report.errors:,} error{'' if report.errors == 1 else 's'}; nothing was written", hint)
        self.report = report


def _unreadable(report: Report) -> bool:
    """Whether a file is no JSON Lines, or only the beginning of it: its rows cannot be put aside, for nobody knows them."""
    return any(finding.code == "GD100" for file in report.files for finding in file.findings)


class SidecarConflict(DataError):
    """Committed metrics do not fit the rows beside them."""

    def __init__(self, conflicts: Sequence[SidecarCheck]) -> None:
        super().__init__(
            "\n".join(map(str, conflicts)),
            "if the rows are right, accept their numbers with --overwrite-metrics; nothing was written",
        )
        self.conflicts = tuple(conflicts)


@dataclass(slots=True)
class _Source:
    """A dataset on its way through."""

    environment: Environment
    dataset: DatasetConfig
    state: tuple[int, ...]
    """Of its file when the digest was begun."""
    digest: Future[str]
    columns: dict[str, Columns] = field(default_factory=dict)
    """By split."""
    rows: int = 0
    valid: int = 0
    kind: Kind = "task"
    findings: list[Finding] = field(default_factory=list)
    metrics: dict[str, Any] | None = None
    """Of its rows, if they are in one split and were measured for the file beside them."""


def prepare(
    environments: Sequence[Environment],
    directory: Path,
    options: Options = Options(),
    *,
    download: bool = False,
    data_source: Literal["huggingface", "gitlab"] | None = None,
    overwrite_metrics: bool = False,
    jobs: int = 1,
    accept: Callable[[Report], None] = lambda report: None,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
    on_wait: Callable[[], None] = lambda: None,
    on_fetched: Callable[[Fetched], None] = lambda fetched: None,
) -> Prepared:
    """Validate, measure and collate the datasets of `environments` into `directory`, which changes in one step or not at all.

    `download` fetches missing files from their sources (`data_source` decides where a dataset names two) and takes, for built-in
    environments, the public data instead of the bundled rows. `accept(report)` may raise before anything is written.
    `on_progress(file, bytes, of bytes)`, `on_wait` (another run holds the directory) and `on_fetched` tell how it goes. Raises InvalidRows,
    SidecarConflict, ConfigError, UsageError and ExternalError.
    """
    started = time.monotonic()
    with ThreadPoolExecutor(1) as digests:
        found = source_files(environments, options, download=download, data_source=data_source, on_fetched=on_fetched)
        sources = _sources(found, directory, digests)
        before = read_manifest(directory)
        made_from = None
        if before is not None:
            made_from = _fingerprint(sources, options)
            if before.fingerprint == made_from and is_intact(directory, before) and _sidecars_stand(sources, options, before):
                remove_leftovers(directory)
                return Prepared(directory, before, _report(sources), cached=True)
        with staged(directory, lambda: _outputs_of(directory), on_wait) as stage, SplitWriter(stage) as writer:
            for source in sources:
                _scan(source, stage, writer, options, jobs, on_progress)
            end_sharing()
            _stood_still(sources)
            report = _check(sources, options)
            accept(report)
            documents = _sidecars(sources, options) if options.measure else []
            conflicts = [check for path, document in documents if (check := check_sidecar(path, document)).status == "conflict"]
            if conflicts and not overwrite_metrics:
                raise SidecarConflict(conflicts)
            outputs = _finish_splits(sources, stage, writer, options)
            outputs += _write_statistics(sources, stage, options) if options.measure else []
            sidecars = tuple([update_sidecar(path, document, overwrite_metrics) for path, document in documents])
            manifest = Manifest(
                environments=tuple(environment.name for environment in environments),
                fingerprint=made_from or _fingerprint(sources, options),
                options=asdict(options),
                config=[source.dataset.model_dump(mode="json") for source in sources],
                inputs=tuple(_input(source, options) for source in sources),
                outputs=tuple(outputs),
                findings=dict(sorted(Counter(finding.code for source in sources for finding in source.findings).items())),
                previous=_rows_before(before, environments),
                versions=_versions(),
                seconds=round(time.monotonic() - started, 3),
            )
            (stage / MANIFEST).write_bytes(manifest.to_json())
    return Prepared(directory, manifest, report, sidecars=sidecars)


def source_files(
    environments: Sequence[Environment],
    options: Options,
    *,
    download: bool = False,
    data_source: Literal["huggingface", "gitlab"] | None = None,
    on_fetched: Callable[[Fetched], None] = lambda fetched: None,
) -> list[tuple[Environment, DatasetConfig]]:
    """The datasets that `prepare` would read, each with its file in place.

    With `download`, a file is fetched first that is missing, or was fetched from another source or revision than is named now.
    Raises ConfigError for one that is not there, or not from there, UsageError if nothing is in scope, ExternalError for a source.
    """
    from gymdata.sources.remote import fetch_dataset, is_of_another_source

    found = [(one, dataset) for one in environments for dataset in one.datasets(SPLITS[options.mode], real=download)]
    for environment, dataset in found:
        if download and (not dataset.path.is_file() or is_of_another_source(dataset)):
            on_fetched(fetch_dataset(dataset, environment, data_source))
    for _, dataset in found:
        if not dataset.path.is_file():
            remedy = (
                "fetch it with --download"
                if dataset.source
                else "mend `jsonl_fpath`, or name the dataset's `source` and use --download"
            )
            raise ConfigError(f"the dataset {dataset.name!r} has no file {dataset.jsonl_fpath}", remedy, *dataset.place)
        if is_of_another_source(dataset):
            why = f"{dataset.jsonl_fpath} was fetched from another source or revision than the dataset {dataset.name!r} names now"
            raise ConfigError(why, "fetch it anew with --download", *dataset.place)
    if not found:
        names = ", ".join(environment.name for environment in environments)
        raise UsageError(
            f"{names}: no dataset of type {' or '.join(SPLITS[options.mode])}, which is what --mode {options.mode} prepares",
            "declare one under an agent or a resources server, or choose the other --mode",
        )
    return found


def _sources(found: Sequence[tuple[Environment, DatasetConfig]], directory: Path, digests: ThreadPoolExecutor) -> list[_Source]:
    """The datasets, each with the digest of its file under way."""
    for _, dataset in found:
        if dataset.path.resolve().parent == directory.resolve():
            raise UsageError(
                f"{directory} holds the source file {dataset.path.name}, which the outputs might overwrite",
                "choose another --output-dir",
            )
    return [
        _Source(environment, dataset, _state(dataset.path), digests.submit(sha256, dataset.path))
        for environment, dataset in found
    ]


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file is written to or replaced."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _stood_still(sources: Sequence[_Source]) -> None:
    """Raises ExternalError for a file that somebody wrote to: what was read may be neither what is there nor what the digest is of."""
    for source in sources:
        source.digest.result()
        if _state(source.dataset.path) != source.state:
            message = f"{source.dataset.jsonl_fpath} was changed while it was read; nothing was written"
            raise ExternalError(message, "run again once nobody writes to it")


def _scan(
    source: _Source, stage: Path, writer: SplitWriter, options: Options, jobs: int, on_progress: Callable[[str, int, int], None]
) -> None:
    """Judge, measure and collate one dataset; its rows go to the end of their splits."""
    dataset, path = source.dataset, source.dataset.path
    agent = source.environment.agent_of(dataset) if options.stamp != "task_source" else ""
    writer.touch(dataset.type)
    start, stop = _window(dataset, options)
    done, total = 0, (path.stat().st_size if stop is None else stop) - start

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(dataset.jsonl_fpath, done, total)

    collation = Collation(
        directory=stage,
        split=dataset.type,
        stamps=stamps(options.stamp, agent, dataset.instance),
        repeats=dataset.num_repeats,
        validation_fraction=options.validation_fraction if dataset.type == "train" else 0.0,
        keep_rejected=options.on_invalid == "quarantine",
    )
    lines = first_line = _line_number(path, start)
    for scan in scan_file(
        path,
        collation=collation,
        prompt=dataset.prompt,
        encoding=options.encoding,
        start=start,
        stop=stop,
        jobs=jobs,
        on_bytes=on_bytes,
    ):
        source.kind = scan.kind
        source.rows += scan.rows
        source.findings += [finding.at(finding.line + first_line - 1) if finding.line else finding for finding in scan.findings]
        for split, columns in scan.columns.items():
            columns.shift_lines(first_line - 1)
            source.valid += len(columns)
            if split in source.columns:
                source.columns[split].merge(columns)
            else:
                source.columns[split] = columns
        for split, part in scan.parts.items():
            if split == REJECTED:
                writer.append_rejected(part, dataset.jsonl_fpath, lines)
            else:
                writer.append(split, part)
        lines += scan.lines


def _window(dataset: DatasetConfig, options: Options) -> tuple[int, int | None]:
    """The bytes of the file that hold the rows asked for; None for the end of the file."""
    first, end = dataset.start_idx or 0, dataset.end_idx
    if options.limit is not None:
        end = min(first + options.limit, end if end is not None else first + options.limit)
    if not first and end is None:
        return 0, None
    if dataset.path.suffix in COMPRESSED_SUFFIXES:
        raise ConfigError(
            f"the dataset {dataset.name!r} is compressed: start_idx, end_idx and --limit need a plain file",
            "decompress the file",
            *dataset.place,
        )
    return offset_of_line(dataset.path, first), None if end is None else offset_of_line(dataset.path, end)


def _line_number(path: Path, offset: int) -> int:
    """Number of the line that begins at a byte offset."""
    number = 1
    if offset:
        with open(path, "rb") as stream:
            while offset > 0:
                block = stream.read(min(offset, 1 << 20))
                number += block.count(b"\n")
                offset -= len(block)
    return number


def _check(sources: Sequence[_Source], options: Options) -> Report:
    """Add the findings that concern several rows; raises InvalidRows if errors are not to be quarantined."""
    for source in sources:
        source.findings = check_file(
            source.dataset.path,
            list(source.columns.values()),
            source.rows,
            source.findings,
            [entry.path for entry in source.environment.required_fields if "." not in entry.path and not entry.also_in],
            source.kind,
        )
        start, stop = source.dataset.start_idx, source.dataset.end_idx
        if not source.rows and (start or stop) and any(finding.code == "GD510" for finding in source.findings):
            source.findings = [Finding("GD510", "$", f"the file has no row from start_idx {start or 0} on", "mend `start_idx`")]
    validation = [source for source in sources if "validation" in source.columns]
    train = [(source.dataset.jsonl_fpath, source.columns["train"]) for source in sources if "train" in source.columns]
    for source in validation:
        source.findings += check_splits(train, source.columns["validation"])
    report = _report(sources)
    if report.errors and (options.on_invalid == "fail" or _unreadable(report)):
        raise InvalidRows(report)
    if not any(source.valid for source in sources) and any(source.rows for source in sources):
        raise InvalidRows(report)
    return report


def _report(sources: Sequence[_Source]) -> Report:
    return Report(
        tuple(
            FileReport(
                file=source.dataset.jsonl_fpath,
                rows=source.rows,
                valid=source.valid,
                findings=sorted(source.findings, key=lambda finding: finding.line),
            )
            for source in sources
        )
    )


def _sidecars(sources: Sequence[_Source], options: Options) -> list[tuple[Path, dict[str, Any]]]:
    """Path and content of the metrics file beside each source file that was read whole, but for the bundled rows."""
    documents: dict[Path, dict[str, Any]] = {}
    for source in sources:
        dataset = source.dataset
        in_part = options.limit is not None or dataset.start_idx is not None or dataset.end_idx is not None
        if not in_part and not _bundled(source):
            metrics = gym_metrics([(columns, dataset.num_repeats) for columns in source.columns.values()])
            source.metrics = metrics if len(source.columns) == 1 else None
            documents.setdefault(sidecar_path(dataset.path), dataset.metrics_header() | metrics)
    return list(documents.items())


def _sidecars_stand(sources: Sequence[_Source], options: Options, before: Manifest) -> bool:
    """Whether the metrics files beside the source files are those that an earlier run wrote or checked."""
    return [entry.metrics_sha256 for entry in before.inputs] == [_metrics_digest(source, options) for source in sources]


def _metrics_digest(source: _Source, options: Options) -> str | None:
    path = sidecar_path(source.dataset.path)
    return sha256(path) if options.measure and not _bundled(source) and path.is_file() else None


def _bundled(source: _Source) -> bool:
    """Whether the rows come with gymdata: what stands beside them was made with them, and may be where nobody can write."""
    return source.environment.builtin and source.dataset.path.is_relative_to(fixtures())


def _finish_splits(sources: Sequence[_Source], stage: Path, writer: SplitWriter, options: Options) -> list[OutputFile]:
    """Close the split files, shuffle train if asked to, and count their rows."""
    outputs: list[OutputFile] = []
    for split, output in writer.close().items():
        rows = sum(len(source.columns[split]) * source.dataset.num_repeats for source in sources if split in source.columns)
        update: dict[str, Any] = {"rows": rows if split != REJECTED else sum(source.rows - source.valid for source in sources)}
        if split == "train" and options.shuffle is not None:
            update["sha256"] = shuffle(stage / output.path, options.shuffle)
        outputs.append(output.model_copy(update=update))
    return outputs


def _write_statistics(sources: Sequence[_Source], stage: Path, options: Options) -> list[OutputFile]:
    """Write metrics, statistics and facts of each split."""
    outputs: list[OutputFile] = []
    tokenizer = TokenCounter(options.encoding).tokenizer if options.encoding else None
    for split in dict.fromkeys(split for source in sources for split in (source.dataset.type, *source.columns)):
        members = [source for source in sources if split in source.columns]
        header = next(source.dataset for source in (*members, *sources) if split in (source.dataset.type, *source.columns))
        metrics = members[0].metrics if len(members) == 1 else None
        if metrics is None:
            metrics = gym_metrics([(source.columns[split], source.dataset.num_repeats) for source in members])
        if members:
            write_facts(stage / f"{split}_facts.parquet", chain.from_iterable(_facts(source, split) for source in members))
        merged = Columns()
        for source in members:
            columns = source.columns.pop(split)
            if len(merged):
                merged.merge(columns)
            else:
                merged = columns
        documents = {
            f"{split}_metrics.json": to_json(header.metrics_header(aggregate=True) | metrics),
            f"{split}_statistics.json": summarise(merged, tokenizer=tokenizer).model_dump_json(indent=2).encode() + b"\n",
        }
        for name, data in documents.items():
            (stage / name).write_bytes(data)
        written = [*documents, *([f"{split}_facts.parquet"] if members else [])]
        outputs += [OutputFile(path=name, sha256=sha256(stage / name), bytes=(stage / name).stat().st_size) for name in written]
    return outputs


def _facts(source: _Source, split: str) -> Iterator[DataFrame]:
    codes: dict[int, str] = {}
    for finding in source.findings:
        before = codes.get(finding.line, "")
        if finding.code not in before:
            codes[finding.line] = f"{before} {finding.code}".lstrip()
    return facts_frames(source.columns[split], source.dataset.jsonl_fpath, codes)


def _input(source: _Source, options: Options) -> InputFile:
    from gymdata.sources.remote import revision_of

    return InputFile(
        path=source.dataset.jsonl_fpath,
        sha256=source.digest.result(),
        bytes=source.dataset.path.stat().st_size,
        dataset=source.dataset.name,
        type=source.dataset.type,
        instance=source.dataset.instance,
        rows=source.rows,
        valid=source.valid,
        revision=revision_of(source.dataset.path, source.digest.result()),
        metrics_sha256=_metrics_digest(source, options),
    )


def _fingerprint(sources: Sequence[_Source], options: Options) -> str:
    entries = [
        [
            source.environment.name,
            source.dataset.instance,
            source.dataset.model_dump(mode="json"),
            source.digest.result(),
            source.dataset.prompt.model_dump(mode="json") if source.dataset.prompt else None,
        ]
        for source in sources
    ]
    return fingerprint(__version__, asdict(options), entries)


def _rows_before(before: Manifest | None, environments: Sequence[Environment]) -> dict[str, int]:
    if before is None or before.environments != tuple(environment.name for environment in environments):
        return {}
    return {Path(output.path).stem: output.rows for output in before.outputs if output.rows is not None}


def _outputs_of(directory: Path) -> list[str]:
    """What an earlier run wrote to `directory`, which the next one replaces; a folder of that name is not of that run."""
    manifest = read_manifest(directory)
    return [output.path for output in manifest.outputs if not (directory / output.path).is_dir()] if manifest else []


def _versions() -> dict[str, str]:
    names = ("msgspec", "polars", "pydantic", "toktok-rs", "tiktoken")
    found = {"gymdata": __version__, "python": platform.python_version()}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
