"""A task as it was before its rollouts: what all of them echo, without what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gymdata.export.conversation import Conversation, conversation
from gymdata.export.options import Options, Tally
from gymdata.export.picking import LeftOut
from gymdata.export.source import Rollout
from gymdata.rollouts.chat import Inexpressible
from gymdata.rollouts.facts import OUTCOME_KEYS
from gymdata.rollouts.outcome import Item, count_turns


def row(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """The row of a task. Of the keys that its rollouts do not agree on, which are a verifier's findings, none is in it."""
    first, *others = (rollout.row for rollout in rollouts)
    return {
        key: value
        for key, value in first.items()
        if key not in OUTCOME_KEYS and not key.startswith("_") and all(key in other and other[key] == value for other in others)
    }


def asked(rollouts: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[tuple[dict[str, Any], Conversation]]:
    """The row of a task and its request as chat messages; nothing if they cannot hold it, or its rollouts were asked different things."""
    found = row(rollouts)
    try:
        if "responses_create_params" not in found:
            raise LeftOut(
                "of a task whose rollouts had different requests", f"{len(rollouts)} rollouts of the task {rollouts[0].task}"
            )
        spoken = conversation({"responses_create_params": found["responses_create_params"]}, options.reasoning)
        if not spoken.prompt:
            raise LeftOut("without a prompt", "the input is empty")
    except Inexpressible as error:
        tally.remove("not expressible as chat messages", f"{rollouts[0].place}: {error}", len(rollouts))
    except LeftOut as error:
        tally.remove(error.reason, f"{rollouts[0].place}: {error.why}", len(rollouts))
    else:
        yield found, spoken


def prompt_tokens(rollouts: Sequence[Rollout]) -> int | None:
    """How long the request is for the model that answered it: by its captured ids, or what the server counted for a single reply."""
    for rollout in rollouts:
        response = rollout.row.get("response")
        output = response.get("output") if isinstance(response, dict) else None
        if not isinstance(response, dict) or not isinstance(output, list):
            continue
        items = [item for item in output if isinstance(item, dict)]
        if first := next((item["prompt_token_ids"] for item in items if item.get("prompt_token_ids")), None):
            return len(first)
        usage = response.get("usage")
        counted = usage.get("input_tokens") if isinstance(usage, dict) else None
        kinds = [Item(item.get("type") or "message", item.get("role") or "assistant") for item in items]
        if isinstance(counted, int) and counted > 0 and count_turns(kinds)[0] == 1:
            return counted
    return None
