"""Collating: the accepted rows of several files become the files of the splits, in order, byte for byte."""

from __future__ import annotations

import hashlib
import mmap
import os
from array import array
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

import msgspec
import xxhash

from gymdata.manifest import OutputFile
from gymdata.scan import REJECTED

_BLOCK = 1024 * 1024


class SplitWriter:
    """Appends part files to `<split>.jsonl` in `directory` as they come, and digests what it writes.

    Leaving its context lets go of the files; `close` before that says what they are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, IO[bytes]] = {}
        self._digests: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # of a full disk, which was reported when it was written to
                file.close()

    def append(self, split: str, part: Path) -> None:
        """Append a part file and remove it."""
        with open(part, "rb") as source:
            while block := source.read(_BLOCK):
                self._write(split, block)
        part.unlink()

    def append_rejected(self, part: Path, file: str, first_line: int) -> None:
        """Append a part file of rejected rows, which count their lines from 1 at line `first_line` of `file`.

        A line of rejected.jsonl is {"file", "line", "row" (or "row_base64" if it is not UTF-8), "findings"}.
        """
        with open(part, "rb") as source:
            for record in source:
                value = msgspec.json.decode(record)
                value = {"file": file, "line": value.pop("line") + first_line - 1, **value}
                self._write(REJECTED, msgspec.json.encode(value) + b"\n")
        part.unlink()

    def touch(self, split: str) -> None:
        """Make the file of a split, which may stay empty."""
        if split not in self._files:
            self._files[split] = open(self._directory / f"{split}.jsonl", "wb")  # noqa: SIM115 (closed by close)
            self._digests[split] = hashlib.sha256()

    def close(self) -> dict[str, OutputFile]:
        """Close the files; what they are, by split, their rows not counted."""
        outputs = {}
        for split, file in self._files.items():
            size = file.tell()
            file.close()
            outputs[split] = OutputFile(path=f"{split}.jsonl", sha256=self._digests[split].hexdigest(), bytes=size)
        return outputs

    def _write(self, split: str, block: bytes) -> None:
        self.touch(split)
        self._files[split].write(block)
        self._digests[split].update(block)


def shuffle(path: Path, seed: int) -> str:
    """Put the lines of a file into a random order that depends on `seed` and their number alone; returns its sha256."""
    if not path.stat().st_size:
        return hashlib.sha256().hexdigest()
    target, digest = path.with_suffix(".shuffled"), hashlib.sha256()
    with open(path, "rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data, open(target, "wb") as out:
        starts = array("Q", _line_starts(data))
        salt = seed.to_bytes(16, "little", signed=True)
        order = sorted(range(len(starts)), key=lambda index: xxhash.xxh3_128_digest(salt + index.to_bytes(8, "little")))
        starts.append(len(data))
        for index in order:
            line = data[starts[index] : starts[index + 1]]
            out.write(line)
            digest.update(line)
    os.replace(target, path)
    return digest.hexdigest()


def _line_starts(data: mmap.mmap) -> Iterable[int]:
    position = 0
    while 0 <= position < len(data):
        yield position
        position = data.find(b"\n", position) + 1 or -1
