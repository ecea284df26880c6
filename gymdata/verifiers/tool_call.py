"""Tool calls: the ones made, compared with the ones expected; and what they leave behind, replayed.

Source of the rules: NeMo Gym 0.7.0, resources servers `single_step_tool_use_with_argument_comparison`,
`example_single_tool_call`, `example_multi_step` and `example_session_state_mgmt`. Two differences: arguments that are not a
JSON object earn nothing with a reason, where NeMo Gym's `example_multi_step` answers with an error that ends the run; and the
counter of a session is replayed from the calls in the response, so that a stored one can be scored again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from gymdata.errors import UsageError
from gymdata.verifiers import Gold, Response, Row, Verdict, VerifierFailure
from gymdata.verifiers.responses import calls, function_calls, items, message

Mode = Literal["binary_strict", "fractional", "f1"]


@dataclass(frozen=True)
class ArgumentComparison:
    """Scores `expected_action`: a message, a `function_call`, or a `function_call_batch` in any order.

    Strings of several words are compared by the share of words in common, |a & b| / (|a| + |b|): 0.5 for equal ones.
    `count_matters` (NeMo Gym's `parallel_tool_call_rewarding`): too few or too many calls cost, as the rest says.
    """

    similarity: float = 0.3
    tolerance: float = 1e-6
    count_matters: bool = False
    allow_subset: bool = False
    allow_superset: bool = False
    mode: Mode = "binary_strict"
    name: str = field(default="single_step_tool_use_with_argument_comparison", init=False, repr=False)
    version: str = field(default="1", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> ArgumentComparison:
        """From the body of NeMo Gym's resources server. Raises UsageError for an unknown mode."""
        given = options.get("tool_call_comparator_config")
        given = given if isinstance(given, Mapping) else {}
        mode = given.get("parallel_tool_call_reward_mode", "binary_strict")
        if mode not in get_args(Mode):
            raise UsageError(f"`parallel_tool_call_reward_mode` is {mode!r}", f"use one of {', '.join(get_args(Mode))}")
        return cls(
            float(given.get("word_count_similarity_threshold", cls.similarity)),
            float(given.get("floating_point_comparison_threshold", cls.tolerance)),
            bool(given.get("parallel_tool_call_rewarding", False)),
            bool(given.get("allow_subset", False)),
            bool(given.get("allow_superset", False)),
            mode,
        )

    def verify(self, row: Row, response: Response) -> Verdict:
        """The reward of the calls, or of a message where one is expected. Extras: category (NeMo Gym's), reason."""
        expected = _expected(row)
        made = [(_name(call), call.get("arguments")) for call in function_calls(response)]
        spoke = any(item.get("type") == "message" for item in items(response))
        if not made and not spoke:
            return _verdict(0.0, "No tool call or chat message was found in the response")
        if expected is None:
            if made:
                return _verdict(0.0, "A tool call was executed when a chat message was expected")
            return _verdict(1.0, "A chat message was found as expected")
        if not made:
            return _verdict(0.0, "No tool call was found when one was expected")
        if len(expected) == len(made) == 1:
            wrong = self._differs(expected[0], made[0])
            return _verdict(float(not wrong), wrong or "A tool call that matches the expected tool call was found")
        return self._batch(expected, made)

    def _batch(self, expected: Sequence[tuple[str, Any]], made: Sequence[tuple[str, Any]]) -> Verdict:
        length = "The number of tool calls in a batch is different than expected"
        surplus = len(made) - len(expected)
        if self.count_matters and ((surplus < 0 and not self.allow_subset) or (surplus > 0 and not self.allow_superset)):
            return _verdict(0.0, length)
        differences = [[self._differs(one, other) for other in made] for one in expected]
        matched = _matching([[at for at, difference in enumerate(row) if not difference] for row in differences])
        required = min(len(expected), len(made)) if self.count_matters and self.allow_subset else len(expected)
        if self.count_matters and self.mode == "f1":
            reward = 2 * len(matched) / (len(expected) + len(made))
        elif self.count_matters and self.mode == "fractional":
            reward = len(matched) / required
        else:
            reward = float(len(matched) == required)
        if reward == 1:
            batch = "A tool-call batch that matches the expected tool calls was found"
            return _verdict(reward, "A tool call that matches the expected tool call was found" if len(expected) == 1 else batch)
        missing = [at for at in range(len(expected)) if at not in matched.values()]
        if not missing or len(matched) == len(made):
            return _verdict(reward, length)
        reasons = [difference for difference in differences[missing[0]] if difference and difference != _OTHER_TOOL]
        return _verdict(reward, reasons[0] if reasons else _OTHER_TOOL)

    def _differs(self, expected: tuple[str, Any], made: tuple[str, Any]) -> str:
        """NeMo Gym's category of the first difference; empty if there is none."""
        if expected[0] != made[0]:
            return _OTHER_TOOL
        try:
            arguments = json.loads(made[1])
        except (ValueError, TypeError, RecursionError):
            return "An error occurred when decoding the arguments string in a tool call as a JSON object"
        return self._value_differs(expected[1], arguments)

    def _value_differs(self, expected: Any, made: Any) -> str:
        if not isinstance(made, type(expected)):
            return "The type of an argument value in a tool call is different than the expected type"
        same = expected == made
        if isinstance(expected, dict):
            if expected.keys() != made.keys():
                return (
                    "The keys in an object in an argument value in a tool call are different than the keys in the expected object"
                )
            return next((found for key in expected if (found := self._value_differs(expected[key], made[key]))), "")
        if isinstance(expected, list):
            if len(expected) != len(made):
                return "A list in an argument value in a tool call has a different length than the expected list"
            pairs = zip(expected, made, strict=True)
            return next((found for one, other in pairs if (found := self._value_differs(one, other))), "")
        if isinstance(expected, float):
            same = abs(made - expected) < self.tolerance
        elif isinstance(expected, str):
            words, others = Counter(expected.lower().split()), Counter(made.lower().split())
            if words.total() > 1 and others.total() > 1:
                same = (words & others).total() / (words.total() + others.total()) >= self.similarity
        return "" if same else "An argument value in a tool call is different than the expected value"

    def gold(self, row: Row) -> Gold:
        """The expected calls; as wrong ones a message, another tool, and a number changed in the arguments."""
        expected = _expected(row)
        if expected is None:
            return Gold("$.expected_action", message("Yes."), (calls(("no_such_tool", {})),))
        renamed = [(f"{name}_other", arguments) for name, arguments in expected]
        changed = [(name, _changed(arguments)) for name, arguments in expected]
        wrong = [message("I cannot do that."), calls(*renamed), *([calls(*changed)] if changed != expected else [])]
        return Gold("$.expected_action", calls(*expected), tuple(wrong))


_OTHER_TOOL = "The tool in a tool call is not the expected tool"


def _verdict(reward: float, category: str) -> Verdict:
    return Verdict(reward, {"category": category, "reason": category})


def _expected(row: Row) -> list[tuple[str, Any]] | None:
    """The expected calls as (name, arguments); None where a message is expected."""
    action = row.get("expected_action")
    kind = action.get("type") if isinstance(action, Mapping) else None
    if not isinstance(action, Mapping) or kind not in ("message", "function_call", "function_call_batch"):
        raise VerifierFailure("the row has no `expected_action` of type message, function_call or function_call_batch")
    if kind == "message":
        return None
    named = action.get("calls") if kind == "function_call_batch" else [action]
    try:
        expected = [(str(call["name"]), json.loads(call["arguments"])) for call in named or []]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise VerifierFailure(
            f"`expected_action` has a call without a name, or with arguments that are not JSON: {error}"
        ) from error
    if not expected:
        raise VerifierFailure("`expected_action` has no calls")
    return expected


def _name(call: Mapping[str, Any]) -> str:
    return str(call.get("name"))


def _changed(value: Any) -> Any:
    """The same value with every number another one."""
    if isinstance(value, dict):
        return {key: _changed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_changed(one) for one in value]
    return value + 1 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _matching(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """The most pairs (made -> expected) where expected `i` may go with any of `candidates[i]` (Kuhn's algorithm)."""
    pairs: dict[int, int] = {}

    def place(expected: int, seen: set[int]) -> bool:
        for made in candidates[expected]:
            if made not in seen:
                seen.add(made)
                if made not in pairs or place(pairs[made], seen):
                    pairs[made] = expected
                    return True
        return False

    for expected in sorted(range(len(candidates)), key=lambda at: len(candidates[at])):
        place(expected, set())
    return pairs


@dataclass(frozen=True)
class SingleToolCall:
    """1 if the response calls `get_weather` at all."""

    name: str = field(default="example_single_tool_call", init=False, repr=False)
    version: str = field(default="1", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> SingleToolCall:
        """There are no options."""
        return cls()

    def verify(self, row: Row, response: Response) -> Verdict:
        """Extras: reason."""
        names = [_name(call) for call in function_calls(response)]
        called = "get_weather" in names
        made = ", ".join(dict.fromkeys(names))[:200] or "no tool"
        return Verdict(
            float(called), {"reason": "get_weather was called" if called else f"get_weather was not called, but {made}"}
        )

    def gold(self, row: Row) -> Gold:
        """A call of the tool; an answer without one."""
        return Gold("$", calls(("get_weather", {"city": "Lisbon"})), (message("It is cold."),))


@dataclass(frozen=True)
class MultiStep:
    """1 if the last call of `extract_synonym_values` hands in the expected values, in order."""

    name: str = field(default="example_multi_step", init=False, repr=False)
    version: str = field(default="1", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> MultiStep:
        """There are no options."""
        return cls()

    def verify(self, row: Row, response: Response) -> Verdict:
        """Extras: NeMo Gym's parsed_synonym_values, accuracy, set_overlap and two failures; extracted_answer, reason."""
        expected = row.get("expected_synonym_values")
        if not isinstance(expected, list) or not expected:
            raise VerifierFailure("the row has no `expected_synonym_values`, a list of integers")
        handed_in = [call for call in function_calls(response) if _name(call) == "extract_synonym_values"]
        values = _arguments(handed_in[-1]).get("synonym_values") if handed_in else None
        actual = [one for one in values if isinstance(one, str | int | float)] if isinstance(values, list) else []
        right = values == expected
        overlap = len(set(actual) & set(expected)) / len(expected)
        reason = (
            "extract_synonym_values was not called" if not handed_in
            else "the arguments of extract_synonym_values have no list of values" if not isinstance(values, list)
            else "the values are the expected ones" if right
            else f"the values are {str(values)[:200]}, expected {expected}"
        )  # fmt: skip
        extras = {
            "parsed_synonym_values": actual,
            "accuracy": right,
            "set_overlap": overlap,
            "original_term_minefield_hit": row.get("minefield_label") in actual or row.get("minefield_label_value") in actual,
            "order_instruction_following_failure": not right and overlap == 1.0,
            "extracted_answer": json.dumps(actual) if handed_in else None,
            "reason": reason,
        }
        return Verdict(float(right), extras)

    def gold(self, row: Row) -> Gold:
        """The expected values; the same with the first one changed."""
        values = row.get("expected_synonym_values")
        if not isinstance(values, list) or not values or not all(isinstance(one, int) for one in values):
            raise VerifierFailure("the row has no `expected_synonym_values`, a list of integers")
        tool = "extract_synonym_values"
        wrong = calls((tool, {"synonym_values": [values[0] + 1, *values[1:]]}))
        return Gold("$.expected_synonym_values", calls((tool, {"synonym_values": values})), (wrong,))


@dataclass(frozen=True)
class SessionState:
    """1 if the calls of `increment_counter` that were carried out bring the counter to `expected_count`."""

    name: str = field(default="example_session_state_mgmt", init=False, repr=False)
    version: str = field(default="1", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> SessionState:
        """There are no options."""
        return cls()

    def verify(self, row: Row, response: Response) -> Verdict:
        """Extras: extracted_answer (the counter at the end), reason."""
        counter, expected = row.get("initial_count"), row.get("expected_count")
        if not isinstance(counter, int) or not isinstance(expected, int):
            raise VerifierFailure("the row has no `initial_count` and `expected_count`, integers")
        answered = {item.get("call_id") for item in items(response) if item.get("type") == "function_call_output"}
        for call in function_calls(response):
            if _name(call) == "increment_counter" and (not answered or call.get("call_id") in answered):
                counter += _count(_arguments(call).get("count"))
        right = counter == expected
        reason = f"the counter holds {counter}" + ("" if right else f", expected {expected}")
        return Verdict(float(right), {"extracted_answer": counter, "reason": reason})

    def gold(self, row: Row) -> Gold:
        """One call that adds what is missing; one that adds one more."""
        start, end = row.get("initial_count"), row.get("expected_count")
        if not isinstance(start, int) or not isinstance(end, int):
            raise VerifierFailure("the row has no `initial_count` and `expected_count`, integers")
        right, wrong = (calls(("increment_counter", {"count": end - start + more})) for more in (0, 1))
        return Gold("$.expected_count", right, (wrong,))


def _arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call; none if they are not a JSON object."""
    try:
        arguments = json.loads(call.get("arguments") or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _count(value: Any) -> int:
    """What the tool takes for an integer, as NeMo Gym's pydantic model does: `3`, `3.0`, `"3"`; anything else adds nothing."""
    try:
        if isinstance(value, str):
            value = float(value) if "." in value else int(value)
        return int(value) if int(value) == value and abs(value) < 2**63 else 0
    except (TypeError, ValueError, OverflowError):
        return 0
