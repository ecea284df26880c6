"""What `verifiers` saves: `results.jsonl` (version 0: a rollout per line) and `traces.jsonl` (version 1: an episode per line)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gymdata.rollouts.foreign.record import Found, Misfit, Settings, items, number, response, take, usage
from gymdata.rollouts.tokens import LOGPROBS, PROMPT, SAMPLED

_TOLD = frozenset({"prompt", "completion", "reward", "tool_defs", "oai_tools", "error", "error_chain", "long_error_chain", "token_usage",
                   "is_truncated", "is_completed", "timing", "metrics", "trajectory"})  # fmt: skip
"""Keys of version 0 that become something else, or nothing."""


def read(record: dict[str, Any], settings: Settings) -> Found:
    """A rollout of either version. Raises Misfit."""
    return _episode(record, settings) if "traces" in record else _result(record, settings)


def _result(record: Mapping[str, Any], settings: Settings) -> Found:
    """Version 0: `prompt` and `completion` are texts or chat messages, metrics keys of their own; an `error` is a failure."""
    if "prompt" not in record:
        raise Misfit("prompt", "missing: neither a result nor an episode of verifiers")
    prompt = record["prompt"]
    given: Any = prompt if isinstance(prompt, str) else items(_messages(record, "prompt"), "prompt")
    tools = [_tool(tool) for tool in _maybe_json(record.get("oai_tools") or record.get("tool_defs"), "oai_tools") or ()]
    agent = settings.agent or take(record, "task", str, "") or "verifiers"
    row: dict[str, Any] = {
        "responses_create_params": {"input": given, **({"tools": tools} if tools else {})},
        "agent_ref": {"type": "responses_api_agents", "name": agent},
    }
    row |= {key: value for key, value in record.items() if key not in _TOLD and not key.startswith("_") and key not in row}
    row |= {
        f"metric_{key}" if key in row else key: value for key, value in (record.get("metrics") or {}).items() if key not in row
    }
    example = json.dumps([record.get("task"), record.get("example_id"), given], sort_keys=True)
    if error := record.get("error"):
        told = error if isinstance(error, dict) else {"error": str(error)}
        return Found(row, example, (str(told.get("error")), str(told.get("error_chain_str") or told.get("error"))))
    completion = record.get("completion")
    if completion is None:
        raise Misfit("completion", "missing, and no error either")
    said = completion if isinstance(completion, list) else [{"role": "assistant", "content": completion}]
    tokens = record.get("token_usage") or {}
    counted = usage(_count(tokens, "input_tokens"), _count(tokens, "output_tokens"))
    output = items([_called(message) for message in said], "completion")
    row["response"] = response(output, row["responses_create_params"], None, bool(record.get("is_truncated")), counted)
    row["reward"] = number(record, settings.reward_key or "reward")
    return Found(row, example)


def _episode(record: Mapping[str, Any], settings: Settings) -> Found:
    """Version 1: the one trace of an episode, if its messages are one line; token ids are kept where every reply has them."""
    traces = take(record, "traces", list, [])
    task = take(record, "task", dict, {})
    data = task.get("data") or {}
    name = settings.agent or (record.get("env") or {}).get("id") or task.get("type") or "verifiers"
    row: dict[str, Any] = {"responses_create_params": {"input": []}, "agent_ref": {"type": "responses_api_agents", "name": name}}
    row |= {key: value for key, value in data.items() if key not in ("prompt", "system_prompt", "idx") and key not in row}
    identity = json.dumps(task.get("key") or data, sort_keys=True)
    failed = [*(record.get("errors") or ()), *(error for trace in traces for error in trace.get("errors") or ())]
    if not record.get("ok"):
        last = failed[-1] if failed else {"type": "not ok", "message": "the episode did not complete"}
        return Found(row, identity, (str(last.get("type")), str(last.get("message"))))
    if len(traces) != 1:
        raise Misfit("traces", f"{len(traces)} traces: a rollout is of one agent")
    [trace] = traces
    nodes = _line(trace)
    first = next((place for place, node in enumerate(nodes) if node.get("sampled")), None)
    if first is None:
        raise Misfit("traces[0].nodes", "no message of it was sampled")
    params: dict[str, Any] = {"input": items([_called(node["message"]) for node in nodes[:first]], "traces[0].nodes")}
    if tools := [_tool(tool) for tool in nodes[0].get("tools") or trace.get("tools") or ()]:
        params["tools"] = tools
    row["responses_create_params"] = params
    calls = trace.get("calls") or []
    cut_off = bool(calls) and calls[-1].get("finish_reason") == "length"
    counts = [call["usage"] for call in calls if call.get("usage")]
    counted = usage(
        sum(one.get("prompt_tokens", 0) + (one.get("cached_input_tokens") or 0) for one in counts),
        sum(one.get("completion_tokens", 0) for one in counts) if counts else None,
    )
    row["response"] = response(_output(nodes, first), params, next((call.get("model") for call in calls), None), cut_off, counted)
    rewards = {key: reward for key, reward in (trace.get("rewards") or {}).items() if reward is not None}
    row["reward"] = sum(one["score"] * one.get("weight", 1.0) for one in rewards.values()) if rewards else None
    if len(rewards) > 1:
        row["reward_components"] = {key: one["score"] * one.get("weight", 1.0) for key, one in rewards.items()}
    row |= {key: value for key, value in (trace.get("metrics") or {}).items() if key not in row}
    return Found(row, identity)


def _line(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a trace from the first to the last. Raises Misfit if they branch."""
    nodes = trace.get("nodes") or []
    parents = [node.get("parent") for node in nodes]
    if parents != [None, *range(len(nodes) - 1)][: len(nodes)]:
        raise Misfit("traces[0].nodes", "the messages branch: a rollout is one line of them")
    return nodes


def _output(nodes: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """The items from the first sampled message on, with token ids on the last item of each reply, if all replies have them."""
    whole = all(node.get("logprobs") and node.get("token_ids") for node in nodes if node.get("sampled"))
    seen: list[int] = [token for node in nodes[:first] for token in node.get("token_ids") or ()]
    output: list[dict[str, Any]] = []
    for node in nodes[first:]:
        made = items([_called(node["message"])], "traces[0].nodes")
        ids, mask = node.get("token_ids") or [], node.get("mask") or []
        if node.get("sampled") and whole and made:
            told = len(mask) - sum(mask)
            if not all(mask[told:]):
                raise Misfit("traces[0].nodes", "tokens that were not sampled among those that were")
            made[-1] |= {PROMPT: [*seen, *ids[:told]], SAMPLED: ids[told:], LOGPROBS: node["logprobs"]}
        seen += ids
        output += made
    return output


def _messages(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return [_called(message) for message in take(record, key, list, [])]


def _called(message: Any) -> Any:
    """A message with its calls as chat has them: version 0 writes them as JSON text, version 1 without the `function` around them."""
    if not isinstance(message, dict) or not message.get("tool_calls"):
        return message
    calls = [_maybe_json(call, "tool_calls") for call in message["tool_calls"]]
    named = [call if "function" in call else {"id": call["id"], "function": call} for call in calls]
    return message | {"tool_calls": named}


def _tool(tool: Any) -> dict[str, Any]:
    tool = _maybe_json(tool, "oai_tools")
    function = tool.get("function") or tool
    given = {key: function.get(key) for key in ("name", "description", "parameters")}
    return {"type": "function", **given, "strict": bool(function.get("strict"))}


def _maybe_json(value: Any, key: str) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise Misfit(key, f"not JSON: {error}") from error


def _count(tokens: Mapping[str, Any], key: str) -> int | None:
    value = tokens.get(key)
    return None if value is None else round(value)
