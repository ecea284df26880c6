"""Rollouts that others wrote become ours: profile, show and export read them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gymdata.cli.main import main
from gymdata.errors import DataError, GymdataError, UsageError
from gymdata.export.export import export
from gymdata.export.options import Options
from gymdata.rollouts.facts import read as read_facts
from gymdata.rollouts.foreign.read import READERS, Imported, import_rollouts
from gymdata.rollouts.foreign.record import Settings
from gymdata.rollouts.tasks import Samples
from gymdata.validation.judge import judge

TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}

RESULT: dict[str, Any] = {
    "example_id": 7,
    "prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 2?"}],
    "completion": [
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "assistant", "content": "<think>easy</think>3"},
    ],
    "answer": "3",
    "task": "sums",
    "info": {"level": 1},
    "reward": 1.0,
    "metrics": {"correct": 1.0},
    "correct": 1.0,
    "is_completed": True,
    "is_truncated": False,
    "oai_tools": [TOOL],
    "token_usage": {"input_tokens": 20.0, "output_tokens": 5.0},
}
"""What verifiers, version 0, saves of a rollout."""

EPISODE: dict[str, Any] = {
    "id": "e",
    "env": {"id": "sums-env"},
    "task": {"type": "Sums", "data": {"idx": 3, "prompt": "1 + 2?", "answer": "3"}, "key": "k3"},
    "ok": True,
    "traces": [
        {
            "version": 1,
            "tools": [{"type": "function", "name": "add", "parameters": {}}],
            "nodes": [
                {"message": {"role": "user", "content": "1 + 2?"}, "token_ids": [1, 2], "mask": [False, False]},
                {"parent": 0, "sampled": True, "message": {"role": "assistant", "reasoning_content": "hm", "tool_calls": [
                    {"id": "c1", "name": "add", "arguments": '{"a": 1}'}]},
                 "token_ids": [3, 4, 5], "mask": [False, True, True], "logprobs": [-0.1, -0.2]},
                {"parent": 1, "message": {"role": "tool", "tool_call_id": "c1", "content": "3"}, "token_ids": [6], "mask": [False]},
                {"parent": 2, "sampled": True, "message": {"role": "assistant", "content": "3"},
                 "token_ids": [7, 8], "mask": [False, True], "logprobs": [-0.3]},
            ],
            "calls": [{"node": 1, "model": "m", "finish_reason": "tool_calls", "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
                      {"node": 3, "model": "m", "finish_reason": "stop", "usage": {"prompt_tokens": 7, "completion_tokens": 1}}],
            "rewards": {"right": {"score": 1.0, "weight": 0.8}, "short": {"score": 1.0, "weight": 0.1}, "judge": None},
            "metrics": {"turns": 2.0},
            "ok": True,
        }
    ],
}  # fmt: skip
"""What verifiers, version 1, writes of an episode."""

ANSWER: dict[str, Any] = {
    "problem": "1 + 2?",
    "expected_answer": "3",
    "generation": "<think>sum</think>\\boxed{3}",
    "predicted_answer": "3",
    "symbolic_correct": True,
    "judgement": "Reasoning: the same.\nJudgement: No",
    "num_generated_tokens": 12,
    "generation_time": 0.5,
}
"""A line of NeMo-Skills' output."""


def imported(
    folder: Path, form: str, *records: Any, skip: bool = False, **settings: Any
) -> tuple[list[dict[str, Any]], Imported]:
    source, output = folder / "source.jsonl", folder / "rollouts.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = import_rollouts([source], form, output, Settings(**settings), skip)
    return [json.loads(line) for line in output.read_text().splitlines()], found


@pytest.mark.parametrize(("form", "record"), [("verifiers", RESULT), ("verifiers", EPISODE), ("skills", ANSWER)])
def test_what_is_imported_is_a_valid_rollout_that_profile_show_and_export_read(
    tmp_path: Path, form: str, record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rows, found = imported(tmp_path, form, record, record)
    assert (found.rollouts, found.tasks) == (2, 1)
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows] == [(0, 0), (0, 1)]
    assert [finding.message for row in rows for finding in judge(json.dumps(row).encode(), "rollout").findings] == []
    path = str(tmp_path / "rollouts.jsonl")
    assert main(["rollouts", "profile", path]) == 0
    assert main(["rollouts", "show", path]) == 0
    assert main(["rollouts", "export", path, "--to", "sft", "-o", str(tmp_path / "sft.jsonl")]) == 0
    assert "reward" in capsys.readouterr().out


def test_a_result_of_verifiers_keeps_its_messages_tools_and_metrics(tmp_path: Path) -> None:
    [row], _ = imported(tmp_path, "verifiers", RESULT)
    assert [item["role"] for item in row["responses_create_params"]["input"]] == ["system", "user"]
    assert row["responses_create_params"]["tools"][0]["name"] == "add"
    assert [item["type"] for item in row["response"]["output"]] == [
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
    ]
    assert row["response"]["usage"]["total_tokens"] == 25
    assert (row["reward"], row["answer"], row["correct"], row["info"]) == (1.0, "3", 1.0, {"level": 1})
    assert row["agent_ref"]["name"] == "sums"


def test_calls_that_are_json_text_are_read(tmp_path: Path) -> None:
    said = [{"role": "assistant", "content": "", "tool_calls": [json.dumps(CALL)]}]
    [row], _ = imported(tmp_path, "verifiers", RESULT | {"completion": said})
    assert row["response"]["output"][0]["name"] == "add"


def test_texts_in_place_of_messages_are_read(tmp_path: Path) -> None:
    [row], _ = imported(tmp_path, "verifiers", RESULT | {"prompt": "1 + 2 =", "completion": " 3", "oai_tools": None})
    assert row["responses_create_params"]["input"] == "1 + 2 ="
    assert row["response"]["output"][0]["content"][0]["text"] == " 3"


def test_an_error_is_a_failure_and_no_reward_of_0(tmp_path: Path) -> None:
    failed = RESULT | {
        "reward": 0.0,
        "completion": None,
        "error": {"error": "ModelError", "error_chain_str": "ModelError -> timeout"},
    }
    rows, found = imported(tmp_path, "verifiers", RESULT, failed)
    assert (len(rows), found.failures) == (1, 1)
    [failure] = [json.loads(line) for line in (tmp_path / "rollouts_failures.jsonl").read_text().splitlines()]
    assert (failure["_ng_failure_type"], failure["_ng_failure_message"]) == ("ModelError", "ModelError -> timeout")
    assert "reward" not in failure


def test_an_episode_keeps_its_token_ids(tmp_path: Path) -> None:
    [row], _ = imported(tmp_path, "verifiers", EPISODE)
    replies = [item for item in row["response"]["output"] if "generation_token_ids" in item]
    assert [(item["prompt_token_ids"], item["generation_token_ids"], item["generation_log_probs"]) for item in replies] == [
        ([1, 2, 3], [4, 5], [-0.1, -0.2]),
        ([1, 2, 3, 4, 5, 6, 7], [8], [-0.3]),
    ]
    assert row["reward"] == pytest.approx(0.9)
    assert row["reward_components"] == {"right": 0.8, "short": 0.1}


def test_an_episode_that_is_not_ok_is_a_failure(tmp_path: Path) -> None:
    failed = EPISODE | {"ok": False, "traces": [], "errors": [{"type": "SandboxError", "message": "gone"}]}
    _, found = imported(tmp_path, "verifiers", EPISODE, failed)
    assert (found.rollouts, found.failures) == (1, 1)


def test_messages_that_branch_are_refused(tmp_path: Path) -> None:
    trace = EPISODE["traces"][0]
    branched = EPISODE | {"traces": [trace | {"nodes": [*trace["nodes"], trace["nodes"][-1]]}]}
    with pytest.raises(DataError, match=r"source\.jsonl:1: traces\[0\]\.nodes: the messages branch"):
        imported(tmp_path, "verifiers", branched)


@pytest.mark.parametrize(
    ("record", "key", "reward"),
    [
        (ANSWER, "", 1.0),
        (ANSWER, "judgement", 0.0),
        (ANSWER | {"is_correct": False}, "", 0.0),
        ({key: value for key, value in ANSWER.items() if key != "symbolic_correct"}, "", 0.0),
        ({key: value for key, value in ANSWER.items() if key not in ("symbolic_correct", "judgement")}, "", None),
    ],
)
def test_the_verdict_of_skills_is_the_one_that_is_asked_for(
    tmp_path: Path, record: dict[str, Any], key: str, reward: float
) -> None:
    [row], _ = imported(tmp_path, "skills", record, reward_key=key)
    assert row["reward"] == reward


def test_the_seeds_of_skills_are_rollouts_of_the_same_tasks(tmp_path: Path) -> None:
    files = [tmp_path / f"output-rs{seed}.jsonl" for seed in range(3)]
    for seed, path in enumerate(files):
        answers = [ANSWER | {"problem": problem, "generation": f"{seed}", "symbolic_correct": seed > 0} for problem in "ab"]
        path.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    found = import_rollouts(files, "skills", tmp_path / "all.jsonl")
    assert (found.rollouts, found.tasks) == (6, 2)
    facts, _ = read_facts([tmp_path / "all.jsonl"], Samples())
    assert sorted(zip(facts.tasks, facts.indices, strict=True)) == [(task, index) for task in range(2) for index in range(3)]


def test_reasoning_and_a_cut_of_skills_are_kept(tmp_path: Path) -> None:
    [row], _ = imported(tmp_path, "skills", ANSWER | {"reasoning_content": "sum", "generation": "3", "finish_reason": "length"})
    assert [item["type"] for item in row["response"]["output"]] == ["reasoning", "message"]
    assert row["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


TRANSITION = [
    {"role": "user", "type": "message", "content": "?"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
]


def gym_row(**more: Any) -> dict[str, Any]:
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4", "annotations": []}]}]
    return {"responses_create_params": {"input": "2 + 2?"}, "response": {"output": said}, "reward": 1.0, **more}


def test_rollouts_of_nemo_gym_stay_as_they_are(tmp_path: Path) -> None:
    rows = [gym_row(), gym_row(_ng_task_index=1, _ng_rollout_index=0), gym_row(response=None, reward=0.0)]
    assert imported(tmp_path, "gym", *rows)[0] == rows


def test_failures_of_nemo_gym_need_no_response(tmp_path: Path) -> None:
    failed = {"_ng_task_index": 1, "_ng_rollout_index": 0, "_ng_failure_class": "agent_run_error", "_ng_failure_message": "500"}
    rows, found = imported(tmp_path, "gym", gym_row(), failed)
    assert (len(rows), found.failures) == (1, 1)


def test_indices_that_are_none_are_left_out_and_those_of_tables_whole_again(tmp_path: Path) -> None:
    indices = [(1.0, 0.0), ("3", 0), (2, -1), (True, 0)]
    rows, _ = imported(tmp_path, "gym", *[gym_row(_ng_task_index=task, _ng_rollout_index=one) for task, one in indices])
    assert rows == [gym_row(_ng_task_index=1, _ng_rollout_index=0), *[gym_row()] * 3]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n", "a Git LFS pointer"),
        (json.dumps([gym_row()]), "one JSON array"),
    ],
)
def test_a_file_that_is_something_else_is_called_what_it_is(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "source.jsonl").write_text(text)
    with pytest.raises(DataError, match=f"(?s)1 of 1 .*: the file is {what}"):
        import_rollouts([tmp_path / "source.jsonl"], "gym", tmp_path / "out.jsonl")


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "source.jsonl").write_text(json.dumps(gym_row()), encoding="utf-8-sig")
    assert import_rollouts([tmp_path / "source.jsonl"], "gym", tmp_path / "out.jsonl").rollouts == 1


def test_transitions_become_one_trajectory(tmp_path: Path) -> None:
    later = [*TRANSITION, {"type": "function_call_output", "call_id": "c", "output": "4"}]
    row = gym_row(response={"output": [TRANSITION, later]}, responses_create_params={"input": []})
    [found], said = imported(tmp_path, "gym", row)
    assert found["responses_create_params"]["input"] == TRANSITION[:1]
    assert found["response"]["output"] == later[1:]
    assert sum(said.notes.values()) == 1


def test_indices_that_come_twice_become_others(tmp_path: Path) -> None:
    rows, _ = imported(tmp_path, "gym", *[gym_row(_ng_task_index=1, _ng_rollout_index=0)] * 3)
    assert [row["_ng_rollout_index"] for row in rows] == [0, 1, 2]


@pytest.mark.parametrize(
    ("form", "line", "problem"),
    [
        ("gym", "<PLACEHOLDER ROW>", "$: not JSON"),
        ("gym", "[1]", "$: no JSON object"),
        ("gym", '{"responses_create_params": {"input": "?"}}', "response: neither a response nor a reward"),
        ("verifiers", '{"completion": "x"}', "prompt: missing"),
        ("verifiers", '{"prompt": 5, "completion": "x"}', "prompt: list is wanted, not int"),
        ("verifiers", '{"prompt": "x", "completion": "y", "reward": "1"}', "reward: int or float or bool is wanted, not str"),
        (
            "verifiers",
            '{"prompt": [{"role": "robot"}], "completion": "y"}',
            "prompt: messages[0]: a message with the role 'robot'",
        ),
        ("skills", '{"generation": "x"}', "problem: none of problem, question, prompt, messages is there"),
        ("skills", '{"problem": "x"}', "generation: missing"),
        ("skills", '{"problem": "x", "generation": 3}', "generation: str is wanted, not int"),
    ],
)
def test_problems_name_the_file_the_line_and_the_key(tmp_path: Path, form: str, line: str, problem: str) -> None:
    source = tmp_path / "source.jsonl"
    source.write_text(f"\n{line}\n")
    with pytest.raises(DataError) as error:
        import_rollouts([source], form, tmp_path / "out.jsonl")
    assert f"{source}:2: {problem}" in str(error.value)
    assert not (tmp_path / "out.jsonl").exists()


def test_records_that_are_no_rollouts_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "source.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(gym_row()) + "\n<PLACEHOLDER ROW>\n")
    assert main(["rollouts", "import", str(source), "--from", "gym", "-o", str(output), "--skip-invalid"]) == 1
    shown = capsys.readouterr()
    assert "1 rollouts and 0 failures of 2 records" in shown.out
    assert f"left out: {source}:2: $: not JSON" in shown.err


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {}, {"a": 1}, [{"role": "assistant", "tool_calls": [3]}]])
def test_any_value_anywhere_is_a_problem_and_no_crash(tmp_path: Path, form: str, value: Any) -> None:
    record = {"gym": gym_row(), "verifiers": RESULT, "skills": ANSWER}[form]
    broken = [record | {key: value} for key in record]
    broken += [EPISODE | {key: value} for key in EPISODE] if form == "verifiers" else []
    broken += (
        [EPISODE | {"traces": [EPISODE["traces"][0] | {key: value}]} for key in EPISODE["traces"][0]]
        if form == "verifiers"
        else []
    )
    _, found = imported(tmp_path, form, record, *broken, skip=True)
    assert found.rollouts + found.failures + len(found.problems) == len(broken) + 1


def test_the_source_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "source.jsonl").write_text(json.dumps(gym_row()))
    with pytest.raises(UsageError, match="never overwritten"):
        import_rollouts([tmp_path / "source.jsonl"], "gym", tmp_path / "source.jsonl")


GYM = os.environ.get("GYMDATA_GYM_PYTHON", "")
SHIPPED = sorted(Path(GYM).parents[1].glob("lib/python*/site-packages/**/data/*example_rollouts*.jsonl")) if GYM else []


@pytest.mark.slow
@pytest.mark.skipif(not SHIPPED, reason="GYMDATA_GYM_PYTHON does not name a Python with nemo-gym and its example rollouts")
def test_the_rollouts_that_nemo_gym_ships_are_read_or_refused_in_words(tmp_path: Path) -> None:
    refused: dict[str, str] = {}
    selected = 0
    for path in SHIPPED:
        output = tmp_path / "rollouts.jsonl"
        try:
            import_rollouts([path], "gym", output)
            read_facts([output], Samples())
        except GymdataError as error:
            refused[path.parts[-3]] = str(error)
            continue
        assert main(["rollouts", "profile", str(output), "--jobs", "1"]) == 0
        assert main(["rollouts", "show", str(output), "--limit", "2"]) == 0
        for to in ("sft", "dpo", "kto", "verl", "trl", "verifiers", "atif", "nemo-rl"):
            try:
                export([output], to, tmp_path / "out.jsonl", Options(agent="any") if to == "nemo-rl" else Options())
            except GymdataError as error:
                assert "no record is left" in error.message or "no line is a rollout" in error.message, (path, error)
        asked = ["--profile", str(output), "-o", str(tmp_path / "chosen.jsonl"), "--keep-unmeasured", "--jobs", "1"]
        if (tmp_path / "out.jsonl").exists():
            selected += main(["rollouts", "select", str(tmp_path / "out.jsonl"), *asked]) == 0
            (tmp_path / "out.jsonl").unlink()
    # Tasks without rollouts, placeholders and pointers; of reward profiles and materialized inputs all.
    assert all(f"{name}" and (":1: " in why) for name, why in refused.items())
    assert len(refused) < len(SHIPPED) / 3
    assert selected > len(SHIPPED) / 2
