"""Tool calls, compared with what was expected, and what they leave behind."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.errors import UsageError
from gymdata.verifiers import VerifierFailure
from gymdata.verifiers.responses import calls, message
from gymdata.verifiers.tool_call import ArgumentComparison, MultiStep, SessionState, SingleToolCall
from tests.verifiers.gym import needs_gym, verdicts

SHARED = Path(__file__).parents[3] / "shared/data/tools.jsonl"


def call(name, arguments):
    return {
        "type": "function_call",
        "name": name,
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
    }


def expecting(*expected):
    if not expected:
        return {"expected_action": {"type": "message", "content": "hello"}}
    if len(expected) == 1:
        return {"expected_action": call(*expected[0])}
    return {"expected_action": {"type": "function_call_batch", "calls": [call(*one) for one in expected]}}


def made(*named):
    return {"output": [call(*one) | {"call_id": f"c{number}"} for number, one in enumerate(named)]}


F, G = ("f", {"a": 1}), ("g", {"s": "one two three"})
ROWS = [
    expecting(), expecting(F), expecting(G), expecting(F, G), expecting(F, F, G), expecting(("f", {"a": 1.5, "b": [1, "x"], "c": {"d": None}})),
    expecting(("f", {"a": "one"})), expecting(("f", {})), expecting(("f", {"a": True})),
]  # fmt: skip
RESPONSES = [
    {"output": []}, message("hello"), made(F), made(G), made(F, G), made(G, F), made(F, F), made(F, F, G), made(F, G, F, G), made(("f", "{not json")),
    made(("f", '"text"')), made(("f", "[]")), made(("f", {"a": 2})), made(("f", {"a": 1.0})), made(("f", {"a": True})), made(("f", {"a": "1"})),
    made(("f", {"a": 1, "b": 2})), made(("g", {"s": "three two one"})), made(("g", {"s": "one two four"})), made(("g", {"s": "five six"})),
    made(("g", {"s": "one"})), made(("f", {"a": 1.5000000001, "b": [1, "x"], "c": {"d": None}})), made(("f", {"a": 1.5, "b": [1], "c": {"d": None}})),
    made(("f", {"a": 1.5, "b": ["x", 1], "c": {"d": None}})), made(("f", {"a": "one"})), made(("f", {"a": "One"})), made(("f", {})), made(("h", {})),
    {"output": [*message("let me see")["output"], *made(F)["output"]]}, {"output": [{"type": "reasoning", "id": "r", "summary": []}]},
]  # fmt: skip
OPTIONS = [
    {"word_count_similarity_threshold": 0.3},
    {"word_count_similarity_threshold": 0.0, "parallel_tool_call_rewarding": True},
    *(
        {"word_count_similarity_threshold": 0.3, "parallel_tool_call_rewarding": True, "allow_subset": subset, "allow_superset": superset,
         "parallel_tool_call_reward_mode": mode}
        for subset in (False, True) for superset in (False, True) for mode in ("binary_strict", "fractional", "f1")
    ),
]  # fmt: skip


@needs_gym
def test_compared_arguments_get_nemo_gyms_rewards_and_categories():
    cases = [(row, response) for row in ROWS for response in RESPONSES]
    for options in (OPTIONS[0], OPTIONS[-1]):
        script = [(row, response) for row, response in cases]
        theirs = verdicts("single_step_tool_use_with_argument_comparison", script, tool_call_comparator_config=options)
        compare(cases, options, theirs)


@needs_gym
@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS[1:-1], ids=str)
def test_with_all_options(options):
    cases = [(row, response) for row in ROWS for response in RESPONSES]
    compare(cases, options, verdicts("single_step_tool_use_with_argument_comparison", cases, tool_call_comparator_config=options))


def compare(cases, options, theirs):
    verifier = ArgumentComparison.from_options({"tool_call_comparator_config": options})
    for (row, response), expected in zip(cases, theirs, strict=True):
        verdict = verifier.verify(row, response)
        assert (verdict.reward, verdict.extras["category"]) == (expected["reward"], expected["category"]), (row, response)


def test_an_expected_action_that_cannot_be_compared_is_a_failure_of_the_row():
    for action in (
        None,
        "f",
        {"type": "other"},
        call("f", "{"),
        {"type": "function_call_batch", "calls": []},
        {"type": "function_call"},
    ):
        with pytest.raises(VerifierFailure):
            ArgumentComparison().verify({"expected_action": action}, made(F))
    with pytest.raises(UsageError, match="f1"):
        ArgumentComparison.from_options({"tool_call_comparator_config": {"parallel_tool_call_reward_mode": "some"}})


@pytest.mark.parametrize("row", ROWS, ids=json.dumps)
def test_the_expected_action_scores_and_others_do_not(row):
    verifier = ArgumentComparison()
    gold = verifier.gold(row)
    assert gold.right is not None
    assert verifier.verify(row, gold.right).reward == 1
    assert all(verifier.verify(row, wrong).reward == 0 for wrong in gold.wrong)


@pytest.mark.skipif(not SHARED.is_file(), reason="../shared/data/tools.jsonl is not beside this checkout")
def test_every_real_expected_action_scores():
    verifier = ArgumentComparison()
    seen = 0
    for line in SHARED.open():
        row = json.loads(line)
        if row.get("expected_action"):
            gold = verifier.gold(row)
            assert gold.right is not None
            assert verifier.verify(row, gold.right).reward == 1
            seen += 1
    assert seen


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_arguments_get_a_verdict(value):
    response = made(("f", json.dumps(value)))
    assert ArgumentComparison().verify(expecting(F), response).reward in (0.0, 1.0)
    for name, verifier, row in (
        ("extract_synonym_values", MultiStep(), {"expected_synonym_values": [1]}),
        ("increment_counter", SessionState(), {"initial_count": 0, "expected_count": 1}),
    ):
        for arguments in (value, {"synonym_values": value, "count": value}):
            assert verifier.verify(row, made((name, json.dumps(arguments)))).reward in (0.0, 1.0)


def test_one_call_of_get_weather_is_enough():
    assert SingleToolCall().verify({}, calls(("get_weather", {}))).reward == 1
    verdict = SingleToolCall().verify({}, calls(("get_time", {})))
    assert (verdict.reward, verdict.extras["reason"]) == (0, "get_weather was not called, but get_time")


STEP = {
    "id": 1,
    "expected_synonyms": ["a", "b"],
    "expected_synonym_values": [5, 6],
    "minefield_label": "m",
    "minefield_label_value": 9,
}
HANDED_IN = [
    message("5, 6"),
    calls(("extract_synonym_values", {"synonym_values": [5, 6]})),
    calls(("extract_synonym_values", {"synonym_values": [6, 5]})),
    calls(("extract_synonym_values", {"synonym_values": [5, 6]}), ("extract_synonym_values", {"synonym_values": [5, 9]})),
    calls(("extract_synonym_values", {"synonym_values": []})),
]


def test_malformed_arguments_of_several_steps_earn_nothing_and_say_so():
    for arguments in ("{", "[]", "{}", '{"synonym_values": 5}', '{"synonym_values": [[5], {}]}'):
        verdict = MultiStep().verify(STEP, made(("extract_synonym_values", arguments)))
        assert verdict.reward == 0
        assert verdict.extras["reason"]


@needs_gym
def test_several_steps_get_nemo_gyms_verdicts():
    theirs = verdicts("example_multi_step", [(STEP, response) for response in HANDED_IN])
    for response, expected in zip(HANDED_IN, theirs, strict=True):
        verdict = MultiStep().verify(STEP, response)
        ours = verdict.extras | {"reward": verdict.reward}
        keys = (
            "reward",
            "parsed_synonym_values",
            "accuracy",
            "set_overlap",
            "original_term_minefield_hit",
            "order_instruction_following_failure",
        )
        assert {key: ours[key] for key in keys} == {key: expected[key] for key in keys}


COUNTER = {"initial_count": 3, "expected_count": 10}


@pytest.mark.parametrize(
    ("counts", "reward"),
    [([7], 1), ([3, 4], 1), ([8, -1], 1), (["7"], 1), ([7.0], 1), ([7.5], 0), ([None, 7], 1), (["x"], 0), ([], 0), ([7, 1], 0)],
)
def test_the_counter_is_replayed_from_the_calls(counts, reward):
    response = calls(*(("increment_counter", {"count": count}) for count in counts), ("get_counter_value", {}))
    assert SessionState().verify(COUNTER, response).reward == reward


def test_a_call_that_was_not_carried_out_does_not_count():
    response = calls(("increment_counter", {"count": 7}), ("increment_counter", {"count": 1}))
    response["output"].insert(1, {"type": "function_call_output", "call_id": "call_0", "output": "{}"})
    assert SessionState().verify(COUNTER, response).reward == 1
