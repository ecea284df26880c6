"""Rules of JSON text: one line of bytes becomes a value, or findings that say where and why it does not.

The value comes from the standard library's parser, which reads what NeMo Gym reads. When that parser, its hooks or a quick
look at the bytes suspect something, an iterative scanner of our own walks the text once more and places every fault.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from gymdata.validation.findings import Finding, Rule

MISSING: Any = object()
"""The value of a line that is no JSON."""

MAX_DEPTH = 500
"""Nesting beyond which a row is refused: Python's readers stop near 1000, less what their callers use up."""

MAX_REPEATS = 100
"""Findings of one kind on one line; a line can hold millions."""

_MAX_INT_DIGITS = 309
_BOM = b"\xef\xbb\xbf"


def parse(line: bytes) -> tuple[Any, list[Finding]]:
    """The value of a line (without its line feed) and the findings about its text; MISSING if it is not JSON."""
    findings: list[Finding] = []
    if line.startswith(_BOM):
        findings.append(
            Finding("GD103", "$", "the line begins with a byte-order mark", "save the file as UTF-8 without a byte-order mark")
        )
        line = line[len(_BOM) :]
    if not line.strip():
        findings.append(Finding("GD104", "$", "blank line; NeMo Gym stops here with a traceback", "remove the line"))
        return MISSING, findings
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return MISSING, findings + _undecodable(line, error)
    if text.count("[") + text.count("{") > MAX_DEPTH and (deep := _too_deep(text)):
        return MISSING, [*findings, deep]
    suspect = _SURROGATE.search(text) is not None

    def suspicious(value: Any) -> Any:
        nonlocal suspect
        suspect = True
        return value

    def integer(digits: str) -> Any:
        if len(digits) < 19:
            return int(digits)
        # int() refuses more than 4300 digits.
        return suspicious(float(digits) if len(digits) > _MAX_INT_DIGITS + 1 else int(digits))

    def real(digits: str) -> float:
        value = float(digits)
        return suspicious(value) if math.isinf(value) else value

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        return found if len(found) == len(pairs) else suspicious(found)

    try:
        value = json.loads(
            text,
            object_pairs_hook=members,
            parse_int=integer,
            parse_float=real,
            parse_constant=lambda name: suspicious(float(name)),
        )
    except (ValueError, RecursionError):
        return MISSING, findings + list(_scan(text))
    return value, findings + list(_scan(text)) if suspect else findings


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _undecodable(line: bytes, error: UnicodeDecodeError) -> list[Finding]:
    """The finding for bytes that are not UTF-8, placed by the scanner, which sees a private character instead of them."""
    bad = line[error.start : error.end]
    mark = chr(0x10FFFF)
    text = line[: error.start].decode() + mark + line[error.end :].decode(errors="replace")
    path = next((path for path, string in _strings(text) if mark in string), "$")
    what = bad.hex(" ").upper()
    if bad[:1] == b"\xed":
        reason = "a surrogate encoded on its own (CESU-8, as some Java and database exports write it)"
    elif bad[:1] in (b"\xc0", b"\xc1"):
        reason = "an overlong encoding"
    else:
        reason = "not UTF-8, perhaps Latin-1 or Windows-1252"
    message = f"byte {error.start + 1} of the line is {what}: {reason}"
    return [Finding("GD102", path, message, "convert the file to UTF-8, from the encoding that it really has")]


def _too_deep(text: str) -> Finding | None:
    depth = 0
    for token in _BRACKETS.finditer(text):
        first = token[0][0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                message = f"values are nested deeper than {MAX_DEPTH}, the limit"
                return Finding("GD108", _top_member(text, token.start()), message, "flatten the value, or store it as a string")
        elif first in "]}":
            depth -= 1
    return None


# Possessive, and ended by the end of the text too, so that no text makes it look twice at a character.
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[\[\]{},]', re.DOTALL)


def _top_member(text: str, position: int) -> str:
    """Path of the top-level member around a position."""
    depth, path, expect_key = 0, "$", True
    for token in _BRACKETS.finditer(text, 0, position):
        kind = token[0]
        if kind in "[{":
            depth += 1
        elif kind in "]}":
            depth -= 1
        elif kind == "," and depth == 1:
            expect_key = True
        elif depth == 1 and expect_key and kind[0] == '"':
            path, expect_key = "$" + _member(_unquoted(kind)), False
    return path


_SPACE = re.compile(r"[ \t\r\n]*+")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_WORD = re.compile(r"[-+]?[A-Za-z_]\w*+")
_NUMBER = re.compile(r"[-+.]*[0-9][0-9A-Za-z_.+-]*+")
_MISSPELT = re.compile(f"{_STRING.pattern}|{_WORD.pattern}(?![(.'])|{_NUMBER.pattern}", re.DOTALL)
"""What stands for a value, though not as JSON spells it."""
_SOUND = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")"""
    r"""|(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)(?![0-9A-Za-z_.+-])"""
    r"""|(?P<word>(?:true|false|null|NaN|-?Infinity)(?![0-9A-Za-z_]))"""
)


class _SyntaxFault(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


def _scan(text: str) -> Iterator[Finding]:
    """The faults of a JSON text in order, at most MAX_REPEATS of a kind; the last one may be where it stops being JSON."""
    given: Counter[str] = Counter()
    for finding in _faults(text):
        given[finding.code] += 1
        if given[finding.code] <= MAX_REPEATS:
            yield finding


def _faults(text: str) -> Iterator[Finding]:
    path: list[str | int] = []
    seen: list[set[str]] = []
    broken = False
    try:
        for event, start, end in _events(text, path):
            if event == "open":
                seen.append(set())
            elif event == "close":
                seen.pop()
            elif event == "key":
                key, keys = str(path[-1]), seen[-1]
                if key in keys:
                    message = f"the key {_excerpt(key)} stands twice in one object; readers keep the last value"
                    yield Finding("GD105", _path(path), message, "keep one of the two")
                keys.add(key)
                yield from _surrogates(key, path)
            elif event == "string":
                if _SURROGATE.search(text, start, end):
                    yield from _surrogates(_unquoted(text[start:end]), path)
            elif event == "number":
                # 1e309 is the shortest that is out of range.
                if end - start >= 5:
                    yield from _number(text[start:end], path)
            elif event == "fault":
                # Where a quote is missing, strings begin where they end, and what follows from it says nothing new.
                broken = broken or text[start] == '"'
                yield _unexpected(text, start, _path(path), "value", [""])
            elif text[start] in "NI-":
                message = f"{text[start:end]} is not JSON; other readers refuse the row"
                yield Finding("GD106", _path(path), message, "use null, or leave the key out")
    except _SyntaxFault as fault:
        if not broken:
            yield fault.finding


def _strings(text: str) -> Iterator[tuple[str, str]]:
    path: list[str | int] = []
    try:
        for event, start, end in _events(text, path):
            if event in ("string", "key"):
                yield _path(path), text[start:end]
    except _SyntaxFault:
        return


def _surrogates(string: str, path: list[str | int]) -> Iterator[Finding]:
    try:
        string.encode()
    except UnicodeEncodeError as error:
        message = f"\\u{ord(string[error.start]):04x} is half of a surrogate pair: no character, and not writable as UTF-8"
        hint = "remove it, or restore the other half; it often comes from cutting text at a byte limit"
        yield Finding("GD102", _path(path), message, hint)


def _number(token: str, path: list[str | int]) -> Iterator[Finding]:
    digits = token.lstrip("-")
    if not digits.isdigit():
        if math.isinf(float(token)):
            message = f"{token[:30]} is beyond the range of a double: readers make it Infinity"
            yield Finding("GD110", _path(path), message, "write a number in range, or a string")
    elif len(digits) >= _MAX_INT_DIGITS and math.isinf(float(token)):
        message = f"an integer of {len(digits):,} digits: no reader keeps it, NeMo Gym stops on it"
        yield Finding("GD107", _path(path), message, "write it as a string")
    elif len(digits) > 18 and not -(2**63) <= int(token) < 2**64:
        message = f"{token[:40]} does not fit 64 bits: many readers round it silently"
        yield Finding("GD110", _path(path), message, "write it as a string")


def _events(text: str, path: list[str | int]) -> Iterator[tuple[str, int, int]]:
    """Walk a JSON text: ("open" | "close" | "key" | "string" | "number" | "word", start, end) of each token.

    `path`, empty at first, leads to each token while that is yielded. A "fault" is a token that JSON does not know, but
    behind which the text goes on. Raises _SyntaxFault where it does not.
    """
    closers: list[str] = []
    position = _skip(text, 0)
    state = "value"
    while True:
        if state == "value":
            if token := _TOKEN.match(text, position):
                yield token.lastgroup or "", position, token.end()
                position = _skip(text, token.end())
                state = "end"
                continue
            closer = {"{": "}", "[": "]"}.get(text[position : position + 1])
            if closer is None and closers and (token := _MISSPELT.match(text, position)):
                yield "fault", position, token.end()
                position = _skip(text, token.end())
                state = "end"
                continue
            if closer is None:
                raise _SyntaxFault(_unexpected(text, position, _path(path), "value", closers))
            yield "open", position, position + 1
            position = _skip(text, position + 1)
            closers.append(closer)
            if text[position : position + 1] == closer:
                path.append(0)
                state = "end"
            elif closer == "}":
                state = "key"
            else:
                path.append(0)
        elif state == "key":
            token = _STRING.match(text, position)
            if token is None:
                raise _SyntaxFault(_unexpected(text, position, _path(path), "key", closers))
            sound = _TOKEN.match(text, position)
            if sound is None:
                yield "fault", position, token.end()
            colon = _skip(text, token.end())
            if text[colon : colon + 1] != ":":
                raise _SyntaxFault(_unexpected(text, colon, _path(path), "colon", closers))
            path.append(_unquoted(token[0]) if sound else token[0][1:-1])
            yield "key", position, token.end()
            position = _skip(text, colon + 1)
            state = "value"
        else:
            character = text[position : position + 1]
            if not closers:
                if character:
                    raise _SyntaxFault(_unexpected(text, position, "$", "nothing", closers))
                return
            if character == closers[-1]:
                path.pop()
                yield "close", position, position + 1
                closers.pop()
                position = _skip(text, position + 1)
            elif character == ",":
                last = path.pop()
                position = _skip(text, position + 1)
                if text[position : position + 1] == closers[-1]:
                    path.append(last)
                    yield "fault", position, position + 1
                elif closers[-1] == "}":
                    state = "key"
                else:
                    path.append(int(last) + 1)
                    state = "value"
            else:
                raise _SyntaxFault(_unexpected(text, position, _path(path), "comma", closers))


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _unexpected(text: str, position: int, path: str, expected: str, closers: list[str]) -> Finding:
    """The finding for text that cannot go on as it does at `position`; `closers` is empty outside of the row."""
    rest = text[position : position + 40]

    def fault(message: str, hint: str, where: str = path) -> Finding:
        return Finding("GD101", where, f"not JSON at column {position + 1}: {message}", hint)

    if not rest:
        return fault("the line ends in the middle of a row", f"the file was cut, or {_SPREAD_HINT}", "$")
    if rest[0] == '"' and expected in ("value", "key"):
        return _bad_string(text, position, path)
    if expected == "nothing":
        if rest[0] in "{[":
            return fault("a second row follows on the same line", "put each row on a line of its own", "$")
        if rest[0] == ":" and text.lstrip().startswith('"'):
            return fault("the line is a piece of a row", _SPREAD_HINT, "$")
        if rest.rstrip() == ",":
            return fault("a comma follows the row", "remove it: in JSON Lines the line break alone parts the rows", "$")
        return fault(f"text follows the row: {_excerpt(rest)}", "remove it; JSON has no comments", "$")
    if rest.startswith(("//", "#", "/*")):
        return fault("a comment; JSON has none", "remove it")
    if rest[0] == "'":
        return fault("a single quote; this looks like Python's repr", "write rows with json.dumps, not str or repr")
    if rest[0] in "\u201c\u201d\u2018\u2019\u00ab\uff02":
        return fault(f"a typographic quote, {rest[0]}", "write straight double quotes")
    if rest[0] in "}]" and text[:position].rstrip(" \t\r\n").endswith(","):
        return fault("a comma before the closing bracket", "remove the comma", _container(path))
    if rest[0] in "}]" and not closers:
        return fault("the line is a piece of a row", _SPREAD_HINT, "$")
    if expected == "value" and (word := _WORD.match(rest)):
        remedy = _JSON_WORDS.get(word[0].lower().lstrip("+-"))
        if closers or remedy:
            return fault(f"{word[0]} is no JSON value", f"write {remedy}" if remedy else "put text in double quotes")
    if expected == "value" and (number := _NUMBER.match(rest)):
        digits = number[0]
        if re.match(r"-?0[xXoObB]", digits):
            why = "is not decimal"
        elif re.match(r"-?0[0-9]", digits):
            why = "begins with a zero"
        else:
            why = "is not how JSON spells a number"
        return fault(f"{digits} {why}", "write a plain decimal number, or put it in double quotes")
    if not rest[0].isprintable() or rest[0].isspace():
        return fault(f"the invisible character U+{ord(rest[0]):04X} outside of a string", "remove it")
    if not closers:
        return fault(f"the line is no JSON: {_excerpt(rest)}", "each line must hold one JSON object", "$")
    if expected == "key" and (word := _WORD.match(rest)):
        return fault(f"the key {word[0]} is not in double quotes", "write rows with a JSON library")
    if expected == "comma":
        return fault(f"a comma or a closing bracket is missing before {_excerpt(rest)}", _QUOTE_HINT)
    if expected == "colon":
        return fault(f"a colon is missing before {_excerpt(rest)}", _QUOTE_HINT)
    return fault(f"unexpected {_excerpt(rest)}", "write rows with a JSON library")


_QUOTE_HINT = 'a quote inside a string is written \\"; write rows with a JSON library'
_SPREAD_HINT = "the row is spread over lines: write one row a line"
_JSON_WORDS = {"true": "true", "false": "false", "none": "null", "null": "null", "nan": "null", "inf": "null",
               "infinity": "null", "undefined": "null", "na": "null", "nil": "null"}  # fmt: skip


def _bad_string(text: str, position: int, path: str) -> Finding:
    """Why the string that begins at `position` is none."""
    match = _SOUND.match(text, position + 1)
    cursor = match.end() if match else position + 1
    if cursor >= len(text):
        message = f"not JSON at column {position + 1}: the line ends inside the string that begins here"
        return Finding("GD101", "$", message, "the file was cut, or a line break inside a string is not escaped (\\n)")
    around = _excerpt(text[max(position + 1, cursor - 8) : cursor + 12])
    if text[cursor] != "\\":
        message, hint = f"a raw control character (U+{ord(text[cursor]):04X}) in a string", "escape it: \\n, \\t or \\u00XX"
    elif text[cursor + 1 : cursor + 2] == "u":
        message, hint = f"{_excerpt(text[cursor : cursor + 6])} is no escape: \\u needs four hexadecimal digits", _LATEX_HINT
    elif cursor + 1 == len(text):
        message, hint = "the line ends inside a string", "the file was cut"
    else:
        message = f"\\{text[cursor + 1]} is no escape (at {around}): backslashes, as in LaTeX, must be doubled"
        hint = _LATEX_HINT
    return Finding("GD101", path, f"not JSON at column {cursor + 1}: {message}", hint)


_LATEX_HINT = "write rows with a JSON library, which doubles each backslash"


def _unquoted(token: str) -> str:
    """What a string says; where it is no JSON (a control character, a wrong escape, no end), as it is written."""
    try:
        return msgspec.json.decode(token)
    except (msgspec.DecodeError, UnicodeError):
        try:
            return json.loads(token)
        except ValueError:
            return token.strip('"')


def _path(parts: list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else _member(part) for part in parts)


def _member(key: str) -> str:
    return f".{key}" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) else f"[{json.dumps(key, ensure_ascii=True)}]"


def _container(path: str) -> str:
    """The path above the last key or index."""
    return re.sub(r'(?:\.\w+|\[(?:\d+|"(?:[^"\\]|\\.)*")\])\Z', "", path)


def _excerpt(text: str) -> str:
    """The beginning of a text in quotes, as it stands in the file: backslashes are not doubled."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:24])
    return f"'{shown}{'…' if len(text) > 24 else ''}'"


_ROW = '{"responses_create_params": {"input": "What is 2+2?"}, "expected_answer": "4"}'

SYNTAX_RULES = [
    Rule(
        "GD101", "not-json", "error", "The line is not JSON.",
        "Every reader refuses it. NeMo Gym leaves the row out of its statistics, then stops on it with a traceback.",
        "Write rows with a JSON library: one object a line, nothing else on it.",
        '{"responses_create_params": {"input": "What is 2+2?"}, "expected_answer": "4",}', _ROW,
    ),
    Rule(
        "GD102", "bad-text", "error", "Bytes that are not UTF-8, or half of a surrogate pair.",
        "JSON is UTF-8. What some readers let through, others refuse: NeMo Gym's rollout collection does.",
        "Convert the file to UTF-8 from the encoding it really has; cut text between characters, not bytes.",
        '{"responses_create_params": {"input": "half \\ud83d"}}',
        '{"responses_create_params": {"input": "whole \\ud83d\\ude00"}}',
    ),
    Rule(
        "GD103", "byte-order-mark", "warning", "The line begins with a byte-order mark.",
        "gymdata reads on; NeMo Gym stops at it.", "Save the file as UTF-8 without a byte-order mark.",
        "\ufeff" + _ROW, _ROW, fixable=True,
    ),
    Rule(
        "GD104", "blank-line", "warning", "A line with nothing on it.",
        "gymdata skips it; NeMo Gym stops at it with a traceback that names neither file nor line.", "Remove the line.",
        _ROW + "\n\n" + _ROW.replace("2+2", "1+3"), _ROW, fixable=True,
    ),
    Rule(
        "GD105", "repeated-key", "warning", "An object has the same key twice.",
        "Readers keep the last value and drop the others silently.", "Keep one of them.",
        '{"responses_create_params": {"input": "What is 2+2?"}, "expected_answer": "4", "expected_answer": "5"}', _ROW,
    ),
    Rule(
        "GD106", "not-finite", "error", "NaN or Infinity as a value.",
        "They are not JSON: NeMo Gym's preparation takes them, its rollout collection does not.",
        "Use null, or leave the key out.",
        '{"responses_create_params": {"input": "Hi"}, "weight": NaN}',
        '{"responses_create_params": {"input": "Hi"}, "weight": 0.5}',
    ),
    Rule(
        "GD107", "integer-too-long", "error", "An integer that no reader keeps.",
        "It overflows even a double (309 digits); NeMo Gym dies on it.", "Write it as a string.",
        '{"responses_create_params": {"input": "Hi"}, "big": %s}' % ("9" * 400),
        '{"responses_create_params": {"input": "Hi"}, "big": "%s"}' % ("9" * 400),
    ),
    Rule(
        "GD108", "too-deep", "error", f"Values nested deeper than {MAX_DEPTH}.",
        "JSON readers recurse: beyond a depth of their own each of them fails, some by crashing.",
        "Flatten the value, or store it as a string.",
        '{"responses_create_params": {"input": "Hi"}, "deep": %s}' % ("[" * 600 + "]" * 600),
        '{"responses_create_params": {"input": "Hi"}, "deep": [[[]]]}',
    ),
    Rule(
        "GD110", "number-rounded", "warning", "A number that readers change.",
        "Integers beyond 64 bits and numbers beyond a double become something else in most languages.", "Write it as a string.",
        '{"responses_create_params": {"input": "Hi"}, "id": 18446744073709551616}',
        '{"responses_create_params": {"input": "Hi"}, "id": "18446744073709551616"}',
    ),
]  # fmt: skip
