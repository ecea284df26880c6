"""Validating files on their own: every finding of each, nothing written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gymdata.environments.model import Environment
from gymdata.environments.prompt import Prompt
from gymdata.errors import UsageError
from gymdata.rows.columns import Columns
from gymdata.scan import check_file, scan_file
from gymdata.statistics.sidecar import recheck
from gymdata.validation.changed import DATA_SUFFIXES
from gymdata.validation.findings import Finding
from gymdata.validation.judge import Kind, is_error
from gymdata.validation.report import FileReport


@dataclass(frozen=True, slots=True)
class Target:
    """A file to read, what to call it, and what its environment knows of it."""

    path: Path
    name: str = ""
    required: tuple[str, ...] = ()
    prompt: Prompt | None = None
    environment: Environment | None = None
    instance: str = ""
    """The server instance that declares the file."""


@dataclass(slots=True)
class Measured:
    """A file that was read: what was found, and the columns of its accepted rows."""

    report: FileReport
    columns: Columns = field(default_factory=Columns)


def measure(
    target: Target,
    *,
    kind: Kind | None = None,
    encoding: str | None = None,
    sidecar: bool = False,
    jobs: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Measured:
    """Read a file; with `sidecar`, also compare the metrics file beside it. Raises UsageError if there is no such file."""
    path, name = target.path, target.name or str(target.path)
    if not path.is_file():
        raise UsageError(f"there is no file {name}", "give paths of JSONL files, or names of environments")
    columns, rows, done = Columns(), 0, 0
    found: Kind = kind or "task"
    findings: list[Finding] = []
    total = path.stat().st_size

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(name, done, total)

    for scan in scan_file(path, kind=kind, prompt=target.prompt, encoding=encoding, jobs=jobs, on_bytes=on_bytes):
        rows += scan.rows
        found = scan.kind
        findings += scan.findings
        for part in scan.columns.values():
            columns.merge(part)
    findings = check_file(path, [columns], rows, findings, list(target.required), found)
    if sidecar:
        findings = check_metrics(path, columns) + findings
    return Measured(FileReport(name, rows, len(columns), findings), columns)


def with_gold(
    targets: Sequence[Target],
    reports: Sequence[FileReport],
    names: Sequence[str] = (),
    configs: Sequence[str] = (),
    *,
    jobs: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> tuple[list[FileReport], int, int]:
    """The reports of files with the findings of the gold check added; rows checked, and those without an answer to try.

    Rows with errors are not checked. `names` are the environments whose verifiers score the rows; without them and without
    `configs` all built-in ones and the user's own: enough for rows that name their agent. Raises UsageError for rows of none.
    """
    from gymdata.environments import registry
    from gymdata.environments.config import load_config
    from gymdata.gold import GoldFile, check_gold

    given = [registry.load(name, (), configs) for name in names] or ([load_config(configs)] if configs else [])
    known = given or ([] if all(target.environment for target in targets) else [registry.load(name) for name in registry.names()])
    skipped = [{finding.line for finding in report.findings if is_error(finding)} for report in reports]
    files = [
        GoldFile(target.path, given or ([target.environment] if target.environment else known), target.instance, skip)
        for target, skip in zip(targets, skipped, strict=True)
        if 0 not in skip
    ]
    done = dict.fromkeys(range(len(files)), 0)

    def on_bytes(at: int, count: int) -> None:
        done[at] += count
        on_progress(f"{files[at].path.name} (gold)", done[at], files[at].path.stat().st_size)

    checked = check_gold(files, jobs=jobs, on_bytes=on_bytes)
    left = iter(checked)
    found = [next(left).findings if 0 not in skip else [] for skip in skipped]
    merged = []
    for report, more in zip(reports, found, strict=True):
        refused = {finding.line for finding in more if is_error(finding)}
        findings = sorted([*report.findings, *more], key=lambda finding: finding.line)
        merged.append(FileReport(report.file, report.rows, report.valid - len(refused), findings))
    return merged, sum(one.rows for one in checked), sum(one.unanswered for one in checked)


def check_metrics(path: Path, columns: Columns) -> list[Finding]:
    """The finding, if any, that the metrics file beside a data file does not fit its rows."""
    check = recheck(path, lambda: columns)
    if check.status != "conflict":
        return []
    shown = "; ".join(map(str, check.differences[:5])) + (
        f"; and {len(check.differences) - 5} more" * (len(check.differences) > 5)
    )
    return [
        Finding(
            "GD113",
            "$",
            f"{check.path.name} does not fit the rows: {shown}",
            "prepare again with --overwrite-metrics, commit both",
        )
    ]


def targets(names: Sequence[str], configs: Sequence[str] = ()) -> list[Target]:
    """What the words of a command line name: paths, environments, or the environment of `configs`."""
    from gymdata.environments import registry
    from gymdata.environments.config import load_config

    found: list[Target] = []
    environments = [load_config(configs)] if configs and not names else []
    for name in names:
        if name in registry.names() and not Path(name).is_file():
            environments.append(registry.load(name, (), configs))
        elif Path(name).is_dir():
            inside = [path for path in sorted(Path(name).rglob("*")) if path.name.endswith(DATA_SUFFIXES) and not path.is_dir()]
            if not inside:
                raise UsageError(f"the folder {name!r} holds no data file", f"data files end in {', '.join(DATA_SUFFIXES)}")
            found += [Target(path) for path in inside if path.name != "rejected.jsonl"]
        elif Path(name).is_file():
            found.append(Target(Path(name)))
        else:
            raise UsageError(
                f"{name!r} is neither a file nor an environment", f"the environments are {', '.join(registry.names())}"
            )
    for environment in environments:
        required = tuple(entry.path for entry in environment.required_fields if "." not in entry.path and not entry.also_in)
        for dataset in environment.datasets():
            found.append(Target(dataset.path, dataset.jsonl_fpath, required, dataset.prompt, environment, dataset.instance))
    return found
