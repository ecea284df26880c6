"""Parquet files as rows of JSON, without changing a value.

JSON columns (`arrow.json`, as this project and `datasets` write them) give their text as it is; an absent key is a null there, an
explicit null the text `null`. A struct cannot tell the two apart: writers fill it with a null for every key that any row has.
Such nulls are left out, or valid rows would be invalid; those in lists, and in whole columns, stay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gymdata.atomic import writing
from gymdata.errors import DataError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 16 * 1024 * 1024
"""About how much of a file is decoded at once."""

_MAX_BATCH_ROWS = 4096
_KEPT_NULLS = (b'"parameters"', b'"strict"')
"""Keys of a function tool that must be there and may be null: their nulls are the author's."""

_raw = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class ParquetReport:
    """What was written: rows, and how many struct keys were left out because they were null."""

    rows: int
    nulls: int


def parquet_to_jsonl(path: Path, out: Path) -> ParquetReport:
    """Write the rows of a Parquet file as JSON Lines, a row group's part at a time. Raises DataError for what JSON cannot hold.

    Numbers are exact (a float32 is written as the double that it equals); decimals become strings of their digits, dates and
    times ISO 8601 strings. Bytes, NaN and infinities are refused, not replaced.
    """
    count = nulls = 0

    def on_null() -> None:
        nonlocal nulls
        nulls += 1

    with writing(out) as temporary, open(temporary, "wb") as stream:
        for row in read(path, on_null):
            members = (json.dumps(key, ensure_ascii=False).encode() + b": " + value for key, value in row.items())
            stream.write(b"{" + b", ".join(members) + b"}\n")
            count += 1
    return ParquetReport(count, nulls)


def read(path: Path, on_null: Callable[[], None] = lambda: None) -> Iterator[dict[str, bytes]]:
    """The rows of a Parquet file: by column the JSON text of its value; a JSON column without a value is left out.

    `on_null` is called for each struct key that is left out. Raises DataError, naming the column, for what JSON cannot hold.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise UsageError(f"{path}: reading Parquet needs pyarrow", "pip install 'gymdata[hub]'") from None
    try:
        with pq.ParquetFile(path) as file:
            size = sum(file.metadata.row_group(at).total_byte_size for at in range(file.num_row_groups))
            rows = max(1, min(_MAX_BATCH_ROWS, BATCH_BYTES * max(1, file.metadata.num_rows) // max(1, size)))
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                raise DataError(f"{path}: two columns have the same name", "rename one of them")
            marked = _json_features(file.schema_arrow)
            absent = [name in marked or _is_json(file.schema_arrow.field(name).type) for name in names]
            for batch in file.iter_batches(batch_size=rows):
                columns = [_column(path, name, batch.column(name), on_null, name in marked) for name in names]
                for values in zip(*columns, strict=True) if names else ():
                    yield {
                        name: b"null" if value is None else value
                        for name, value, optional in zip(names, values, absent, strict=True)
                        if value is not None or not optional
                    }
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowIOError) as error:
        raise DataError(f"{path}: not a Parquet file that can be read: {error}", "fetch it again") from error


class _Unwritable(Exception):
    """What of a column JSON cannot hold."""


def _json_features(schema: pa.Schema) -> set[str]:
    """Text columns that hold JSON by the word of the features that `datasets` keeps in a file's metadata."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name for name, kind in features.items() if kind["_type"] == "Json" and schema.field(name).type == "string"}
    except (KeyError, TypeError, ValueError, AttributeError):
        return set()


def _column(path: Path, name: str, array: pa.Array, on_null: Callable[[], None], is_json: bool) -> list[bytes | None]:
    try:
        if is_json:
            return [None if text is None else _sound(text) for text in array.to_pylist()]
        return _texts(array, on_null)
    except _Unwritable as error:
        hint = "leave the column out, or change it where the file is made"
        raise DataError(f"{path}: the column {name!r} holds {error}, which JSON cannot", hint) from None


def _is_json(kind: pa.DataType) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.json"


def _texts(array: pa.Array, on_null: Callable[[], None]) -> list[bytes | None]:
    """The JSON text of each value; None for a null."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind = array.type
    if _is_json(kind):
        return [None if text is None else _sound(text) for text in array.storage.to_pylist()]  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(kind, pa.BaseExtensionType):
        return _texts(array.storage, on_null)  # pyright: ignore[reportAttributeAccessIssue]
    if types.is_dictionary(kind):
        return _texts(array.dictionary_decode(), on_null)  # pyright: ignore[reportAttributeAccessIssue]
    if types.is_struct(kind):
        return _structs(array, on_null)
    if types.is_map(kind):
        return _maps(array, on_null)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        items = iter(_texts(array.flatten(), on_null))  # pyright: ignore[reportAttributeAccessIssue]
        sizes = pc.list_value_length(array).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]
        return [None if size is None else b"[" + b", ".join(_take(items, size)) + b"]" for size in sizes]
    if types.is_temporal(kind) and not types.is_duration(kind) and not types.is_interval(kind):
        texts = array.cast(pa.string()).to_pylist()
        return [None if text is None else _dumps(text.replace(" ", "T", 1)) for text in texts]
    if types.is_decimal(kind):
        return [None if value is None else _dumps(format(value, "f")) for value in array.to_pylist()]
    plain = types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    if plain or types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return [None if value is None else _dumps(value) for value in array.to_pylist()]
    raise _Unwritable(f"values of type {kind}")


def _structs(array: Any, on_null: Callable[[], None]) -> list[bytes | None]:
    keys = [json.dumps(field.name, ensure_ascii=False).encode() for field in array.type]
    members = [_texts(child, on_null) for child in array.flatten()]
    texts: list[bytes | None] = []
    for at, valid in enumerate(array.is_valid().to_pylist()):
        if not valid:
            texts.append(None)
            continue
        present = {key: value for key, values in zip(keys, members, strict=True) if (value := values[at]) is not None}
        is_tool = present.get(b'"type"') == b'"function"' and b'"name"' in present and b'"call_id"' not in present
        shown: list[bytes] = []
        for key in keys:
            if key in present:
                shown.append(key + b": " + present[key])
            elif is_tool and key in _KEPT_NULLS:
                shown.append(key + b": null")
            else:
                on_null()
        texts.append(b"{" + b", ".join(shown) + b"}")
    return texts


def _maps(array: Any, on_null: Callable[[], None]) -> list[bytes | None]:
    import pyarrow.types as types

    if not types.is_string(array.type.key_type) and not types.is_large_string(array.type.key_type):
        raise _Unwritable(f"a map with keys of type {array.type.key_type}")
    keys, values = _texts(array.keys, on_null), _texts(array.items, on_null)
    entries = [(key or b"null") + b": " + (value or b"null") for key, value in zip(keys, values, strict=True)]
    # Unlike a list's, a map's children are those of the whole array, of which this may be a slice.
    offsets, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
    bounds = zip(offsets, offsets[1:], valid, strict=False)
    return [b"{" + b", ".join(entries[start:stop]) + b"}" if there else None for start, stop, there in bounds]


def _take(texts: Iterator[bytes | None], count: int) -> Iterator[bytes]:
    for _ in range(count):
        text = next(texts)
        yield b"null" if text is None else text


def _dumps(value: Any) -> bytes:
    if isinstance(value, float) and not math.isfinite(value):
        raise _Unwritable(f"the number {value}")
    return json.dumps(value, ensure_ascii=False).encode()


def _sound(text: str) -> bytes:
    raw = text.encode()
    try:
        _raw.decode(raw)
    except msgspec.DecodeError as error:
        raise _Unwritable(f"JSON text that is not JSON ({error})") from None
    return raw.strip().replace(b"\n", b" ").replace(b"\r", b" ")
