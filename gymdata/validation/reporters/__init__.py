"""Reports of findings: for people, for programs, for code scanning and for pull requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gymdata.validation.report import Report

Format = Literal["text", "json", "sarif", "github", "markdown"]


def render(report: Report, form: Format | str, *, max_findings: int | None = None, color: bool = False) -> str:
    """The report in a format; it ends with a line feed unless it is empty. `color` is for text alone."""
    return "".join(pieces(report, form, max_findings=max_findings, color=color))


def pieces(report: Report, form: Format | str, *, max_findings: int | None = None, color: bool = False) -> Iterable[str]:
    """The same in pieces, for writing without holding all of it."""
    from gymdata.validation.reporters import github, json, sarif, text

    match form:
        case "text":
            return [text.render(report, max_findings=max_findings, color=color)]
        case "json":
            return json.pieces(report, max_findings)
        case "sarif":
            return [sarif.render(report, max_findings)]
        case "github":
            return [github.render(report, max_findings)]
        case "markdown":
            return [github.markdown(report)]
    raise ValueError(form)
