"""Prompts as token ids: what was seen and sampled so far, and after it what the chat template puts before the next reply.

What the template puts there (the glue: the end of the model's turn, the new messages, the beginning of the next turn) is found
from the server's own rendering, never assumed. The conversation is rendered with a word that no template knows in place of what
the model said last: what follows the word is the glue. The words of earlier turns are rendered, too, but not used:
their ids are those that were sampled.

A template may do what no ids can follow: drop the model's turn or a new message, move or rewrite what it has told before. Each
of these is looked for, once per shape of conversation, and makes the turn Unbridgeable. Earlier reasoning that a template would
strip stays: it is what the model saw and sampled.
"""

from __future__ import annotations

import asyncio
import json
import re
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import ne
from typing import Any, Literal

import xxhash

from gymdata.rollouts.chat import END_THINK, ReasoningStyle, messages
from gymdata.rollouts.parsers import parse
from gymdata.rollouts.tokens import PROMPT, SAMPLED, TOKEN_IDS, latest

Reason = Literal[
    "no_rendering",
    "template_error",
    "parts",
    "turn_dropped",
    "message_dropped",
    "history_rewritten",
    "rendering_differs",
    "unknown_end",
    "harmony",
    "call_format",
    "reasoning_format",
    "tool_choice",
    "custom_prompt",
    "prefix_ignored",
    "partial_ids",
]

_Messages = Sequence[Mapping[str, Any]]
Ids = list[int]

_SENTINELS = ("qalvextrim", "zubnorfidg")
"""Words that no template knows, which differ from the first letter to the last, so that their last tokens differ, too."""
_FILLER = "well"
_CONTROL = re.compile(r"<[^\s<>]{2,40}>|\[/?[A-Z_]{2,30}\]")
_CACHED = 4096


@dataclass(frozen=True, slots=True)
class Unbridgeable:
    """Why a turn's prompt cannot be made of ids."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The ids of a prompt; the first `prefix` of them were seen and sampled before."""

    ids: Ids
    prefix: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """Chat messages without ids: `head` ends with the latest of the model's that has them, `tail` is what came after.

    `ids` is what carries them; `first` says that no earlier message has any.
    """

    head: _Messages
    tail: _Messages
    ids: Mapping[str, Any]
    first: bool


def of_items(params: Mapping[str, Any], style: ReasoningStyle) -> Conversation | None:
    """The conversation of a Responses request; None if no item carries ids. Raises Inexpressible."""
    items: Sequence[Mapping[str, Any]] = params["input"] if isinstance(params.get("input"), list) else []
    if (place := latest(items)) is None:
        return None
    # Each part for itself: messages of the model next to each other would become one.
    head = messages(items[: place + 1], params.get("instructions"), style)
    return Conversation(head, messages(items[place + 1 :], None, style), items[place], latest(items[:place]) is None)


def of_messages(told: _Messages) -> Conversation | None:
    """The conversation of a Chat Completions request; None if no message carries ids."""
    if (place := latest(told)) is None:
        return None
    bare = [{key: value for key, value in message.items() if key not in TOKEN_IDS} for message in told]
    return Conversation(bare[: place + 1], bare[place + 1 :], told[place], latest(told[:place]) is None)


class Refused(Exception):
    """The server does not render a conversation: `missing` if it renders none at all, else what it says of this one."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True)
class Server:
    """How a conversation is rendered: `render(messages, add_generation_prompt)`, which raises Refused, and the text of ids.

    `template` stands for all else that the rendering depends on: tools, template, its arguments; `tools` may be called.
    """

    render: Callable[[_Messages, bool], Awaitable[Ids]]
    text: Callable[[Ids], Awaitable[str]]
    template: bytes = b""
    tools: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class _Shape:
    """What was found of all conversations of one shape: the end of a turn, of one with calls, and what is in the way."""

    closing: Ids
    after_call: Ids
    fault: Unbridgeable | None = None


class Bridge:
    """Makes prompts of ids for the conversations of a run; remembers what it has found of templates."""

    def __init__(self) -> None:
        self.ends: set[int] = set()
        """Tokens with which replies have ended that were not cut short."""
        self._shapes: dict[bytes, _Shape] = {}
        self._fitting: dict[tuple[bytes, bool], Unbridgeable | None] = {}
        self._alike: dict[tuple[bytes, bool, bool], bool] = {}
        self._texts: dict[int, str] = {}
        self._words: dict[tuple[bytes, bool], Ids] = {}

    async def prompt(self, conversation: Conversation, server: Server) -> Prompt | Unbridgeable:
        """The prompt that begins with the ids of a conversation."""
        head, tail, ids = conversation.head, conversation.tail, conversation.ids
        if not all(isinstance(ids.get(key), list) for key in TOKEN_IDS):
            return Unbridgeable("partial_ids", f"the latest message with ids has not all of {', '.join(TOKEN_IDS)}")
        if any(not _is_text(message) for message in (*head, *tail)):
            return Unbridgeable("parts", "images, sound, video and files are no token ids")
        try:
            if fault := await self._fits(conversation, server):
                return fault
            glue = await self._glue(head, tail, ids, server)
        except Refused as error:
            return Unbridgeable("no_rendering" if error.missing else "template_error", str(error))
        if isinstance(glue, Unbridgeable):
            return glue
        prefix = [*ids[PROMPT], *ids[SAMPLED]]
        return Prompt(prefix + glue, len(prefix))

    async def _fits(self, conversation: Conversation, server: Server) -> Unbridgeable | None:
        """Whether the server renders here as it does for chat, by a prompt that it made there, and whether replies to ids, which are
        text, can be read here as its own parsers read those of chat: once per template.
        """
        key, told, item = (server.template, conversation.first), conversation.head[:-1], conversation.ids
        if key not in self._fitting:
            if conversation.first and await server.render(told, True) != item[PROMPT]:
                return Unbridgeable(
                    "rendering_differs", "the server renders the first prompt in another way than it did for chat"
                )
            if "<|channel|>" in await server.text(item[SAMPLED]):
                return Unbridgeable("harmony", "replies in OpenAI's harmony format are read by the server alone")
            _keep(self._fitting, key, await self._reads(list(map(_without_thoughts, told)), server))
        return self._fitting[key] or await self._read(conversation, server)

    async def _read(self, conversation: Conversation, server: Server) -> Unbridgeable | None:
        """Whether what the server read out of a reply, thoughts and calls, is read out of it here: looked for until it once was."""
        last, item = conversation.head[-1], conversation.ids
        calls = last.get("tool_calls") if server.tools and item.get("status") != "incomplete" else None
        thoughts = last.get("reasoning") and (last.get("content") or calls)  # with nothing after them they may have been cut off
        key = (server.template, bool(thoughts), bool(calls))
        if key in self._alike or not any(key[1:]):
            return None
        text = await server.text([*item[SAMPLED][:-1], *(token for token in item[SAMPLED][-1:] if token not in self.ends)])
        if thoughts and END_THINK not in text:
            return Unbridgeable("reasoning_format", "the server tells thoughts from text otherwise than by think tags")
        names = [call["function"]["name"] for call in parse(text, {"tools": server.tools}).get("tool_calls") or ()]
        if calls and names[: len(calls)] != [call["function"]["name"] for call in calls]:
            return Unbridgeable("call_format", f"the server read calls out of what is no call here: {text[:200]!r}")
        _keep(self._alike, key, True)
        return None

    async def _reads(self, told: _Messages, server: Server) -> Unbridgeable | None:
        """Whether a call, as the template tells it, is read as that call. One that it does not tell is nothing to read."""
        if not server.tools:
            return None
        word = _SENTINELS[0]
        function = {"name": server.tools[0]["function"]["name"], "arguments": json.dumps({word: word})}
        call = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call00000", "type": "function", "function": function}],
        }
        try:
            begun, made = await server.render(told, True), await server.render([*told, call], False)
            plain = await server.render([*told, {"role": "assistant", "content": word}], False)
        except Refused as error:
            if error.missing:
                raise
            return None
        text = await server.text(made[_common_start(begun, made) : len(made) - len(_common_end(made, plain))])
        calls = [one["function"] for one in parse(text, {"tools": server.tools}).get("tool_calls") or ()]
        if word not in text or any(one["name"] == function["name"] and word in one["arguments"] for one in calls):
            return None
        return Unbridgeable("call_format", f"the template tells calls in a format that is not read here: {text[:200]!r}")

    async def _glue(self, head: _Messages, tail: _Messages, item: Mapping[str, Any], server: Server) -> Ids | Unbridgeable:
        before = [_without_thoughts(message) for message in head[:-1]]
        last = head[-1]
        called = bool(last.get("tool_calls"))
        found = await self._find(before, last, tail, server)
        if found is None and called:  # a template that knows no calls shows what was said beside them
            called = False
            found = await self._find(before, {**last, "tool_calls": None}, tail, server)
        if found is None:
            return Unbridgeable("turn_dropped", "the template leaves out what the model said last")
        whole, anchor = found
        key = _key(server.template, before, last, tail)
        if key not in self._shapes:
            _keep(self._shapes, key, await self._learn(before, last, tail, called, whole, anchor, server))
        shape = self._shapes[key]
        return shape.fault or await self._after(item, whole[anchor:], shape, called, server)

    async def _find(self, before: _Messages, last: Mapping[str, Any], tail: _Messages, server: Server) -> tuple[Ids, int] | None:
        """A rendering with a word in place of what was said last, and where it goes on after it; None if the word is not in it.

        The ids of the word are found by rendering another in its place, once: then it is looked for.
        """
        name = (server.template, bool(last.get("tool_calls")))
        one = await server.render([*before, _with_sentinel(last, _SENTINELS[0]), *tail], True)
        if name in self._words and (anchor := _end_of(self._words[name], one)) is not None:
            return one, anchor
        two = await server.render([*before, _with_sentinel(last, _SENTINELS[1]), *tail], True)
        if one == two:
            return None
        anchor = len(one) - len(_common_end(one, two))
        _keep(self._words, name, one[_common_start(one, two) : anchor])
        return one, anchor

    async def _learn(
        self, before: _Messages, last: Mapping[str, Any], tail: _Messages, called: bool, whole: Ids, anchor: int, server: Server
    ) -> _Shape:
        """What this shape of conversation is like. `whole` is one rendering of all of it, in which the glue begins at `anchor`."""
        plain = {"role": "assistant", "content": ""}
        closing = _common_end(*await _both(lambda said: server.render([*before, said], False), plain))
        after_call = _common_end(*await _both(lambda said: server.render([*before, said], False), last)) if called else []
        said = _with_sentinel(last if called else {**last, "tool_calls": None}, _SENTINELS[0])
        if before and (fault := await self._rewrites(before, said, after_call if called else closing, whole, server)):
            return _Shape(closing, after_call, fault)
        position = anchor
        for number, message in enumerate(tail):
            other = [*tail[:number], _with_sentinel(message, _SENTINELS[1]), *tail[number + 1 :]]
            changed = await server.render([*before, said, *other], True)
            differs = _common_start(whole, changed)
            if changed == whole or differs < position:
                what = "leaves out" if changed == whole else "puts elsewhere than after what was said before it"
                fault = Unbridgeable("message_dropped", f"the template {what} a new message of the role {message['role']!r}")
                return _Shape(closing, after_call, fault)
            position = differs
        return _Shape(closing, after_call)

    async def _rewrites(
        self, before: _Messages, said: Mapping[str, Any], ending: Ids, whole: Ids, server: Server
    ) -> Unbridgeable | None:
        """Whether new messages change how the template renders those before them: tools that move to the last question, and the like."""
        try:
            alone = await server.render(before, False)
        except Refused:  # not every template renders every beginning: then with what was said
            alone = await server.render([*before, said], False)
            alone = alone[: len(alone) - len(ending)]
        # Text that goes on where the beginning ended may share a token with its end.
        if _common_start(alone, whole) < len(alone) - 1:
            return Unbridgeable("history_rewritten", "with new messages the template tells earlier ones in another way or place")
        return None

    async def _after(self, item: Mapping[str, Any], glue: Ids, shape: _Shape, called: bool, server: Server) -> Ids | Unbridgeable:
        """The part of the glue that the sampled ids do not have already: all of it after a reply that was cut short."""
        end = item[SAMPLED][-1] if item[SAMPLED] else None
        closing = shape.closing
        if called:
            # What the template writes to end a call was sampled; the end of the turn comes after it.
            shared = shape.after_call[: _common_start(shape.after_call, glue)]
            start = len(shape.after_call) - len(closing)
            if closing and start >= 0 and shape.after_call[start:] == closing and start < len(shared):
                glue = glue[start:]
            elif not closing and shared == shape.after_call and end not in shared:
                glue = glue[len(shared) :]  # nothing ends a turn, of whichever kind
            elif end in shared and (end in self.ends or await self._controls(end, server)):
                return glue[len(shared) - shared[::-1].index(end) :]
            else:
                return Unbridgeable("unknown_end", "where the template ends a turn with calls cannot be told")
        closing = closing[: _common_start(closing, glue)]
        controls = [place for place, token in enumerate(closing) if token in self.ends or await self._controls(token, server)]
        ended = end in self.ends and item.get("status") != "incomplete"
        marks = [place for number, place in enumerate(controls) if place == controls[0] + number]
        if own := [place for place in marks if closing[place] == end]:
            return glue[own[0] + 1 :]  # of several tokens that end a turn (Command's) those that were sampled are not told again
        if ended and len(marks) > 1:
            return Unbridgeable("unknown_end", f"the reply ends with token {end}, the template ends turns with several others")
        if ended and marks:
            return glue[marks[0] + 1 :]
        if not controls and glue and end == glue[0] and (ended or await self._controls(end, server)):
            return glue[1:]  # the token that ends a turn is the one that begins the next
        if ended and not controls and glue and await self._controls(glue[0], server):
            return Unbridgeable(
                "unknown_end", f"the reply ends with token {end}, which the template does not put between these turns"
            )
        if not ended and end is not None and item.get("status") != "incomplete" and await self._controls(end, server):
            return Unbridgeable("unknown_end", f"whether token {end} ends a turn is not known")
        return glue

    async def _controls(self, token: int | None, server: Server) -> bool:
        """Whether a token looks like one that is no text."""
        if token is None:
            return False
        if token not in self._texts:
            _keep(self._texts, token, await server.text([token]))
        return _CONTROL.fullmatch(self._texts[token].strip()) is not None


async def _both(render: Callable[[Mapping[str, Any]], Awaitable[Ids]], message: Mapping[str, Any]) -> tuple[Ids, Ids]:
    one, two = await asyncio.gather(*(render(_with_sentinel(message, word)) for word in _SENTINELS))
    return one, two


def _with_sentinel(message: Mapping[str, Any], word: str) -> dict[str, Any]:
    """A message that says a word in place of what it says; one that calls says it in its last call."""
    kept = {key: value for key, value in message.items() if key not in ("reasoning", "reasoning_content")}
    if calls := kept.get("tool_calls"):
        call = calls[-1]
        function = {**call["function"], "arguments": json.dumps({word: word})}
        others = _without_thoughts({**kept, "tool_calls": calls[:-1]})["tool_calls"]
        return {**kept, "tool_calls": [*others, {**call, "function": function}]}
    kept.pop("tool_calls", None)
    return {**kept, "content": word}


def _without_thoughts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message as it was, but of the model's what it called and that it spoke: templates strip thoughts, ids keep them.

    With what it called is left out: that was no JSON at times, which servers do not render.
    """
    if message["role"] != "assistant":
        return message
    kept = {key: value for key, value in message.items() if key not in ("reasoning", "reasoning_content")}
    if calls := kept.get("tool_calls"):
        kept["tool_calls"] = [{**call, "function": {**call["function"], "arguments": "{}"}} for call in calls]
    content = message.get("content")
    spoke = content.rpartition(END_THINK)[2].strip() if isinstance(content, str) else content
    return {**kept, "content": _FILLER if spoke else content if not kept.get("tool_calls") else None}


def _is_text(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    parts = () if content is None or isinstance(content, str) else content
    return all(isinstance(part, str) or part.get("type") in ("text", "refusal") for part in parts)


def _key(template: bytes, before: _Messages, last: Mapping[str, Any], tail: _Messages) -> bytes:
    """A conversation's shape: who spoke, whether something was said or called."""

    def kind(message: Mapping[str, Any]) -> str:
        return f"{message['role']},{bool(message.get('content'))},{len(message.get('tool_calls') or ())}"

    shape = "/".join(";".join(map(kind, part)) for part in (before, [last], tail))
    return xxhash.xxh3_128_digest(template + shape.encode())


def _common_start(one: Sequence[int], two: Sequence[int]) -> int:
    """How many ids are equal from the beginning on."""
    return next(compress(count(), map(ne, one, two)), min(len(one), len(two)))


def _end_of(word: Ids, ids: Ids) -> int | None:
    """Where the last occurrence of some ids among others ends; None if there is none."""
    wanted, data = array("q", word).tobytes(), array("q", ids).tobytes()
    place = data.rfind(wanted)
    while place % 8 and place > 0:  # a match across the borders of ids is none
        place = data.rfind(wanted, 0, place + len(wanted) - 1)
    return None if place < 0 else (place + len(wanted)) // 8


def _common_end(one: Ids, two: Ids) -> Ids:
    return one[len(one) - _common_start(one[::-1], two[::-1]) :]


def _keep(found: dict[Any, Any], key: Any, value: Any) -> None:
    if len(found) >= _CACHED:
        found.clear()
    found[key] = value
