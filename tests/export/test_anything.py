"""Whatever stands in a row, an export takes it or counts it as left out; it never fails on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymdata.errors import DataError
from gymdata.export.export import FORMATS, export
from gymdata.export.options import Options
from tests.export.cases import WITH_TOKENS, WITH_TOOLS, rollout

VALUES: list[Any] = [None, True, -1, 1e300, 2**70, "", "x", [], [1], [[]], {}, {"type": "message"}, {"a": None}, [{"role": "user"}],
                     [{"type": "function_call"}], [{"role": "assistant", "content": [{"type": "text"}]}]]  # fmt: skip


def changed(row: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of a row with another value at a place."""
    copy = json.loads(json.dumps(row))
    inner = copy
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return copy


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in inner for place in [(*path, key), *places(one, (*path, key))]]


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("row", [WITH_TOOLS, WITH_TOKENS], ids=["tools", "tokens"])
def test_any_value_at_any_place(tmp_path: Path, to: str, row: dict[str, Any]) -> None:
    row = row | {"expected_answer": "x", "reward_components": {"a": 1.0}, "metadata": {"a": 1}}
    indices = {"_ng_task_index", "_ng_rollout_index"}
    broken = [changed(row, path, value) for path in places(row) if path[0] not in indices for value in VALUES]
    rows = [rollout(), *[one | {"_ng_task_index": number, "_ng_rollout_index": 0} for number, one in enumerate(broken, 1)]]
    source = tmp_path / "rollouts.jsonl"
    source.write_text("".join(json.dumps(one) + "\n" for one in rows))
    for options in [Options(), Options(tokens=True)] if "tokens" in FORMATS[to].heeds else [Options()]:
        try:
            found = export([source], to, tmp_path / "out.jsonl", options)
        except DataError as error:
            assert "no record is left" in error.message
            continue
        assert found.rollouts == len(rows) - sum(len(findings) > 0 for findings in found.findings.values()) or found.findings
        if to not in ("dpo", "nemo-rl-preference"):
            assert found.records + sum(found.removed.values()) == found.rollouts
        for line in (tmp_path / "out.jsonl").read_text().splitlines():
            json.loads(line)
