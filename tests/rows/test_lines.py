"""Every line once, whatever the chunks, the ranges and the compression."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gymdata.rows import lines
from gymdata.rows.lines import ByteRange, DamagedFile, chunks, offset_of_line, open_stream, ranges

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


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_that_was_cut_is_damaged_and_what_stands_before_is_read(tmp_path, suffix):
    data = b"".join(b"%d %s\n" % (number, random.Random(number).randbytes(30).hex().encode()) for number in range(9000))
    frame = gzip.compress(data) if suffix == ".gz" else zstandard.ZstdCompressor(write_checksum=True).compress(data)
    path = tmp_path / f"rows.jsonl{suffix}"
    for size in [5, 30, len(frame) // 2, len(frame) - 1, len(frame) + len(frame) // 2]:
        path.write_bytes((frame + frame)[:size])
        found = b""
        with open_stream(path) as stream, pytest.raises(DamagedFile, match="damaged") as caught:
            while block := stream.read(4096):
                found += block
        assert caught.value.reason
        assert (data + data).startswith(found)
        assert len(found) > (size - 30_000) * len(data) / len(frame)


def test_a_whole_zstd_file_may_hold_frames_of_all_kinds(tmp_path):
    skipped = b"\x5a\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"any"
    path = tmp_path / "rows.jsonl.zst"
    frames = [zstandard.ZstdCompressor(write_checksum=checked, level=level).compress(text) for checked in (True, False)
              for level in (1, 19) for text in (b"", b"one\n", b"a" * 3_000_000, random.Random(1).randbytes(300_000))]  # fmt: skip
    path.write_bytes(skipped.join(frames) + skipped)
    with open_stream(path) as stream:
        assert sum(map(len, iter(lambda: stream.read(100_000), b""))) == 4 * (4 + 3_000_000 + 300_000)


def test_a_line_over_the_limit_is_given_as_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK_BYTES", 16)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"one\n" + b"x" * 100 + b"\ntwo\n" + b"y" * 70)
    assert read(ranges(path), limit=64) == [b"one", 100, b"two", 70]


def test_offset_of_a_row_skips_blank_lines(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"one\n\n  \ntwo\nthree\n")
    assert [offset_of_line(path, index) for index in range(4)] == [0, 8, 12, 18]
