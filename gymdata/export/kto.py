"""For Kahneman-Tversky optimization: answers, each good or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gymdata.export.options import Options, Tally
from gymdata.export.picking import identity, picked, said, template_kwargs
from gymdata.export.source import Rollout

DROPS = "log probabilities, what the verifier found, sampling parameters"


def records(task: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """`prompt`, `completion`, `tools`, and the `label`: whether the reward reaches the threshold."""
    for rollout, spoken in picked(task, options, tally, lambda rollout: said(rollout, options)):
        record = {"prompt": spoken.prompt, "completion": spoken.completion, "tools": spoken.tools}
        yield record | {"label": rollout.reward >= options.threshold} | template_kwargs(spoken, tally) | identity(rollout)
