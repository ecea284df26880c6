"""Which rollouts of a task become records: those that are good enough, that can be said, and of these all or the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from gymdata.export.conversation import Conversation, conversation
from gymdata.export.options import Options, Tally
from gymdata.export.source import Rollout
from gymdata.rollouts.chat import Inexpressible
from gymdata.rollouts.tokens import BrokenTokens, Joined, check, check_joined, join

Said = TypeVar("Said")

IDENTITY = ("task", "rollout", "reward")
"""Columns of a record that say which rollout it is."""


class LeftOut(ValueError):
    """A rollout that a format cannot hold: for which reason, and what exactly is the matter."""

    def __init__(self, reason: str, why: object) -> None:
        super().__init__(f"{reason}: {why}")
        self.reason, self.why = reason, why


def picked(
    task: Sequence[Rollout], options: Options, tally: Tally, say: Callable[[Rollout], Said]
) -> Iterator[tuple[Rollout, Said]]:
    """The rollouts that `options` ask for, with what `say` makes of each; one that it raises LeftOut for is not among them."""
    rollouts = task if options.pick == "all" else sorted(task, key=lambda rollout: -rollout.reward)
    found = False
    for rollout in rollouts:
        if options.min_reward is not None and rollout.reward < options.min_reward:
            tally.remove(f"reward below {options.min_reward:g}")
        elif found and options.pick == "best":
            tally.remove("not the best of its task")
        else:
            try:
                said = say(rollout)
            except LeftOut as error:
                tally.remove(error.reason, f"{rollout.place}: {error.why}")
            else:
                found = True
                yield rollout, said


def said(rollout: Rollout, options: Options) -> Conversation:
    """The conversation of a rollout, in which the model says something. Raises LeftOut."""
    try:
        spoken = conversation(rollout.row, options.reasoning)
    except Inexpressible as error:
        raise LeftOut("not expressible as chat messages", error) from error
    if not any(message["content"] or message.keys() & {"tool_calls", "reasoning_content"} for message in spoken.completion):
        raise LeftOut("without an answer", "the model says nothing")
    return spoken


def sequence(rollout: Rollout) -> Joined:
    """All token ids of a rollout with the loss mask. Raises LeftOut where they do not make one sequence, or there are none."""
    checked = check(rollout.row)
    if not checked.turns and not checked.faults:
        raise LeftOut("without token ids", "no item has generation_token_ids")
    try:
        joined = join(checked)
    except BrokenTokens as error:
        raise LeftOut("token ids that are not one sequence", error) from error
    if wrong := check_joined(checked, joined):
        raise LeftOut("token ids that are not one sequence", wrong)
    return joined


def identity(rollout: Rollout) -> dict[str, Any]:
    """Which rollout a record is."""
    return dict(zip(IDENTITY, (rollout.task, rollout.index, rollout.reward), strict=True))


def template_kwargs(conversation: Conversation, tally: Tally) -> dict[str, Any]:
    """The column that says how the template is to be filled in, if any row of the file has one: trainers want it in all rows or in none."""
    return {"chat_template_kwargs": conversation.template_kwargs} if tally.sets_template else {}
