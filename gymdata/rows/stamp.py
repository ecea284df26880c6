"""Stamping a row with the agent that runs it, without touching any other byte that its author wrote.

NeMo Gym up to 0.5.1 reads `agent_ref`, from 0.6.0 on it reads `task_source` and strips `agent_ref`; trainers read the former.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import msgspec

StampKind = Literal["agent_ref", "task_source", "both"]

_WHITESPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_NO_VALUE = b"{" + _WHITESPACE
"""What may stand before the brace at the end of a row, other than a value."""
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw])


def stamps(kind: StampKind, agent: str, task_source: str) -> dict[str, bytes | None]:
    """What a stamp of `kind` sets (JSON text) or removes (None), key by key."""
    reference = json.dumps({"type": "responses_api_agents", "name": agent}).encode()
    source = json.dumps(task_source).encode()
    return {
        "agent_ref": {"agent_ref": reference},
        "task_source": {"agent_ref": None, "task_source": source},
        "both": {"agent_ref": reference, "task_source": source},
    }[kind]


class Stamper:
    """Sets or removes top-level keys in the bytes of rows."""

    def __init__(self, values: dict[str, bytes | None]) -> None:
        self._values = values
        self._decoded = {key: None if value is None else msgspec.json.decode(value) for key, value in values.items()}
        self._tail = b", ".join(b'"%s": %s' % (key.encode(), value) for key, value in values.items() if value is not None)
        self._end = b", " + self._tail + b"}"
        self._keys = values.keys()
        self._tails: dict[bytes, bytes | None] = {}

    def __call__(self, line: bytes, row: dict[str, Any]) -> bytes:
        """The stamped bytes of `line`, which decoded to `row`; no line feed at the end, no byte-order mark at the start."""
        if line[-1:] != b"}" or line[:1] != b"{":
            line = line.strip(_WHITESPACE).removeprefix(_BOM).lstrip(_WHITESPACE)
        if self._keys.isdisjoint(row):
            if line[-2:-1] not in _NO_VALUE:
                return line[:-1] + self._end
            return _append(line, self._tail)
        for key, value in self._values.items():
            if key not in row:
                if value is not None:
                    line = append_member(line, key, value)
            elif value is None or row[key] != self._decoded[key]:
                line = self._replace_last(line, key, value) or replace_member(line, key, value)
        return line

    def _replace_last(self, line: bytes, key: str, value: bytes | None) -> bytes | None:
        """The common case, a stamp at the end of the row; files hold few different ones, so their ends are remembered."""
        begin = line.rfind(b'"%s"' % key.encode())
        if value is None or line[begin - 1 : begin] == b"\\":
            return None
        tail = line[begin:]
        if tail not in self._tails and len(self._tails) < 10_000:
            try:
                alone = len(_raw.decode(b"{" + tail)) == 1
            except msgspec.DecodeError:
                alone = False
            self._tails[tail] = b'"%s": %s}' % (key.encode(), value) if alone else None
        new_tail = self._tails.get(tail)
        return None if new_tail is None else line[:begin] + new_tail


def append_member(line: bytes, key: str, value: bytes) -> bytes:
    """The bytes of an object with one more member, whose value is JSON text, at its end."""
    return _append(line, b'"%s": %s' % (key.encode(), value))


def _append(line: bytes, member: bytes) -> bytes:
    body = line[:-1].rstrip(_WHITESPACE)
    return body + (b"" if body == b"{" else b", ") + member + b"}"


def replace_member(line: bytes, key: str, value: bytes | None) -> bytes:
    """`line` with the value of its top-level `key` replaced, or the key removed if `value` is None."""
    members = _raw.decode(line)
    old = bytes(members[key])
    wanted = {name: bytes(member) for name, member in members.items() if name != key or value is not None}
    if value is not None:
        wanted[key] = value
    # The same spelling may stand in a nested object: only a replacement that changes the right one and nothing else counts.
    for match in re.finditer(rb'(?<!\\)"%s"\s*:\s*' % re.escape(key.encode()), line):
        begin, end = match.end(), match.end() + len(old)
        if line[begin:end] != old:
            continue
        if value is not None:
            candidate = line[:begin] + value + line[end:]
        else:
            before, after = line[: match.start()].rstrip(_WHITESPACE), line[end:].lstrip(_WHITESPACE)
            if before.endswith(b","):
                candidate = before[:-1].rstrip(_WHITESPACE) + after
            else:
                candidate = before + after.removeprefix(b",").lstrip(_WHITESPACE)
        try:
            if {name: bytes(member) for name, member in _raw.decode(candidate).items()} == wanted:
                return candidate
        except msgspec.DecodeError:
            continue
    # A key that is repeated or spelled with escapes: the members keep their bytes, only what is between them changes.
    return b"{" + b", ".join(json.dumps(name).encode() + b": " + member for name, member in wanted.items()) + b"}"
