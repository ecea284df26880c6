"""Findings of whole files."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import pytest

from gymdata.validation.rules.files import HEAD_BYTES, sniff

ROW = '{"responses_create_params": {"input": "Déjà vu: what is 2+2?"}, "expected_answer": "4"}'
ROWS = f"{ROW}\n" * 3
PRETTY = json.dumps(json.loads(ROW), indent=2)
ARRAY = [json.loads(ROW)] * 3


def said(content: str | bytes, name: str = "rows.jsonl") -> str:
    """The message about a file, "" if there is none."""
    content = content if isinstance(content, bytes) else content.encode()
    finding = sniff(content[:HEAD_BYTES], name)
    if finding is None:
        return ""
    assert (finding.code, finding.path, finding.line) == ("GD100", "$", 0)
    assert finding.hint
    return finding.message


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("rows.jsonl", ROWS)
    return buffer.getvalue()


def tarred() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("rows.jsonl")
        member.size = len(ROWS.encode())
        archive.addfile(member, io.BytesIO(ROWS.encode()))
    return buffer.getvalue()


def database(tmp_path: Path) -> bytes:
    connection = sqlite3.connect(tmp_path / "rows.db")
    connection.execute("create table rows (question)")
    connection.close()
    return (tmp_path / "rows.db").read_bytes()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (gzip.compress(ROWS.encode()), "gzip"),
        (bz2.compress(ROWS.encode()), "bzip2"),
        (lzma.compress(ROWS.encode()), "xz"),
        (lzma.compress(ROWS.encode(), format=lzma.FORMAT_ALONE), "lzma"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "zstd"),
        (zipped(), "zip"),
        (tarred(), "tar"),
        (b"PAR1\x15\x00PAR1", "Parquet"),
        (b"ARROW1\x00\x00", "Arrow"),
        (pickle.dumps(ARRAY, 0), "pickle"),
        (pickle.dumps(ARRAY, 4), "pickle"),
        (b"%PDF-1.7\n", "PDF"),
        (b"\x00" * 4096, "binary"),
        (b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"__metadata__": {}}', "binary"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
    ],
)
def test_a_file_of_another_format_is_named(content: bytes, what: str) -> None:
    assert what in said(content)


def test_a_database_is_named(tmp_path: Path) -> None:
    assert "SQLite" in said(database(tmp_path))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", [ROWS, '{"input": "数学问题"}\n' * 900, f"\n{ROWS}", "plain text, no rows\n" * 9])
def test_text_of_another_encoding_is_named(encoding: str, text: str) -> None:
    message = said(text.encode(encoding))
    assert encoding.upper()[:6] in message or ("binary" in message and not text.startswith("{"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<!DOCTYPE html>\n<html><body>404</body></html>\n", "HTML"),
        ("\n  <HTML lang='en'>\n", "HTML"),
        ("<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>", "XML"),
        ("<Error><Code>AccessDenied</Code></Error>", "XML"),
        ("HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n", "HTTP"),
        ("question,expected_answer\nWhat is 2+2?,4\n", "CSV"),
        ('question,expected_answer\n"Two\nlines, and a comma",4\n', "CSV"),
        ('"question","tools"\n"Q","[{""a"": 1}]"\n', "CSV"),
        ('\ufeffquestion,tools,expected_answer\r\n"Q","{}",4\r\n', "CSV"),
        (",question,expected_answer\n0,What is 2+2?,4\n", "CSV"),
        ("question\texpected_answer\nWhat is 2+2?\t4\n", "CSV"),
        ("question;answer\nwhat;4\n", "CSV"),
        ("- question: What is 2+2?\n  answer: 4\n", "YAML"),
        ("---\nquestion: What is 2+2?\nanswer: 4\n", "YAML"),
        (json.dumps(ARRAY), "JSON array"),
        (json.dumps(ARRAY, indent=1), "JSON array"),
        ("\ufeff" + json.dumps(ARRAY, indent=4), "JSON array"),
        ("[]", "JSON array"),
        ("[\n" + ",\n".join([ROW] * 3) + "\n]\n", "JSON array"),
        ("[\n" + ",\n".join([ROW] * 3000) + "\n]\n", "JSON array"),
        ("[" + ",\n".join([ROW] * 3) + "]", "JSON array"),
        ("[ " + "\n, ".join([ROW] * 3) + "\n]\n", "JSON array"),
        (f"[\n{ROW}\n]\n", "JSON array"),
        (ROWS.replace("\n", "\r"), "carriage returns"),
    ],
)
def test_text_of_another_format_is_named(text: str, what: str) -> None:
    assert what in said(text)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "\ufeff",
        "\n\n",
        "// a comment\n",
        "# a comment\n",
        "<PLACEHOLDER ROW>\n",
        "<html>\n",
        "question,answer\n",
        "a,b\n1,2\n",
        "key: value\n",
        "[1, 2]\n",
        '[{"a": 1}]\n',
        "[\n",
        "\x00\x00\x00\x00\n",
        "\x01\x02\n",
        f"{PRETTY}\n",
        "{'a': 1}\n",
        "[]\n",
    ],
)
def test_a_bad_beginning_is_a_matter_of_its_line_if_rows_follow(head: str) -> None:
    assert said(head + ROWS) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n\n",
        ROW,
        ROWS.replace("\n", "\r\n"),
        f"{ROW},\n" * 3,
        "{'a': 1}\n" * 3,
        "<PLACEHOLDER ROW>\n" * 5,
        "1\n2\n",
        PRETTY,
        f"{json.dumps(ROW)}\n" * 3,
        '["user", "assistant"]\n' * 3,
        '[{"role": "user"}]\n' * 3,
        '{"a": NaN}\n' * 3,
        ROW[:50],
        '{"a": "\x00"}',
        '{"a": "' + "x" * 2 * HEAD_BYTES,
    ],
)
def test_lines_that_are_wrong_one_by_one_are_no_matter_of_the_file(text: str) -> None:
    assert said(text) == ""


def test_compression_is_known_by_name() -> None:
    assert said(gzip.compress(ROWS.encode()), "rows.jsonl.gz") == ""
    assert said(b"\x28\xb5\x2f\xfd\x04\x00", "rows.jsonl.zst") == ""
    assert "gzip" in said(gzip.compress(ROWS.encode()), "rows.jsonl.zst")
    assert "not compressed as its name says" in said(ROWS, "rows.jsonl.gz")
