"""Exports load in trl and take one step of training on the tiny model, where GYMDATA_TRL_PYTHON names a Python with trl and torch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gymdata.export.export import export
from gymdata.export.options import Options
from tests.export.cases import WITH_TOKENS, WITH_TOOLS, rollout, save

TRL = os.environ.get("GYMDATA_TRL_PYTHON", "")
pytestmark = pytest.mark.skipif(not TRL, reason="GYMDATA_TRL_PYTHON does not name a Python with trl")
KWARGS = {"metadata": {"chat_template_kwargs": '{"enable_thinking": true}'}}
ROWS = [
    WITH_TOOLS | {"expected_answer": "snow"},
    *[
        rollout(task, index, float(index), params={"metadata": {"chat_template_kwargs": "{}"}})
        for task in (1, 2)
        for index in (0, 1)
    ],
]


def trained(folder: Path, **files: Path) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("train.py")
    asked = [f"{name}={path}" for name, path in files.items()]
    done = subprocess.run([TRL, str(script), str(folder), *asked], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"records"')]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_one_step_of_each_trainer(tmp_path: Path, suffix: str) -> None:
    source = save(tmp_path / "rollouts.jsonl", *ROWS)
    files = {name: tmp_path / f"{name}{suffix}" for name in ("sft", "dpo", "kto", "trl")}
    counts = [export([source], name, path).records for name, path in files.items()]
    found = trained(tmp_path, **files)
    assert [one["records"] for one in found] == counts == [5, 2, 5, 3]
    assert all(one["loss"] > 0 for one in found[:3])


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_token_ids_and_labels_are_trained_on_as_they_are(tmp_path: Path, suffix: str) -> None:
    source = save(tmp_path / "rollouts.jsonl", *[WITH_TOKENS | {"_ng_rollout_index": n} for n in range(2)])
    export([source], "sft", tmp_path / f"sft{suffix}", Options(tokens=True))
    [found] = trained(tmp_path, sft=tmp_path / f"sft{suffix}")
    assert found["prepared"] == {"input_ids": [1, 2, 3, 4, 5, 6, 7, 8], "labels": [-100, -100, -100, 4, 5, -100, 7, 8]}
    assert found["loss"] > 0
