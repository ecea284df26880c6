"""Where each value of a JSON text stands, so that a part of a row can be pointed at, or changed without touching the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_TOKEN = re.compile(rb'[ \t\r\n]*(?:([{}\[\],:])|("[^"\\]*(?:\\.[^"\\]*)*")|([^\s{}\[\],:"]+))', re.DOTALL)
_STEP = re.compile(r'\.([A-Za-z_]\w*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]', re.ASCII)


@dataclass(slots=True)
class Node:
    """A value at `start:stop` of a text; `members` of an object or `items` of a list, in order."""

    text: bytes
    start: int
    stop: int = 0
    members: list[Member] | None = None
    items: list[Node] | None = None
    index: dict[str, Node] = field(default_factory=dict)

    @property
    def raw(self) -> bytes:
        """The bytes of the value."""
        return self.text[self.start : self.stop]

    @property
    def value(self) -> Any:
        """The decoded value."""
        return json.loads(self.raw)

    def get(self, key: str) -> Node | None:
        """The value of a member; None if there is none, or if this is no object. Of repeated keys the last counts."""
        return self.index.get(key)


class Member(NamedTuple):
    """A key, its bytes at `start:stop` with their quotes, and its value."""

    key: str
    start: int
    stop: int
    node: Node


class Edit(NamedTuple):
    """Bytes that take the place of `start:stop`, and what the change is called."""

    start: int
    stop: int
    new: bytes
    name: str


def parse(text: bytes) -> Node:
    """The tree of a JSON text, which must be sound (see validation.rules.syntax). Nesting costs no stack."""
    root: Node | None = None
    stack: list[Node] = []
    key: tuple[str, int, int] | None = None
    for match in _TOKEN.finditer(text):
        mark, string, _ = match.groups()
        start, stop = match.start(match.lastindex or 0), match.end()
        parent = stack[-1] if stack else None
        if mark in (b"}", b"]"):
            stack.pop().stop = stop
        elif string is not None and parent is not None and parent.members is not None and key is None:
            key = (json.loads(string), start, stop)
        elif mark not in (b",", b":"):
            node = Node(text, start, stop)
            if parent is None:
                root = node
            elif parent.items is not None:
                parent.items.append(node)
            elif parent.members is not None and key is not None:
                parent.members.append(Member(*key, node))
                parent.index[key[0]] = node
                key = None
            if mark == b"{":
                node.members = []
                stack.append(node)
            elif mark == b"[":
                node.items = []
                stack.append(node)
    assert root is not None
    return root


def locate(root: Node, path: str) -> tuple[int, int]:
    """The bytes `start, stop` that a JSON path such as `$.a[0]["odd key"]` points at; of what is missing, its nearest holder.

    A member is pointed at with its key.
    """
    place = (root.start, root.stop)
    for step in _walk(root, path):
        if step is None:
            break
        place = (step.start, step.node.stop) if isinstance(step, Member) else (step.start, step.stop)
    return place


def find(root: Node, path: str) -> tuple[Node, Member] | None:
    """The member that a JSON path points at, with its object; None if there is none."""
    owner = holder = root
    step = None
    for step in _walk(root, path):
        if step is None:
            return None
        owner, holder = holder, step.node if isinstance(step, Member) else step
    return (owner, step) if isinstance(step, Member) else None


def _walk(root: Node, path: str) -> Iterator[Member | Node | None]:
    """What each step of a path leads to, a member or an item; None, and no more, at the first that leads nowhere."""
    node = root
    for match in _STEP.finditer(path):
        name, index, quoted = match.groups()
        if index is not None:
            items = node.items or []
            found: Member | Node | None = items[int(index)] if int(index) < len(items) else None
        else:
            wanted = name or json.loads(quoted)
            found = next((member for member in reversed(node.members or []) if member.key == wanted), None)
        yield found
        if found is None:
            return
        node = found.node if isinstance(found, Member) else found


def apply(text: bytes, edits: Iterable[Edit]) -> tuple[bytes, list[str]]:
    """The text with those edits made that do not touch an earlier one, and their names. Callers repeat until none is left."""
    parts: list[bytes] = []
    names: list[str] = []
    position = 0
    for edit in sorted(edits):
        if names and edit.start <= position:
            continue
        parts += [text[position : edit.start], edit.new]
        position = edit.stop
        names.append(edit.name)
    return b"".join([*parts, text[position:]]), names


def rename(member: Member, key: str, name: str) -> Edit:
    """Give a member another key."""
    return Edit(member.start, member.stop, json.dumps(key).encode(), name)


def remove(owner: Node, member: Member, name: str) -> Edit:
    """Take a member, with one of the commas around it, out of its object."""
    members = owner.members or []
    at = next(index for index, other in enumerate(members) if other is member)
    if at:
        return Edit(members[at - 1].node.stop, member.node.stop, b"", name)
    return Edit(member.start, members[1].start if len(members) > 1 else member.node.stop, b"", name)


def append(owner: Node, key: str, value: bytes, name: str) -> Edit:
    """Put one more member at the end of an object, spaced as its others are."""
    member = json.dumps(key).encode() + colon(owner) + value
    members = owner.members or []
    if not members:
        return Edit(owner.start + 1, owner.start + 1, member, name)
    end = members[-1].node.stop
    return Edit(end, end, comma(owner) + member, name)


def comma(owner: Node) -> bytes:
    """The separator of members, as an object (or, of one member, most writers) spells it."""
    members = owner.members or []
    if len(members) > 1:
        return owner.text[members[0].node.stop : members[1].start]
    return b"," if colon(owner) == b":" else b", "


def colon(owner: Node) -> bytes:
    """The separator of key and value, as an object spells it."""
    members = owner.members or []
    return owner.text[members[0].stop : members[0].node.start] if members else b": "
