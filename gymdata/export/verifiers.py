"""For verifiers: an episode with one trace per rollout, as version 1 of its `traces.jsonl` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gymdata.export.options import Options, Tally
from gymdata.export.picking import picked
from gymdata.export.source import Rollout
from gymdata.export.turns import Step, Trajectory, trajectory, usage
from gymdata.rollouts.facts import OUTCOME_KEYS
from gymdata.rollouts.outcome import Response, truncation

DROPS = "sampling parameters, ids of items; which message a prompt's tokens belong to (they stand before the reply that they were for)"

VERSION = "0.4.0"
"""The version of verifiers whose traces these are."""


def records(task: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """Episodes; with `tokens` their nodes have token ids, masks and log probabilities."""
    for rollout, told in picked(task, options, tally, lambda rollout: trajectory(rollout, options)):
        yield _episode(rollout, told)


def _episode(rollout: Rollout, told: Trajectory) -> dict[str, Any]:
    row, name = rollout.row, f"{rollout.task}-{rollout.index}"
    response = row["response"]
    made = response.get("created_at") or 0.0
    agent = row.get("agent_ref")
    environment = str(agent.get("name") if isinstance(agent, dict) else agent or "")
    rest = {key: value for key, value in row.items() if key not in OUTCOME_KEYS | {"responses_create_params"} and key[:1] != "_"}
    prompt = [_message(step.message) for step in told.steps[: told.request]]
    task = {
        "type": "Task",
        "data": {"idx": rollout.task, "prompt": prompt, "row": {key: value for key, value in rest.items() if key != "agent_ref"}},
        "key": str(rollout.task),
    }
    tools = [_tool(tool) for tool in told.tools]
    trace = {
        "version": 1,
        "id": name,
        "verifiers": {"version": VERSION},
        "task": task,
        "agent": {"config": {}, "name": "agent"},
        "tools": tools,
        "nodes": _nodes(told, tools, made),
        "calls": _calls(told, row),
        "rewards": _rewards(row, rollout.reward),
        "metrics": {key: float(value) for key, value in rest.items() if isinstance(value, int | float)},
        "info": {"rollout": rollout.index},
        "is_completed": True,
        "ok": True,
        "timing": {"start": made},
    }
    return {
        "id": name,
        "env": {"id": environment},
        "task": task,
        "group": {"id": str(rollout.task)},
        "ok": True,
        "traces": [trace],
    }


def _nodes(told: Trajectory, tools: list[dict[str, Any]], made: float) -> list[dict[str, Any]]:
    """A node per message, each the child of the one before; together their token ids are the sequence that the model saw."""
    nodes: list[dict[str, Any]] = []
    seen = 0
    for number, step in enumerate(told.steps):
        node: dict[str, Any] = {"parent": number - 1} if number else {"tools": tools} if tools else {}
        node |= {"message": _message(step.message), "sampled": step.number >= 0, "timestamp": made}
        if step.tokens is not None:
            before = step.tokens.prompt[seen:]
            node["token_ids"] = [*before, *step.tokens.sampled]
            node["mask"] = [False] * len(before) + [True] * len(step.tokens.sampled)
            node["logprobs"] = step.tokens.logprobs
            seen = len(step.tokens.prompt) + len(step.tokens.sampled)
        nodes.append(node)
    return nodes


def _calls(told: Trajectory, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    response = row["response"]
    cut = truncation(Response(incomplete_details=response.get("incomplete_details"), status=response.get("status")))
    calls = []
    for number, step in enumerate(told.steps):
        if step.ends:
            call: dict[str, Any] = {"node": number, "model": response.get("model"), "finish_reason": _stopped(step)}
            if cut and step.number == told.replies - 1:
                call["finish_reason"] = "length"
            if (counted := usage(told, step, row)) is not None:
                call["usage"] = {"prompt_tokens": counted[0], "completion_tokens": counted[1]}
            calls.append(call)
    return calls


def _stopped(step: Step) -> str:
    return "tool_calls" if step.message.get("tool_calls") else "stop"


def _rewards(row: Mapping[str, Any], reward: float) -> dict[str, dict[str, float]]:
    """The components of a reward where they add up to it."""
    found = row.get("reward_components")
    parts = {key: float(part) for key, part in found.items() if isinstance(part, int | float)} if isinstance(found, dict) else {}
    if not parts or abs(sum(parts.values()) - reward) > 1e-6:
        parts = {"reward": reward}
    return {key: {"score": part} for key, part in parts.items()}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return dict(message)
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "description": "", "parameters": {}} | tool["function"]
