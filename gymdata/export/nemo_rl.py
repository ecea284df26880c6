"""For NeMo-RL: the rows of its NeMo Gym environment; pairs of its preference datasets; or, with token ids, its message logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gymdata.export import dpo, task
from gymdata.export.options import Options, Tally
from gymdata.export.picking import identity, picked, sequence
from gymdata.export.source import Rollout
from gymdata.rollouts.tokens import check

DROPS = "answers and rewards; with --tokens texts and what the verifier found"
PREFERENCE_DROPS = dpo.DROPS.replace("answers", "tools' declarations, answers", 1)


def records(rollouts: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """The task's row, which names its agent; with `tokens` a rollout's `message_log`."""
    if options.tokens:
        for rollout, log in picked(rollouts, options, tally, message_log):
            yield {"message_log": log, "agent_ref": rollout.row.get("agent_ref"), **identity(rollout)}
        return
    row = task.row(rollouts)
    if options.agent and row.get("agent_ref") is None:
        row["agent_ref"] = {"type": "responses_api_agents", "name": options.agent}
    if "responses_create_params" not in row:
        tally.remove("of a task whose rollouts had different requests", count=len(rollouts))
    elif "agent_ref" not in row:
        tally.remove("without an agent_ref", f"{rollouts[0].place}: which agent runs the row? --agent says it", len(rollouts))
    else:
        yield row


def preferences(rollouts: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """`context` and two `completions`, that of rank 0 the better one."""
    for pair in dpo.records(rollouts, options, tally):
        completions = [{"rank": rank, "completion": pair[key]} for rank, key in enumerate(("chosen", "rejected"))]
        yield {"context": pair["prompt"], "completions": completions, "task_name": f"task {pair['task']}"}


def message_log(rollout: Rollout) -> list[dict[str, Any]]:
    """What was told and what was sampled by turns, each with the token ids that it adds. Raises LeftOut."""
    sequence(rollout)
    log: list[dict[str, Any]] = []
    seen = 0
    for turn in check(rollout.row).turns:
        log.append({"role": "user", "content": "", "token_ids": turn.prompt[seen:]})
        log.append({"role": "assistant", "content": "", "token_ids": turn.sampled, "generation_logprobs": turn.logprobs})
        seen = len(turn.prompt) + len(turn.sampled)
    return log
