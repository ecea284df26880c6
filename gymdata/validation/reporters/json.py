"""The report as one JSON document: the contract of `validate --format json`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from typing_extensions import TypedDict  # pydantic takes that of `typing` from Python 3.12 on

from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding, Severity
from gymdata.validation.report import FileReport, Report


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
    files: list[FileDocument] = [
        {"file": file.file, "rows": file.rows, "valid": file.valid, "findings": list(map(_finding, findings))}
        for file, findings in _chosen(report, max_findings)
    ]
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
    return "".join(pieces(report, max_findings))


def pieces(report: Report, max_findings: int | None = None) -> Iterator[str]:
    """The text of the document, finding by finding: of millions it is ten times as large as they are."""
    begin, *rests = json.dumps(document(report, 0), indent=2).split(_NO_FINDINGS)
    yield begin
    for (_, findings), rest in zip(_chosen(report, max_findings), rests, strict=True):
        separator = '"findings": ['
        for finding in findings:
            members = ",\n          ".join(f'"{name}": {json.dumps(value)}' for name, value in _finding(finding).items())
            yield f"{separator}\n        {{\n          {members}\n        }}"
            separator = ","
        yield ("\n      ]" if findings else _NO_FINDINGS) + rest
    yield "\n"


_NO_FINDINGS = '"findings": []'


def _chosen(report: Report, max_findings: int | None) -> Iterator[tuple[FileReport, list[Finding]]]:
    left = None if max_findings is None else max(0, max_findings)
    for file in report.files:
        findings = file.findings[:left]
        left = None if left is None else left - len(findings)
        yield file, findings


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
