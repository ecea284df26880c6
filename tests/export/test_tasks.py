"""Tasks for trainers that sample themselves: trl's prompts, verl's columns, the rows and message logs of NeMo-RL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymdata.errors import UsageError
from gymdata.export.export import export
from gymdata.export.options import Options
from tests.export.cases import WITH_TOKENS, WITH_TOOLS, call, exported, result, rollout, sampled, save, text

HISTORY = [
    {"role": "user", "content": "Weather?"},
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Look."}]},
    call("weather", '{"city": "Oslo"}'),
    result("snow"),
    {"role": "user", "content": "And tomorrow?"},
]


def test_a_task_is_what_all_its_rollouts_echo(tmp_path: Path) -> None:
    rows = [rollout(0, n, float(n), expected_answer="4", extracted_answer=str(n)) for n in range(2)]
    [row], _ = exported(tmp_path, "nemo-rl", *rows)
    assert row == {
        "responses_create_params": rows[0]["responses_create_params"],
        "agent_ref": {"type": "responses_api_agents", "name": "math"},
        "expected_answer": "4",
    }


def test_a_task_needs_no_answer(tmp_path: Path) -> None:
    rows = [
        {key: value for key, value in rollout(n).items() if key in ("responses_create_params", "agent_ref")} for n in range(2)
    ]
    records, _ = exported(tmp_path, "nemo-rl", *rows, rollout(7) | {"response": None, "reward": None})
    assert len(records) == 3


def test_rows_with_the_same_request_and_other_answers_are_other_tasks(tmp_path: Path) -> None:
    rows = [{"responses_create_params": {"input": "?"}, "agent_ref": {"name": "a"}, "expected_answer": answer} for answer in "xy"]
    records, _ = exported(tmp_path, "nemo-rl", *rows)
    assert [record["expected_answer"] for record in records] == ["x", "y"]


def test_rows_of_no_agent_are_refused_by_nemo_rl(tmp_path: Path) -> None:
    rows = [rollout(0), {key: value for key, value in rollout(1).items() if key != "agent_ref"}]
    _, found = exported(tmp_path, "nemo-rl", *rows)
    assert found.removed == {"without an agent_ref": 1}
    records, _ = exported(tmp_path, "nemo-rl", *rows, agent="mine")
    assert [record["agent_ref"]["name"] for record in records] == ["math", "mine"]


def test_a_message_log_adds_the_ids_of_each_turn(tmp_path: Path) -> None:
    [record], _ = exported(tmp_path, "nemo-rl", WITH_TOKENS, tokens=True)
    assert [(message["role"], message["token_ids"]) for message in record["message_log"]] == [
        ("user", [1, 2, 3]), ("assistant", [4, 5]), ("user", [6]), ("assistant", [7, 8]),
    ]  # fmt: skip
    assert record["message_log"][1]["generation_logprobs"] == [-0.5, -0.5]


def test_preferences_of_nemo_rl_are_ranked(tmp_path: Path) -> None:
    [record], _ = exported(tmp_path, "nemo-rl-preference", rollout(0, 0, 0.0), rollout(0, 1, 1.0))
    assert record["context"] == [{"role": "user", "content": "Question 0"}]
    assert [(one["rank"], one["completion"][0]["content"]) for one in record["completions"]] == [(0, "answer 1"), (1, "answer 0")]


def test_trl_gets_the_prompt_and_what_the_verifier_is_given(tmp_path: Path) -> None:
    row = WITH_TOOLS | {"expected_answer": "snow", "prompt": "the row's own"}
    [record], _ = exported(tmp_path, "trl", row)
    assert [message["role"] for message in record["prompt"]] == ["system", "user"]
    assert (record["expected_answer"], record["row_prompt"]) == ("snow", "the row's own")
    assert record["tools"][0]["function"]["name"] == "weather"


def verl(folder: Path, *rows: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The records of both files, which are the same but for keys that are null."""
    import pyarrow.parquet as pq

    records, _ = exported(folder, "verl", *rows, **options)
    export([folder / "rollouts.jsonl"], "verl", folder / "out.parquet", Options(**options))
    table = pq.read_table(folder / "out.parquet")
    assert not any(str(field.type).startswith("extension") for field in table.schema)
    assert _without_nulls(table.to_pylist()) == _without_nulls(records)
    return records


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def test_verl_keeps_the_types_of_items_beside_its_prompt(tmp_path: Path) -> None:
    row = rollout(params={"input": HISTORY, "temperature": 0.5}, expected_answer={"sky": 1})
    [record] = verl(tmp_path, row)
    assert [message["role"] for message in record["prompt"]] == ["user", "assistant", "tool", "user"]
    assert json.loads(record["extra_info"]["responses_create_params"]) == row["responses_create_params"]
    assert json.loads(record["extra_info"]["agent_ref"]) == row["agent_ref"]
    assert record["reward_model"] == {"style": "rule", "ground_truth": '{"sky": 1}'}
    assert record["data_source"] == "math"


def test_rows_of_different_shapes_share_verls_columns(tmp_path: Path) -> None:
    assert len(verl(tmp_path, rollout(0, params={"input": HISTORY}), rollout(1), WITH_TOOLS | {"_ng_task_index": 2})) == 3


@pytest.mark.parametrize(("longest", "asked", "budget"), [(10, None, 7), (10, 4, 4), (3, None, 0), (1, 5, 0)])
def test_the_response_budget_is_what_the_prompt_leaves_and_never_below_nothing(
    tmp_path: Path, longest: int, asked: int | None, budget: int
) -> None:
    row = rollout(params={"max_output_tokens": asked}, output=[text("x", **sampled([1, 2, 3], [4]))])
    [record] = verl(tmp_path, row, max_model_len=longest)
    assert record["extra_info"]["response_budget"] == budget


def test_a_prompt_that_nobody_counted_has_no_budget(tmp_path: Path) -> None:
    [record] = verl(tmp_path, rollout(), max_model_len=10)
    assert record["extra_info"]["response_budget"] is None


def test_nothing_in_a_record_is_an_address_that_the_row_does_not_have(tmp_path: Path) -> None:
    for to in ("verl", "nemo-rl", "trl"):
        records, _ = exported(tmp_path, to, rollout())
        assert "http" not in json.dumps(records) and "127.0.0.1" not in json.dumps(records)


def test_options_that_mean_nothing_to_a_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--margin means nothing to verl"):
        export([save(tmp_path / "r.jsonl", rollout())], "verl", tmp_path / "o.jsonl", Options(margin=0.5))
