"""A rollout as chat messages one by one, which of them the model sampled, and the token ids of each of its replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymdata.export.conversation import messages, name_results
from gymdata.export.options import Options
from gymdata.export.picking import LeftOut, sequence
from gymdata.export.source import Rollout
from gymdata.rollouts.chat import Inexpressible, functions
from gymdata.rollouts.tokens import SAMPLED, Turn, check


@dataclass(frozen=True, slots=True)
class Step:
    """A chat message, its thoughts a field and arguments as they were sampled. The last message of a reply has the reply's `tokens`.

    `number` counts the replies from 0; -1 for what the model did not say in this rollout.
    """

    message: dict[str, Any]
    number: int = -1
    tokens: Turn | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All messages of a rollout, `request` of which are what the model was asked; its tools as chat has them."""

    steps: list[Step]
    request: int
    tools: list[dict[str, Any]]

    @property
    def replies(self) -> int:
        return 1 + max(step.number for step in self.steps)


def trajectory(rollout: Rollout, options: Options) -> Trajectory:
    """The messages of a rollout, with token ids if `options` ask for them. Raises LeftOut."""
    row = rollout.row
    params, output = row["responses_create_params"], row["response"]["output"]
    if options.tokens:
        sequence(rollout)
    turns = {turn.place: turn for turn in check(row).turns} if options.tokens else {}
    reasoning = "drop" if options.reasoning == "drop" else "field"
    try:
        request = messages(params.get("input") or [], reasoning, params.get("instructions"), parsed=False)
        steps = [Step(message) for message in request]
        number = -1
        for first, items, said in _pieces(output):
            built = messages(items, reasoning, parsed=False)
            number += said
            for place, message in enumerate(built, 1):
                last = said and place == len(built)
                ids = turns.get(f"response.output[{first + len(items) - 1}]") if last else None
                steps.append(Step(message, number if said else -1, ids, last))
        tools = functions(params.get("tools") or [])
        name_results([step.message for step in steps])
    except Inexpressible as error:
        raise LeftOut("not expressible as chat messages", error) from error
    except (AttributeError, KeyError, TypeError) as error:
        raise LeftOut("not expressible as chat messages", f"an item that is none ({error!r})") from error
    if number < 0:
        raise LeftOut("without an answer", "the model says nothing")
    return Trajectory(steps, len(request), tools)


def usage(trajectory: Trajectory, step: Step, row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Tokens of the prompt and of the reply that a step ends, as far as they are known: by its ids, or by the usage of a single reply."""
    if step.tokens is not None:
        return len(step.tokens.prompt), len(step.tokens.sampled)
    counted = row["response"].get("usage")
    if step.ends and trajectory.replies == 1 and isinstance(counted, dict):
        found = counted.get("input_tokens"), counted.get("output_tokens")
        if isinstance(found[0], int) and isinstance(found[1], int):
            return found[0], found[1]
    return None


def _pieces(output: Sequence[Mapping[str, Any]]) -> list[tuple[int, list[Mapping[str, Any]], bool]]:
    """Runs of items: the index of the first, the items, whether they are one reply of the model. A reply ends where it has token ids."""
    pieces: list[tuple[int, list[Mapping[str, Any]], bool]] = []
    ended = True
    for index, item in enumerate(output):
        kind = item.get("type") or "message"
        said = kind in ("reasoning", "function_call") or (kind == "message" and item.get("role", "assistant") == "assistant")
        if ended or pieces[-1][2] != said:
            pieces.append((index, [item], said))
        else:
            pieces[-1][1].append(item)
        ended = said and item.get(SAMPLED) is not None
    return pieces
