"""Every line once, whatever the chunks, the ranges and the compression."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gymdata.rows import lines
from gymdata.rows.lines import ByteRange, chunks, offset_of_line, ranges

TEXT = st.lists(st.sampled_from([b"\n", b"a", b"bb\n", b"\r\n", b"\n\n", b"x" * 30]), max_size=30).map(b"".join)


def read(parts: list[ByteRange], limit: int = lines.MAX_LINE_BYTES) -> list[bytes | int]:
    found: list[bytes | int] = []
    for part in parts:
        for chunk in chunks(part, limit):
            found += [chunk] if isinstance(chunk, int) else chunk.split(b"\n")
    return found


def expected(data: bytes) -> list[bytes]:
    found = data.split(b"\n")
    return found[:-1] if found[-1] == b"" else found


@given(TEXT, st.integers(1, 20), st.integers(1, 25))
def test_ranges_and_chunks_of_any_size_give_every_line_once(tmp_path_factory, data, chunk, size):
    path = tmp_path_factory.mktemp("lines") / "rows.jsonl"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK_BYTES", chunk)
        patch.setattr(lines, "RANGE_BYTES", size)
        assert read(ranges(path)) == expected(data)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_are_read_by_name_frame_after_frame(tmp_path, suffix):
    compress = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(compress(b"one\ntwo\n") + compress(b"three"))
    assert read(ranges(path)) == [b"one", b"two", b"three"]


def test_a_line_over_the_limit_is_given_as_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK_BYTES", 16)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"one\n" + b"x" * 100 + b"\ntwo\n" + b"y" * 70)
    assert read(ranges(path), limit=64) == [b"one", 100, b"two", 70]


def test_offset_of_a_row_skips_blank_lines(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"one\n\n  \ntwo\nthree\n")
    assert [offset_of_line(path, index) for index in range(4)] == [0, 8, 12, 18]
