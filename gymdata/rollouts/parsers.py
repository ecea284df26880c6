"""Reads tool calls out of what a model wrote, in the formats that models are trained on; the text itself stays what it was.

hermes        <tool_call>{"name": …, "arguments": {…}}</tool_call>             Hermes, Qwen 2.5 and 3, SmolLM
qwen3_coder   <tool_call><function=NAME><parameter=KEY>VALUE</parameter>…      Qwen3-Coder
glm           <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…  GLM 4.5 and later
nemotron      <TOOLCALL>[{"name": …, "arguments": {…}}]</TOOLCALL>             Nemotron, Llama-Nemotron (Nemotron 3: qwen3_coder)
mistral       [TOOL_CALLS][{"name": …, "arguments": {…}}], or NAME[ARGS]{…}    Mistral, Ministral, Magistral
llama3_json   {"name": …, "parameters": {…}}, after <|python_tag|> or not      Llama 3.1 and later
deepseek      <｜tool▁calls▁begin｜>…<｜tool▁calls▁end｜>                          DeepSeek V3, R1, V3.1

What cannot be read as a call stays text: a model that errs is to be seen erring.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

Call = tuple[str, str]
"""A name, and arguments as JSON text."""
Tools = Mapping[str, Mapping[str, Any]]
"""By name, the JSON schema of a tool's parameters."""

_MISTRAL_ARGS = re.compile(r"\s*([\w.\-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(?=\{)")
_FENCE = re.compile(r"([^\n]+)\n```json\n(.*)\n```", re.DOTALL)


def parse(text: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The assistant message, as in Chat Completions, of a text that a model wrote to a chat request: with calls if this allows any.

    Without `parallel_tool_calls` the first call counts, as with vLLM.
    """
    message: dict[str, Any] = {"role": "assistant", "content": text}
    tools = () if asked.get("tool_choice") == "none" else asked.get("tools") or ()
    known: Tools = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
    if not known:
        return message
    for read in FORMATS.values():
        if found := read(text, known):
            content, calls = found
            message["content"] = content or None
            message["tool_calls"] = [  # Mistral's templates take ids of nine letters and digits, and no others
                {"id": uuid4().hex[:9], "type": "function", "function": {"name": name, "arguments": arguments}}
                for name, arguments in (calls[:1] if asked.get("parallel_tool_calls") is False else calls)
            ]
            break
    return message


def _hermes(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    start = _after_thoughts(text)
    pieces = text[start:].split("<tool_call>")[1:]
    # The end of the turn may be that of its last call.
    calls = [_call(_whole(piece.partition("</tool_call>")[0]), "arguments") for piece in pieces]
    return _said(text, "<tool_call>", start, calls)


def _coder(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    start = _after_thoughts(text)
    if "<function=" not in text[start:]:
        return None
    calls: list[Call | None] = []
    for block in _blocks(text[start:], "<function=", "</function>"):
        name, _, body = (block or "").partition(">")
        # A parameter ends where the next one begins, if not before.
        pairs = [piece.partition("</parameter>")[0].partition(">") for piece in body.split("<parameter=")[1:]]
        given = {key: value.removeprefix("\n").removesuffix("\n") for key, _, value in pairs}
        calls.append(_typed(name.strip(), given, tools) if block else None)
    first = "<tool_call>" if 0 <= text.find("<tool_call>", start) < text.find("<function=", start) else "<function="
    return _said(text, first, start, calls)


def _glm(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    start = _after_thoughts(text)
    calls: list[Call | None] = []
    for block in _blocks(text[start:], "<tool_call>", "</tool_call>"):
        name = (block or "").partition("<arg_key>")[0].strip()
        keys, values = (_blocks(block or "", f"<{mark}>", f"</{mark}>") for mark in ("arg_key", "arg_value"))
        given = {key: value for key, value in zip(keys, values, strict=False) if key and value is not None}
        good = name and not set(name) & set('{}<>" \n') and set(keys) == given.keys() and len(keys) == len(values)
        calls.append(_typed(name, given, tools) if good else None)
    return _said(text, "<tool_call>", start, calls)


def _nemotron(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    start = _after_thoughts(text)
    place = text.find("<TOOLCALL>", start)
    if place < 0:
        return None
    value = _json(text[place + len("<TOOLCALL>") :])
    return _said(text, "<TOOLCALL>", start, [_call(one, "arguments") for one in (value if isinstance(value, list) else [value])])


def _typed(name: str, given: Mapping[str, str], tools: Tools) -> Call:
    """A call whose parameters stand as bare text: by the tool's schema text, or the JSON that they are; as vLLM has it."""
    schemas = tools.get(name, {}).get("properties") or {}
    typed = {key.strip(): _value(text, schemas.get(key.strip())) for key, text in given.items()}
    return name, json.dumps(typed, ensure_ascii=False)


def _value(text: str, schema: Any) -> Any:
    kinds = schema.get("type") if isinstance(schema, Mapping) else "string"  # what a tool does not declare is text
    value = _bare(text)
    return text if kinds == "string" or (isinstance(kinds, Sequence) and "string" in kinds and value is not None) else value


def _bare(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text, text)


def _mistral(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    start = _after_thoughts(text)
    place = text.find("[TOOL_CALLS]", start)
    if place < 0:
        return None
    calls: list[Call | None] = []
    for part in text[place:].split("[TOOL_CALLS]")[1:]:
        if part.lstrip().startswith(("[", "{")):
            value = _json(part)
            calls += [_call(one, "arguments") for one in (value if isinstance(value, list) else [value])]
        elif named := _MISTRAL_ARGS.match(part):
            given = _json(part[named.end() :])
            calls.append((named[1], json.dumps(given, ensure_ascii=False)) if isinstance(given, dict) else None)
        else:
            calls.append(None)
    return _said(text, "[TOOL_CALLS]", start, calls)


def _llama(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    said, marked, written = text.partition("<|python_tag|>")
    written = (written if marked else text).strip()
    if not written.startswith("{"):
        return None
    calls: list[Call] = []
    place = 0
    while place < len(written):
        try:
            value, place = _decoder.raw_decode(written, place)
        except (ValueError, RecursionError):
            return None
        call = _call(value, "parameters") or _call(value, "arguments")
        if call is None or call[0] not in tools:  # JSON that is an answer
            return None
        calls.append(call)
        while place < len(written) and written[place] in "; \n":
            place += 1
    return (said if marked else "").strip(), calls


def _deepseek(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    place = text.find("<｜tool▁calls▁begin｜>")
    if place < 0:
        return None
    calls: list[Call | None] = []
    for block in _blocks(text[place:], "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"):
        head, _, body = (block or "").partition("<｜tool▁sep｜>")
        fenced = _FENCE.fullmatch(body.strip()) if head.strip() == "function" else None
        name, arguments = (fenced[1], fenced[2]) if fenced else (head, body)
        given = _whole(arguments)
        calls.append((name.strip(), json.dumps(given, ensure_ascii=False)) if isinstance(given, dict) else None)
    return _said(text, "<｜tool▁calls▁begin｜>", 0, calls)


def _blocks(text: str, begin: str, end: str) -> list[str | None]:
    """What stands between each `begin` and the `end` after it; None for one that has no end. Linear in the text: models repeat themselves."""
    pieces = [piece.partition(end) for piece in text.split(begin)[1:]]
    return [inner if found else None for inner, found, _ in pieces]


def _said(text: str, marker: str, start: int, calls: Sequence[Call | None]) -> tuple[str, list[Call]] | None:
    """What was said before the calls, and these; None if one of them is none: then all of it is text."""
    whole = [call for call in calls if call]
    if not whole or len(whole) < len(calls):
        return None
    return text[: text.index(marker, start)].strip(), whole


def _call(value: Any, key: str) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or key not in value:
        return None
    arguments = value[key]
    return value["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _whole(text: str) -> Any:
    """The JSON value that a text is; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(text: str) -> Any:
    """The JSON value that a text begins with; None if it begins with none."""
    try:
        return _decoder.raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _after_thoughts(text: str) -> int:
    """Where thoughts end: calls within them are none."""
    end = text.rfind("</think>")
    return 0 if end < 0 else end + len("</think>")


_decoder = json.JSONDecoder()
FORMATS: Mapping[str, Callable[[str, Tools], tuple[str, list[Call]] | None]] = {
    "deepseek": _deepseek,
    "mistral": _mistral,
    "nemotron": _nemotron,
    "qwen3_coder": _coder,
    "glm": _glm,
    "hermes": _hermes,
    "llama3_json": _llama,
}
"""In this order: what the last takes for a call is bare JSON."""
