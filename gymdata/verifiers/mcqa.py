r"""Multiple choice: the letter of an option, found in the response by NeMo Gym's grading modes.

Source of the rules: NeMo Gym 0.7.0, resources server `mcqa`. One difference: `output_regex` runs on RE2, whose time is
linear in the text, so that no expression can run away; its `\w`, `\d` and `\b` know ASCII only, and an expression that RE2 refuses
(look-around, back references) is a failure of the row, where NeMo Gym tries the next way.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from gymdata.errors import UsageError
from gymdata.verifiers import Gold, Response, Row, Verdict, VerifierFailure
from gymdata.verifiers.responses import last_boxed, message, output_text

MODES = ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md")

_ONLY_LETTER = re.compile(r"[^A-Za-z]*([A-Z])[^A-Za-z]*")
_LABEL = re.compile(r"\s*([A-Z])\s*[:).\-]")
_ANSWER = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
_ANSWER_MARKDOWN = re.compile(r"[*_]{0,2}Answer[*_]{0,2}\s*:[*_\s]{0,2}(.+)", re.IGNORECASE)
_LETTER = re.compile(r"(?<![A-Za-z])([A-Za-z])(?![A-Za-z])")
_LEADING = re.compile(r"([a-zA-Z])(?![a-zA-Z0-9])")
_STANDALONE = re.compile(r"\b[A-Z]\b")
_SEPARATOR = re.compile(r"\s*[/|&,;]\s*|\s+(?:or|and)\s+|\s+", re.IGNORECASE)
_OTHER_SCRIPTS = str.maketrans({"أ": " A", "ب": " B", "ج": " C", "د": " D", "অ": " A", "ব": " B", "ড": " C", "ঢ": " D"})


@dataclass(frozen=True)
class Mcqa:
    """`mode`, where the configuration gives one, goes before the row's `grading_mode`."""

    mode: str | None = None
    name: str = field(default="mcqa", init=False, repr=False)
    version: str = field(default="1", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Mcqa:
        """From the body of NeMo Gym's resources server. Raises UsageError for an unknown grading mode."""
        mode = options.get("grading_mode")
        if mode is not None and mode not in MODES:
            raise UsageError(f"the resources server's `grading_mode` is {mode!r}", f"use one of {', '.join(MODES)}")
        return cls(mode)

    def verify(self, row: Row, response: Response) -> Verdict:
        """1 if the letter found is the expected one. Extras: extracted_answer, expected_answer (upper case), reason."""
        options = _options(row)
        letters = {letter for letter, _ in options}
        gold = _gold(row)
        text = output_text(response).strip()
        mode = self._mode(row)
        letter = None
        if text:
            template = row.get("template_metadata")
            template = template if isinstance(template, Mapping) else {}
            letter = _by_expressions(text, template.get("output_regex"), letters, options)
            if letter is None:
                letter = _by_mode(text, mode, letters, options, template)
        right = letter is not None and letter == gold
        found = f"found {letter}" if letter else "the response is empty" if not text else f"no letter of an option found ({mode})"
        reason = found if right or not letter else f"{found}, expected {gold}"
        return Verdict(float(right), {"extracted_answer": letter, "expected_answer": gold, "reason": reason})

    def gold(self, row: Row) -> Gold:
        """The expected letter, written as the row's grading mode reads it, and another option's."""
        letter = _gold(row)
        others = [other for other, _ in _options(row) if other != letter]
        wrong = tuple(answer for other in others[:1] if (answer := self._answer(row, other)))
        return Gold("$.expected_answer", self._answer(row, letter), wrong)

    def _answer(self, row: Row, letter: str) -> Response | None:
        template = row.get("template_metadata")
        if isinstance(template, Mapping) and template.get("output_regex"):
            for text in (
                f"\\boxed{{{letter}}}",
                f"Answer: {letter}",
                f"The answer is {letter}",
                f"<answer>{letter}</answer>",
                letter,
            ):
                if self.verify(row, message(text)).extras["extracted_answer"] == letter:
                    return message(text)
            return None
        return message(f"\\boxed{{{letter}}}" if "boxed" in self._mode(row) else f"Answer: {letter}")

    def _mode(self, row: Row) -> str:
        mode = self.mode or row.get("grading_mode") or MODES[0]
        if mode not in MODES:
            raise VerifierFailure(f"the row's `grading_mode` is {mode!r}, none of {', '.join(MODES)}")
        return mode


def _gold(row: Row) -> str:
    gold = row.get("expected_answer")
    if not isinstance(gold, str) or not gold.strip():
        raise VerifierFailure("the row has no `expected_answer`, the letter of an option")
    return gold.strip().upper()


def _options(row: Row) -> list[tuple[str, str]]:
    """(letter in upper case, text) of each option that has a letter and a text."""
    options = row.get("options")
    return [
        (letter.upper(), text)
        for option in (options if isinstance(options, list) else [])
        if isinstance(option, Mapping)
        for letter, text in option.items()
        if len(letter) == 1 and letter.isalpha() and isinstance(text, str)
    ]


def _by_mode(text: str, mode: str, letters: set[str], options: list[tuple[str, str]], template: Mapping[str, Any]) -> str | None:
    if mode == "lenient_answer_colon":
        return _after_colon(text, letters, options)
    if mode == "lenient_answer_colon_md":
        prefix = template.get("answer_prefix")
        payloads = list(_payloads(text, prefix if isinstance(prefix, str) else ""))
        letter = next((letter for payload in reversed(payloads) if (letter := _choice(payload, letters))), None)
        return letter or (_by_mode(text, MODES[0], letters, options, template) if prefix else None)
    inner = last_boxed(text)
    if inner is None:
        return None
    bare = _unwrapped(inner.strip())
    match = _ONLY_LETTER.fullmatch(bare) or _LABEL.match(bare)
    if match and match.group(1) in letters:
        return match.group(1)
    if mode == "lenient_boxed":
        written = {_plain(inner), _plain(bare)}
        matching = {letter for letter, option in options if _plain(option) and any(_plain(option) in one for one in written)}
        return matching.pop() if len(matching) == 1 else None
    return None


def _after_colon(text: str, letters: set[str], options: list[tuple[str, str]]) -> str | None:
    """What follows the first "answer:": a letter, or the whole text of an option."""
    match = _ANSWER.search(text)
    if not match:
        return None
    candidate = _unwrapped(match.group(1)).strip()
    if len(candidate) == 1 and candidate.upper() in letters:
        return candidate.upper()
    return next((letter for letter, option in options if _plain(option) == _plain(candidate)), None)


def _payloads(text: str, prefix: str) -> Iterator[str]:
    """What follows each "Answer:" (in Markdown too) or the row's own prefix on its line, in the order of the text."""
    text = unicodedata.normalize("NFKC", text)
    found = [(match.start(), match.group(1)) for match in _ANSWER_MARKDOWN.finditer(text)]
    if prefix:
        own = re.compile(re.escape(unicodedata.normalize("NFKC", prefix)) + r"\s*", re.IGNORECASE)
        for match in own.finditer(text):
            end = text.find("\n", match.end())
            found.append((match.start(), text[match.end() : end if end >= 0 else len(text)]))
    yield from (payload for _, payload in sorted(found, key=lambda one: one[0]))


def _choice(payload: str, letters: set[str]) -> str | None:
    """The one letter that a payload names; None if it lists several."""
    candidate = _latin(payload).strip("*_` \t\n\r.,;:")
    named = [match for match in _LETTER.finditer(candidate) if match.group(1).upper() in letters]
    for left, right in pairwise(named):
        between = candidate[left.end() : right.start()]
        if left.group(1).upper() != right.group(1).upper() and _SEPARATOR.fullmatch(between):
            return None
    if len(candidate) == 1:
        letter = candidate
    elif match := _LEADING.match(candidate):
        letter = match.group(1)
    else:
        letter = ([match.group() for match in _STANDALONE.finditer(candidate)] or [""])[-1]
    return letter.upper() if letter and letter.upper() in letters else None


def _by_expressions(text: str, expressions: Any, letters: set[str], options: list[tuple[str, str]]) -> str | None:
    """The last match of the row's own expression, or of the first of several that finds something."""
    for expression in [expressions] if isinstance(expressions, str) else expressions or []:
        captured = _last_match(expression, text)
        if captured is None:
            continue
        written = _latin(captured.strip()).upper()
        if len(written) == 1 and written.isalpha():
            return written
        for letter, option in options:
            if letter in letters and _plain(option) == _plain(written):
                return letter
    return None


def _last_match(expression: str, text: str) -> str | None:
    try:
        import re2
    except ModuleNotFoundError:
        raise UsageError("the row's `output_regex` needs google-re2", "pip install 'gymdata[verifiers]'") from None
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    try:
        matches = re2.findall(expression, text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise VerifierFailure(f"`output_regex` {expression!r} cannot be used: {reason}") from error
    if not matches:
        return None
    return matches[-1] if isinstance(matches[-1], str) else next((group for group in matches[-1] if group), "")


def _latin(text: str) -> str:
    """Arabic, Bengali and full-width letters of options as Latin ones."""
    return unicodedata.normalize("NFKC", text).translate(_OTHER_SCRIPTS).strip()


def _unwrapped(text: str) -> str:
    r"""Without `\text{…}` around all of it."""
    while text.startswith("\\text{") and text.endswith("}"):
        text = text[6:-1].strip()
    return text


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
