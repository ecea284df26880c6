"""The fast path: accepts a row only if the exact path would have nothing to say about it.

It knows the common shapes (messages with text, function calls and their outputs, function tools, plain sampling parameters)
and refuses everything else; what it refuses is judged by `validation.judge`, which alone decides and explains. The property
test in tests/properties proves that it never accepts what the exact path reports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gymdata.rows.facts import encode

decode = msgspec.json.decode

_ROLES = frozenset({"user", "assistant", "system", "developer"})
_STATUSES = frozenset({"completed", "in_progress", "incomplete"})
_STRING_INPUT = frozenset({"instructions", "model", "user"})
_UNSEEN: Any = object()


class Accepted(NamedTuple):
    """What accepting a row measured."""

    words: int
    turns: int
    request: bytes
    """The canonical JSON of `input`."""
    tool_texts: tuple[bytes, ...]
    """The canonical JSON of each tool."""
    separators: int
    """Commas and colons between the tokens of the whole row."""


class FastPath:
    """Judges rows by shape; remembers the tools it has met, because rows share them.

    `undamaged` says that no rule of damage can fire on a string, `plain_prompt` that no rule of prompts can fire on what a user
    says, `plain_answers` that no answer rule can fire on a row with those texts of users, and `clean_tool` whether a tool
    definition has no finding.
    """

    def __init__(
        self,
        undamaged: Callable[[str, bytes | None], bool],
        plain_prompt: Callable[[str], bool],
        plain_answers: Callable[[Mapping[str, Any], Sequence[str]], bool],
        clean_tool: Callable[[dict[str, Any]], bool],
    ) -> None:
        self._undamaged = undamaged
        self._plain_prompt = plain_prompt
        self._plain_answers = plain_answers
        self._clean_tool = clean_tool
        self._tools: dict[bytes, tuple[str, int, int] | None] = {}

    def accept(self, rows: Sequence[Any], raw: bytes) -> list[Accepted | None]:
        """Measure rows, the decoded lines of `raw`; None for a row that is not, or not certainly, clean.

        Their strings are looked at all together, joined by NUL, and row by row only if something in them is not plain.
        """
        texts: list[str] = []
        prompts: list[str] = []
        ends: list[tuple[int, int]] = []
        found: list[Accepted | None] = []
        for row in rows:
            start, first = len(texts), len(prompts)
            accepted = self._accept(row, texts, prompts)
            if accepted is None:
                del texts[start:], prompts[first:]
            found.append(accepted)
            ends.append((len(texts), len(prompts)))
        if not (self._undamaged("\0".join(texts), raw) and self._plain_prompt("\0".join(prompts))):
            start = first = 0
            for index, (end, last) in enumerate(ends):
                own, said = "\0".join(texts[start:end]), "\0".join(prompts[first:last])
                if not (self._undamaged(own, None) and self._plain_prompt(said)):
                    found[index] = None
                start, first = end, last
        return found

    def _accept(self, row: Any, texts: list[str], prompts: list[str]) -> Accepted | None:
        """Measure a row; append its strings to `texts`, and those of its user's messages to `prompts`, too.

        The words of `json.dumps(params).split()` are counted without a dump: one, one more for each separator (`", "` and
        `": "`) between tokens, and one more for each maximal run of spaces inside a string.
        """
        if type(row) is not dict:
            return None
        params = row.get("responses_create_params")
        if type(params) is not dict:
            return None
        prompt = params.get("input")
        separators = 2 * len(params) - 1
        runs = turns = 0
        names: frozenset[str] | set[str] = frozenset()
        tool_texts: tuple[bytes, ...] = ()
        if len(params) > 1:
            for key, value in params.items():
                if key == "input":
                    continue
                if key == "tools":
                    tools = self._accept_tools(value)
                    if tools is None:
                        return None
                    names, tool_texts, more, run = tools
                    separators += more
                    runs += run
                elif not _plain_parameter(key, value):
                    return None
                elif type(value) is str:
                    texts.append(value)
                    runs += _runs(encode(value))
            if "tool_choice" in params and not tool_texts and params["tool_choice"] != "auto":
                return None

        first = len(prompts)
        if type(prompt) is str:
            if not prompt.strip():
                return None
            prompts.append(prompt)
            turns = 1
        elif type(prompt) is list and prompt:
            separators += len(prompt) - 1
            calls: dict[str, bool] = {}
            for item in prompt:
                if type(item) is not dict:
                    return None
                content = item.get("content")
                role = item.get("role", "")
                if type(content) is str:
                    size = len(item)
                    if (
                        type(role) is not str
                        or role not in _ROLES
                        or not content
                        or content.isspace()
                        or not (size == 2 or (size == 3 and item.get("type") == "message"))
                    ):
                        return None
                    if role == "user":
                        turns += 1
                        prompts.append(content)
                    else:
                        texts.append(content)
                    separators += 2 * size - 1
                    continue
                if type(role) is not str:
                    return None
                if role == "user":
                    turns += 1
                added = _accept_item(item, content, calls, names, prompts if role == "user" else texts)
                if added is None:
                    return None
                separators += added
            if not all(calls.values()):
                return None
        else:
            return None
        said = prompts[first:]
        texts += said

        if not _ELSEWHERE.isdisjoint(row) or ("agent_ref" in row and not _usable_agent_ref(row["agent_ref"])):
            return None
        all_separators = separators + 2 * len(row) - 1
        for key, value in row.items():
            kind = type(value)
            if kind is str:
                texts.append(value)
            elif kind is not float and kind is not bool and value is not None and key != "responses_create_params":
                nested = _nested(value, texts)
                if nested is None:
                    return None
                all_separators += nested
        if not self._plain_answers(row, said):
            return None
        request = encode(prompt)
        return Accepted(1 + separators + runs + _runs(request), turns, request, tool_texts, all_separators)

    def _accept_tools(self, tools: Any) -> tuple[set[str], tuple[bytes, ...], int, int] | None:
        """Names, canonical JSON, separators and runs of spaces of a list of function tools."""
        if type(tools) is not list:
            return None
        separators = len(tools) - 1 if tools else 0
        runs = 0
        names: set[str] = set()
        texts: list[bytes] = []
        for tool in tools:
            if type(tool) is not dict:
                return None
            text = encode(tool)
            known = self._tools.get(text, _UNSEEN)
            if known is _UNSEEN:
                between = _nested(tool, [])
                if between is None or not self._clean_tool(tool):
                    known = None
                else:
                    known = (tool["name"], between, _runs(text))
                if len(self._tools) > 50_000:
                    self._tools.clear()
                self._tools[text] = known
            if known is None or known[0] in names:
                return None
            names.add(known[0])
            separators += known[1]
            runs += known[2]
            texts.append(text)
        return names, tuple(texts), separators, runs


def _accept_item(
    item: dict[str, Any], content: Any, calls: dict[str, bool], names: frozenset[str] | set[str], texts: list[str]
) -> int | None:
    """Separators of a message with parts, a function call or its output. `calls`: call id -> answered."""
    kind = item.get("type")
    separators = 2 * len(item) - 1
    if type(content) is list:
        role = item.get("role", "")
        if role == "assistant":
            if kind != "message" or not item.keys() <= _OUTPUT_MESSAGE or type(item.get("id")) is not str:
                return None
            part_type, part_keys = "output_text", 3
        else:
            if role not in _ROLES or not (len(item) == 2 or (len(item) == 3 and kind == "message")):
                return None
            part_type, part_keys = "input_text", 2
        if not content or not _usable_status(item):
            return None
        separators += len(content) - 1
        for part in content:
            if type(part) is not dict or len(part) != part_keys or part.get("type") != part_type:
                return None
            text = part.get("text")
            if type(text) is not str or not text or text.isspace() or (part_keys == 3 and part.get("annotations") != []):
                return None
            texts.append(text)
            separators += 2 * part_keys - 1
        return separators
    call_id = item.get("call_id")
    if type(call_id) is not str or not call_id or "content" in item:
        return None
    if kind == "function_call":
        text, name = item.get("arguments"), item.get("name")
        if not item.keys() <= _FUNCTION_CALL or type(text) is not str or call_id in calls:
            return None
        if type(name) is not str or (names and name not in names):
            return None
        try:
            if type(decode(text)) is not dict:
                return None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        calls[call_id] = False
    elif kind == "function_call_output":
        text = item.get("output")
        if not item.keys() <= _FUNCTION_CALL_OUTPUT or calls.get(call_id) is not False or type(text) is not str:
            return None
        calls[call_id] = True
    else:
        return None
    if not _usable_status(item) or type(item.get("id", "")) is not str:
        return None
    texts.append(text)
    return separators


def _plain_parameter(key: str, value: Any) -> bool:
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
    return key in _STRING_INPUT and kind is str and value != ""


def _nested(value: Any, texts: list[str], depth: int = 0) -> int | None:
    """Number of separators in a verifier field, whose strings go to `texts`; None if it needs the exact path."""
    kind = type(value)
    if kind is str:
        texts.append(value)
    elif kind is int:
        return 0 if -(2**63) <= value < 2**63 else None
    elif kind is list or kind is dict:
        if depth > 50:
            return None
        separators = (2 if kind is dict else 1) * len(value) - 1 if value else 0
        for member in value.values() if kind is dict else value:
            nested = _nested(member, texts, depth + 1)
            if nested is None:
                return None
            separators += nested
        return separators
    return 0


_ELSEWHERE = frozenset({"task_id", "task_input", "response", "reward", "_ng_rollout_id", "capture_rollout_id"})
_OUTPUT_MESSAGE = frozenset({"type", "id", "role", "status", "content"})
_FUNCTION_CALL = frozenset({"type", "call_id", "name", "arguments", "id", "status"})
_FUNCTION_CALL_OUTPUT = frozenset({"type", "call_id", "output", "id", "status"})


def has_repeated_key(line: bytes, size: int, separators: int) -> bool:
    """Whether an object in `line` spells a key twice; `size` is the length of the line's canonical JSON.

    Without a repeated key a compact line is as long as its canonical form, and one with a space behind every comma and
    colon is longer by their number. Any other spelling is decoded once more.
    """
    if len(line) == size or len(line) == size + separators:
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


def _usable_status(item: dict[str, Any]) -> bool:
    status = item.get("status", "completed")
    return type(status) is str and status in _STATUSES


def _runs(text: bytes) -> int:
    """Number of maximal runs of spaces in the strings of canonical JSON, which has no others."""
    spaces = text.count(b" ")
    for run in _LONG_RUNS(text):
        spaces -= len(run) - 1
    return spaces


# Two literals in front are searched for faster than one and its repetition.
_LONG_RUNS = re.compile(b"  [ ]*").findall
