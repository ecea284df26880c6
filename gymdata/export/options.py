"""What an export is asked for, and what it tells of the rollouts that it left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from gymdata.export.conversation import Reasoning


@dataclass(frozen=True, slots=True)
class Options:
    """`pick`: all rollouts of a task, or the one with the highest reward, the first of equals. `threshold` is the reward from which
    on an answer is good, `margin` by how much the rewards of a pair differ at least, `max_pairs` how many pairs a task gives.
    """

    pick: Literal["all", "best"] = "all"
    min_reward: float | None = None
    keep_truncated: bool = False
    reasoning: Reasoning = "tags"
    tokens: bool = False
    threshold: float = 1.0
    margin: float = 0.0
    max_pairs: int = 1
    max_model_len: int | None = None
    agent: str = ""
    """What runs the rows that do not say it."""


@dataclass(slots=True)
class Tally:
    """`removed` counts rollouts by reason; `examples` has, for reasons that need one, the first and what is the matter with it."""

    removed: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    sets_template: bool = False
    """Whether a row says how its chat template is to be filled in: then every record has a `chat_template_kwargs`."""

    def remove(self, reason: str, example: str = "", count: int = 1) -> None:
        self.removed[reason] += count
        if example:
            self.examples.setdefault(reason, example)
