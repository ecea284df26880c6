"""For trl's online trainers (GRPO, RLOO): a task each, its prompt and, as columns for reward functions, what its verifier is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gymdata.export import task as tasks
from gymdata.export.options import Options, Tally
from gymdata.export.picking import template_kwargs
from gymdata.export.source import Rollout

DROPS = "answers and rewards, sampling parameters, tools' types"

_TAKEN = frozenset({"prompt", "prompts", "completion", "completions", "completion_ids", "tools", "task", "chat_template_kwargs"})
"""Names that trl, or this format, gives to something else."""


def records(task: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """`prompt`, `tools`, and the row's other keys, `row_` before those whose name is taken."""
    for row, spoken in tasks.asked(task, options, tally):
        given = {f"row_{key}" if key in _TAKEN else key: value for key, value in row.items() if key != "responses_create_params"}
        yield {"prompt": spoken.prompt, "tools": spoken.tools, "task": task[0].task} | template_kwargs(spoken, tally) | given
