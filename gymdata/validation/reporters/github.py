"""The report for GitHub Actions: annotations on the lines of a pull request, and a job summary in Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding
from gymdata.validation.report import FileReport, Report
from gymdata.validation.reporters.places import columns
from gymdata.validation.reporters.sarif import checkout, relative
from gymdata.validation.reporters.text import count, line_ranges, plain

SHOWN_PER_STEP = 10
"""Annotations of one severity that GitHub shows of a step; the rest would be lost without a word."""

_MAX_MESSAGE = 2000
_MAX_SUMMARY = 900_000
"""Bytes; GitHub refuses a summary of more than 1 MiB."""

_EXAMPLES = 5
_MARKDOWN = re.compile(r"([\\`*_\[\]{}#|~@])")


def render(report: Report, max_findings: int | None = None, root: Path | None = None) -> str:
    """At most SHOWN_PER_STEP annotations of errors, then of warnings, of as many codes as can be, and how many more there are."""
    root = (root or checkout()).resolve()
    lines: list[str] = []
    left = max_findings
    for severity, total in (("error", report.errors), ("warning", report.warnings)):
        limit = SHOWN_PER_STEP if left is None else min(left, SHOWN_PER_STEP)
        chosen = _spread(report, severity, limit)
        left = None if left is None else left - len(chosen)
        for file in report.files:
            findings = [finding for owner, finding in chosen if owner is file]
            places = columns(file, findings)
            lines += [_annotation(severity, file, finding, places.get(finding), root) for finding in findings]
        if total > len(chosen):
            lines.append(f"gymdata: {count(total - len(chosen), f'more {severity}')} not shown here; the job summary counts all")
    return "".join(line + "\n" for line in lines)


def markdown(report: Report) -> str:
    """The job summary: files, codes, and the first examples of each code. Cut, and saying so, before GitHub would refuse it."""
    verdict = f"{count(report.errors, 'error')}, {count(report.warnings, 'warning')}"
    mark = "❌" if report.errors else "⚠️" if report.warnings else "✅"
    parts = [f"## {mark} gymdata: {verdict}\n\n", "| File | Rows | Valid | Errors | Warnings |\n|---|---:|---:|---:|---:|\n"]
    for file in report.files:
        errors = sum(RULES[finding.code].severity == "error" for finding in file.findings)
        cells = (f"{number:,}" for number in (file.rows, file.valid, errors, len(file.findings) - errors))
        parts.append(f"| {_text(file.file)} | {' | '.join(cells)} |\n")
    for file in report.files:
        if file.findings:
            parts.append(f"\n### {_text(file.file)}\n\n| Code | What | Findings | Lines |\n|---|---|---:|---|\n")
            groups = _groups(file.findings)
            for code, found in groups.items():
                rule = RULES[code]
                lines = dict.fromkeys(one.line for one in found)
                where = line_ranges(lines) if any(lines) else "the file"
                parts.append(f"| {code} | {rule.severity}: {_text(rule.summary)} | {len(found):,} | {where} |\n")
            parts.append("\n<details><summary>First examples, and what to do</summary>\n\n")
            for found in groups.values():
                parts += [_example(one) for one in found[:_EXAMPLES]]
            parts.append("\n</details>\n")
    text, size = "", 0
    for part in parts:
        size += len(part.encode("utf-8", "backslashreplace"))
        if size > _MAX_SUMMARY:
            return f"{text}\n\n</details>\n\nThe rest is too long for a job summary.\n"
        text += part
    return text


def _example(finding: Finding) -> str:
    place = f"line {finding.line}: " if finding.line else ""
    path = "" if finding.path == "$" else f"<code>{_text(finding.path)}</code>: "
    hint = f"<br>help: {_text(finding.hint)}" if finding.hint else ""
    return f"- {finding.code} {place}{path}{_text(finding.message)}{hint}\n"


def _annotation(severity: str, file: FileReport, finding: Finding, place: tuple[int, int] | None, root: Path) -> str:
    path = "" if finding.path == "$" else f"{finding.path}: "
    hint = f"\nhelp: {finding.hint}" if finding.hint else ""
    message = f"{path}{finding.message}"[:_MAX_MESSAGE] + hint[:_MAX_MESSAGE]
    properties = {"file": relative(file.file, root) or file.file}
    if finding.line:
        properties["line"] = str(finding.line)
        if place:
            properties |= {"col": str(place[0]), "endColumn": str(place[1])}
    properties["title"] = f"{finding.code} {RULES[finding.code].name}"
    listed = ",".join(f"{key}={_escaped(value, ',:')}" for key, value in properties.items())
    return f"::{severity} {listed}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """A value of a workflow command. What else cannot be printed is spelled out, for the log shows it raw."""
    text = "\n".join(plain(line) for line in text.replace("\r\n", "\n").split("\n"))
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _spread(report: Report, severity: str, limit: int) -> list[tuple[FileReport, Finding]]:
    """The first findings of each code in turn, then the second ones, until there are enough; in the order of the report."""
    queues: dict[str, list[tuple[int, FileReport, Finding]]] = {}
    order = 0
    for file in report.files:
        for finding in file.findings:
            order += 1
            if RULES[finding.code].severity == severity:
                queue = queues.setdefault(finding.code, [])
                if len(queue) < limit:
                    queue.append((order, file, finding))
    rounds: Iterator[tuple[int, FileReport, Finding]] = (
        queue[turn] for turn in range(limit) for queue in queues.values() if turn < len(queue)
    )
    chosen = [one for one, _ in zip(rounds, range(limit), strict=False)]
    return [(file, finding) for _, file, finding in sorted(chosen, key=lambda one: one[0])]


def _groups(findings: list[Finding]) -> dict[str, list[Finding]]:
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.code, []).append(finding)
    return dict(sorted(groups.items(), key=lambda pair: (RULES[pair[0]].severity, pair[1][0].line)))


def _text(text: str) -> str:
    """Data in Markdown, unable to be markup."""
    return _MARKDOWN.sub(r"\\\1", html.escape(plain(text), quote=False))
