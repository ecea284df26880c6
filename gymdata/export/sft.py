"""For supervised fine-tuning: a conversation per rollout, or its token ids with labels on the sampled ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gymdata.export.options import Options, Tally
from gymdata.export.picking import identity, picked, said, sequence, template_kwargs
from gymdata.export.source import Rollout

DROPS = "log probabilities, what the verifier found, sampling parameters; with --tokens texts"

IGNORED = -100
"""The label of a token that the loss leaves out."""


def records(task: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """`messages` and `tools`; or `input_ids` and `labels`, -100 where a token was not sampled."""
    if options.tokens:
        for rollout, joined in picked(task, options, tally, sequence):
            labels = [token if mask else IGNORED for token, mask in zip(joined.ids, joined.loss_mask, strict=True)]
            yield {"input_ids": joined.ids, "labels": labels, **identity(rollout)}
        return
    for rollout, spoken in picked(task, options, tally, lambda rollout: said(rollout, options)):
        record = {"messages": spoken.prompt + spoken.completion, "tools": spoken.tools}
        yield record | template_kwargs(spoken, tally) | identity(rollout)
