"""Mechanical repairs of rows: what their author meant is plain, only the writing is not NeMo Gym's.

Bytes that need no repair stay as they are. A missing `strict` becomes null and not false: NeMo Gym wants the key, and null is how
it says what the absent key said, that the author made no choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gymdata.atomic import writing
from gymdata.errors import DataError, UsageError
from gymdata.rows import spans
from gymdata.rows.chat import translate
from gymdata.rows.lines import COMPRESSED_SUFFIXES, ByteRange, chunks
from gymdata.validation.findings import Finding
from gymdata.validation.judge import Kind, is_error, judge
from gymdata.validation.rules import files, syntax

_BOM = b"\xef\xbb\xbf"
_MAX_DIFFS = 5
_CONTEXT = 30
_MAX_SHOWN = 160


@dataclass(slots=True)
class RepairReport:
    """What `repair_file` did; `out` is None where there was nothing to repair."""

    path: Path
    out: Path | None = None
    lines: int = 0
    changed: int = 0
    """Lines that were changed or removed."""
    repairs: Counter[str] = field(default_factory=Counter)
    """Lines by name of the repair."""
    diff: str = ""
    """A unified diff of the first changed lines, cut to what changed in them."""


def repair(line: bytes, kind: Kind = "task") -> tuple[bytes, list[str]]:
    """The repaired bytes of a line (without its line feed), and the names of the repairs; b"" for a blank line, to be left out.

    A line without findings is returned as it is, but for a carriage return at its end. One whose findings the repairs would
    not make fewer (errors first, then warnings) is returned as it is too: a half-understood row is for its author.
    """
    names: list[str] = []
    if line.endswith(b"\r"):
        line, names = line[:-1], ["carriage return removed"]
    if line.startswith(_BOM):
        line, names = line.removeprefix(_BOM), [*names, "byte-order mark removed"]
    if not line.strip():
        return b"", ["blank line removed"]
    findings = judge(line, kind).findings
    if not findings or syntax.parse(line)[0] is syntax.MISSING:
        return line, names
    repaired, done = translate(line) if line.lstrip()[:1] == b"{" else (line, [])
    repaired, nulls = _without_nulls(repaired, kind)
    if nulls:
        repaired, more = translate(repaired)
        done += [*nulls, *more]
    if not done or _weight(judge(repaired, kind).findings) >= _weight(findings):
        return line, names
    return repaired, list(dict.fromkeys([*names, *done]))


def repair_file(
    path: Path,
    out: Path | None = None,
    *,
    lines: Collection[int] | None = None,
    kind: Kind = "task",
    overwrite: bool = False,
) -> RepairReport:
    """Write the repaired rows of a JSONL file to a new file, `{stem}.fixed.jsonl` beside it by default; nothing if all is well.

    `lines` are the numbers of the lines that have findings, if they are known: the others are copied, less their carriage
    returns. Raises UsageError where `out` is `path`, or exists and may not be overwritten; DataError where a line is too long.
    """
    out = fixed_path(path) if out is None else out
    if out.exists() and (out.samefile(path) or not overwrite):
        same = out.samefile(path)
        raise UsageError(
            f"{out} is the file to repair" if same else f"{out} exists",
            "repairs go to a new file: name another one" if same else "remove it, or name another file for the repaired rows",
        )
    with open(path, "rb") as stream:
        if files.sniff(stream.read(files.HEAD_BYTES), path.name):
            return RepairReport(path)  # not JSON Lines at all: no line of it is ours to change
    report = RepairReport(path)
    diffs: list[str] = []
    try:
        with writing(out) as temporary, open(temporary, "wb") as stream:
            for number, line in _lines(path):
                report.lines = number
                new, names = line.removesuffix(b"\r"), ["carriage return removed"] if line.endswith(b"\r") else []
                if lines is None or number in lines:
                    new, names = repair(line, kind)
                if new:
                    stream.write(new + b"\n")
                if names:
                    report.changed += 1
                    report.repairs.update(names)
                    if len(diffs) < _MAX_DIFFS:
                        diffs.append(_hunk(number, line, new, names))
            if not report.changed:
                raise _NothingToRepair
    except _NothingToRepair:
        return report
    report.out = out
    rest = report.changed - len(diffs)
    more = f"… and {rest:,} more changed lines\n" if rest else ""
    report.diff = f"--- {path}\n+++ {out}\n" + "".join(diffs) + more
    return report


def fixed_path(path: Path) -> Path:
    """Where the repaired rows of a file go: train.jsonl -> train.fixed.jsonl; compressed files are written plain."""
    name = path.name
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return path.with_name(f"{Path(name).stem}.fixed.jsonl")


class _NothingToRepair(Exception):
    """Leaves the new file unwritten."""


def _weight(findings: list[Finding]) -> tuple[int, int]:
    errors = sum(map(is_error, findings))
    return errors, len(findings) - errors


def _without_nulls(line: bytes, kind: Kind) -> tuple[bytes, list[str]]:
    """The line less the nulls where no null may be, as far as the key need not be there either."""
    paths = [finding.path for finding in judge(line, kind).findings if finding.code == "GD208"]
    if not paths:
        return line, []
    trial, _ = _removed(line, paths)
    needed = {finding.path for finding in judge(trial, kind).findings}
    return _removed(line, [path for path in paths if path not in needed])


def _removed(line: bytes, paths: list[str]) -> tuple[bytes, list[str]]:
    names: list[str] = []
    while True:
        root = spans.parse(line)
        found = [place for path in paths if (place := spans.find(root, path)) is not None and place[1].node.raw == b"null"]
        line, done = spans.apply(line, [spans.remove(owner, member, f"null {member.key} removed") for owner, member in found])
        if not done:
            return line, names
        names += done


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    for chunk in chunks(ByteRange(path, 0, 2**63)):
        if isinstance(chunk, int):
            raise DataError(f"{path}: line {number + 1} is too long to repair ({chunk:,} bytes)", "shorten it first")
        for line in chunk.split(b"\n"):
            number += 1
            yield number, line


def _hunk(number: int, old: bytes, new: bytes, names: list[str]) -> str:
    """One changed line of a unified diff, cut to what changed and a little around it."""
    head = f"@@ line {number} @@ {', '.join(names)}\n"
    if not new:
        return head + f"-{_shown(old, 0, len(old))}\n"
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    return head + f"-{_shown(old, first, len(old) - last)}\n+{_shown(new, first, len(new) - last)}\n"


def _common(one: bytes, other: bytes) -> int:
    """How many bytes the two begin with alike."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _shown(line: bytes, first: int, last: int) -> str:
    start, stop = max(0, first - _CONTEXT), min(len(line), last + _CONTEXT)
    cut = start + _MAX_SHOWN
    text = line[start : min(stop, cut)].decode(errors="replace")
    # What rows hold must not steer the terminal.
    text = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return f"{'…' if start else ''}{text}{'…' if min(stop, cut) < len(line) else ''}"
