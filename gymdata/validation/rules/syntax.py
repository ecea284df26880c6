"""Rules of JSON text: one line of bytes becomes a value, or findings that say where and why it does not.

The value comes from the standard library's parser, which reads what NeMo Gym reads. When that parser, its hooks or a quick
look at the bytes suspect something, an iterative scanner of our own walks the text once more and places every fault.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gymdata.validation.findings import Finding, Rule

MISSING: Any = object()
"""The value of a line that is no JSON."""

MAX_DEPTH = 500
"""Nesting beyond which a row is refused: Python's readers stop near 1000, less what their callers use up."""

_MAX_INT_DIGITS = 308
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
        return suspicious(math.inf if len(digits) > _MAX_INT_DIGITS else int(digits))

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
    depth = deepest = 0
    path = "$"
    for token in _BRACKETS.finditer(text):
        first = token[0][0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH and deepest <= MAX_DEPTH:
                path = _top_member(text, token.start())
            deepest = max(deepest, depth)
        elif first in "]}":
            depth -= 1
    if deepest <= MAX_DEPTH:
        return None
    message = f"values are nested {deepest:,} deep; the limit is {MAX_DEPTH}"
    return Finding("GD108", path, message, "flatten the value, or store it as a string")


_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _top_member(text: str, position: int) -> str:
    """Path of the top-level member around a position."""
    depth, path, expect_key = 0, "$", True
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{},]', text[:position], re.DOTALL):
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


_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(
    r"""(?P<string>"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*")"""
    r"""|(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![0-9A-Za-z_.+-])"""
    r"""|(?P<word>(?:true|false|null|NaN|-?Infinity)(?![0-9A-Za-z_]))"""
)


class _SyntaxFault(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


def _scan(text: str) -> Iterator[Finding]:
    """Every fault of a JSON text, in order; the last one may be where it stops being JSON."""
    seen: list[set[str] | None] = []
    try:
        for event, path, start, end in _events(text):
            token = text[start:end]
            if event == "open":
                seen.append(set() if token == "{" else None)
            elif event == "close":
                seen.pop()
            elif event == "key":
                key, keys = _unquoted(token), seen[-1]
                if keys is not None:
                    if key in keys:
                        yield Finding(
                            "GD105", path, f"the key {_excerpt(key)} stands twice in one object; readers keep the last value",
                            "keep one of the two",
                        )  # fmt: skip
                    keys.add(key)
                yield from _surrogates(key, path)
            elif event == "string":
                yield from _surrogates(_unquoted(token), path)
            elif event == "number":
                yield from _number(token, path)
            elif token in ("NaN", "Infinity", "-Infinity"):
                yield Finding("GD106", path, f"{token} is not JSON; other readers refuse the row", "use null, or leave the key out")
    except _SyntaxFault as fault:
        yield fault.finding


def _strings(text: str) -> Iterator[tuple[str, str]]:
    try:
        for event, path, start, end in _events(text):
            if event in ("string", "key"):
                yield path, text[start:end]
    except _SyntaxFault:
        return


def _surrogates(string: str, path: str) -> Iterator[Finding]:
    try:
        string.encode()
    except UnicodeEncodeError as error:
        message = f"\\u{ord(string[error.start]):04x} is half of a surrogate pair: no character, and not writable as UTF-8"
        yield Finding("GD102", path, message, "remove it, or restore the other half; it often comes from cutting text at a byte limit")


def _number(token: str, path: str) -> Iterator[Finding]:
    digits = token.lstrip("-")
    if not digits.isdigit():
        if math.isinf(float(token)):
            message = f"{token[:30]} is beyond the range of a double: readers make it Infinity"
            yield Finding("GD110", path, message, "write a number in range, or a string")
    elif len(digits) > _MAX_INT_DIGITS:
        message = f"an integer of {len(digits):,} digits: no reader keeps it, NeMo Gym stops on it"
        yield Finding("GD107", path, message, "write it as a string")
    elif not -(2**63) <= int(token) < 2**64:
        message = f"{token[:40]} does not fit 64 bits: many readers round it silently"
        yield Finding("GD110", path, message, "write it as a string")


def _events(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Walk a JSON text: ("open" | "close" | "key" | "string" | "number" | "word", path, start, end) of each token.

    Raises _SyntaxFault at the first place that is not JSON.
    """
    path: list[str | int] = []
    closers: list[str] = []
    position = _skip(text, 0)
    state = "value"
    while True:
        here = _path(path)
        if state == "value":
            character = text[position : position + 1]
            if character and character in "{[":
                closer = "}" if character == "{" else "]"
                yield "open", here, position, position + 1
                position = _skip(text, position + 1)
                if text[position : position + 1] == closer:
                    yield "close", here, position, position + 1
                    position = _skip(text, position + 1)
                    state = "end"
                    continue
                closers.append(closer)
                if character == "{":
                    state = "key"
                else:
                    path.append(0)
                continue
            token = _TOKEN.match(text, position)
            if token is None:
                raise _SyntaxFault(_unexpected(text, position, here, "value", closers))
            yield token.lastgroup or "", here, position, token.end()
            position = _skip(text, token.end())
            state = "end"
        elif state == "key":
            container = here
            token = _TOKEN.match(text, position)
            if token is None or token.lastgroup != "string":
                raise _SyntaxFault(_unexpected(text, position, container, "key", closers))
            path.append(_unquoted(token[0]))
            yield "key", _path(path), position, token.end()
            position = _skip(text, token.end())
            if text[position : position + 1] != ":":
                raise _SyntaxFault(_unexpected(text, position, container, "colon", closers))
            position = _skip(text, position + 1)
            state = "value"
        else:
            if not closers:
                if position < len(text):
                    raise _SyntaxFault(_unexpected(text, position, "$", "nothing", closers))
                return
            if text[position : position + 1] == closers[-1]:
                path.pop()
                yield "close", _path(path), position, position + 1
                closers.pop()
                position = _skip(text, position + 1)
                state = "end"
                continue
            if text[position : position + 1] != ",":
                raise _SyntaxFault(_unexpected(text, position, here, "comma", closers))
            last = path.pop()
            position = _skip(text, position + 1)
            if closers[-1] == "}":
                state = "key"
            else:
                path.append(int(last) + 1)
                state = "value"


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _unexpected(text: str, position: int, path: str, expected: str, closers: list[str]) -> Finding:
    """The finding for text that cannot go on as it does at `position`."""
    rest = text[position : position + 40]
    column = f"column {position + 1}"

    def fault(message: str, hint: str, where: str = path) -> Finding:
        return Finding("GD101", where, f"not JSON at {column}: {message}", hint)

    if not rest:
        return fault("the line ends in the middle of a row", "the file was cut or the row is spread over lines: write one row a line", "$")
    if rest.startswith('"') and expected in ("value", "key"):
        return _bad_string(text, position, path, fault)
    if expected == "nothing":
        if rest[0] == "{":
            return fault("a second object follows on the same line", "put each row on a line of its own", "$")
        return fault(f"text follows the row: {_excerpt(rest)}", "remove it; JSON has no comments", "$")
    if rest.startswith(("//", "#", "/*")):
        return fault("a comment; JSON has none", "remove it")
    if rest[0] == "'":
        return fault("a single quote; this looks like Python's repr", "write rows with json.dumps, not str or repr")
    word = re.match(r"[A-Za-z_]+", rest)
    if expected == "value" and word:
        python = {"True": "true", "False": "false", "None": "null", "nan": "null", "inf": "null", "undefined": "null"}
        remedy = python.get(word[0])
        return fault(f"{word[0]} is no JSON value", f"write {remedy}" if remedy else "put text in double quotes")
    number = re.match(r"[-+.]?[0-9][0-9A-Za-z_.+-]*", rest)
    if expected == "value" and number:
        digits = number[0]
        if re.match(r"-?0[xXoObB]", digits):
            why = "is not decimal"
        elif re.match(r"-?0[0-9]", digits):
            why = "begins with a zero"
        else:
            why = "is not how JSON spells a number"
        return fault(f"{digits} {why}", "write a plain decimal number, or put it in double quotes")
    if rest[0] in "}]" and expected in ("key", "value") and text[:position].rstrip(" \t\r\n").endswith(","):
        container = path if expected == "key" else path.rsplit("[", 1)[0]
        return fault("a comma before the closing bracket", "remove the comma", container)
    if expected == "comma":
        return fault(f"a comma or a closing bracket is missing before {_excerpt(rest)}", _QUOTE_HINT)
    if expected == "colon":
        return fault(f"a colon is missing before {_excerpt(rest)}", _QUOTE_HINT)
    if not closers:
        return fault(f"the line is no JSON: {_excerpt(rest)}", "each line must hold one JSON object", "$")
    return fault(f"unexpected {_excerpt(rest)}", "write rows with a JSON library")


_QUOTE_HINT = 'a quote inside a string is written \\"; write rows with a JSON library'


def _bad_string(text: str, position: int, path: str, fault: Any) -> Finding:
    """Why the string that begins at `position` is none."""
    cursor = position + 1
    while cursor < len(text):
        character = text[cursor]
        if character == '"':
            break
        if character == "\\":
            escape = text[cursor + 1 : cursor + 2]
            if escape == "u" and not re.match(r"[0-9a-fA-F]{4}", text[cursor + 2 : cursor + 6]):
                return fault(f"{_excerpt(text[cursor : cursor + 6])} is no escape: \\u needs four hexadecimal digits", _LATEX_HINT)
            if escape and escape not in '"\\/bfnrtu':
                around = text[cursor : cursor + 12]
                return fault(f"\\{escape} is no escape (at {_excerpt(around)}): backslashes, as in LaTeX, must be doubled", _LATEX_HINT)
            cursor += 2
        elif character < " ":
            return fault(f"a raw control character (U+{ord(character):04X}) in a string", "escape it: \\n, \\t or \\u00XX")
        else:
            cursor += 1
    return fault("the line ends inside a string", "the file was cut, or a line break inside a string is not escaped (\\n)", "$")


_LATEX_HINT = "write rows with a JSON library, which doubles each backslash"


def _unquoted(token: str) -> str:
    try:
        return msgspec.json.decode(token)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(token)


def _path(parts: list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else _member(part) for part in parts)


def _member(key: str) -> str:
    return f".{key}" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) else f"[{json.dumps(key, ensure_ascii=True)}]"


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 24 else text[:24] + "…")


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
        '{"responses_create_params": {"input": "half \\ud83d"}}', '{"responses_create_params": {"input": "whole \\ud83d\\ude00"}}',
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
        "They are not JSON: NeMo Gym's preparation takes them, its rollout collection does not.", "Use null, or leave the key out.",
        '{"responses_create_params": {"input": "Hi"}, "weight": NaN}', '{"responses_create_params": {"input": "Hi"}, "weight": 0.5}',
    ),
    Rule(
        "GD107", "integer-too-long", "error", "An integer that no reader keeps.",
        "Beyond 308 digits it overflows even a double; NeMo Gym dies on it.", "Write it as a string.",
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
