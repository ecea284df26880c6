"""Reads `key=value` overrides as Hydra writes them: `a.b=1`, `+a=[x, {k: v}]`, `++a='quoted, text'`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gymdata.environments.yaml import Key, Node, Place, of
from gymdata.errors import UsageError

_INT = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
_FLOAT = re.compile(
    r"[+-]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))([eE][+-]?[0-9]+)?|[+-]?(inf|nan)", re.IGNORECASE
)
_WORDS = {"true": True, "false": False, "null": None}


class Override(NamedTuple):
    """A path into the configuration and the value to put there."""

    path: tuple[Key, ...]
    value: Node


def parse(text: str) -> Override:
    """One override. `key=v`, `+key=v` and `++key=v` mean the same: set, whether or not the key is there.

    Raises UsageError, which never repeats the value: it may be a secret.
    """
    key, equals, value = text.partition("=")
    name = key.lstrip("+").strip()
    if key.startswith("~"):
        raise UsageError(f"the override {key!r} deletes a key, which is not supported", "set it to null: ++key=null")
    if not equals or not name or any(not part for part in name.split(".")) or any(c.isspace() or c in "@{}[]" for c in name):
        raise UsageError(f"{key[:60]!r} is not an override", "write key.subkey=value, for instance ++policy_model_name=tiny")
    place = Place(f"the override {key}")
    parser = _Parser(value.strip(), key)
    return Override(tuple(int(part) if part.isdecimal() else part for part in name.split(".")), of(parser.whole(), place))


def parse_primitive(text: str) -> Any:
    """A word as Hydra types it: an int, a float, true/false, null, otherwise the text itself (`yes` and `0x1F` stay text)."""
    if _INT.fullmatch(text):
        return int(text) if len(text) < 4000 else text
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return _WORDS.get(text.lower(), text)


class _Parser:
    """Recursive descent over one value."""

    def __init__(self, text: str, key: str) -> None:
        self.text, self.key, self.position, self.depth = text, key, 0, 0

    def whole(self) -> Any:
        if self.text[:1] not in ("[", "{", "'", '"'):
            value = self.word("")
            if self.position < len(self.text):
                raise self.error("has a comma outside quotes", "put the value in quotes, or in [brackets] for a list")
            return value
        value = self.value()
        if self.position < len(self.text):
            raise self.error("goes on after its end", "put the whole value in quotes")
        return value

    def value(self) -> Any:
        match self.peek():
            case "[":
                return self.items("]", self.value)
            case "{":
                return dict(self.items("}", self.pair))
            case "'" | '"' as quote:
                return self.quoted(quote)
        return self.word(",]}")

    def items(self, end: str, item: Any) -> list[Any]:
        self.position += 1
        self.depth += 1
        if self.depth > 50:
            raise self.error("nests too deep")
        found: list[Any] = []
        while self.peek() != end:
            found.append(item())
            if self.peek() == ",":
                self.position += 1
            elif self.peek() != end:
                raise self.error(f"has no closing {end!r}", "mind the quotes of your shell")
        self.position += 1
        self.depth -= 1
        self.peek()
        return found

    def pair(self) -> tuple[Any, Any]:
        key = self.quoted(self.text[self.position]) if self.peek() in ("'", '"') else self.word(":,}")
        if self.peek() != ":":
            raise self.error("has a key without a value", "write {key: value}")
        self.position += 1
        return key, self.value()

    def quoted(self, quote: str) -> str:
        characters: list[str] = []
        self.position += 1
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == "\\" and self.text[self.position + 1 : self.position + 2] == quote:
                self.position += 1
                character = quote
            elif character == quote:
                self.position += 1
                self.peek()
                return "".join(characters)
            characters.append(character)
            self.position += 1
        raise self.error(f"has no closing {quote}", "mind the quotes of your shell")

    def word(self, ends: str) -> Any:
        """Text up to one of `ends` (a comma at least); `\\,` is a comma, and an interpolation is taken whole."""
        characters: list[str] = []
        braces = 0
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == "\\" and self.text[self.position + 1 : self.position + 2] in tuple(",:[]{}='\""):
                self.position += 1
                character = self.text[self.position]
            elif self.text.startswith("${", self.position):
                braces += 1
            elif braces and character == "}":
                braces -= 1
            elif not braces and character in (ends or ","):
                break
            characters.append(character)
            self.position += 1
        text = "".join(characters).strip()
        if not text and ends and self.peek() == "":
            raise self.error("ends too early", "mind the quotes of your shell")
        return parse_primitive(text)

    def peek(self) -> str:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1
        return self.text[self.position : self.position + 1]

    def error(self, message: str, hint: str = "") -> UsageError:
        return UsageError(f"the value of the override {self.key!r} {message}", hint)
