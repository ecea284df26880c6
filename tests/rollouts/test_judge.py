"""A judge model, asked over real HTTP what a verifier leaves undecided."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("math_verify", reason="the extra `verifiers` is not installed")
pytest.importorskip("aiohttp", reason="the extra `rollouts` is not installed")

from gymdata.cli.main import main
from gymdata.rows.schema import rollout_row
from tests.servers.model import ModelServer

EQUAL, DIFFERENT = "I see no difference. [[A=B]]", "They differ. [[A!=B]]"
MATH, SHORT = "math_with_judge_simple_agent", "short_agent"
CONFIG = """
math_with_judge:
  resources_servers:
    math_with_judge:
      should_use_judge: true
      judge_responses_create_params: {input: [], temperature: 0.5, max_output_tokens: 64}
"""
SHORT_ANSWERS = """
short:
  resources_servers:
    equivalence_llm_judge:
      entrypoint: app.py
      domain: knowledge
      judge_model_server: {type: responses_api_models, name: policy_model}
      judge_responses_create_params: {input: []}
      judge_prompt_template_fpath: prompt.txt
      judge_equal_label: CORRECT
      judge_not_equal_label: INCORRECT
short_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: short}
      model_server: {type: responses_api_models, name: policy_model}
"""


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """The model: it never says a number, so that math-verify finds no answer right but a letter-by-letter one."""
    with ModelServer(answer=lambda body: "\\boxed{half a dozen}") as running:
        yield running


@pytest.fixture
def judge() -> Iterator[ModelServer]:
    with ModelServer(answer=lambda body: EQUAL, model="wise") as running:
        yield running


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "judge.yaml").write_text(CONFIG)
    return write(tmp_path / "rows.jsonl", [row("What is 2 times 3?", "6")])


def row(question: str, answer: str, agent: str = MATH, **more: Any) -> dict[str, Any]:
    named = {"type": "responses_api_agents", "name": agent}
    return {
        "responses_create_params": {"input": question},
        "question": question,
        "expected_answer": answer,
        "agent_ref": named,
    } | more


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def collect(server: ModelServer, rows: Path, judge: ModelServer | None, *more: str, env: Sequence[str] = ("math",)) -> int:
    words = ["rollouts", "collect", str(rows), *(word for name in env for word in ("--env", name)), "--model-url", server.url]
    words += ["--judge-url", judge.url] if judge else []
    words += ["--config", str(rows.with_name("judge.yaml"))] if env == ("math",) else []
    return main([*words, "--output", str(rows.with_name("r.jsonl")), "--workers", "1", *more])


def asked(server: ModelServer) -> list[list[str]]:
    """The two answers in each question to a judge, in order."""
    texts = [request["messages"][-1]["content"] for request in server.requests]
    return [re.findall(r"<answer_.>\n(.*?)\n</answer_", text, re.DOTALL) for text in texts if "<answer_a>" in text]


def test_an_answer_is_right_if_the_judge_says_so_in_both_orders(server: ModelServer, judge: ModelServer, rows: Path):
    assert collect(server, rows, judge) == 0
    assert asked(judge) == [["6", "half a dozen"], ["half a dozen", "6"]]
    (found,) = read(rows.with_name("r.jsonl"))
    rollout_row().validate_python(found)
    assert (found["reward"], found["library_reward"], found["extracted_answer"]) == (1.0, 0.0, "half a dozen")
    assert found["reason"].startswith("the judge says [[A=B]], then [[A=B]]; the answer is not the expected '6'")
    for evaluation, request in zip(found["judge_evaluations"], judge.requests, strict=True):
        assert evaluation["verdict_label"] == "[[A=B]]"
        assert evaluation["response"]["model"] == "wise"
        assert evaluation["response"]["output"][-1]["content"][0]["text"] == EQUAL
        assert evaluation["responses_create_params"]["input"] == request["messages"]
        assert (request["temperature"], request["max_tokens"]) == (0.5, 64)
        assert "What is 2 times 3?" in request["messages"][-1]["content"]


@pytest.mark.parametrize(("says", "questions"), [([DIFFERENT], 1), ([EQUAL, DIFFERENT], 2)])
def test_one_order_in_which_it_says_no_is_enough(
    server: ModelServer, judge: ModelServer, rows: Path, says: list[str], questions: int
):
    answers = iter(says)
    judge.answer = lambda body: next(answers)
    assert collect(server, rows, judge) == 0
    (found,) = read(rows.with_name("r.jsonl"))
    assert (found["reward"], len(found["judge_evaluations"]), len(judge.requests)) == (0.0, questions, questions)


@pytest.mark.parametrize("said", ["\\boxed{6}", "six", "\\boxed{}"])
def test_what_is_decided_without_it_is_not_asked(server: ModelServer, judge: ModelServer, rows: Path, said: str):
    server.answer = lambda body: said
    assert collect(server, rows, judge) == 0
    assert not judge.requests
    assert read(rows.with_name("r.jsonl"))[0]["reward"] == float("6" in said)


def test_the_judge_may_be_the_model_itself_which_is_not_held_up(server: ModelServer, rows: Path):
    server.answer = lambda body: EQUAL if "<answer_a>" in body["messages"][-1]["content"] else "\\boxed{half a dozen}"
    write(rows, [row(f"What is {number} plus 6 minus {number}?", "6") for number in range(40)])
    assert collect(server, rows, None, "--concurrency", "2", "--extra-body", '{"top_k": 7}') == 0
    assert [one["reward"] for one in read(rows.with_name("r.jsonl"))] == [1.0] * 40
    assert len(asked(server)) == 80
    forced = ["<answer_a>" in request["messages"][-1]["content"] for request in server.requests if "top_k" in request]
    assert forced == [False] * 40


@pytest.mark.parametrize(
    ("says", "script", "kind"),
    [("I cannot tell.", "", "no_label"), (EQUAL, "400 no", "bad_request"), (EQUAL, "overflow1", "context_overflow")],
)
def test_a_judge_without_a_verdict_is_a_failure_and_never_a_reward(
    server: ModelServer, judge: ModelServer, rows: Path, says: str, script: str, kind: str
):
    judge.answer, judge.script = lambda body: says, deque([script])
    assert collect(server, rows, judge) == 3
    (failure,) = read(rows.with_name("r_failures.jsonl"))
    assert (failure["_ng_failure_class"], failure["_ng_failure_type"]) == ("judge_failed", kind)
    assert "reward" not in failure and failure["response"]["output"]
    assert read(rows.with_name("r.jsonl")) == []
    judge.answer = lambda body: EQUAL
    assert collect(server, rows, judge) == 0
    assert read(rows.with_name("r.jsonl"))[0]["reward"] == 1.0


def test_what_it_thinks_is_no_verdict(server: ModelServer, judge: ModelServer, rows: Path):
    judge.answer = lambda body: f"<think>{DIFFERENT}</think>{EQUAL}"
    assert collect(server, rows, judge) == 0
    assert read(rows.with_name("r.jsonl"))[0]["reward"] == 1.0


def test_another_judge_or_another_prompt_is_another_run(
    server: ModelServer, judge: ModelServer, rows: Path, capsys: pytest.CaptureFixture[str]
):
    collect(server, rows, judge)
    judge.model = "wiser"
    assert collect(server, rows, judge) == 2
    assert 'judge.id: was "wise", is "wiser"' in capsys.readouterr().err
    judge.model = "wise"
    config = rows.with_name("judge.yaml")
    config.write_text(CONFIG + '      judge_prompt_template: "{question} {expected_answer} {generated_answer} [[A=B]]"\n')
    assert collect(server, rows, judge) == 2
    assert "judge.prompt_sha256: was" in capsys.readouterr().err


def test_rows_of_several_environments_have_one_judge(server: ModelServer, judge: ModelServer, tmp_path: Path):
    (tmp_path / "short.yaml").write_text(SHORT_ANSWERS)
    (tmp_path / "prompt.txt").write_text("Is {generated_answer} as good as {expected_answer}, asked {question}?\n")
    (tmp_path / "math.yaml").write_text(
        f"config_paths: [{Path('gymdata/environments/builtin/math/config.yaml').absolute()}]\n{CONFIG}"
    )
    options = [{"A": "five"}, {"B": "six"}]
    rows = write(
        tmp_path / "rows.jsonl",
        [
            row("What is 2 times 3?", "6"),
            row("How many eggs?", "six", SHORT),
            row("How many legs?", "four", SHORT),
            row("Which?", "B", "mcqa_simple_agent", options=options),
        ],
    )
    judge.answer = lambda body: (
        EQUAL if "<answer_a>" in body["messages"][-1]["content"]
        else "CORRECT? No, INCORRECT." if "four" in body["messages"][-1]["content"] else "CORRECT"
    )  # fmt: skip
    env = [str(tmp_path / "math.yaml"), str(tmp_path / "short.yaml"), "mcqa"]
    assert collect(server, rows, judge, env=env) == 0
    assert {one["expected_answer"]: one["reward"] for one in read(tmp_path / "r.jsonl")} == {"6": 1, "six": 1, "four": 0, "B": 0}
    assert [request["messages"] for request in judge.requests if "eggs" in str(request)] == [
        [{"role": "user", "content": "Is \\boxed{half a dozen} as good as six, asked How many eggs??"}]
    ]
    manifest = json.loads((tmp_path / "r_manifest.json").read_text())
    assert manifest["judge"]["id"] == "wise"
    assert {name: "judge" in one for name, one in manifest["verifiers"].items()} == {
        MATH: True,
        SHORT: True,
        "mcqa_simple_agent": False,
    }


def test_stored_responses_are_judged_again(
    server: ModelServer, judge: ModelServer, rows: Path, capsys: pytest.CaptureFixture[str]
):
    collect(server, rows, judge)
    again = ["rollouts", "verify", str(rows.with_name("r.jsonl")), "--env", "math", "--config", str(rows.with_name("judge.yaml"))]
    again += ["--jobs", "1"]
    assert main([*again, "--judge-url", judge.url]) == 0
    judge.answer = lambda body: DIFFERENT
    output = rows.with_name("again.jsonl")
    assert main([*again, "--judge-url", judge.url, "--output", str(output)]) == 0
    assert [(one["reward"], len(one["judge_evaluations"])) for one in read(output)] == [(0.0, 1)]
    judge.answer = lambda body: "Hm."
    assert main([*again, "--judge-url", judge.url, "--output", str(output)]) == 0
    assert not read(output) and read(rows.with_name("again_failures.jsonl"))[0]["_ng_failure_class"] == "judge_failed"
    capsys.readouterr()
    assert main(again) == 2
    assert "--judge-url URL says where" in capsys.readouterr().err


def test_a_wrong_call_is_told(server: ModelServer, judge: ModelServer, rows: Path, capsys: pytest.CaptureFixture[str]):
    assert collect(server, rows, None, "--judge-model", "x") == 2
    assert "--judge-model without --judge-url" in capsys.readouterr().err
    rows.with_name("judge.yaml").write_text(CONFIG.replace("true", "false"))
    assert collect(server, rows, judge) == 2
    assert "no verifier of these rows asks a judge" in capsys.readouterr().err
    named = "      judge_model_server: {type: responses_api_models, name: grader}\n"
    rows.with_name("judge.yaml").write_text(CONFIG + named)
    assert collect(server, rows, None) == 2
    assert "asks the judge 'grader': where is it?" in capsys.readouterr().err
    rows.with_name("judge.yaml").write_text(CONFIG + "      judge_prompt_template_fpath: nowhere.txt\n")
    assert collect(server, rows, judge) == 2
    assert "there is no file nowhere.txt, the judge's prompt" in capsys.readouterr().err
