"""The client and the collector against a real vLLM: the tiny model, whose weights are random, on this machine's CPU.

GYMDATA_VLLM_PYTHON names a Python with vLLM; `make serve` makes one in .venv-vllm.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymdata.cli.main import main
from gymdata.rollouts.chat_reply import Turn
from gymdata.rollouts.overflow import Overflow
from gymdata.rollouts.policy import Policy, Settings
from gymdata.rows.schema import rollout_row

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("GYMDATA_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
CALL = r"<tool_call>\n\{\"name\": \"increment_counter\", \"arguments\": \{\"count\": 3\}\}\n</tool_call>"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON.exists(), reason="no vLLM here: `make serve` installs it, GYMDATA_VLLM_PYTHON names another"),
]


class Server:
    """vLLM with a small model, which can be killed and started again."""

    def __init__(self, log: Path, model: str = "tiny") -> None:
        self._log, self._model = log, model
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        command = [sys.executable, str(ROOT / "serving" / "serve.py"), self._model, "--port", str(self.port)]
        with open(self._log, "ab") as log:
            environment = {**os.environ, "GYMDATA_VLLM_PYTHON": str(PYTHON)}
            # A session of its own: killed alone, the server would leave its engine behind.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def wait(self) -> None:
        for _ in range(1200):
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as reply:
                    if reply.status == 200:
                        return
            except OSError:
                threading.Event().wait(0.2)
        raise AssertionError(f"vLLM did not start: {self._log.read_text()[-3000:]}")

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("vllm") / "vllm.log")
    running.start()
    try:
        running.wait()
        yield running
    finally:
        running.kill()


def using(server: Server, work: Callable[[Policy], Coroutine[Any, Any, Any]], **settings: Any) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(120), Policy(Settings((server.url,), **settings)) as policy:
            return await work(policy)

    return asyncio.run(run())


def asking(params: dict[str, Any], seed: int | None = 1) -> Callable[[Policy], Coroutine[Any, Any, Any]]:
    async def work(policy: Policy) -> Turn | Overflow:
        async with await policy.begin() as trajectory:
            return await trajectory.respond(params, seed)

    return work


def params(text: str = "What is 2 + 3?", **more: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": text}], "max_output_tokens": 8, **more}


def test_token_ids_and_log_probabilities(server: Server):
    turn = using(server, asking(params()))
    last = turn.items[-1]
    assert len(last["generation_token_ids"]) == len(last["generation_log_probs"]) == turn.usage["output_tokens"] == 8
    assert len(last["prompt_token_ids"]) == turn.usage["input_tokens"] and turn.stopped == "max_output_tokens"
    assert all(score <= 0 for score in last["generation_log_probs"])


def test_seeds_make_answers_differ_and_come_again(server: Server):
    texts = [using(server, asking(params(), seed)).items[-1]["generation_token_ids"] for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"text": "1 " * 3000}, "prompt_too_long"),
        ({"max_output_tokens": 5000}, "max_tokens_too_large"),
    ],
)
def test_a_context_that_is_too_long_is_told(server: Server, more: dict[str, Any], kind: str):
    for api in ("chat",) if kind == "max_tokens_too_large" else ("chat", "responses"):
        outcome = using(server, asking(params(**more)), api=api)
        assert isinstance(outcome, Overflow) and outcome.kind == kind, outcome


def test_a_context_without_room_for_an_answer_is_told(server: Server):
    """A prompt of exactly the length of the context, found by asking how long one of n words is."""

    async def work(policy: Policy) -> tuple[Any, Any]:
        async def length(words: int) -> int:
            body = {"model": policy.model, "messages": [{"role": "user", "content": "0" * words}]}
            _, _, data = await policy.post(policy.endpoints.all[0], "/../tokenize", json.dumps(body).encode())
            return json.loads(data)["count"]

        words = 2048 - await length(1) + 1
        assert await length(words) == policy.max_model_len == 2048
        asked = params("0" * words)
        del asked["max_output_tokens"]
        return await asking(asked)(policy), await asking({**asked, "max_output_tokens": 1})(policy)

    for outcome in using(server, work):
        assert isinstance(outcome, Overflow), outcome


def test_the_responses_api(server: Server):
    turn = using(server, asking(params()), api="responses")
    assert turn.items and turn.usage["output_tokens"] == 8


def test_giving_up_reaches_the_engine(server: Server):
    async def work(policy: Policy) -> None:
        tasks = [asyncio.create_task(asking(params(max_output_tokens=2000))(policy)) for _ in range(8)]
        while server.metric("vllm:num_requests_running") < 8:
            await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        while server.metric("vllm:num_requests_running"):
            await asyncio.sleep(0.02)

    using(server, work, extra_body={"ignore_eos": True})


def collect(server: Server, folder: Path, *more: str) -> list[dict[str, Any]]:
    output = folder / "r.jsonl"
    code = main(["rollouts", "collect", *more, "--model-url", server.url, "--output", str(output), "--workers", "1"])
    assert code == 0
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_tools_are_called_and_answer(server: Server, tmp_path: Path):
    """What the model says is forced to be a call, until the steps are used up. (Of tools with `strict` vLLM makes a grammar of its own.)"""
    parameters = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    tool = {
        "type": "function",
        "name": "increment_counter",
        "description": "Add to the counter.",
        "parameters": parameters,
        "strict": False,
    }
    row = {"responses_create_params": {"input": "Add 3.", "tools": [tool]}, "initial_count": 1, "expected_count": 4}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    forced = json.dumps({"structured_outputs": {"regex": CALL}})
    more = ("--env", "session_state", "--max-steps", "2", "--max-output-tokens", "200", "--extra-body", forced)
    for row in collect(server, tmp_path, str(tmp_path / "rows.jsonl"), *more):
        rollout_row().validate_python(row)
        kinds = [item["type"] for item in row["response"]["output"]]
        assert kinds == ["function_call", "function_call_output", "function_call"], row["response"]["output"]
        assert row["response"]["output"][0]["arguments"] == '{"count": 3}' and row["stop_reason"] == "max_steps"
        one, two = (item for item in row["response"]["output"] if "prompt_token_ids" in item)
        assert len(two["prompt_token_ids"]) > len(one["prompt_token_ids"]) + len(one["generation_token_ids"])


def test_a_server_killed_in_the_middle_costs_nothing(server: Server, tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    texts = [
        json.dumps({"responses_create_params": {"input": f"What is {n} + 1?"}, "expected_answer": str(n + 1)}) for n in range(60)
    ]
    rows.write_text("\n".join(texts))
    command = [
        sys.executable,
        "-m",
        "gymdata.cli.main",
        "rollouts",
        "collect",
        str(rows),
        "--env",
        "math",
        "--model-url",
        server.url,
    ]
    command += ["--num-repeats", "4", "--max-output-tokens", "64", "--output", str(tmp_path / "r.jsonl"), "--concurrency", "16"]
    run = subprocess.Popen([*command, "--workers", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output = tmp_path / "r.jsonl"
    while run.poll() is None and not (output.exists() and output.stat().st_size):
        threading.Event().wait(0.02)
    server.kill()
    server.start()
    server.wait()
    _, error = run.communicate(timeout=180)
    assert run.returncode == 0, error.decode()
    found = [json.loads(line) for line in output.read_text().splitlines()]
    counts = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in found)
    assert counts == {(task, rollout): 1 for task in range(60) for rollout in range(4)}


@pytest.mark.slow
def test_a_model_that_can_talk_is_right_now_and_then(tmp_path: Path):
    running = Server(tmp_path / "vllm.log", "smollm2")
    running.start()
    try:
        running.wait()
        rows = tmp_path / "rows.jsonl"
        prompt = "Solve the following math problem. Put the final answer inside \\boxed{{}}.\n\nWhat is {} + {}?"
        pairs = [(one, two) for one in range(1, 7) for two in range(one, 7)]
        texts = [
            json.dumps({"responses_create_params": {"input": prompt.format(*pair)}, "expected_answer": str(sum(pair))})
            for pair in pairs
        ]
        rows.write_text("\n".join(texts))
        form = json.dumps({"structured_outputs": {"regex": r"[^\\]{1,220}\\boxed\{[0-9]{1,4}\}"}})
        more = ("--env", "math", "--num-repeats", "4", "--temperature", "0.7", "--max-output-tokens", "128", "--extra-body", form)
        found = collect(running, tmp_path, str(rows), *more)
    finally:
        running.kill()
    assert len(found) == 84 and sum(row["reward"] for row in found) > 0
