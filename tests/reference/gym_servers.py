"""Real servers of NeMo Gym 0.7.0, one process each as `gym env start` makes them, but all by the Python that GYMDATA_GYM_PYTHON names."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GYM = os.environ.get("GYMDATA_GYM_PYTHON", "")
RESOURCES: dict[str, dict[str, Any]] = {
    "example_single_tool_call": {},
    "example_session_state_mgmt": {},
    "mcqa": {},
    "math_with_judge": {
        "should_use_judge": False,
        "library_verifier_timeout_seconds": 300,  # a verification that takes longer gets a reward of 0 there
        "judge_model_server": {"type": "responses_api_models", "name": "policy_model"},
        "judge_responses_create_params": {"input": []},
    },
}
APP = "import runpy; from nemo_gym import server_utils; server_utils._server_uses_ray = lambda kind: False; runpy.run_path('app.py', run_name='__main__')"
"""A server without the Ray cluster that each starts, whether it uses one or not; none of these does."""
HEAD = "import time; from nemo_gym.server_utils import HeadServer; HeadServer.run_webserver()[2].mark_ready(); time.sleep(36000)"


def gym_environment(**more: str) -> dict[str, str]:
    """What Gym's processes see: nothing of our own tree."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | _extra() | more


def _extra() -> dict[str, str]:
    path = os.environ.get("GYMDATA_GYM_PYTHONPATH", "")
    return {"PYTHONPATH": path} if path else {}


def agent_of(name: str) -> str:
    return f"{name}_simple_agent"


@contextmanager
def gym_servers(
    log: Path, names: list[str], *, model_url: str = "", model: str = "", token_ids: bool = False, model_at: int = 0
) -> Iterator[dict[str, int]]:
    """Resources servers, an agent and an environment server for each, a head server; the ports, by name (`head_server`).

    The agents' model is Gym's own vLLM model server in front of `model_url`, or whatever answers at the port `model_at`.
    """
    vllm = {
        "base_url": [model_url],
        "api_key": "none",
        "model": model,
        "return_token_id_information": token_ids,
        "uses_reasoning_parser": False,
    }
    with _servers(log, _config(names, vllm, model_at)) as ports:
        yield ports


def _config(names: list[str], vllm: dict[str, Any], model_at: int) -> dict[str, Any]:
    def placed(**body: Any) -> dict[str, Any]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            return {"entrypoint": "app.py", "host": "127.0.0.1", "port": free.getsockname()[1], **body}

    policy = {"entrypoint": "app.py", "host": "127.0.0.1", "port": model_at} if model_at else placed(**vllm)
    config: dict[str, Any] = {
        "dry_run": False,
        "head_server": placed(),
        "policy_model": {"responses_api_models": {"vllm_model": policy}},
    }
    for name in names:
        options = {"domain": "other", "verified": False, "description": "", "value": ""}
        config[name] = {"resources_servers": {name: placed(**options, **RESOURCES[name])}}
        references = {
            "resources_server": {"type": "resources_servers", "name": name},
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
        }
        config[agent_of(name)] = {"responses_api_agents": {"simple_agent": placed(**references, max_steps=6)}}
        fronts = {"agent_server": {"type": "responses_api_agents", "name": agent_of(name)}}
        config[f"{name}_environment_server"] = {"environment_servers": {"legacy_agent": placed(**fronts)}}
    return config


@contextmanager
def _servers(log: Path, config: dict[str, Any]) -> Iterator[dict[str, int]]:
    where = Path(
        subprocess.check_output(
            [GYM, "-c", "import nemo_gym; print(nemo_gym.__file__)"], text=True, env=gym_environment()
        ).strip()
    )
    ports = {"head_server": config["head_server"]["port"]}
    processes: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as output:

        def start(command: list[str], folder: Path, name: str) -> None:
            told = {"NEMO_GYM_CONFIG_DICT": json.dumps(config), "NEMO_GYM_CONFIG_PATH": name}
            processes.append(subprocess.Popen(command, cwd=folder, env=gym_environment(**told), stdout=output, stderr=output))

        try:
            start([GYM, "-c", HEAD], where.parent, "head_server")
            for name, entry in config.items():
                for kind, bodies in entry.items() if isinstance(entry, dict) and name != "head_server" else ():
                    for implementation, body in bodies.items():
                        ports[name] = body["port"]
                        if "agent_server" in body or kind != "responses_api_models" or body.get("base_url"):
                            start([GYM, "-c", APP], where.parent.parent / kind / implementation, name)
            for port in ports.values():
                _wait(port, processes, log)
            yield ports
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


def _wait(port: int, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert all(process.poll() is None for process in processes), log.read_text()[-3000:]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"nothing answers at {port}: {log.read_text()[-3000:]}")
