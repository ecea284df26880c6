"""NeMo Gym's own collector and profiler against `gymdata serve`, where GYMDATA_GYM_PYTHON names a Python that has nemo-gym 0.7.0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.model import ModelServer

GYM = os.environ.get("GYMDATA_GYM_PYTHON", "")
pytestmark = pytest.mark.skipif(not GYM, reason="GYMDATA_GYM_PYTHON does not name a Python with nemo-gym")
ROOT = Path(__file__).parents[2]


@contextmanager
def served(*arguments: str) -> Iterator[int]:
    """`gymdata serve` as a process; its port."""
    command = [sys.executable, "-m", "gymdata.cli.main", "serve", *arguments, "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()


def gym(folder: Path, *arguments: str) -> str:
    script = "import sys; from nemo_gym.cli.main import main; sys.exit(main())"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [GYM, "-c", script, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def sums(path: Path, answers: dict[int, Any]) -> None:
    rows = [
        {
            "responses_create_params": {"input": f"What is {one} plus 4?"},
            "expected_answer": answer,
            "agent_ref": {"type": "responses_api_agents", "name": "math_with_judge_simple_agent"},
        }
        for one, answer in answers.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_gyms_collector_collects_and_profiles_our_environment(tmp_path: Path):
    sums(tmp_path / "rows.jsonl", {1: "5", 2: "6", 3: "8"})  # the last is not what the model will say
    with ModelServer() as model, served("math", "session_state", "--model-url", model.url) as port:
        head = ("+head_server.host=127.0.0.1", f"+head_server.port={port}")
        gym(tmp_path, "eval", "run", "--no-serve", "--input", "rows.jsonl", "--output", "r.jsonl", "--num-repeats", "2", *head)
    rollouts = read(tmp_path / "r.jsonl")
    assert [(one["_ng_task_index"], one["reward"]) for one in rollouts] == [
        (task, float(task < 2)) for task in range(3) for _ in "ab"
    ]
    assert all(one["response"]["output"][-1]["generation_token_ids"] for one in rollouts)
    (aggregate,) = json.loads((tmp_path / "r_aggregate_metrics.json").read_text())
    assert aggregate["key_metrics"]["mean/reward"] == pytest.approx(2 / 3)
    gym(tmp_path, "eval", "profile", "--inputs", "r_materialized_inputs.jsonl", "--rollouts", "r.jsonl")
    assert [task["mean/reward"] for task in read(tmp_path / "r_reward_profiling.jsonl")] == [1.0, 1.0, 0.0]


def test_a_failure_is_a_failure_to_gyms_collector_and_no_reward(tmp_path: Path):
    sums(tmp_path / "rows.jsonl", {1: "5", 2: None})
    with ModelServer() as model, served("math", "--failure-rows", "--model-url", model.url) as port:
        head = ("+head_server.host=127.0.0.1", f"+head_server.port={port}")
        gym(tmp_path, "eval", "run", "--no-serve", "--input", "rows.jsonl", "--output", "r.jsonl", *head)
    assert [one["reward"] for one in read(tmp_path / "r.jsonl")] == [1.0]
    (failure,) = read(tmp_path / "r_failures.jsonl")
    assert failure["_ng_failure_class"] == "verifier_failed" and "reward" not in failure
