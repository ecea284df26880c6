"""Resolves `${…}` as OmegaConf does: keys of the configuration, environment variables, defaults; within bounds."""

from __future__ import annotations

import os
import re
from typing import Any

from gymdata.environments.overrides import parse_primitive
from gymdata.environments.yaml import Key, Node, dotted

MISSING = "???"
MAX_STEPS = 10_000
MAX_LENGTH = 1 << 16

_RESOLVER = re.compile(r"\s*([A-Za-z_][\w.]*):(.*)", re.DOTALL)
_KEY_PART = re.compile(r"\[([^\[\]]+)\]|([^.\[\]]+)|(\.)")


class InterpolationError(ValueError):
    """An interpolation that cannot be resolved; the message says which and why."""


def is_interpolation(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


class Interpolator:
    """Resolves nodes of one configuration. Environment variables are read when they are met."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.steps = 0

    def resolve(self, node: Node, path: tuple[Key, ...], active: frozenset[tuple[Key, ...]] = frozenset()) -> Node:
        """The node, which stands at `path`, with nothing left to resolve. Places are kept. Raises InterpolationError."""
        if isinstance(node.value, dict):
            return Node({key: self.resolve(child, (*path, key), active) for key, child in node.value.items()}, node.place)
        if isinstance(node.value, list):
            return Node([self.resolve(child, (*path, index), active) for index, child in enumerate(node.value)], node.place)
        if not is_interpolation(node.value):
            return node
        if path in active:
            raise InterpolationError(f"`{node.value}` refers to itself")
        value = self.text(node.value, path, active | {path})
        return Node(value.value if isinstance(value, Node) else value, node.place, node.text)

    def text(self, text: str, path: tuple[Key, ...], active: frozenset[tuple[Key, ...]]) -> Any:
        """The value of a text: typed if it is one interpolation and nothing else, otherwise text."""
        parts: list[Any] = []
        position = 0
        while (start := text.find("${", position)) >= 0:
            backslashes = len(text[:start]) - len(text[:start].rstrip("\\"))
            parts.append(text[position : start - backslashes] + "\\" * (backslashes // 2))
            if backslashes % 2:
                parts.append("${")
                position = start + 2
                continue
            end = _closing(text, start + 2)
            if end < 0:
                raise InterpolationError(f"`{text}` has no closing brace")
            value = self.one(text[start + 2 : end], path, active)
            if start == 0 and end == len(text) - 1:
                return value
            parts.append(str(value.plain() if isinstance(value, Node) else value))
            position = end + 1
        parts.append(text[position:])
        if sum(map(len, parts)) > MAX_LENGTH:
            raise InterpolationError(f"becomes longer than {MAX_LENGTH} characters")
        return "".join(parts)

    def one(self, body: str, path: tuple[Key, ...], active: frozenset[tuple[Key, ...]]) -> Any:
        """The value of what stands between `${` and `}`: a Node for a key of the configuration, otherwise a scalar."""
        self.steps += 1
        if self.steps > MAX_STEPS or len(active) > 50:
            raise InterpolationError("takes too many steps to resolve")
        if (match := _RESOLVER.fullmatch(body)) is None:
            return self.key(self.argument(body, path, active), path, active)
        name, arguments = match[1], [self.argument(item, path, active) for item in _split(match[2])]
        match name, arguments:
            case "oc.env", [variable]:
                if (found := os.environ.get(variable)) is None:
                    raise InterpolationError(f"the environment variable {variable} is not set")
                return found
            case "oc.env", [variable, default]:
                return os.environ.get(variable, None if default == "null" else _unquoted(default))
            case "oc.select", [key, *default]:
                try:
                    return self.key(key, path, active)
                except InterpolationError:
                    return parse_primitive(default[0]) if default else None
            case "oc.decode", [value]:
                return parse_primitive(_unquoted(value))
        raise InterpolationError(f"`${{{name}:…}}` is not a resolver that gymdata knows (oc.env, oc.select, oc.decode)")

    def argument(self, text: str, path: tuple[Key, ...], active: frozenset[tuple[Key, ...]]) -> str:
        value = self.text(text.strip(), path, active)
        return str(value.plain() if isinstance(value, Node) else value)

    def key(self, key: str, path: tuple[Key, ...], active: frozenset[tuple[Key, ...]]) -> Node:
        """The resolved node that a key names: `a.b`, `a[0]`, or relative: `.sibling`, `..uncle`."""
        dots = len(key) - len(key.lstrip("."))
        at: tuple[Key, ...] = path[: len(path) - dots] if dots else ()
        node = self.root.get(*at)
        names = [bracket or name for bracket, name, dot in _KEY_PART.findall(key[dots:]) if not dot]
        if not names or dots > len(path):
            raise InterpolationError(f"`${{{key}}}` names no key")
        for name in names:
            if node is not None and is_interpolation(node.value):
                node = self.resolve(node, at, active)
            step: Key = int(name) if node is not None and isinstance(node.value, list) and name.isdecimal() else name
            node = node.get(step) if node is not None else None
            at = (*at, step)
            if node is None:
                raise InterpolationError(f"`${{{key}}}`: the configuration has no `{dotted(at)}`")
        assert node is not None
        if node.value == MISSING:
            raise InterpolationError(f"`${{{key}}}`: `{dotted(at)}` has no value yet ({MISSING})")
        if at in active:
            raise InterpolationError(f"`${{{key}}}` refers to itself")
        return self.resolve(node, at, active | {at} if isinstance(node.value, dict | list) else active)


def _closing(text: str, start: int) -> int:
    """The index of the brace that closes an interpolation whose body starts at `start`, or -1. Quoted braces do not count."""
    depth, quote, position = 1, "", start
    while position < len(text):
        character = text[position]
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif text.startswith("${", position):
            depth, position = depth + 1, position + 1
        elif character == "}":
            depth -= 1
            if not depth:
                return position
        position += 1
    return -1


def _split(arguments: str) -> list[str]:
    """A resolver's arguments: split at commas outside quotes and nested interpolations."""
    parts, start, position = [], 0, 0
    while position < len(arguments):
        if arguments.startswith("${", position):
            position = _closing(arguments, position + 2)
            if position < 0:
                break
        elif arguments[position] in "'\"":
            position = arguments.find(arguments[position], position + 1)
            if position < 0:
                break
        elif arguments[position] == ",":
            parts.append(arguments[start:position])
            start = position + 1
        position += 1
    return [*parts, arguments[start:]]


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text
