"""Turns chat messages into Responses items: what a model replied, with its token ids, and whole conversations.

The types say what is read of a reply; whatever else a server sends is left alone. They are our own: those of OpenAI's client
change with its releases and then refuse what vLLM sends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gymdata.rollouts.bridge import Unbridgeable
from gymdata.rollouts.chat import END_THINK, THINK, Inexpressible
from gymdata.rollouts.parsers import parse
from gymdata.rollouts.tokens import TOKEN_IDS


class Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = ""
    """JSON text; some servers send the object itself."""


class ToolCall(msgspec.Struct):
    function: Function
    id: str | None = None
    type: str | None = "function"


class Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    prompt_token_ids: list[int] | None = None
    generation_token_ids: list[int] | None = None
    generation_log_probs: list[float] | None = None


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[dict[str, Any]] | None = None


class Logprobs(msgspec.Struct):
    content: list[TokenLogprob] | None = None


class Choice(msgspec.Struct):
    message: Message
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None
    stop_reason: int | str | None = None


class TextLogprobs(msgspec.Struct):
    """Log probabilities as /v1/completions has them: lists beside each other."""

    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class TextChoice(msgspec.Struct):
    text: str
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: TextLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Completion(msgspec.Struct):
    """The body of a reply of /v1/chat/completions."""

    choices: list[Choice]
    id: str = ""
    model: str = ""
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None


class TextCompletion(msgspec.Struct):
    """The body of a reply of /v1/completions."""

    choices: list[TextChoice]
    id: str = ""
    model: str = ""
    usage: Usage | None = None


class MalformedReply(ValueError):
    """A reply that is no answer: nothing in it, or its parts contradict each other."""


@dataclass(frozen=True)
class Turn:
    """What a model said in one reply, as Responses items, and why it stopped: stop, max_output_tokens or content_filter."""

    items: list[dict[str, Any]]
    stopped: str
    usage: dict[str, Any] | None = None
    reasoning_by_field: bool = False
    """Whether the server itself told thoughts from text."""
    end: int | None = None
    """The token with which the model ended its turn; None where it was cut short, or that is not known."""
    unbridged: Unbridgeable | None = None
    """Why the prompt was made of messages although ids of earlier turns were there."""


decode_completion = msgspec.json.Decoder(Completion).decode
decode_text_completion = msgspec.json.Decoder(TextCompletion).decode


def from_chat(body: bytes, keep_logprobs: bool = False) -> Turn:
    """Read a reply of /v1/chat/completions; with `keep_logprobs` the texts keep their tokens' log probabilities, too.

    Thoughts are told from text by the server's `reasoning` field or by think tags: any number of blocks, in their order, one that
    is never closed, and one whose beginning stood in the prompt. Token ids and log probabilities, all of them or none, go to
    the last item. Raises MalformedReply.
    """
    try:
        completion = decode_completion(body)
        choice = completion.choices[0]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise MalformedReply(f"not a chat completion: {error}") from error
    if choice.finish_reason not in _STOPS:
        raise MalformedReply(f"the server ended the answer with finish_reason {choice.finish_reason!r}")
    message = choice.message
    items, stopped = _items(msgspec.to_builtins(message), completion.id, choice.finish_reason)
    items[-1].update(_token_ids(completion, choice))
    if keep_logprobs and choice.logprobs and choice.logprobs.content:
        _attach(items, choice.logprobs.content)
    usage, by_field = completion.usage and _usage(completion.usage), bool(message.reasoning or message.reasoning_content)
    return Turn(items, stopped, usage, by_field, _end(choice, choice.token_ids))


def from_completion(body: bytes, prompt: list[int], asked: Mapping[str, Any], keep_logprobs: bool = False) -> Turn:
    """Read a reply of /v1/completions to a `prompt` of ids: calls and thoughts are read from its text, the ids stay as they are.

    `asked` is the chat request that it stands for. Raises MalformedReply; that, too, if the server had another prompt.
    """
    try:
        completion = decode_text_completion(body)
        choice = completion.choices[0]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise MalformedReply(f"not a completion: {error}") from error
    if choice.finish_reason not in _STOPS:
        raise MalformedReply(f"the server ended the answer with finish_reason {choice.finish_reason!r}")
    if choice.prompt_token_ids != prompt:
        raise MalformedReply("the server does not say that it took the prompt's ids as they were sent")
    scores = choice.logprobs.token_logprobs if choice.logprobs else []
    if choice.token_ids is None or len(scores) != len(choice.token_ids) or None in scores:
        raise MalformedReply(f"{len(choice.token_ids or ())} ids of the answer and {len(scores)} log probabilities")
    items, stopped = _items(parse(choice.text, asked), completion.id, choice.finish_reason)
    items[-1] |= {"prompt_token_ids": prompt, "generation_token_ids": choice.token_ids, "generation_log_probs": scores}
    if keep_logprobs and choice.logprobs:
        _attach(items, _by_token(choice.logprobs))
    return Turn(items, stopped, completion.usage and _usage(completion.usage), end=_end(choice, choice.token_ids))


def chat_completion(body: bytes, turn: Turn, asked: Mapping[str, Any], keep_logprobs: bool, by_field: bool) -> dict[str, Any]:
    """The chat completion that says what a reply of /v1/completions, read as `turn`, says; `by_field` with its thoughts in `reasoning`."""
    completion = decode_text_completion(body)
    choice = completion.choices[0]
    message = parse(choice.text, asked) | {key: turn.items[-1][key] for key in TOKEN_IDS}
    if by_field and message["content"]:
        pieces = split_thoughts(message["content"])
        message["reasoning"], message["content"] = (
            "".join(piece for thinking, piece in pieces if thinking is wanted) or None for wanted in (True, False)
        )
    logprobs = {"content": msgspec.to_builtins(_by_token(choice.logprobs))} if keep_logprobs and choice.logprobs else None
    finish = "tool_calls" if message.get("tool_calls") and choice.finish_reason == "stop" else choice.finish_reason
    told = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish, "stop_reason": choice.stop_reason}
    usage = completion.usage and msgspec.to_builtins(completion.usage)
    return {"id": completion.id, "object": "chat.completion", "model": completion.model, "choices": [told], "usage": usage}


def _items(message: Mapping[str, Any], name: str, finish_reason: str | None) -> tuple[list[dict[str, Any]], str]:
    """The items of a reply, never none, and why it stopped."""
    items = assistant_items(message, name or "reply") or [_message(f"{name or 'reply'}-0", [_output_text("")])]
    stopped = _STOPS[finish_reason]
    if stopped != "stop":
        for item in items:
            if item["type"] != "reasoning":
                item["status"] = "incomplete"
    return items, stopped


def _end(choice: Choice | TextChoice, ids: list[int] | None) -> int | None:
    # Of a reply with calls a server says `tool_calls`, even if it was cut short; a stop text is no token; a token that it names is.
    ended = isinstance(choice.stop_reason, int) or (choice.finish_reason == "stop" and choice.stop_reason is None)
    return ids[-1] if ids and ended else None


def _by_token(logprobs: TextLogprobs) -> list[TokenLogprob]:
    tops = logprobs.top_logprobs or [None] * len(logprobs.tokens)
    return [
        TokenLogprob(token, score or 0.0, None, [{"token": one, "logprob": other} for one, other in (top or {}).items()])
        for token, score, top in zip(logprobs.tokens, logprobs.token_logprobs, tops, strict=True)
    ]


def assistant_items(message: Mapping[str, Any], name: str = "item") -> list[dict[str, Any]]:
    """The items of one assistant message: thoughts, texts and calls in order; `name` begins the ids of those that need one."""
    items: list[dict[str, Any]] = []

    def next_id() -> str:
        return f"{name}-{len(items)}"

    if thought := message.get("reasoning") or message.get("reasoning_content"):
        items.append(_thought(next_id(), [thought]))
    by_field = bool(items)
    content = message.get("content") or ""
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] == "refusal":
            items.append(_message(next_id(), [{"type": "refusal", "refusal": part["refusal"]}]))
            continue
        for thinking, text in [(False, part["text"])] if by_field else split_thoughts(part["text"]):
            if thinking and items and items[-1]["type"] == "reasoning":
                items[-1]["summary"].append({"type": "summary_text", "text": text})
            elif thinking:
                items.append(_thought(next_id(), [text]))
            elif text:
                items.append(_message(next_id(), [_output_text(text)]))
    if message.get("refusal"):
        items.append(_message(next_id(), [{"type": "refusal", "refusal": message["refusal"]}]))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = function.get("arguments")
        call_id = call.get("id") or f"call_{next_id()}"
        items.append(
            {
                "type": "function_call",
                "id": call_id,
                "call_id": call_id,
                "name": function["name"],
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False),
                "status": "completed",
            }
        )
    if items and all(message.get(key) is not None for key in TOKEN_IDS):
        items[-1] |= {key: message[key] for key in TOKEN_IDS}
    return items


def split_thoughts(text: str) -> list[tuple[bool, str]]:
    """Cut a text at its think tags: (whether it was thought, the piece), in order; blank thoughts and blanks between blocks left out.

    Text before a first `</think>` that nothing opened was thought: the template opened it. One never closed goes to the end.
    """
    pieces: list[tuple[bool, str]] = []
    opening, closing = text.find(THINK), text.find(END_THINK)
    if closing >= 0 and (opening < 0 or closing < opening):
        pieces.append((True, text[:closing]))
        text = text[closing + len(END_THINK) :]
    position = 0
    for block in _BLOCK.finditer(text):
        pieces += [(False, text[position : block.start()]), (True, block[1])]
        position = block.end()
    pieces.append((False, text[position:]))
    if len(pieces) == 1:
        return pieces
    return [(thinking, piece) for thinking, piece in pieces if piece.strip()]


def to_items(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The `input` items that stand for chat messages. Raises Inexpressible, naming the message."""
    items: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role in ("system", "developer", "user"):
            items.append(
                {"type": "message", "role": role, "content": _parts(message.get("content"), f"messages[{number}].content")}
            )
        elif role == "assistant":
            items += assistant_items(message, f"message-{number}")
        elif role == "tool":
            output = _parts(message.get("content"), f"messages[{number}].content")
            items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": output})
        else:
            raise Inexpressible(f"messages[{number}]", f"a message with the role {role!r}")
    return items


_BLOCK = re.compile(f"{THINK}(.*?)(?:{END_THINK}|\\Z)", re.DOTALL)
_STOPS = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    None: "stop",
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""finish_reason -> why the model stopped; any other (vLLM's `abort` and `error`) is no answer."""


def _thought(item_id: str, texts: Sequence[str]) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": None}


def _message(item_id: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content}


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}


def _parts(content: Any, place: str) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[dict[str, Any]] = []
    for number, part in enumerate(content):
        kind = part.get("type")
        if kind == "text":
            parts.append({"type": "input_text", "text": part["text"]})
        elif kind == "image_url":
            image = part["image_url"]
            parts.append({"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"})
        elif kind == "input_audio":
            parts.append({"type": "input_audio", "input_audio": part["input_audio"]})
        elif kind == "file":
            parts.append({"type": "input_file", **part["file"]})
        elif kind == "video_url":
            parts.append({"type": "input_video", "video_url": part["video_url"]["url"]})
        else:
            raise Inexpressible(f"{place}[{number}]", f"a part of the type {kind!r}")
    return parts


def _token_ids(completion: Completion, choice: Choice) -> dict[str, Any]:
    """The three fields of NeMo Gym; {} where the server gave no ids. A part of them would train on the wrong tokens."""
    message = choice.message
    scores = [token.logprob for token in (choice.logprobs and choice.logprobs.content) or ()]
    prompt, generated = completion.prompt_token_ids, choice.token_ids
    if message.generation_token_ids is not None or message.prompt_token_ids is not None:  # as servers of NeMo Gym say them
        prompt, generated, scores = message.prompt_token_ids, message.generation_token_ids, message.generation_log_probs or []
    if prompt is None and generated is None:
        return {}
    if not prompt or generated is None or len(scores) != len(generated):
        counts = f"{len(prompt or ())} ids of the prompt, {len(generated or ())} of the answer, {len(scores)} log probabilities"
        raise MalformedReply(f"token ids that do not go together: {counts}")
    return {"prompt_token_ids": prompt, "generation_token_ids": generated, "generation_log_probs": scores}


def _attach(items: list[dict[str, Any]], tokens: list[TokenLogprob]) -> None:
    texts = [part for item in items if item["type"] == "message" for part in item["content"] if part["type"] == "output_text"]
    if texts:
        texts[-1]["logprobs"] = [
            {"token": token.token, "logprob": token.logprob, "bytes": token.bytes or [], "top_logprobs": token.top_logprobs or []}
            for token in tokens
        ]


def _usage(usage: Usage) -> dict[str, Any]:
    cached = usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
    thought = usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens
    written = usage.completion_tokens or 0
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": usage.prompt_tokens + written,
    }
