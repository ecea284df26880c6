"""A finding: one thing wrong with one place of one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong (`code`, `message`), where (`line`, 1-based, 0 for the whole file; `path`, a JSON path), and the remedy."""

    code: str
    path: str
    message: str
    hint: str = ""
    line: int = 0

    def at(self, line: int) -> Finding:
        """The same finding, placed on a line."""
        return Finding(self.code, self.path, self.message, self.hint, line)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a code means. `bad` and `good` are example rows, one a line; the tests check that they are what they claim."""

    code: str
    name: str
    severity: Severity
    summary: str
    why: str
    fix: str
    bad: str
    good: str
    fixable: bool = False
    """Whether `gymdata validate --fix` repairs it."""
