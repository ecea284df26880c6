"""Records of other formats turned into rows: chat rows, ShareGPT, columns. What is written is placed, never interpreted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from gymdata.environments.problems import did_you_mean
from gymdata.errors import DataError, UsageError
from gymdata.rows import spans
from gymdata.rows.chat import translate
from gymdata.sources.tables import TABLES, Misfit, Record, kind_of, records

if TYPE_CHECKING:
    from gymdata.environments.prompt import Prompt

Form = Literal["chat", "sharegpt", "columns"]

REQUEST_KEYS = (
    "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p",
    "max_tokens", "max_completion_tokens", "max_output_tokens",
)  # fmt: skip
"""Keys of a chat record that say how the model is asked, and move into the create-params; all others stay fields of the row."""

_CONVERSATIONS = ("conversations", "conversation")
_ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "model": "assistant",
    "bot": "assistant", "system": "system", "developer": "developer",
}  # fmt: skip
_CALL = ("function_call", "tool_call")
_RESULT = ("tool", "observation", "function_response", "tool_response")
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mapping:
    """How records become rows. Columns are named as they are in the source."""

    form: Form
    prompt_column: str = ""
    answer_column: str = ""
    """Of `columns`: goes into the field `expected_answer`."""
    answer_field: str = ""
    """Of chat and ShareGPT: the field that the last answer is moved into, out of the input."""
    system: str = ""
    """A system message put first where there is none."""
    fields: dict[str, str] = field(default_factory=dict)
    """Row field -> column, for columns that are to have another name, or to be kept beside the prompt."""
    prompt: Prompt | None = None
    """A prompt format, which makes the input from columns."""


class Converted(NamedTuple):
    """One record: the row, or why there is none; and what was left out or is worth a word."""

    line: int
    row: bytes | None
    misfit: Misfit | None = None
    notes: tuple[str, ...] = ()


def convert(path: Path, mapping: Mapping) -> Iterator[Converted]:
    """The rows of a file, in order; each record gives one row or one Misfit. Whether NeMo Gym takes the rows is not checked here.

    Raises UsageError where a table has no such column, DataError where the file cannot be read.
    """
    _check(mapping)
    table = kind_of(path) in TABLES
    make = {"chat": _chat, "sharegpt": _sharegpt, "columns": _columns}[mapping.form]
    for line, record in records(path):
        if isinstance(record, Misfit):
            yield Converted(line, None, record)
            continue
        if table:
            _check_columns(path, mapping, record)
            table = False
        try:
            row, notes = make(record, mapping)
            yield Converted(line, row, None, notes)
        except _No as error:
            yield Converted(line, None, error.misfit)


class _No(Exception):
    def __init__(self, code: str, path: str, message: str, hint: str = "") -> None:
        self.misfit = Misfit(code, path, message, hint)


def _check(mapping: Mapping) -> None:
    if mapping.form == "columns":
        if bool(mapping.prompt_column) == (mapping.prompt is not None):
            hint = "name the column of the prompt (--prompt-column) or a prompt YAML that makes it of columns (--prompt-config)"
            raise UsageError("columns need one of the two: a prompt column, or a prompt format", hint)
        if mapping.prompt is not None and mapping.system:
            raise UsageError("a prompt format and a system message", "write `system:` into the prompt YAML")
    elif mapping.prompt_column or mapping.answer_column or mapping.prompt is not None:
        raise UsageError(f"--from {mapping.form} takes no columns", "use --from columns, or leave them out")
    if "responses_create_params" in mapping.fields:
        raise UsageError("responses_create_params is made by the conversion", "map the column to another field")


def _check_columns(path: Path, mapping: Mapping, record: Record) -> None:
    wanted = [mapping.prompt_column, mapping.answer_column, *mapping.fields.values()]
    wanted += mapping.prompt.fields if mapping.prompt else ()
    for name in wanted:
        if name and name not in record:
            hint = did_you_mean(name, record) or f"its columns are {', '.join(record)}"
            raise UsageError(f"{path} has no column {name!r}", hint)


def _columns(record: Record, mapping: Mapping) -> tuple[bytes, tuple[str, ...]]:
    if mapping.prompt is not None:
        try:
            messages = mapping.prompt.messages({name: _value(record, name) for name in mapping.prompt.fields if name in record})
        except DataError as error:
            raise _No("GD112", "$", error.message, error.hint) from None
        source = json.dumps(messages, ensure_ascii=False).encode()
    else:
        text = _text(record, mapping.prompt_column, "the prompt")
        source = _list([*_system(mapping), _message("user", text)])
    taken = {mapping.prompt_column, mapping.answer_column}
    fields = {"expected_answer": _present(record, mapping.answer_column)} if mapping.answer_column else {}
    return _row({"input": source}, record, taken, fields, mapping), ()


def _chat(record: Record, mapping: Mapping) -> tuple[bytes, tuple[str, ...]]:
    if "messages" not in record:
        hint = did_you_mean("messages", record) or "name the format that the file has with --from"
        raise _No("GD201", "$.messages", "`messages` is missing from the record", hint)
    messages = _array(record["messages"], "$.messages")
    items = [item.raw for item in messages]
    roles = [role.value if (role := item.get("role")) is not None and role.raw[:1] == b'"' else None for item in messages]
    if mapping.system and not {"system", "developer"} & set(roles):
        items = [*_system(mapping), *items]
    params = {"input": _list(items)} | {key: record[key] for key in REQUEST_KEYS if record.get(key, b"null") != b"null"}
    fields: Record = {}
    last = roles[-1] if roles else None
    if mapping.answer_field:
        content = messages[-1].get("content") if last == "assistant" else None
        if content is None or content.raw[:1] != b'"' or messages[-1].get("tool_calls") is not None:
            where = f"$.messages[{max(0, len(messages) - 1)}]"
            raise _No("GD201", where, "the last message is no answer in words", "leave --answer-field out for such records")
        fields[mapping.answer_field] = content.raw
        params["input"] = _list(items[:-1])
    notes = ("ends with an answer, which stays in the input (--answer-field NAME moves it out)",) if last == "assistant" else ()
    row = _row(params, record, {"messages", *REQUEST_KEYS}, fields, mapping)
    return translate(row)[0], () if mapping.answer_field else notes


def _sharegpt(record: Record, mapping: Mapping) -> tuple[bytes, tuple[str, ...]]:
    name = next((name for name in _CONVERSATIONS if name in record), None)
    if name is None:
        hint = "chat records are converted with --from chat" if "messages" in record else "name the format with --from"
        raise _No("GD201", "$.conversations", "`conversations` is missing from the record", hint)
    turns = _array(record[name], f"$.{name}")
    notes: dict[str, None] = {}
    items: list[bytes] = []
    calls: list[str] = []
    made = 0
    for at, turn in enumerate(turns):
        where = f"$.{name}[{at}]"
        speaker, value = _turn(turn, where)
        notes |= dict.fromkeys(f"turn key `{key}` was left out" for key in turn.index if key not in ("from", "value"))
        if speaker in _ROLES:
            items.append(_message(_ROLES[speaker], value.raw))
        elif speaker in _CALL:
            for call in _calls(value, where):
                made += 1
                calls.append(f"call_{made}")
                items.append(_object({"type": b'"function_call"', "call_id": json.dumps(calls[-1]).encode(), **call}))
        elif speaker in _RESULT:
            if not calls:
                raise _No("GD216", where, "the result answers no call", "such a turn must follow a function_call turn")
            number = json.dumps(calls.pop(0)).encode()
            items.append(_object({"type": b'"function_call_output"', "call_id": number, "output": value.raw}))
        else:
            known = ", ".join((*_ROLES, *_CALL, *_RESULT))
            raise _No("GD203", f"{where}.from", f"the speaker {speaker!r} is unknown", f"known are {known}")
    fields: Record = {}
    last = _ROLES.get(turns[-1].index["from"].value) if turns else None
    if mapping.answer_field:
        if last != "assistant":
            raise _No("GD201", f"$.{name}", "the last turn is no answer in words", "leave --answer-field out for such records")
        fields[mapping.answer_field] = turns[-1].index["value"].raw
        items.pop()
    elif last == "assistant":
        notes["ends with an answer, which stays in the input (--answer-field NAME moves it out)"] = None
    has_system = any(turn.index["from"].value in ("system", "developer") for turn in turns)
    if record.get("system", b"null") not in (b"null", b'""'):
        items.insert(0, _message("system", _text(record, "system", "the system message")))
    elif not has_system:
        items = [*_system(mapping), *items]
    params = {"input": _list(items)}
    if record.get("tools", b"null") not in (b"null", b'""'):
        params["tools"] = _list([_tool(tool) for tool in _array(record["tools"], "$.tools")])
    return translate(_row(params, record, {name, "system", "tools"}, fields, mapping))[0], tuple(notes)


def _turn(turn: spans.Node, where: str) -> tuple[str, spans.Node]:
    speaker, value = turn.get("from"), turn.get("value")
    if speaker is None or value is None:
        hint = "chat messages are converted with --from chat" if turn.get("role") is not None else ""
        raise _No("GD201", where, "the turn has no `from` and `value`", hint)
    if speaker.raw[:1] != b'"' or value.raw[:1] != b'"':
        raise _No("GD202", where, "`from` and `value` of a turn must be strings")
    return speaker.value, value


def _calls(value: spans.Node, where: str) -> Iterator[Record]:
    """The calls that a turn holds as JSON text: {"name": …, "arguments": …}, or a list of such."""
    hint = 'a function_call turn holds {"name": …, "arguments": {…}} as JSON text'
    try:
        text = value.value.strip()
        json.loads(text)
        node = spans.parse(re.sub(rb"[\r\n]+", b" ", text.encode()))
    except (ValueError, RecursionError):
        raise _No("GD216", where, "the call is not JSON text", hint) from None
    for call in node.items if node.items is not None else [node]:
        name, arguments = call.get("name"), call.get("arguments") or call.get("parameters")
        if name is None or arguments is None or name.raw[:1] != b'"' or (arguments.members is None and arguments.raw[:1] != b'"'):
            raise _No("GD216", where, "the call has no `name` and `arguments`", hint)
        yield {"name": name.raw, "arguments": arguments.raw}


def _tool(tool: spans.Node) -> bytes:
    """A tool as it is; of one that is only a function's name and parameters, a function tool."""
    members = tool.members or []
    if tool.get("type") is not None or tool.get("name") is None:
        return tool.raw
    return _object({"type": b'"function"', **{member.key: member.node.raw for member in members}})


def _array(raw: bytes, where: str) -> list[spans.Node]:
    """The items of a list; also of one that a column holds as JSON text."""
    if raw[:1] == b'"':
        try:
            text = json.loads(raw)
            json.loads(text)
            raw = re.sub(rb"[\r\n]+", b" ", text.encode())
        except (ValueError, RecursionError):
            raise _No("GD202", where, "is a string, but must be a list") from None
    node = spans.parse(raw)
    if node.items is None:
        raise _No("GD202", where, "must be a list")
    return node.items


def _row(params: Record, record: Record, taken: set[str], fields: Record, mapping: Mapping) -> bytes:
    """The row: create-params, new fields, then the other columns, those in `mapping.fields` under their new names."""
    renamed = {column: name for name, column in mapping.fields.items()}
    row: Record = {"responses_create_params": _object(params), **fields}
    for name, column in mapping.fields.items():
        row[_free(name, row)] = _present(record, column)
    for column, value in record.items():
        if column not in taken and column not in renamed:
            row[_free(column, row)] = value
    return _object(row)


def _free(name: str, row: Record) -> str:
    if name in row:
        raise _No(
            "GD105", f"$.{name}", f"two columns would become the field {name!r}", "give one of them another name with --map"
        )
    return name


def _present(record: Record, column: str) -> bytes:
    if column not in record:
        hint = did_you_mean(column, record) or f"it has {', '.join(record)}"
        raise _No("GD201", _path(column), f"the record has no {column!r}", hint)
    return record[column]


def _text(record: Record, column: str, what: str) -> bytes:
    raw = _present(record, column)
    if raw[:1] != b'"':
        raise _No("GD202", _path(column), f"{what} is {raw[:40].decode(errors='replace')}, but must be a string")
    return raw


def _value(record: Record, column: str) -> object:
    return json.loads(record[column])


def _path(column: str) -> str:
    return f"$.{column}" if _PLAIN_KEY.fullmatch(column) else f"$[{json.dumps(column)}]"


def _system(mapping: Mapping) -> list[bytes]:
    return [_message("system", json.dumps(mapping.system, ensure_ascii=False).encode())] if mapping.system else []


def _message(role: str, content: bytes) -> bytes:
    return _object({"role": json.dumps(role).encode(), "content": content})


def _object(members: Record) -> bytes:
    return (
        b"{" + b", ".join(json.dumps(key, ensure_ascii=False).encode() + b": " + value for key, value in members.items()) + b"}"
    )


def _list(items: list[bytes]) -> bytes:
    return b"[" + b", ".join(items) + b"]"
