"""Rules of content: what the schema takes, though a model, a verifier or a reader could not make sense of it.

`check` judges a row that satisfies the schema. `is_undamaged`, `has_no_placeholder` and `is_plain_answer` are its sound shadows
for the fast path: they say yes only where no rule of theirs can fire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gymdata.validation.findings import Finding
from gymdata.validation.rules.answers import check_answers, is_plain_answer
from gymdata.validation.rules.content_catalogue import CONTENT_RULES
from gymdata.validation.rules.images import check_image
from gymdata.validation.rules.texts import check_damage, check_placeholders, has_no_placeholder, is_undamaged

__all__ = ["CONTENT_RULES", "check", "check_tool", "has_no_placeholder", "is_plain_answer", "is_undamaged"]

_ROOT = "$.responses_create_params"
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


def check(row: Mapping[str, Any]) -> list[Finding]:
    """The findings about the content of a row that satisfies the schema."""
    findings: list[Finding] = []
    params = row.get("responses_create_params")
    if isinstance(params, dict):
        findings += _check_sampling(params)
        names = set()
        for index, tool in enumerate(params.get("tools") or ()):
            path = f"{_ROOT}.tools[{index}]"
            findings += [_under(path, finding) for finding in check_tool(tool)]
            name = tool.get("name")
            if isinstance(name, str):
                if name in names:
                    message = f"two tools are named {name!r}; a call cannot say which it means"
                    findings.append(Finding("GD305", f"{path}.name", message, "rename or remove one"))
                names.add(name)
        findings += _check_choice(params, names)
        findings += _check_input(params.get("input"), names, row)
        if isinstance(instructions := params.get("instructions"), str):
            findings += check_damage(instructions, f"{_ROOT}.instructions")
    findings += check_answers(row)
    for key, value in row.items():
        if key not in ("responses_create_params", "response", "agent_ref", "task_source"):
            findings += _check_texts(value, f"$.{key}" if key.isidentifier() else f'$["{key}"]')
    return findings


def check_tool(tool: Mapping[str, Any]) -> list[Finding]:
    """The findings about the parameters of a function tool, with paths from `$` for the tool."""
    parameters = tool.get("parameters")
    if tool.get("type") != "function" or not isinstance(parameters, dict):
        return []
    return list(_check_schema(parameters, "$.parameters", 0))


def _check_schema(schema: Any, path: str, depth: int) -> Iterator[Finding]:
    """Places where a JSON Schema is none: the types and the shapes that make a server refuse the tool."""
    if not isinstance(schema, dict):
        if not isinstance(schema, bool):
            yield Finding("GD307", path, "a JSON Schema must be an object", "write the schema of the value here")
        return
    if depth > 64:
        return
    kind = schema.get("type")
    for name in kind if isinstance(kind, list) else [kind] if "type" in schema else []:
        if not isinstance(name, str) or name not in _TYPES:
            known = {"dict": "object", "float": "number", "int": "integer", "bool": "boolean", "str": "string", "list": "array",
                     "tuple": "array", "any": "no type at all", "none": "null"}.get(str(name).lower())  # fmt: skip
            hint = f"JSON Schema calls it {known}" if known else f"one of {', '.join(sorted(_TYPES))}"
            yield Finding("GD307", f"{path}.type", f"{name!r} is no type of JSON Schema; servers refuse the tool", hint)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, child in properties.items():
            yield from _check_schema(child, f"{path}.properties{_member(name)}", depth + 1)
    elif properties is not None:
        yield Finding("GD307", f"{path}.properties", "`properties` must be an object", "map each name to a schema")
    required = schema.get("required")
    if required is not None and not (isinstance(required, list) and all(isinstance(name, str) for name in required)):
        yield Finding("GD307", f"{path}.required", "`required` must be a list of names", "list the names of required properties")
    items = schema.get("items")
    if isinstance(items, dict | bool):
        yield from _check_schema(items, f"{path}.items", depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            for index, child in enumerate(schema[key]):
                yield from _check_schema(child, f"{path}.{key}[{index}]", depth + 1)


def _check_sampling(params: Mapping[str, Any]) -> Iterator[Finding]:
    for key, (low, high, whole) in _RANGES.items():
        value = params.get(key)
        if value is None:
            continue
        path = f"{_ROOT}.{key}"
        number = value
        if isinstance(value, bool | str):
            try:
                number = float(value)
            except ValueError:
                continue
            message = f"`{key}` is {value!r}, which NeMo Gym reads as {number:g}"
            yield Finding("GD309", path, message, f"write {number:g}")
        if not low <= number <= high:
            limits = f"at least {low:g}" if high == float("inf") else f"between {low:g} and {high:g}"
            yield Finding("GD308", path, f"`{key}` is {value!r}: servers take {limits}", "write a value in range")
        elif whole and isinstance(value, float):
            yield Finding("GD309", path, f"`{key}` is {value!r}, which NeMo Gym reads as {int(value)}", f"write {int(value)}")
    for key in _FLAGS:
        value = params.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool):
            yield Finding(
                "GD309", f"{_ROOT}.{key}", f"`{key}` is {value!r}, which NeMo Gym reads as true or false", "write true or false"
            )


_RANGES = {
    "temperature": (0, 2, False),
    "top_p": (0, 1, False),
    "max_output_tokens": (1, float("inf"), True),
    "max_tool_calls": (1, float("inf"), True),
    "top_logprobs": (0, 20, True),
}
_FLAGS = ("parallel_tool_calls", "store", "background")


def _check_choice(params: Mapping[str, Any], names: set[str]) -> Iterator[Finding]:
    choice = params.get("tool_choice")
    if choice == "required" and not params.get("tools"):
        yield Finding(
            "GD306",
            f"{_ROOT}.tool_choice",
            "a tool call is required, but there are no tools",
            "declare the tools, or remove `tool_choice`",
        )
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom") and choice.get("name") not in names:
        declared = f"the tools are {', '.join(sorted(names))}" if names else "there are no tools"
        yield Finding(
            "GD306",
            f"{_ROOT}.tool_choice.name",
            f"`tool_choice` names {choice.get('name')!r}, but {declared}",
            "name a declared tool",
        )


def _check_input(prompt: Any, names: set[str], row: Mapping[str, Any]) -> Iterator[Finding]:
    path = f"{_ROOT}.input"
    if isinstance(prompt, str):
        if not prompt.strip():
            yield Finding("GD301", path, "the prompt is empty", "write the prompt, or remove the row")
        yield from check_placeholders(prompt, path, row)
        yield from check_damage(prompt, path)
        return
    if not prompt:
        yield Finding("GD301", path, "the prompt is an empty list", "write the prompt, or remove the row")
        return
    answered: dict[str, bool] = {}
    for index, item in enumerate(prompt):
        at = f"{path}[{index}]"
        kind = item.get("type", "message")
        if kind == "function_call" or (kind == "message" and "call_id" in item and "arguments" in item):
            yield from _check_call(item, at, names, answered)
        elif "call_id" in item and "output" in item:
            yield from _check_output(item, at, answered)
        content = item.get("content")
        # System messages often show a format with placeholders of its own.
        templated = item.get("role") == "user"
        if isinstance(content, str):
            if item.get("role") == "user" and not content.strip():
                yield Finding("GD301", f"{at}.content", "the user's message is empty", "write the message, or remove it")
            if templated:
                yield from check_placeholders(content, f"{at}.content", row)
            yield from check_damage(content, f"{at}.content")
        for key, parts in (("content", content), ("output", item.get("output")), ("summary", item.get("summary"))):
            if isinstance(parts, list):
                yield from _check_parts(parts, f"{at}.{key}", templated, row)
            elif isinstance(parts, str) and key != "content":
                yield from check_damage(parts, f"{at}.{key}")
    yield from _check_answered(prompt, path)


def _check_answered(prompt: list[Any], path: str) -> Iterator[Finding]:
    """Calls without an output; not where an output lacks its call, since then an id is wrong and that is said already."""
    calls: dict[str, int] = {}
    outputs: set[str] = set()
    for index, item in enumerate(prompt):
        if isinstance(item.get("call_id"), str):
            if "arguments" in item and item.get("type", "function_call") == "function_call":
                calls.setdefault(item["call_id"], index)
            elif item.get("type", "function_call_output") == "function_call_output":
                outputs.add(item["call_id"])
    if len(outputs) < len(calls) and outputs <= calls.keys():
        for call_id in sorted(calls.keys() - outputs, key=calls.__getitem__):
            message = f"the call {call_id!r} has no output; OpenAI's API refuses such a request"
            yield Finding(
                "GD302", f"{path}[{calls[call_id]}].call_id", message, "add its function_call_output, or remove the call"
            )


def _check_parts(parts: list[Any], path: str, templated: bool, row: Mapping[str, Any]) -> Iterator[Finding]:
    if templated and not parts:
        yield Finding("GD301", path, "the message has no parts", "write the message, or remove it")
    for index, part in enumerate(parts):
        if not isinstance(part, dict):
            continue
        at = f"{path}[{index}]"
        text = part.get("text")
        if isinstance(text, str):
            if templated and not text.strip() and len(parts) == 1:
                yield Finding("GD301", f"{at}.text", "the message is empty", "write the message, or remove it")
            if templated:
                yield from check_placeholders(text, f"{at}.text", row)
            yield from check_damage(text, f"{at}.text")
        if part.get("type") == "input_image":
            yield from check_image(part, at)


def _check_call(item: Mapping[str, Any], at: str, names: set[str], answered: dict[str, bool]) -> Iterator[Finding]:
    call_id, name, arguments = item.get("call_id"), item.get("name"), item.get("arguments")
    if isinstance(call_id, str):
        if call_id in answered:
            yield Finding("GD302", f"{at}.call_id", f"the call id {call_id!r} stands twice", "give each call an id of its own")
        answered[call_id] = False
    if names and name not in names:
        message = f"the call is to {name!r}, but the tools are {', '.join(sorted(names)[:8])}"
        yield Finding("GD304", f"{at}.name", message, "declare the tool, or mend the name")
    if isinstance(arguments, str):
        try:
            value = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            yield Finding(
                "GD303", f"{at}.arguments", f"the arguments are no JSON: {error}", "write them as a JSON object, in a string"
            )
        else:
            if not isinstance(value, dict):
                yield Finding(
                    "GD303", f"{at}.arguments", "the arguments are no JSON object", 'write them as {"name": value}, in a string'
                )
        yield from check_damage(arguments, f"{at}.arguments")


def _check_output(item: Mapping[str, Any], at: str, answered: dict[str, bool]) -> Iterator[Finding]:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or item.get("type", "function_call_output") != "function_call_output":
        return
    if call_id not in answered:
        yield Finding(
            "GD302", f"{at}.call_id", f"the output is of call {call_id!r}, which no function_call before it makes", "mend the id"
        )
    elif answered[call_id]:
        yield Finding(
            "GD302", f"{at}.call_id", f"the call {call_id!r} has two outputs", "keep one, or give each call an id of its own"
        )
    answered[call_id] = True


def _check_texts(value: Any, path: str) -> Iterator[Finding]:
    """Damage in any text of a verifier field; walks without recursion, since rows may nest deeply."""
    stack: list[tuple[Any, str]] = [(value, path)]
    while stack:
        value, path = stack.pop()
        if isinstance(value, str):
            yield from check_damage(value, path)
        elif isinstance(value, dict):
            stack += [(child, path + _member(key)) for key, child in reversed(value.items())]
        elif isinstance(value, list):
            stack += [(child, f"{path}[{index}]") for index, child in reversed(list(enumerate(value)))]


def _under(path: str, finding: Finding) -> Finding:
    return Finding(finding.code, path + finding.path[1:], finding.message, finding.hint)


def _member(key: str) -> str:
    return f".{key}" if re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII) else f"[{msgspec.json.encode(key).decode()}]"
