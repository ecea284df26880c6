"""`gymdata rollouts verify`: stored responses, scored again."""

import json

import pytest

pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'gymdata[verifiers]'")

from gymdata.cli.main import main
from gymdata.verifiers.responses import calls, message

MATH = {"type": "responses_api_agents", "name": "math_with_judge_simple_agent"}
MCQA = {"type": "responses_api_agents", "name": "mcqa_simple_agent"}


def rollout(text, reward, index=0, **more):
    row = {"responses_create_params": {"input": "?"}, "expected_answer": "4", "question": "?", "agent_ref": MATH}
    return row | {"response": message(text), "reward": reward, "_ng_task_index": 0, "_ng_rollout_index": index} | more


@pytest.fixture
def stored(tmp_path):
    def write(*rows):
        path = tmp_path / "rollouts.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def verify(capsys, *words):
    code = main(["rollouts", "verify", "--format", "json", *map(str, words)])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else err


def test_rewards_that_stay_and_rewards_that_change(stored, capsys):
    path = stored(rollout("\\boxed{4}", 1.0), rollout("\\boxed{5}", 1.0), rollout("\\boxed{4.0}", 0))
    code, found = verify(capsys, path)
    assert code == 1
    assert (found["rollouts"], found["same"]) == (3, 1)
    assert [(one["line"], one["stored"], one["reward"]) for one in found["differences"]] == [(2, 1.0, 0.0), (3, 0, 1.0)]
    assert verify(capsys, stored(rollout("\\boxed{4}", 1.0)))[0] == 0


def test_a_file_may_mix_environments(stored, capsys):
    choice = {"agent_ref": MCQA, "options": [{"A": "1"}, {"B": "2"}], "expected_answer": "B"}
    assert verify(capsys, stored(rollout("\\boxed{4}", 1.0), rollout("\\boxed{B}", 1.0, **choice)))[0] == 0


def test_the_output_has_new_rewards_in_the_order_of_the_file_and_failures_beside_it(stored, capsys, tmp_path):
    rows = [rollout(f"\\boxed{{{index}}}", 0.5, index) for index in range(40)]
    rows[7]["response"] = None
    output = tmp_path / "again.jsonl"
    code, found = verify(capsys, stored(*rows), "--output", output)
    assert code == 0
    assert [one["line"] for one in found["failures"]] == [8]
    written = list(map(json.loads, output.read_text().splitlines()))
    assert [row["_ng_rollout_index"] for row in written] == [index for index in range(40) if index != 7]
    assert [row["reward"] for row in written] == [float(row["_ng_rollout_index"] == 4) for row in written]
    assert written[4]["extracted_answer"] == "4"
    (failure,) = map(json.loads, (tmp_path / "again_failures.jsonl").read_text().splitlines())
    assert (failure["_ng_rollout_index"], failure["_ng_failure_class"], failure["_ng_failure_type"]) == (
        7,
        "verifier_failed",
        "error",
    )


def test_token_ids_are_kept(stored, capsys, tmp_path):
    row = rollout("\\boxed{4}", 0.0)
    row["response"]["output"][0]["generation_token_ids"] = [1, 2]
    output = tmp_path / "again.jsonl"
    verify(capsys, stored(row), "--output", output)
    assert json.loads(output.read_text())["response"] == row["response"]


def test_what_is_no_rollout_or_of_no_known_agent_is_named_with_its_line(stored, capsys, tmp_path):
    task = {"responses_create_params": {"input": "?"}, "agent_ref": MATH}
    code, said = verify(capsys, stored(rollout("x", 0.0), task))
    assert code == 1
    assert "rollouts.jsonl:2: not a rollout" in said
    code, said = verify(capsys, stored(rollout("x", 0.0, agent_ref={"name": "nobody"})))
    assert code == 2
    assert "rollouts.jsonl:1: the row's agent 'nobody'" in said
    code, said = verify(capsys, path := stored(rollout("x", 0.0)), "--output", path)
    assert code == 2
    assert "is the file that is read" in said


def test_an_environment_of_ones_own_scores_what_names_no_agent(stored, capsys):
    row = rollout("", 1.0)
    del row["agent_ref"]
    row["response"] = calls(("get_weather", {"city": "Oslo"}))
    assert verify(capsys, stored(row), "--env", "single_tool_call")[0] == 0
