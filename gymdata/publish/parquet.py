"""Rows as Parquet, without changing a value: plain columns where every row has the same plain type, JSON text everywhere else.

A JSON column holds each value as the row's own text (numbers respelled where `datasets` would misread them) and is marked
`arrow.json`; an absent key is a null, an explicit null the text `null`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from gymdata.errors import DataError
from gymdata.publish.numbers import faithful
from gymdata.rows.lines import ByteRange, chunks

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["string", "int64", "float64", "bool", "int64s", "json"]
"""`int64s` are lists, which no column of `columns` is: those may be null, or of other values, in the next file."""

GROUP_BYTES = 16 * 1024 * 1024
"""JSON text per row group: what is held in memory here."""

SHARD_BYTES = 128 * 1024 * 1024
"""JSON text per file: readers that buffer a whole file, as `datasets` does, hold this much."""

_INTEGER = re.compile(rb"-?\d+")
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def columns(paths: Iterable[Path]) -> dict[str, Kind]:
    """Columns of the rows of some JSONL files, in order of first appearance. Raises DataError for a line that is no object."""
    kinds: dict[str, set[Kind]] = {}
    counts: dict[str, int] = {}
    rows = 0
    for path in paths:
        for row in _rows(path):
            rows += 1
            for key, raw in row.items():
                if key in counts:
                    counts[key] += 1
                    kinds[key].add(_kind(raw))
                else:
                    counts[key] = 1
                    kinds[key] = {_kind(raw)}
    kinds.get("responses_create_params", set()).add("json")
    return {key: next(iter(found)) if len(found) == 1 and counts[key] == rows else "json" for key, found in kinds.items()}


def shards(path: Path) -> int:
    """How many Parquet files the rows of a JSONL file make."""
    return max(1, -(-path.stat().st_size // SHARD_BYTES))


def write_parquet(path: Path, targets: Sequence[Path], kinds: dict[str, Kind]) -> int:
    """Write the rows of a JSONL file, in order, to Parquet files with these columns; returns their number.

    Memory does not depend on the size. Raises DataError for a number that `datasets` cannot read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "int64s": pa.list_(pa.int64()),
        "json": pa.json_(),
    }
    schema = pa.schema([(key, types[kind]) for key, kind in kinds.items()])
    count = 0
    share = path.stat().st_size / len(targets)
    groups = _groups(_rows(path))
    written = 0
    for index, target in enumerate(targets):
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            while (written < share * (index + 1) or index == len(targets) - 1) and (group := next(groups, None)):
                at = f"{path.name}: row", count + 1
                arrays = [_array(group, key, kind, schema.field(key).type, at) for key, kind in kinds.items()]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                count += len(group)
                written += sum(_size(row) for row in group)
    return count


def _size(row: dict[str, msgspec.Raw]) -> int:
    return sum(len(memoryview(value)) + len(key) + 6 for key, value in row.items())


def _rows(path: Path) -> Iterator[dict[str, msgspec.Raw]]:
    number = 0
    for chunk in chunks(ByteRange(path, 0, path.stat().st_size)):
        if isinstance(chunk, int):
            raise DataError(f"{path}: a line of {chunk} bytes is too long to publish")
        for line in chunk.split(b"\n"):
            number += 1
            if line.strip():
                try:
                    yield _decode(line)
                except msgspec.DecodeError as error:
                    raise DataError(f"{path}: line {number} is no row: {error}", "run `gymdata validate` on it") from error


def _groups(rows: Iterator[dict[str, msgspec.Raw]]) -> Iterator[list[dict[str, msgspec.Raw]]]:
    group: list[dict[str, msgspec.Raw]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += _size(row)
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _kind(raw: msgspec.Raw) -> Kind:
    text = bytes(raw)
    first = text[:1]
    if first == b'"':
        return "string"
    if first in (b"t", b"f"):
        return "bool"
    if first in (b"{", b"[", b"n"):
        return "json"
    if _INTEGER.fullmatch(text):
        return "int64" if -(2**63) <= int(text) < 2**63 else "json"
    return "float64" if math.isfinite(float(text)) else "json"


def _array(rows: Sequence[dict[str, msgspec.Raw]], key: str, kind: Kind, type_: pa.DataType, at: tuple[str, int]) -> pa.Array:
    import pyarrow as pa

    if kind == "json":
        values: list[str | None] = []
        for number, row in enumerate(rows, at[1]):
            try:
                values.append(None if (raw := row.get(key)) is None else faithful(bytes(raw).decode()))
            except DataError as error:
                raise DataError(f"{at[0]} {number:,}, key {key!r}: {error.message}", error.hint) from error
        return pa.ExtensionArray.from_storage(type_, pa.array(values, pa.string()))
    decode = msgspec.json.decode
    return pa.array([decode(row[key]) for row in rows], type_)
