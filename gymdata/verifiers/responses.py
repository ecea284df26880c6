"""Reads what verifiers need from a Responses object, and builds the responses that a gold answer stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gymdata.verifiers import Response, VerifierFailure


def items(response: Response) -> list[Mapping[str, Any]]:
    """The output items. Raises VerifierFailure if the response has none to read, as rows with `response: null`."""
    output = response.get("output") if isinstance(response, Mapping) else None
    if not isinstance(output, list):
        raise VerifierFailure("the rollout has no response with an `output`")
    return [item for item in output if isinstance(item, Mapping)]


def output_text(response: Response) -> str:
    """The text of all messages, one after the other."""
    return whole_text(
        "".join(
            part["text"]
            for item in items(response)
            if item.get("type", "message") == "message"
            for part in _parts(item)
            if part.get("type") == "output_text" and isinstance(part.get("text"), str)
        )
    )


def whole_text(text: str) -> str:
    """A text that UTF-8 can hold: JSON may hold halves of surrogate pairs, which become question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def function_calls(response: Response) -> list[Mapping[str, Any]]:
    """The function calls, in order."""
    return [item for item in items(response) if item.get("type") == "function_call"]


def last_boxed(text: str) -> str | None:
    r"""What stands in the last complete `\boxed{…}`, braces balanced; None if the last one is not closed or there is none."""
    start = text.rfind("\\boxed{")
    return None if start < 0 else _closed(text, start + len("\\boxed{"))


def boxes(text: str, limit: int) -> list[str]:
    r"""The contents of the last `limit` complete `\boxed{…}`, in the order of the text; those inside another do not count."""
    found: list[str] = []
    end = len(text)
    while len(found) < limit and (start := text.rfind("\\boxed{", 0, end)) >= 0:
        inner = _closed(text[:end], start + len("\\boxed{"))
        if inner is None:
            break
        found.append(inner)
        end = start
    return found[::-1]


def message(text: str) -> dict[str, Any]:
    """A response of one message."""
    return {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}


def calls(*named: tuple[str, Any]) -> dict[str, Any]:
    """A response of function calls, given as (name, arguments)."""
    return {
        "output": [
            {"type": "function_call", "call_id": f"call_{number}", "name": name, "arguments": json.dumps(arguments)}
            for number, (name, arguments) in enumerate(named)
        ]
    }


def _parts(item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        yield {"type": "output_text", "text": content}
    elif isinstance(content, list):
        yield from (part for part in content if isinstance(part, Mapping))


def _closed(text: str, start: int) -> str | None:
    """The text from `start` to the brace that closes what was opened before it."""
    depth, at = 1, start
    while depth:
        closing = text.find("}", at)
        if closing < 0:
            return None
        depth += text.count("{", at, closing) - 1
        at = closing + 1
    return text[start : at - 1]
