"""What is measured of one accepted row: its identity, its texts, its layout.

Both paths of validation describe a row with this one function, so that a fact cannot depend on the path it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import xxhash

STAMPS = frozenset({"agent_ref", "task_source", "_ng_task_index", "_ng_rollout_index", "_ng_rollout_id", "_ng_attempt_index"})
"""Top-level keys that collating and collecting add: no part of what a row says, so no part of its identity."""

ROLLOUT_KEYS = frozenset({"response", "reward"})

encode = msgspec.json.Encoder(order="sorted").encode
"""Canonical JSON: sorted keys, no spaces. Raises UnicodeEncodeError on a lone surrogate."""

_h64 = xxhash.xxh3_64_intdigest
_h128 = xxhash.xxh3_128_digest


class Facts(NamedTuple):
    """One accepted row. Keys are xxh3 digests; the texts are what a model reads of `input` and `instructions`."""

    key: bytes
    """Identity of the task, 16 bytes: all of the row but `STAMPS`."""
    params_key: int
    prompt_key: int
    """Identity of the conversation: roles and texts, however they are spelled (a string, parts, with or without `type`)."""
    user_keys: tuple[int, ...]
    """One per user message."""
    answer_key: int | None
    texts: list[str]
    tool_texts: tuple[bytes, ...]
    """The canonical JSON of each tool."""
    layout: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Per item: type, role, types of its parts."""
    sampling: bytes
    """The canonical JSON of the create-params other than `input` and `tools`."""
    size: int
    """Length in bytes of the canonical JSON of the whole row."""


def describe(row: Mapping[str, Any], request: bytes | None = None, tool_texts: tuple[bytes, ...] | None = None) -> Facts:
    """Facts of a row that the schema accepts. If known already, `request` is the canonical JSON of its `input` and `tool_texts`
    that of each of its tools.
    """
    params = row.get("responses_create_params")
    stamps: dict[str, Any] = {}
    if _NOT_CONTENT.isdisjoint(row):
        extras = dict(row)
    else:
        extras = {key: value for key, value in row.items() if key not in _NOT_CONTENT}
        stamps = {key: value for key, value in row.items() if key in _NOT_CONTENT}
    extras.pop("responses_create_params", None)
    own = encode(extras)
    if params is None:
        return Facts(_h128(own), 0, 0, (), None, [], (), (), b"{}", len(own))
    prompt = params["input"]
    if request is None:
        request = encode(prompt)
    size = len(_FRAME) + len(request)
    texts: list[str] = []
    layout: list[tuple[str, str, tuple[str, ...]]] = []
    conversation: list[tuple[str, int]] = []
    if instructions := params.get("instructions"):
        texts.append(instructions)
        conversation.append(("system", _h64(instructions.encode())))
    if metadata := params.get("metadata"):
        conversation.append(("metadata", _h64(encode(metadata))))
    if type(prompt) is str:
        texts.append(prompt)
        layout.append(_USER_STRING)
        conversation.append(("user", _h64(prompt.encode())))
    else:
        for item in prompt:
            role = item.get("role", "")
            text = item.get("content")
            if type(text) is str:
                layout.append(_PLAIN.get(role) or ("message", role, ("string",)))
                texts.append(text)
            else:
                text = _call_texts(item, texts, layout) or _item_texts(item, texts, layout)
            conversation.append((role, _h64(text.encode())))
    if "tools" in params:
        if tool_texts is None:
            tool_texts = tuple([encode(tool) for tool in params["tools"]])
        tools = b",".join(tool_texts)
        request += tools
        size += len(_TOOLS_FRAME) + len(tools)
    sampling = _EMPTY
    if not params.keys() <= _PROMPT_KEYS:
        sampling = encode({key: value for key, value in params.items() if key not in _PROMPT_KEYS})
        request += sampling
        size += len(sampling) - 1
    if extras:
        size += len(own) - 1
    if stamps:
        size += len(encode(stamps)) - 1
    answer = row.get("expected_answer")
    return Facts(
        _h128(request + own),
        _h64(request),
        _h64(encode(conversation)),
        tuple([key for role, key in conversation if role == "user"]),
        None if answer is None or answer == "" else _h64(_comparable(answer)),
        texts,
        tool_texts or (),
        tuple(layout),
        sampling,
        size,
    )


def _comparable(answer: Any) -> bytes:
    """An expected answer such that 45, "45" and "45.0" are the same."""
    if type(answer) is str and answer[:1] in "-.0123456789":
        try:
            return encode(float(answer))
        except ValueError:
            pass
    return encode(float(answer)) if type(answer) is int and abs(answer) < 2**53 else encode(answer)


_FRAME = b'{"responses_create_params":{"input":}}'
_TOOLS_FRAME = b',"tools":[]'
_EMPTY = b"{}"
_USER_STRING = ("string", "user", ())
_PLAIN = {role: ("message", role, ("string",)) for role in ("user", "assistant", "system", "developer")}
_PROMPT_KEYS = frozenset({"input", "tools"})
_NOT_CONTENT = STAMPS | ROLLOUT_KEYS
_TEXT_KEYS = ("text", "refusal", "name", "arguments", "output")


def _call_texts(item: Mapping[str, Any], texts: list[str], layout: list[tuple[str, str, tuple[str, ...]]]) -> str | None:
    """`_item_texts` of a function call or its output in the usual form; None for any other item."""
    kind = item.get("type")
    if kind == "function_call_output" and item.keys() == _OUTPUT_KEYS:
        text = item["output"]
        if type(text) is str and text:
            texts.append(text)
            layout.append(_OUTPUT)
            return text
    elif kind == "function_call" and item.keys() == _CALL_KEYS:
        name, text = item["name"], item["arguments"]
        if type(name) is str and type(text) is str:
            texts += (name, text)
            layout.append(_CALL)
            return f"{name}\0{text}"
    return None


_OUTPUT = ("function_call_output", "", ())
_OUTPUT_KEYS = frozenset({"type", "call_id", "output"})
_CALL = ("function_call", "", ())
_CALL_KEYS = frozenset({"type", "call_id", "name", "arguments"})


def _item_texts(item: Mapping[str, Any], texts: list[str], layout: list[tuple[str, str, tuple[str, ...]]]) -> str:
    """Collect the texts of an item that is no plain message; returns what tells it from others of its role."""
    own: list[str] = []
    kinds: list[str] = []
    rest: list[str] = []
    own.extend(value for key in _TEXT_KEYS if type(value := item.get(key)) is str)
    for group in (item.get("content"), item.get("summary"), item.get("output")):
        if type(group) is list:
            for part in group:
                if type(part) is dict:
                    kinds.append(part.get("type") or "")
                    said = [value for key in ("text", "refusal") if type(value := part.get(key)) is str]
                    own += said
                    if not said:
                        rest.append(encode(part).decode())
    if not own and not kinds:
        own.append(encode(item).decode())
    texts.extend(own)
    layout.append((item.get("type") or "message", item.get("role") or "", tuple(kinds)))
    return "\0".join(own + rest)
