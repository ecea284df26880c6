"""Prepared data for what is measured: the bundled rows of an environment, changed as a test likes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gymdata.environments import registry
from gymdata.environments.model import Environment
from gymdata.environments.yaml import Place
from gymdata.prepare import Options, prepare

Rows = list[dict[str, Any]]
Prepare = Callable[..., tuple[Path, Environment]]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepare:
    """A function that prepares the train rows of a built-in environment, after `change` has had them, to one directory."""

    def run(name: str = "math", change: Callable[[Rows], object] = lambda rows: None) -> tuple[Path, Environment]:
        rows = [json.loads(line) for line in (registry.fixtures() / name / "train.jsonl").read_text("utf-8").splitlines()]
        change(rows)
        path = tmp_path / "train.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        environment = registry.load(name)
        (entry,) = environment.datasets(["train"])
        entry = entry.model_copy(update={"jsonl_fpath": "train.jsonl"}).bound(entry.instance, Place("", 0), path)
        instances = tuple(replace(one, datasets=(entry,) if one.name == entry.instance else ()) for one in environment.instances)
        environment = replace(environment, instances=instances)
        prepare([environment], tmp_path / "out", Options(), overwrite_metrics=True)
        return tmp_path / "out", environment

    return run
