"""A rollout as chat messages that templates take: the request, the answer and the tools, by the translation that also asks models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gymdata.rollouts import chat
from gymdata.rollouts.chat import Inexpressible

Reasoning = Literal["tags", "field", "drop"]
"""What becomes of thoughts: `<think>` tags in the text, the field `reasoning_content`, or nothing."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Chat messages: what the model was asked and what followed, tools and users' replies included. `tools` is None without any.

    `template_kwargs` are what the row asks of the chat template.
    """

    prompt: list[dict[str, Any]]
    completion: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    template_kwargs: dict[str, Any]


def conversation(row: Mapping[str, Any], reasoning: Reasoning = "tags") -> Conversation:
    """The conversation of a row; without a response the completion is empty. Raises Inexpressible.

    Contents are texts, never null; arguments of calls are objects where they are JSON objects, and the text that was sampled
    where they are not; results carry the name of their tool.
    """
    params, response = row["responses_create_params"], row.get("response") or {}
    try:
        prompt = messages(params.get("input") or [], reasoning, params.get("instructions"))
        completion = messages(response.get("output") or [], reasoning)
        tools = chat.functions(params.get("tools") or [])
        kwargs = chat.template_kwargs(params)
        name_results(prompt + completion)
    except (AttributeError, KeyError, TypeError) as error:
        raise Inexpressible("responses_create_params or response", f"an item that is none ({error!r})") from error
    return Conversation(prompt, completion, tools or None, kwargs)


def name_results(messages: Sequence[dict[str, Any]]) -> None:
    """Give each result the name of the tool that was called, where the call is among the messages."""
    names = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls", ())}
    for message in messages:
        if message["role"] == "tool" and message["tool_call_id"] in names:
            message["name"] = names[message["tool_call_id"]]


def messages(
    items: str | Sequence[Mapping[str, Any]], reasoning: Reasoning = "tags", instructions: str | None = None, parsed: bool = True
) -> list[dict[str, Any]]:
    """Items as messages of texts; unless `parsed`, arguments of calls stay the text that was sampled. Raises Inexpressible."""
    if reasoning == "drop" and not isinstance(items, str):
        items = [item for item in items if item.get("type") != "reasoning"]
    built = chat.messages(items, instructions, "field" if reasoning == "field" else "tags")
    return [_ready(message, f"message {number}", parsed) for number, message in enumerate(built)]


def _ready(message: dict[str, Any], place: str, parsed: bool) -> dict[str, Any]:
    # Pieces of what a model said stood together; parts of others are shown to models a line each, as vLLM does.
    content = message["content"]
    if not isinstance(content, str):
        content = ("" if message["role"] == "assistant" else "\n").join(_texts(content or (), place))
    ready: dict[str, Any] = {"role": message["role"], "content": content}
    if "reasoning_content" in message:
        ready["reasoning_content"] = message["reasoning_content"]
    if "tool_calls" in message:
        ready["tool_calls"] = [_call(call, place, parsed) for call in message["tool_calls"]]
    if "tool_call_id" in message:
        ready["tool_call_id"] = _text(message["tool_call_id"], f"{place}: the id of a call")
    return ready


def _texts(parts: Iterable[Mapping[str, Any]], place: str) -> list[str]:
    texts = []
    for part in parts:
        if part["type"] not in ("text", "refusal"):
            raise Inexpressible(place, f"a part of the type {part['type']!r}: only texts are exported")
        texts.append(_text(part[part["type"]], place))
    return texts


def _call(call: Mapping[str, Any], place: str, parsed: bool) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, dict):
        arguments = msgspec.json.encode(arguments).decode()
    sampled = _text(arguments, f"{place}: the arguments of a call")
    made: dict[str, Any] = {"name": _text(function["name"], f"{place}: the name of a tool"), "arguments": sampled}
    if parsed:
        try:
            value = msgspec.json.decode(sampled)
        except (msgspec.DecodeError, UnicodeError):
            value = None
        made["arguments"] = value if isinstance(value, dict) else sampled
    return {"id": _text(call["id"], f"{place}: the id of a call"), "type": "function", "function": made}


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise Inexpressible(place, f"{value!r} is no text")
    return value
