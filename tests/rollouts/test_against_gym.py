"""The profile's files against NeMo Gym's own code, where GYMDATA_GYM_PYTHON names a Python that has nemo-gym 0.7.0."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gymdata.rollouts.profile import profile, write

GYM = os.environ.get("GYMDATA_GYM_PYTHON", "")
pytestmark = pytest.mark.skipif(not GYM, reason="GYMDATA_GYM_PYTHON does not name a Python with nemo-gym")
REAL = Path(__file__).parents[3] / "shared" / "data" / "rollouts.jsonl"

# What `gym eval profile` does with two files, and the collector with the rollouts of each agent.
ASK = """
import json, sys, warnings
warnings.simplefilter("ignore")
from nemo_gym.global_config import rollout_run_key, rollout_run_labels
from nemo_gym.reward_profile import RewardProfiler, compute_aggregate_metrics, coverage_by_agent, select_measured
HEAVY = {"response", "responses_create_params"}
answers = []
for rows, results in json.load(sys.stdin):
    profiler = RewardProfiler()
    results.sort(key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))
    measured = select_measured(rows, results)
    groups, agents, repeats = profiler.profile_from_data(measured[0], measured[1], allow_partial_rollouts=True)
    coverage = coverage_by_agent(rows, results)
    for entry in agents:
        entry.update(coverage.pop(entry["agent_ref"]["name"], {}))
    agents += [{"agent_ref": {"name": name}, **rest} for name, rest in coverage.items()]
    aggregates = {}
    for run, name in rollout_run_labels(results).items():
        stripped = []
        for row in results:
            if rollout_run_key(row) == run:
                response = {key: value for key, value in (row.get("response") or {}).items() if key in ("usage", "incomplete_details")}
                light = {key: value for key, value in row.items() if key not in HEAVY}
                stripped.append(light | ({"response": response} if response else {}))
        aggregates[name] = compute_aggregate_metrics(stripped).model_dump(mode="json")
    answers.append([*map(profiler.prepare_for_serialization, (groups, agents, repeats)), aggregates])
print(json.dumps(answers))
"""


def ask_gym(cases: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]) -> list[Any]:
    done = subprocess.run([GYM, "-c", ASK], input=json.dumps(cases), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def ours(folder: Path, inputs: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[Any]:
    for name, rows in (("inputs", inputs), ("rollouts", results)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write(profile([folder / "rollouts.jsonl"], [folder / "inputs.jsonl"]), folder / "rollouts.jsonl")
    groups = [json.loads(line) for line in (folder / "rollouts_reward_profiling.jsonl").read_text().splitlines()]
    agents, repeats, aggregates = (
        json.loads((folder / f"rollouts_{name}.json").read_text())
        for name in ("agent_metrics", "repeat_level_metrics", "aggregate_metrics")
    )
    by_agent = {entry.pop("agent_ref")["name"]: {"perf_summary": None, **entry} for entry in aggregates}
    for entry in by_agent.values():
        entry.pop("_ng_environment_server", None)
    return [groups, agents, repeats, by_agent]


def assert_same(mine: Any, theirs: Any, path: str = "$") -> None:
    """Equal in structure, keys and numbers; of floats, the last digits may differ by the order of a sum."""
    if isinstance(theirs, dict):
        assert isinstance(mine, dict) and mine.keys() == theirs.keys(), (path, set(mine) ^ set(theirs))
        for key in theirs:
            assert_same(mine[key], theirs[key], f"{path}.{key}")
    elif isinstance(theirs, list):
        assert isinstance(mine, list) and len(mine) == len(theirs), (path, len(mine), len(theirs))
        for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            assert_same(one, other, f"{path}[{index}]")
    elif isinstance(theirs, float) and isinstance(mine, float):
        assert math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9), (path, mine, theirs)
    else:
        assert mine == theirs and type(mine) is type(theirs), (path, mine, theirs)


def materialized(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in ("response", "reward")} for row in results]


@pytest.mark.parametrize("agent", ["tau_simple_agent", "gsm8k_simple_agent"])
def test_the_profile_of_real_rollouts_is_gyms(tmp_path: Path, agent: str) -> None:
    if not REAL.exists():
        pytest.skip("the real rollouts (../shared/data/rollouts.jsonl) are not here")
    rows = [row for row in map(json.loads, REAL.read_text().splitlines()) if row["agent_ref"]["name"] == agent]
    inputs = materialized(rows)
    assert_same(ours(tmp_path, inputs, rows), ask_gym([(inputs, rows)])[0])


def test_the_profile_of_generated_rollouts_is_gyms(tmp_path: Path) -> None:
    cases = [generated(random.Random(seed)) for seed in range(30)]
    for number, (case, theirs) in enumerate(zip(cases, ask_gym(cases), strict=True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert_same(ours(folder, *case), theirs, f"case {number} $")


def generated(draw: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Inputs and rollouts in any order: unequal counts, missing ones, bools, nested and absent fields, several agents, masks."""
    shared = draw.random() < 0.3  # every task given to every agent
    agents = ["one_agent", "two_agent", "three_agent"][: draw.choice([1, 1, 2, 3])]
    whole = draw.random() < 0.2
    kinds = {
        "flag": lambda: draw.random() < 0.5,
        "score": lambda: draw.choice([0.25, 0.5, draw.random(), -1.5]),
        "steps": lambda: draw.randint(-3, 12),
        "max": lambda: draw.random(),
        "note": lambda: "text",
        "details": lambda: {"inner": 1.0, "list": [1, 2]},
        "nothing": lambda: None,
        "_hidden": lambda: 3,
        "mask_sample": lambda: draw.random() < 0.3,
        "total_tokens": lambda: draw.randint(0, 9),
        "ng_perf": lambda: {
            key: draw.randint(0, 9)
            for key in ("prompt_tokens", "completion_tokens", "num_turns", "total_latency_ms", "token_observability_coverage")
            if draw.random() < 0.8
        },
    }
    servers = draw.choice([[], [], ["a_server", "b_server"]])
    fields = draw.sample(sorted(kinds), draw.randint(0, 6))
    presence = draw.choice([1.0, 0.7])
    inputs, results = [], []
    for task in draw.sample(range(40), draw.randint(1, 7)):
        index = 0
        for agent in agents if shared else [draw.choice(agents)]:
            for _ in range(draw.randint(1, 5)):
                row = {
                    "responses_create_params": {"input": f"task {task}"},
                    "expected_answer": str(task),
                    "agent_ref": {"type": "responses_api_agents", "name": agent},
                    "_ng_task_index": task,
                    "_ng_rollout_index": index,
                }
                if servers:
                    row["_ng_environment_server"] = f"{agent}_{servers[task % 2]}"
                index += 1
                inputs.append(row)
                if draw.random() < 0.15:
                    continue
                extras = {key: kinds[key]() for key in fields if draw.random() < presence}
                reward = draw.choice([0, 1]) if whole else draw.choice([0.0, 1.0, draw.random()])
                results.append(row | extras | {"reward": reward, "response": response(draw)})
    if not results:
        return generated(draw)
    draw.shuffle(results)
    return inputs, results


def response(draw: random.Random) -> dict[str, Any] | None:
    usage = {
        "input_tokens": draw.randint(1, 99),
        "output_tokens": draw.randint(1, 999),
        "input_tokens_details": {"cached_tokens": 1},
    }
    usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
    body = {"id": "r", "object": "response", "output": [], "incomplete_details": {"reason": "max_output_tokens"}}
    return draw.choice([body | {"usage": usage}, body | {"usage": usage}, body | {"usage": None}, None])
