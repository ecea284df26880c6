"""Rows as Parquet: equal values come back through `datasets`, whatever the columns hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymdata.errors import DataError
from gymdata.publish.numbers import faithful
from gymdata.publish.parquet import columns, write_parquet
from gymdata.publish.verify import same_row

SHARED = Path(__file__).parents[2].parent / "shared"
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: float(f"{number:.9g}"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def read(path: Path, streaming: bool = False) -> list[dict]:
    import datasets

    datasets.disable_progress_bars()
    cache = str(path.parent / "cache")
    return list(datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=cache, streaming=streaming))


def written(rows: list[bytes], folder: Path) -> tuple[Path, dict]:
    source = folder / "rows.jsonl"
    source.write_bytes(b"\n".join(rows))
    kinds = columns([source])
    assert write_parquet(source, [folder / "rows.parquet"], kinds) == len(rows)
    return folder / "rows.parquet", kinds


def test_plain_columns_are_plain_and_everything_else_is_json(tmp_path: Path) -> None:
    first = (
        b'{"responses_create_params": {"input": "x"}, "s": "1", "i": 1, "f": 1.5, "b": true, "mixed": 1, "rare": 1, "null": "x"}'
    )
    second = b'{"responses_create_params": {"input": "y"}, "s": "2", "i": 2, "f": 1e9, "b": false, "mixed": 1.5, "null": null}'
    _, kinds = written([first, second], tmp_path)
    expected = ["json", "string", "int64", "float64", "bool", "json", "json", "json"]
    assert list(kinds.values()) == expected


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1), min_size=1, max_size=4))
def test_any_rows_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    try:
        path, _ = written([json.dumps(row).encode() for row in rows], folder)
    except DataError:
        return  # datasets has no spelling for a number; publishing refuses
    for row, back in zip(rows, read(path, streaming=True), strict=True):
        assert same_row(row, back)


@pytest.mark.parametrize("number", ["0.6", "8.854e-12", "0.12345678901234567", "-1.2039728043259361", "1e22", "1.0", "-0.0"])
def test_a_number_is_spelled_so_that_every_reader_gets_the_same_double(number: str) -> None:
    from datasets.utils.json import ujson_loads

    text = faithful('{"a": [' + number + '], "text": "0.6 \\" 0.6"}')
    expected = {"a": [float(number)], "text": '0.6 " 0.6'}
    assert json.loads(text) == ujson_loads(text) == expected


def test_an_integer_that_datasets_cannot_read_is_refused() -> None:
    with pytest.raises(DataError, match="64 bits"):
        faithful("[123456789012345678901234567890]")


def shared_files() -> list[Path]:
    names = [SHARED / "data" / f"{name}.jsonl" for name in ("tools", "mcqa", "rollouts")]
    return [path for path in [*names, *sorted(SHARED.glob("cases/gym_examples/*/example.jsonl"))] if path.is_file()]


@pytest.mark.skipif(not shared_files(), reason="needs ../shared: real rows")
def test_real_rows_come_back_plain_and_streaming(tmp_path_factory: pytest.TempPathFactory) -> None:
    for source in shared_files():
        folder = tmp_path_factory.mktemp("real")
        lines = [line for line in source.read_bytes().split(b"\n") if line.strip()]
        path, _ = written(lines, folder)
        for streaming in (False, True) if source.parent.name == "data" else (True,):
            for line, back in zip(lines, read(path, streaming=streaming), strict=True):
                assert same_row(json.loads(line), back), source


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1), min_size=1, max_size=4))
def test_our_own_reader_tells_an_absent_key_from_a_null(tmp_path_factory: pytest.TempPathFactory, rows: list[dict]) -> None:
    from gymdata.sources.parquet import parquet_to_jsonl

    folder = tmp_path_factory.mktemp("rows")
    try:
        path, _ = written([json.dumps(row).encode() for row in rows], folder)
    except DataError:
        return
    parquet_to_jsonl(path, folder / "back.jsonl")
    back = [json.loads(line) for line in (folder / "back.jsonl").read_bytes().split(b"\n") if line]
    assert json.dumps(back, sort_keys=True) == json.dumps(rows, sort_keys=True)
