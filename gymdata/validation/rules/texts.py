"""Rules of text: damage that happened on its way into the row, and placeholders that nobody filled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from gymdata.validation.findings import Finding

# What became of \b, \f, \v and \a where backslashes were not doubled, and of \t and \r in front of the rest of a LaTeX command.
_LOST_BACKSLASH = re.compile(
    r"[\x07\x08\x0b\x0c](?=[A-Za-z])|\t(?=(?:imes|heta|riangle|frac)\b|ext(?:bf|it|rm)?\{|frac\{)|\r(?=(?:ight|ho|angle|ightarrow)\b)"
)
_COMMANDS = {"\x07": "\\a", "\x08": "\\b", "\x0b": "\\v", "\x0c": "\\f", "\t": "\\t", "\r": "\\r"}

# UTF-8 read as Latin-1 or Windows-1252: a lead byte seen as a letter, followed by a continuation byte seen as a sign.
_MOJIBAKE = re.compile(
    "[\u00c2\u00c3][\u0080-\u00bf]|\u00e2(?:\u20ac[\u0080-\u00bf\u0152\u0153\u0161\u017e\u02c6\u02dc\u2013-\u203a\u20ac\u2122]"
    "|\u0080[\u0080-\u00bf]|\u2030|\u02c6\u017e)|\u00f0\u0178|\u00ef\u00bf\u00bd|\u00ef\u00bb\u00bf"
)

# Each begins with a literal, which lets the search skip what holds none.
_BRACES = re.compile(r"\{\{?\s*([A-Za-z_]\w{1,40})\s*\}")
_PERCENT = re.compile(r"%\(([A-Za-z_]\w{1,40})\)s")
_ANGLES = re.compile(r"<\|?([A-Z_]{4,40})\|?>")
_NO_PLACEHOLDER_AFTER = frozenset("\\^_})]") | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
"""Braces behind these are LaTeX arguments, code or sets."""
_NAMES = frozenset(
    "question problem prompt query input instruction instructions context passage document text options choices answer"
    " expected_answer problem_statement user_input user_prompt user_query user_question task content statement placeholder".split()
)
"""Names that prompt templates give to what the row must bring."""
_METADATA = frozenset("dataset split language lang id uuid name type source source_id hash_id category subject domain year".split())


def is_plain_text(text: str) -> bool:
    """True only if no rule of this module can fire on a text, wherever it stands."""
    if "\x0c" in text or "\x08" in text or "\x0b" in text or "\x07" in text:
        return False
    if ("\t" in text or "\r" in text) and _LOST_BACKSLASH.search(text):
        return False
    if not text.isascii() and ("\ufffd" in text or _is_mojibake(text)):
        return False
    if "{" in text and next(_placeholders_in_braces(text), None):
        return False
    if "%(" in text and _PERCENT.search(text):
        return False
    return not ("<" in text and _ANGLES.search(text))


def check_damage(text: str, path: str) -> Iterator[Finding]:
    """Findings about control characters that were LaTeX commands, U+FFFD, and text that was decoded wrongly."""
    if match := _LOST_BACKSLASH.search(text):
        what = f"the control character U+{ord(match[0]):04X} at {_around(text, match.start())}, perhaps a {_COMMANDS[match[0]]} that lost its backslash"
        yield Finding("GD310", path, what, "double the backslashes where the row is written: use a JSON library")
    if text.isascii():
        return
    if "\ufffd" in text:
        position = text.index("\ufffd")
        message = f"U+FFFD at {_around(text, position)}: a character was lost in decoding"
        yield Finding("GD310", path, message, "decode the source with its real encoding")
    elif _is_mojibake(text) and (match := _MOJIBAKE.search(text)):
        message = f"{match[0]!r} at {_around(text, match.start())}: UTF-8 that was read as Latin-1 or Windows-1252"
        yield Finding("GD310", path, message, "decode the source as UTF-8")


def check_placeholders(text: str, path: str, row: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about template placeholders in a prompt: those with a usual name, or that of a text field of the row."""
    matches = chain(_placeholders_in_braces(text), _PERCENT.finditer(text), _ANGLES.finditer(text))
    for match in matches:
        name = match[1]
        own = isinstance(row.get(name), str) and name not in _METADATA
        if (name.lower() in _NAMES or own) and not (match[0][0] == "<" and f"</{name}" in text):
            message = f"the placeholder {match[0]} was not filled"
            hint = f"fill it from the field `{name}`" if own else "fill it, or escape it if it is part of the task"
            yield Finding("GD311", path, message, hint)
            return


def _placeholders_in_braces(text: str) -> Iterator[re.Match[str]]:
    for match in _BRACES.finditer(text):
        start = match.start()
        if not start or text[start - 1] not in _NO_PLACEHOLDER_AFTER:
            yield match


def _is_mojibake(text: str) -> bool:
    """Whether the expression matches; it is only asked if one of the letters that it begins with is there."""
    for lead in "\u00c3\u00c2\u00e2\u00f0\u00ef":
        if lead in text:
            return _MOJIBAKE.search(text) is not None
    return False


def _around(text: str, position: int) -> str:
    return repr(text[max(0, position - 8) : position + 16])
