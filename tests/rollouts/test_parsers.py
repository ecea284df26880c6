"""Calls in the formats that models are trained on, read from their text."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.rollouts.parsers import FORMATS, parse

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "deep": {"type": "object"},
        "note": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    },
}
ASKED = {"tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]}
ONE = {"city": "Paris", "days": 3}
JSON = '{"city": "Paris", "days": 3}'
HERMES = f'<tool_call>\n{{"name": "weather", "arguments": {JSON}}}\n</tool_call>'
CODER = "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
DEEPSEEK = "<｜tool▁call▁begin｜>{}<｜tool▁call▁end｜>"
R1 = DEEPSEEK.format(f"function<｜tool▁sep｜>weather\n```json\n{JSON}\n```")
V31 = DEEPSEEK.format(f"weather<｜tool▁sep｜>{JSON}")


def calls(text: str) -> tuple[str | None, list[tuple[str, Any]]]:
    message = parse(text, ASKED)
    found = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls") or ()]
    return message["content"], found


@pytest.mark.parametrize(
    ("text", "said", "count"),
    [
        (HERMES, None, 1),
        (f"Let me see.\n{HERMES}\n{HERMES}", "Let me see.", 2),
        (f'<tool_call>{{"name": "weather", "arguments": {JSON}}}', None, 1),  # the end was the end of the turn
        (f"<think>\nI could <tool_call> it.\n</think>\n\n{HERMES}", "<think>\nI could <tool_call> it.\n</think>", 1),
        (CODER, None, 1),
        (f"See.\n{CODER}\n{CODER}", "See.", 2),
        (GLM, None, 1),
        (f"See.\n{GLM}\n{GLM}", "See.", 2),
        (
            f'See.<TOOLCALL>[{{"name": "weather", "arguments": {JSON}}}, {{"name": "weather", "arguments": {JSON}}}]</TOOLCALL>',
            "See.",
            2,
        ),
        (f'[TOOL_CALLS][{{"name": "weather", "arguments": {JSON}}}]', None, 1),
        (f'See.[TOOL_CALLS] [{{"name": "weather", "arguments": {JSON}}}, {{"name": "weather", "arguments": {JSON}}}]', "See.", 2),
        (f"[TOOL_CALLS]weather[ARGS]{JSON}", None, 1),
        (f"[TOOL_CALLS]weather{JSON}[TOOL_CALLS]weather[CALL_ID]a1[ARGS]{JSON}", None, 2),
        (f'{{"name": "weather", "parameters": {JSON}}}', None, 1),
        (f'<|python_tag|>{{"name": "weather", "parameters": {JSON}}}; {{"name": "weather", "parameters": {JSON}}}', None, 2),
        (f"<think>hm</think>See.<｜tool▁calls▁begin｜>{R1}\n{R1}<｜tool▁calls▁end｜>", "<think>hm</think>See.", 2),
        (f"<｜tool▁calls▁begin｜>{V31}<｜tool▁calls▁end｜>", None, 1),
    ],
)
def test_calls_are_read_and_what_was_said_before_them_stays(text: str, said: str | None, count: int) -> None:
    assert calls(text) == (said, [("weather", ONE)] * count)


@pytest.mark.parametrize(
    "text",
    [
        "No call at all.",
        "<tool_call>\n{'name': 'weather'}\n</tool_call>",
        '<tool_call>\n{"name": "weather"}\n</tool_call>',
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Par\n</tool_call>',
        f"{HERMES}\n<tool_call>\n",
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis",
        "[TOOL_CALLS]",
        "<TOOLCALL>[weather]</TOOLCALL>",
        f"{GLM}\n<tool_call>weather\n<arg_key>city",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n</tool_call>",
        "[TOOL_CALLS] I would call the weather.",
        '{"name": "Ada", "parameters": {}}',  # an answer in JSON: there is no such tool
        '{"city": "Paris"}',
        '{"name": "weather", "parameters": {}} and more',
        "<｜tool▁calls▁begin｜>weather<｜tool▁calls▁end｜>",
        "<think>\n" + HERMES + "\n</think>\n\nOr not.",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    message = parse(text, ASKED)
    assert message["content"] == text and "tool_calls" not in message


@pytest.mark.parametrize("asked", [{}, {**ASKED, "tool_choice": "none"}])
def test_where_nothing_may_be_called_nothing_is_a_call(asked: dict[str, Any]) -> None:
    assert parse(HERMES, asked) == {"role": "assistant", "content": HERMES}


def test_without_parallel_calls_the_first_one_counts() -> None:
    assert len(parse(f"{HERMES}\n{HERMES}", {**ASKED, "parallel_tool_calls": False})["tool_calls"]) == 1


def test_bare_values_take_the_type_that_the_tool_gives_them() -> None:
    text = '<function=weather><parameter=city>\n12\n</parameter><parameter=days>\n12\n</parameter><parameter=deep>\n{"a": true}\n</parameter></function>'
    assert calls(text)[1] == [("weather", {"city": "12", "days": 12, "deep": {"a": True}})]


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ({"note": "5"}, {"note": "5"}),  # may be null, too
        ({"note": "null"}, {"note": None}),
        ({"other": "5"}, {"other": "5"}),  # not declared
        ({"either": "5"}, {"either": 5}),
    ],
)
@pytest.mark.parametrize("form", ["coder", "glm"])
def test_bare_values_are_what_vllm_takes_them_for(form: str, values: dict[str, str], given: dict[str, Any]) -> None:
    pair = "<parameter={}>\n{}\n</parameter>" if form == "coder" else "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>"
    inner = "\n".join(pair.format(key, value) for key, value in values.items())
    outer = (
        "<tool_call>\n<function=weather>\n{}\n</function>\n</tool_call>"
        if form == "coder"
        else "<tool_call>weather\n{}\n</tool_call>"
    )
    assert calls(outer.format(inner))[1] == [("weather", given)]


def test_a_parameter_that_is_not_closed_ends_where_the_next_begins() -> None:
    text = "<function=weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</parameter>\n</function>"
    assert calls(text)[1] == [("weather", ONE)]


MARKS = [
    "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", ">", "[TOOL_CALLS]", "[ARGS]", "<think>", "</think>",
    "<|python_tag|>", "<TOOLCALL>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "{", "}", '"name"', ":", '"weather"', "weather", "\n",
    "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", HERMES, CODER, GLM, R1, "1" * 5000, "[" * 2000,
]  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=12).map("".join))
def test_any_text_can_be_read_and_calls_are_names_and_json(text: str) -> None:
    message = parse(text, ASKED)
    assert message["content"] == text or message["tool_calls"]
    for call in message.get("tool_calls") or ():
        json.loads(call["function"]["arguments"])


@pytest.mark.parametrize("mark", MARKS)
def test_a_model_that_repeats_itself_does_not_stop_the_others(mark: str) -> None:
    """All requests of a run share one thread: what is read must not take long, however often a mark comes."""
    text = mark * (400_000 // len(mark))
    thread = threading.Thread(target=parse, args=(text, ASKED), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_every_format_is_documented() -> None:
    import gymdata.rollouts.parsers as module

    assert all(name in (module.__doc__ or "") for name in FORMATS)
