"""Rules of answers: whether the expected answer is there, is possible, and is not given away."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gymdata.validation.findings import Finding

_FIELDS = ("expected_answer", "answer")
_CUES = ("nswer", "\\boxed{", "####", "olution")
_AFTER_CUE = re.compile(
    r"(?:nswer|olution)(?:\s+(?:to this|here))?(?:\s+is|\s*[:=])(?:\s|[*$`\"'(]|\\boxed\{)*|\\boxed\{\s*\$?|####\s*",
    re.IGNORECASE,
)
_AFTER_ANSWER = re.compile(r"[\s.,;:!?)\]}$*`\"']|\Z")


_SHOWING = ("example", "e.g.", "format", "should be", "such as", "for instance", "of the form")
_REACH = 80
"""Characters before a cue in which one of these words says that it only shows how to answer."""


def is_plain_answer(row: Mapping[str, Any]) -> bool:
    """True only if no rule of this module can fire on a row."""
    if "options" in row:
        return next(_check_options(row), None) is None and not _may_leak(row)
    return not _may_leak(row)


def check_answers(row: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about `expected_answer` or `answer`, and about the options of a multiple choice question."""
    for name in _FIELDS:
        if name in row:
            value = row[name]
            if value is None or value == [] or value == {} or (isinstance(value, str) and not value.strip()):
                what = "null" if value is None else "empty"
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


def _may_leak(row: Mapping[str, Any]) -> bool:
    for name in _FIELDS:
        if name in row and not row[name] and not isinstance(row[name], int | float):
            return True
    answer = _answer(row)
    if answer is None:
        return False
    if not answer.strip():
        return True
    params = row.get("responses_create_params")
    prompt = params.get("input") if isinstance(params, dict) else None
    if type(prompt) is list and len(prompt) == 1 and type(prompt[0].get("content")) is str:
        return prompt[0].get("role") == "user" and _leaks(answer, prompt[0]["content"])
    return any(_leaks(answer, text) for _, text in _user_texts(row))


def _answer(row: Mapping[str, Any]) -> str | None:
    value = row.get("expected_answer", row.get("answer"))
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _leaks(answer: str, text: str) -> bool:
    """Whether a text says that the answer is `answer`, other than by showing how to answer."""
    if answer not in text:
        return False
    given: list[int] = []
    others = 0
    for cue in _CUES:
        position = text.find(cue)
        while position >= 0:
            if match := _AFTER_CUE.match(text, position):
                end = match.end() + len(answer)
                if not (text.startswith(answer, match.end()) and _AFTER_ANSWER.match(text, end)):
                    others += text[match.end() : match.end() + 1] not in ("", "}")
                elif not any(word in text[max(0, position - _REACH) : position].lower() for word in _SHOWING):
                    given.append(end)
            position = text.find(cue, position + 1)
    # Where other answers are given as well, these are worked examples; the row's own would stand at the end.
    return bool(given) and (not others or len(text.rstrip(_CLOSING)) <= max(given))


_CLOSING = " \n\t.$}*)`\"'"


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
    """Options are a list of {letter: text}, an object of them, or a list of texts, lettered in order."""
    options = row.get("options")
    choices: list[tuple[str, Any, str]] = []
    if isinstance(options, list) and options:
        for index, option in enumerate(options):
            if isinstance(option, dict) and len(option) == 1:
                choices += [(letter, text, f"$.options[{index}]") for letter, text in option.items()]
            elif isinstance(option, str):
                choices.append((chr(ord("A") + index) if index < 26 else "", option, f"$.options[{index}]"))
            else:
                return
    elif isinstance(options, dict):
        choices = [(letter, text, f"$.options.{letter}") for letter, text in options.items()]
    if not choices:
        return
    seen: dict[str, str] = {}
    for letter, text, path in choices:
        if isinstance(text, str) and text.strip():
            first = seen.setdefault(text.strip(), letter)
            if first != letter:
                yield Finding(
                    "GD404", path, f"the options {first} and {letter} are the same: {text[:40]!r}", "make the options different"
                )
    answer = row.get("expected_answer")
    if not isinstance(answer, str) or not answer.strip():
        return
    letters = [letter for letter, _, _ in choices]
    if answer.strip() not in letters and answer.strip().upper() not in letters and answer.strip() not in seen:
        if len(answer.strip()) <= 2 or isinstance(options[0] if isinstance(options, list) else "", dict):
            message = f"the expected answer {answer[:40]!r} is none of the options {', '.join(letters)}"
            yield Finding("GD403", "$.expected_answer", message, "write the letter of the right option")
