"""Reports kept beside the runs: the findings of each prepared dataset, as the document of `gymdata validate --format json`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from gymdata.atomic import write_bytes
from gymdata.validation.findings import Finding
from gymdata.validation.report import FileReport, Report
from gymdata.validation.reporters.json import render


def folder(environment: str) -> Path:
    """Where reports on an environment are kept."""
    return Path(os.environ.get("DAGSTER_HOME") or ".dagster_home", "reports", environment)


def report_path(environment: str, fingerprint: str = "refused") -> Path:
    """Where the report on a prepared dataset is, by the manifest's fingerprint; without one, that on refused rows."""
    return folder(environment) / f"{fingerprint[:16]}.json"


def save(report: Report, path: Path) -> None:
    """Keep a report. Raises ExternalError if the disk refuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, render(report).encode())


def load(path: Path) -> Report | None:
    """A report that was kept; None if there is none."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return Report(
        tuple(
            FileReport(
                file["file"],
                file["rows"],
                file["valid"],
                [Finding(one["code"], one["path"], one["message"], one["hint"], one["line"]) for one in file["findings"]],
            )
            for file in document["files"]
        )
    )
