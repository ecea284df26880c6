"""A trajectory as people see it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gymdata.errors import UsageError
from gymdata.rollouts.viewer import FOLDED_LINES, Renderer, Wanted, page, trajectories

OUTPUT = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I must look it up."}]},
    {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Paris"}', "call_id": "c"},
    {"type": "function_call_output", "call_id": "c", "output": '{"sky": "clear"}'},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is clear."}]},
]
ROW: dict[str, Any] = {
    "responses_create_params": {
        "instructions": "Answer briefly.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}, {"type": "input_image", "image_url": "u"}]}
        ],
        "tools": [{"type": "function", "name": "get_weather"}],
    },
    "response": {"model": "small", "output": OUTPUT, "usage": {"input_tokens": 7, "output_tokens": 9}},
    "reward": 1.0,
    "expected_answer": "clear",
    "extracted_answer": "clear",
    "reason": "the answers are equal",
    "agent_ref": {"type": "responses_api_agents", "name": "weather_agent"},
    "_ng_task_index": 3,
    "_ng_rollout_index": 1,
}


def shown(row: dict[str, Any], **options: Any) -> str:
    return Renderer(**options).render(1, row)


def save(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_everything_is_shown_in_the_order_in_which_it_happened() -> None:
    text = shown(ROW)
    parts = ["task 3", "rollout 1", "weather_agent", "small", "7 tokens in, 9 out", "reward 1", "Answer briefly.", "Weather?", "[input_image]",
             "I must look it up.", "calls get_weather", '"city": "Paris"', '"sky": "clear"', "It is clear.", "verdict",
             "extracted_answer", "expected_answer", "the answers are equal"]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_long_text_is_folded_unless_all_is_asked_for() -> None:
    row = ROW | {"reason": "\n".join(f"step {number}" for number in range(50))}
    assert f"… {50 - FOLDED_LINES} more lines" in shown(row) and "step 49" not in shown(row)
    assert "step 49" in shown(row, full=True)


def test_what_a_model_wrote_cannot_steer_the_terminal() -> None:
    attack = "\x1b[2J\x1b]0;title\x07 \u202egnp.exe \x9b31m \x00"
    row = ROW | {"reason": attack, "response": {"output": [{"type": attack, "name": attack}], "model": attack}}
    text = shown(row, color=False)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "\\x1b[2J" in text


def test_a_failure_says_what_failed() -> None:
    failure = {key: value for key, value in ROW.items() if key not in ("response", "reward")}
    text = shown(failure | {"_ng_failure_class": "agent_request_failed", "_ng_failure_message": "no reply"})
    assert "no reward" in text and "no response" in text and "agent_request_failed" in text and "no reply" in text


def test_colours_are_codes_around_the_same_text() -> None:
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown(ROW, color=True)) == shown(ROW)


@pytest.mark.parametrize(
    "changes",
    [
        {"response": None, "reward": None},
        {"response": {"output": "text"}, "reward": "1"},
        {"response": {"output": [1, None, {"type": "message"}, {"type": "reasoning", "encrypted_content": "x"}]}},
        {"responses_create_params": {"input": "just a string"}},
        {"responses_create_params": 3, "agent_ref": None},
    ],
)
def test_rows_with_parts_missing_are_shown_too(changes: dict[str, Any]) -> None:
    text = shown(ROW | changes)
    assert "verdict" in text
    assert ("no reward" in text) == (not isinstance((ROW | changes)["reward"], float))


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (Wanted(), [1, 2, 4]),
        (Wanted(min_reward=0.5), [1]),
        (Wanted(max_reward=0.5), [2]),
        (Wanted(environment="other_agent"), [2]),
        (Wanted(environment="weather_server"), [4]),
        (Wanted(task=3, rollout=1), [1, 4]),
        (Wanted(truncated=True), [2]),
    ],
)
def test_filters(tmp_path: Path, wanted: Wanted, lines: list[int]) -> None:
    other = ROW | {"reward": 0.0, "agent_ref": {"name": "other_agent"}, "_ng_task_index": 5}
    other["response"] = {"incomplete_details": {"reason": "max_output_tokens"}}
    path = save(tmp_path / "run.jsonl", [ROW, other, "", ROW | {"reward": None, "_ng_environment_server": "weather_server"}])
    assert [number for number, _ in trajectories(path, wanted)] == lines


def test_a_line_that_is_no_row_is_named_in_its_place(tmp_path: Path) -> None:
    path = save(tmp_path / "run.jsonl", [ROW, '{"torn', "[1]"])
    found = [Renderer().render(number, row) for number, row in trajectories(path)]
    assert found[1].startswith("line 2: not JSON") and found[2] == "line 3: no object\n"


def test_compressed_files_are_read_and_damaged_ones_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    data = gzip.compress(json.dumps(ROW).encode() + b"\n")
    path.write_bytes(data)
    assert [number for number, _ in trajectories(path)] == [1]
    path.write_bytes(data[:-4])
    assert "damaged" in str([*trajectories(path)][-1][1])
    with pytest.raises(UsageError, match="no such file"):
        next(trajectories(tmp_path / "absent.jsonl"))


def test_without_a_terminal_there_is_no_pager(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PAGER", "false")
    page(["one\n", "two\n"])
    assert capsys.readouterr().out == "one\ntwo\n"


def test_on_a_terminal_the_pager_shows_it_and_may_be_left_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    target = tmp_path / "paged"
    monkeypatch.setenv("PAGER", f"tee {target}")
    page(["one\n", "two\n"])
    assert target.read_text() == "one\ntwo\n"
    monkeypatch.setenv("PAGER", "true")
    page(f"{number}\n" * 1000 for number in range(1000))
