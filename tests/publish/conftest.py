from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gymdata.environments.model import Environment, RowField
from gymdata.manifest import InputFile, Manifest, OutputFile, sha256
from gymdata.publish.dataset import Dataset, load_dataset
from gymdata.statistics.metrics import gym_metrics
from gymdata.validate import Target, measure
from tests.servers.fixtures import hub  # noqa: F401

ENVIRONMENT = Environment("math", (), "Sums.", fields=(RowField(type="string", path="expected_answer"),))


def row(prompt: str, answer: str = "4", **more: object) -> bytes:
    params = {"input": prompt, "temperature": 0.6}
    return json.dumps({"responses_create_params": params, "question": prompt, "expected_answer": answer, **more}).encode()


@pytest.fixture
def prepare(tmp_path: Path) -> Callable[..., Dataset]:
    """Makes a prepared directory as `gymdata prepare` leaves it, from lists of rows by split."""

    def make(
        license: str = "MIT", name: str = "prepared", environment: Environment = ENVIRONMENT, **splits: list[bytes]
    ) -> Dataset:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        outputs = []
        for split, rows in splits.items():
            (directory / f"{split}.jsonl").write_bytes(b"".join(one + b"\n" for one in rows))
            columns = measure(Target(directory / f"{split}.jsonl")).columns
            metrics = {"name": "math", "license": license, **gym_metrics([(columns, 1)])}
            (directory / f"{split}_metrics.json").write_text(json.dumps(metrics))
            (directory / f"{split}_statistics.json").write_text(json.dumps({"tokens": {"mean": 3.5, "p99": 7}}))
            for path, count in (
                (f"{split}.jsonl", len(rows)),
                (f"{split}_metrics.json", None),
                (f"{split}_statistics.json", None),
            ):
                file = directory / path
                outputs.append(OutputFile(path=path, sha256=sha256(file), bytes=file.stat().st_size, rows=count))
        source = InputFile(
            path="data/source.jsonl",
            sha256="0" * 64,
            bytes=1,
            dataset="math",
            type="train",
            instance="math_agent",
            rows=1,
            valid=1,
        )
        manifest = Manifest(
            environments=("math",),
            fingerprint="f" * 64,
            options={},
            config=[{"name": "math", "type": "train", "license": license}],
            inputs=(source,),
            outputs=tuple(outputs),
            versions={},
            seconds=0.1,
        )
        (directory / "manifest.json").write_bytes(manifest.to_json())
        return load_dataset(directory, environment)

    return make
