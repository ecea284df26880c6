"""verifiers' own evaluation against `gymdata serve`, where GYMDATA_VERIFIERS_PYTHON names a Python that has verifiers 0.4.0."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.reference.test_gym_collector import served, sums
from tests.servers.model import ModelServer

PYTHON = os.environ.get("GYMDATA_VERIFIERS_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not PYTHON or not shutil.which("uv"),
    reason="GYMDATA_VERIFIERS_PYTHON does not name a Python with verifiers, or there is no uv",
)
CONFIG = """
model = "adder"
push = false
[client]
base_url = "{url}/v1"
api_key_var = "NO_KEY"
[env.taskset]
id = "nemo_gym"
dataset = "rows.jsonl"
[env.taskset.task]
resources_url = "{url}"
[env.agent.harness]
id = "null"
[env.agent.runtime]
type = "subprocess"
"""


def test_verifiers_takes_our_server_for_resources_and_model(tmp_path: Path):
    sums(tmp_path / "rows.jsonl", {1: "5", 2: "6", 3: "8"})  # the last is not what the model will say
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"NO_KEY": "none"}
    with ModelServer() as model, served("math", "--model-url", model.url) as port:
        (tmp_path / "eval.toml").write_text(CONFIG.format(url=f"http://127.0.0.1:{port}"))
        command = [Path(PYTHON).with_name("vf-eval"), "@", "eval.toml", "--no-rich"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    (traces,) = tmp_path.glob("outputs/*/traces.jsonl")
    found = {}
    for episode in map(json.loads, traces.read_text().splitlines()):
        (trace,) = episode["traces"]
        assert trace["errors"] == [], done.stdout[-2000:]
        found[trace["info"]["nemo_gym"]["expected_answer"]] = trace["rewards"]["nemo_gym"]["score"]
    assert found == {"5": 1.0, "6": 1.0, "8": 0.0}
