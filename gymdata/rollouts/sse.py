"""Replies told as streams, for clients that ask for them: they are made as a whole, so every text of a stream is one piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gymdata.rollouts.tokens import TOKEN_IDS


def chat_events(reply: Mapping[str, Any], with_usage: bool) -> bytes:
    """The server-sent events of a chat completion with one choice; with its usage, as `stream_options.include_usage` asks."""
    choice = reply["choices"][0]
    calls = [{"index": number, **call} for number, call in enumerate(choice["message"].get("tool_calls") or ())]
    delta = {key: value for key, value in choice["message"].items() if key != "tool_calls" and value is not None}
    shared = {key: reply[key] for key in ("id", "created", "model") if key in reply} | {"object": "chat.completion.chunk"}
    said = {"index": 0, "delta": delta | ({"tool_calls": calls} if calls else {}), "logprobs": choice.get("logprobs")}
    chunks: list[dict[str, Any]] = [{"choices": [{**said, "finish_reason": None}]}]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]})
    if with_usage:
        chunks.append({"choices": [], "usage": reply.get("usage")})
    events = [b"data: " + msgspec.json.encode(shared | chunk) + b"\n\n" for chunk in chunks]
    return b"".join(events) + b"data: [DONE]\n\n"


def response_events(reply: Mapping[str, Any]) -> bytes:
    """The server-sent events of a Responses object, in the order in which OpenAI's API tells it."""
    events: list[bytes] = []

    def tell(kind: str, **more: Any) -> None:
        event = {"type": kind, "sequence_number": len(events), **more}
        events.append(b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(event)))

    begun = {**reply, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    tell("response.created", response=begun)
    tell("response.in_progress", response=begun)
    for number, item in enumerate(reply["output"]):
        name, parts = _PARTS.get(item["type"], ("", ""))
        bare = {key: value for key, value in item.items() if key not in TOKEN_IDS}
        empty = {"arguments": ""} if item["type"] == "function_call" else {parts: []} if parts else {}
        tell(
            "response.output_item.added",
            output_index=number,
            item={**bare, **({"status": "in_progress"} if name else {}), **empty},
        )
        at = {"item_id": item.get("id"), "output_index": number}
        if item["type"] == "function_call":
            tell("response.function_call_arguments.delta", **at, delta=item["arguments"])
            tell("response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])
        for place, part in enumerate(item.get(parts) or ()):
            key = "refusal" if part["type"] == "refusal" else "text"
            kind = {"refusal": "refusal", "output_text": "output_text"}.get(part["type"], f"{name}_text")
            here = {**at, "summary_index" if parts == "summary" else "content_index": place}
            scores = {"logprobs": part.get("logprobs") or []} if kind == "output_text" else {}
            tell(f"response.{name}_part.added", **here, part={**part, key: "", **scores})
            tell(f"response.{kind}.delta", **here, delta=part[key], **scores)
            tell(f"response.{kind}.done", **here, **{key: part[key]}, **scores)
            tell(f"response.{name}_part.done", **here, part=part)
        tell("response.output_item.done", output_index=number, item=item)
    tell(f"response.{reply['status']}", response=reply)
    return b"".join(events)


_PARTS = {"message": ("content", "content"), "reasoning": ("reasoning_summary", "summary"), "function_call": ("call", "")}
"""By the type of an item, what events call its parts, and the key that holds these."""
