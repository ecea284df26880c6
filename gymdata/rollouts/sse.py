"""A chat completion told as a stream, for clients that ask for one: it is made as a whole, so its stream is one piece and an end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


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
