"""The fast path: accepts a row only if the exact path would have nothing to say about it.

It knows the common shapes (messages with text, function calls and their outputs, function tools, plain sampling parameters)
and refuses everything else; what it refuses is judged by `validation.judge`, which alone decides and explains. The property
test in tests/properties proves that it never accepts what the exact path reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gymdata.rows.facts import encode

decode = msgspec.json.decode

_ROLES = frozenset({"user", "assistant", "system", "developer"})
_STATUSES = frozenset({"completed", "in_progress", "incomplete"})
_STRING_INPUT = frozenset({"instructions", "model", "user"})
_MISSING = object()


class FastPath:
    """Judges rows by shape; remembers the tools it has met, because rows share them.

    `plain_text` says that no text rule can fire on a string, `plain_value` the same of any other verifier field,
    `plain_answers` that no answer rule can fire on a row, and `clean_tool` whether a tool definition has no finding.
    """

    def __init__(
        self,
        plain_text: Callable[[str], bool],
        plain_value: Callable[[object], bool],
        plain_answers: Callable[[Mapping[str, Any]], bool],
        clean_tool: Callable[[dict[str, Any]], bool],
    ) -> None:
        self._plain_text = plain_text
        self._plain_value = plain_value
        self._plain_answers = plain_answers
        self._clean_tool = clean_tool
        self._tools: dict[bytes, tuple[str, int] | None] = {}
        self._stamps: dict[tuple[str, ...], bool] = {}

    def accept(self, row: Any) -> tuple[int, tuple[bytes, ...]] | None:
        """For a clean row its number of words, as NeMo Gym counts them, and the canonical JSON of its tools; else None.

        The words of `json.dumps(params).split()` are counted without a dump: every container of n entries adds its
        separators (`", "` and `": "`), and every maximal run of spaces inside a string adds one.
        """
        if type(row) is not dict:
            return None
        params = row.get("responses_create_params")
        if type(params) is not dict:
            return None
        prompt = params.get("input")
        words = 2 * len(params)
        plain_text = self._plain_text
        names: frozenset[str] | set[str] = frozenset()
        tool_texts: tuple[bytes, ...] = ()

        for key, value in params.items():
            if key == "input":
                continue
            if key == "tools":
                tools = self._accept_tools(value)
                if tools is None:
                    return None
                added, names, tool_texts = tools
                words += added
            elif not self._plain_parameter(key, value):
                return None
            elif type(value) is str:
                words += _runs(value)
        if "tool_choice" in params and not tool_texts and params["tool_choice"] != "auto":
            return None

        if type(prompt) is str:
            if not prompt.strip() or not plain_text(prompt):
                return None
            words += _runs(prompt)
        elif type(prompt) is list and prompt:
            words += len(prompt) - 1
            calls: dict[str, bool] = {}
            for item in prompt:
                if type(item) is not dict:
                    return None
                content = item.get("content")
                if type(content) is str:
                    size = len(item)
                    if (
                        item.get("role") not in _ROLES
                        or not content
                        or not (size == 2 or (size == 3 and item.get("type") == "message"))
                        or not plain_text(content)
                    ):
                        return None
                    words += 2 * size - 1 + content.count(" ")
                    if "  " in content:
                        words += _runs(content) - content.count(" ")
                    continue
                added = self._accept_item(item, content, calls, names)
                if added is None:
                    return None
                words += added
        else:
            return None

        for key, value in row.items():
            kind = type(value)
            if kind is str:
                if not plain_text(value):
                    return None
            elif kind is int:
                if not -(2**63) <= value < 2**64:
                    return None
            elif kind is dict or kind is list:
                if key == "agent_ref":
                    if not _usable_agent_ref(value):
                        return None
                elif key != "responses_create_params" and not self._plain_value(value):
                    return None
            if key in _NEEDS_EXACT:
                return None
        return (words, tool_texts) if self._plain_answers(row) else None

    def _accept_tools(self, tools: Any) -> tuple[int, set[str], tuple[bytes, ...]] | None:
        if type(tools) is not list:
            return None
        words = len(tools) - 1 if tools else 0
        names: set[str] = set()
        texts: list[bytes] = []
        for tool in tools:
            if type(tool) is not dict:
                return None
            text = encode(tool)
            known = self._tools.get(text, _MISSING)
            if known is _MISSING:
                known = None
                if tool.get("type") == "function" and self._clean_tool(tool):
                    known = (tool["name"], len(json.dumps(tool).split()) - 1)
                if len(self._tools) > 50_000:
                    self._tools.clear()
                self._tools[text] = known
            if known is None or known[0] in names:
                return None
            names.add(known[0])
            words += known[1]
            texts.append(text)
        return words, names, tuple(texts)

    def _accept_item(
        self, item: dict[str, Any], content: Any, calls: dict[str, bool], names: frozenset[str] | set[str]
    ) -> int | None:
        """Words that a message with parts, a function call or its output adds. `calls` maps a call id to "answered"."""
        kind = item.get("type")
        plain_text = self._plain_text
        words = 2 * len(item) - 1
        if type(content) is list:
            role = item.get("role")
            if role == "assistant":
                if kind != "message" or not _only(item, _OUTPUT_MESSAGE) or type(item.get("id")) is not str:
                    return None
                part_type, part_keys = "output_text", 3
            else:
                if role not in _ROLES or not (len(item) == 2 or (len(item) == 3 and kind == "message")):
                    return None
                part_type, part_keys = "input_text", 2
            if not content or item.get("status", "completed") not in _STATUSES:
                return None
            words += len(content) - 1 + _runs(item.get("id", ""))
            for part in content:
                if type(part) is not dict or len(part) != part_keys or part.get("type") != part_type:
                    return None
                text = part.get("text")
                if type(text) is not str or not text or not plain_text(text):
                    return None
                if part_keys == 3 and part.get("annotations") != []:
                    return None
                words += 2 * part_keys - 1 + _runs(text)
            return words
        call_id = item.get("call_id")
        if type(call_id) is not str or not call_id or "content" in item:
            return None
        if kind == "function_call":
            arguments, name = item.get("arguments"), item.get("name")
            if not _only(item, _FUNCTION_CALL) or name not in names or type(arguments) is not str or call_id in calls:
                return None
            try:
                if type(decode(arguments)) is not dict or not plain_text(arguments):
                    return None
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                return None
            calls[call_id] = False
            words += _runs(arguments) + _runs(name)
        elif kind == "function_call_output":
            output = item.get("output")
            if not _only(item, _FUNCTION_CALL_OUTPUT) or calls.get(call_id) is not False:
                return None
            if type(output) is not str or not plain_text(output):
                return None
            calls[call_id] = True
            words += _runs(output)
        else:
            return None
        if item.get("status", "completed") not in _STATUSES or type(item.get("id", "")) is not str:
            return None
        return words + _runs(call_id) + _runs(item.get("id", ""))

    def _plain_parameter(self, key: str, value: Any) -> bool:
        kind = type(value)
        if key == "temperature":
            return (kind is float or kind is int) and 0 <= value <= 2
        if key == "top_p":
            return (kind is float or kind is int) and 0 < value <= 1
        if key == "max_output_tokens":
            return kind is int and 0 < value < 2**31
        if key in ("parallel_tool_calls", "store"):
            return kind is bool
        if key == "tool_choice":
            return value in ("auto", "none", "required")
        if key in _STRING_INPUT:
            return kind is str and value != "" and self._plain_text(value)
        return False


_NEEDS_EXACT = frozenset({"task_id", "task_input", "response", "reward"})
_OUTPUT_MESSAGE = frozenset({"type", "id", "role", "status", "content"})
_FUNCTION_CALL = frozenset({"type", "call_id", "name", "arguments", "id", "status"})
_FUNCTION_CALL_OUTPUT = frozenset({"type", "call_id", "output", "id", "status"})


def has_repeated_key(line: bytes, row: dict[str, Any]) -> bool:
    """Whether an object in `line`, which decoded to `row`, spells a key twice. Never says no wrongly for compact rows."""
    size = len(encode(row))
    if size == len(line):
        return False
    spaced = line.count(b", ") + line.count(b": ")
    canonical = encode(row)
    if len(line) - size == spaced - canonical.count(b", ") - canonical.count(b": "):
        return False

    class Repeated(Exception):
        pass

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Repeated
        return found

    try:
        json.loads(line, object_pairs_hook=unique)
    except Repeated:
        return True
    return False


def _usable_agent_ref(value: Any) -> bool:
    return type(value) is dict and type(value.get("name")) is str and bool(value["name"])


def _only(item: dict[str, Any], keys: frozenset[str]) -> bool:
    return item.keys() <= keys


def _runs(text: str) -> int:
    """Number of maximal runs of spaces."""
    spaces = text.count(" ")
    if "  " not in text:
        return spaces
    return sum(1 for before, character in zip("x" + text, text) if character == " " and before != " ")
