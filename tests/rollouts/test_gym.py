"""Rollouts through NeMo Gym's servers: an agent's /run, or a resources server's sessions, tools and /verify, over real HTTP."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from gymdata.cli.main import main
from gymdata.errors import UsageError
from gymdata.rollouts.gym import Remote, urls_of, with_seed
from tests.servers.gym import GymServer
from tests.servers.model import ModelServer

AGENT = {"type": "responses_api_agents", "name": "my_agent"}


@pytest.fixture
def gym():
    with GymServer() as running:
        yield running


def rows(folder: Path, count: int, **more: Any) -> Path:
    made = [
        {"responses_create_params": {"input": f"Say {one}."}, "expected_answer": f"n{one}", "agent_ref": AGENT, **more}
        for one in range(count)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    return folder / "rows.jsonl"


def collect(path: Path, *more: str) -> int:
    arguments = ["--output", str(path.with_name("r.jsonl")), "--workers", "1", "--attempts", "3", "--patience", "5"]
    return main(["rollouts", "collect", str(path), *arguments, *more])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_agent_makes_the_rollouts_and_their_rewards(gym: GymServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = rows(tmp_path, 2)
    assert collect(path, "--agent-url", gym.url, "--num-repeats", "2", "--temperature", "0.5") == 0
    found = read(tmp_path / "r.jsonl")
    assert sorted((row["_ng_task_index"], row["_ng_rollout_index"], row["reward"]) for row in found) == [
        (task, rollout, 1.0) for task in range(2) for rollout in range(2)
    ]
    for row in found:
        assert row["extracted_answer"] == f"It is {row['expected_answer']}." and row["agent_ref"] == AGENT
    for sent in gym.rows:
        assert sent["responses_create_params"] == {"input": f"Say {sent['_ng_task_index']}.", "temperature": 0.5}
        assert sent["agent_ref"] == AGENT and sent["_ng_rollout_index"] in (0, 1)
    assert "4 of 4 rollouts, 4 of them now, from NeMo Gym's agents" in capsys.readouterr().out
    assert collect(path, "--agent-url", gym.url, "--num-repeats", "2", "--temperature", "0.5") == 0 and len(gym.rows) == 4


def test_a_seed_that_is_asked_for_goes_where_nemo_gym_has_it(gym: GymServer, tmp_path: Path):
    assert collect(rows(tmp_path, 1), "--agent-url", gym.url, "--num-repeats", "2", "--seed", "7") == 0
    seeds = [json.loads(sent["responses_create_params"]["metadata"]["extra_body"])["seed"] for sent in gym.rows]
    assert len(set(seeds)) == 2
    kept = with_seed({"input": "x", "metadata": {"extra_body": '{"top_k": 3}', "note": "n"}}, 5)["metadata"]
    assert json.loads(kept["extra_body"]) == {"top_k": 3, "seed": 5} and kept["note"] == "n"


def test_what_is_sent_again_is_the_same_rollout(gym: GymServer, tmp_path: Path):
    gym.script.extend(["drop", "503", "502"])
    assert collect(rows(tmp_path, 1), "--agent-url", gym.url, "--concurrency", "1") == 0
    assert len(gym.rows) == 4 and len({json.dumps(sent) for sent in gym.rows}) == 1 and len(gym.keys) == 1
    assert [row["reward"] for row in read(tmp_path / "r.jsonl")] == [1.0]


@pytest.mark.parametrize(
    ("script", "failure", "kind"),
    [
        (["500"], "agent_run_error", "http_500"),
        (["422"], "agent_run_error", "http_422"),
        (["failed"], "judge_failed", "judge_failed"),
        (["no reward"], "agent_run_error", "no_reward"),
        (['{"reward": 1%s}' % ("0" * 400)], "agent_run_error", "no_reward"),
        (['{"reward": 1.0, "response": {"output": [5]}}'], "agent_run_error", "no_response"),
        (['{"reward": 1.0, "deep": %s}' % ("[" * 5000 + "]" * 5000)], "agent_run_error", "malformed_reply"),
        (["drop"] * 3, "agent_request_failed", "connection"),
        (["504"] * 3, "agent_request_failed", "http_504"),
    ],
)
def test_failures_of_an_agent_are_typed_and_never_a_reward(
    gym: GymServer, tmp_path: Path, script: list[str], failure: str, kind: str
):
    gym.script = deque(["", *script])
    path = rows(tmp_path, 2)
    assert collect(path, "--agent-url", gym.url, "--concurrency", "1") == 3
    assert [row["_ng_task_index"] for row in read(tmp_path / "r.jsonl")] == [0]
    (failed,) = read(tmp_path / "r_failures.jsonl")
    assert (failed["_ng_failure_class"], failed["_ng_failure_type"]) == (failure, kind) and "reward" not in failed
    assert collect(path, "--agent-url", gym.url) == 0
    assert gym.rows[-1]["_ng_attempt_index"] == 1 and len(read(tmp_path / "r.jsonl")) == 2


def test_a_usage_that_is_none_is_no_matter(gym: GymServer, tmp_path: Path):
    gym.script.append('{"reward": 1.0, "response": {"output": [], "usage": {"output_tokens": "many"}}}')
    assert collect(rows(tmp_path, 1), "--agent-url", gym.url) == 0


def test_a_server_without_a_route_for_its_health_is_well_when_it_answers(gym: GymServer, tmp_path: Path):
    gym.script.extend(["drop"] * 3)
    assert collect(rows(tmp_path, 1), "--agent-url", gym.url, "--attempts", "5", "--patience", "60") == 0
    assert [row["reward"] for row in read(tmp_path / "r.jsonl")] == [1.0]


@pytest.mark.parametrize("as_object", [True, False])
def test_rows_may_name_their_agent_by_its_url(gym: GymServer, tmp_path: Path, as_object: bool):
    assert collect(rows(tmp_path, 2, agent_ref={"name": gym.url} if as_object else gym.url)) == 0
    assert [row["reward"] for row in read(tmp_path / "r.jsonl")] == [1.0, 1.0]
    assert all(row["agent_ref"]["name"] == gym.url for row in read(tmp_path / "r.jsonl"))
    assert all("agent_ref" not in sent for sent in gym.rows)


def test_a_resources_server_has_the_tools_and_the_rewards_of_our_models_rollouts(gym: GymServer, tmp_path: Path):
    def speak(body: dict[str, Any]) -> str | dict[str, Any]:
        told = [message for message in body["messages"] if message["role"] == "tool"]
        if len(told) < 2:
            function = {"name": "count", "arguments": "{}" if told else "{"}
            return {"content": None, "tool_calls": [{"id": f"c{len(told)}", "type": "function", "function": function}]}
        return f"{told[-1]['content']} {body['messages'][0]['content'].replace('Say ', 'n')}"

    with ModelServer(answer=speak) as model:
        path = rows(tmp_path, 3)
        assert collect(path, "--resources-url", gym.url, "--model-url", model.url) == 0
    for row in read(tmp_path / "r.jsonl"):
        told = [item["output"] for item in row["response"]["output"] if item["type"] == "function_call_output"]
        assert "not JSON" in json.loads(told[0])["error"] and json.loads(told[1]) == {"count": 1}
        assert (row["reward"], row["counted"], row["stop_reason"]) == (1.0, 1, "completed"), "verified in the same session"
        assert row["response"]["output"][-1]["generation_token_ids"] and row["response"]["model"] == "adder"


def test_a_model_cannot_call_the_servers_own_routes(gym: GymServer, tmp_path: Path):
    def speak(body: dict[str, Any]) -> str | dict[str, Any]:
        if body["messages"][-1]["role"] == "tool":
            return body["messages"][-1]["content"]
        return {
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "verify", "arguments": "{}"}}],
        }

    with ModelServer(answer=speak) as model:
        assert collect(rows(tmp_path, 1), "--resources-url", gym.url, "--model-url", model.url) == 0
    (row,) = read(tmp_path / "r.jsonl")
    assert "there is no tool 'verify'" in row["response"]["output"][1]["output"] and len(gym.rows) == 1


def test_a_verifier_elsewhere_that_fails_is_a_failure(gym: GymServer, tmp_path: Path):
    gym.script.extend(["", "500"])
    with ModelServer(answer=lambda body: "n0 n1") as model:
        assert collect(rows(tmp_path, 2), "--resources-url", gym.url, "--model-url", model.url, "--concurrency", "1") == 3
    (failed,) = read(tmp_path / "r_failures.jsonl")
    assert (failed["_ng_failure_class"], failed["_ng_failure_type"], failed["response"]["object"]) == (
        "verifier_failed",
        "http_500",
        "response",
    )


@pytest.mark.parametrize("option", ["--agent-url", "--resources-url", "--head-url"])
@pytest.mark.parametrize(
    ("url", "code", "words"),
    [("http://127.0.0.1:9", 3, "start NeMo Gym's servers"), ("127.0.0.1:11000", 2, "is not the address of a server")],
)
def test_an_address_is_wrong_or_nobody_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, url: str, code: int, words: str
):
    assert collect(rows(tmp_path, 1), option, url, "--wait", "1") == code
    assert words in capsys.readouterr().err


def test_nobody_at_the_address_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with GymServer() as gone:
        url = gone.url
    for option in ("--agent-url", "--head-url"):
        assert collect(rows(tmp_path, 1), option, url, "--wait", "1") == 3
        assert "start NeMo Gym's servers" in capsys.readouterr().err
    assert collect(rows(tmp_path, 1), "--agent-url", url, "--model-url", url) == 2


CONFIG = {
    "head_server": {"host": "127.0.0.1", "port": 1},
    "math": {"resources_servers": {"math_with_judge": {"host": "127.0.0.1", "port": 2}}},
    "math_agent": {
        "responses_api_agents": {"simple_agent": {"host": "127.0.0.1", "port": 3, "resources_server": {"name": "math"}}}
    },
    "math_front": {
        "environment_servers": {"legacy_agent": {"host": "127.0.0.1", "port": 4, "agent_server": {"name": "math_agent"}}}
    },
    "policy_model": {"responses_api_models": {"vllm_model": {"host": "127.0.0.1", "port": 5}}},
}


@pytest.mark.parametrize(
    ("role", "who", "port"),
    [
        ("agent", ("math_agent", None), 4),
        ("agent", (None, "math"), 4),
        ("agent", (None, None), 4),
        ("agent", ("math_front", None), 4),
        ("resources", ("math_agent", None), 2),
        ("resources", (None, "math"), 2),
    ],
)
def test_a_head_server_says_where_rows_go(role: Any, who: Any, port: int):
    assert urls_of(who, Remote(role, head="http://127.0.0.1:1"), CONFIG) == (f"http://127.0.0.1:{port}",)


def test_an_agent_that_the_head_server_does_not_know_is_named():
    with pytest.raises(UsageError, match="knows no 'nobody'; it has math, math_agent, math_front"):
        urls_of(("nobody", None), Remote("agent", head="http://127.0.0.1:1"), CONFIG)
