"""Tells a context that is too long from other errors of model servers: a fact about the task, not a fault."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

OverflowKind = Literal["prompt_too_long", "no_room", "max_tokens_too_large"]


@dataclass(frozen=True)
class Overflow:
    """The prompt (or the answer asked for) does not fit into the model's context; what the server said of it."""

    kind: OverflowKind
    message: str


_SHAPES: tuple[tuple[OverflowKind, re.Pattern[str]], ...] = (
    ("max_tokens_too_large", re.compile(r"max(_completion|_output)?_tokens\W+\d+ cannot be greater than max_model_len", re.IGNORECASE)),
    ("max_tokens_too_large", re.compile(r"max_tokens is too large", re.IGNORECASE)),
    ("no_room", re.compile(r"max_(completion_)?tokens must be at least 1, got (0|-\d+)\b", re.IGNORECASE)),
    ("prompt_too_long", re.compile(r"maximum context length", re.IGNORECASE)),
    ("prompt_too_long", re.compile(r"prompt length \d+ exceeds the max_model_len", re.IGNORECASE)),
    ("prompt_too_long", re.compile(r"prompt \(length \d+\) is longer than the maximum model length", re.IGNORECASE)),
    ("prompt_too_long", re.compile(r"context_length_exceeded|exceeds? the (model's )?context (length|window)", re.IGNORECASE)),
    ("prompt_too_long", re.compile(r"input (tokens|is too long)\b.*\b(context|model)", re.IGNORECASE)),
)  # fmt: skip
"""vLLM 0.32 (reference: its four shapes), older vLLM, SGLang and OpenAI. The order decides: the first names both."""


def overflow(status: int, message: str, code: str = "") -> Overflow | None:
    """The overflow that an error reply tells of; None for any other error."""
    if status not in (400, 413, 422):
        return None
    text = f"{message} {code}"
    return next((Overflow(kind, message) for kind, shape in _SHAPES if shape.search(text)), None)
