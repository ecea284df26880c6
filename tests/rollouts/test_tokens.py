"""Whether what the model saw and sampled is one sequence, turn by turn, and what is told where it is not."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.cli.main import main
from gymdata.rollouts.tokens import BrokenTokens, Joined, check, check_joined, join, latest
from tests.servers.templated import TemplatedServer, encode

IDS = st.integers(0, 999)


def reply(prompt: list[int], sampled: list[int], **more: Any) -> dict[str, Any]:
    ids = {"prompt_token_ids": prompt, "generation_token_ids": sampled, "generation_log_probs": [-0.5] * len(sampled)}
    return {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", **ids, **more}


RESULT = {"type": "function_call_output", "call_id": "c", "output": "1"}
WHOLE = [reply([1, 2], [3, 4]), RESULT, reply([1, 2, 3, 4, 5, 6], [7]), RESULT, reply([1, 2, 3, 4, 5, 6, 7, 8], [9, 10])]


def row(*output: dict[str, Any], **params: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "hello", **params}, "response": {"output": [*output]}, "reward": 1.0}


def kinds(*output: dict[str, Any], **params: Any) -> list[tuple[str, int]]:
    return [(fault.kind, fault.turn) for fault in check(row(*output, **params)).faults]


def test_replies_whose_prompts_begin_with_what_came_before_are_one_sequence() -> None:
    checked = check(row(*WHOLE))
    assert not checked.faults and len(checked.turns) == 3 and checked.sampled == 5
    joined = join(checked)
    assert joined.ids == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert joined.loss_mask == [0, 0, 1, 1, 0, 0, 1, 0, 1, 1]
    assert joined.logprobs == [0, 0, -0.5, -0.5, 0, 0, -0.5, 0, -0.5, -0.5]
    assert check_joined(checked, joined) == ""


def test_a_prompt_that_departs_from_what_was_sampled_is_told_with_its_place() -> None:
    (fault,) = check(row(reply([1, 2], [3, 4]), RESULT, reply([1, 2, 3, 99, 5], [6]))).faults
    assert (fault.kind, fault.turn, fault.place, fault.at) == ("diverges", 1, "response.output[2]", 3)
    assert (fault.start, [*fault.expected], [*fault.found]) == (0, [1, 2, 3, 4], [1, 2, 3, 99, 5])
    assert "token 3 of 4, in what was sampled in response.output[0]" in fault.message
    assert (
        "in the prompt of response.output[0]" in check(row(reply([1, 2], [3]), RESULT, reply([1, 9, 3], [6]))).faults[0].message
    )


def test_a_prompt_that_is_shorter_than_what_came_before_diverges_where_it_ends() -> None:
    (fault,) = check(row(reply([1, 2], [3, 4]), RESULT, reply([1, 2, 3], [6]))).faults
    assert fault.at == 3 and "its prompt ends at token 3 of 4" in fault.message


def test_after_a_divergence_the_next_reply_is_compared_with_its_own_predecessor() -> None:
    assert kinds(reply([1], [2]), RESULT, reply([9], [2]), RESULT, reply([9, 2, 3], [4])) == [("diverges", 1)]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"generation_log_probs": None}, "partial_ids"),
        ({"prompt_token_ids": None}, "partial_ids"),
        ({"prompt_token_ids": "1 2"}, "partial_ids"),
        ({"prompt_token_ids": []}, "length_mismatch"),
        ({"generation_log_probs": [-1.0]}, "length_mismatch"),
        ({"generation_log_probs": [-1.0, math.nan]}, "bad_logprob"),
        ({"generation_log_probs": [-1.0, -math.inf]}, "bad_logprob"),
        ({"generation_log_probs": [-1.0, None]}, "bad_logprob"),
        ({"generation_token_ids": [3, "token_id:4"]}, "bad_id"),
        ({"generation_token_ids": [3, -4]}, "bad_id"),
        ({"generation_token_ids": [3, True]}, "bad_id"),
    ],
)
def test_ids_that_are_none_are_told(more: dict[str, Any], kind: str) -> None:
    assert kinds(reply([1, 2], [3, 4], **more)) == [(kind, 0)]


def test_a_reply_without_ids_among_others_that_have_them_is_told_unless_it_is_empty() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "canned"}]}
    empty = {**said, "content": [{"type": "output_text", "text": ""}]}
    user = {"type": "message", "role": "user", "content": "and?"}
    assert kinds(*WHOLE, RESULT, said) == [("missing_ids", 3)]
    assert kinds(said, user, *WHOLE) == [("missing_ids", 0)]
    assert kinds(*WHOLE, RESULT, empty) == []
    assert kinds(said) == kinds() == []


def test_ids_on_the_last_item_of_a_reply_are_those_of_all_its_items() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert kinds(thought, reply([1], [2]), RESULT, thought, reply([1, 2, 3], [4])) == []


def test_earlier_replies_in_the_request_count() -> None:
    history = [reply([1], [2]), RESULT]
    assert kinds(reply([1, 2, 3], [4]), input=history) == []
    (fault,) = check(row(reply([1, 5, 3], [4]), input=history)).faults
    assert "responses_create_params.input[0]" in fault.message


@pytest.mark.parametrize(
    "broken", [{}, {"response": None}, {"response": {"output": "text"}}, {"response": {"output": [None, 1]}}]
)
def test_rows_of_any_shape_can_be_checked(broken: dict[str, Any]) -> None:
    assert check(broken).faults == ()


def test_what_is_broken_is_not_joined() -> None:
    with pytest.raises(BrokenTokens, match="departs from"):
        join(check(row(reply([1], [2]), RESULT, reply([9, 9], [2]))))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"loss_mask": [0, 0, 1, 1, 0, 1, 1, 0, 1, 1]}, "the loss mask is 1 at 5, where the token was not sampled"),
        ({"loss_mask": [0, 0, 1, 0, 0, 0, 1, 0, 1, 1]}, "the loss mask is 0 at 3, where the token was sampled"),
        ({"logprobs": [0.0] * 10}, "at 2 there are token 3"),
        ({"ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, "9 ids, 10 of the loss mask"),
        ({"ids": [1, 2, 3, 4, 5, 9, 7, 8, 9, 10]}, "does not begin with the prompt of response.output[2]"),
    ],
)
def test_a_sequence_is_held_against_its_replies(change: dict[str, Any], told: str) -> None:
    checked = check(row(*WHOLE))
    joined = join(checked)
    parts = {"ids": joined.ids, "loss_mask": joined.loss_mask, "logprobs": joined.logprobs} | change
    assert told in check_joined(checked, Joined(**parts))


def test_the_latest_item_with_ids_is_found_whatever_follows_it() -> None:
    canned = {"type": "message", "role": "assistant", "content": "canned"}
    assert latest([*WHOLE, RESULT, canned]) == 4 and latest([canned]) is None


def save(path: Path, *rows: dict[str, Any] | str) -> Path:
    text = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


BROKEN = row(reply([1, 2], [3, 4]), RESULT, reply([1, 2, 3, 99, 5], [6])) | {"_ng_task_index": 7, "_ng_rollout_index": 2}


def test_the_command_says_which_turn_broke_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save(tmp_path / "r.jsonl.gz", row(*WHOLE), BROKEN, row())
    assert main(["rollouts", "check-tokens", str(file)]) == 1
    out = capsys.readouterr().out
    assert (
        "line 2 (task 7, rollout 2), turn 1, response.output[2]: its prompt departs from what came before at token 3 of 4" in out
    )
    assert "3 rollouts: 1 whole, 1 broken, 1 without token ids; 5 turns, 8 sampled tokens" in out


def test_the_command_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nan = json.dumps(row(reply([1], [2], generation_log_probs=[math.nan])))
    file = save(tmp_path / "r.jsonl", BROKEN, nan, "{torn")
    assert main(["rollouts", "check-tokens", str(file), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [(fault["line"], fault["kind"]) for fault in document["faults"]] == [
        (1, "diverges"),
        (2, "bad_logprob"),
        (3, "unreadable"),
    ]
    assert document["faults"][0]["expected"] == [1, 2, 3, 4] and document["summary"]["broken"] == 2


def test_the_command_is_content_with_whole_rollouts_alone(tmp_path: Path) -> None:
    assert main(["rollouts", "check-tokens", str(save(tmp_path / "whole.jsonl", row(*WHOLE)))]) == 0
    assert main(["rollouts", "check-tokens", str(save(tmp_path / "none.jsonl", row()))]) == 1
    assert main(["rollouts", "check-tokens", str(tmp_path / "missing.jsonl")]) == 2


def test_ids_that_differ_are_shown_as_text_by_a_server_that_knows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = encode("the answer is "), encode("the answer was ")
    file = save(tmp_path / "r.jsonl", row(reply(before, encode("x")), RESULT, reply(after, encode("x"))))
    with TemplatedServer() as server:
        assert main(["rollouts", "check-tokens", str(file), "--model-url", server.url]) == 1
        assert main(["rollouts", "check-tokens", str(file), "--model-url", server.url, "--format", "json"]) == 1
    text, _, document = capsys.readouterr().out.partition('{"file"')
    assert "was " in text
    fault = json.loads('{"file"' + document)["faults"][0]
    assert fault["found_text"].endswith("was ") and fault["expected_text"] == "the answer is x"
    for address in ("http://127.0.0.1:9/v1", "nonsense"):
        assert main(["rollouts", "check-tokens", str(file), "--model-url", address]) == 3
        assert "is that of a vLLM" in capsys.readouterr().err


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(IDS, max_size=6), st.lists(IDS, min_size=1, max_size=6)), min_size=1, max_size=6), st.data())
def test_whole_sequences_have_no_fault_and_a_changed_id_has_its_place(
    parts: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    output, seen = [], [0]
    for told, sampled in parts:
        output += [reply([*seen, *told], sampled), RESULT]
        seen = [*seen, *told, *sampled]
    checked = check(row(*output))
    joined = join(checked)
    assert joined.ids == seen and sum(joined.loss_mask) == checked.sampled and check_joined(checked, joined) == ""
    turn = data.draw(st.integers(0, len(parts) - 1))
    prompt = output[2 * turn]["prompt_token_ids"]
    place = data.draw(st.integers(0, len(prompt) - 1))
    prompt[place] += 1000
    before = len(output[2 * turn - 2]["prompt_token_ids"]) + len(parts[turn - 1][1]) if turn else 0
    found = [(fault.turn, fault.at) for fault in check(row(*output)).faults]
    assert ((turn, place) in found) == (place < before)
    assert all(fault_turn in (turn, turn + 1) for fault_turn, _ in found)


def test_the_text_shows_so_many_and_counts_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save(tmp_path / "r.jsonl", *[BROKEN] * 5)
    assert main(["rollouts", "check-tokens", str(file), "--max-findings", "2"]) == 1
    out = capsys.readouterr().out
    assert out.count("turn 1") == 2 and "… 3 more" in out
