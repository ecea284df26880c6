"""For direct preference optimization: pairs of a task's answers whose rewards differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gymdata.export.conversation import Conversation
from gymdata.export.options import Options, Tally
from gymdata.export.picking import picked, said, template_kwargs
from gymdata.export.source import Rollout

DROPS = "answers in no pair, log probabilities, what the verifier found, sampling parameters"

_ROUNDING = 1e-9
"""0.7 is 0.5 more than 0.2, which a difference of floats is not."""


def records(task: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """`prompt`, `chosen`, `rejected` and `tools`. Rollouts in no pair are counted."""
    answers = list(picked(task, options, tally, lambda rollout: said(rollout, options)))
    paired = set()
    for better, worse in pairs(answers, options.margin, options.max_pairs):
        paired |= {better, worse}
        (chosen, spoken), (rejected, other) = answers[better], answers[worse]
        yield (
            {"prompt": spoken.prompt, "chosen": spoken.completion, "rejected": other.completion, "tools": spoken.tools}
            | template_kwargs(spoken, tally)
            | {"task": chosen.task, "chosen_rollout": chosen.index, "rejected_rollout": rejected.index}
            | {"chosen_reward": chosen.reward, "rejected_reward": rejected.reward}
        )
    if unpaired := len(answers) - len(paired):
        tally.remove("in no pair", count=unpaired)


def pairs(answers: Sequence[tuple[Rollout, Conversation]], margin: float, limit: int) -> list[tuple[int, int]]:
    """At most `limit` pairs of numbers of answers, better and worse, to the same request and by more than nothing and at least `margin`.

    The widest apart come first; of these an answer is taken again only when every pair of others has been.
    """
    # Encoded once: there are as many comparisons as pairs.
    asked = [msgspec.json.encode([spoken.prompt, spoken.tools], order="sorted") for _, spoken in answers]
    told = [msgspec.json.encode(spoken.completion, order="sorted") for _, spoken in answers]
    rewards = [one.reward for one, _ in answers]
    apart = [
        (one - other, better, worse)
        for better, one in enumerate(rewards)
        for worse, other in enumerate(rewards)
        if one > other and one - other >= margin - _ROUNDING and asked[better] == asked[worse] and told[better] != told[worse]
    ]
    waiting = [(better, worse) for _, better, worse in sorted(apart, key=lambda pair: (-pair[0], pair[1], pair[2]))]
    used: Counter[int] = Counter()
    taken: list[tuple[int, int]] = []
    while waiting and len(taken) < limit:
        most = min(max(used[better], used[worse]) for better, worse in waiting)
        left = []
        for better, worse in waiting:
            if len(taken) < limit and max(used[better], used[worse]) <= most:
                taken.append((better, worse))
                used.update((better, worse))
            else:
                left.append((better, worse))
        waiting = left
    return taken
