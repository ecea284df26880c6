r"""Mathematics: the last boxed answer, compared with the expected one by the math-verify library.

Source of the rules: NeMo Gym 0.7.0, resources server `math_with_judge`: no complete `\boxed{…}`, no reward. Differences, all
traps of the library: only the last box is judged (NeMo Gym gives the whole response to the library, which merges nearby boxes
into a set); several last boxes count together only where the expected answer has as many parts; percentages, ordered pairs,
repeated values, mixed and scientific numbers, currencies, degrees and units in words are compared as what they are; no number
is picked out of what the library cannot read (NeMo Gym finds the 5 in `\neq 5`); nothing reaches SymPy's `parse_expr`, which
evaluates text; and an answer whose value would not fit in memory is refused before anything computes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gymdata.errors import UsageError
from gymdata.verifiers import Gold, Response, Row, Verdict, VerifierFailure
from gymdata.verifiers.limits import LimitError, time_limit
from gymdata.verifiers.math_traps import confirmed, refuse_large
from gymdata.verifiers.responses import boxes, last_boxed, message, output_text

LONGEST = 3_000
"""Characters of an answer that are read, or four times the expected answer's if that is more."""
SECONDS = 4.0
"""What reading and comparing may take; an answer that takes longer is not right (`reason` says so)."""

_INTEGER = re.compile(r"[+-]?\d{1,400}")
_PERCENT = re.compile(r"(.*?)(?:\s|~|\\[,;:! ])*(?:\\?%|\\text\{\s*(?:\\?%|percent)\s*\}|percent(?:age)?|pct)", re.DOTALL)
_MIXED = re.compile(r"\+?(-?\d+)\s+(\d+)\s*/\s*(\d+)")
_SCIENTIFIC = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)[eE]([+-]?\d+)")
_SPACING = re.compile(r"\\[,;:]|~")
_THIN_COMMA = re.compile(r",\\!\s*")
_LEADING = re.compile(r"(?:\s|~|\\[,;:! ]|=|\\approx(?![A-Za-z]))+")
_TRAILING = re.compile(r"(?:\s|~|\\[,;:! ]|(?<![.\\])[.,;])+$")
_STYLE = re.compile(
    r"\\(?:(?:display|text|script)style|tiny|small|normalsize|large|Large|LARGE|huge|Huge|bf|rm|sf|it|bm|boldsymbol|mathsf|underline"
    r"|(?:text)?color\s*\{[^{}]*\})(?![A-Za-z])\s*"
)
_SAME = {"°": "^\\circ ", "–": "-", "∞": "\\infty ", "€": "", "£": "", "¥": "", "₹": ""}
_GROUPED = re.compile(r"([+-]?\d{1,3})((?:(?:\\[, ]|[ ~\u00a0\u2009\u202f])\d{3})+)(\.\d+)?")
_ROMAN = re.compile(r"\\mathrm\{\s*([A-Za-z])\s*\}")
_BARE_FRACTION = re.compile(r"\\([dt]?frac)(\\[A-Za-z]+)\s*(\w)")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = re.compile(rf"(\d)\s*(?:\\text\{{\s*|\\ )?({'|'.join(_SCALES)})\b(?:\s*[A-Za-z ]*\}})?")
_UNIT = re.compile(r"(\$?\s*[+-]?[\d.,]*\d)\s+((?:[cdkmn]m|[km]g|ml|ft|in|yd|mi|lb|oz|hr|[A-Za-z]{3,})(?: [A-Za-z]+)*)\s*")
_NO_UNIT = frozenset(
    "and or to nor not plus minus mod choose factorial more less over under dozen sin cos tan cot sec csc log exp sqrt".split()
)
_UNITS = re.compile(r"\\(?:text|mbox|mathrm|textrm)\s*\{[^{}]*\}(?:\^\{?\d\}?)?")
_BASE = re.compile(r"([+-]?[0-9A-Fa-f.]+)_\{?(\d{1,2})\}?")
_PLAIN = re.compile(r"([+-]?[0-9A-Fa-f.]+)")
_NUMBER = re.compile(r"(\d{1,400})(\d*(?:\.\d+)?)")


@dataclass(frozen=True)
class Math:
    """Scores `expected_answer` of a row."""

    name: str = field(default="math", init=False, repr=False)

    @property
    def version(self) -> str:
        from importlib.metadata import version

        _library()
        return f"2 math-verify {version('math-verify')}"

    def verify(self, row: Row, response: Response) -> Verdict:
        """1 if the last box equals the expected answer. Extras: extracted_answer, library_reward, judge_evaluations, reason."""
        gold = _gold(row)
        text = output_text(response)
        boxed = last_boxed(text)
        if boxed is None or not boxed.strip():
            return _verdict(False, None, "there is no complete \\boxed{…}" if boxed is None else "the last \\boxed{…} is empty")
        answer = _clean(boxed)
        right, why = _equal(gold, answer)
        parts = len(_parts(gold))
        if not right and parts > 1:
            several = [_clean(one) for one in boxes(text, parts)]
            if len(several) == parts:
                joined = ", ".join(several)
                if _equal(gold, joined)[0]:
                    right, why, answer = True, f"the last {parts} boxes equal the expected answer", joined
        return _verdict(right, answer, why)

    def gold(self, row: Row) -> Gold:
        """The expected answer in a box, and the same with another number in it."""
        gold = _gold(row)
        doubt = ""
        if _list_text(gold):
            doubt = "it is the text of a list: only an answer with the same brackets and quotes is right"
        elif not _INTEGER.fullmatch(gold) and not _readable(gold):
            doubt = "math-verify cannot read it: only an answer with the same text is right"
        wrong = tuple(message(f"\\boxed{{{other}}}") for other in _others(gold))
        return Gold("$.expected_answer", message(f"\\boxed{{{gold}}}"), wrong, doubt)


def longest(gold: str) -> int:
    """Characters that an answer may have."""
    return max(LONGEST, 4 * len(gold))


def _verdict(right: bool, answer: str | None, reason: str) -> Verdict:
    extras = {"extracted_answer": answer, "library_reward": float(right), "judge_evaluations": None, "reason": reason}
    return Verdict(float(right), extras)


def _gold(row: Row) -> str:
    gold = row.get("expected_answer")
    if isinstance(gold, int | float) and not isinstance(gold, bool):
        gold = str(gold)
    if not isinstance(gold, str) or not gold.strip():
        raise VerifierFailure("the row has no `expected_answer`")
    return _clean(gold)


def _clean(text: str) -> str:
    """Without what surrounds an answer or only spaces it: delimiters of mathematics, a final full stop or comma."""
    text = text.strip()
    while len(text) <= 100_000:
        before = text
        text = text[:-100] + _TRAILING.sub("", text[-100:])
        for opening, closing in (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$")):
            inner = text[len(opening) : -len(closing)]
            if (
                len(text) > len(opening + closing)
                and text.startswith(opening)
                and text.endswith(closing)
                and opening not in inner
            ):
                text = inner.strip()
        text = text[found.end() :] if (found := _LEADING.match(text)) else text
        if text == before:
            break
    return text


def _equal(gold: str, answer: str) -> tuple[bool, str]:
    """Whether an answer equals the expected one, and why."""
    if answer == gold:
        return True, "the answer is the expected one, letter by letter"
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
        same = int(gold) == int(answer)
        return same, f"the answer {'equals' if same else 'is not'} the expected {_short(gold)}"
    if (based := _BASE.fullmatch(gold)) and (given := _BASE.fullmatch(answer) or _PLAIN.fullmatch(answer)):
        same = given[1].lower() == based[1].lower() and (given.re is _PLAIN or given[2] == based[2])
        return same, f"the answer {'equals' if same else 'is not'} the expected {_short(gold)}, digits of base {based[2]}"
    if len(answer) > longest(gold):
        return False, f"limit: the answer has {len(answer):,} characters"
    if _words(answer) == _words(gold):
        return True, "the answer has the words of the expected one"
    _parse("\\frac{1}{2}")  # what is imported on the way is none of the answer's cost
    try:
        with time_limit(SECONDS):
            same = any(_library_equal(one, other) for one, other in _readings(gold, answer))
    except LimitError as error:
        return False, f"limit: {error}"
    return same, f"the answer {'equals' if same else 'is not'} the expected {_short(gold)} (math-verify)"


def _readings(gold: str, answer: str) -> list[tuple[str, str]]:
    """The pairs (expected, given) of which one must be equal: a percentage is a number of hundredths, or of percent."""
    gold_percent, answer_percent = _PERCENT.fullmatch(gold), _PERCENT.fullmatch(answer)
    if gold_percent and answer_percent:
        return [(gold_percent.group(1), answer_percent.group(1))]
    if answer_percent:
        return [(gold, answer_percent.group(1)), (gold, f"\\frac{{{answer_percent.group(1)}}}{{100}}")]
    if gold_percent:
        return [(gold_percent.group(1), answer), (f"\\frac{{{gold_percent.group(1)}}}{{100}}", answer)]
    return [(gold, answer)]


def _library_equal(gold: str, answer: str) -> bool:
    pairs = [_parts(one) if one.endswith(")") and _inside(one) is not None else [] for one in (gold, answer)]
    if len(pairs[0]) > 1 and pairs[1]:
        return len(pairs[0]) == len(pairs[1]) and all(_library_equal(*both) for both in zip(*pairs, strict=True))
    wanted = _parts(gold)
    if len(set(wanted)) < len(wanted):  # a set would forget how often each part comes
        return _same_parts(wanted, _parts(answer))
    expected, given = _parse(gold), _parse(answer)
    if not expected or not given:
        return False
    for one in (*expected, *given):
        refuse_large(one)
    return any(_compare(one, other) for one in expected for other in given)


def _same_parts(wanted: list[str], given: list[str]) -> bool:
    """Whether each part has its equal, in any order."""
    if len(wanted) != len(given):
        return False
    left = list(given)
    for one in wanted:
        equal = next((at for at, other in enumerate(left) if _library_equal(one, other)), None)
        if equal is None:
            return False
        del left[equal]
    return True


def _compare(expected: Any, given: Any) -> bool:
    try:
        same = _library().verify(expected, given, timeout_seconds=0, raise_on_error=True)
        return bool(same) and confirmed(expected, given)
    except Exception:  # the library's own, on expressions that it cannot compare
        return False


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[Any, ...]:
    """What math-verify reads in a text, as if boxed: a SymPy expression and the text, or the text alone; () if it cannot."""
    library = _library()
    text = _STYLE.sub("", "".join(_SAME.get(character, character) for character in text)).replace("\\varnothing", "\\emptyset")
    if match := _GROUPED.fullmatch(text):
        text = match[1] + "".join(re.findall(r"\d{3}", match[2])) + (match[3] or "")
    text = _SPACING.sub(" ", _THIN_COMMA.sub("", text).replace("\\!", ""))
    text = _SCALE.sub(lambda found: f"{found[1]} \\times 10^{{{_SCALES[found[2]]}}}", text)
    text = _BARE_FRACTION.sub(r"\\\1{\2}{\3}", _ROMAN.sub(r"\1", text))
    if match := _MIXED.fullmatch(text):
        text = "{}\\frac{{{}}}{{{}}}".format(*match.groups())
    elif match := _SCIENTIFIC.fullmatch(text):
        text = "{} \\times 10^{{{}}}".format(*match.groups())
    elif (match := _UNIT.fullmatch(text)) and not _NO_UNIT & set(match[2].lower().split()):
        text = match.group(1)
    config = [library.LatexExtractionConfig(boxed_match_priority=0)]
    try:
        return tuple(library.parse(f"\\boxed{{{text}}}", config, parsing_timeout=0, raise_on_error=True))
    except Exception:
        return ()


def _parts(text: str) -> list[str]:
    """The parts of a list, pair or set, split at the commas and semicolons outside brackets; one part if there are none."""
    inside = _inside(text.strip())
    text = text.strip() if inside is None else inside
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character in ",;" and depth == 0:
            number = character == "," and text[at - 1 : at].isdigit() and re.match(r"\d{3}(?!\d)", text[at + 1 :])
            if not number and text[at - 1 : at] != "\\":
                parts.append(text[start:at].strip())
                start = at + 1
    return [*parts, text[start:].strip()]


def _readable(gold: str) -> bool:
    _parse("\\frac{1}{2}")
    try:
        with time_limit(SECONDS):
            return not all(isinstance(one, str) for one in _parse(gold))
    except LimitError:
        return False


def _others(gold: str) -> list[str]:
    """Wrong answers that look like the right one: its first number changed, and its last; units, which do not count, left out."""
    bare = _UNITS.sub("", gold)
    last = bare.rfind("=") if bare.count("=") > 1 and "," not in bare else 0  # of x = 1 + 1 = 2 only the end counts
    numbers = [one for one in _NUMBER.finditer(bare) if one.start() >= last]
    if not numbers:
        return ["7919.25"]
    changed = [(one, str(int(one[1]) + 1).zfill(len(one[1])) + one[2]) for one in (numbers[0], numbers[-1])]
    return list(dict.fromkeys(bare[: one.start()] + other + bare[one.end() :] for one, other in changed))


def _inside(text: str) -> str | None:
    """What the brackets around all of a text enclose; None if there are none, or the first closes before the end."""
    for opening, closing in (("\\left\\{", "\\right\\}"), ("\\{", "\\}"), ("\\left(", "\\right)"), ("(", ")")):
        if text.startswith(opening) and text.endswith(closing):
            inner, depth = text[len(opening) : -len(closing)], 0
            for character in inner:
                depth += (character in "({") - (character in ")}")
                if depth < 0:
                    return None
            return inner.strip()
    return None


def _list_text(gold: str) -> bool:
    return gold.startswith(("['", '["')) and gold.endswith(("']", '"]'))


def _words(text: str) -> str:
    r"""A text answer as its words, in lower case: `\text{No solution.}` and `no solution`. A formula stays as it is."""
    bare = re.sub(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}", r"\1", text)
    if re.search(r"[\\${}^_=+*/<>|\d]", bare):
        return " ".join(text.split())
    return " ".join(bare.casefold().strip(" .\t\n").split())


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")


@lru_cache(maxsize=1)
def _library() -> Any:
    """math-verify, silent. Raises UsageError if it is not installed."""
    try:
        import math_verify
    except ModuleNotFoundError:
        raise UsageError("scoring mathematics needs math-verify", "pip install 'gymdata[verifiers]'") from None
    import logging

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return math_verify
