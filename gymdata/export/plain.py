"""Records as Parquet with nested columns of plain types, for readers that know no JSON columns; a key that a record lacks is a null."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP = 1000
"""Records that are held at a time."""


def write_plain(path: Path, target: Path) -> None:
    """Write a JSONL file of records whose values have the same types in all of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pa.struct([])
    for record in _records(path):
        found = _merged(found, _type(record))
    schema = pa.schema(list(found))
    records = _records(path)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        while group := list(itertools.islice(records, _GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, "rb") as stream:
        yield from map(json.loads, stream)


def _type(value: Any) -> pa.DataType:
    import pyarrow as pa

    if isinstance(value, dict):
        return pa.struct([(key, _type(one)) for key, one in value.items()])
    if isinstance(value, list):
        inner = pa.null()
        for one in value:
            inner = _merged(inner, _type(one))
        return pa.list_(inner)
    return pa.scalar(value).type


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of which both are cases. Raises ValueError if there is none."""
    import pyarrow as pa

    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    raise ValueError(f"a column of {one} and {other}")
