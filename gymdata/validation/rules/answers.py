"""Rules of answers: whether the expected answer is there, is possible, and is not given away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gymdata.validation.findings import Finding
from gymdata.validation.rules.schema_words import json_path

_FIELDS = ("expected_answer", "answer")

_CUES = ("nswer", "NSWER", "boxed{", "####", "olution", "orrect", "Ans", "ans =", "答案")
_AFTER_CUE = re.compile(
    r"(?i:nswer|olution)(?i:\s+(?:to|for)\s+th(?:is|e)(?:\s+(?:question|problem|task))?|\s+here|\s*\([^()\n]{0,40}\))?"
    r"(?i:\s+(?:is|should\s+be|will\s+be|was|equals)\b:?|\s*[:=]|>)|orrect\s+(?:option|choice|letter|result|value)(?:\s+is\b|:)"
    r"|Ans(?:\.:?|:)|ans =|答案(?:是|为)?[:：]?|boxed\{|####"
)
_DECORATION = re.compile(r"(?:\s|[*$`\"'(\[]|\\boxed\{|\\[(\[]|(?:[Oo]ption|[Cc]hoice)\b){0,8}")
_AFTER_ANSWER = re.compile(r"(?:[\s;!?)\]}$*`\"'<\\。，]|[.,:](?!\d)|\Z)(?!(?<=,)\s*\S{1,2}\b|(?<=\s)or\s)")
_OPTION = re.compile(r"[\"'`]?\s*(?:[:.)\]][ \t]*\S|,|/|\||or\b)")
"""What follows a letter that is one of several to choose from."""
_NO_STATEMENT = re.compile(
    r"(?:\b(?:if|whether|when|unless|until|suppose|assume|e\.g\.,?|example:?|such as|like|format:?|form|write|say|as|with)|\bis)"
    r"\s*[\"'`(*]*(?:(?:the|your|a|an|final|correct|that)\s+)*\\?\w?\Z",
    re.IGNORECASE,
)
"""What makes of "the answer is no" a condition, a question or a format."""


def is_plain_answer(row: Mapping[str, Any], texts: Iterable[str]) -> bool:
    """True only if no rule of this module can fire on a row; `texts` are those of its user messages."""
    if "options" in row and not _are_usual(row["options"], row.get("expected_answer")) and next(_check_options(row), None):
        return False
    for name in _FIELDS:
        if name in row and _is_empty(row[name]):
            return False
    answer = _answer(row)
    if answer:
        for text in texts:
            if answer in text and _leaks(answer, text):
                return False
    return True


def _are_usual(options: Any, answer: Any) -> bool:
    """A quick yes to options of the usual form: a list of {letter: text}, all different, the answer among the letters."""
    try:
        texts = {letter: text.strip() for option in options for letter, text in option.items()}
    except (AttributeError, TypeError):
        return False
    distinct = len(texts) == len(options) == len(set(texts.values()))
    return distinct and set(map(len, options)) == {1} and type(answer) is str and answer in texts


def check_answers(row: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about `expected_answer` or `answer`, and about the options of a multiple choice question."""
    for name in _FIELDS:
        if name in row and _is_empty(row[name]):
            what = "null" if row[name] is None else "empty"
            yield Finding(
                "GD401", f"$.{name}", f"`{name}` is {what}: no response can be right", "write the answer, or remove the row"
            )
    yield from _check_options(row)
    answer = _answer(row)
    if answer:
        for path, text in _user_texts(row):
            if _leaks(answer, text):
                message = f"the prompt gives the expected answer {answer[:40]!r} away"
                yield Finding("GD402", path, message, "remove the answer from the prompt")
                return


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or value == {} or (isinstance(value, str) and not value.strip())


def _answer(row: Mapping[str, Any]) -> str | None:
    value = row.get("expected_answer", row.get("answer"))
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _leaks(answer: str, text: str) -> bool:
    """Whether a text says that the answer is `answer`, other than as one of several examples."""
    if answer not in text:
        return False
    for cue in _CUES:
        position = text.find(cue)
        while position >= 0:
            if (match := _AFTER_CUE.match(text, position)) and _states(answer, text, match):
                return True
            position = text.find(cue, position + 1)
    return False


def _states(answer: str, text: str, cue: re.Match[str]) -> bool:
    value = _value(text, cue)
    if not text.startswith(answer, value) or not _AFTER_ANSWER.match(text, value + len(answer)):
        return False
    if len(answer) == 1 and answer.isalpha() and _OPTION.match(text, value + 1):
        return False
    if _NO_STATEMENT.search(text, max(0, cue.start() - 40), cue.start()):
        return False
    # The same cue before other values, or before none at the end: solved examples, or a list of what an answer may look like.
    position = text.find(cue[0])
    while position >= 0:
        other = _value(text, _AFTER_CUE.match(text, position) or cue)
        if (other == len(text) or text[other].isalnum()) and not text.startswith(answer, other):
            return False
        position = text.find(cue[0], position + 1)
    return True


def _value(text: str, cue: re.Match[str]) -> int:
    """Where what follows a cue begins, quotes and LaTeX around it left out."""
    match = _DECORATION.match(text, cue.end())
    return match.end() if match else cue.end()


def _user_texts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    params = row.get("responses_create_params")
    prompt = params.get("input") if isinstance(params, dict) else None
    path = "$.responses_create_params.input"
    if isinstance(prompt, str):
        yield path, prompt
        return
    for index, item in enumerate(prompt or ()):
        if item.get("role") != "user":
            continue
        content = item.get("content")
        if isinstance(content, str):
            yield f"{path}[{index}].content", content
        elif isinstance(content, list):
            for number, part in enumerate(content):
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    yield f"{path}[{index}].content[{number}].text", part["text"]


def _check_options(row: Mapping[str, Any]) -> Iterator[Finding]:
    choices = list(_choices(row.get("options")))
    if not choices:
        return
    texts: dict[str, tuple[str, str]] = {}
    letters: dict[str, str] = {}
    for letter, text, path in choices:
        if letter in letters:
            yield Finding("GD404", path, f"two options are called {letter!r}", "give each option a letter of its own")
        letters.setdefault(letter, path)
        if isinstance(text, str) and text.strip():
            first, place = texts.setdefault(text.strip(), (letter, path))
            if place != path and first != letter:
                message = f"the options {first} and {letter} are the same: {text[:40]!r}"
                yield Finding("GD404", path, message, "make the options different")
    answer = row.get("expected_answer")
    if not isinstance(answer, str) or not answer.strip():
        return
    known = {letter.upper() for letter in letters}
    named = re.findall(r"\w+", answer.upper())
    # Several letters may be right ("A, C", "AC"), and options without letters may be counted from 0.
    right = named and (known.issuperset(named) or (len(named) == 1 and known.issuperset(named[0])))
    counted = (
        answer.strip().isdigit() and isinstance(row["options"], list) and all(isinstance(text, str) for text in row["options"])
    )
    if not right and answer.strip() not in texts and not (counted and int(answer) <= len(choices)):
        message = f"the expected answer {answer[:40]!r} is none of the options {', '.join(letters)}"
        yield Finding("GD403", "$.expected_answer", message, "write the letter of the right option")


def _choices(options: Any) -> Iterator[tuple[str, Any, str]]:
    """Letter, text and path of the options: a list of {letter: text}, of {label, text} or of texts, or an object of texts.

    Nothing for options of any other form.
    """
    if isinstance(options, dict):
        if all(isinstance(text, str) for text in options.values()):
            yield from ((letter, text, json_path(["options", letter])) for letter, text in options.items())
        return
    if not isinstance(options, list) or not all(isinstance(option, dict | str) for option in options):
        return
    for index, option in enumerate(options):
        path = f"$.options[{index}]"
        if isinstance(option, str):
            yield chr(ord("A") + index) if index < 26 else str(index), option, path
        elif len(option) == 1:
            yield from ((letter, text, path) for letter, text in option.items())
        elif label := next((key for key in ("label", "letter", "key", "id") if isinstance(option.get(key), str)), ""):
            yield option[label], next((option[key] for key in ("text", "content", "value") if key in option), None), path
        else:
            yield from ((letter, text, f"{path}{json_path([letter])[1:]}") for letter, text in option.items())
