"""Reads YAML into nodes that remember their file and line, safely: no objects, no alias bombs, no duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import yaml

from gymdata.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_NODES = 100_000
MAX_DEPTH = 100

Key = str | int | float | bool


class Place(NamedTuple):
    """Where something was written: a file (or what an override was called) and a 1-based line, 0 if it has none."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(slots=True)
class Node:
    """A value and its place. `value` is a dict of nodes, a list of nodes or a scalar; `text` is the scalar as it was written."""

    value: Any
    place: Place
    text: str = ""

    def plain(self) -> Any:
        """The value without places: dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def get(self, *path: Key) -> Node | None:
        """The node below, by dict keys and list indexes; None where there is none."""
        node: Node | None = self
        for key in path:
            value = node.value if node is not None else None
            if isinstance(value, dict):
                node = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value):
                node = value[key]
            else:
                return None
        return node

    def walk(self, path: tuple[Key, ...] = ()) -> Iterator[tuple[tuple[Key, ...], Node]]:
        """Every node with its path, this one first."""
        yield path, self
        children = (
            self.value.items() if isinstance(self.value, dict) else enumerate(self.value) if isinstance(self.value, list) else ()
        )
        for key, child in children:
            yield from child.walk((*path, key))


def of(value: Any, place: Place) -> Node:
    """Nodes for a plain value, all at one place."""
    if isinstance(value, dict):
        return Node({key: of(child, place) for key, child in value.items()}, place)
    if isinstance(value, list):
        return Node([of(child, place) for child in value], place)
    return Node(value, place, str(value))


def dotted(path: tuple[Key, ...]) -> str:
    """A path as people write it: `agent.datasets[0].name`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) and not isinstance(key, bool) else f".{key}" if text else str(key)
    return text


def load(path: Path, name: str = "") -> Node:
    """The one document of a YAML file (an empty file is an empty mapping); `name` is what places call the file.

    Scalars follow YAML 1.1 as OmegaConf reads it: `no` is false, `017` is 15, `1:30` is 90, but `1e3` is a number and a date is text.
    Raises ConfigError, with the line, for what is not YAML, for a key written twice, a tag beyond plain data, more than 1 MiB,
    aliases that expand beyond 100 000 values; FileNotFoundError if there is no such file.
    """
    name = name or str(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise ConfigError("is a directory, not a YAML file", "name the file inside it", name) from None
    except PermissionError:
        raise ConfigError("cannot be read: permission denied", path=name) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"has more than {MAX_BYTES:,} bytes, the limit of a configuration", "is this a data file?", name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", "save the file as UTF-8", name, line) from None
    try:
        _refuse_depth(text, name)
        document = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1, len(text.splitlines())) if mark else 0
        raise ConfigError(f"is not YAML: {error.problem or error.context}", path=name, line=line) from None
    except yaml.YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", None) or 0) + 1
        raise ConfigError(f"is not YAML: {str(error).splitlines()[0]}", path=name, line=line) from None
    except RecursionError:
        raise ConfigError(f"nests deeper than {MAX_DEPTH} levels", path=name) from None
    return Node({}, Place(name, 1)) if document is None else _Reader(name).node(document, 1)


def _refuse_depth(text: str, name: str) -> None:
    """Raises ConfigError for text nested too deep to compose: libyaml's composer is recursive and would crash the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ConfigError(f"nests deeper than {MAX_DEPTH} levels", path=name, line=event.start_mark.line + 1)


try:
    from yaml import CSafeLoader as _Base
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as _Base


class _Loader(_Base):  # pyright: ignore[reportGeneralTypeIssues]
    """YAML 1.1's implicit types, less timestamps, plus floats such as `1e3`: what OmegaConf resolves."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


class _Reader:
    """Turns composed YAML into nodes, counting what aliases expand to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.entry = 1  # the line of the top-level entry being read: an alias's own line is not kept
        self.scalars = yaml.constructor.SafeConstructor()

    def node(self, source: yaml.Node, line: int, depth: int = 0) -> Node:
        self.count += 1
        if depth == 1:
            self.entry = line
        if self.count > MAX_NODES:
            message = f"has more than {MAX_NODES} values once its aliases are expanded"
            raise ConfigError(message, "write fewer aliases", self.name, self.entry)
        if depth > MAX_DEPTH:
            raise ConfigError(f"nests deeper than {MAX_DEPTH} levels", "an alias may not contain itself", self.name, self.entry)
        place = Place(self.name, line)
        if isinstance(source, yaml.ScalarNode):
            return Node(self.scalar(source), place, source.value)
        if isinstance(source, yaml.SequenceNode) and source.tag == "tag:yaml.org,2002:seq":
            return Node([self.node(item, item.start_mark.line + 1, depth + 1) for item in source.value], place)
        if isinstance(source, yaml.MappingNode) and source.tag == "tag:yaml.org,2002:map":
            return Node(self.mapping(source, depth), place)
        raise self.error(source, f"the tag {source.tag!r} is not plain data", "remove the tag")

    def mapping(self, source: yaml.MappingNode, depth: int) -> dict[Key, Node]:
        merged: dict[Key, Node] = {}
        own: dict[Key, Node] = {}
        for key_source, value_source in source.value:
            line = key_source.start_mark.line + 1
            if key_source.tag == "tag:yaml.org,2002:merge":
                value = self.node(value_source, line, depth + 1).value
                for mapping in value if isinstance(value, list) else [Node(value, Place(self.name, line))]:
                    if not isinstance(mapping.value, dict):
                        raise self.error(value_source, "`<<` merges mappings only")
                    merged = {**mapping.value, **merged}
                continue
            key = self.scalar(key_source) if isinstance(key_source, yaml.ScalarNode) else None
            if not isinstance(key, Key):
                raise self.error(key_source, "a key must be text or a number", "put the key in quotes")
            if key in own:
                raise self.error(
                    key_source, f"the key `{key_source.value}` is written twice in one mapping", "remove or rename one"
                )
            own[key] = self.node(value_source, line, depth + 1)
        return {**merged, **own}

    def scalar(self, source: yaml.ScalarNode) -> Any:
        match source.tag.removeprefix("tag:yaml.org,2002:"):
            case "str":
                return source.value
            case "null":
                return None
            case "bool" if source.value.lower() in self.scalars.bool_values:
                return self.scalars.construct_yaml_bool(source)
            case "int" | "float" as kind:
                try:
                    return getattr(self.scalars, f"construct_yaml_{kind}")(source)
                except (ValueError, IndexError):
                    raise self.error(
                        source, f"{source.value[:40]!r} is not a number that can be read", "put it in quotes"
                    ) from None
        raise self.error(source, f"the tag {source.tag!r} is not plain data", "remove the tag, or put the value in quotes")

    def error(self, source: yaml.Node, message: str, hint: str = "") -> ConfigError:
        return ConfigError(message, hint, self.name, source.start_mark.line + 1)
