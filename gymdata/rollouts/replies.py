"""Reads what model servers say besides chat completions: which models they have, Responses, errors, when to come back."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

import msgspec

from gymdata.rollouts.chat_reply import MalformedReply, Turn


class Card(msgspec.Struct):
    """A model of a server."""

    id: str
    max_model_len: int | None = None


class Models(msgspec.Struct):
    """The reply of /v1/models."""

    data: list[Card]


class _Error(msgspec.Struct):
    message: str = ""
    code: str | int | None = None
    type: str | None = None


class _ErrorReply(msgspec.Struct):
    error: _Error | str | None = None
    message: str = ""
    detail: Any = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    output: list[dict[str, Any]]
    status: str | None = "completed"
    incomplete_details: _Incomplete | None = None
    usage: dict[str, Any] | None = None


def from_response(data: bytes) -> Turn:
    try:
        reply = msgspec.json.decode(data, type=_Response)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedReply(f"not a response: {error}") from error
    if reply.status not in ("completed", "incomplete", None) or any(
        not isinstance(item.get("type"), str) for item in reply.output
    ):
        raise MalformedReply(f"a response with the status {reply.status!r}")
    reason = reply.incomplete_details and reply.incomplete_details.reason
    stopped = "stop" if reply.status != "incomplete" else reason if reason == "content_filter" else "max_output_tokens"
    return Turn(reply.output, stopped, reply.usage)


def told(data: bytes) -> tuple[str, str]:
    """The message and the code of an error reply, whoever sent it."""
    try:
        reply = msgspec.json.decode(data, type=_ErrorReply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return data[:300].decode("utf-8", "replace").strip() or "no message", ""
    if isinstance(reply.error, _Error):
        return reply.error.message or "no message", str(reply.error.code or reply.error.type or "")
    return str(reply.error or reply.message or reply.detail or "no message"), ""


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait: a number or a date; 0 if it does not say, 5 minutes at most."""
    text = headers.get("Retry-After", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time()
        except ValueError:
            return 0.0
    return min(300.0, max(0.0, seconds)) if seconds == seconds else 0.0
