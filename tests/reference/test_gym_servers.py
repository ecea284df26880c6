"""Our collector and NeMo Gym's own against the same real servers of NeMo Gym 0.7.0: the same rewards, whoever asks.

GYMDATA_GYM_PYTHON names a Python with nemo-gym 0.7.0; math also wants its math-verify 0.8.0, in GYMDATA_GYM_PYTHONPATH if not there.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gymdata.cli.main import main
from tests.reference.gym_servers import GYM, RESOURCES, agent_of, gym_environment, gym_servers
from tests.reference.test_gym_collector import served
from tests.servers.model import ModelServer

pytestmark = pytest.mark.skipif(not GYM, reason="GYMDATA_GYM_PYTHON does not name a Python with nemo-gym")
FIXTURES = {
    "mcqa": "mcqa",
    "math_with_judge": "math",
    "example_single_tool_call": "single_tool_call",
    "example_session_state_mgmt": "session_state",
}
ROOT = Path(__file__).parents[2]


def rows(path: Path) -> Path:
    """Some of each environment, right for some of what the model below says."""
    made = []
    for name, fixture in FIXTURES.items():
        for number, line in enumerate((ROOT / "fixtures" / fixture / "train.jsonl").read_text().splitlines()[:4]):
            row = {**json.loads(line), "agent_ref": {"type": "responses_api_agents", "name": agent_of(name)}}
            if name == "math_with_judge":
                row["expected_answer"] = str(number)
            if name == "example_session_state_mgmt":
                row["expected_count"] = row["initial_count"] + number
            made.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def speak(body: dict[str, Any]) -> str | dict[str, Any]:
    """Adds 2 to the counter, asks for the weather of every other prompt, and says B and 2 of everything."""
    tools = {tool["function"]["name"] for tool in body.get("tools") or ()}
    asked = json.dumps(next(message["content"] for message in body["messages"] if message["role"] == "user"))
    called = any(message["role"] == "tool" for message in body["messages"])
    function = {"name": "increment_counter", "arguments": '{"count": 2}'}
    if "get_weather" in tools:
        function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
        called |= len(asked) % 2 == 0
    if tools and not called:
        return {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    return "It is \\boxed{B}." if "B:" in asked or "B)" in asked or "(B" in asked else "It is \\boxed{2}."


def rewards(path: Path) -> dict[int, float]:
    return {row["_ng_task_index"]: row["reward"] for row in map(json.loads, path.read_text().splitlines())}


def gym_collects(folder: Path, head: int) -> dict[int, float]:
    script = "import sys; from nemo_gym.cli.main import main; sys.exit(main())"
    arguments = ["eval", "run", "--no-serve", "--input", "rows.jsonl", "--output", "gym.jsonl", "--concurrency", "4"]
    arguments += ["+head_server.host=127.0.0.1", f"+head_server.port={head}"]
    done = subprocess.run(
        [GYM, "-c", script, *arguments], cwd=folder, env=gym_environment(), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return rewards(folder / "gym.jsonl")


def test_our_collector_gets_the_rewards_that_gyms_gets(tmp_path: Path):
    path = rows(tmp_path / "rows.jsonl")

    def collect(name: str, *arguments: str, code: int = 0) -> dict[int, float]:
        output = tmp_path / f"{name}.jsonl"
        command = ["rollouts", "collect", str(path), "--output", str(output), "--workers", "1", "--concurrency", "4", *arguments]
        assert main(command) == code, output.with_name(f"{name}_failures.jsonl").read_text()
        return rewards(output)

    with ModelServer(answer=speak, max_model_len=1 << 15) as model:
        with gym_servers(tmp_path / "log", list(RESOURCES), model_url=model.url, model=model.model) as ports:
            head = f"http://127.0.0.1:{ports['head_server']}"
            theirs = gym_collects(tmp_path, ports["head_server"])
            assert len(theirs) == 16
            assert collect("agents", "--head-url", head) == theirs
            assert collect("resources", "--head-url", head, "--model-url", model.url) == theirs
            # An agent that is given rows of others, whose verifier then fails: Gym's 500s, kept apart from rewards.
            math = f"http://127.0.0.1:{ports[agent_of('math_with_judge')]}"
            some = collect("math", "--agent-url", math, code=3)
            assert {task: theirs[task] for task in range(4, 8)} == {task: some[task] for task in range(4, 8)}
            failures = [json.loads(line) for line in (tmp_path / "math_failures.jsonl").read_text().splitlines()]
            assert {(one["_ng_failure_class"], one["_ng_failure_type"]) for one in failures} == {("agent_run_error", "http_500")}
            assert {one["_ng_task_index"] for one in failures} == set(range(16)) - some.keys() == set(range(8, 16))
        environments = [word for name in FIXTURES.values() for word in ("--env", name)]
        assert collect("ours", *environments, "--model-url", model.url) == theirs, "by our own tools and verifiers"
    by_agent = Counter(
        (json.loads(line)["agent_ref"]["name"], theirs[task]) for task, line in enumerate(path.read_text().splitlines())
    )
    assert sum(count for (_, reward), count in by_agent.items() if reward == 1.0) >= 4, by_agent
    assert sum(count for (_, reward), count in by_agent.items() if reward == 0.0) >= 4, by_agent


def test_gyms_agent_takes_our_proxy_for_its_model(tmp_path: Path):
    """Its agent, resources and environment server for a row with tools; the model server is `gymdata serve`."""
    path = rows(tmp_path / "rows.jsonl")
    lines = [line for line in path.read_text().splitlines() if agent_of("example_session_state_mgmt") in line]
    path.write_text("\n".join(lines) + "\n")
    with (
        ModelServer(answer=speak, max_model_len=1 << 15) as model,
        served("--model-url", model.url) as port,
        gym_servers(tmp_path / "log", ["example_session_state_mgmt"], model_at=port) as ports,
    ):
        assert gym_collects(tmp_path, ports["head_server"]) == {0: 0.0, 1: 0.0, 2: 1.0, 3: 0.0}
    items = [
        item for line in (tmp_path / "gym.jsonl").read_text().splitlines() for item in json.loads(line)["response"]["output"]
    ]
    assert all(item["generation_token_ids"] for item in items if item["type"] in ("function_call", "message"))
