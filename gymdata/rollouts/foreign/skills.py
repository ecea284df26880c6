"""What NeMo-Skills writes: `output-rs*.jsonl`, an answer per line, one file per random seed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gymdata.rollouts.foreign.record import Found, Misfit, Settings, items, number, response, take, usage

_PROMPTS = ("problem", "question", "prompt", "messages")
_REWARDS = ("is_correct", "symbolic_correct", "judge_correct")
_OUTCOMES = frozenset({"generation", "reasoning_content", "predicted_answer", "symbolic_correct", "judge_correct", "is_correct", "judgement",
                       "num_generated_tokens", "num_input_tokens", "finish_reason", "stopped_on_repetition", "tokens", "logprobs",
                       "num_generations", "serialized_output", "conversation"})  # fmt: skip
"""Keys that come of a generation, besides those that begin with `_` or `generation_`: what is left tells a task from others."""
_JUDGEMENT = re.compile(r"judge?ment:\s*\W*(yes|no)\b", re.IGNORECASE)


def read(record: dict[str, Any], settings: Settings) -> Found:
    """An answer. The request is the problem alone: the prompt that it was put into is not in the file. Raises Misfit."""
    key = settings.prompt_key or next((name for name in _PROMPTS if record.get(name)), "")
    if not key:
        raise Misfit("problem", f"none of {', '.join(_PROMPTS)} is there: which key holds the request?")
    asked = record.get(key)
    if not isinstance(asked, str | list):
        raise Misfit(key, f"a text or messages are wanted, not {type(asked).__name__}")
    if "generation" not in record:
        raise Misfit("generation", "missing: no output of NeMo-Skills")
    message: dict[str, Any] = {"role": "assistant", "content": take(record, "generation", str, "")}
    if thought := take(record, "reasoning_content", str):
        message["reasoning_content"] = thought
    rest = {
        name: value
        for name, value in record.items()
        if name not in ("generation", "reasoning_content") and not name.startswith("_")
    }
    task = {name: value for name, value in rest.items() if name not in _OUTCOMES and not name.startswith("generation_")}
    params = {"input": asked if isinstance(asked, str) else items(asked, key)}
    row = {
        "responses_create_params": params,
        "agent_ref": {"type": "responses_api_agents", "name": settings.agent or "skills"},
        **{name: value for name, value in rest.items() if name not in ("response", "reward", "responses_create_params")},
        "response": response(
            items([message], "generation"),
            params,
            None,
            record.get("finish_reason") == "length",
            usage(take(record, "num_input_tokens", int), take(record, "num_generated_tokens", int)),
        ),
        "reward": _reward(record, settings.reward_key),
    }
    if record.get("predicted_answer") is not None:
        row["extracted_answer"] = record["predicted_answer"]
    return Found(row, json.dumps(task, sort_keys=True))


def _reward(record: Mapping[str, Any], key: str) -> float | None:
    """The verdict under `key`, or the first of those that are known; a judge's text counts by what it says last."""
    if key and key not in record:
        raise Misfit(key, "missing: where is the reward?")
    found = key or next((name for name in _REWARDS if record.get(name) is not None), "judgement")
    if found == "judgement" and isinstance(record.get(found), str):
        said = _JUDGEMENT.findall(record[found])
        return float(said[-1].lower() == "yes") if said else None
    return number(record, found)
