"""The catalogue of the gold check: what a row's verifier says of the row's own answer. Found only with `validate --gold`."""

from __future__ import annotations

from gymdata.validation.findings import Rule

_ROW = (
    '{"responses_create_params": {"input": "Solve it. Put the answer inside \\\\boxed{}."}, "expected_answer": "%s", '
    '"question": "Solve it.", "agent_ref": {"type": "responses_api_agents", "name": "math_with_judge_simple_agent"}}'
)
_EXTREMA = (
    '{"responses_create_params": {"input": "Where is the maximum? Put the answer inside \\\\boxed{}."}, "expected_answer": "%s", '
    '"question": "Where?", "agent_ref": {"type": "responses_api_agents", "name": "math_with_judge_simple_agent"}}'
)
_CHOICE = (
    '{"responses_create_params": {"input": "Which is prime?"}, "options": [{"A": "4"}, {"B": "7"}], "expected_answer": "B", '
    '"template_metadata": {"output_regex": "%s"}, "agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"}}'
)
_CODE = (
    '{"responses_create_params": {"input": "Print twice the number given."}, "verifier_metadata": {"unit_tests": {"inputs": '
    '["2"], "outputs": ["4"]}, "solution": "%s"}, "agent_ref": {"type": "responses_api_agents", "name": "code_gen_simple_agent"}}'
)

GOLD_RULES = [
    Rule(
        "GD405", "gold-refused", "error", "The row's verifier gives the row's own answer no reward.",
        "No response can be right: every rollout of the row is wasted, and teaches that right answers are wrong.",
        "Correct the answer, or the verifier's options; or remove the row.",
        _CODE % "print(int(input()) * 3)", _CODE % "print(int(input()) * 2)",
    ),
    Rule(
        "GD406", "wrong-accepted", "warning", "The row's verifier rewards a wrong answer.",
        "The policy learns that wrong answers are right. The wrong answer is the row's own with a number changed, or another option.",
        "Write the answer so that the verifier reads all of it: only the final result, without the equation or sentence around it.",
        _EXTREMA % "$\\\\max$ at $x=2$, $\\\\min$ at $x=4$", _EXTREMA % "2",
    ),
    Rule(
        "GD407", "gold-verbatim", "warning", "The verifier cannot read the row's answer: only the same text, letter by letter, is right.",
        "A response that is right in other words gets nothing.",
        "Write the answer as a number or as LaTeX, without the quotes and brackets of a list.",
        _ROW % "['9.6']", _ROW % "9.6",
    ),
    Rule(
        "GD408", "not-scorable", "error", "The row's verifier cannot score any response to the row.",
        "Every rollout of the row fails after the model has answered.",
        "Complete the fields that the verifier reads; `gymdata envs show ENV` lists them.",
        _CHOICE % "(?=B)B", _CHOICE % "([A-D])",
    ),
]  # fmt: skip
