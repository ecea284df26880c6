"""Reading a file once: every line judged and measured, accepted rows handed on as bytes.

The unit of work is a byte range; ranges are scanned in processes and merged in file order, so the result does not depend
on how many there are.
"""

from __future__ import annotations

import base64
import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import msgspec

from gymdata.engine.local import SMALL_BYTES, ordered_map
from gymdata.errors import DataError
from gymdata.rows.columns import Columns, count_turns, count_words
from gymdata.rows.facts import Facts, describe
from gymdata.rows.fast import FastPath, has_repeated_key
from gymdata.rows.lines import CHUNK_BYTES, COMPRESSED_SUFFIXES, MAX_LINE_BYTES, ByteRange, DamagedFile, chunks, ranges
from gymdata.rows.stamp import Stamper, append_member, replace_member
from gymdata.statistics.tokens import TokenCounter
from gymdata.validation.findings import Finding
from gymdata.validation.judge import Kind, judge
from gymdata.validation.rules import content, dataset, files, rollout, schema, syntax

if TYPE_CHECKING:
    from gymdata.environments.prompt import Prompt

REJECTED = "rejected"

_decode = msgspec.json.decode
_decode_lines = msgspec.json.Decoder().decode_lines
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Collation:
    """How accepted rows are written, to part files in `directory`."""

    directory: Path
    split: str
    stamps: dict[str, bytes | None] = field(default_factory=dict)
    repeats: int = 1
    validation_fraction: float = 0.0
    """Share of the rows, chosen by the digest of their prompt, that goes to the split `validation` instead."""
    keep_rejected: bool = False
    """Whether rows with an error are written too, as the pseudo-split `REJECTED`."""


@dataclass(frozen=True, slots=True)
class Work:
    """One byte range and what to do with it."""

    part: ByteRange
    kind: Kind = "task"
    collation: Collation | None = None
    prompt: Prompt | None = None
    """A format that gives rows their `input`."""
    encoding: str | None = None
    """Tokenizer encoding; None counts no tokens."""


@dataclass(slots=True)
class Scan:
    """What was found in a range, or in a whole file. Lines count from 1."""

    kind: Kind = "task"
    lines: int = 0
    rows: int = 0
    """Non-blank lines."""
    columns: dict[str, Columns] = field(default_factory=dict)
    """Of the accepted rows, by split."""
    findings: list[Finding] = field(default_factory=list)
    parts: dict[str, Path] = field(default_factory=dict)
    """Collated rows, by split."""


def scan_file(
    path: Path,
    *,
    kind: Kind | None = None,
    collation: Collation | None = None,
    prompt: Prompt | None = None,
    encoding: str | None = None,
    start: int = 0,
    stop: int | None = None,
    jobs: int = 1,
    on_bytes: Callable[[int], None] = lambda count: None,
) -> Iterator[Scan]:
    """Scan the bytes from `start` to `stop` of a file, yielding one Scan per unit of work, in file order.

    Lines count from 1 at `start`. Without `kind`, the first rows say what the file holds: rollouts have a response or a reward.
    A file that is no JSON Lines is one Scan with one finding on line 0. `on_bytes` is told how many bytes of the file each
    unit covered. Raises OSError if the file cannot be read.
    """
    if finding := _sniff(path):
        yield Scan(findings=[finding])
        return
    if kind is None:
        first = _first_rows(path)
        finished = [row for row in first if rollout.looks_like_rollout(row)]
        # A reward alone may as well be a field that a verifier reads.
        certain = any(key in row for row in finished for key in ("response", "_ng_rollout_index"))
        kind = "rollout" if certain and len(finished) * 2 > len(first) else "task"
    parts = ranges(path, start, stop)
    work = [Work(part, kind, collation, prompt, encoding) for part in parts]
    size = min(path.stat().st_size, sum(part.stop - part.start for part in parts))
    lines = 0
    for part, scan in zip(parts, ordered_map(scan_range, work, 1 if size < SMALL_BYTES else jobs), strict=True):
        scan.findings = [finding.at(finding.line + lines) for finding in scan.findings]
        for columns in scan.columns.values():
            columns.shift_lines(lines)
        lines += scan.lines
        on_bytes(min(part.stop, size) - part.start)
        yield scan


def scan_range(work: Work) -> Scan:
    """Judge and measure the lines of one byte range. Runs in a worker; writes nothing but its part files."""
    # Rows hold no cycles; a collector that walks the hundred thousand objects of a chunk costs a third of the time.
    gc.disable()
    try:
        return _Scanner(work).scan()
    finally:
        gc.enable()


def _sniff(path: Path) -> Finding | None:
    """The finding for a file that is no JSON Lines at all."""
    with open(path, "rb") as stream:
        finding = files.sniff(stream.read(files.HEAD_BYTES), path.name)
    if finding is None and path.suffix in COMPRESSED_SUFFIXES:
        try:
            head = next(chunks(ByteRange(path, 0, 2**63), files.HEAD_BYTES), b"")
        except DamagedFile:
            return None  # the scan says so, after the lines that can be read
        finding = files.sniff_text(head) if isinstance(head, bytes) else None
    return finding


def _first_rows(path: Path) -> list[Any]:
    """The first lines of a file that decode, at most five."""
    try:
        first = next(chunks(ranges(path)[0]), b"") if path.stat().st_size else b""
    except DamagedFile:
        return []
    values = [_decoded_line(line) for line in first.split(b"\n")[:5]] if isinstance(first, bytes) else []
    return [value for value in values if value is not None]


class _Scanner:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.result = Scan(work.kind)
        self.counter = TokenCounter(work.encoding).count if work.encoding else None
        self.writer = _PartWriter(work.collation, work.part) if work.collation else None

    def scan(self) -> Scan:
        with self.writer or nullcontext():
            return self._scan()

    def _scan(self) -> Scan:
        result = self.result
        try:
            for chunk in chunks(self.work.part):
                if isinstance(chunk, int):
                    result.lines += 1
                    result.rows += 1
                    message = f"the line has {chunk:,} bytes; the longest that is read has {MAX_LINE_BYTES:,}"
                    result.findings.append(
                        Finding("GD109", "$", message, "put large values into files of their own", result.lines)
                    )
                else:
                    self._scan_chunk(chunk)
        except DamagedFile as error:
            after = f" after line {result.lines}" if result.lines else ""
            message = f"the compressed file is damaged{after}: {error.reason}"
            result.findings.append(Finding("GD100", "$", message, error.hint, line=result.lines + 1 if result.lines else 0))
        if self.writer:
            result.parts = self.writer.close()
        return result

    def _scan_chunk(self, chunk: bytes) -> None:
        lines = chunk.split(b"\n")
        fast = self.work.kind == "task" and self.work.prompt is None
        rows = _decoded(chunk, lines) if fast else [None] * len(lines)
        for line, row, accepted in zip(lines, rows, _fast_path().accept(rows, chunk), strict=True):
            self.result.lines += 1
            if row is not None and accepted is not None:
                facts = describe(row, accepted.request, accepted.tool_texts)
                if not has_repeated_key(line.rstrip(), facts.size, accepted.separators):
                    self._keep(line, row, row["responses_create_params"], facts, accepted.words, accepted.turns)
                    continue
            self._judge(line)
        for columns in self.result.columns.values():
            columns.flush()
        if self.writer:
            self.writer.flush()

    def _judge(self, line: bytes) -> None:
        original, findings = line, []
        if self.work.prompt is not None:
            line, findings = _with_prompt(line, self.work.prompt)
        judgement = judge(line, self.work.kind) if not findings else None
        findings = findings or (judgement.findings if judgement else [])
        number = self.result.lines
        self.result.findings += [finding.at(number) for finding in findings]
        if judgement is not None and judgement.row is not None:
            row, params = judgement.row, judgement.params
            words, turns = (0, 0) if params is None else (count_words(params), count_turns(params))
            self._keep(line, row, params or {}, describe(row), words, turns)
        elif line.strip():
            self.result.rows += 1
            if self.writer:
                self.writer.reject(original, number, findings)

    def _keep(self, line: bytes, row: dict[str, Any], params: Any, facts: Facts, words: int, turns: int) -> None:
        self.result.rows += 1
        split = self.writer.write(line, row, facts) if self.writer else ""
        columns = self.result.columns.get(split)
        if columns is None:
            columns = self.result.columns[split] = Columns(self.counter)
        columns.add(self.result.lines, row, params, facts, words, turns)


class _PartWriter:
    """Writes the collated rows of one byte range, to one part file per split; leaving its context lets go of the files."""

    def __init__(self, collation: Collation, part: ByteRange) -> None:
        self._collation = collation
        self._stamp = Stamper(collation.stamps) if collation.stamps else lambda line, row: line.strip()
        self._name = f"{part.start:020d}"
        self._threshold = int(collation.validation_fraction * 2**64)
        self._buffers: dict[str, list[bytes]] = {}
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # of a full disk, which was reported when it was written to
                file.close()

    def write(self, line: bytes, row: dict[str, Any], facts: Facts) -> str:
        split = "validation" if facts.prompt_key < self._threshold else self._collation.split
        stamped = self._stamp(line, row)
        buffer = self._buffers.get(split)
        if buffer is None:
            buffer = self._buffers[split] = []
        if self._collation.repeats == 1:
            buffer.append(stamped)
        else:
            self._repeat(split, buffer, stamped)
        return split

    def _repeat(self, split: str, buffer: list[bytes], line: bytes) -> None:
        """Add all repetitions of a line, written out as they come to be many."""
        left, most = self._collation.repeats, max(1, CHUNK_BYTES // (len(line) + 1))
        while left:
            buffer += [line] * min(left, most)
            left -= min(left, most)
            if len(buffer) >= most:
                self.flush()

    def reject(self, line: bytes, number: int, findings: list[Finding]) -> None:
        if not self._collation.keep_rejected:
            return
        record: dict[str, Any] = {"line": number}
        try:
            record["row"] = line.decode()
        except UnicodeDecodeError:
            record["row_base64"] = base64.b64encode(line).decode()
        record["findings"] = [{"code": f.code, "path": f.path, "message": f.message, "hint": f.hint} for f in findings]
        self._buffers.setdefault(REJECTED, []).append(msgspec.json.encode(record))

    def flush(self) -> None:
        for split, rows in self._buffers.items():
            if split not in self._files:
                self._files[split] = open(self._path(split), "wb")  # noqa: SIM115 (closed by close)
            if rows:
                rows.append(b"")
                self._files[split].write(b"\n".join(rows))
            rows.clear()

    def close(self) -> dict[str, Path]:
        self.flush()
        for file in self._files.values():
            file.close()
        return {split: self._path(split) for split in self._files}

    def _path(self, split: str) -> Path:
        return self._collation.directory / f"{self._name}.{split}"


@functools.cache
def _fast_path() -> FastPath:
    return FastPath(content.is_undamaged, content.has_no_placeholder, content.is_plain_answer, _is_clean_tool)


def _is_clean_tool(tool: dict[str, Any]) -> bool:
    return schema.is_plain_function_tool(tool) and not content.check_tool(tool)


def _decoded(chunk: bytes, lines: list[bytes]) -> list[Any]:
    """The values of the lines; None for a line that does not decode."""
    try:
        values = _decode_lines(chunk)
        if len(values) == len(lines):
            return values
    except _DECODE_ERRORS:
        pass
    return [_decoded_line(line) for line in lines]


def _decoded_line(line: bytes) -> Any:
    try:
        return _decode(line)
    except _DECODE_ERRORS:
        return None


def _with_prompt(line: bytes, prompt: Prompt) -> tuple[bytes, list[Finding]]:
    """The line with the input that the prompt gives it, its other bytes untouched."""
    from gymdata.environments.prompt import apply

    row, _ = syntax.parse(line)
    if not isinstance(row, dict):
        return line, []
    try:
        params = msgspec.json.encode(apply(row, prompt)["responses_create_params"])
    except DataError as error:
        return line, [Finding("GD112", "$", error.message, error.hint)]
    if "responses_create_params" in row:
        return replace_member(line.strip(), "responses_create_params", params), []
    return append_member(line.strip(), "responses_create_params", params), []


def check_file(
    path: Path, columns: list[Columns], rows: int, findings: list[Finding], required: list[str], kind: Kind
) -> list[Finding]:
    """The findings of a scanned file with those that concern several rows, or none, in line order.

    `rows` counts its non-blank lines; `required` names the fields that the environment's verifier needs. Reads the file once
    more if the columns show that a field is missing or of another type in some rows.
    """
    findings = list(findings)
    if not rows:
        blank = [finding for finding in findings if finding.code == "GD104"]
        if blank:
            return [replace(finding, code="GD111", message="a blank line, in a file without any row") for finding in blank]
        return [*findings, *([] if findings else dataset.empty_file())]
    for part in columns:
        tasks = kind == "task"
        findings += dataset.check_columns(part) if tasks else []
        if expectations := dataset.suspicious_fields(part, dataset.VERIFIER_FIELDS if tasks else (), required if tasks else ()):
            check = dataset.FieldCheck(expectations)
            for line, row in _accepted_rows(path, set(part.lines)):
                check.add(line, row)
            findings += check.findings()
    return sorted(findings, key=lambda finding: finding.line)


def _accepted_rows(path: Path, accepted: set[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    # A compressed file that is damaged further on was reported when it was scanned.
    with suppress(DamagedFile):
        for part in ranges(path):
            for chunk in chunks(part):
                for line in [b""] if isinstance(chunk, int) else chunk.split(b"\n"):
                    number += 1
                    if number in accepted:
                        row = _decoded_line(line)
                        yield number, row if isinstance(row, dict) else syntax.parse(line)[0]
