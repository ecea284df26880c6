"""Responses <-> Chat Completions: nothing lost, or an error that names it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.rollouts.chat import Inexpressible, messages, to_chat
from gymdata.rollouts.chat_reply import MalformedReply, assistant_items, from_chat, split_thoughts, to_items
from gymdata.rows.schema import rollout_row


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}


def thought(*texts: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text} for text in texts]}


def call(name: str, call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "name": name, "call_id": call_id, "arguments": arguments}


def result(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def reply(message: dict[str, Any], finish: str = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **more.pop("choice", {})}
    return json.dumps({"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice], **more}).encode()


def kinds(items: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """What items say, in order, in the fewest words."""
    told: list[tuple[str, Any]] = []
    for item in items:
        if item["type"] == "reasoning":
            told += [("thought", part["text"]) for part in item["summary"]]
        elif item["type"] == "function_call":
            told.append(("call", (item["name"], item["arguments"])))
        else:
            told += [("text", part["refusal"] if part["type"] == "refusal" else part["text"]) for part in item["content"]]
    return told


# the request


def test_a_string_is_one_user_message():
    assert messages("2+2?") == [user("2+2?")]


def test_instructions_and_leading_system_messages_become_one():
    items = [{"role": "system", "content": "B"}, {"role": "developer", "content": "C"}, user("D")]
    assert messages(items, "A") == [{"role": "system", "content": "A\n\nB\n\nC"}, user("D")]


def test_a_later_developer_message_is_a_system_message_in_its_place():
    items = [user("A"), {"type": "message", "role": "developer", "content": "B"}]
    assert messages(items) == [user("A"), {"role": "system", "content": "B"}]


def test_what_a_model_said_in_one_turn_is_one_message():
    items = [
        user("?"),
        thought("hm"),
        said("Let me look."),
        call("look", "c1"),
        call("listen", "c2"),
        result("c1", "x"),
        result("c2", "y"),
    ]
    _, assistant, first, second = messages(items)
    assert assistant["content"] == "<think>hm</think>Let me look."
    assert [one["id"] for one in assistant["tool_calls"]] == ["c1", "c2"]
    assert (first, second) == (
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        {"role": "tool", "tool_call_id": "c2", "content": "y"},
    )


def test_consecutive_assistant_texts_stay_apart():
    (message,) = messages([said("A"), said("B")])
    assert message["content"] == [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]


def test_every_thought_is_sent_in_its_place():
    items = [thought("a", "b"), said("x"), thought("c"), said("y")]
    assert messages(items)[0]["content"] == [
        {"type": "text", "text": "<think>a</think><think>b</think>x"},
        {"type": "text", "text": "<think>c</think>y"},
    ]
    first, second = messages(items, style="field")
    assert (first["reasoning"], first["content"]) == ("a\n\nb", "x")
    assert (second["reasoning_content"], second["content"]) == ("c", "y")


def test_the_text_of_reasoning_comes_before_its_summary():
    item = {**thought("short"), "content": [{"type": "reasoning_text", "text": "long"}]}
    assert messages([item, said("x")], style="field")[0]["reasoning"] == "long"


def test_an_image_keeps_url_and_detail():
    content = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
    ]
    (message,) = messages([{"role": "user", "content": content}])
    assert message["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}}


def test_settings_have_their_chat_names():
    schema = {"type": "object", "properties": {}}
    tool = {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": True}
    body = to_chat(
        {
            "input": "x",
            "max_output_tokens": 7,
            "temperature": 0.5,
            "top_logprobs": 0,
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "s", "schema": schema, "strict": True}, "verbosity": "low"},
            "tools": [tool],
            "tool_choice": {"type": "function", "name": "f"},
            "parallel_tool_calls": False,
            "metadata": {
                "extra_body": '{"top_k": 3, "temperature": 9}',
                "chat_template_kwargs": '{"thinking": false}',
                "note": "mine",
            },
        }
    )
    assert body == {
        "messages": [user("x")],
        "max_tokens": 7,
        "temperature": 0.5,
        "top_logprobs": 0,
        "logprobs": True,
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}},
        "verbosity": "low",
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": schema, "strict": True}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "top_k": 3,
        "chat_template_kwargs": {"thinking": False},
    }


def test_without_tools_nothing_is_said_of_them():
    assert to_chat({"input": "x", "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}) == {"messages": [user("x")]}


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"input": [{"type": "web_search_call", "id": "w"}]}, "input[0]"),
        ({"input": [user("a"), {"type": "item_reference", "id": "w"}]}, "input[1]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}]}, "input[0]"),
        ({"input": [thought("a</think>b")]}, "input[0]"),
        ({"input": "x", "previous_response_id": "r"}, "previous_response_id"),
        ({"input": "x", "max_tool_calls": 2}, "max_tool_calls"),
        ({"input": "x", "truncation": "auto"}, "truncation"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "include": ["reasoning.encrypted_content"]}, "include"),
        ({"input": "x", "reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"input": "x", "text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"input": "x", "tool_choice": "required"}, "tool_choice"),
        ({"input": "x", "metadata": {"extra_body": "{"}}, "metadata.extra_body"),
    ],
)
def test_what_cannot_be_said_is_named(params: dict[str, Any], place: str):
    with pytest.raises(Inexpressible) as error:
        to_chat(params)
    assert error.value.place == place


# the reply


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("4", [(False, "4")]),
        ("<think>a</think>4", [(True, "a"), (False, "4")]),
        ("<think>a</think>b<think>c</think>d", [(True, "a"), (False, "b"), (True, "c"), (False, "d")]),
        ("<think>a</think>\n<think>b</think>\n\n4", [(True, "a"), (True, "b"), (False, "\n\n4")]),
        ("<think>never closed \\boxed{4}", [(True, "never closed \\boxed{4}")]),
        ("opened by the template</think>4", [(True, "opened by the template"), (False, "4")]),
        ("a</think>b<think>c", [(True, "a"), (False, "b"), (True, "c")]),
        ("<think>\n\n</think>\n\n4", [(False, "\n\n4")]),
        ("", [(False, "")]),
        ("<think></think>", []),
    ],
)
def test_thoughts_are_told_from_text(text: str, pieces: list[tuple[bool, str]]):
    assert split_thoughts(text) == pieces


def test_the_servers_own_reasoning_leaves_the_text_alone():
    turn = from_chat(reply({"content": "say <think> twice", "reasoning": "hm"}))
    assert kinds(turn.items) == [("thought", "hm"), ("text", "say <think> twice")]
    assert turn.reasoning_by_field


def test_parallel_calls_are_items_in_order():
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "", "type": "function", "function": {"name": "g", "arguments": {"b": "é"}}},
    ]
    first, second = from_chat(reply({"content": None, "tool_calls": calls}, "tool_calls")).items
    assert (first["call_id"], first["name"], first["arguments"]) == ("c1", "f", '{"a": 1}')
    assert (bool(second["call_id"]), second["arguments"]) == (True, '{"b": "é"}')


def test_token_ids_go_to_the_last_item_or_nowhere():
    scores = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}, {"token": "b", "logprob": -1.0}]}
    whole = reply({"content": "<think>x</think>ab"}, prompt_token_ids=[1, 2], choice={"token_ids": [3, 4], "logprobs": scores})
    first, last = from_chat(whole).items
    assert "prompt_token_ids" not in first
    assert (last["prompt_token_ids"], last["generation_token_ids"], last["generation_log_probs"]) == (
        [1, 2],
        [3, 4],
        [-0.5, -1.0],
    )
    with pytest.raises(MalformedReply, match="2 log probabilities"):
        from_chat(reply({"content": "ab"}, prompt_token_ids=[1], choice={"token_ids": [3, 4, 5], "logprobs": scores}))
    with pytest.raises(MalformedReply, match="0 log probabilities"):
        from_chat(reply({"content": "ab"}, prompt_token_ids=[1], choice={"token_ids": [3]}))


@pytest.mark.parametrize(
    ("finish", "stopped", "status"),
    [("length", "max_output_tokens", "incomplete"), ("content_filter", "content_filter", "incomplete")],
)
def test_an_answer_that_was_cut_is_incomplete(finish: str, stopped: str, status: str):
    turn = from_chat(reply({"content": "so the ans"}, finish))
    assert (turn.stopped, turn.items[-1]["status"]) == (stopped, status)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b'{"error": "x"}', b"<html>", reply({"content": "x"}, "abort")])
def test_what_is_no_answer_is_no_empty_answer(body: bytes):
    with pytest.raises(MalformedReply):
        from_chat(body)


def test_an_empty_answer_is_an_empty_message():
    assert kinds(from_chat(reply({"content": None})).items) == [("text", "")]


def test_usage_has_the_names_of_responses():
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": None,
    }
    assert from_chat(reply({"content": "x"}, usage=usage)).usage == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 8,
    }


def test_items_are_what_nemo_gym_accepts_in_a_rollout_row():
    calls = [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]
    scores = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}
    body = reply(
        {"content": "<think>a</think>b", "refusal": "no", "tool_calls": calls},
        prompt_token_ids=[1],
        choice={"token_ids": [2], "logprobs": scores},
    )
    response = {
        "id": "r", "created_at": 1.0, "model": "m", "object": "response", "output": from_chat(body, keep_logprobs=True).items,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    rollout_row().validate_python({"responses_create_params": {"input": "x"}, "response": response, "reward": 0.0})


# laws

words = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).filter(
    lambda text: text.strip() and "think>" not in text
)
names = st.sampled_from(["look", "add"])
an_item = st.one_of(
    words.map(user),
    words.map(said),
    st.lists(words, min_size=1, max_size=3).map(lambda texts: thought(*texts)),
    st.tuples(names, words, words).map(lambda drawn: call(*drawn)),
    st.tuples(words, words).map(lambda drawn: result(*drawn)),
    words.map(lambda text: {"role": "developer", "content": text}),
    words.map(
        lambda text: {"role": "user", "content": [{"type": "input_text", "text": text}, {"type": "input_text", "text": "!"}]}
    ),
    words.map(lambda url: {"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "high"}]}),
)


def meaning(items: list[dict[str, Any]], style: str) -> list[tuple[Any, ...]]:
    """What a conversation says: who, what, in order; texts of parts one by one; leading system texts as one."""
    told: list[tuple[Any, ...]] = []
    for item in items:
        kind, role = item.get("type", "message"), item.get("role")
        if kind == "reasoning":
            for part in item["summary"]:
                if style == "field" and told and told[-1][0] == "thought":
                    told[-1] = ("thought", told[-1][1] + "\n\n" + part["text"])
                else:
                    told.append(("thought", part["text"]))
        elif kind == "function_call":
            told.append(("call", item["call_id"], item["name"], item["arguments"]))
        elif kind == "function_call_output":
            told.append(("result", item["call_id"], item["output"]))
        else:
            role = "system" if role == "developer" else role
            parts = item["content"] if isinstance(item["content"], list) else [{"text": item["content"]}]
            for part in parts:
                text = part.get("text") or part.get("image_url")
                if role == "system" and told and all(one[0] == "system" for one in told):
                    told[-1] = ("system", told[-1][1] + "\n\n" + text)
                else:
                    told.append((role, text))
    return told


@given(st.lists(an_item, max_size=10), st.sampled_from(["tags", "field"]))
def test_there_and_back_a_conversation_means_the_same(items: list[dict[str, Any]], style: Any):
    assert meaning(to_items(messages(items, style=style)), style) == meaning(items, style)


@given(st.lists(an_item, max_size=10), st.sampled_from(["tags", "field"]))
def test_a_second_trip_changes_nothing(items: list[dict[str, Any]], style: Any):
    once = messages(items, style=style)
    assert messages(to_items(once), style=style) == once


@given(st.lists(st.sampled_from(["<think>", "</think>", "A", "B", "\n", " "]), max_size=12).map("".join))
def test_no_word_of_a_model_is_lost(text: str):
    def said(text: str) -> list[str]:
        return [letter for letter in text if letter in "AB"]

    assert said("".join(piece for _, piece in split_thoughts(text))) == said(text)


@given(st.lists(st.tuples(st.booleans(), words), min_size=1, max_size=6))
def test_a_models_own_turn_survives_being_shown_to_it(pieces: list[tuple[bool, str]]):
    text = "".join(f"<think>{piece}</think>" if thinking else piece for thinking, piece in pieces)
    items = assistant_items({"content": text})
    again = to_items(messages(items))
    assert kinds(again) == kinds(items)
