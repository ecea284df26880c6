"""The token ids of a rollout as its requests showed them: sequences to train on, with masks, not one prompt per turn."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any


class TokenSequence:
    """Ids; for each, 1 if the model sampled it, else 0, and its log probability (0.0 of what was not sampled)."""

    def __init__(self) -> None:
        self.ids, self.sampled, self.logprobs = array("q"), bytearray(), array("d")

    def extend(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """Append sampled ids with their log probabilities; without these, ids that were not sampled."""
        self.ids.extend(ids)
        self.sampled.extend([logprobs is not None] * len(ids))
        self.logprobs.extend([0.0] * len(ids) if logprobs is None else logprobs)

    def to_json(self) -> dict[str, Any]:
        return {"token_ids": self.ids.tolist(), "loss_mask": list(self.sampled), "logprobs": self.logprobs.tolist()}


class Sequences:
    """A turn whose prompt begins with a whole sequence goes on with it; any other (a new conversation, a prompt that was rendered anew
    with other ids, a turn asked for twice) begins one of its own, so that every sampled token stands once, after what it was sampled from.
    """

    def __init__(self) -> None:
        self.all: list[TokenSequence] = []

    @property
    def tokens(self) -> int:
        """Of all sequences."""
        return sum(len(sequence.ids) for sequence in self.all)

    def add(self, prompt: Sequence[int], generated: Sequence[int], logprobs: Sequence[float]) -> None:
        """Take in one turn: the ids of its prompt, the sampled ones, and one log probability for each of these."""
        ids = array("q", prompt)
        continued = [one for one in self.all if ids[: len(one.ids)] == one.ids]
        sequence = max(continued, key=lambda one: len(one.ids), default=None)
        if sequence is None:
            self.all.append(sequence := TokenSequence())
        sequence.extend(ids[len(sequence.ids) :])
        sequence.extend(generated, logprobs)
