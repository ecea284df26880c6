"""For verl: a task each, in the columns of its datasets; what they cannot hold (items' types, parameters) is JSON text in `extra_info`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gymdata.export import task as tasks
from gymdata.export.options import Options, Tally
from gymdata.export.source import Rollout

DROPS = "answers and rewards; from `prompt`, not from `extra_info`: items' types, sampling parameters, tools"


def records(task: Sequence[Rollout], options: Options, tally: Tally) -> Iterator[dict[str, Any]]:
    """`data_source`, `prompt`, `ability`, `reward_model`, and `extra_info`, all of which but its `index` are texts.

    `extra_info.responses_create_params` is the request with its typed items, `agent_ref` what runs the row, as it stands there (no
    address is made up), `row` the other keys, each as JSON. With a `max_model_len`, `response_budget` is how many tokens are left for
    the answer, at least 0; null where nobody counted the prompt's.
    """
    for row, spoken in tasks.asked(task, options, tally):
        params, agent = row["responses_create_params"], row.get("agent_ref")
        name = agent.get("name") if isinstance(agent, dict) else agent
        extra: dict[str, Any] = {
            "index": task[0].task,
            "responses_create_params": _text(params),
            "agent_ref": None if agent is None else _text(agent),
            "row": _text({key: value for key, value in row.items() if key not in ("responses_create_params", "agent_ref")}),
        }
        if options.max_model_len is not None:
            extra["response_budget"] = _budget(tasks.prompt_tokens(task), params.get("max_output_tokens"), options.max_model_len)
        answer = row.get("expected_answer", "")
        yield {
            "data_source": str(name or row.get("dataset") or "gymdata"),
            "prompt": [_message(message) for message in spoken.prompt],
            "ability": str(row.get("dataset") or name or ""),
            "reward_model": {"style": "rule", "ground_truth": answer if isinstance(answer, str) else _text(answer)},
            "extra_info": extra,
        }


def _budget(prompt: int | None, asked: int | None, longest: int) -> int | None:
    return None if prompt is None else max(0, min(longest - prompt, longest if asked is None else asked))


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """The message in plain columns: arguments are JSON text."""
    if "tool_calls" not in message:
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": _text(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
