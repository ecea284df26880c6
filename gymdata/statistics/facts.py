"""The facts of rows as a table, one line per row, for checks that work on columns (polars, Great Expectations, DuckDB)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.atomic import writing
from gymdata.rows.columns import Columns

if TYPE_CHECKING:
    import polars


def facts_frame(columns: Columns, file: str, warnings: Collection[int] = (), errors: Collection[int] = ()) -> polars.DataFrame:
    """One line per accepted row, in file order, then one per line number in `errors`, of which only that is known.

    `verdict` is "warning" for the line numbers in `warnings`, "error" for those in `errors`, otherwise "valid". Keys are
    xxh3 digests in hexadecimal. What a row does not have is null.
    """
    import polars as pl

    columns.flush()
    keys = bytes(columns.keys)
    warned = set(warnings)
    accepted = pl.DataFrame(
        {
            "file": pl.Series([file], dtype=pl.String).new_from_index(0, len(columns)),
            "line": pl.Series(columns.lines, dtype=pl.UInt32),
            "verdict": ["warning" if line in warned else "valid" for line in columns.lines],
            "key": [keys[start : start + 16].hex() for start in range(0, len(keys), 16)],
            "prompt_key": [f"{key:016x}" for key in columns.prompt_keys],
            "params_key": [f"{key:016x}" for key in columns.params_keys],
            "answer_key": [f"{key:016x}" if key else None for key in columns.answer_keys],
            "tokens": pl.Series(columns.tokens, dtype=pl.Int32),
            "words": pl.Series(columns.words, dtype=pl.UInt32),
            "characters": pl.Series(columns.characters, dtype=pl.UInt32),
            "turns": pl.Series(columns.turns, dtype=pl.UInt32),
            "tools": pl.Series(columns.tools, dtype=pl.Int32),
            "temperature": pl.Series(columns.temperatures, dtype=pl.Float64),
        },
        schema_overrides=dict.fromkeys(("verdict", "key", "prompt_key", "params_key", "answer_key"), pl.String),
    ).with_columns(
        pl.col("temperature").fill_nan(None),
        *(pl.when(pl.col(name) >= least).then(pl.col(name)) for name, least in (("tokens", 0), ("words", 1), ("tools", 0))),
    )
    rejected = pl.DataFrame({"file": file, "line": sorted(set(errors)), "verdict": "error"}, schema_overrides={"line": pl.UInt32})
    return pl.concat([accepted, rejected], how="diagonal") if errors else accepted


def write_facts(path: Path, frames: Iterable[polars.DataFrame]) -> None:
    """Write the facts of some files as Parquet. Raises ExternalError if the disk refuses."""
    import polars as pl

    with writing(path) as temporary:
        pl.concat(list(frames)).write_parquet(temporary, compression="zstd")
