"""Where on its line a finding is, in characters: read again from the files, for the reports that can show it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path

from gymdata.rows import spans
from gymdata.rows.lines import ByteRange, DamagedFile, chunks
from gymdata.validation.findings import Finding
from gymdata.validation.report import FileReport
from gymdata.validation.rules import syntax

Place = tuple[int, int]
"""First column and the one after the last, in Unicode characters, from 1."""

_BOM = b"\xef\xbb\xbf"
_MAX_BYTES = 4 * 1024 * 1024
"""Beyond this a line is not read once more for a column."""


def columns(file: FileReport, findings: Collection[Finding]) -> dict[Finding, Place]:
    """The places of `findings`, which are of `file`; none for those whose line, value or file is not there or not sound."""
    wanted: dict[int, list[Finding]] = {}
    for finding in findings:
        if finding.line and finding.path != "$":
            wanted.setdefault(finding.line, []).append(finding)
    found: dict[Finding, Place] = {}
    for number, line in _lines(Path(file.file), max(wanted, default=0)):
        if number not in wanted or len(line) > _MAX_BYTES or syntax.parse(line)[0] is syntax.MISSING:
            continue
        line = line.removeprefix(_BOM)
        root = spans.parse(line)
        for finding in wanted[number]:
            start, stop = spans.locate(root, finding.path)
            first = len(line[:start].decode()) + 1
            found[finding] = (first, first + len(line[start:stop].decode()))
    return found


def _lines(path: Path, last: int) -> Iterator[tuple[int, bytes]]:
    number = itertools.count(1)
    if last:
        try:
            for chunk in chunks(ByteRange(path, 0, 2**63)):
                for line in [b""] if isinstance(chunk, int) else chunk.split(b"\n"):
                    at = next(number)
                    if at > last:
                        return
                    yield at, line
        except (OSError, DamagedFile):
            return
