"""Reads tool calls out of what a model wrote, in the formats that models are trained on; the text itself stays what it was.

hermes        <tool_call>{"name": …, "arguments": {…}}</tool_call>             Hermes, Qwen 2.5 and 3, SmolLM
qwen3_coder   <tool_call><function=NAME><parameter=KEY>VALUE</parameter>…      Qwen3-Coder
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

_HERMES = re.compile(r"<tool_call>\s*(\{.*?\})\s*(?:</tool_call>|\Z)", re.DOTALL)
_CODER = re.compile(r"(?:<tool_call>\s*)?<function=([^>\n]+)>(.*?)</function>\s*(?:</tool_call>)?", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_MISTRAL_ARGS = re.compile(r"\s*([\w.\-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(?=\{)")
_DEEPSEEK = re.compile(r"<｜tool▁calls▁begin｜>(.*?)(?:<｜tool▁calls▁end｜>|\Z)", re.DOTALL)
_DEEPSEEK_CALL = re.compile(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", re.DOTALL)
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
            message["tool_calls"] = [
                {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for name, arguments in (calls[:1] if asked.get("parallel_tool_calls") is False else calls)
            ]
            break
    return message


def _hermes(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    start = _after_thoughts(text)
    if "<tool_call>" not in text[start:]:
        return None
    calls = [_call(match[1], "arguments") for match in _HERMES.finditer(text, start)]
    calls += [None] * (text.count("<tool_call>", start) - len(calls))  # begun, but no object came
    return _said(text, "<tool_call>", start, calls)


def _coder(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    start = _after_thoughts(text)
    if "<function=" not in text[start:]:
        return None
    calls: list[Call | None] = []
    for match in _CODER.finditer(text, start):
        schema = tools.get(match[1].strip(), {}).get("properties") or {}
        given = {key.strip(): _typed(value, schema.get(key.strip())) for key, value in _PARAMETER.findall(match[2])}
        calls.append((match[1].strip(), json.dumps(given, ensure_ascii=False)))
    first = "<tool_call>" if 0 <= text.find("<tool_call>", start) < text.find("<function=", start) else "<function="
    return _said(text, first, start, calls)


def _typed(text: str, schema: Any) -> Any:
    """A parameter that stands as bare text: by its schema text, or the JSON that it is."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
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
    written = written if marked else text
    if not written.lstrip().startswith("{"):
        return None
    calls: list[Call | None] = []
    rest = written.strip()
    while rest:
        try:
            value, end = _decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        call = _call(value, "parameters") or _call(value, "arguments")
        if call is None or call[0] not in tools:  # JSON that is an answer
            return None
        calls.append(call)
        rest = rest[end:].lstrip("; \n")
    return (said if marked else "").strip(), [call for call in calls if call]


def _deepseek(text: str, tools: Tools) -> tuple[str, list[Call]] | None:
    match = _DEEPSEEK.search(text)
    if match is None:
        return None
    calls: list[Call | None] = []
    for head, body in _DEEPSEEK_CALL.findall(match[1]):
        fenced = _FENCE.fullmatch(body.strip()) if head.strip() == "function" else None
        name, arguments = (fenced[1], fenced[2]) if fenced else (head, body)
        given = _json(arguments)
        calls.append((name.strip(), json.dumps(given, ensure_ascii=False)) if isinstance(given, dict) else None)
    return _said(text, "<｜tool▁calls▁begin｜>", 0, calls)


def _said(text: str, marker: str, start: int, calls: Sequence[Call | None]) -> tuple[str, list[Call]] | None:
    """What was said before the calls, and these; None if one of them is none: then all of it is text."""
    whole = [call for call in calls if call]
    if not whole or len(whole) < len(calls):
        return None
    return text[: text.index(marker, start)].strip(), whole


def _call(value: Any, key: str) -> Call | None:
    if isinstance(value, str):
        value = _json(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or key not in value:
        return None
    arguments = value[key]
    return value["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


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
    "qwen3_coder": _coder,
    "hermes": _hermes,
    "llama3_json": _llama,
}
"""In this order: what the last takes for a call is bare JSON."""
