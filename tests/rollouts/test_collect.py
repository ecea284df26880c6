"""`gymdata rollouts collect` and `merge` against a model server over real HTTP."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest

from gymdata import verifiers
from gymdata.cli.main import main
from gymdata.environments.registry import load
from gymdata.errors import UsageError
from gymdata.rollouts import agent
from gymdata.rollouts import collect as collecting
from gymdata.rollouts.run import Progress
from gymdata.rows.schema import rollout_row
from tests.servers.model import ModelServer, collect_command

pytest.importorskip("math_verify", reason="the extra `verifiers` is not installed")

AGENT = next(one.name for one in load("math").instances if one.server_type == "responses_api_agents")


@pytest.fixture
def server():
    with ModelServer() as running:
        yield running


def sums(path: Path, count: int) -> Path:
    """Rows that ask for sums."""
    rows = [
        {"responses_create_params": {"input": f"What is {one} plus {one * 7 % 13}?"}, "expected_answer": str(one + one * 7 % 13)}
        for one in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def collect(server: ModelServer, rows: Path, *more: str, env: str = "math") -> int:
    output = ["--output", str(rows.with_name("r.jsonl"))] if "--output" not in more else []
    return main(["rollouts", "collect", str(rows), "--env", env, "--model-url", server.url, "--workers", "1", *output, *more])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def keys(path: Path) -> list[tuple[int, int]]:
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in read(path)]


def test_rollouts_are_rows_as_nemo_gym_has_them(server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert collect(server, sums(tmp_path / "sums.jsonl", 3), "--num-repeats", "2", "--temperature", "0.5") == 0
    rows = read(tmp_path / "r.jsonl")
    assert sorted(keys(tmp_path / "r.jsonl")) == [(task, rollout) for task in range(3) for rollout in range(2)]
    for row in rows:
        rollout_row().validate_python(row)
        assert (
            row["agent_ref"] == {"type": "responses_api_agents", "name": "math_with_judge_simple_agent"}
            or row["agent_ref"]["name"]
        )
        assert row["reward"] == float(row["extracted_answer"] == row["expected_answer"])
        assert row["responses_create_params"]["temperature"] == 0.5
        assert row["response"]["output"][-1]["generation_token_ids"]
        assert int(row["response"]["metadata"]["seed"]) in server.seeds()
    assert len(server.seeds()) == 6
    assert "6 of 6 rollouts, 6 of them now, from adder" in capsys.readouterr().out


def test_a_finished_run_asks_for_nothing(server: ModelServer, tmp_path: Path):
    rows = sums(tmp_path / "sums.jsonl", 3)
    collect(server, rows)
    content = (tmp_path / "r.jsonl").read_bytes()
    assert collect(server, rows) == 0
    assert len(server.requests) == 3 and (tmp_path / "r.jsonl").read_bytes() == content


def test_the_mean_reward_is_that_of_the_whole_run_so_far(server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = sums(tmp_path / "sums.jsonl", 12)
    for shard in ("0/2", "1/2", "1/2"):
        collect(server, rows, "--shard", shard, "--num-repeats", "2", "--format", "json")
        told = json.loads(capsys.readouterr().out)
        rewards = [row["reward"] for path in tmp_path.glob("r*.jsonl") for row in read(path)]
        assert told["mean_reward"] == pytest.approx(sum(rewards) / len(rewards)), shard
    assert told["done"] == 0 and len(rewards) == 24


@pytest.mark.parametrize("damage", ["2", "null", '"much"'])
def test_a_reward_is_read_as_it_stands(server: ModelServer, tmp_path: Path, damage: str):
    """A line whose reward is not what one expects is a rollout all the same."""
    rows = sums(tmp_path / "sums.jsonl", 1)
    assert collect(server, rows) == 0
    (tmp_path / "r.jsonl").write_text(f'{{"_ng_task_index":0,"_ng_rollout_index":0,"reward":{damage}}}\n')
    assert collect(server, rows) == 0 and len(read(tmp_path / "r.jsonl")) == 1


@pytest.mark.parametrize("index", [-1, 1 << 40, 0.5])
def test_a_line_with_an_impossible_index_is_no_rollout(server: ModelServer, tmp_path: Path, index: float):
    rows = sums(tmp_path / "sums.jsonl", 1)
    assert collect(server, rows) == 0
    for name in ("r.jsonl", "r_failures.jsonl"):
        with (tmp_path / name).open("a") as file:
            print(
                json.dumps({"_ng_task_index": 0, "_ng_rollout_index": index, "_ng_failure_class": "context_overflow"}), file=file
            )
    assert collect(server, rows) == 0 and keys(tmp_path / "r.jsonl") == [(0, 0)]


def test_a_file_that_is_none_of_the_runs_own_is_not_touched(
    server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = sums(tmp_path / "sums.jsonl", 2)
    content = rows.read_bytes()
    for more in ([], ["--new-run"]):
        assert collect(server, rows, "--output", str(rows), *more) == 2
        assert "holds the rows" in capsys.readouterr().err
    for stem, name in (("one", "one.jsonl"), ("two", "two_failures.jsonl")):
        other, output = tmp_path / name, str(tmp_path / f"{stem}.jsonl")
        other.write_bytes(content)
        assert collect(server, rows, "--output", output) == 2
        assert f"{stem}_manifest.json" in capsys.readouterr().err
        assert rows.read_bytes() == other.read_bytes() == content
        asked = len(server.requests)
        assert collect(server, rows, "--output", output, "--new-run") == 0
        assert (tmp_path / f"{stem}.previous-1" / name).read_bytes() == content and len(server.requests) == asked + 2


def test_a_run_asked_for_in_another_way_is_refused_or_set_aside(
    server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = sums(tmp_path / "sums.jsonl", 2)
    collect(server, rows)
    assert collect(server, rows, "--top-p", "0.9", "--num-repeats", "2", "--token-bridge", "off") == 2
    told = capsys.readouterr().err
    assert 'token_bridge: was "auto", is "off"' in told
    assert "num_repeats: was 1, is 2" in told and "overrides.top_p: was not there, is 0.9" in told
    assert collect(server, rows, "--top-p", "0.9", "--new-run") == 0
    assert (tmp_path / "r.previous-1" / "r.jsonl").exists() and len(keys(tmp_path / "r.jsonl")) == 2


def test_an_overflow_is_a_failure_that_is_not_tried_again(server: ModelServer, tmp_path: Path):
    rows = sums(tmp_path / "sums.jsonl", 3)
    server.script = deque(["overflow1"])
    assert collect(server, rows) == 1
    (failure,) = read(tmp_path / "r_failures.jsonl")
    assert (failure["_ng_failure_class"], failure["_ng_failure_terminal"]) == ("context_overflow", True)
    assert "reward" not in failure and len(keys(tmp_path / "r.jsonl")) == 2
    assert collect(server, rows) == 1 and len(server.requests) == 3


def test_a_row_that_the_api_cannot_say_is_not_tried_again(
    server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = sums(tmp_path / "sums.jsonl", 1)
    with rows.open("a") as file:
        print(json.dumps({"responses_create_params": {"input": "?", "previous_response_id": "x"}}), file=file)
    for _ in range(2):
        assert collect(server, rows) == 1
        assert "1 are not tried again" in capsys.readouterr().out
    (failure,) = read(tmp_path / "r_failures.jsonl")
    assert (failure["_ng_failure_type"], failure["_ng_failure_terminal"]) == ("inexpressible", True)


def test_a_failed_rollout_is_tried_again_by_the_next_run(server: ModelServer, tmp_path: Path):
    rows = sums(tmp_path / "sums.jsonl", 3)
    server.script = deque(["400 no"])
    assert collect(server, rows) == 3
    assert [row["_ng_failure_type"] for row in read(tmp_path / "r_failures.jsonl")] == ["bad_request"]
    assert collect(server, rows) == 0
    assert sorted(keys(tmp_path / "r.jsonl")) == [(0, 0), (1, 0), (2, 0)]


def test_after_some_attempts_a_rollout_is_given_up(server: ModelServer, tmp_path: Path):
    rows = sums(tmp_path / "sums.jsonl", 1)
    for code in (3, 1, 1):
        server.script = deque(["400 no"])
        assert collect(server, rows, "--max-attempts", "2") == code
    assert [row["_ng_attempt_index"] for row in read(tmp_path / "r_failures.jsonl")] == [0, 1]


def test_a_run_in_which_all_fail_stops_and_is_not_held_against_the_rollouts(
    server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = sums(tmp_path / "sums.jsonl", 200)
    server.script = deque(["400 tools need a parser"] * 200)
    assert collect(server, rows) == 3
    assert "50 rollouts failed one after the other" in capsys.readouterr().err
    assert len(server.requests) < 200 and not read(tmp_path / "r_failures.jsonl")
    server.script.clear()
    assert collect(server, rows) == 0 and len(keys(tmp_path / "r.jsonl")) == 200


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000/v1", "localhost:8000", "http://", "ftp://127.0.0.1/v1", "http://127.0.0.1:99999"]
)
def test_what_is_no_address_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str):
    assert main(["rollouts", "collect", str(sums(tmp_path / "s.jsonl", 1)), "--env", "math", "--model-url", url]) == 2
    assert "is not the address of a server" in capsys.readouterr().err


def test_a_wrong_key_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with ModelServer(key="canary") as server:
        assert collect(server, sums(tmp_path / "sums.jsonl", 5)) == 2
    error = capsys.readouterr().err
    assert error.count("refuses us") == 1 and "Traceback" not in error


def test_a_verifier_whose_library_is_missing_is_told_before_a_server_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    rows = sums(tmp_path / "sums.jsonl", 1)

    def without_library(self: object) -> str:
        raise UsageError("scoring needs a library")

    monkeypatch.setattr("gymdata.verifiers.math.Math.version", property(without_library))
    gone = ["--model-url", "http://127.0.0.1:1/v1", "--wait", "0"]
    assert main(["rollouts", "collect", str(rows), "--env", "math", "--output", str(tmp_path / "r.jsonl"), *gone]) == 2
    assert "scoring needs a library" in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "words"), [(["mth"], "did you mean `math`"), (["math", "--limit", "some"], "--limit")])
def test_make_rollouts_refuses_a_wrong_call_before_it_starts_a_server(asked: list[str], words: str):
    with socket.create_server(("127.0.0.1", 0)) as taken:  # where no server answers
        port = str(taken.getsockname()[1])
    done = subprocess.run(
        [sys.executable, "-m", "serving.rollouts", *asked],
        env=os.environ | {"PORT": port},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2 and words in done.stderr and "vLLM" not in done.stderr


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"responses_create_params": None}, "$.responses_create_params: "),
        ({"responses_create_params": {"input": 1}}, "$.responses_create_params.input: "),
        ({"expected_answer": "4"}, "responses_create_params"),
        ({"responses_create_params": {"input": "?"}, "_ng_task_index": 10**30}, "_ng_task_index"),
    ],
)
def test_a_row_that_is_none_is_told_before_anything_is_collected(
    server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: Any, said: str
):
    path = sums(tmp_path / "sums.jsonl", 1)
    path.write_text(path.read_text() + json.dumps(row) + "\n")
    assert collect(server, path) == 1
    told = capsys.readouterr().err
    assert f"{path}:2: " in told and said in told and not server.requests


def test_a_key_may_end_with_a_line_feed_but_hold_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    rows = sums(tmp_path / "sums.jsonl", 1)
    with ModelServer(key="s3cret") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "s3cret\n")
        assert collect(server, rows) == 0
        monkeypatch.setenv("OPENAI_API_KEY", "s3\ncret")
        assert collect(server, rows) == 2
    told = capsys.readouterr().err
    assert "OPENAI_API_KEY holds no key" in told and "cret" not in told


def test_a_response_that_no_verifier_can_score_is_a_failure(server: ModelServer, tmp_path: Path):
    path = tmp_path / "sums.jsonl"
    path.write_text('{"responses_create_params": {"input": "1 and 2?"}}\n')
    assert collect(server, path) == 3
    (failure,) = read(tmp_path / "r_failures.jsonl")
    assert (failure["_ng_failure_class"], "reward" in failure) == ("verifier_failed", False)
    assert failure["response"]["output"]


def test_an_environment_is_a_target_of_its_own(server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    easy = json.loads(load("math").datasets(["train"])[0].path.read_text().splitlines()[0])["expected_answer"]
    server.answer = lambda body: f"\\boxed{{{easy}}}"
    assert main(["rollouts", "collect", "math", "--model-url", server.url, "--limit", "3", "--workers", "1"]) == 0
    rows = read(tmp_path / "rollouts" / "math.jsonl")
    assert [row["reward"] for row in rows] == [float(row["expected_answer"] == easy) for row in rows]
    assert any(row["reward"] for row in rows)


def test_tools_keep_their_state_within_a_rollout(server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def answer(body: dict[str, Any]) -> Any:
        said = [message for message in body["messages"] if message["role"] == "tool"]
        if said:
            return f"The counter said {said[-1]['content']}"
        return {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "increment_counter", "arguments": '{"count": 1}'}},
                                                {"id": "c2", "type": "function", "function": {"name": "get_counter_value", "arguments": "{}"}}]}  # fmt: skip

    server.answer = answer
    assert main(["rollouts", "collect", "session_state", "--model-url", server.url, "--limit", "4", "--workers", "1"]) == 0
    for row in read(tmp_path / "rollouts" / "session_state.jsonl"):
        assert f'{{"count":{row["initial_count"] + 1}}}' in row["response"]["output"][-1]["content"][0]["text"]
        rollout_row().validate_python(row)


def test_tools_that_cannot_be_made_for_a_row_are_a_failure_of_its_rollouts(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def tools(row: dict[str, Any]) -> dict[str, Any]:
        return {"answer": lambda: row["no_such_key"]} if row["expected_answer"] == "0" else row["no_such_key"]

    monkeypatch.setattr("gymdata.rollouts.agent.tools_for", lambda implementation: tools)
    assert collect(server, sums(tmp_path / "sums.jsonl", 2)) == 3
    (failure,) = read(tmp_path / "r_failures.jsonl")
    assert (failure["_ng_failure_class"], failure["_ng_failure_type"]) == ("tools_failed", "KeyError")
    assert len(read(tmp_path / "r.jsonl")) == 1


@pytest.mark.parametrize("group", ["gymdata.tools", "gymdata.verifiers"])
def test_a_package_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch, group: str):
    broken = importlib.metadata.EntryPoint("my_server", "no_such_package:make", group)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [broken])
    with pytest.raises(UsageError, match=r"my_server.*no_such_package"):
        verifiers.make("my_server", {}) if group == "gymdata.verifiers" else agent.tools_for("my_server")


def test_shards_together_make_the_run(server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = sums(tmp_path / "sums.jsonl", 20)
    for shard in range(3):
        assert collect(server, rows, "--num-repeats", "2", "--shard", f"{shard}/3") == 0
    assert f"next: gymdata rollouts merge {tmp_path / 'r.jsonl'}" in capsys.readouterr().out
    assert collect(server, rows, "--num-repeats", "2", "--shard", "0/2") == 0
    assert len(server.requests) == 40
    assert main(["rollouts", "merge", str(tmp_path / "r.jsonl")]) == 0
    assert "40 of 40 (100.0%) rollouts of 20 of 20 tasks" in capsys.readouterr().out
    assert keys(tmp_path / "r.jsonl") == [(task, rollout) for task in range(20) for rollout in range(2)]
    lines = {line for path in tmp_path.glob("r-shard-*.jsonl") for line in path.read_bytes().splitlines()}
    assert {*(tmp_path / "r.jsonl").read_bytes().splitlines()} == lines


def test_a_merge_says_what_is_missing_and_why(server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = sums(tmp_path / "sums.jsonl", 6)
    server.script = deque(["overflow1"])
    collect(server, rows, "--shard", "0/2")
    capsys.readouterr()
    main(["rollouts", "merge", str(tmp_path / "r.jsonl"), "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    assert told["expected_rollouts"] == 6 and told["missing"] == 6 - told["rollouts"]
    assert told["failed"] == {"context_overflow: prompt_too_long": 1}


def test_memory_holds_what_is_in_flight_only(server: ModelServer, tmp_path: Path):
    server.delay = 0.01
    assert collect(server, sums(tmp_path / "sums.jsonl", 100), "--concurrency", "5") == 0
    assert server.most_in_flight <= 5


def test_nothing_is_in_flight_when_all_is_done(server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept: list[Progress] = []
    made = collecting.collect
    monkeypatch.setattr(collecting, "collect", lambda run, on_start: kept.append(made(run, on_start)) or kept[0])
    assert collect(server, sums(tmp_path / "sums.jsonl", 3)) == 0
    assert (kept[0].done, kept[0].in_flight) == (3, 0)


def start(server: ModelServer, rows: Path, *more: str) -> subprocess.Popen[str]:
    command = collect_command(server.url, rows)
    command += ["--output", str(rows.with_name("r.jsonl")), "--workers", "1", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(server: ModelServer, requests: int) -> None:
    """Until the server has been asked so often."""
    pause = threading.Event()
    while len(server.requests) < requests:
        pause.wait(0.02)


def test_ctrl_c_finishes_what_is_in_flight(server: ModelServer, tmp_path: Path):
    server.delay = 0.5
    rows = sums(tmp_path / "sums.jsonl", 100)
    run = start(server, rows, "--concurrency", "10")
    wait_for(server, 10)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130 and "the same command goes on" in err and "Traceback" not in err
    assert len(keys(tmp_path / "r.jsonl")) == len(server.requests) and server.aborted == 0
    server.delay = 0
    assert collect(server, rows) == 0
    assert Counter(keys(tmp_path / "r.jsonl")) == {(task, 0): 1 for task in range(100)}


def test_a_second_ctrl_c_gives_up_what_is_in_flight(server: ModelServer, tmp_path: Path):
    server.delay = 3600
    run = start(server, sums(tmp_path / "sums.jsonl", 100), "--concurrency", "10")
    wait_for(server, 10)
    os.kill(run.pid, signal.SIGINT)
    threading.Event().wait(1.0)  # two signals that nobody has looked at yet are one
    os.kill(run.pid, signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 130
    while server.aborted < 10:
        threading.Event().wait(0.02)


def test_an_interruption_at_any_other_moment_does_not_say_that_nothing_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gymdata.rollouts.collect.collect", interrupted)
    assert main(["rollouts", "collect", str(sums(tmp_path / "sums.jsonl", 1)), "--env", "math"]) == 130
    assert "what was finished is on the disk" in capsys.readouterr().err


def test_nothing_a_second_process_may_write_to(server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    server.delay = 3600
    rows = sums(tmp_path / "sums.jsonl", 2)
    run = start(server, rows)
    wait_for(server, 1)
    assert collect(server, rows) == 2
    assert collect(server, rows, "--new-run") == 2
    assert capsys.readouterr().err.count("another run is writing to it") == 2
    run.terminate()
    run.communicate(timeout=60)
    assert run.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.jsonl"], "no such file"),
        (["math", "--shard", "2/2"], "counted from 0"),
        (["math", "--output", "x"], "must end in .jsonl"),
        (["math", "--param", "x=y"], "no JSON"),
        (["math", "--param", "input=1"], "$.responses_create_params.input"),
        (["math", "--param", "top_k=20"], "--extra-body"),
        (["math", "--new-run", "--shard", "0/2"], "would set aside what other shards"),
        (["math", "--model-url", "http://127.0.0.1:9/v1", "--wait", "0.1"], "no model server answers"),
    ],
)
def test_a_wrong_call_is_told(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with ModelServer() as server:
        url = [] if "--model-url" in arguments else ["--model-url", server.url]
        assert main(["rollouts", "collect", *arguments, *url]) in (2, 3)
    assert said in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "option",
    [
        "--num-repeats 0",
        "--max-steps 0",
        "--max-attempts 0",
        "--concurrency -1",
        "--workers -1",
        "--temperature nan",
        "--timeout 0",
    ],
)
def test_a_number_that_makes_no_sense_is_refused(option: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["rollouts", "collect", "math", *option.split()])
    assert stopped.value.code == 2 and f"argument {option.split()[0]}: " in capsys.readouterr().err
