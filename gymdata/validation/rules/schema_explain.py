"""What pydantic says about a row, retold: one finding for each cause, at the place where the remedy goes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gymdata.validation.findings import Finding
from gymdata.validation.rules.schema_words import (
    MISSING_REMEDY,
    PARAMETER_REMEDY,
    decodes_to,
    excerpt,
    found,
    json_path,
    meant,
)

if TYPE_CHECKING:
    from pydantic import ValidationError

Keys = tuple[str | int, ...]

ROLES = ("user", "assistant", "system", "developer")
_EXPECTED = {
    "string": "a string",
    "int": "an integer",
    "float": "a number",
    "finite": "an integer",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "literal": "one of its known values",
}
_TEXT_OR_LIST = {
    "input": "a string or a list of items",
    "content": "a string or a list of parts",
    "output": "a string or a list of parts",
}
_OPTIONS = re.compile(r"'([^']*)'")


def explain(error: ValidationError, row: Mapping[str, Any]) -> list[Finding]:
    """The findings of a failed validation of `row`, in the order of the definition."""
    findings: dict[str, Finding] = {}
    for fault in error.errors(include_url=False, include_input=False):
        keys, values = _locate(row, fault["loc"], fault["type"] in ("missing", "extra_forbidden"))
        finding = _habit(keys, values) or _finding(fault["type"], fault.get("ctx", {}), keys, values)
        if finding is not None:
            findings.setdefault(finding.path, finding)
    return list(findings.values())


def _locate(row: Any, loc: tuple[int | str, ...], of_key: bool) -> tuple[Keys, list[Any]]:
    """The keys of a location without the names of union members, and the values met on the way, `row` first.

    The last key may be missing; then there are as many values as keys, else one more. `of_key`: the fault is that the last
    key is there, or is not, so that it names no union member.
    """
    keys: list[str | int] = []
    values: list[Any] = [row]
    told = False  # whether the member of the union of tagged shapes that the last value belongs to has been passed
    for place, step in enumerate(loc, 1):
        value = values[-1]
        if isinstance(value, dict) and isinstance(step, str):
            is_key = (of_key and place == len(loc)) or told
            if step.startswith("@") and step not in value and not (of_key and place == len(loc)):
                continue
            if step == value.get("type") and not is_key:
                told = True
                continue
            keys.append(step)
            if step not in value:
                break
            values.append(value[step])
            told = False
        elif isinstance(value, list) and isinstance(step, int):
            keys.append(step)
            values.append(value[step])
            told = False
    return tuple(keys), values


def _habit(keys: Keys, values: list[Any]) -> Finding | None:
    """A habit of another format in one of the objects around a fault: one cause of all that is wrong with that object."""
    for depth, value in enumerate(values):
        place = keys[:depth]
        if place == ("responses_create_params",) and isinstance(value, dict) and "messages" in value:
            if keys[1:] in (("input",), ("messages",)):
                return _chat_messages(place, value)
        elif place == ("response", "usage") and isinstance(value, dict) and "prompt_tokens" in value:
            message = "`usage` counts prompt_tokens and completion_tokens, as the Chat Completions API does"
            return Finding("GD603", json_path(place), message, "write input_tokens, output_tokens and their details")
        elif len(place) < 2 or not isinstance(place[-1], int):
            continue
        elif place[-2] == "tools" and isinstance(value, dict) and isinstance(value.get("function"), dict):
            message = "the tool keeps its definition under `function`, as the Chat Completions API does"
            hint = 'lift the keys of `function` up beside `type`, and add "strict"'
            return Finding("GD206", json_path((*place, "function")), message, hint)
        elif place[-2] in ("input", "output") and isinstance(value, dict) and (finding := _chat_item(place, value)):
            return finding
        elif place[-2] == "content" and isinstance(value, dict) and isinstance(value.get("type"), str):
            kind = value["type"]
            if kind in ("text", "image_url", "image", "video_url", "file") and keys == place:
                message = f"the part has the type {excerpt(kind)} of the Chat Completions API"
                return Finding("GD217", json_path((*place, "type")), message, _part_remedy(kind))
    return None


def _chat_messages(place: Keys, params: Mapping[str, Any]) -> Finding:
    message = "the prompt is under `messages`, as in the Chat Completions API; here it is `input`"
    hint = "remove `messages`: the prompt is in `input`" if "input" in params else "rename `messages` to `input`"
    return Finding("GD209", json_path((*place, "messages")), message, hint)


def _part_remedy(kind: str) -> str:
    if "image" in kind:
        return 'write {"type": "input_image", "image_url": "https://…", "detail": "auto"}: the URL is a plain string'
    if "video" in kind:
        return 'write {"type": "input_video", "video_url": "https://…"}'
    return 'write {"type": "input_text", "text": …}' if kind == "text" else 'write {"type": "input_file", …}'


def _chat_item(place: Keys, item: Mapping[str, Any]) -> Finding | None:
    """A chat or ShareGPT turn among the items."""
    role, content = item.get("role"), item.get("content")
    if role in ("tool", "function") or (role is None and "tool_call_id" in item):
        message = f"the item is a chat message of role {role or 'tool'}; results of calls are items of their own"
        hint = 'write {"type": "function_call_output", "call_id": …, "output": …}'
        return Finding("GD216", json_path((*place, "role")), message, hint)
    calls = next((key for key in ("tool_calls", "function_call") if item.get(key)), None)
    if role == "assistant" and calls and not isinstance(content, str | list):
        message = f"the message carries `{calls}`, as in the Chat Completions API; calls are items of their own"
        hint = 'write each as {"type": "function_call", "call_id": …, "name": …, "arguments": …}'
        return Finding("GD216", json_path((*place, calls)), message, hint)
    if "type" not in item and "role" not in item and "from" in item and "value" in item:
        message = "the item is a ShareGPT turn (`from`, `value`)"
        hint = 'write {"role": …, "content": …}, or convert the file with `gymdata convert --from sharegpt`'
        return Finding("GD218", json_path((*place, "role")), message, hint)
    return None


def _finding(kind: str, context: Mapping[str, Any], keys: Keys, values: list[Any]) -> Finding | None:
    """The finding of one fault that is no habit of another format."""
    name = str(keys[-1]) if keys else ""
    value: Any = values[-1]
    if kind == "missing":
        return _missing(keys, values)
    if kind == "extra_forbidden":
        return _unknown_key(keys, values)
    if kind == "string_unicode" or (isinstance(value, float) and math.isnan(value)):
        return None  # the rules of syntax say it
    if kind == "token_ids":
        missing = " and ".join(f"`{key}`" for key in context["missing"])
        message = f"the item has some of the token ids, but not {missing}"
        return Finding("GD219", json_path((*keys, context["missing"][0])), message, "give all three lists, or none")
    if kind == "token_ids_type" and isinstance(value, dict):
        return _wrong(((*keys, context["key"])), value[context["key"]], "a list of numbers, one for each token")
    if kind in ("video_source", "video_url"):
        at = (*keys, context.get("key", "video_url"))
        message = "an input_video part holds exactly one of `video_url` and `video`, and in it a URL"
        return Finding("GD220", json_path(at), message, 'write {"type": "input_video", "video_url": "https://…"}')
    if kind in ("union_tag_invalid", "union_tag_not_found") and isinstance(value, dict):
        return _unknown_kind(context, keys, values)
    if kind == "string_too_short":
        return Finding("GD202", json_path(keys), f"`{name}` is empty", "name it")
    if kind == "literal_error":
        return _unknown_value(name, keys, value, _OPTIONS.findall(context["expected"]) or [context["expected"].lower()])
    expected = _EXPECTED.get(kind.split("_")[0], "an object" if kind.startswith("union_tag") else "something else")
    if kind == "string_type" and name in _TEXT_OR_LIST:
        expected = _TEXT_OR_LIST[name]
    return _wrong(keys, value, expected)


def _wrong(keys: Keys, value: Any, expected: str) -> Finding:
    """A value of another type than its place wants."""
    name = f"`{keys[-1]}`" if isinstance(keys[-1], str) else _member_of(keys)
    path = json_path(keys)
    if value is None:
        hint = MISSING_REMEDY.get(str(keys[-1])) or ("leave the key out" if isinstance(keys[-1], str) else "remove it")
        return Finding("GD208", path, f"{name} is null, but must be {expected}", hint.replace("add ", "write "))
    wanted = dict if "object" in expected else list if "list" in expected else None
    if wanted and decodes_to(value, wanted):
        message = f"{name} is JSON text in a string, but must be {expected}"
        return Finding("GD215", path, message, "decode it once more: it was encoded twice")
    hint = f"write {expected}"
    if expected == "a string" and isinstance(value, dict | list):
        hint = "write it as JSON text in a string" if keys[-1] in ("arguments", "output") else hint
        if keys[-1] == "image_url":
            hint = "write the URL itself, as a string"
    elif keys[-1] == "output" and isinstance(value, dict):
        hint = "write it as JSON text in a string"
    elif len(keys) > 1 and isinstance(value, str) and isinstance(keys[-1], int):
        hint = {
            "input": 'write {"role": "user", "content": …}',
            "content": 'write {"type": "input_text", "text": …}',
        }.get(str(keys[-2]), hint)
    elif expected.startswith("a list") and isinstance(value, dict):
        hint = "put it in a list: […]"
    return Finding("GD202", path, f"{name} is {found(value)}, but must be {expected}", hint)


def _member_of(keys: Keys) -> str:
    named = {"input": "the item", "output": "the item", "tools": "the tool", "content": "the part"}
    return named.get(_above(keys), f"member {keys[-1]}")


def _above(keys: Keys) -> str:
    """The last key but one."""
    return str(keys[-2]) if len(keys) > 1 else ""


def _owner(keys: Keys, values: list[Any]) -> str:
    """How to call the object that lacks the last of `keys`."""
    holder = values[len(keys) - 1] if keys else None
    kind = holder.get("type") if isinstance(holder, dict) else None
    if len(keys) > 2 and isinstance(keys[-2], int):
        noun = _member_of(keys[:-1])
        return f"{noun} of type {excerpt(kind)}" if isinstance(kind, str) else noun
    return f"`{keys[-2]}`" if len(keys) > 1 else "the row"


def _missing(keys: Keys, values: list[Any]) -> Finding:
    name = str(keys[-1])
    path = json_path(keys)
    holder = values[len(keys) - 1]
    if keys in (("response",), ("reward",)):
        code = "GD600" if name == "response" else "GD601"
        return Finding(code, path, f"the rollout has no `{name}`", MISSING_REMEDY[name])
    if name == "strict" and len(keys) > 2 and keys[-3] == "tools":
        message = f"`strict` is missing from {_owner(keys, values)}; NeMo Gym refuses the row"
        return Finding("GD207", path, message, MISSING_REMEDY["strict"])
    hint = MISSING_REMEDY.get(name, f"add `{name}`")
    if name == "id" and isinstance(holder.get("content"), list):
        hint = 'add "id": "msg_1", or give the text as a plain string in `content`'
    similar = meant(name, ()) or next((key for key in holder if key.lower() == name.lower()), None)
    if similar is None and len(name) > 3:
        similar = next((key for key in holder if meant(key, (name,)) == name), None)
    if similar:
        hint = f"did you mean {excerpt(similar)}? Rename it to `{name}`"
    elif keys == ("responses_create_params",) and ("messages" in holder or "conversations" in holder):
        hint = "convert the file with `gymdata convert`"
    return Finding("GD201", path, f"`{name}` is missing from {_owner(keys, values)}", hint)


def _unknown_key(keys: Keys, values: list[Any]) -> Finding:
    from gymdata.rows.schema.request import CreateParams

    name = str(keys[-1])
    path = json_path(keys)
    if keys[:-1] == ("responses_create_params",):
        options = list(CreateParams.__annotations__)
        hint = PARAMETER_REMEDY.get(name)
        if hint is None and (similar := meant(name, options)):
            hint = f"did you mean `{similar}`?"
        message = f"`{name}` is no key of the create-params; NeMo Gym refuses the row"
        return Finding("GD204", path, message, hint or "remove it, or move it out of `responses_create_params`")
    return Finding("GD204", path, f"`{name}` is no key of {_owner(keys, values)}", "remove it, or correct its spelling")


def _unknown_value(name: str, keys: Keys, value: Any, options: list[str]) -> Finding:
    if value is None:
        return _wrong(keys, value, " or ".join(options))
    listed = ", ".join(options)
    similar = meant(value, options, "tool_choice" if name == "tool_choice" else "role" if name == "role" else "")
    hint = f'did you mean "{similar}"?' if similar else f"write one of: {listed}"
    if name == "stream":
        hint = "leave `stream` out: rollouts are not streamed"
    return Finding("GD203", json_path(keys), f"`{name}` is {found(value)}; known are {listed}", hint)


def _unknown_kind(context: Mapping[str, Any], keys: Keys, values: list[Any]) -> Finding:
    """An object that none of its place's shapes fits, told by its `type`."""
    holder = values[-1]
    group = _above(keys) if isinstance(keys[-1], int) else str(keys[-1])
    noun = _member_of(keys) if isinstance(keys[-1], int) else f"`{keys[-1]}`"
    at = (*keys, "type")
    if "type" not in holder:
        if group == "input" and isinstance(keys[-1], int):
            return _untold_item(keys, holder)
        if group == "output" and keys[0] == "response":
            message = "the output item has no `type`; NeMo Gym refuses the rollout"
            return Finding("GD604", json_path(at), message, 'add "type": "message", "function_call", …')
        if group == "tools" and "name" in holder:
            return Finding("GD201", json_path(at), "`type` is missing from the tool", 'add "type": "function"')
        return Finding("GD201", json_path(at), f"`type` is missing from {noun}", MISSING_REMEDY["type"])
    kind = holder["type"]
    if not isinstance(kind, str):
        return _wrong(at, kind, "a string")
    options = [option.lstrip("@") for option in _OPTIONS.findall(str(context.get("expected_tags", "")))]
    hidden = ("input_message", "output_message", "function_call_output_item")
    options = [option for option in options if option not in hidden and option != "object"]
    place = {"input": "item", "output": "item", "content": "part", "tools": "tool"}.get(group, "")
    similar = meant(kind, options, place)
    if kind == "item_reference":
        hint = "write the item itself: NeMo Gym takes no references"
    elif similar:
        hint = f'did you mean "{similar}"?'
    else:
        hint = f"write one of: {', '.join(options)}"
    return Finding("GD203", json_path(at), f"{noun} has the unknown type {excerpt(kind)}", hint)


def _untold_item(keys: Keys, item: Mapping[str, Any]) -> Finding:
    """An item without `type` that is no kind of item; NeMo Gym takes it for an `mcp_list_tools` and drops the rest."""
    role, content = item.get("role"), item.get("content")
    lost = "; NeMo Gym would not read it as a message"
    if "role" in item or "content" in item:
        if "role" not in item:
            return Finding("GD201", json_path((*keys, "role")), f"`role` is missing from the item{lost}", MISSING_REMEDY["role"])
        if role not in ROLES:
            finding = _unknown_value("role", (*keys, "role"), role, list(ROLES))
            return Finding(finding.code, finding.path, finding.message + lost, finding.hint)
        if "content" not in item:
            return Finding(
                "GD201", json_path((*keys, "content")), f"`content` is missing from the item{lost}", MISSING_REMEDY["content"]
            )
        if not isinstance(content, str | list):
            return _wrong((*keys, "content"), content, "a string or a list of parts")
        if role == "assistant":
            hint = 'add "id": "msg_1", or give the text as a plain string in `content`'
            return Finding("GD201", json_path((*keys, "id")), f"`id` is missing from the answer of the model{lost}", hint)
        message = f"the message of role {role} holds output parts, which only the assistant writes{lost}"
        return Finding("GD203", json_path((*keys, "content", 0, "type")), message, 'write {"type": "input_text", "text": …}')
    message = (
        "the item is empty"
        if not item
        else f"the item has no `type`, and nothing in it tells its kind: it is {found(dict(item))}"
    )
    return Finding("GD205", json_path(keys), message, 'write {"role": "user", "content": …}, or say with `type` what it is')
