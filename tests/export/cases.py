"""Rollouts to be exported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymdata.export.export import Exported, export
from gymdata.export.options import Options

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CLOCK = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said, "annotations": []}]} | more


def thought(said: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": said}]}


def call(name: str, arguments: str, call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments} | more


def result(output: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def rollout(
    task: int | None = 0,
    index: int | None = 0,
    reward: float | None = 1.0,
    output: list[dict[str, Any]] | None = None,
    params: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A rollout that answers "answer <index>" unless an output is given."""
    row: dict[str, Any] = {
        "responses_create_params": {"input": [{"role": "user", "content": f"Question {task}"}], **(params or {})},
        "response": {"object": "response", "model": "m", "output": [text(f"answer {index}")] if output is None else output},
        "reward": reward,
        "agent_ref": {"type": "responses_api_agents", "name": "math"},
    }
    indices = {"_ng_task_index": task, "_ng_rollout_index": index}
    return row | {key: value for key, value in indices.items() if value is not None} | more


WITH_TOOLS = rollout(
    params={
        "instructions": "Be brief.",
        "input": [{"role": "developer", "content": "Use tools."}, {"role": "user", "content": "Weather in Oslo?"}],
        "tools": [WEATHER],
    },
    output=[thought("Look it up."), call("weather", '{"city": "Oslo"}'), result("snow"), thought("Tell."), text("It snows.")],
)
"""Instructions, a developer's message, tools, thoughts, a call and its result."""


def sampled(prompt: list[int], generated: list[int]) -> dict[str, Any]:
    return {"prompt_token_ids": prompt, "generation_token_ids": generated, "generation_log_probs": [-0.5] * len(generated)}


WITH_TOKENS = rollout(
    params={"tools": [WEATHER]},
    output=[
        call("weather", "{}", **sampled([1, 2, 3], [4, 5])),
        result("snow"),
        text("Snow.", **sampled([1, 2, 3, 4, 5, 6], [7, 8])),
    ],
)
"""Two replies; token 6 is what the template and the tool put in between."""


def save(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def exported(folder: Path, to: str, *rows: Mapping[str, Any], **options: Any) -> tuple[list[dict[str, Any]], Exported]:
    """The records, and what is said of them."""
    source, output = save(folder / "rollouts.jsonl", *rows), folder / "out.jsonl"
    found = export([source], to, output, Options(**options))
    return [json.loads(line) for line in output.read_text().splitlines()], found
