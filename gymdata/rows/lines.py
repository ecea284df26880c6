"""Lines of a JSONL file as bytes: in chunks, by byte range, plain or compressed, in memory that no file can exceed.

A line is numbered from 1 and ends at \\n; the line feed is not part of it. Ranges partition a file: a line belongs to the
range in which it begins, so any set of adjoining ranges gives every line once.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymdata.errors import DataError

CHUNK_BYTES = 128 * 1024
"""Read size. Larger chunks fall out of the second-level cache and decode up to two times slower."""

MAX_LINE_BYTES = 256 * 1024 * 1024
"""The longest line that is decoded; a longer one is reported (GD109) and skipped without being held in memory."""

RANGE_BYTES = 4 * 1024 * 1024
"""Bytes per unit of work. Fixed, so that results cannot depend on the number of jobs."""

COMPRESSED_SUFFIXES = (".gz", ".zst")


class DamagedFile(DataError):
    """A compressed file ends early, or is not what its name says; `reason` in few words."""

    def __init__(self, message: str, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The part of a file whose lines begin at byte `start` or later and before byte `stop`."""

    path: Path
    start: int
    stop: int


def ranges(path: Path, start: int = 0, stop: int | None = None) -> list[ByteRange]:
    """Cut `path`, or its bytes from `start` to `stop`, into units of work; a compressed file is one unit."""
    if path.suffix in COMPRESSED_SUFFIXES:
        return [ByteRange(path, 0, 2**63)]
    stop = os.path.getsize(path) if stop is None else stop
    return [ByteRange(path, begin, min(begin + RANGE_BYTES, stop)) for begin in range(start, stop, RANGE_BYTES)]


def chunks(part: ByteRange, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes | int]:
    """Yield whole lines, separated by line feeds, with none at the end; a line over `max_line_bytes` is yielded as its size in bytes instead.

    Raises DamagedFile when a compressed file cannot be decompressed to its end, OSError when a file cannot be read.
    """
    with open_stream(part.path) as stream:
        if part.path.suffix in COMPRESSED_SUFFIXES:
            yield from _split(iter(lambda: stream.read(CHUNK_BYTES), b""), max_line_bytes)
        else:
            yield from _split(_read_range(stream, part), max_line_bytes)


def open_stream(path: Path) -> io.RawIOBase:
    """Open a file for reading bytes, unbuffered, decompressed by its name.

    Reading raises DamagedFile where a compressed file is damaged or cut short, after all that stands before.
    """
    return _Decompressed(path) if path.suffix in COMPRESSED_SUFFIXES else open(path, "rb", buffering=0)


def offset_of_line(path: Path, index: int) -> int:
    """Byte offset of the non-blank line `index` (0-based) of an uncompressed file; the file's size if it has fewer."""
    offset = seen = 0
    with open(path, "rb") as stream:
        for line in stream:
            if line.strip():
                if seen == index:
                    return offset
                seen += 1
            offset += len(line)
    return offset


class _Decompressed(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._zstd = path.suffix == ".zst"
        self._damages: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
        if self._zstd:
            import zstandard

            self._stream: Any = zstandard.open(path, "rb")
            self._damages = (zstandard.ZstdError,)
        else:
            self._stream = gzip.open(path)  # noqa: SIM115 (closed by close)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            # `read` would lose what it has when it comes to the damage.
            block = self._stream.read1(len(buffer))
        except self._damages as error:
            raise self._damaged(str(error)) from error
        if not block and self._zstd and not _is_whole_zstd(self._path):
            raise self._damaged("it ends in the middle of a frame")
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _damaged(self, reason: str) -> DamagedFile:
        message = f"{self._path}: the compressed file is damaged: {reason}"
        return DamagedFile(message, "fetch or compress it again", reason)


def _is_whole_zstd(path: Path) -> bool:
    """Whether a zstd file ends where a frame does, seen from the sizes in its headers: the library takes any end for one."""
    import zstandard

    size, position = os.path.getsize(path), 0
    with open(path, "rb") as stream:
        while position < size:
            stream.seek(position)
            head = stream.read(18)
            try:
                frame = zstandard.get_frame_parameters(head)
            except zstandard.ZstdError:
                return False
            if head[1:4] == b"\x2a\x4d\x18":  # a frame to skip
                position += 8 + int.from_bytes(head[4:8], "little")
                continue
            position += zstandard.frame_header_size(head)
            last = False
            while not last:
                stream.seek(position)
                block = int.from_bytes(stream.read(3), "little")
                last, kind = bool(block & 1), block >> 1 & 3
                position += 3 + (1 if kind == 1 else block >> 3)  # kind 1 is one byte, repeated
                if position > size:
                    return False
            position += 4 * frame.has_checksum
    return position == size


def _read_range(stream: io.RawIOBase, part: ByteRange) -> Iterator[bytes]:
    """The bytes from the first line that begins in the range to the end of the last one that does."""
    position = part.start
    if position:
        # A line begins in the range if the byte before it, the line feed, is at start - 1 or later.
        stream.seek(position - 1)
        while block := stream.read(CHUNK_BYTES):
            cut = block.find(b"\n") + 1
            if cut:
                position = stream.tell() - len(block) + cut
                break
        else:
            return
    stream.seek(position)
    while position < part.stop:
        block = stream.read(min(CHUNK_BYTES, part.stop - position))
        if not block:
            return
        position += len(block)
        yield block
        if position == part.stop and not block.endswith(b"\n"):
            while block := stream.read(CHUNK_BYTES):
                cut = block.find(b"\n") + 1
                yield block[:cut] if cut else block
                if cut:
                    return


def _split(blocks: Iterator[bytes], max_line_bytes: int) -> Iterator[bytes | int]:
    pending: list[bytes] = []
    held = 0
    for block in blocks:
        end = block.rfind(b"\n")
        if end < 0:
            held += len(block)
            if held <= max_line_bytes:
                pending.append(block)
            else:
                pending.clear()
            continue
        if held:
            held += block.find(b"\n")
            if held > max_line_bytes:
                yield held
                first = block.find(b"\n") + 1
                block, end = block[first:], end - first
            else:
                end += sum(map(len, pending))
                block = b"".join([*pending, block])
            pending.clear()
        if end >= 0:
            yield block[:end]
        held = len(block) - end - 1
        if held:
            pending.append(block[end + 1 :])
    if held > max_line_bytes:
        yield held
    elif held:
        yield b"".join(pending)
