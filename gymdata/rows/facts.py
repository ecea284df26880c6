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
    turns: int
    tools: int | None
    temperature: float | None
    texts: list[str]
    tool_texts: tuple[bytes, ...]
    """The canonical JSON of each tool."""
    layout: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Per item: type, role, types of its parts."""
    sampling: bytes
    """The canonical JSON of the remaining create-params."""
    size: int
    """Length in bytes of the row's canonical JSON."""


def describe(row: Mapping[str, Any], params: Mapping[str, Any], tool_texts: tuple[bytes, ...] | None = None) -> Facts:
    """Facts of `row`, whose create-params are `params` as the schema read them (coerced, unknown item keys gone).

    `tool_texts`, if given, is the canonical JSON of each tool of `params`.
    """
    prompt = params["input"]
    texts: list[str] = []
    layout: list[tuple[str, str, tuple[str, ...]]] = []
    conversation: list[str] = []
    user_keys: list[int] = []
    turns = 0
    body = encode(prompt)
    if instructions := params.get("instructions"):
        texts.append(instructions)
        conversation.append("system\0" + instructions)
        body += encode(instructions)
    if type(prompt) is str:
        turns = 1
        texts.append(prompt)
        layout.append(_USER_STRING)
        conversation.append("user\0" + prompt)
        user_keys.append(_h64(prompt))
    else:
        for item in prompt:
            role = item.get("role", "")
            content = item.get("content")
            if type(content) is str:
                layout.append(_PLAIN.get(role) or ("message", role, ("string",)))
                text = content
                texts.append(text)
            else:
                text = _item_texts(item, texts, layout)
            conversation.append(f"{role}\0{text}")
            if role == "user":
                turns += 1
                user_keys.append(_h64(text))
    tools = params.get("tools")
    if tool_texts is None:
        tool_texts = tuple([encode(tool) for tool in tools]) if tools else ()
    rest = {key: value for key, value in params.items() if key not in _PROMPT_KEYS}
    sampling = encode(rest) if rest else b"{}"
    extras = {key: value for key, value in row.items() if key not in _NOT_EXTRAS}
    answer = row.get("expected_answer")
    own = encode(extras)
    request = body + b"".join(tool_texts) + sampling
    return Facts(
        key=_h128(request + own),
        params_key=_h64(request),
        prompt_key=_h64("\1".join(conversation)),
        user_keys=tuple(user_keys),
        answer_key=None if answer is None else _h64(encode(answer)),
        turns=turns,
        tools=None if tools is None else len(tools),
        temperature=params.get("temperature"),
        texts=texts,
        tool_texts=tool_texts,
        layout=tuple(layout),
        sampling=sampling,
        size=len(request) + len(own),
    )


_USER_STRING = ("string", "user", ())
_PLAIN = {role: ("message", role, ("string",)) for role in ("user", "assistant", "system", "developer")}
_PROMPT_KEYS = frozenset({"input", "tools", "instructions"})
_NOT_EXTRAS = STAMPS | ROLLOUT_KEYS | {"responses_create_params"}
_TEXT_KEYS = ("text", "refusal", "name", "arguments", "output")


def _item_texts(item: Mapping[str, Any], texts: list[str], layout: list[tuple[str, str, tuple[str, ...]]]) -> str:
    """Collect the texts of an item that is no plain message; returns them joined."""
    own: list[str] = []
    kinds: list[str] = []
    own.extend(value for key in _TEXT_KEYS if type(value := item.get(key)) is str)
    for group in (item.get("content"), item.get("summary"), item.get("output")):
        if type(group) is list:
            for part in group:
                if type(part) is dict:
                    kinds.append(part.get("type") or "")
                    own.extend(value for key in ("text", "refusal") if type(value := part.get(key)) is str)
    if not own and not kinds:
        own.append(encode(item).decode())
    texts.extend(own)
    layout.append((item.get("type") or "message", item.get("role") or "", tuple(kinds)))
    return "\0".join(own)
