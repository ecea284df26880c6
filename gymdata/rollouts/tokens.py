"""Token ids of a trajectory: whether what the model saw and sampled is one unbroken sequence, and that sequence with its loss mask.

An item of the model may carry `prompt_token_ids`, `generation_token_ids` and `generation_log_probs`, all three or none; they are
those of the whole reply that ends with it. For every reply t after the first, the prompt begins with the prompt and the sampled
ids of reply t-1. A trainer that joins replies for which this does not hold trains on what was never sampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

PROMPT, SAMPLED, LOGPROBS = TOKEN_IDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")

FaultKind = Literal["partial_ids", "bad_id", "bad_logprob", "length_mismatch", "missing_ids", "diverges"]

_AROUND = 8
"""Ids told on either side of where two sequences part."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a reply's ids. `turn` counts the replies from 0, `place` is the path of the item in the row.

    Where ids diverge, `at` is the position, from which on `expected` (what came before) and `found` (what the reply's prompt has
    instead) differ; both begin at position `start`, some ids earlier.
    """

    kind: FaultKind
    turn: int
    place: str
    message: str
    at: int | None = None
    start: int = 0
    expected: Sequence[int] = ()
    found: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply with its ids; `logprobs` are those of `sampled`, one each."""

    place: str
    prompt: list[int]
    sampled: list[int]
    logprobs: list[float]


@dataclass(frozen=True, slots=True)
class Checked:
    """What a trajectory's ids are: the replies that have whole ones, and what is wrong."""

    turns: tuple[Turn, ...]
    faults: tuple[Fault, ...]

    @property
    def sampled(self) -> int:
        """How many ids were sampled in all."""
        return sum(len(turn.sampled) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Joined:
    """A trajectory as a trainer takes it: all ids, 1 for each that was sampled, and its log probability (0.0 for the others)."""

    ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]


class BrokenTokens(ValueError):
    """A trajectory whose ids do not make one sequence."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults[:3]))
        self.faults = tuple(faults)


def check(row: Mapping[str, Any]) -> Checked:
    """The ids of a rollout, those of earlier replies in its request included, and every fault. A row without any ids has none."""
    turns: list[Turn] = []
    faults: list[Fault] = []
    missing: list[tuple[int, str]] = []
    number = 0
    for place, item, ends in _replies(row):
        if all(item.get(key) is None for key in TOKEN_IDS):
            # An empty reply is how a context that is full is told in some rollouts: nothing was sampled for it.
            if ends and place.startswith("response"):
                missing.append((number, place))
                number += 1
            continue
        if found := _malformed(item, number, place):
            faults.append(found)
        else:
            turn = Turn(place, item[PROMPT], item[SAMPLED], item[LOGPROBS])
            if turns and (fault := _divergence(turns[-1], turn, number)):
                faults.append(fault)
            turns.append(turn)
        number += 1
    if turns or faults:
        faults += [Fault("missing_ids", n, place, "has no token ids, other replies of the rollout have") for n, place in missing]
    return Checked(tuple(turns), tuple(sorted(faults, key=lambda fault: fault.turn)))


def join(checked: Checked) -> Joined:
    """The one sequence that the replies of a trajectory make. Raises BrokenTokens if they do not."""
    if checked.faults:
        raise BrokenTokens(checked.faults)
    joined = Joined([], [], [])
    for turn in checked.turns:
        told = turn.prompt[len(joined.ids) :]
        joined.ids.extend([*told, *turn.sampled])
        joined.loss_mask.extend([0] * len(told) + [1] * len(turn.sampled))
        joined.logprobs.extend([0.0] * len(told) + turn.logprobs)
    return joined


def check_joined(checked: Checked, joined: Joined) -> str:
    """What is wrong with a sequence that is said to be that of a trajectory, "" if nothing is: another way than `join` goes."""
    if not len(joined.ids) == len(joined.loss_mask) == len(joined.logprobs):
        return f"{len(joined.ids)} ids, {len(joined.loss_mask)} of the loss mask, {len(joined.logprobs)} log probabilities"
    sampled: dict[int, tuple[int, float]] = {}
    for turn in checked.turns:
        start = len(turn.prompt)
        if joined.ids[:start] != turn.prompt:
            return f"the sequence does not begin with the prompt of {turn.place}"
        sampled |= {start + n: pair for n, pair in enumerate(zip(turn.sampled, turn.logprobs, strict=True))}
    for position, (token, masked, logprob) in enumerate(zip(joined.ids, joined.loss_mask, joined.logprobs, strict=True)):
        if bool(masked) != (position in sampled):
            return f"the loss mask is {masked} at {position}, where the token was {'' if position in sampled else 'not '}sampled"
        if masked and sampled[position] != (token, logprob):
            return f"at {position} there are token {token} and log probability {logprob}, sampled were {sampled[position]}"
    return ""


def latest(items: Sequence[Mapping[str, Any]]) -> int | None:
    """The index of the latest item that has ids; None if none has."""
    found = (number for number, item in enumerate(items) if isinstance(item, Mapping) and item.get(SAMPLED) is not None)
    return max(found, default=None)


def _replies(row: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """The model's items with their paths; True with one that ends what the model said without ids for it, though it said something."""
    params, response = row.get("responses_create_params"), row.get("response")
    sources = (
        ("responses_create_params.input", params.get("input") if isinstance(params, Mapping) else None),
        ("response.output", response.get("output") if isinstance(response, Mapping) else None),
    )
    for name, items in sources:
        own = [
            (number, item)
            for number, item in enumerate(items if isinstance(items, Sequence) and not isinstance(items, str) else ())
            if isinstance(item, Mapping)
        ]
        for place, (number, item) in enumerate(own):
            if not _own(item):
                continue
            following = own[place + 1][1] if place + 1 < len(own) else {}
            said = _says(item) or item.get("type") == "reasoning"
            yield f"{name}[{number}]", item, said and not _own(following)


def _own(item: Mapping[str, Any]) -> bool:
    kind = item.get("type") or "message"
    if kind == "message":
        return item.get("role") == "assistant"
    return not kind.endswith("_output")


def _says(item: Mapping[str, Any]) -> bool:
    """Whether there is anything in it."""
    content = item.get("content")
    if (item.get("type") or "message") != "message":
        return True
    if isinstance(content, Sequence) and not isinstance(content, str):
        return any(not isinstance(part, Mapping) or part.get("text") or part.get("refusal") for part in content)
    return bool(content or item.get("tool_calls"))


def _malformed(item: Mapping[str, Any], turn: int, place: str) -> Fault | None:
    lists = {key: item.get(key) for key in TOKEN_IDS}
    if lacking := [key for key, value in lists.items() if not isinstance(value, list)]:
        return Fault("partial_ids", turn, place, f"{', '.join(lacking)}: no list, though others of {', '.join(TOKEN_IDS)} are")
    for key in (PROMPT, SAMPLED):
        for position, token in enumerate(item[key]):
            if type(token) is not int or token < 0:
                return Fault("bad_id", turn, place, f"{key}[{position}] is {token!r}, no token id", position)
    for position, logprob in enumerate(item[LOGPROBS]):
        if type(logprob) not in (int, float) or not math.isfinite(logprob):
            return Fault("bad_logprob", turn, place, f"{LOGPROBS}[{position}] is {logprob!r}, no finite number", position)
    if len(item[SAMPLED]) != len(item[LOGPROBS]):
        counts = f"{len(item[SAMPLED])} sampled ids and {len(item[LOGPROBS])} log probabilities"
        return Fault("length_mismatch", turn, place, f"has {counts}")
    if not item[PROMPT]:
        return Fault("length_mismatch", turn, place, "has an empty prompt")
    return None


def _divergence(before: Turn, turn: Turn, number: int) -> Fault | None:
    seen = [*before.prompt, *before.sampled]
    if turn.prompt[: len(seen)] == seen:
        return None
    at = next((n for n, (one, two) in enumerate(zip(seen, turn.prompt, strict=False)) if one != two), len(turn.prompt))
    where = f"the prompt of {before.place}" if at < len(before.prompt) else f"what was sampled in {before.place}"
    how = "ends" if at == len(turn.prompt) else "departs from what came before"
    start = max(0, at - _AROUND)
    message = f"its prompt {how} at token {at} of {len(seen)}, in {where}"
    return Fault(
        "diverges", number, turn.place, message, at, start, seen[start : at + _AROUND], turn.prompt[start : at + _AROUND]
    )
