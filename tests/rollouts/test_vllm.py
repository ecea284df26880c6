"""The client and the collector against a real vLLM on this machine's CPU: with the tiny model, whose weights are random, and SmolLM2.

`make vllm` sets it up; GYMDATA_VLLM_PYTHON names another Python with vLLM. With GYMDATA_REQUIRE_VLLM, as in continuous
integration, its absence is a failure.
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
from gymdata.rollouts.overflow import Overflow, overflow
from gymdata.rollouts.policy import Policy, Settings
from gymdata.rollouts.replies import told
from gymdata.rows.schema import rollout_row
from tests.servers.model import collect_command

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("GYMDATA_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
CALL = r"<tool_call>\n\{\"name\": \"increment_counter\", \"arguments\": \{\"count\": 3\}\}\n</tool_call>"


def missing(what: Path, name: str) -> pytest.MarkDecorator:
    if not what.exists() and os.environ.get("GYMDATA_REQUIRE_VLLM"):
        pytest.exit(f"{name} is not here, and GYMDATA_REQUIRE_VLLM asks for it: `make vllm`", returncode=1)
    return pytest.mark.skipif(not what.exists(), reason=f"{name} is not here: `make vllm` sets it up")


pytestmark = [pytest.mark.vllm, missing(PYTHON, "vLLM")]


class Server:
    """vLLM with a small model, which can be killed and started again; `arguments` are those of `serving/serve.py`."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log, self._arguments = log, arguments or ("tiny", "--enable-scale-out")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        command = [sys.executable, str(ROOT / "serving" / "serve.py"), *self._arguments, "--port", str(self.port)]
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


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_prompt_that_is_too_long_is_told(server: Server, api: str):
    outcome = using(server, asking(params("1 " * 3000)), api=api)
    assert isinstance(outcome, Overflow) and outcome.kind == "prompt_too_long", outcome


def test_an_answer_that_could_not_be_so_long_is_told(server: Server):
    outcome = using(server, asking(params(max_output_tokens=5000)))
    assert isinstance(outcome, Overflow) and outcome.kind == "max_tokens_too_large", outcome


@pytest.mark.parametrize(("api", "kind"), [("chat", "no_room"), ("responses", "prompt_too_long")])
def test_a_context_without_room_for_an_answer_is_told(server: Server, api: str, kind: str):
    """A prompt of exactly the length of the context, found by asking how long one of n words is."""

    async def work(policy: Policy) -> Turn | Overflow:
        async def length(words: int) -> int:
            body = {"model": policy.model, "messages": [{"role": "user", "content": "0" * words}]}
            _, _, data = await policy.post(policy.endpoints.all[0], "/../tokenize", json.dumps(body).encode())
            return json.loads(data)["count"]

        words = 2048 - await length(1) + 1
        assert await length(words) == policy.max_model_len == 2048
        asked = params("0" * words)
        del asked["max_output_tokens"]
        return await asking(asked)(policy)

    outcome = using(server, work, api=api)
    assert isinstance(outcome, Overflow) and outcome.kind == kind, outcome


def test_a_prompt_of_tokens_that_is_too_long_is_told(server: Server):
    """By the words of the engine itself, as /inference/v1/generate passes them on."""

    async def work(policy: Policy) -> Overflow | None:
        body = {"model": policy.model, "token_ids": [5] * 3000, "sampling_params": {"max_tokens": 8}}
        status, _, data = await policy.post(policy.endpoints.all[0], "/../inference/v1/generate", json.dumps(body).encode())
        assert b"decoder prompt (length 3000)" in data, data
        return overflow(status, *told(data))

    outcome = using(server, work)
    assert isinstance(outcome, Overflow) and outcome.kind == "prompt_too_long", outcome


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
        assert kinds == ["function_call", "function_call_output"] * 2, row["response"]["output"]
        assert row["response"]["output"][0]["arguments"] == '{"count": 3}' and row["stop_reason"] == "max_steps"
        one, two = (item for item in row["response"]["output"] if "prompt_token_ids" in item)
        assert len(two["prompt_token_ids"]) > len(one["prompt_token_ids"]) + len(one["generation_token_ids"])


def test_it_judges(server: Server, tmp_path: Path):
    """What the model says is forced: as a policy to be wrong, as a judge to find one order equal, so that both are asked."""
    form = json.dumps({"extra_body": json.dumps({"structured_outputs": {"regex": r"Reason\.? \[\[A=B\]\]"}})})
    (tmp_path / "judge.yaml").write_text(
        "math_with_judge:\n  resources_servers:\n    math_with_judge:\n      should_use_judge: true\n"
        f"      judge_responses_create_params: {{input: [], max_output_tokens: 32, metadata: {form}}}\n"
    )
    row = {"responses_create_params": {"input": "How many legs?"}, "question": "How many legs?", "expected_answer": "4"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    forced = json.dumps({"structured_outputs": {"regex": r"\\boxed\{four\}"}})
    more = ("--env", "math", "--config", str(tmp_path / "judge.yaml"), "--max-output-tokens", "64", "--extra-body", forced)
    (found,) = collect(server, tmp_path, str(tmp_path / "rows.jsonl"), *more)
    rollout_row().validate_python(found)
    assert (found["reward"], found["library_reward"], found["extracted_answer"]) == (1.0, 0.0, "four")
    assert [one["verdict_label"] for one in found["judge_evaluations"]] == ["[[A=B]]", "[[A=B]]"]
    shown = [one["responses_create_params"]["input"][-1]["content"] for one in found["judge_evaluations"]]
    assert [text.index("four") < text.index("\n4\n") for text in shown] == [False, True]


def test_a_server_killed_in_the_middle_costs_nothing(server: Server, tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    texts = [
        json.dumps({"responses_create_params": {"input": f"What is {n} + 1?"}, "expected_answer": str(n + 1)}) for n in range(60)
    ]
    rows.write_text("\n".join(texts))
    command = collect_command(server.url, rows)
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


@missing(ROOT / ".models" / "smollm2", "SmolLM2")
def test_a_model_that_can_talk_is_right_now_and_then(tmp_path: Path):
    """`make rollouts ENV=math`, on the easy tasks at the beginning of the fixtures."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "GYMDATA_VLLM_PYTHON": str(PYTHON), "PYTHONPATH": str(ROOT), "PORT": str(port)}
    command = [sys.executable, "-m", "serving.rollouts", "math", "--num-repeats", "4", "--limit", "12"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rewards = [json.loads(line)["reward"] for line in (tmp_path / "rollouts" / "math.jsonl").read_text().splitlines()]
    assert len(rewards) == 48 and 0 < sum(rewards) < 48
    assert (tmp_path / "rollouts" / "math_reward_profiling.jsonl").exists()
