"""The facts of rows as Parquet."""

from __future__ import annotations

from pathlib import Path

import polars

from gymdata.rows.columns import Columns
from gymdata.statistics.facts import facts_frame, write_facts


def sample() -> Columns:
    columns = Columns()
    params = [{"input": "a b", "temperature": 0.5}, {"input": "a b", "tools": []}]
    for line, create in zip((1, 3), params, strict=True):
        columns.add_row(
            line,
            {"responses_create_params": create, "expected_answer": "7"} if line == 3 else {"responses_create_params": create},
            create,
        )
    return columns


def test_every_row_is_a_line() -> None:
    frame = facts_frame(sample(), "train.jsonl", warnings={3: "GD401 GD502"}, errors={2})
    assert frame["line"].to_list() == [1, 3, 2]
    assert frame["verdict"].to_list() == ["valid", "warning", "error"]
    assert frame["findings"].to_list() == [None, "GD401 GD502", None]
    assert frame["words"].to_list() == [5, 5, None]
    assert frame["tools"].to_list() == [None, 0, None]
    assert frame["temperature"].to_list() == [0.5, None, None]
    assert frame["tokens"].to_list() == [None] * 3
    assert frame["prompt_key"][0] == frame["prompt_key"][1]
    assert [key and len(key) for key in frame["key"]] == [32, 32, None]
    assert frame["answer_key"][0] is None


def test_files_are_written_as_one_table(tmp_path: Path) -> None:
    path = tmp_path / "facts.parquet"
    write_facts(
        path,
        [facts_frame(sample(), "a.jsonl"), facts_frame(Columns(), "empty.jsonl"), facts_frame(sample(), "b.jsonl", errors=[9])],
    )
    assert polars.read_parquet(path)["file"].to_list() == ["a.jsonl"] * 2 + ["b.jsonl"] * 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["facts.parquet"]
