"""Rules of text: damage that happened on its way into the row, and placeholders that nobody filled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gymdata.validation.findings import Finding

# What became of \b, \f, \v and \a where backslashes were not doubled, and of \t, \n and \r before the rest of a LaTeX command.
_LOST = {
    "\t": r"\t(?:(?:imes|heta|riangle|frac|anh)\b|ext(?:bf|it|rm|sf|tt)?\{|frac\{|ilde[ {\\]"
    r"|au *[=^_)}\\+]|an *[\^({\\]|o +(?:\\|-?\d))",
    "\r": r"\r(?:(?:ight|ho|angle|ightarrow|floor|ceil)\b|m\{)",
    "\n": r"\n(?:(?:abla|otin|onumber|ewline|ewcommand)\b|eq +(?:-?\d|\\|[a-zA-Z]\b))",
    **{control: f"{control}[A-Za-z]" for control in "\x07\x08\x0b\x0c"},
}
_LOST_BACKSLASH = [(control, re.compile(expression)) for control, expression in _LOST.items()]
_COMMANDS = {"\x07": "\\a", "\x08": "\\b", "\x0b": "\\v", "\x0c": "\\f", "\t": "\\t", "\r": "\\r", "\n": "\\n"}

# UTF-8 read as Latin-1 or Windows-1252: a lead byte seen as a letter, then continuation bytes seen as signs. Signs that close
# a word in good text (quotes, dashes) count only where a lower-case letter follows. The quotes and bullets of Mac Roman, too.
_SPECIALS = "\u0152\u0153\u0160\u0161\u017d\u017e\u0178\u0192\u02c6\u02dc\u201a\u201e\u2020-\u2022\u2030\u2039\u20ac\u2122"
_SIGNS = "\u0080-\u00bf" + _SPECIALS
_CLOSING = "\u2013\u2014\u2018\u2019\u201c\u201d\u2026\u203a"
_ANY = _SIGNS + _CLOSING


def _mojibake(before: str, after: str) -> re.Pattern[str]:
    """The expression, with what must stand before and after the doubtful sequences."""
    return re.compile(
        f"\u00c2[\u0080-\u00bf]|\u00c3(?:[{_SIGNS}]|[{_CLOSING}]{after})"
        f"|[\u00ce\u00cf](?![\u00ab\u00bb])[{_SIGNS}]"
        f"|[\u00c4\u00c5][{_SIGNS}]{after}|{before}[\u00c4\u00c5][{_SIGNS}]"
        f"|(?:[\u00c4-\u00d6\u00d8-\u00df][{_ANY}]){{2}}|(?:[\u00e0-\u00ef][{_ANY}]{{2}}){{2}}"
        f"|\u00e2(?:\u20ac|[\u0080-\u009f{_SPECIALS}{_CLOSING}][{_ANY}])"
        "|\u201a\u00c4[\u00a2\u00b6\u00ec\u00ee\u00f2\u00f4\u00f9\u00fa]"
        "|\u00f0\u0178|\u00f0\u009f|\u00ef\u00bf\u00bd|\u00ef\u00bb\u00bf|[\u0080-\u0084\u0086-\u009f]"
    )


_MOJIBAKE = _mojibake("(?<=[a-z])", "(?=[a-z])")
_MAYBE_MOJIBAKE = _mojibake("", "")
"""The same for a text of which only the runs of characters beyond ASCII are left."""
_DOUBTFUL = [
    (b"\xc3", re.compile(rb"\xc3[\x80-\xbf](?:[\x80-\xff]|\\u)")),
    (b"\xc2", re.compile(rb"\xc2[\x80-\x9f]")),
    (b"\xef", re.compile(rb"\xef\xbf\xbd")),
    (b"\\", re.compile(rb"\\u(?:00(?:[89]|[C-Fc-f][0-9A-Fa-f](?:[\x80-\xff]|\\u))|[Ff]{3}[Dd])")),
]
"""Something of this kind is in the UTF-8 of every such text, and in JSON of it: a letter of Latin-1 before another character
beyond ASCII, a C1 control, or U+FFFD. Each with the byte that it begins with, for which a search is many times faster."""
_ASCII_AS_SPACE = b" " * 128 + bytes(range(128, 256))

# Each begins with a literal, which lets the search skip what holds none.
# Braces behind letters, digits and these signs are LaTeX arguments, code or sets.
_BRACES = re.compile(
    r"\{(?<![\\^_})\]A-Za-z0-9]\{)(?:\{?\s*([A-Za-z_][\w.\[\]'\"]{1,60})(?:![rsa])?\s*\}"
    r"|%-?\s?(?:for|if|set|include|endfor|endif)\b[^{}\n]{0,80}%\})"
)
_PERCENT = re.compile(r"%\(([A-Za-z_]\w{1,40})\)s")
_STRONG = "question|problem|prompt|query|instructions?|passage"
"""Words that only a prompt template would put in braces."""
_ANGLES = re.compile(rf"<\|?\s?((?i:(?:[a-z]+_)?(?:{_STRONG})(?:_[a-z]+)?))\s?\|?>")
_DOLLAR = re.compile(r"\$(?=[QqPpIi])((?i:question|problem|prompt|instruction)s?)(?![\w$=\[;-]|\s?=)")

_WORDS = frozenset("question problem prompt query instruction instructions passage".split())
_NAMES = frozenset(
    "input context document text options choices content statement task placeholder expected_answer user_input".split()
)
"""Names that templates use, and programs, too."""
_NOT_OWN = frozenset(
    "answer dataset split language lang id uuid name type source source_id hash_id category subject domain year".split()
)
"""Fields of rows that no template is filled with, or that formats of answers mention."""
_CODE = re.compile(r"```|\bdef \w|\bimport \w|\breturn\b|#include|\bfunction\b|\bclass \w|;\s*\n|</\w+>|\.format\(")
_IN_CODE = re.compile(r"\b[fF][rR]?[\"']|`|\bprint|\bconsole\.|\w\(")
_LATEX = re.compile(r"\\[A-Za-z]+\s*\Z")


def is_undamaged(text: str, raw: bytes | None = None) -> bool:
    """True only if `check_damage` finds nothing in a text, nor in any of several joined by NUL.

    `raw`, where it is at hand, is JSON that holds the text.
    """
    for control, expression in _LOST_BACKSLASH:
        if control in text and expression.search(text):
            return False
    if text.isascii():
        return True
    encoded = text.encode(errors="surrogatepass") if raw is None else raw
    if not any(sign in encoded and doubtful.search(encoded) for sign, doubtful in _DOUBTFUL):
        return True
    encoded = text.encode(errors="surrogatepass")
    beyond = b" ".join(encoded.translate(_ASCII_AS_SPACE).split()).decode(errors="surrogatepass")
    return "\ufffd" not in beyond and not (_MAYBE_MOJIBAKE.search(beyond) and _MOJIBAKE.search(text))


def has_no_placeholder(text: str) -> bool:
    """True only if `check_placeholders` finds nothing in a text, nor in any of several joined by NUL."""
    if "{" in text and _BRACES.search(text):
        return False
    if "$" in text and _DOLLAR.search(text):
        return False
    return not (_matches_at("%", _PERCENT, text) or _matches_at("<", _ANGLES, text))


def _matches_at(sign: str, expression: re.Pattern[str], text: str) -> bool:
    """Whether an expression that begins with a rare sign matches: faster than its search."""
    position = text.find(sign)
    while position >= 0:
        if expression.match(text, position):
            return True
        position = text.find(sign, position + 1)
    return False


def check_damage(text: str, path: str) -> Iterator[Finding]:
    """Findings about control characters that were LaTeX commands, U+FFFD, and text that was decoded wrongly."""
    lost = [match for control, expression in _LOST_BACKSLASH if control in text and (match := expression.search(text))]
    if lost:
        start = min(match.start() for match in lost)
        was = f"perhaps a {_COMMANDS[text[start]]} that lost its backslash"
        what = f"the control character U+{ord(text[start]):04X} at {_around(text, start)}, {was}"
        yield Finding("GD310", path, what, "double the backslashes where the row is written: use a JSON library")
    if text.isascii():
        return
    if "\ufffd" in text:
        position = text.index("\ufffd")
        message = f"U+FFFD at {_around(text, position)}: a character was lost in decoding"
        yield Finding("GD310", path, message, "decode the source with its real encoding")
    elif match := _MOJIBAKE.search(text):
        if match[0] <= "\u009f":
            where = f"U+{ord(match[0]):04X} at {_around(text, match.start())}"
            message = f"the control character {where}: perhaps a quote or a dash, before the text was decoded wrongly"
            yield Finding("GD310", path, message, "decode the source with its real encoding")
            return
        message = f"{match[0]!r} at {_around(text, match.start())}: UTF-8 that was read as Latin-1 or Windows-1252"
        yield Finding("GD310", path, message, "decode the source as UTF-8")


def check_placeholders(text: str, path: str, row: Mapping[str, Any]) -> Iterator[Finding]:
    """The finding about a template placeholder in a prompt: one with a usual name, or that of a text field of the row."""
    for match in _BRACES.finditer(text):
        if match[1] is None:
            if _CODE.search(text):
                continue
            yield _unfilled(match, path, "")
            return
        *owners, name = re.findall(r"\w+", match[1])
        own = isinstance(row.get(name), str) and name not in _NOT_OWN
        if (_is_strong(name) or own or (not owners and name.lower() in _NAMES and not _CODE.search(text))) and not _is_code(
            text, match
        ):
            yield _unfilled(match, path, name if own else "")
            return
    for match in _PERCENT.finditer(text):
        name = match[1]
        own = isinstance(row.get(name), str) and name not in _NOT_OWN
        if _is_strong(name) or own:
            yield _unfilled(match, path, name if own else "")
            return
    for match in _DOLLAR.finditer(text):
        if not _CODE.search(text):
            yield _unfilled(match, path, "")
            return
    for match in _ANGLES.finditer(text):
        before = text[match.start() - 1 : match.start()]
        if f"</{match[1]}" not in text and " tag" not in text and not before.isalnum() and before not in ("<", "`"):
            yield _unfilled(match, path, "")
            return


def _unfilled(match: re.Match[str], path: str, own: str) -> Finding:
    # A closing brace more than the expression takes belongs to the placeholder.
    text = match.string[match.start() : match.end() + match[0].startswith("{{")]
    hint = f"fill it from the field `{own}`" if own else "fill it, or escape it if it is part of the task"
    return Finding("GD311", path, f"the placeholder {text} was not filled", hint)


def _is_strong(name: str) -> bool:
    return not _WORDS.isdisjoint(re.sub("([a-z])([A-Z])", r"\1_\2", name).lower().split("_")) or name.lower() == "user_input"


def _is_code(text: str, match: re.Match[str]) -> bool:
    """Whether braces are those of a formatted string in a program, or the argument of a LaTeX command."""
    start, end = match.span()
    line = text[text.rfind("\n", 0, start) + 1 : start]
    stop = text.find("\n", end)
    rest = text[end : len(text) if stop < 0 else stop]
    return bool(_IN_CODE.search(line) or ".format(" in rest or _LATEX.search(line[-30:]))


def _around(text: str, position: int) -> str:
    return repr(text[max(0, position - 8) : position + 16])
