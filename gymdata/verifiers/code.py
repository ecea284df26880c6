"""Programs: the last code block of a response, run in a sandbox on the row's tests.

Source of the rules: NeMo Gym 0.7.0, resources server `code_gen` (LiveCodeBench): lines compared without surrounding space,
numbers with a tolerance, yes and no in any case; all tests must pass. Differences: a real process with a real standard input
for each test, in a sandbox that never holds an expected output; the tests of a row share a time limit. Two further kinds of
tests of public data sets are run too: HumanEval's (`test`, `entry_point`) and MBPP's (`test_list`, `test_setup_code`).
"""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from gymdata.verifiers import Gold, Response, Row, Verdict, VerifierFailure
from gymdata.verifiers.responses import items, message, output_text
from gymdata.verifiers.sandbox import Limits, Ran, Sandbox, missing, require

TOLERANCE = Decimal("1e-6")
MOST_TEXT = 1 << 20
"""Characters of a program that are run."""
TESTS_AT_ONCE = 6
"""All tests of a row together may take so many times as long as one."""
WRONG, TIMED_OUT, RAISED = -2, -3, -4
"""NeMo Gym's codes of a failed test."""


@dataclass(frozen=True)
class _Test:
    """One run of the program, and how its end is judged."""

    code: str = ""
    stdin: str = ""
    arguments: tuple[Any, ...] = ()
    expected: Any = None


@dataclass(frozen=True)
class Code:
    """Scores the tests in `verifier_metadata` of a row. `test_seconds` limits each of them."""

    test_seconds: float = 10.0
    reasoning_format_penalty: float = 0.0
    name: str = field(default="code_gen", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Code:
        """From the body of NeMo Gym's resources server."""
        return cls(float(options.get("unit_test_timeout_secs", 10)), float(options.get("reasoning_format_penalty", 0)))

    @property
    def version(self) -> str:
        """With what runs the programs. Raises UsageError where the machine gives no isolation."""
        import platform

        require()
        return f"2 python {platform.python_version()}{' not isolated' if missing() else ''}"

    @property
    def seconds(self) -> float:
        """What scoring one response may take at most."""
        return TESTS_AT_ONCE * self.test_seconds + 40

    def verify(self, row: Row, response: Response) -> Verdict:
        """1 if every test passes. Extras: NeMo Gym's extracted_model_code, result, metadata, unit_tests_time_taken, difficulty,
        reasoning_format_violation_rate; extracted_answer, reason."""
        kind, tests = _tests(row)
        text = output_text(response)
        code = last_block(text)
        extras: dict[str, Any] = {
            "extracted_model_code": code,
            "extracted_answer": code,
            "difficulty": _metadata(row).get("difficulty"),
        }
        if not code.strip() or len(code) > MOST_TEXT:
            reason = (
                f"limit: the program has {len(code):,} characters" if code.strip() else "there is no code block in the response"
            )
            return Verdict(0.0, extras | {"result": None, "reason": reason})
        started = time.monotonic()
        results, reason = self._results(kind, tests, code)
        passed = len(results) == len(tests) and all(result is True for result in results)
        violation = _reasoning_is_misplaced(text, response)
        reward = self.reasoning_format_penalty if violation else float(passed)
        extras |= {
            "result": results,
            "metadata": {"error_message": reason} if not passed else {},
            "unit_tests_time_taken": round(time.monotonic() - started, 3),
            "reasoning_format_violation_rate": float(violation),
            "reason": "there are <think> tags where they do not belong" if violation else reason,
        }
        return Verdict(reward, extras)

    def gold(self, row: Row) -> Gold:
        """The row's own solution, where it has one; a program that does nothing."""
        _tests(row)
        metadata = _metadata(row)
        prefix = last_block(_prompt(row)) + "\n" if "entry_point" in metadata else ""
        keys = ("solution", "reference_solution", "canonical_solution")
        sources = [("$.reference_solution", row.get("reference_solution"))]
        sources += [(f"$.verifier_metadata.{key}", metadata.get(key)) for key in keys]
        path, solution = next(((path, code) for path, code in sources if isinstance(code, str) and code.strip()), ("", ""))
        right = message(f"```python\n{prefix}{solution}\n```") if solution else None
        return Gold(path or "$.verifier_metadata", right, (message("```python\npass\n```"),))

    def _results(self, kind: str, tests: list[_Test], code: str) -> tuple[list[bool | int], str]:
        """The result of each test up to the first that fails, and what to say of it."""
        deadline = time.monotonic() + TESTS_AT_ONCE * self.test_seconds
        results: list[bool | int] = []
        with Sandbox(Limits(seconds=self.test_seconds)) as sandbox:
            for number, test in enumerate(tests, start=1):
                token = secrets.token_hex(16)
                if kind == "stdin":
                    ran = sandbox.run(code, stdin=test.stdin, prelude=True)
                    wrong = _lines_differ(test.expected, ran.output) if ran.code == 0 else ""
                elif kind == "function":
                    ran = sandbox.run(code, function=str(test.code), arguments=test.arguments, prelude=True)
                    wrong = _value_differs(test.expected, ran.value) if ran.code == 0 else ""
                else:
                    ran = sandbox.run(f"{code}\n\n{test.code}\n", token=token)
                    wrong = "" if ran.value == token else "the program ended before its tests did"
                failed, reason = _judged(ran, wrong)
                results.append(failed or True)
                if failed:
                    return results, f"test {number} of {len(tests)}: {reason}"
                if time.monotonic() > deadline and number < len(tests):
                    return [
                        *results,
                        TIMED_OUT,
                    ], f"limit: the tests together took longer than {TESTS_AT_ONCE * self.test_seconds:g} s"
        return results, f"all {len(tests)} tests passed"


def last_block(text: str) -> str:
    """What stands between the last two lines with a code fence; empty if there are not two."""
    end = text.rfind("```")
    end = text.rfind("\n", 0, end) + 1 if end >= 0 else -1
    start = text.rfind("```", 0, end) if end > 0 else -1
    return text[text.find("\n", start) + 1 : max(end - 1, 0)] if start >= 0 else ""


def _judged(ran: Ran, wrong: str) -> tuple[int, str]:
    """NeMo Gym's code of a failed test, 0 for a passed one, and what to say."""
    if ran.stopped == "time":
        return TIMED_OUT, f"it took longer than {ran.seconds:.1f} s"
    if ran.stopped == "output":
        return RAISED, "it wrote more than it may"
    if ran.code:
        said = (ran.errors.strip() or ran.output.strip()).rsplit("\n", 1)[-1][:200]
        return RAISED, f"it ended with code {ran.code}" + (f": {said}" if said else "")
    return (WRONG, wrong) if wrong else (0, "")


def _metadata(row: Row) -> Mapping[str, Any]:
    metadata = row.get("verifier_metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _tests(row: Row) -> tuple[str, list[_Test]]:
    """Of which kind the row's tests are, and the tests."""
    metadata = _metadata(row)
    try:
        if "unit_tests" in metadata:
            return _unit_tests(metadata["unit_tests"])
        if isinstance(metadata.get("test"), str) and isinstance(metadata.get("entry_point"), str):
            return "script", [_Test(code=f"{metadata['test']}\ncheck({metadata['entry_point']})")]
        if isinstance(metadata.get("test_list"), list) and metadata["test_list"]:
            setup = metadata.get("test_setup_code") or ""
            return "script", [_Test(code="\n".join([setup, *metadata["test_list"]]))]
    except (KeyError, TypeError, ValueError, zlib.error, RecursionError) as error:
        raise VerifierFailure(f"the row's tests cannot be read: {error}") from error
    raise VerifierFailure("the row has no tests that run: `verifier_metadata.unit_tests` with inputs and outputs")


def _unit_tests(tests: Any) -> tuple[str, list[_Test]]:
    function = tests.get("fn_name")
    if "packed" in tests:
        unpacker = zlib.decompressobj()
        unpacked = unpacker.decompress(base64.b64decode(tests["packed"]), 1 << 30)
        tests = json.loads(unpacked)
    inputs, outputs = tests["inputs"], tests["outputs"]
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise VerifierFailure("`unit_tests` needs as many outputs as inputs, and at least one")
    if not all(isinstance(one, str) for one in (*inputs, *outputs)):
        raise VerifierFailure("`unit_tests` needs inputs and outputs that are strings")
    if function is None:
        return "stdin", [_Test(stdin=one, expected=other) for one, other in zip(inputs, outputs, strict=True)]
    made = []
    for one, other in zip(inputs, outputs, strict=True):
        made.append(
            _Test(code=function, arguments=tuple(json.loads(line) for line in one.split("\n")), expected=json.loads(other))
        )
    return "function", made


def _prompt(row: Row) -> str:
    given = row.get("responses_create_params", {}).get("input", "")
    texts = [given] if isinstance(given, str) else [one.get("content") for one in given if isinstance(one, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _lines_differ(expected: str, output: str) -> str:
    """How an output differs from the expected one; empty if it does not."""
    wanted, given = ([line.strip() for line in text.strip().split("\n")] for text in (expected, output))
    if len(wanted) != len(given):
        return f"{len(given)} lines instead of {len(wanted)}"
    for number, (line, other) in enumerate(zip(wanted, given, strict=True), start=1):
        if (
            line != other
            and not (line.lower() == other.lower() and line.lower() in ("yes", "no"))
            and not _numbers_agree(line, other)
        ):
            return f"line {number} is {other[:100]!r} instead of {line[:100]!r}"
    return ""


def _numbers_agree(wanted: str, given: str) -> bool:
    tokens = list(zip(wanted.split(), given.split(), strict=False))
    return len(wanted.split()) == len(given.split()) and all(_number_agrees(*pair) for pair in tokens)


_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?|[+-]?(?:inf(?:inity)?|s?nan\d*)", re.IGNORECASE)


def _number_agrees(wanted: str, given: str) -> bool:
    if not (_NUMBER.fullmatch(wanted) and _NUMBER.fullmatch(given)):
        return False
    try:
        expected, actual = Decimal(wanted), Decimal(given)
        if expected == actual:
            return True
        fractional = any("." in token or "e" in token.lower() for token in (wanted, given))
        if not fractional or not (expected.is_finite() and actual.is_finite()):
            return False
        return abs(expected - actual) <= TOLERANCE * max(abs(expected), Decimal(1))
    except (InvalidOperation, ArithmeticError):
        return False


def _value_differs(expected: Any, value: str) -> str:
    """How what a function returned, as JSON, differs from the expected value; empty if it does not."""
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        return "the function did not return a value that JSON can hold"
    pairs = [(expected, given)]
    if isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        pairs = list(zip(expected, given, strict=True))
    same = expected == given or all(_close(one, other) for one, other in pairs)
    return "" if same else f"{value[:100]} instead of {json.dumps(expected)[:100]}"


def _close(expected: Any, given: Any) -> bool:
    if expected == given:
        return True
    numbers = [one for one in (expected, given) if isinstance(one, int | float) and not isinstance(one, bool)]
    return (
        len(numbers) == 2
        and any(isinstance(one, float) for one in numbers)
        and math.isclose(expected, given, rel_tol=1e-5, abs_tol=1e-8)
    )


def _reasoning_is_misplaced(text: str, response: Response) -> bool:
    reasoning = "".join(_summaries(response))
    return "<think>" in text or "</think>" in text or reasoning.count("<think>") > 1 or reasoning.count("</think>") > 1


def _summaries(response: Response) -> Iterator[str]:
    for item in items(response):
        if item.get("type") == "reasoning":
            for part in item.get("summary") or []:
                if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                    yield part["text"]
