"""NeMo Gym's own rollouts in all their ages: rows are ours already, but for failures among them and outputs kept as transitions."""

from __future__ import annotations

import itertools
from typing import Any

from gymdata.rollouts.foreign.record import Found, Misfit, Settings
from gymdata.rollouts.tasks import ROLLOUT_INDEX, TASK_INDEX


def read(record: dict[str, Any], settings: Settings) -> Found:
    """A row. Of an output of transitions, each of which repeats the one before, the last is the trajectory. Raises Misfit."""
    if failed := record.get("_ng_failure_class"):
        return Found(record, failure=(str(failed), str(record.get("_ng_failure_message") or "")))
    if not record.keys() & {"response", "reward"}:
        raise Misfit("response", "neither a response nor a reward: a task, not a rollout")
    found = Found(record)
    for key in (TASK_INDEX, ROLLOUT_INDEX):
        index = record.get(key)
        if isinstance(index, float) and index.is_integer():  # as tables have them where some are missing
            index = found.row[key] = int(index)
        if key in record and (type(index) is not int or index < 0):
            found.row = {key: value for key, value in found.row.items() if key not in (TASK_INDEX, ROLLOUT_INDEX)}
            found.notes.append("indices that are no whole numbers were left out")
            break
    response = record.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    if isinstance(response, dict) and isinstance(output, list) and output and all(isinstance(item, list) for item in output):
        if not all(_said(later)[: len(earlier)] == _said(earlier) for earlier, later in itertools.pairwise(output)):
            raise Misfit("response.output", "transitions that do not continue one another")
        told, said = _split(output[-1])
        params = record.get("responses_create_params")
        if told and isinstance(params, dict) and not params.get("input"):
            found.row = found.row | {"responses_create_params": params | {"input": told}}
        else:
            said = output[-1]
        found.row = found.row | {"response": response | {"output": said}}
        found.notes.append("an output of transitions became one trajectory")
    return found


def _said(items: list[Any]) -> list[Any]:
    """Items without their ids, which are given anew in every transition."""
    return [{key: value for key, value in item.items() if key != "id"} if isinstance(item, dict) else item for item in items]


def _split(items: list[Any]) -> tuple[list[Any], list[Any]]:
    """What came before the model's first item, and the rest."""
    spoken = (
        number
        for number, item in enumerate(items)
        if isinstance(item, dict) and (item.get("type") in ("reasoning", "function_call") or item.get("role") == "assistant")
    )
    first = next(spoken, len(items))
    return items[:first], items[first:]
