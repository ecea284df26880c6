"""The letter of an option, found as each grading mode says."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.errors import UsageError
from gymdata.verifiers import VerifierFailure
from gymdata.verifiers.mcqa import MODES, Mcqa
from gymdata.verifiers.responses import message
from tests.verifiers.gym import needs_gym, verdicts

OPTIONS = [{"A": "Paris"}, {"B": "Rome"}, {"C": "New  York"}, {"D": "Berlin"}]
SHARED = Path(__file__).parents[3] / "shared/data/mcqa.jsonl"

TEXTS = [
    "", "B", "\\boxed{B}", "\\boxed{A} no, \\boxed{B}", "\\boxed{\\text{B}}", "\\boxed{\\text{ \\text{B} }}", "\\boxed{(B)}", "\\boxed{B: Rome}",
    "\\boxed{B. Rome}", "\\boxed{Rome}", "\\boxed{the city of rome}", "\\boxed{Rome or Paris}", "\\boxed{new york}", "\\boxed{Z}", "\\boxed{b}",
    "\\boxed{B", "\\boxed{\\frac{1}{2}}", "\\boxed{B} and \\boxed{C", "Answer: B", "answer : b", "Answer: \\text{B}", "Answer: Rome", "Answer: rome.",
    "Answer: A\nAnswer: B", "**Answer:** B", "__Answer__: **B**", "Answer: B because A is wrong", "Answer: A or B", "Answer: A, B", "Answer: I think B",
    "Answer: أ", "Answer: ব", "Ａnswer: Ｂ", "Respuesta: B", "Respuesta: A\nRespuesta: B", "The answer is B.", "The answer is (C)", "final answer is Rome",
    "Answer:", "Answer: ", "\\boxed{}", "\\boxed{ }", "\\boxed{AB}", "\\boxed{A B}", "\\boxed{Answer: B}", "ANSWER: D\nmore", "answeranswer: B",
]  # fmt: skip
ROWS = [
    {},
    *({"grading_mode": mode} for mode in MODES[:3]),
    {"template_metadata": {"output_regex": r"answer is \(?([A-Z])\)?"}},
    {
        "template_metadata": {"output_regex": [r"answer is \(?([A-Z])\b", r"final answer is (\w+)"]},
        "grading_mode": "lenient_boxed",
    },
    {"options": [{"A": "Paris"}, {"B": None}], "grading_mode": "lenient_boxed"},
    {"options": [], "template_metadata": {"output_regex": r"\\boxed\{([A-Z])\}"}},
    {"expected_answer": " b "},
]


def reward(row, text, mode=None):
    return Mcqa(mode).verify({"options": OPTIONS, "expected_answer": "B"} | row, message(text)).reward


def test_a_verdict_says_what_was_found_and_what_was_expected():
    verdict = Mcqa().verify({"options": OPTIONS, "expected_answer": "b"}, message("\\boxed{A}"))
    assert verdict.reward == 0
    assert verdict.extras == {"extracted_answer": "A", "expected_answer": "B", "reason": "found A, expected B"}


def test_the_configuration_goes_before_the_row():
    row = {"grading_mode": "strict_single_letter_boxed"}
    assert reward(row, "Answer: B") == 0
    assert reward(row, "Answer: B", mode="lenient_answer_colon") == 1


def test_an_unknown_mode_is_an_error_of_the_configuration_or_a_failure_of_the_row():
    with pytest.raises(UsageError, match="lenient_boxed"):
        Mcqa.from_options({"grading_mode": "lenient"})
    with pytest.raises(VerifierFailure, match="lenient"):
        reward({"grading_mode": "lenient"}, "B")


def test_a_row_without_an_answer_cannot_be_scored():
    for answer in (None, "", 3):
        with pytest.raises(VerifierFailure):
            reward({"expected_answer": answer}, "\\boxed{B}")


def test_an_expression_that_could_run_away_is_refused_and_a_greedy_one_takes_linear_time():
    with pytest.raises(VerifierFailure, match="output_regex"):
        reward({"template_metadata": {"output_regex": r"(a+)+(?=b)"}}, "a" * 50)
    assert reward({"template_metadata": {"output_regex": r"(a+)+([B])$"}}, "a" * 200_000) == 0


@pytest.mark.parametrize("row", ROWS, ids=json.dumps)
def test_the_gold_answer_scores_and_another_option_does_not(row):
    row = {"options": OPTIONS, "expected_answer": "A"} | row
    verifier = Mcqa()
    gold = verifier.gold(row)
    assert gold.right is not None
    assert verifier.verify(row, gold.right).reward == 1
    assert all(verifier.verify(row, wrong).reward == 0 for wrong in gold.wrong)


@given(st.text(alphabet="\\boxed{text}ABC:,() \nanswer*_", max_size=60), st.sampled_from(MODES))
def test_any_text_gets_a_verdict(text, mode):
    assert reward({}, text, mode) in (0.0, 1.0)


@needs_gym
@pytest.mark.parametrize("mode", [None, *MODES])
def test_verdicts_are_those_of_nemo_gym(mode):
    cases = [({"options": OPTIONS, "expected_answer": "B"} | row, message(text)) for row in ROWS for text in TEXTS]
    prefixed = {"options": OPTIONS, "expected_answer": "B", "template_metadata": {"answer_prefix": "Respuesta:"}}
    cases += [(prefixed, message(text)) for text in TEXTS]
    theirs = verdicts("mcqa", cases, grading_mode=mode)
    for (row, response), expected in zip(cases, theirs, strict=True):
        verdict = Mcqa(mode).verify(row, response)
        assert (verdict.reward, verdict.extras["extracted_answer"]) == (expected["reward"], expected["extracted_answer"]), (
            row,
            response,
        )


@pytest.mark.skipif(not SHARED.is_file(), reason="../shared/data/mcqa.jsonl is not beside this checkout")
def test_every_real_question_rewards_its_own_answer_and_no_other():
    verifier = Mcqa()
    for line in SHARED.open():
        row = json.loads(line)
        gold = verifier.gold(row)
        assert gold.right is not None
        assert verifier.verify(row, gold.right).reward == 1
        assert all(verifier.verify(row, wrong).reward == 0 for wrong in gold.wrong)
