"""From the files of an environment's datasets to rows that are known to be valid, measured and collated."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from dagster_defs import metadata, reports, resources
from dagster_defs.automation import WHEN_INPUTS_CHANGE
from dagster_defs.failures import RETRIES, explained
from dagster_defs.partitions import environments
from dagster_defs.resources import Preparation
from gymdata import __version__
from gymdata.engine.local import default_jobs
from gymdata.environments import licenses, registry
from gymdata.environments.model import DatasetConfig
from gymdata.errors import DataError
from gymdata.manifest import fingerprint, sha256
from gymdata.prepare import InvalidRows, Prepared, SidecarConflict
from gymdata.sources.remote import revision_of
from gymdata.statistics.sidecar import SidecarCheck, recheck, sidecar_path
from gymdata.validate import Target, measure
from gymdata.validation.report import Report
from gymdata.validation.reporters.json import render

LEAK = "GD505"


class SplitsOverlap(DataError):
    """Prompts of the validation split stand in the train split; `report` says which."""

    def __init__(self, report: Report) -> None:
        super().__init__(
            "rows of the validation split ask what the train split asks; nothing was written",
            "take them out of one of the two; --validation-fraction splits by prompt, so that none is in both",
        )
        self.report = report


def _blocking(name: str, asset: str, description: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name, asset=asset, blocking=True, description=description, partitions_def=environments)


@dg.asset(
    group_name="rows",
    owners=["team:data"],
    kinds={"jsonl", "huggingface"},
    partitions_def=environments,
    code_version=__version__,
    retry_policy=RETRIES,
    pool="hub",
    check_specs=[_blocking("license_present", "source_files", "Each dataset says under which license its rows are.")],
)
def source_files(context: dg.AssetExecutionContext, preparation: Preparation) -> dg.MaterializeResult:
    """The **files of rows** that the environment's configuration names, and their digests.

    With `download`, what is missing is fetched from the Hugging Face Hub or the GitLab registry. The data version is made from the
    files' content and the datasets' entries: a file that was only touched has the same.
    """
    with explained():
        environment = registry.load(context.partition_key)
        datasets = preparation.source_files(environment)
        digests = [sha256(dataset.path) for dataset in datasets]
    files = [
        {
            "dataset": dataset.name,
            "type": dataset.type,
            "file": dataset.jsonl_fpath,
            "bytes": dataset.path.stat().st_size,
            "license": dataset.license,
            "revision": revision_of(dataset.path, digest),
            "sha256": digest,
        }
        for dataset, digest in zip(datasets, digests, strict=True)
    ]
    prompts = [dataset.prompt.model_dump(mode="json") if dataset.prompt else None for dataset in datasets]
    version = fingerprint([dataset.model_dump(mode="json") for dataset in datasets], digests, prompts)
    return dg.MaterializeResult(
        metadata={
            "environment": dg.MetadataValue.md(environment.description or environment.name),
            "files": metadata.table(files, list(files[0])),
            "bytes": sum(file["bytes"] for file in files),
            "configuration": dg.MetadataValue.md("\n".join(f"- `{path}`" for path in environment.files)),
        },
        data_version=dg.DataVersion(version[:16]),
        check_results=[_license_present(datasets)],
    )


def _license_present(datasets: Sequence[DatasetConfig]) -> dg.AssetCheckResult:
    names = sorted({dataset.license for dataset in datasets if dataset.license})
    without = [dataset for dataset in datasets if not dataset.license]
    unsettled = [dataset for dataset in datasets if dataset.license and licenses.spdx(dataset.license) == "NOASSERTION"]
    said = [f"{dataset.name} has none" for dataset in without] + [f"{one.name}'s is still to be decided" for one in unsettled]
    # Examples need none to be worked with, nor is one that is to be decided in the way of that: only of publishing.
    serious = any(dataset.type != "example" for dataset in without)
    return dg.AssetCheckResult(
        check_name="license_present",
        passed=not said,
        severity=dg.AssetCheckSeverity.ERROR if serious else dg.AssetCheckSeverity.WARN,
        description=", ".join(said or names),
        metadata={"what to do": dg.MetadataValue.md("Give the dataset's entry a `license` in its YAML.")} if said else {},
    )


@dg.asset(
    group_name="rows",
    owners=["team:data"],
    kinds={"python", "jsonl"},
    partitions_def=environments,
    code_version=__version__,
    automation_condition=WHEN_INPUTS_CHANGE,
    deps=[source_files],
    check_specs=[
        _blocking("no_invalid_rows", "validated_rows", "NeMo Gym and the trainers can use every row."),
        _blocking("sidecars_current", "validated_rows", "The metrics file beside each source file has the numbers of its rows."),
        _blocking(
            "splits_disjoint", "validated_rows", "No prompt of the validation split stands in the train split (by digest)."
        ),
    ],
)
def validated_rows(context: dg.AssetExecutionContext, preparation: Preparation) -> dg.MaterializeResult:
    """Every row **read once**: judged, measured, and, if all is well, written to its split, all in one step.

    `findings` shows what is wrong where. When a check fails nothing was written: the last good splits are as they were. With
    unchanged inputs and options nothing is done at all (`up to date`).
    """
    seen: list[Report] = []

    def accept(report: Report) -> None:
        seen.append(report)
        if any(finding.code == LEAK for file in report.files for finding in file.findings):
            raise SplitsOverlap(report)

    refusal, prepared = None, None
    conflicts: Sequence[SidecarCheck] = ()
    with explained():
        environment = registry.load(context.partition_key)
        try:
            prepared = preparation.prepare(environment, accept)
        except (InvalidRows, SidecarConflict, SplitsOverlap) as error:
            refusal = error
            resources.onlooker.failed(error)
            if isinstance(error, InvalidRows):
                seen.append(error.report)
            if isinstance(error, SidecarConflict):
                conflicts = error.conflicts
        if prepared is None:
            report, path = seen[-1], reports.report_path(environment.name)
            version = fingerprint(render(report), str(refusal))
            reports.save(report, path)
        else:
            version, path = prepared.manifest.fingerprint, reports.report_path(environment.name, prepared.manifest.fingerprint)
            if prepared.cached:
                report = reports.load(path) or prepared.report
                conflicts = _edited_sidecars(prepared, preparation.datasets(environment), path)
            else:
                report = prepared.report
                reports.save(report, path)
    inputs = prepared.manifest.inputs if prepared else ()
    codes = prepared.manifest.findings if prepared else Counter(one.code for file in report.files for one in file.findings)
    return dg.MaterializeResult(
        metadata={
            "rows": sum(one.rows for one in inputs) if prepared else report.rows,
            "valid": sum(one.valid for one in inputs) if prepared else report.valid,
            "errors": report.errors,
            "warnings": report.warnings,
            **({"by code": metadata.codes(codes)} if codes else {}),
            "findings": metadata.findings(report),
            "written": prepared is not None,
            **({"not written because": refusal.message} if refusal else {}),
            "up to date": prepared is not None and prepared.cached,
            **({"seconds": prepared.manifest.seconds} if prepared else {}),
            **({"splits": metadata.path(prepared.directory)} if prepared else {}),
            **({"report": metadata.path(path)} if path.exists() else {}),
        },
        data_version=dg.DataVersion(version[:16]),
        check_results=[
            _no_invalid_rows(report, prepared, preparation.on_invalid == "quarantine"),
            _sidecars_current(conflicts, prepared),
            _splits_disjoint(report, codes.get(LEAK, 0)),
        ],
    )


def _no_invalid_rows(report: Report, prepared: Prepared | None, quarantine: bool) -> dg.AssetCheckResult:
    passed = not report.errors or (prepared is not None and quarantine)
    bad = report.rows - report.valid
    said = f"{report.errors:,} errors in {bad:,} of {report.rows:,} rows" if report.errors else "no row has an error"
    return dg.AssetCheckResult(
        check_name="no_invalid_rows",
        passed=passed,
        description=said + ("; they were left out, and are in rejected.jsonl" if passed and report.errors else ""),
        metadata={
            "errors": report.errors,
            **({"lines": dg.MetadataValue.md(metadata.error_lines(report))} if report.errors else {}),
            **({"findings": metadata.findings(report, "error")} if report.errors else {}),
            **({} if passed else {"what to do": metadata.MEND}),
        },
    )


def _edited_sidecars(prepared: Prepared, datasets: Sequence[DatasetConfig], since: Path) -> list[SidecarCheck]:
    """Conflicts of metrics files that were written to after the rows were last read, as `since` was: `prepare` does not look again."""
    checks = []
    for dataset in datasets:
        sidecar = sidecar_path(dataset.path)
        whole = prepared.manifest.options["limit"] is None and dataset.start_idx is None and dataset.end_idx is None
        if not (whole and since.exists() and sidecar.exists() and sidecar.stat().st_mtime_ns > since.stat().st_mtime_ns):
            continue
        target = Target(dataset.path, prompt=dataset.prompt)
        checks.append(recheck(dataset.path, lambda target=target: measure(target, jobs=default_jobs()).columns))
    return [check for check in checks if check.status == "conflict"]


def _sidecars_current(conflicts: Sequence[SidecarCheck], prepared: Prepared | None) -> dg.AssetCheckResult:
    if not conflicts and prepared is None:
        said = "not compared, because the rows are to be mended first"
        return dg.AssetCheckResult(
            check_name="sidecars_current", passed=False, severity=dg.AssetCheckSeverity.WARN, description=said
        )
    if not conflicts:
        said = ", ".join(f"`{Path(one.path).name}` {one.status}" for one in prepared.sidecars) if prepared else ""
        return dg.AssetCheckResult(check_name="sidecars_current", passed=True, description=said or "nothing to compare")
    rows = [
        {"file": str(one.path), "number": difference.path, "there": difference.old, "now": difference.new}
        for one in conflicts
        for difference in one.differences
    ]
    return dg.AssetCheckResult(
        check_name="sidecars_current",
        passed=False,
        description=f"{len(rows):,} numbers are not those of the rows",
        metadata={
            "differences": metadata.table(rows, ["file", "number", "there", "now"]),
            "what to do": dg.MetadataValue.md(
                "If the rows are right, remove the metrics file, which is then written anew, or run it with `overwrite_metrics: true`"
                " (resource `preparation`). Nothing was written."
            ),
        },
    )


def _splits_disjoint(report: Report, leaks: int) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name="splits_disjoint",
        passed=not leaks,
        description=f"{leaks:,} rows of the validation split ask what the train split asks" if leaks else "no prompt is in both",
        metadata={
            "leaks": leaks,
            **({"findings": metadata.findings(report, code=LEAK), "what to do": metadata.MEND} if leaks else {}),
        },
    )
