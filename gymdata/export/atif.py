"""For tools that read ATIF, the Agent Trajectory Interchange Format, version 1.7: a trajectory per rollout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gymdata.export.options import Options, Tally
from gymdata.export.picking import LeftOut, picked
from gymdata.export.source import Rollout
from gymdata.export.turns import Step, Trajectory, trajectory, usage

DROPS = "ids of items; what the agent's version was, which rollouts do not say"

VERSION = "ATIF-v1.7"


def records(task: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """Trajectories; with `tokens` the steps of the model have token ids and log probabilities."""
    yield from (
        made for _, made in picked(task, options, tally, lambda rollout: _trajectory(rollout, trajectory(rollout, options)))
    )


def _trajectory(rollout: Rollout, told: Trajectory) -> dict[str, Any]:
    """A trajectory. What the format has no place for is in its `extra`: the request's parameters, the row's keys. Raises LeftOut."""
    row = rollout.row
    response, params, agent = row["response"], row["responses_create_params"], row.get("agent_ref")
    model, name = response.get("model") or None, f"task-{rollout.task}-rollout-{rollout.index}"
    steps: list[dict[str, Any]] = []
    for number, step in enumerate(told.steps):
        if step.message["role"] == "tool":
            _observe(steps, step.message)
        else:
            steps.append({"step_id": len(steps) + 1, **_step(told, step, row, model)})
            if number < told.request and steps[-1]["source"] == "agent":
                steps[-1]["extra"] = {"in_request": True}
    counted = response.get("usage") if isinstance(response.get("usage"), dict) else {}
    totals = {"total_prompt_tokens": counted.get("input_tokens"), "total_completion_tokens": counted.get("output_tokens")}
    known = frozenset({"responses_create_params", "response", "reward"})
    return _filled(
        {
            "schema_version": VERSION,
            "session_id": name,
            "trajectory_id": name,
            "agent": _filled(
                {
                    "name": str(agent.get("name") if isinstance(agent, dict) else agent or "unknown"),
                    "version": "unknown",
                    "model_name": model,
                    "tool_definitions": told.tools or None,
                }
            ),
            "steps": steps,
            "final_metrics": _filled({**totals, "total_steps": len(steps)}),
            "extra": {
                "task": rollout.task,
                "rollout": rollout.index,
                "reward": rollout.reward,
                "parameters": {
                    key: value for key, value in params.items() if key not in ("input", "tools") and value is not None
                },
                "row": {key: value for key, value in row.items() if key not in known},
            },
        }
    )


def _step(told: Trajectory, step: Step, row: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    message = step.message
    if message["role"] != "assistant":
        return {"source": message["role"], "message": message["content"]}
    made: dict[str, Any] = {
        "source": "agent",
        "message": message["content"],
        "model_name": model if step.number >= 0 else None,
        "reasoning_content": message.get("reasoning_content"),
        "tool_calls": [_call(call) for call in message["tool_calls"]] if "tool_calls" in message else None,
    }
    if (counted := usage(told, step, row)) is not None:
        made["metrics"] = {"prompt_tokens": counted[0], "completion_tokens": counted[1]}
        if step.tokens is not None:
            ids = {"prompt_token_ids": step.tokens.prompt, "completion_token_ids": step.tokens.sampled}
            made["metrics"] |= {**ids, "logprobs": step.tokens.logprobs}
    return _filled(made)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call; arguments that are no object are in its `extra`."""
    function = call["function"]
    try:
        arguments = msgspec.json.decode(function["arguments"] or "{}")
    except (msgspec.DecodeError, UnicodeError):
        arguments = None
    made: dict[str, Any] = {"tool_call_id": call["id"], "function_name": function["name"]}
    if isinstance(arguments, dict):
        return {**made, "arguments": arguments}
    return {**made, "arguments": {}, "extra": {"arguments": function["arguments"]}}


def _observe(steps: list[dict[str, Any]], message: Mapping[str, Any]) -> None:
    """Put a result to the step that called for it. Raises LeftOut where none did."""
    for step in reversed(steps):
        if any(call["tool_call_id"] == message["tool_call_id"] for call in step.get("tool_calls", ())):
            results = step.setdefault("observation", {"results": []})["results"]
            results.append({"source_call_id": message["tool_call_id"], "content": message["content"]})
            return
    raise LeftOut("not expressible in ATIF", f"a result for the call {message['tool_call_id']!r}, which nothing made")


def _filled(value: dict[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if one is not None}
