"""The words in which a schema fault is told: what was found, what was meant, what to write instead."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

MEANT = {
    "role": {
        "human": "user",
        "prompter": "user",
        "gpt": "assistant",
        "bot": "assistant",
        "model": "assistant",
        "ai": "assistant",
    },
    "item": {
        "tool_call": "function_call",
        "tool_use": "function_call",
        "tool_result": "function_call_output",
        "tool_output": "function_call_output",
        "function_response": "function_call_output",
        "text": "message",
        "thinking": "reasoning",
    },
    "part": {
        "text": "input_text",
        "image": "input_image",
        "image_url": "input_image",
        "file": "input_file",
        "video": "input_video",
        "video_url": "input_video",
    },
    "tool": {"func": "function", "tool": "function"},
    "tool_choice": {"always": "required", "any": "required", "force": "required", "true": "auto", "false": "none"},
}
"""Values that other formats and slips of the pen write, by place, and the ones that they mean."""

PARAMETER_REMEDY = {
    "messages": "rename `messages` to `input`",
    "prompt_text": "rename it to `input`",
    "max_tokens": "rename it to `max_output_tokens`",
    "max_completion_tokens": "rename it to `max_output_tokens`",
    "max_new_tokens": "rename it to `max_output_tokens`",
    "response_format": 'write it as `text`: {"format": …}',
    "reasoning_effort": 'write it as `reasoning`: {"effort": …}',
    "functions": "write them as `tools`",
    "function_call": "write it as `tool_choice`",
    "system": "write it as `instructions`, or as a first item of role system",
    "system_prompt": "write it as `instructions`, or as a first item of role system",
    "n": "remove it; rows are repeated with `num_repeats` of the dataset",
    **dict.fromkeys(
        ("stop", "seed", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias"),
        "remove it, or write it into `metadata`.`extra_body`, a JSON text that vLLM model servers read",
    ),
    "chat_template_kwargs": "write it into `metadata`.`chat_template_kwargs`, a JSON text that vLLM model servers read",
}
"""What to do about create-params of other APIs."""

MISSING_REMEDY = {
    "responses_create_params": 'add "responses_create_params": {"input": […]} with the prompt',
    "input": 'add "input": the prompt, as a string or a list of items',
    "role": 'add "role": user, assistant, system or developer',
    "content": 'add "content": a text or a list of parts',
    "type": "say with `type` what it is",
    "call_id": "give the call and its output the same `call_id`",
    "arguments": 'add "arguments": JSON text, "{}" if there are none',
    "output": 'add "output": what the call gave back, as text',
    "annotations": 'add "annotations": []',
    "summary": 'add "summary": [], and keep the text in `content`',
    "parameters": 'add "parameters": a JSON Schema, or null',
    "strict": 'add "strict": false, or null',
    "response": "keep the response that the model gave; without it nothing can be scored",
    "reward": "a rollout without a reward has failed: keep it out of this file",
    "created_at": 'add "created_at": seconds since 1970',
}


def json_path(keys: Iterable[str | int]) -> str:
    """`$.a[0]["odd key"]` for the keys and indices that lead there."""
    parts = ["$"]
    for key in keys:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        else:
            parts.append(f".{key}" if _PLAIN_KEY.match(key) else f"[{json.dumps(key)}]")
    return "".join(parts)


def found(value: Any) -> str:
    """What a value is, for the eye: `null`, `the string "hot"`, `an object with "a", "b"`, `a list of 3`."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return f"the string {excerpt(value)}" if value else "an empty string"
    if isinstance(value, dict):
        keys = ", ".join(excerpt(key, 20) for key in list(value)[:3])
        return f"an object with {keys}{', …' if len(value) > 3 else ''}" if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"the number {value}" if abs(value) < 1e15 else "a number"


def excerpt(text: str, size: int = 40) -> str:
    """The text in quotes, cut to `size` characters."""
    quoted = json.dumps(text if len(text) <= size else text[: size - 1] + "…", ensure_ascii=False)
    return quoted.encode(errors="backslashreplace").decode()


def meant(value: Any, options: Iterable[str], place: str = "") -> str | None:
    """The option that a wrong value most likely means."""
    if not isinstance(value, str):
        return None
    options = list(options)
    lower = value.strip().lower()
    named = MEANT.get(place, {}).get(lower)
    if named in options:
        return named
    close = difflib.get_close_matches(lower.replace("-", "_").replace(" ", "_"), options, 1, 0.7)
    return close[0] if close else None


def decodes_to(text: Any, kind: type) -> bool:
    """Whether a value is a string that holds the JSON of a list or an object."""
    if not isinstance(text, str) or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return isinstance(json.loads(text), kind)
    except (ValueError, RecursionError):
        return False
