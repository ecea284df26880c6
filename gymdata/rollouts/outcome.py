"""What a profile reads of a response: its usage, how it ended, how many turns it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class Item(msgspec.Struct):
    """What counts of an item of `output`."""

    type: str = "message"
    role: str = "assistant"


class Response(msgspec.Struct):
    """What a profile reads of a response."""

    usage: Any = None
    incomplete_details: Any = None
    status: Any = None
    output: list[Item] = []


class _LooseResponse(Response):
    output: Any = None


_response = msgspec.json.Decoder(Response | None)
_loose = msgspec.json.Decoder(_LooseResponse)


def decode_response(raw: msgspec.Raw | None) -> Response | None:
    """The response of a rollout; None if it is null, missing or no object. Output that is no list of items counts as empty."""
    if raw is None:
        return None
    try:
        return _response.decode(raw)
    except msgspec.ValidationError:
        pass
    try:
        loose = _loose.decode(raw)
    except msgspec.ValidationError:
        return None
    return Response(loose.usage, loose.incomplete_details, loose.status)


def truncation(response: Response) -> str | None:
    """Why a response is incomplete, None if it is complete."""
    details = response.incomplete_details
    if isinstance(details, dict) and isinstance(details.get("reason"), str):
        return details["reason"]
    return "incomplete" if response.status == "incomplete" else None


def count_turns(output: Sequence[Item]) -> tuple[int, int]:
    """How often the model was asked (runs of its own items, between what tools and users said), and its tool calls."""
    turns = calls = 0
    model_spoke = False
    for item in output:
        own = item.role == "assistant" and not item.type.endswith("_output")
        turns += own and not model_spoke
        calls += item.type.endswith("_call")
        model_spoke = own
    return turns, calls
