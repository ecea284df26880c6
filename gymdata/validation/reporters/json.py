"""The report as one JSON document: the contract of `validate --format json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice

from typing_extensions import TypedDict  # pydantic takes that of `typing` from Python 3.12 on

from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding, Severity
from gymdata.validation.report import Report


class FindingDocument(TypedDict):
    """`line` counts from 1, 0 is the whole file; `path` is a JSON path; `fixable` says whether `--fix` repairs such a finding."""

    line: int
    severity: Severity
    code: str
    path: str
    message: str
    hint: str
    fixable: bool


class FileDocument(TypedDict):
    """`rows` are non-blank lines, `valid` those without an error."""

    file: str
    rows: int
    valid: int
    findings: list[FindingDocument]


class SummaryDocument(TypedDict):
    """Totals, also of findings that `--max-findings` left out."""

    files: int
    rows: int
    valid: int
    errors: int
    warnings: int


class Document(TypedDict):
    """What `gymdata validate --format json` prints."""

    files: list[FileDocument]
    summary: SummaryDocument


def document(report: Report, max_findings: int | None = None) -> Document:
    """The report, with its first `max_findings` findings."""
    left = iter(range(max_findings)) if max_findings is not None else None
    files: list[FileDocument] = []
    for file in report.files:
        findings: Sequence[Finding] = file.findings
        if left is not None:
            findings = [finding for finding, _ in zip(file.findings, islice(left, len(file.findings)), strict=False)]
        files.append({"file": file.file, "rows": file.rows, "valid": file.valid, "findings": [_finding(one) for one in findings]})
    summary: SummaryDocument = {
        "files": len(report.files),
        "rows": report.rows,
        "valid": report.valid,
        "errors": report.errors,
        "warnings": report.warnings,
    }
    return {"files": files, "summary": summary}


def render(report: Report, max_findings: int | None = None) -> str:
    """The document as text in ASCII, so that no terminal, pipe or half of a surrogate pair can spoil it."""
    return json.dumps(document(report, max_findings), indent=2) + "\n"


def _finding(finding: Finding) -> FindingDocument:
    rule = RULES[finding.code]
    return {
        "line": finding.line,
        "severity": rule.severity,
        "code": finding.code,
        "path": finding.path,
        "message": finding.message,
        "hint": finding.hint,
        "fixable": rule.fixable,
    }
