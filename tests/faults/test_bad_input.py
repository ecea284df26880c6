"""Whatever the bytes, reading ends in findings: no traceback, no hang, no blow-up."""

from __future__ import annotations

import gzip
import os
import random
import resource
import time
from pathlib import Path

import pytest
import zstandard

from gymdata.cli.main import main
from gymdata.validate import Target, measure
from gymdata.validation.catalogue import RULES

SECONDS = float(os.environ.get("GYMDATA_FUZZ_SECONDS", "8"))
"""`make fuzz` takes ten minutes."""

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
TOKENS = [b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u", b"\\ud800", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r\n",
          b"\n\n", b"null", b"true", b"NaN", b"1e999", b"9" * 400, b"-", b"{}" * 50, b"[" * 700, b'{"a":' * 700, b"<html>", b"a,b,c\n1,2,3\n"]  # fmt: skip


def seeds() -> list[bytes]:
    files = [*ROOT.glob("fixtures/*/example.jsonl"), *ROOT.glob("fixtures/rows/*/*.jsonl"), *SHARED.glob("data/bad/*.jsonl")]
    return [path.read_bytes() for path in files if path.stat().st_size < 100_000]


def mutate(data: bytes, choose: random.Random, others: list[bytes]) -> bytes:
    out = bytearray(data)
    for _ in range(choose.randint(1, 8)):
        at = choose.randint(0, len(out))
        match choose.randrange(6):
            case 0:
                out[at:at] = choose.choice(TOKENS)
            case 1:
                del out[at : at + choose.randint(1, 50)]
            case 2 if out:
                out[at - 1] = choose.randrange(256)
            case 3:
                other = choose.choice(others)
                cut = choose.randint(0, len(other))
                out[at:at] = other[cut : cut + choose.randint(1, 500)]
            case 4:
                out[at:at] = choose.randbytes(choose.randint(1, 30))
            case _:
                out[at:at] = out[max(0, at - 100) : at]
    return bytes(out)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_mutated_files_end_in_findings(tmp_path, suffix):
    found, choose = seeds(), random.Random(f"{suffix}{SECONDS}")
    compress = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    until = time.monotonic() + SECONDS / 3
    count = 0
    while time.monotonic() < until or count < 20:
        data = mutate(choose.choice(found), choose, found)
        if suffix:
            data = compress(data)
            data = mutate(data, choose, found) if choose.random() < 0.5 else data
        path = tmp_path / f"rows.jsonl{suffix}"
        path.write_bytes(data)
        began = time.process_time()
        report = measure(Target(path), kind=choose.choice([None, "task", "rollout"])).report
        # A hang, not a timing: the slowest of these files takes a few hundredths of a second.
        assert time.process_time() - began < 20
        assert all(finding.code in RULES and finding.message and finding.path.startswith("$") for finding in report.findings)
        assert report.valid <= report.rows
        count += 1


def test_random_bytes_end_in_findings(tmp_path):
    choose = random.Random(1)
    path = tmp_path / "rows.jsonl"
    for size in [0, 1, 2, 3, 10, 100, 1000, 10_000, 300_000]:
        path.write_bytes(choose.randbytes(size))
        report = measure(Target(path)).report
        assert report.valid == 0
        assert report.findings


def test_a_damaged_file_with_mixed_fields_is_looked_at_again_up_to_the_damage(tmp_path):
    row = '{"responses_create_params": {"input": "%s?"}, "expected_answer": %s}\n'
    rows = "".join(row % (number, number if number % 2 else f'"{number}"') for number in range(400)).encode()
    path = tmp_path / "rows.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(rows) + b"no frame")
    report = measure(Target(path), kind="task").report
    assert report.valid == 400
    assert {"GD100", "GD503"} <= {finding.code for finding in report.findings}


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_that_was_cut_is_told_by_every_command(tmp_path, capsys, suffix):
    row = '{"responses_create_params": {"input": "What is %d+0?"}, "expected_answer": "%d", "noise": "%s"}\n'
    noise = random.Random(0)
    rows = "".join(row % (number, number, noise.randbytes(400).hex()) for number in range(500)).encode()
    data = gzip.compress(rows) if suffix == ".gz" else zstandard.ZstdCompressor().compress(rows)
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(data[: len(data) * 9 // 10])
    report = measure(Target(path)).report
    assert [(one.code, one.line) for one in report.findings if one.code != "GD501"] == [("GD100", report.valid + 1)]
    path.write_bytes(data[:12])
    assert [(one.code, one.line) for one in measure(Target(path)).report.findings] == [("GD100", 0)]
    path.write_bytes(data[: len(data) * 9 // 10])
    for command in (["validate", "--gold", "--env", "math"], ["validate", "--fix"], ["diff", str(path)]):
        assert main([*command, str(path)]) == 1
        said = capsys.readouterr()
        assert "internal error" not in said.err


def test_a_line_of_fifty_megabytes_works(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = b'{"responses_create_params": {"input": "%s"}, "expected_answer": "4"}\n'
    path.write_bytes(row % b"What?" + row % (b"long " * 10_000_000) + row % (b"tab\\t " * 1000))
    report = measure(Target(path)).report
    assert (report.rows, report.valid, report.findings) == (3, 3, [])
    path.write_bytes(row % (b"\x0c" + b"long " * 10_000_000))
    report = measure(Target(path)).report
    assert [(finding.code, finding.line) for finding in report.findings] == [("GD101", 1)]


def test_a_line_beyond_the_limit_is_a_finding_and_takes_no_memory(tmp_path):
    path = tmp_path / "rows.jsonl"
    with open(path, "wb") as stream:
        stream.write(b'{"responses_create_params": {"input": "a"}}\n')
        for _ in range(300):
            stream.write(b"x" * 1024 * 1024)
        stream.write(b'\n{"responses_create_params": {"input": "b"}}\n')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = measure(Target(path)).report
    assert [(finding.code, finding.line) for finding in report.findings] == [("GD109", 2)]
    assert (report.rows, report.valid) == (3, 2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024
