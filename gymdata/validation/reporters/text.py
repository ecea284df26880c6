"""The report for people: of each kind of finding the first few in full, the rest counted, with the lines where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding
from gymdata.validation.report import FileReport, Report

SHOWN_OF_EACH = 3
"""Findings of one code in one file that are shown in full unless told otherwise."""

_MAX_RANGES = 8
_RED, _YELLOW, _CYAN, _BOLD, _DIM = "31", "33", "36", "1", "2"


def render(report: Report, *, max_findings: int | None = None, color: bool = False) -> str:
    """All findings, errors first; `max_findings` of them in full, by default SHOWN_OF_EACH of each code in each file."""
    left = max_findings
    blocks: list[str] = []
    for file in report.files:
        groups = _by_code(file.findings)
        quotas = _quotas([len(group) for group in groups], left)
        for group, quota in zip(groups, quotas, strict=True):
            blocks.append("\n".join(_group(file, group, quota, _Paint(color))) + "\n")
        left = None if left is None else left - sum(quotas)
    return "\n".join(blocks)


def summary(report: Report, *, color: bool = False) -> str:
    """The totals: a table of codes where there is more than one, and a line on files and rows."""
    paint = _Paint(color)
    counts = Counter(finding.code for file in report.files for finding in file.findings)
    lines: list[str] = []
    width = max((len(RULES[code].name) for code in counts), default=0)
    for code in sorted(counts, key=lambda code: (RULES[code].severity, code)) if len(counts) > 1 else ():
        rule = RULES[code]
        label = paint(f"{code} {rule.severity:<7}", _severity_color(code))
        fix = paint("--fix", _CYAN) if rule.fixable else ""
        lines.append(f"  {label} {counts[code]:>9,}  {rule.name:<{width}}  {fix}".rstrip())
    if lines:
        lines.append("")
    fixable = sum(number for code, number in counts.items() if RULES[code].fixable)
    files = count(len(report.files), "file")
    verdict = f"{count(report.errors, 'error')}, {count(report.warnings, 'warning')}"
    verdict = paint(verdict, _BOLD, _RED if report.errors else _YELLOW if report.warnings else "32")
    lines.append(f"{files}, {report.valid:,} of {count(report.rows, 'row')} valid: {verdict}")
    if counts:
        repairs = f"{fixable:,} may be repaired with --fix; " if fixable else ""
        lines.append(paint(f"{repairs}`gymdata explain {min(counts)}` says more of a code", _DIM))
    return "\n".join(lines)


def line_ranges(numbers: Iterable[int], most: int = _MAX_RANGES) -> str:
    """Sorted line numbers as `3-17, 20, 44, …`; at most so many ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last in ranges[:most]]
    return ", ".join(shown) + (f", … {ranges[-1][1]:,}" if len(ranges) > most else "")


def plain(text: str) -> str:
    """Text that came out of data, unable to steer a terminal or to break a line."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def count(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class _Paint:
    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._on else text


def _group(file: FileReport, findings: Sequence[Finding], quota: int, paint: _Paint) -> Iterator[str]:
    rule = RULES[findings[0].code]
    told = None
    for finding in findings[:quota]:
        place = paint(plain(file.file), _BOLD) + (f":{finding.line}" if finding.line else "")
        label = paint(f"{rule.code} {rule.severity}", _BOLD, _severity_color(rule.code))
        path = "" if finding.path == "$" else paint(plain(finding.path), _CYAN) + ": "
        yield f"{place}  {label}  {path}{plain(finding.message)}"
        if finding.hint and finding.hint != told:
            yield paint("    help: ", _DIM) + plain(finding.hint)
        told = finding.hint
    rest = findings[quota:]
    if rest:
        numbers = dict.fromkeys(finding.line for finding in rest)
        start = f"    … {len(rest):,} more" if quota else f"{plain(file.file)}  {len(rest):,}"
        lines = "line" if len(numbers) == 1 else "lines" if len(numbers) == len(rest) else f"{len(numbers):,} lines:"
        where = f" on {lines} {line_ranges(numbers)}" if any(numbers) else ""
        yield paint(f"{start} {rule.code} ({rule.name}){where}", _DIM if quota else "0")


def _by_code(findings: Sequence[Finding]) -> list[list[Finding]]:
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.code, []).append(finding)
    # What concerns the whole file comes first, then errors, then warnings, each by its first line.
    return sorted(groups.values(), key=lambda group: (RULES[group[0].code].severity, group[0].line))


def _quotas(sizes: Sequence[int], total: int | None) -> list[int]:
    """How many of each group to show: as evenly as they allow, so that no kind of finding is crowded out."""
    if total is None:
        return [min(size, SHOWN_OF_EACH) for size in sizes]
    quotas = [0] * len(sizes)
    while total > 0 and (hungry := [at for at, size in enumerate(sizes) if quotas[at] < size]):
        share = max(1, total // len(hungry))
        for at in hungry:
            given = min(share, sizes[at] - quotas[at], total)
            quotas[at] += given
            total -= given
    return quotas


def _severity_color(code: str) -> str:
    return _RED if RULES[code].severity == "error" else _YELLOW
