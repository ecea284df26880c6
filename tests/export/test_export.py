"""Finished rollouts become records of trainers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.cli.main import main
from gymdata.errors import DataError, UsageError
from gymdata.export.export import export
from gymdata.export.options import Options
from tests.export.cases import CLOCK, WITH_TOKENS, WITH_TOOLS, call, exported, result, rollout, sampled, save, text, thought

REWARDS = [0.0, 1.0, 0.25, 1.0, 0.5]


def test_a_conversation_has_the_prompt_the_tools_and_the_thoughts(tmp_path: Path) -> None:
    [record], _ = exported(tmp_path, "sft", WITH_TOOLS)
    call_ = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    assert record["messages"] == [
        {"role": "system", "content": "Be brief.\n\nUse tools."},
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": "<think>Look it up.</think>", "tool_calls": [call_]},
        {"role": "tool", "content": "snow", "tool_call_id": "call_1", "name": "weather"},
        {"role": "assistant", "content": "<think>Tell.</think>It snows."},
    ]
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert record["tools"] == [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    assert (record["task"], record["rollout"], record["reward"]) == (0, 0, 1.0)


@pytest.mark.parametrize(
    ("reasoning", "content", "field"),
    [("tags", "<think>Tell.</think>It snows.", None), ("field", "It snows.", "Tell."), ("drop", "It snows.", None)],
)
def test_thoughts_are_tagged_a_field_or_gone(tmp_path: Path, reasoning: str, content: str, field: str | None) -> None:
    [record], _ = exported(tmp_path, "sft", WITH_TOOLS, reasoning=reasoning)
    last = record["messages"][-1]
    assert (last["content"], last.get("reasoning_content")) == (content, field)


def test_arguments_that_are_no_object_stay_the_text_that_was_sampled(tmp_path: Path) -> None:
    [record], _ = exported(tmp_path, "sft", rollout(output=[call("weather", '{"city": '), result("no JSON")]))
    assert record["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city": '


def test_what_the_chat_template_was_told_is_told_of_every_record_or_of_none(tmp_path: Path) -> None:
    told = rollout(0, params={"metadata": {"chat_template_kwargs": '{"enable_thinking": false}'}})
    records, _ = exported(tmp_path, "sft", told, rollout(1))
    assert [record["chat_template_kwargs"] for record in records] == [{"enable_thinking": False}, {}]
    records, _ = exported(tmp_path, "sft", rollout(0), rollout(1))
    assert all("chat_template_kwargs" not in record for record in records)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (rollout(1, _ng_failure_class="judge_failed", reward=0.0), "failed"),
        (rollout(1, mask_sample=True), "masked"),
        (rollout(1) | {"response": None}, "without a response"),
        (rollout(1, output=[]), "without an answer"),
        (rollout(1, output=[text("")]), "without an answer"),
        (rollout(1, reward=None), "without a reward"),
        ({"reward": 1.0, "_ng_task_index": 1}, "without a request"),
        (rollout(1) | {"response": {"output": [text("cut")], "incomplete_details": {"reason": "max_output_tokens"}}},
         "truncated (max_output_tokens)"),
        (rollout(1, params={"tools": [{"type": "web_search"}]}), "not expressible as chat messages"),
        (rollout(1, params={"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]}]}),
         "not expressible as chat messages"),
    ],
)  # fmt: skip
def test_rollouts_that_teach_nothing_are_left_out_and_counted(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    records, found = exported(tmp_path, "sft", rollout(0), bad)
    assert [record["task"] for record in records] == [0]
    assert found.removed == {reason: 1}


def test_what_cannot_be_said_is_told_with_its_place(tmp_path: Path) -> None:
    _, found = exported(tmp_path, "sft", rollout(0), rollout(1, params={"tools": [{"type": "web_search"}]}))
    [example] = found.examples.values()
    assert example.startswith(f"{tmp_path}/rollouts.jsonl:2: tools[0]: a tool of the type 'web_search'")


def test_cut_off_answers_can_be_kept(tmp_path: Path) -> None:
    cut = rollout() | {"response": {"output": [text("cut")], "status": "incomplete"}}
    records, _ = exported(tmp_path, "sft", cut, keep_truncated=True)
    assert len(records) == 1


def test_the_best_of_a_task_is_the_first_with_the_highest_reward(tmp_path: Path) -> None:
    records, found = exported(tmp_path, "sft", *[rollout(0, n, reward) for n, reward in enumerate(REWARDS)], pick="best")
    assert [record["rollout"] for record in records] == [1]
    assert found.removed == {"not the best of its task": 4}


def test_the_best_that_can_be_said_is_picked(tmp_path: Path) -> None:
    hosted = rollout(0, 0, 1.0, params={"tools": [{"type": "web_search"}]})
    records, _ = exported(tmp_path, "sft", hosted, rollout(0, 1, 0.5), pick="best")
    assert [record["rollout"] for record in records] == [1]


def test_a_least_reward_holds_for_the_best_too(tmp_path: Path) -> None:
    records, found = exported(tmp_path, "sft", rollout(0, 0, 0.2), rollout(1, 0, 0.8), pick="best", min_reward=0.5)
    assert [record["task"] for record in records] == [1]
    assert found.removed == {"reward below 0.5": 1}


def test_the_order_is_that_of_tasks_and_rollouts_however_the_file_is_ordered(tmp_path: Path) -> None:
    rows = [rollout(task, index) for task in (2, 0, 1) for index in (1, 0)]
    records, _ = exported(tmp_path, "sft", *rows)
    assert [(record["task"], record["rollout"]) for record in records] == [
        (task, index) for task in range(3) for index in range(2)
    ]


def test_rows_without_indices_are_tasks_by_their_request(tmp_path: Path) -> None:
    rows = [rollout(None, None, reward, [text(f"{reward}")], params={"input": name}) for name in "ab" for reward in (0.0, 1.0)]
    pairs, _ = exported(tmp_path, "dpo", *rows)
    assert [(pair["task"], pair["chosen_rollout"], pair["rejected_rollout"]) for pair in pairs] == [(0, 1, 0), (1, 1, 0)]


def test_the_same_rollout_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rollouts\.jsonl:2: a second rollout with _ng_task_index 0 and _ng_rollout_index 0"):
        exported(tmp_path, "sft", rollout(0, 0), rollout(0, 0))


def test_compressed_files_are_read(tmp_path: Path) -> None:
    source = tmp_path / "rollouts.jsonl.gz"
    source.write_bytes(gzip.compress("".join(json.dumps(rollout(n)) + "\n" for n in range(3)).encode()))
    assert export([source], "sft", tmp_path / "out.jsonl").records == 3


def test_the_token_ids_have_labels_where_they_were_sampled(tmp_path: Path) -> None:
    [record], _ = exported(tmp_path, "sft", WITH_TOKENS, tokens=True)
    assert record["input_ids"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert record["labels"] == [-100, -100, -100, 4, 5, -100, 7, 8]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ([text("no ids")], "without token ids"),
        ([text("a", **sampled([1], [2])), text("b", **sampled([1, 9], [3]))], "token ids that are not one sequence"),
        ([text("a", **(sampled([1], [2]) | {"generation_log_probs": []}))], "token ids that are not one sequence"),
    ],
)
def test_token_ids_that_are_not_one_sequence_are_refused(tmp_path: Path, output: list[dict[str, Any]], reason: str) -> None:
    _, found = exported(tmp_path, "sft", WITH_TOKENS, rollout(1, output=output), tokens=True)
    assert found.removed == {reason: 1}


def test_a_pair_is_the_best_and_the_worst(tmp_path: Path) -> None:
    [pair], found = exported(tmp_path, "dpo", *[rollout(0, n, reward) for n, reward in enumerate(REWARDS)])
    assert pair["prompt"] == [{"role": "user", "content": "Question 0"}]
    assert pair["chosen"] == [{"role": "assistant", "content": "answer 1"}]
    assert pair["rejected"] == [{"role": "assistant", "content": "answer 0"}]
    assert (pair["chosen_reward"], pair["rejected_reward"]) == (1.0, 0.0)
    assert found.removed == {"in no pair": 3}


def test_no_answer_is_taken_again_while_there_are_others(tmp_path: Path) -> None:
    rows = [rollout(0, n, reward) for n, reward in enumerate([1.0, 1.0, 0.0, 0.0])]
    pairs, _ = exported(tmp_path, "dpo", *rows, max_pairs=3)
    assert [(pair["chosen_rollout"], pair["rejected_rollout"]) for pair in pairs] == [(0, 2), (1, 3), (0, 3)]


@settings(max_examples=60, deadline=None)
@given(
    rewards=st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]), min_size=2, max_size=7), margin=st.sampled_from([0.0, 0.2, 0.6])
)
def test_every_pair_is_apart_by_the_margin_and_there_once(
    tmp_path_factory: pytest.TempPathFactory, rewards: list[float], margin: float
) -> None:
    rows = [rollout(0, n, reward) for n, reward in enumerate(rewards)]
    expected = {
        (a, b) for a, x in enumerate(rewards) for b, y in enumerate(rewards) if round(x - y, 6) >= margin and round(x - y, 6) > 0
    }
    folder = tmp_path_factory.mktemp("pairs")
    if not expected:
        with pytest.raises(DataError, match="no record is left"):
            exported(folder, "dpo", *rows, margin=margin, max_pairs=99)
        return
    pairs, _ = exported(folder, "dpo", *rows, margin=margin, max_pairs=99)
    assert sorted((pair["chosen_rollout"], pair["rejected_rollout"]) for pair in pairs) == sorted(expected)


def test_answers_to_different_requests_are_no_pair(tmp_path: Path) -> None:
    other = rollout(0, 1, 0.0, params={"tools": [CLOCK]})
    with pytest.raises(DataError, match="2 in no pair"):
        exported(tmp_path, "dpo", rollout(0, 0, 1.0), other)


def test_the_same_answer_is_not_better_than_itself(tmp_path: Path) -> None:
    rows = [rollout(0, n, reward, output=[text("same")]) for n, reward in enumerate([1.0, 0.0])]
    with pytest.raises(DataError, match="no record is left"):
        exported(tmp_path, "dpo", *rows)


def test_labels_say_which_rewards_reach_the_threshold(tmp_path: Path) -> None:
    records, _ = exported(tmp_path, "kto", *[rollout(0, n, reward) for n, reward in enumerate(REWARDS)], threshold=0.5)
    assert [record["label"] for record in records] == [False, True, False, True, True]
    assert records[1]["completion"] == [{"role": "assistant", "content": "answer 1"}]


def test_parquet_holds_what_the_lines_hold(tmp_path: Path) -> None:
    import datasets

    rows = [
        WITH_TOOLS,
        rollout(1, params={"tools": [CLOCK]}, output=[call("clock", '{"zone": [1, null]}'), result("12")]),
        rollout(2),
    ]
    records, _ = exported(tmp_path, "sft", *rows)
    target = tmp_path / "out.parquet"
    export([tmp_path / "rollouts.jsonl"], "sft", target)
    for form, path in (("parquet", target), ("json", tmp_path / "out.jsonl")):
        loaded = datasets.load_dataset(form, data_files=str(path), split="train", cache_dir=str(tmp_path / form))
        assert list(loaded) == records  # pyright: ignore[reportArgumentType]


def test_token_ids_are_lists_of_numbers_in_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    source = save(tmp_path / "rollouts.jsonl", WITH_TOKENS)
    export([source], "sft", tmp_path / "out.parquet", Options(tokens=True))
    table = pq.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("input_ids").type) == "list<element: int64>"
    assert table["labels"].to_pylist() == [[-100, -100, -100, 4, 5, -100, 7, 8]]


def test_nothing_is_written_where_no_record_is_left(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("old\n")
    with pytest.raises(DataError, match=r"no record is left of 1 rollouts:\n    1 reward below 2"):
        exported(tmp_path, "sft", rollout(), min_reward=2.0)
    assert (tmp_path / "out.jsonl").read_text() == "old\n"


def test_the_rollouts_are_never_overwritten(tmp_path: Path) -> None:
    source = save(tmp_path / "rollouts.jsonl", rollout())
    with pytest.raises(UsageError, match="never overwritten"):
        export([source], "sft", source)


def test_the_command_says_how_many_each_rule_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save(tmp_path / "rollouts.jsonl", rollout(0), rollout(1, mask_sample=True), rollout(2, reward=None))
    assert main(["rollouts", "export", str(source), "--to", "sft", "-o", str(tmp_path / "out.jsonl")]) == 0
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines()] == [
        ["rollouts", "3"], ["-", "masked", "1"], ["-", "without", "a", "reward", "1"], ["sft", "records", "1"],
    ]  # fmt: skip
    assert "sft drops: log probabilities" in shown.err


def test_lines_that_are_no_rollouts_are_reported_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save(tmp_path / "rollouts.jsonl", rollout(0))
    source.write_text(source.read_text() + "version https://git-lfs.github.com/spec/v1\n[1]\n")
    assert main(["rollouts", "export", str(source), "--to", "sft", "-o", str(tmp_path / "o.jsonl"), "--format", "json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["records"] == 1
    assert "rollouts.jsonl:2 " in shown.err and "rollouts.jsonl:3 " in shown.err


@pytest.mark.parametrize(
    ("to", "option", "value"),
    [("sft", "--min-reward", "nan"), ("kto", "--threshold", "nan"), ("dpo", "--margin", "nan"), ("verl", "--max-model-len", "0")],
)
def test_numbers_that_are_none_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str, option: str, value: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["rollouts", "export", "r.jsonl", "--to", to, "-o", str(tmp_path / "o.jsonl"), option, value])
    assert f"argument {option}: '{value}' is no" in capsys.readouterr().err


def test_a_thought_alone_is_an_answer(tmp_path: Path) -> None:
    [record], _ = exported(tmp_path, "sft", rollout(output=[thought("Hm.")]))
    assert record["messages"][-1] == {"role": "assistant", "content": "<think>Hm.</think>"}


def test_the_command_knows_every_format() -> None:
    from gymdata.cli.rollouts_export import FORMATS as named
    from gymdata.export.export import FORMATS

    assert sorted(named) == sorted(FORMATS)


def test_a_number_that_parquet_cannot_hold_is_told_by_its_record(tmp_path: Path) -> None:
    source = save(tmp_path / "rollouts.jsonl", rollout(0), rollout(1, key=10**30))
    with pytest.raises(DataError, match=r"^record 2, key 'key': a number") as error:
        export([source], "trl", tmp_path / "out.parquet")
    assert "a .jsonl file takes the records" in error.value.hint
    assert export([source], "trl", tmp_path / "out.jsonl").records == 2
