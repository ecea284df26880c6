"""Says a Responses request as a Chat Completions request: everything in it, or an error that names what cannot be said.

The rules are NeMo Gym's (its `vllm_model`) but where those lose something: several think blocks, the order of a turn's texts
and calls, `text.format`, a named `tool_choice`. The way back is `gymdata.rollouts.chat_reply`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from gymdata.rollouts.tokens import TOKEN_IDS

ReasoningStyle = Literal["tags", "field"]
"""How a model is shown what it thought before: `<think>` tags in the text, or the message's `reasoning` field."""

_BODY_TEXTS = ("extra_body", "chat_template_kwargs")
THINK, END_THINK = "<think>", "</think>"

Json = Mapping[str, Any]


class Inexpressible(ValueError):
    """Part of a request that Chat Completions has no words for. `place` is its path in `responses_create_params`."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place


def to_chat(params: Json, style: ReasoningStyle = "tags", with_ids: bool = False) -> dict[str, Any]:
    """The body of a Chat Completions request, without `model`, for a row's `responses_create_params`.

    `metadata.extra_body` and `metadata.chat_template_kwargs`, JSON texts as NeMo Gym has them, become keys of the body, which
    keys of the request itself override. Other metadata is the caller's own and is not sent. `with_ids` leaves the model's
    messages their token ids, for servers that read them there (NeMo Gym's, NeMo-RL's). Raises Inexpressible.
    """
    for key, value in params.items():
        if key not in _KNOWN and value is not None:
            raise Inexpressible(key, "Chat Completions has no counterpart")
        if key in _DEFAULTS and value not in (None, *_DEFAULTS[key]):
            raise Inexpressible(key, f"Chat Completions has no counterpart of {_short(value)}")
    body = more_body(params)
    body["messages"] = messages(params.get("input") or [], params.get("instructions"), style, with_ids)
    for key, name in _RENAMED.items():
        if params.get(key) is not None:
            body[name] = params[key]
    if params.get("top_logprobs") is not None or "message.output_text.logprobs" in (params.get("include") or ()):
        body["logprobs"] = True
    if reasoning := params.get("reasoning"):
        body.update(_reasoning(reasoning))
    if text := params.get("text"):
        body.update(_text(text))
    body.update(_tools(params))
    return body


def messages(
    items: str | Sequence[Json], instructions: str | None = None, style: ReasoningStyle = "tags", with_ids: bool = False
) -> list[dict[str, Any]]:
    """Chat messages for the `input` of a Responses request.

    `instructions` and the system and developer messages at the beginning become one system message, joined by a blank line.
    What a model said between two other messages is one assistant message, its texts parts of their own; with the style `field`
    one that thinks again after it has spoken or called begins another. `with_ids` gives it the token ids of its last item, all
    three or none. Raises Inexpressible, naming the item.
    """
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    head = [instructions] if instructions else []
    built: list[dict[str, Any]] = []
    turn = _Turn(style, with_ids)
    for number, item in enumerate(items):
        place = f"input[{number}]"
        kind = item.get("type") or ("message" if "role" in item else _guess(item, place))
        role = item.get("role")
        if kind in ("reasoning", "function_call") or (kind == "message" and role == "assistant"):
            turn.add(kind, item, place, built)
            continue
        turn.flush(built)
        if kind == "message" and role in ("system", "developer"):
            content = _content(item.get("content"), f"{place}.content")
            if not built and isinstance(content, str):
                head.append(content)
            else:
                built.append({"role": "system", "content": content})
        elif kind == "message" and role == "user":
            built.append({"role": "user", "content": _content(item.get("content"), f"{place}.content")})
        elif kind == "message" and role == "tool":
            built.append(_result(item.get("tool_call_id"), item.get("content"), place, "content"))
        elif kind == "function_call_output":
            built.append(_result(item.get("call_id"), item.get("output"), place, "output"))
        else:
            what = f"a message with the role {role!r}" if kind == "message" else f"an item of the type {kind!r}"
            raise Inexpressible(place, f"{what} has no counterpart in Chat Completions")
    turn.flush(built)
    return [{"role": "system", "content": "\n\n".join(head)}, *built] if head else built


def functions(tools: Sequence[Json]) -> list[dict[str, Any]]:
    """Chat tools for the `tools` of a Responses request. Raises Inexpressible for one that is no function."""
    return [_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools)]


def to_responses(params: Json) -> dict[str, Any]:
    """The body of a Responses request, without `model`: what `metadata` asks for as `to_chat` has it. Raises Inexpressible."""
    more = more_body(params)
    if not more:
        return dict(params)
    metadata = {key: value for key, value in params["metadata"].items() if key not in _BODY_TEXTS}
    return {**more, **params, "metadata": metadata}


def template_kwargs(params: Json) -> dict[str, Any]:
    """What `metadata` asks of the chat template. Raises Inexpressible."""
    return more_body(params).get("chat_template_kwargs", {})


def more_body(params: Json) -> dict[str, Any]:
    """The keys of a body that the texts of `metadata` hold. Raises Inexpressible."""
    metadata = params.get("metadata") or {}
    body: dict[str, Any] = {}
    for key in _BODY_TEXTS:
        if key in metadata:
            place = f"metadata.{key}"
            try:
                value = json.loads(metadata[key])
            except (TypeError, ValueError) as error:
                raise Inexpressible(place, f"not a JSON text: {error}") from error
            if not isinstance(value, dict):
                raise Inexpressible(place, "the JSON text of an object is wanted")
            body.update(value if key == "extra_body" else {key: {**body.get(key, {}), **value}})
    return body


class _Turn:
    """What the model said since somebody else did: pieces of text, thoughts, calls."""

    def __init__(self, style: ReasoningStyle, with_ids: bool) -> None:
        self._style, self._with_ids = style, with_ids
        self._clear()

    def _clear(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._thoughts: list[str] = []
        self._open = ""  # thoughts in tags that the next text begins with
        self._calls: list[dict[str, Any]] = []
        self._ids: dict[str, Any] = {}

    def add(self, kind: str, item: Json, place: str, built: list[dict[str, Any]]) -> None:
        self._add(kind, item, place, built)
        self._ids = {key: item[key] for key in TOKEN_IDS if item.get(key) is not None} if self._with_ids else {}
        if self._ids and len(self._ids) < len(TOKEN_IDS):
            raise Inexpressible(place, f"{', '.join(self._ids)} without the others of {', '.join(TOKEN_IDS)}")

    def _add(self, kind: str, item: Json, place: str, built: list[dict[str, Any]]) -> None:
        if kind == "reasoning":
            thoughts = _thoughts(item, place)
            if self._calls or (self._parts and self._style == "field"):
                self.flush(built)
            if self._style == "field":
                self._thoughts += thoughts
            else:
                for thought in thoughts:
                    if END_THINK in thought:
                        raise Inexpressible(place, f"a thought that has {END_THINK} in it cannot be told from the answer in tags")
                    self._open += f"{THINK}{thought}{END_THINK}"
        elif kind == "function_call":
            self._calls.append(_call(item, place))
        else:
            if self._calls:
                self.flush(built)
            self._say(_content(item.get("content"), f"{place}.content"))
            self._calls += [dict(call) for call in item.get("tool_calls") or ()]

    def _say(self, content: str | list[dict[str, Any]]) -> None:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part["type"] == "text":
                part = {"type": "text", "text": self._open + part["text"]}
                self._open = ""
            self._parts.append(part)

    def flush(self, built: list[dict[str, Any]]) -> None:
        if self._open:
            self._say("")
        parts = [part for part in self._parts if part["type"] != "text" or part["text"]]
        if not (self._parts or self._thoughts or self._calls):
            return
        message: dict[str, Any] = {"role": "assistant"}
        if len(parts) == 1 and parts[0]["type"] == "text":
            message["content"] = parts[0]["text"]
        else:
            message["content"] = parts or (None if self._calls else "")
        if self._thoughts:
            # vLLM's templates read the one or the other, by its version.
            message["reasoning"] = message["reasoning_content"] = "\n\n".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = self._calls
        built.append(message | self._ids)
        self._clear()


def _thoughts(item: Json, place: str) -> list[str]:
    """The texts of a reasoning item: what was thought where that is told, else the summaries of it."""
    texts = [part["text"] for part in item.get("content") or item.get("summary") or () if part.get("text") is not None]
    if not texts and item.get("encrypted_content"):
        raise Inexpressible(place, "reasoning that only OpenAI can decrypt cannot be shown to another model")
    return texts


def _call(item: Json, place: str) -> dict[str, Any]:
    if item.get("namespace"):
        raise Inexpressible(f"{place}.namespace", "Chat Completions has no namespaces")
    function = {"name": item["name"], "arguments": item.get("arguments") or ""}
    return {"id": item["call_id"], "type": "function", "function": function}


def _result(call_id: Any, output: Any, place: str, key: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": _content(output, f"{place}.{key}")}


def _content(content: Any, place: str) -> str | list[dict[str, Any]]:
    """Text, or chat parts; parts of nothing but one text become that text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for number, part in enumerate(content):
        where = f"{place}[{number}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in _PARTS:
            raise Inexpressible(where, f"a part of the type {kind!r} has no counterpart in Chat Completions")
        parts.append(_PARTS[kind](part, where))
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _image(part: Json, place: str) -> dict[str, Any]:
    if not part.get("image_url"):
        raise Inexpressible(place, "an image without an `image_url` (a `file_id` is known to its provider alone)")
    if isinstance(part["image_url"], Mapping):
        return {"type": "image_url", "image_url": dict(part["image_url"])}
    return {"type": "image_url", "image_url": {"url": part["image_url"], "detail": part.get("detail") or "auto"}}


def _video(part: Json, place: str) -> dict[str, Any]:
    if not isinstance(url := part.get("video_url"), str):
        raise Inexpressible(place, "a video without a `video_url`")
    return {"type": "video_url", "video_url": {"url": url}}


def _file(part: Json, place: str) -> dict[str, Any]:
    if part.get("file_url"):
        raise Inexpressible(place, "Chat Completions takes the data of a file, not its URL")
    return {"type": "file", "file": {key: part[key] for key in ("file_id", "file_data", "filename") if part.get(key)}}


def _text_part(part: Json, place: str) -> dict[str, Any]:
    return {"type": "text", "text": part["text"]}


_PARTS: dict[Any, Callable[[Json, str], dict[str, Any]]] = {
    "input_text": _text_part,
    "output_text": _text_part,
    "text": _text_part,
    "refusal": lambda part, place: {"type": "refusal", "refusal": part["refusal"]},
    "input_image": _image,
    "image_url": _image,
    "input_video": _video,
    "input_audio": lambda part, place: {"type": "input_audio", "input_audio": dict(part["input_audio"])},
    "input_file": _file,
}


def _guess(item: Json, place: str) -> str:
    """The type of an item that has none, from the keys that only one has, as NeMo Gym's models tell them apart."""
    if "call_id" in item:
        return "function_call_output" if "output" in item else "function_call"
    if "summary" in item:
        return "reasoning"
    raise Inexpressible(place, "an item without `type` that is none that one can tell")


def _reasoning(reasoning: Json) -> dict[str, Any]:
    for key in ("summary", "generate_summary"):
        if reasoning.get(key):
            raise Inexpressible(f"reasoning.{key}", "Chat Completions gives no summaries of reasoning")
    return {"reasoning_effort": reasoning["effort"]} if reasoning.get("effort") else {}


def _text(text: Json) -> dict[str, Any]:
    body: dict[str, Any] = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    form = text.get("format") or {"type": "text"}
    if form["type"] == "json_object":
        body["response_format"] = {"type": "json_object"}
    elif form["type"] == "json_schema":
        schema = {key: form[key] for key in ("name", "description", "schema", "strict") if form.get(key) is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form["type"] != "text":
        raise Inexpressible("text.format", f"a format of the type {form['type']!r} has no counterpart in Chat Completions")
    return body


def _tools(params: Json) -> dict[str, Any]:
    tools, choice = params.get("tools") or [], params.get("tool_choice")
    if not tools:
        if choice not in (None, "auto", "none"):
            raise Inexpressible("tool_choice", f"{_short(choice)} without any tools")
        return {}
    body: dict[str, Any] = {"tools": functions(tools)}
    if isinstance(choice, Mapping):
        body["tool_choice"] = _named_choice(choice)
    elif choice is not None:
        body["tool_choice"] = choice
    if params.get("parallel_tool_calls") is not None:
        body["parallel_tool_calls"] = params["parallel_tool_calls"]
    return body


def _tool(tool: Json, place: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise Inexpressible(
            place, f"a tool of the type {tool.get('type')!r} runs at its provider; Chat Completions knows functions"
        )
    if tool.get("defer_loading"):
        raise Inexpressible(f"{place}.defer_loading", "Chat Completions loads every tool")
    more = {key: tool[key] for key in _FUNCTION if tool.get(key) is not None}
    return {"type": "function", "function": {"name": tool["name"], **more}}


def _named_choice(choice: Json) -> dict[str, Any]:
    if choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice["name"]}}
    if choice.get("type") == "allowed_tools" and all(tool.get("type") == "function" for tool in choice["tools"]):
        named = [{"type": "function", "function": {"name": tool["name"]}} for tool in choice["tools"]]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": named}}
    raise Inexpressible("tool_choice", f"{_short(choice)} has no counterpart in Chat Completions")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"


_FUNCTION = ("description", "parameters", "strict")
_RENAMED = {
    "max_output_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_logprobs": "top_logprobs",
    "user": "user",
    "service_tier": "service_tier",
    "store": "store",
    "prompt_cache_key": "prompt_cache_key",
    "safety_identifier": "safety_identifier",
}
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "stream": (False,),
    "truncation": ("disabled",),
    "include": ([], ["message.output_text.logprobs"]),
}
"""Keys of which only these values can be had."""
_KNOWN = frozenset(
    {"input", "instructions", "metadata", "model", "reasoning", "text", "tools", "tool_choice", "parallel_tool_calls"}
    | _RENAMED.keys()
    | _DEFAULTS.keys()
)
