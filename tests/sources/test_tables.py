"""Records keep every value as it is written."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gymdata.errors import DataError, UsageError
from gymdata.sources.tables import Misfit, records


def decoded(path: Path) -> list[tuple[int, Any]]:
    return [
        (line, record if isinstance(record, Misfit) else {name: json.loads(text) for name, text in record.items()})
        for line, record in records(path)
    ]


def test_csv_values_are_the_strings_that_stand_there(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffq,"a ""b""",n\r\n"x\r\ny, z",007,1e-12\r\nnull,,2024-01-02\r\n'.encode())
    assert decoded(path) == [
        (2, {"q": "x\r\ny, z", 'a "b"': "007", "n": "1e-12"}),
        (4, {"q": "null", 'a "b"': "", "n": "2024-01-02"}),
    ]


def test_tsv_and_compressed_files(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"q\ta\nx,y\t7\n"))
    assert decoded(path) == [(2, {"q": "x,y", "a": "7"})]


def test_a_csv_record_of_another_length_is_named_and_the_rest_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("q,a\n1,2\n1,2,3\n\n5,6\n")
    (_, first), (line, misfit), (_, last) = decoded(path)
    assert (first, last, line) == ({"q": "1", "a": "2"}, {"q": "5", "a": "6"}, 3)
    assert "3 fields" in misfit.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no header"),
        (b"a,a\n1,2\n", "two columns"),
        (b'a,b\n"1,2\n', "line 2"),
        (b'a,b\n"1"x,2\n', "line 2"),
        (b"a,b\n\xff,2\n", "not UTF-8"),
    ],
)
def test_a_csv_that_cannot_be_read_is_said(tmp_path, data, words):
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(DataError, match=words):
        list(records(path))


def test_json_lines_keep_their_bytes(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1.10, "b": "\\u00e9"}\r\n\n{"a": {"x":  12345678901234567890}}\n')
    assert list(records(path)) == [
        (1, {"a": b"1.10", "b": b'"\\u00e9"'}),
        (3, {"a": b'{"x":  12345678901234567890}'}),
    ]


def test_lines_that_are_no_records_are_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1\n[1]\n{"a": 1, "a": 2}\n\xff\n')
    assert [(line, record.code) for line, record in decoded(path)] == [(1, "GD101"), (2, "GD200"), (3, "GD105"), (4, "GD101")]


def test_a_json_array_is_taken_apart(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[\n  {"a":\n    1.10},\n  {"a": "x\\n"}\n]\n')
    assert [record["a"] for _, record in records(path) if not isinstance(record, Misfit)] == [b"1.10", b'"x\\n"']
    path.write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(DataError, match="not a JSON array"):
        list(records(path))


def test_an_unknown_format_is_said(tmp_path):
    with pytest.raises(UsageError, match="format cannot be told"):
        list(records(tmp_path / "a.xlsx"))
