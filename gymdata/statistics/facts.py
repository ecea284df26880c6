"""The facts of rows as a table, one line per row, for checks that work on columns (polars, Great Expectations, DuckDB)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.atomic import writing
from gymdata.rows.columns import Columns

if TYPE_CHECKING:
    import polars


def facts_frame(columns: Columns, file: str, warnings: Mapping[int, str] = {}, errors: Collection[int] = ()) -> polars.DataFrame:
    """One line per accepted row, in file order, then one per line number in `errors`, of which only that is known.

    `warnings` are the codes of findings by line number. `verdict` is "warning" for these lines, whose `findings` are the codes,
    "error" for those in `errors`, otherwise "valid". Keys are xxh3 digests in hexadecimal. What a row does not have is null.
    """
    import polars as pl

    return pl.concat(list(facts_frames(columns, file, warnings, errors)))


def facts_frames(
    columns: Columns, file: str, warnings: Mapping[int, str] = {}, errors: Collection[int] = ()
) -> Iterator[polars.DataFrame]:
    """The same in pieces of at most SLICE rows: made all at once, the keys of a million rows take half a gigabyte."""
    import polars as pl

    columns.flush()
    for start in range(0, len(columns), SLICE) or [0]:
        yield _piece(columns, file, warnings, start)
    if errors:
        known = {"file": file, "line": sorted(set(errors)), "verdict": "error"}
        empty = _piece(columns, file, warnings, len(columns))
        yield pl.concat([empty, pl.DataFrame(known, schema_overrides={"line": pl.UInt32})], how="diagonal")


SLICE = 20_000
"""Rows per piece, and per row group of the file."""


def _piece(columns: Columns, file: str, warnings: Mapping[int, str], start: int) -> polars.DataFrame:
    import polars as pl

    stop = min(start + SLICE, len(columns))
    part = slice(start, stop)
    lines = columns.lines[part]
    keys = bytes(columns.keys[16 * start : 16 * stop])
    return pl.DataFrame(
        {
            "file": pl.Series([file], dtype=pl.String).new_from_index(0, len(lines)),
            "line": pl.Series(lines, dtype=pl.UInt32),
            "verdict": ["warning" if line in warnings else "valid" for line in lines],
            "findings": [warnings.get(line) for line in lines],
            "key": [keys[at : at + 16].hex() for at in range(0, len(keys), 16)],
            "prompt_key": [f"{key:016x}" for key in columns.prompt_keys[part]],
            "params_key": [f"{key:016x}" for key in columns.params_keys[part]],
            "answer_key": [f"{key:016x}" if key else None for key in columns.answer_keys[part]],
            "tokens": pl.Series(columns.tokens[part], dtype=pl.Int32),
            "words": pl.Series(columns.words[part], dtype=pl.UInt32),
            "characters": pl.Series(columns.characters[part], dtype=pl.UInt32),
            "turns": pl.Series(columns.turns[part], dtype=pl.UInt32),
            "tools": pl.Series(columns.tools[part], dtype=pl.Int32),
            "temperature": pl.Series(columns.temperatures[part], dtype=pl.Float64),
        },
        schema_overrides=dict.fromkeys(("verdict", "findings", "key", "prompt_key", "params_key", "answer_key"), pl.String),
    ).with_columns(
        pl.col("temperature").fill_nan(None),
        *(pl.when(pl.col(name) >= least).then(pl.col(name)) for name, least in (("tokens", 0), ("words", 1), ("tools", 0))),
    )


def write_facts(path: Path, frames: Iterable[polars.DataFrame]) -> None:
    """Write the facts of some files as Parquet, a piece at a time. Raises ExternalError if the disk refuses."""
    from polars.io.plugins import register_io_source

    pieces = iter(frames)
    first = next(pieces)
    with writing(path) as temporary:
        facts = register_io_source(lambda *_: chain([first], pieces), schema=first.schema)
        facts.sink_parquet(temporary, compression="zstd", row_group_size=SLICE)
