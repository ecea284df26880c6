"""What verifiers leave to a judge: which questions, in which order, and what each label leads to."""

import json
import subprocess
from typing import Any

import pytest

pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'gymdata[verifiers]'")
pytest.importorskip("re2", reason="google-re2 is not installed: pip install 'gymdata[verifiers]'")
pytest.importorskip("aiohttp", reason="the extra `rollouts` is not installed")

from gymdata.errors import UsageError
from gymdata.rollouts.judge import _label
from gymdata.verifiers import Ask, Undecided, Verdict, VerifierFailure, make
from gymdata.verifiers.math import Math
from gymdata.verifiers.responses import message
from tests.verifiers.gym import PYTHON, needs_gym

SHORT, MATH = "equivalence_llm_judge", "math_with_judge"
EQUAL, DIFFERENT = "[[A=B]]", "[[A!=B]]"
SAME = {"judge_prompt_template": "{question}|{expected_answer}|{generated_answer}"}


def task(answer: str = "four", question: str = "How many?", **more: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "question": question,
        "expected_answer": answer,
    } | more


def decide(server, options, row, response, says):
    """The reward, and the questions asked (their last message), of a judge that says this, one text after the other."""
    outcome = make(server, options).verify(row, response)
    if isinstance(outcome, Verdict):
        return outcome.reward, []
    step, questions = outcome.ask, []
    while isinstance(step, Ask):
        questions.append(step.params["input"][-1]["content"])
        label = _label(says[len(questions) - 1], step)
        if label is None:
            return None, questions
        step = step.answers[label]
    return step, questions


REGEX: dict[str, Any] = {"template_metadata": {"output_regex": "Final: (.*)$"}}
SWAP = {"check_twice_swap": True, "reward_if_swap_fails": -1.0}
CASES = [
    (SHORT, {}, task(), "4", [EQUAL], 1.0, ["How many?|four|4"]),
    (SHORT, {}, task(), "4", [DIFFERENT], 0.0, ["How many?|four|4"]),
    (SHORT, {}, task(), " \n", [], 0.0, []),
    (SHORT, {"max_answer_chars": 3}, task(), "1234", [], 0.0, []),
    (SHORT, SWAP, task(), "4", [EQUAL, EQUAL], 1.0, ["How many?|four|4", "How many?|4|four"]),
    (SHORT, SWAP, task(), "4", [EQUAL, DIFFERENT], -1.0, ["How many?|four|4", "How many?|4|four"]),
    (SHORT, SWAP, task(), "4", [DIFFERENT], 0.0, ["How many?|four|4"]),
    (SHORT, {}, task(**REGEX), "I think.\nFinal: 4", [EQUAL], 1.0, ["How many?|four|4"]),
    (SHORT, {}, task(**REGEX), "I think.\nFinal: 4", [DIFFERENT, EQUAL], 0.5, ["How many?|four|4", "How many?|four|I think.\nFinal: 4"]),
    (SHORT, {}, task(**REGEX), "I think.\nFinal: 4", [DIFFERENT, DIFFERENT], 0.0, ["How many?|four|4", "How many?|four|I think.\nFinal: 4"]),
    (SHORT, SWAP, task("f" * 121, **REGEX), "Final: 4", [EQUAL], 1.0, [f"How many?|{'f' * 121}|Final: 4"]),
    (SHORT, {}, task("f" * 121, **REGEX), "Final: 4", [DIFFERENT], 0.0, [f"How many?|{'f' * 121}|Final: 4"]),
    (SHORT, {"use_per_record_regex": False}, task(**REGEX), "Final: 4", [DIFFERENT], 0.0, ["How many?|four|Final: 4"]),
    (SHORT, {"response_extract_regex": "A: (\\w+)|B: (\\w+)"}, task(), "A: 1 B: 2 C", [EQUAL], 1.0, ["How many?|four|2"]),
    (SHORT, {"question_extract_regex": "^Q: (.*?)$"}, task(question="x\nQ: why?\ny"), "4", [EQUAL], 1.0, ["why?|four|4"]),
    (SHORT, {}, task("", metadata={"expected_answer": 4}), "4", [EQUAL], 1.0, ["How many?|4|4"]),
    (SHORT, {}, task(), "4", [f"{DIFFERENT} no: {EQUAL}"], 1.0, ["How many?|four|4"]),
    (SHORT, {"judge_equal_label": "CORRECT", "judge_not_equal_label": "INCORRECT"}, task(), "4", ["INCORRECT"], 0.0, ["How many?|four|4"]),
    (SHORT, {"judge_equal_label": "CORRECT", "judge_not_equal_label": "INCORRECT"}, task(), "4", ["INCORRECT? CORRECT"], 1.0, ["How many?|four|4"]),
    (MATH, {}, task(), "\\boxed{4x}", [EQUAL, EQUAL], 1.0, ["How many?|four|4x", "How many?|4x|four"]),
    (MATH, {}, task(), "\\boxed{4x}", [EQUAL, DIFFERENT], 0.0, ["How many?|four|4x", "How many?|4x|four"]),
    (MATH, {}, task(), "\\boxed{4x}", [DIFFERENT], 0.0, ["How many?|four|4x"]),
    (MATH, {}, task(), "\\boxed{4x}", [f"{DIFFERENT} no: {EQUAL}"], 0.0, ["How many?|four|4x"]),
    (MATH, {}, task(), "\\boxed{4x}", [f"{EQUAL} no: {DIFFERENT}", EQUAL], 1.0, ["How many?|four|4x", "How many?|4x|four"]),
    (MATH, {}, task("$\\frac12$"), "\\boxed{0.5}", [], 1.0, []),
    (MATH, {}, task("$\\frac12$"), "\\boxed{a half}", [EQUAL, EQUAL], 1.0, ["How many?|$\\frac12$|a half", "How many?|a half|$\\frac12$"]),
    (MATH, {}, task(), "four", [], 0.0, []),
    (MATH, {}, task(), "\\boxed{}", [], 0.0, []),
    (MATH, {"should_use_judge": False}, task(), "\\boxed{4x}", [], 0.0, []),
]  # fmt: skip


@pytest.mark.parametrize(("server", "options", "row", "text", "says", "reward", "questions"), CASES)
def test_a_case(server, options, row, text, says, reward, questions):
    assert decide(server, SAME | options, row, message(text), says) == (reward, questions)


GYM = """
import asyncio, importlib, json, sys, warnings
from contextlib import nullcontext
warnings.simplefilter("ignore")
MINIMAL = {"id": "r", "created_at": 0.0, "model": "m", "object": "response", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
def response(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    return MINIMAL | {"output": [{"id": "i", "type": "message", "role": "assistant", "status": "completed", "content": [part]}]}
async def one(name, options, row, text, says):
    module = importlib.import_module(f"resources_servers.{name}.app")
    server_type, request_type, config_type = (vars(module)[one] for one in NAMES[name])
    asked = []
    async def call_judge(client, *, server_name, url_path, json, response_model):
        asked.append(json.input[-1].content)
        return response_model.model_validate(response(says[len(asked) - 1]))
    module.call_judge = call_judge
    defaults = {key: field.get_default(call_default_factory=True) for key, field in config_type.model_fields.items()}
    ref = type("Ref", (), {"name": "judge"})()
    params = module.NeMoGymResponseCreateParamsNonStreaming(input=[])
    config = config_type.model_construct(**defaults | options | {"judge_model_server": ref, "judge_responses_create_params": params})
    server = server_type.model_construct(config=config)
    object.__setattr__(server, "__pydantic_private__", {"_library_verifier_semaphore": asyncio.Semaphore(4)})
    for key, value in {"_judge_endpoint_max_concurrency": nullcontext(), "_judge_prompt_template": TEMPLATE, "server_client": None}.items():
        object.__setattr__(server, key, value)
    server_type.JUDGE_PROMPT_TEMPLATE = "{question}|{first_answer}|{second_answer}"
    verdict = await server.verify(request_type.model_validate(row | {"response": response(text)}))
    return [verdict.reward, asked]
NAMES = {"math_with_judge": ("LibraryJudgeMathResourcesServer", "LibraryJudgeMathVerifyRequest", "LibraryJudgeMathResourcesServerConfig"),
         "equivalence_llm_judge": ("LLMJudgeResourcesServer", "LLMJudgeVerifyRequest", "LLMJudgeResourcesServerConfig")}
TEMPLATE = "{question}|{expected_answer}|{generated_answer}"
async def everything():
    return [await one(*case) for case in json.load(sys.stdin)]
print("\\n" + json.dumps(asyncio.run(everything())))
"""


@needs_gym
@pytest.mark.parametrize("server", [SHORT, MATH])
def test_nemo_gyms_server_asks_the_same_and_gives_the_same(server):
    cases = [case for case in CASES if case[0] == server]
    asked = json.dumps([case[:5] for case in cases])
    done = subprocess.run([PYTHON, "-c", GYM], input=asked, capture_output=True, text=True, timeout=300)
    if "No module named" in done.stderr:
        pytest.skip(f"NeMo Gym's server {server} cannot be imported there: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[case[5], case[6]] for case in cases]


def test_no_label_leads_nowhere():
    assert decide(SHORT, SAME, task(), message("4"), ["They are alike."])[0] is None


def test_the_prompt_of_our_own_names_the_labels_and_keeps_the_answers_apart():
    outcome = make(SHORT, {"judge_equal_label": "YES", "judge_not_equal_label": "NO"}).verify(task(), message("{question} 4"))
    assert isinstance(outcome, Undecided)
    system, user = outcome.ask.params["input"]
    assert "YES if" in system["content"] and "NO if" in system["content"]
    assert user["content"].endswith("<answer_a>\nfour\n</answer_a>\n\n<answer_b>\n{question} 4\n</answer_b>")


def test_a_system_message_of_ones_own_goes_with_a_prompt_of_ones_own():
    def messages(**more):
        outcome = make(SHORT, SAME | more).verify(task(), message("4"))
        assert isinstance(outcome, Undecided)
        return [one["role"] for one in outcome.ask.params["input"]]

    assert messages() == ["user"]
    assert messages(judge_system_message="Judge {strictly}.") == ["system", "user"]


def test_nemo_gyms_own_default_prompt_file_stands_for_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(SHORT, {"judge_prompt_template_fpath": "prompt_templates/equivalence_llm_judge.txt"})
    with pytest.raises(UsageError, match=r"there is no file prompt_templates/lc_judge\.txt"):
        make(SHORT, {"judge_prompt_template_fpath": "prompt_templates/lc_judge.txt"})


@pytest.mark.parametrize(
    "options",
    [
        {"judge_equal_label": "[[A!=B]]"},
        {"judge_prompt_template": "{answer}"},
        {"judge_prompt_template": "{"},
        {"question_extract_regex": "(?=x)"},
        {"check_twice_swap": "sometimes"},
    ],
    ids=json.dumps,
)
def test_options_that_cannot_be_used_are_told(options):
    with pytest.raises(UsageError):
        make(SHORT, options)


@pytest.mark.parametrize(
    ("server", "row"),
    [
        (SHORT, task("")),
        (SHORT, task(template_metadata={"output_regex": "(?=x)"})),
        (MATH, {"expected_answer": "four"}),
    ],
)
def test_a_row_that_cannot_be_asked_about_is_a_failure(server, row):
    with pytest.raises(VerifierFailure):
        make(server, {}).verify(row, message("\\boxed{4x}"))


def test_too_long_an_answer_is_wrong_without_being_asked_about():
    for server in (SHORT, MATH):
        verdict = make(server, {}).verify(task(), message("\\boxed{" + "x" * 2_000_000 + "}"))
        assert isinstance(verdict, Verdict) and verdict.reward == 0 and verdict.extras["reason"].startswith("limit:")


def test_the_gold_check_asks_no_judge():
    verifier = make(MATH, {})
    assert verifier.gold(task("\\text{some words}, 5 \\heartsuit")).doubt == ""
    assert isinstance(make(MATH, {"should_use_judge": False}), Math)
    assert make(SHORT, {}).gold(task()).right is None
