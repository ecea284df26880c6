"""Mathematics whose wrong answers a judge looks at again: math-verify first, and what it does not take for right is asked, in both orders.

Source of the rules: NeMo Gym 0.7.0, resources server `math_with_judge`. The judge compares the last box with the expected answer; the
second order is asked only if the first finds them equal. Differences: a judge that gives no label is a failure, where NeMo Gym takes
that for "not equal"; too long an answer is wrong without being asked about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gymdata.verifiers import Gold, Response, Row, Undecided, Verdict, VerifierFailure
from gymdata.verifiers.judge import Judge
from gymdata.verifiers.math import Math, longest
from gymdata.verifiers.responses import last_boxed, output_text


@dataclass(frozen=True)
class MathWithJudge:
    """Scores `expected_answer` of a row; the judge sees `question`, too."""

    judge: Judge = field(repr=False)
    name: str = field(default="math_with_judge", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> MathWithJudge | Math:
        """From the body of NeMo Gym's resources server; without a judge if `should_use_judge` is off."""
        return cls(Judge.from_options(options)) if options.get("should_use_judge", True) else Math()

    @property
    def version(self) -> str:
        return Math().version

    def verify(self, row: Row, response: Response) -> Verdict | Undecided:
        """1 if math-verify finds the last box equal to the expected answer, else what the judge says. Extras: those of Math."""
        verdict = Math().verify(row, response)
        answer = (last_boxed(output_text(response)) or "").strip()
        expected = str(row["expected_answer"])
        if verdict.reward or not answer or len(answer) > longest(expected):
            return verdict
        question = row.get("question")
        if not isinstance(question, str):
            raise VerifierFailure("the row has no `question`, which the judge is to see")
        swapped = self.judge.compare(question, answer, expected, equal=1.0, different=0.0)
        return Undecided(self.judge.compare(question, expected, answer, equal=swapped, different=0.0), verdict.extras)

    def gold(self, row: Row) -> Gold:
        """As Math's; what math-verify cannot read is no doubt where a judge can."""
        return replace(Math().gold(row), doubt="")
