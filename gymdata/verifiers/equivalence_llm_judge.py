"""Short answers, compared with the expected one by a judge model alone.

Source of the rules: NeMo Gym 0.7.0, resources server `equivalence_llm_judge`, with its options. Differences: a judge that gives no
label is a failure, where NeMo Gym takes that for "not equal"; regular expressions run on RE2, and one that RE2 does not know is a
failure, where NeMo Gym takes the whole text; a row without an expected answer is one, too; an answer of more than a million
characters is wrong without being asked about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymdata.errors import UsageError
from gymdata.verifiers import Ask, Gold, Response, Row, Undecided, Verdict, VerifierFailure
from gymdata.verifiers.judge import Judge
from gymdata.verifiers.responses import items, message, whole_text

LONGEST = 1 << 20
"""Characters of an answer that a judge is asked about, where the configuration does not say."""


@dataclass(frozen=True)
class EquivalenceJudge:
    """Scores `expected_answer` of a row, or of its `metadata`; the options are NeMo Gym's."""

    judge: Judge = field(repr=False)
    check_twice_swap: bool = False
    reward_if_swap_fails: float = 0.0
    question_extract_regex: str | None = None
    response_extract_regex: str | None = None
    max_answer_chars: int | None = None
    use_per_record_regex: bool = True
    extraction_length_threshold: int | None = 120
    check_full_generation_on_fail: bool = True
    reward_if_full_generation_succeeds: float = 0.5
    name: str = field(default="equivalence_llm_judge", init=False, repr=False)
    version: str = field(default="1", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> EquivalenceJudge:
        """From the body of NeMo Gym's resources server. Raises UsageError for an option that cannot be used."""
        import msgspec

        own = {key: value for key, value in options.items() if key not in ("name", "version")}
        try:
            found = msgspec.convert({**own, "judge": Judge.from_options(options, last=True)}, cls)
        except msgspec.ValidationError as error:
            raise UsageError(f"the resources server `equivalence_llm_judge`: {error}") from error
        for expression in filter(None, (found.question_extract_regex, found.response_extract_regex)):
            try:
                _extracted(expression, "")
            except VerifierFailure as error:
                raise UsageError(f"the resources server `equivalence_llm_judge`: {error}") from error
        return found

    def verify(self, row: Row, response: Response) -> Verdict | Undecided:
        """What the judge says, or 0 for an empty or a too long answer. Extras: judge_evaluations, reason, failure_reason."""
        expected = _expected(row)
        answer = _said(response)
        if not answer:
            return _refused("empty_final_answer", "the response has no text")
        limit = self.max_answer_chars or LONGEST
        if len(answer) > limit:
            why = f"final_answer_too_long: {len(answer)} characters exceeds {limit}"
            return _refused(why, f"limit: the answer has {len(answer):,} characters")
        question = _asked(row)
        if self.question_extract_regex:
            question = _extracted(self.question_extract_regex, question)
        template = row.get("template_metadata")
        own = template.get("output_regex") if self.use_per_record_regex and isinstance(template, Mapping) else None
        threshold = self.extraction_length_threshold
        whole = bool(own) and threshold is not None and len(expected) > threshold  # then no second question either
        expression = None if whole else own or self.response_extract_regex
        given = _extracted(expression, answer) if expression else answer
        equal: Ask | float = 1.0
        different: Ask | float = 0.0
        if self.check_twice_swap and not whole:
            equal = self.judge.compare(question, given, expected, equal=1.0, different=self.reward_if_swap_fails)
        if self.check_full_generation_on_fail and own and not whole:
            rescued = self.reward_if_full_generation_succeeds
            different = self.judge.compare(question, expected, answer, equal=rescued, different=0.0)
        ask = self.judge.compare(question, expected, given, equal=equal, different=different)
        return Undecided(ask, {"extracted_answer": given, "judge_evaluations": []})

    def gold(self, row: Row) -> Gold:
        """Only a judge can tell a right answer; an empty one is wrong."""
        _expected(row)
        return Gold("$.expected_answer", None, (message(""),))


def _refused(why: str, reason: str) -> Verdict:
    return Verdict(0.0, {"judge_evaluations": [], "failure_reason": why, "reason": reason})


def _expected(row: Row) -> str:
    metadata = row.get("metadata")
    expected = row.get("expected_answer") or (metadata.get("expected_answer") if isinstance(metadata, Mapping) else None)
    if expected is None or not str(expected).strip():
        raise VerifierFailure("the row has no `expected_answer`")
    return str(expected)


def _said(response: Response) -> str:
    """The text of the last message, its parts on lines of their own."""
    said = [
        item
        for item in items(response)
        if item.get("type", "message") == "message" and item.get("role", "assistant") == "assistant"
    ]
    return _text(said[-1].get("content")) if said else ""


def _asked(row: Row) -> str:
    """The text of the last user message of the request."""
    params = row.get("responses_create_params")
    given = params.get("input") if isinstance(params, Mapping) else None
    if isinstance(given, str):
        return given.strip()
    texts = [_text(item.get("content")) for item in given or () if isinstance(item, Mapping) and item.get("role") == "user"]
    return texts[-1] if texts else ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return whole_text(content).strip()
    parts = [part.get("text") for part in content or () if isinstance(part, Mapping)] if isinstance(content, list) else []
    return whole_text("\n".join(part for part in parts if isinstance(part, str))).strip()


def _extracted(expression: str, text: str) -> str:
    """The first group of the last match that is not empty, or all of the match; the text where nothing matches."""
    try:
        import re2
    except ModuleNotFoundError:
        raise UsageError("extracting answers needs google-re2", "pip install 'gymdata[verifiers]'") from None
    options = re2.Options()
    options.log_errors = False
    try:
        matches = deque(re2.finditer(f"(?ms:{expression})", text, options), maxlen=1)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise VerifierFailure(f"the expression {expression!r} cannot be used: {reason}") from error
    if not matches:
        return text
    groups = (str(group).strip() for group in matches[0].groups() if group)
    return next(filter(None, groups), str(matches[0].group(0)).strip())
