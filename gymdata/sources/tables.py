"""Records of other formats: of CSV, TSV, Parquet, JSON Lines and JSON arrays, each value as JSON text, none of them changed."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec

from gymdata.errors import DataError, UsageError
from gymdata.rows import spans
from gymdata.rows.lines import COMPRESSED_SUFFIXES, ByteRange, chunks, open_stream

Record = dict[str, bytes]
"""By column the JSON text of its value."""

TABLES = (".csv", ".tsv", ".parquet")
"""Formats in which every record has the same columns."""

_BOM = b"\xef\xbb\xbf"
_NEWLINES = re.compile(rb"[\r\n]+")
_items = msgspec.json.Decoder(list[msgspec.Raw])


class Misfit(NamedTuple):
    """Why a record cannot be turned into a row: the code of a finding, a JSON path in the record, words and a remedy."""

    code: str
    path: str
    message: str
    hint: str = ""


def kind_of(path: Path) -> str:
    """The format of a file by its name: .csv, .tsv, .parquet, .jsonl or .json. Raises UsageError for another."""
    name = path.name.lower()
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    kind = PurePath(name).suffix
    kind = ".jsonl" if kind == ".ndjson" else kind
    if kind not in (*TABLES, ".jsonl", ".json"):
        raise UsageError(f"{path}: its format cannot be told from its name", "name it .csv, .tsv, .parquet, .jsonl or .json")
    if kind == ".parquet" and path.name.lower() != name:
        raise UsageError(f"{path}: a compressed Parquet file", "decompress it first")
    return kind


def records(path: Path) -> Iterator[tuple[int, Record | Misfit]]:
    """The records of a file in order, each with the line on which it begins (in Parquet and JSON arrays: its number), from 1.

    CSV and TSV values are strings, as they stand there; an empty one is "". Raises DataError for a file that cannot be read.
    """
    kind = kind_of(path)
    if kind == ".parquet":
        from gymdata.sources.parquet import read

        yield from enumerate(read(path), 1)
    elif kind in (".csv", ".tsv"):
        yield from _table(path, "," if kind == ".csv" else "\t")
    elif kind == ".json":
        yield from _array(path)
    else:
        yield from _lines(path)


def member_texts(line: bytes) -> Record | Misfit:
    """The members of an object as JSON text, or why it is not a record."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Misfit("GD101", "$", f"not JSON: {error}", "mend the record, or remove it")
    if not isinstance(value, dict):
        return Misfit("GD200", "$", f"the record is {json.dumps(value)[:40]}, not an object", "write one object for each record")
    members = spans.parse(line).members or []
    record = {member.key: member.node.raw for member in members}
    if len(record) < len(members):
        return Misfit("GD105", "$", "a key stands twice in the record", "keep one of the two")
    return record


def _lines(path: Path) -> Iterator[tuple[int, Record | Misfit]]:
    number = 0
    for chunk in chunks(ByteRange(path, 0, 2**63)):
        if isinstance(chunk, int):
            number += 1
            yield number, Misfit("GD109", "$", f"the line is too long ({chunk:,} bytes)", "shorten it")
            continue
        for line in chunk.split(b"\n"):
            number += 1
            if text := line.removeprefix(_BOM).strip():
                yield number, member_texts(text)


def _array(path: Path) -> Iterator[tuple[int, Record | Misfit]]:
    """The items of a JSON file that is one array; it is held in memory."""
    with open_stream(path) as stream:
        data = b"".join(iter(lambda: stream.read(1 << 20), b"")).removeprefix(_BOM)
    try:
        items = _items.decode(data)
    except msgspec.DecodeError as error:
        hint = "if it holds one object a line, name it .jsonl"
        raise DataError(f"{path}: not a JSON array of records: {error}", hint) from None
    for number, item in enumerate(items, 1):
        # Line breaks between the parts of an item are white space: inside of strings JSON has none.
        yield number, member_texts(_NEWLINES.sub(b" ", bytes(item)))


def _table(path: Path, delimiter: str) -> Iterator[tuple[int, Record | Misfit]]:
    csv.field_size_limit(sys.maxsize)
    with open_stream(path) as binary, io.TextIOWrapper(io.BufferedReader(binary), "utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        try:
            header = next(reader, None)
            if not header:
                raise DataError(f"{path}: no header: the first line must name the columns", "add it")
            if len(set(header)) < len(header):
                twice = next(name for name in header if header.count(name) > 1)
                raise DataError(f"{path}: two columns are named {twice!r}", "rename one of them")
            begin = reader.line_num + 1
            for fields in reader:
                if len(fields) == len(header):
                    texts = (json.dumps(field, ensure_ascii=False).encode() for field in fields)
                    yield begin, dict(zip(header, texts, strict=True))
                elif fields:
                    message = f"the record has {len(fields)} fields, the header {len(header)}"
                    yield begin, Misfit("GD101", "$", message, "put fields that hold the separator or a quote into quotes")
                begin = reader.line_num + 1
        except csv.Error as error:
            hint = "quotes within a quoted field are doubled; every opening quote needs its closing one"
            raise DataError(f"{path}: line {reader.line_num}: {error}", hint) from None
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: after line {reader.line_num}: not UTF-8: {error.reason}", "convert the file to UTF-8"
            ) from None
