"""The exact path: everything there is to say about one line, and what it holds if it can be used."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding
from gymdata.validation.rules import content, rollout, schema, syntax

Kind = Literal["task", "rollout"]


class Judgement(NamedTuple):
    """Findings of a line; `row` and `params` only where none of the findings is an error."""

    findings: list[Finding]
    row: dict[str, Any] | None
    params: dict[str, Any] | None
    """The create-params as NeMo Gym dumps them; None for a materialised task."""


def judge(line: bytes, kind: Kind = "task") -> Judgement:
    """Judge a line (without its line feed) as a task, or as a rollout: a task with its response and reward."""
    value, findings = syntax.parse(line)
    if value is syntax.MISSING:
        return Judgement(findings, None, None)
    told = {finding.path for finding in findings if is_error(finding)}
    more, params = schema.check(value)
    if kind == "rollout" and isinstance(value, dict):
        more += rollout.check(value)
    findings += [finding for finding in more if finding.path not in told]
    if not isinstance(value, dict) or any(is_error(finding) for finding in findings):
        return Judgement(findings, None, None)
    findings += content.check(value)
    if any(is_error(finding) for finding in findings):
        return Judgement(findings, None, None)
    return Judgement(findings, value, params)


def is_error(finding: Finding) -> bool:
    """Whether a finding makes its row unusable."""
    return RULES[finding.code].severity == "error"
