"""The report as SARIF 2.1.0, for code scanning: rules with their help, findings with line, columns and a lasting fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gymdata import __version__
from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding, Rule
from gymdata.validation.report import FileReport, Report
from gymdata.validation.reporters.places import Place, columns

MAX_RESULTS = 25_000
"""What GitHub takes of one run."""

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning"}


def render(report: Report, max_findings: int | None = None, root: Path | None = None) -> str:
    """The SARIF log as text. Paths are relative to `root`, by default a GitHub workflow's checkout, or the working directory.

    Past MAX_RESULTS findings the errors come first and the log says how many were left out.
    """
    return json.dumps(log(report, max_findings, root), indent=2) + "\n"


def log(report: Report, max_findings: int | None = None, root: Path | None = None) -> dict[str, Any]:
    """The SARIF log as a document."""
    root = (root or checkout()).resolve()
    limit = MAX_RESULTS if max_findings is None else min(max_findings, MAX_RESULTS)
    chosen = first_findings(report, limit)
    codes = sorted({finding.code for _, findings in chosen for finding in findings})
    results = []
    for file, findings in chosen:
        places, seen = columns(file, findings), Counter[str]()
        results += [_result(file, finding, codes, places.get(finding), root, seen) for finding in findings]
    total = report.errors + report.warnings
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if total > len(results):
        text = f"{total - len(results)} of {total} findings were left out"
        invocation["toolExecutionNotifications"] = [{"level": "note", "message": {"text": text}}]
    driver = {
        "name": "gymdata",
        "version": __version__,
        "rules": [_rule(RULES[code]) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def checkout() -> Path:
    """The folder that paths in a report start from: a workflow's checkout if we are in it, else the working directory."""
    here, workspace = Path.cwd(), os.environ.get("GITHUB_WORKSPACE")
    return Path(workspace) if workspace and here.is_relative_to(Path(workspace).resolve()) else here


def relative(file: str, root: Path) -> str | None:
    """A file's path from `root`, with slashes; None if it lies elsewhere."""
    path = Path(os.path.realpath(os.path.dirname(file) or "."), os.path.basename(file))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else None


def first_findings(report: Report, limit: int) -> list[tuple[FileReport, list[Finding]]]:
    """At most `limit` findings by file, in order; where they are too many, errors before warnings."""
    if report.errors + report.warnings <= limit:
        return [(file, file.findings) for file in report.files]
    taken: dict[int, list[tuple[int, Finding]]] = {}
    for severity in ("error", "warning"):
        for number, file in enumerate(report.files):
            for at, finding in enumerate(file.findings):
                if limit > 0 and RULES[finding.code].severity == severity:
                    taken.setdefault(number, []).append((at, finding))
                    limit -= 1
    by_place = {number: [one for _, one in sorted(found, key=lambda pair: pair[0])] for number, found in taken.items()}
    return [(report.files[number], found) for number, found in sorted(by_place.items())]


def _rule(rule: Rule) -> dict[str, Any]:
    examples = "".join(
        f"\n\n{title}:\n\n```json\n{example}\n```"
        for title, example in (("Not accepted", rule.bad), ("Accepted", rule.good))
        if example.strip()
    )
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\n\n{rule.fix}", "markdown": f"{rule.why}\n\n**Remedy:** {rule.fix}{examples}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["data"], "problem.severity": rule.severity, "precision": "very-high"},
    }


def _result(
    file: FileReport, finding: Finding, codes: list[str], place: Place | None, root: Path, seen: Counter[str]
) -> dict[str, Any]:
    # Lines move when rows are added, so a finding is known by what it says, and by its number among its likes.
    name = relative(file.file, root)
    likeness = "\0".join((name or file.file, finding.code, finding.path, finding.message))
    seen[likeness] += 1
    digest = hashlib.sha256(f"{likeness}\0{seen[likeness]}".encode("utf-8", "backslashreplace")).hexdigest()
    region: dict[str, int] = {"startLine": max(1, finding.line)}
    if place:
        region |= {"startColumn": place[0], "endColumn": place[1]}
    if name is None:
        artifact = {"uri": Path(os.path.abspath(file.file)).as_uri()}
    else:
        artifact = {"uri": quote(os.fsencode(name)), "uriBaseId": "%SRCROOT%"}
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVELS[RULES[finding.code].severity],
        "message": {"text": finding.message + (f"\nhelp: {finding.hint}" if finding.hint else "")},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": artifact, "region": region},
                "logicalLocations": [{"fullyQualifiedName": finding.path, "kind": "member"}],
            }
        ],
        "partialFingerprints": {"gymdataFinding/v1": digest},
    }
