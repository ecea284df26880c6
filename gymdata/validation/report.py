"""What a validation found: findings by file, and their totals."""

from __future__ import annotations

from dataclasses import dataclass

from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file: its non-blank lines, those without an error, and its findings in line order."""

    file: str
    rows: int
    valid: int
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Report:
    """All files."""

    files: tuple[FileReport, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def valid(self) -> int:
        return sum(file.valid for file in self.files)

    @property
    def errors(self) -> int:
        return self._count("error")

    @property
    def warnings(self) -> int:
        return self._count("warning")

    def _count(self, severity: str) -> int:
        return sum(RULES[finding.code].severity == severity for file in self.files for finding in file.findings)
