"""A tokenizer and chat templates without a model: text to ids and back, conversations as the families of public models tell them.

As with real tokenizers there are several ways to spell a text: letters one by one, as a model may sample them, or with the pairs that
`encode` prefers. The marks of all families are one token each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gymdata.rollouts.parsers import parse
from tests.servers.model import ModelServer

FOLDER = Path(__file__).parents[1] / "rollouts" / "templates"
CONTROLS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>",
    "<|python_tag|>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "<bos>", "<start_of_turn>", "<end_of_turn>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>",
    "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
    "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<|system|>", "<|user|>",
    "<|assistant|>", "<|end|>", "<|observation|>", "[gMASK]", "<sop>", "<tool_call>", "</tool_call>", "<think>", "</think>",
)  # fmt: skip
PAIRS = ("th", "he", "in", "er", "an", "re", "ll", "is", "it", "ou")
_PIECE = re.compile("|".join(map(re.escape, CONTROLS)))


def control(mark: str) -> int:
    """The id of a mark."""
    return 400 + CONTROLS.index(mark)


def encode(text: str) -> list[int]:
    """The ids of a text, as the server spells it."""
    ids: list[int] = []
    position = 0
    for match in [*_PIECE.finditer(text), None]:
        ids += _letters(text[position : match.start() if match else len(text)])
        if match:
            ids.append(control(match[0]))
            position = match.end()
    return ids


def spell(text: str) -> list[int]:
    """The ids of a text letter by letter, as a model may sample it; marks are one token."""
    pieces = re.split(f"({_PIECE.pattern})", text)
    return [
        token for piece in pieces for token in ([control(piece)] if piece in CONTROLS else [byte + 3 for byte in piece.encode()])
    ]


def decode(ids: Sequence[int], skip_special: bool = False) -> str:
    data = b""
    for token in ids:
        if token >= 400:
            data += b"" if skip_special else CONTROLS[token - 400].encode()
        else:
            data += PAIRS[token - 300].encode() if token >= 300 else bytes([token - 3])
    return data.decode("utf-8", "replace")


def _letters(text: str) -> list[int]:
    data, ids = text.encode(), []
    place = 0
    while place < len(data):
        pair = data[place : place + 2].decode("latin-1")
        ids.append(300 + PAIRS.index(pair) if pair in PAIRS else data[place] + 3)
        place += 2 if pair in PAIRS else 1
    return ids


class CannotRender(ValueError):
    """What the template says against a conversation."""


@cache
def _template(name: str) -> Any:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def refuse(message: str) -> None:
        raise CannotRender(message)

    environment.globals["raise_exception"] = refuse
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string((FOLDER / f"{name}.jinja").read_text())


def render(name: str, messages: Sequence[Mapping[str, Any]], begin: bool, **more: Any) -> list[int]:
    """The ids of a conversation, its calls' arguments as objects, as vLLM gives them to templates. Raises CannotRender."""
    told = []
    for message in messages:
        calls = [
            {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
            for call in message.get("tool_calls") or ()
        ]
        told.append({**message, **({"tool_calls": calls} if calls else {})})
    try:
        return encode(_template(name).render(messages=told, add_generation_prompt=begin, **more))
    except (TemplateError, TypeError) as error:
        raise CannotRender(str(error)) from error


@dataclass
class TemplatedServer(ModelServer):
    """A model server that renders by a template and spells its answers letter by letter; `answer` gives the text of a reply.

    A text that ends in a mark ends with that token, others with `end`. Without `renders` it has no /tokenize; with
    `keeps_prefix` it is patched as NeMo-RL's.
    """

    template: str = "qwen2_5"
    end: str = "<|im_end|>"
    renders: bool = True
    keeps_prefix: bool = False

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        app.router.add_post("/v1/completions", self._text)
        if self.renders:
            app.router.add_post("/tokenize", self._tokenize)
            app.router.add_post("/detokenize", self._detokenize)

    async def _text(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, self._text_completion)

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        try:
            ids = self._render(body, body.get("add_generation_prompt", True))
        except CannotRender as error:
            return web.json_response({"error": {"message": str(error), "type": "BadRequestError", "code": 400}}, status=400)
        return web.json_response({"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids})

    async def _detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": decode((await request.json())["tokens"])})

    def _render(self, body: Mapping[str, Any], begin: bool) -> list[int]:
        return render(self.template, body["messages"], begin, tools=body.get("tools"), **body.get("chat_template_kwargs") or {})

    def _sampled(self, body: dict[str, Any]) -> tuple[str, list[int], str]:
        """The text, its ids and why it ended."""
        text = str(self.answer(body))
        ids = [*spell(text), control(self.end)]
        limit = body.get("max_tokens")
        if limit and len(ids) > limit:
            return decode(ids[:limit]), ids[:limit], "length"
        return text, ids, "stop"

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        text, ids, finish = self._sampled(body)
        prompt = self._render(body, True)
        if self.keeps_prefix and (prefix := body.get("required_prefix_token_ids")):
            prompt = [*prefix, *prompt[-8:]]
        message = parse(text, body)
        finish = "tool_calls" if message.get("tool_calls") else finish
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish, "stop_reason": None}
        reply = {"id": f"chatcmpl-{len(self.requests)}", "model": self.model, "choices": [choice], "usage": _usage(prompt, ids)}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": decode([token]), "logprob": -token / 1000} for token in ids]}
        if body.get("return_token_ids"):
            reply["prompt_token_ids"], choice["token_ids"] = prompt, ids
        return reply

    def _text_completion(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["prompt"]
        text, ids, finish = self._sampled({**body, "messages": [{"role": "user", "content": decode(prompt)}]})
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish, "stop_reason": None, "token_ids": ids}
        scores = {"tokens": [decode([token]) for token in ids], "token_logprobs": [-token / 1000 for token in ids]}
        choice |= {"prompt_token_ids": prompt, "logprobs": scores}
        return {"id": f"cmpl-{len(self.requests)}", "model": self.model, "choices": [choice], "usage": _usage(prompt, ids)}


def _usage(prompt: Sequence[int], ids: Sequence[int]) -> dict[str, int]:
    return {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
