"""Chat Completions and other habits of writing, turned into what a row holds: edits of the row's own bytes, nothing guessed.

Only what is written is moved or renamed, never interpreted, so numbers, escapes and the order of keys stay as they were. Where a
part has no place in a row (a call without id, the reasoning of a message that goes), the whole item stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gymdata.rows.spans import Edit, Member, Node, append, apply, colon, comma, parse, remove, rename

_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
_NEWLINES = re.compile(rb"[\r\n]")


def translate(line: bytes) -> tuple[bytes, list[str]]:
    """`line`, a sound JSON object, with its `responses_create_params` as the Responses API writes them, and what was done to it.

    Repeats until nothing is left to do, so a translated line translates to itself. Objects with repeated keys are left alone.
    """
    done: list[str] = []
    while True:
        row = parse(line)
        params = row.get("responses_create_params")
        if params is None or not _unique(row):
            return line, done
        line, names = apply(line, _edits(params))
        if not names:
            return line, done
        done += names


def _edits(params: Node) -> Iterator[Edit]:
    if not params.members:
        yield from _decoded(params, dict, "responses_create_params out of its string")
        return
    if not _unique(params):
        return
    if params.get("input") is None:
        for member in _members(params, "messages"):
            if member.node.items is not None:
                yield rename(member, "input", "messages renamed to input")
    limits = [member for member in params.members if member.key in _TOKEN_LIMITS]
    if len(limits) == 1 and params.get("max_output_tokens") is None:
        yield rename(limits[0], "max_output_tokens", f"{limits[0].key} renamed to max_output_tokens")
    if (choice := params.get("tool_choice")) is not None:
        yield from _flat_function(choice, "tool_choice")
    tools = params.get("tools")
    if tools is not None:
        yield from _decoded(tools, list, "tools out of their string")
        for tool in tools.items or []:
            yield from _tool(tool)
    source = params.get("input")
    for item in (source.items if source is not None else None) or []:
        if _unique(item):
            yield from _item(item)


def _tool(tool: Node) -> Iterator[Edit]:
    if not _unique(tool) or _string(tool.get("type")) != "function":
        return
    if tool.get("function") is not None:
        yield from _flat_function(tool, "chat-style tool")
        return
    if (parameters := tool.get("parameters")) is not None:
        yield from _decoded(parameters, dict, "tool parameters out of their string")
    if tool.get("name") is None:
        return
    # A key that must be there and may be null: null says what its absence said, that the author did not choose.
    for key in ("parameters", "strict"):
        if tool.get(key) is None:
            yield append(tool, key, b"null", f"missing {key} set to null")
            return


def _flat_function(holder: Node, what: str) -> Iterator[Edit]:
    """{"type": "function", "function": {…}} with the inner members lifted to where `function` stood."""
    inner = holder.get("function")
    if inner is None or not inner.members or _string(holder.get("type")) != "function" or not _unique(inner):
        return
    if any(member.key in holder.index for member in inner.members):
        return
    (function,) = _members(holder, "function")
    body = holder.text[inner.members[0].start : inner.members[-1].node.stop]
    yield Edit(function.start, function.node.stop, body, f"{what} made flat")


def _item(item: Node) -> Iterator[Edit]:
    kind, role = _string(item.get("type")), _string(item.get("role"))
    if kind == "function_call":
        if (arguments := item.get("arguments")) is not None:
            yield from _as_text(arguments, "arguments written as JSON text")
    elif kind == "function_call_output":
        if (output := item.get("output")) is not None:
            yield from _as_text(output, "output written as JSON text")
            yield from _parts(output, "tool")
    elif kind in ("message", None) and role == "tool":
        yield from _tool_message(item)
    elif kind in ("message", None) and role == "assistant" and item.get("tool_calls") is not None:
        yield from _assistant_calls(item)
    elif role is not None and (content := item.get("content")) is not None:
        parts = content.items or []
        if role == "assistant" and len(parts) == 1 and _is_chat_text(parts[0]):
            text = parts[0].get("text")
            yield Edit(content.start, content.stop, text.raw if text else b"", "text of a chat answer out of its part")
            return
        yield from _parts(content, role)


def _parts(content: Node, role: str) -> Iterator[Edit]:
    for part in content.items or []:
        if _unique(part):
            yield from _part(part, role)


def _part(part: Node, role: str) -> Iterator[Edit]:
    kind = part.get("type")
    name = _string(kind)
    image = part.get("image_url")
    if kind is None or name is None:
        return
    if name == "text" and role != "assistant" and _string(part.get("text")) is not None:
        yield Edit(kind.start, kind.stop, b'"input_text"', "part text renamed to input_text")
    elif name in ("image_url", "input_image") and image is not None and image.members is not None:
        url, detail = image.get("url"), image.get("detail")
        known = image.index.keys() <= {"url", "detail"} and _unique(image)
        if not known or _string(url) is None or url is None or (detail is not None and part.get("detail") is not None):
            return
        (member,) = _members(part, "image_url")
        new = url.raw if detail is None else url.raw + comma(part) + b'"detail"' + colon(part) + detail.raw
        yield Edit(member.node.start, member.node.stop, new, "image URL out of its object")
    elif name == "image_url" and _string(image) is not None:
        yield Edit(kind.start, kind.stop, b'"input_image"', "part image_url renamed to input_image")
    elif name == "input_image" and (image is not None or part.get("file_id") is not None) and part.get("detail") is None:
        yield append(part, "detail", b'"auto"', 'missing detail set to "auto"')
    elif name == "output_text" and part.get("text") is not None and part.get("annotations") is None:
        yield append(part, "annotations", b"[]", "missing annotations set to []")


def _tool_message(item: Node) -> Iterator[Edit]:
    call, content = item.get("tool_call_id"), item.get("content")
    taken = item.get("call_id") is not None or item.get("output") is not None
    if _string(call) is None or content is None or content.raw == b"null" or taken:
        return
    members: list[bytes] = []
    for member in item.members or []:
        value = item.text[member.stop : member.node.stop]
        if member.key == "role":
            members.append(b'"type"' + colon(item) + b'"function_call_output"')
        elif member.key in ("tool_call_id", "content"):
            members.append((b'"call_id"' if member.key == "tool_call_id" else b'"output"') + value)
        elif member.key != "type":
            members.append(item.text[member.start : member.node.stop])
    yield Edit(item.start, item.stop, b"{" + comma(item).join(members) + b"}", "tool message made a function_call_output")


def _assistant_calls(item: Node) -> Iterator[Edit]:
    calls, content = item.get("tool_calls"), item.get("content")
    (member,) = _members(item, "tool_calls")
    if calls is None or calls.items is None or not calls.items:
        if calls is not None and calls.raw in (b"null", b"[]") and content is not None and content.raw != b"null":
            yield remove(item, member, "empty tool_calls removed")
        return
    made = [_call(call) for call in calls.items]
    silent = content is None or content.raw in (b"null", b'""', b"[]")
    extras = [
        other
        for other in item.members or []
        if other.key not in ("type", "role", "content", "tool_calls") and other.node.raw not in (b"null", b"[]", b'""')
    ]
    if None in made or (silent and extras):
        return
    items = [call for call in made if call is not None]
    if not silent:
        cut = remove(item, member, "")
        items.insert(0, item.text[item.start : cut.start] + item.text[cut.stop : item.stop])
    yield Edit(item.start, item.stop, comma(item).join(items), "tool_calls made function_call items")


def _call(call: Node) -> bytes | None:
    """A chat tool call as an item; None if it has not what one needs, or more than one can hold."""
    function = call.get("function")
    if function is None or _string(call.get("type")) not in ("function", None):
        return None
    named, arguments, number = function.get("name"), function.get("arguments"), call.get("id")
    known = call.index.keys() <= {"id", "type", "function", "index"} and function.index.keys() <= {"name", "arguments"}
    if not known or named is None or arguments is None or number is None:
        return None
    if _string(named) is None or _string(number) is None or (_string(arguments) is None and arguments.members is None):
        return None
    text = arguments.raw if arguments.members is None else _quoted(arguments.raw)
    pairs = ((b'"type"', b'"function_call"'), (b'"call_id"', number.raw), (b'"name"', named.raw), (b'"arguments"', text))
    return b"{" + comma(call).join(key + colon(call) + value for key, value in pairs) + b"}"


def _as_text(node: Node, name: str) -> Iterator[Edit]:
    if node.members is not None:
        yield Edit(node.start, node.stop, _quoted(node.raw), name)


def _decoded(node: Node, kind: type, name: str) -> Iterator[Edit]:
    """A value that was encoded twice, decoded once."""
    text = _string(node)
    if text is None or text.lstrip()[:1] != ("{" if kind is dict else "["):
        return
    try:
        value, new = json.loads(text, parse_constant=_refuse), text.encode()
    except (ValueError, RecursionError):
        return
    # The JSON text in the string may be spread over lines; in sound JSON a line break is only ever white space.
    if isinstance(value, kind):
        yield Edit(node.start, node.stop, _NEWLINES.sub(b" ", new.strip()), name)


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _quoted(raw: bytes) -> bytes:
    return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\t", b"\\t").replace(b"\r", b"\\r") + b'"'


def _is_chat_text(part: Node) -> bool:
    return part.index.keys() == {"type", "text"} and _string(part.get("type")) == "text" and _string(part.get("text")) is not None


def _string(node: Node | None) -> str | None:
    return node.value if node is not None and node.raw[:1] == b'"' else None


def _members(owner: Node, key: str) -> list[Member]:
    return [member for member in owner.members or [] if member.key == key]


def _unique(owner: Node) -> bool:
    return owner.members is not None and len(owner.index) == len(owner.members)
