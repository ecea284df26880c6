"""Trajectories for people: what the model was told, what it thought, said and called, what it got for it, and why."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gymdata.errors import UsageError
from gymdata.rollouts.tasks import ROLLOUT_INDEX, TASK_INDEX
from gymdata.rows.lines import ByteRange, DamagedFile, chunks

FOLDED_LINES = 12
"""Of a longer text only so many lines are shown, unless all is asked for."""

_WHY_FIRST = ("extracted_answer", "expected_answer", "reason", "reward_components")
_NOT_WHY = frozenset({"responses_create_params", "response", "reward", "agent_ref", "task_source"})
# Escape sequences and directional overrides in a model's text would otherwise steer the reader's terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BOLD, _DIM, _GREEN, _RED, _YELLOW, _CYAN, _MAGENTA = "1", "2", "32", "31", "33", "36", "35"
_COLORS = {
    "system": _DIM,
    "developer": _DIM,
    "user": _CYAN,
    "assistant": _GREEN,
    "reasoning": _MAGENTA,
    "call": _YELLOW,
    "result": _DIM,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rollouts to show; None for any. `environment` is the agent's or the server's name."""

    min_reward: float | None = None
    max_reward: float | None = None
    environment: str | None = None
    task: int | None = None
    rollout: int | None = None
    truncated: bool = False

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a rollout is one of them; one without a reward matches no bound on it."""
        reward = row.get("reward")
        if self.min_reward is not None or self.max_reward is not None:
            if not isinstance(reward, int | float):
                return False
            if (self.min_reward is not None and reward < self.min_reward) or (
                self.max_reward is not None and reward > self.max_reward
            ):
                return False
        if self.environment is not None and self.environment not in (_agent(row), row.get("_ng_environment_server")):
            return False
        indices = ((self.task, TASK_INDEX), (self.rollout, ROLLOUT_INDEX))
        if any(wanted is not None and row.get(key) != wanted for wanted, key in indices):
            return False
        return not self.truncated or _truncation(row) is not None


def trajectories(path: Path, wanted: Wanted = Wanted()) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The line number and the row of each rollout of a file that is wanted, as they stand; of a line that is none, what is wrong.

    Raises UsageError if there is no such file.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file", "give a file of rollouts, as `gymdata rollouts collect` writes it")
    number = 0
    for chunk in _chunks(path):
        for line in chunk.split(b"\n") if isinstance(chunk, bytes) else [chunk]:
            number += 1
            if isinstance(line, str):
                yield number, line
                continue
            if isinstance(line, int):
                yield number, f"a line of {line:,} bytes, which is too long to be shown"
            elif line.strip():
                try:
                    row = msgspec.json.decode(line)
                except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                    yield number, f"not JSON: {error}"
                    continue
                if not isinstance(row, dict):
                    yield number, "no object"
                elif wanted.matches(row):
                    yield number, row


def _chunks(path: Path) -> Iterator[bytes | int | str]:
    """The chunks of a file, and why there are no more if it is damaged."""
    try:
        yield from chunks(ByteRange(path, 0, path.stat().st_size))
    except DamagedFile as error:
        yield f"the compressed file is damaged from here on: {error.reason}"


class Renderer:
    """Turns rollouts into text. `width` is that of the terminal, `full` folds nothing, `color` adds colours of our own."""

    def __init__(self, width: int = 100, full: bool = False, color: bool = False) -> None:
        self._width, self._full, self._color = width, full, color

    def render(self, number: int, row: Mapping[str, Any] | str) -> str:
        """One rollout: a headline, the request, the response, the verdict; or a line on what is wrong with the line."""
        if isinstance(row, str):
            return self._paint(f"line {number}: {row}", _RED) + "\n"
        params, response = row.get("responses_create_params"), row.get("response")
        params = params if isinstance(params, dict) else {}
        blocks = [self._headline(number, row)]
        if names := [str(tool.get("name") or tool.get("type")) for tool in _dicts(params.get("tools"))]:
            blocks.append(self._block("tools", ", ".join(names), _DIM))
        if params.get("instructions"):
            blocks.append(self._block("system", str(params["instructions"]), _DIM))
        given = params.get("input")
        blocks += self._items([{"role": "user", "content": given}] if isinstance(given, str) else given)
        output = response.get("output") if isinstance(response, dict) else None
        blocks.append(self._paint(f"{' response ' if output else ' no response ':-^{self._width}}", _DIM))
        blocks += self._items(output)
        blocks.append(self._verdict(row))
        return "\n".join(blocks) + "\n"

    def _headline(self, number: int, row: Mapping[str, Any]) -> str:
        parts = [f"line {number}"]
        parts += [f"{word} {row[key]}" for word, key in (("task", TASK_INDEX), ("rollout", ROLLOUT_INDEX)) if key in row]
        parts += [name for name in (_agent(row), _response(row).get("model")) if isinstance(name, str)]
        usage = _response(row).get("usage")
        if isinstance(usage, dict):
            parts.append(f"{usage.get('input_tokens')} tokens in, {usage.get('output_tokens')} out")
        title = self._clean(" · ".join(parts))
        return self._paint("=" * self._width, _DIM) + "\n" + self._paint(title, _BOLD) + " · " + self._reward(row)

    def _reward(self, row: Mapping[str, Any]) -> str:
        reward = row.get("reward")
        if not isinstance(reward, int | float):
            return self._paint("no reward", _YELLOW)
        text = self._paint(f"reward {reward:g}", _BOLD, _GREEN if reward >= 1 else _RED if reward <= 0 else _YELLOW)
        reason = _truncation(row)
        return text + (" · " + self._paint(f"truncated ({self._clean(reason)})", _YELLOW) if reason else "")

    def _items(self, items: Any) -> list[str]:
        return [self._item(item) for item in _dicts(items)]

    def _item(self, item: Mapping[str, Any]) -> str:
        kind = item.get("type") or "message"
        if kind == "message":
            role = str(item.get("role", "?"))
            return self._block(role, _text(item.get("content")), _COLORS.get(role, ""))
        if kind == "reasoning":
            text = _text([*_dicts(item.get("summary")), *_dicts(item.get("content"))])
            return self._block("reasoning", text or "(encrypted)", _COLORS["reasoning"])
        if kind == "function_call":
            return self._block(f"calls {item.get('name')}", _pretty(item.get("arguments")), _COLORS["call"])
        if kind == "function_call_output":
            return self._block("result", _pretty(item.get("output")), _COLORS["result"])
        return self._block(
            str(kind), json.dumps({key: value for key, value in item.items() if key != "type"}, ensure_ascii=False), _DIM
        )

    def _verdict(self, row: Mapping[str, Any]) -> str:
        """The reward and every other key of the row: what the verifier was given and what it found."""
        keys = [key for key in _WHY_FIRST if key in row]
        keys += [key for key in row if key not in keys and key not in _NOT_WHY]
        keys = [key for key in keys if not key.startswith("_") or key.startswith("_ng_failure")]
        lines = [self._reward(row)]
        for key in keys:
            value = row[key] if isinstance(row[key], str) else json.dumps(row[key], ensure_ascii=False)
            lines.append(self._block(key, value, _BOLD))
        return "\n".join([self._paint(f"{' verdict ':-^{self._width}}", _DIM), *lines])

    def _block(self, label: str, text: str, color: str) -> str:
        lines = [
            part for line in self._clean(text).splitlines() for part in textwrap.wrap(line, max(20, self._width - 2)) or [""]
        ]
        if not self._full and len(lines) > FOLDED_LINES + 1:
            hidden = len(lines) - FOLDED_LINES
            lines = [*lines[:FOLDED_LINES], self._paint(f"… {hidden} more lines (--full shows them)", _DIM)]
        return "\n".join([self._paint(self._clean(label), color), *(f"  {line}" for line in lines)])

    def _clean(self, text: str) -> str:
        return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}" if match[0] != "\r" else "", text)

    def _paint(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(filter(None, codes))}m{text}\x1b[0m" if self._color and any(codes) else text


def page(texts: Iterable[str], out: Callable[[str], object] | None = None) -> None:
    """Print texts as they come; on a terminal through PAGER (default `less`), which may be left before the end."""
    if out is not None or not sys.stdout.isatty():
        for text in texts:
            (out or sys.stdout.write)(text)
        return
    command = shlex.split(os.environ.get("PAGER") or "less")
    if not command or shutil.which(command[0]) is None:
        page(texts, sys.stdout.write)
        return
    environment = {"LESS": "-RFX", **os.environ}
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment, errors="replace") as pager:
        assert pager.stdin is not None
        try:
            for text in texts:
                pager.stdin.write(text)
            pager.stdin.close()
        except (BrokenPipeError, KeyboardInterrupt):
            stdin, pager.stdin = pager.stdin, None  # the reader left: what is not written yet is for nobody
            with suppress(BrokenPipeError):
                stdin.close()


def _dicts(items: Any) -> list[dict[str, Any]]:
    return (
        [item for item in items if isinstance(item, dict)] if isinstance(items, Sequence) and not isinstance(items, str) else []
    )


def _text(content: Any) -> str:
    """What is to be read of a content: texts, and a word for what is none."""
    if isinstance(content, str):
        return content
    parts = []
    for part in _dicts(content):
        text = part.get("text", part.get("refusal"))
        parts.append(text if isinstance(text, str) else f"[{part.get('type')}]")
    return "\n".join(parts)


def _pretty(text: Any) -> str:
    """JSON text over several lines if it is some; other text as it is."""
    if not isinstance(text, str):
        return _text(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, dict | list) else text


def _agent(row: Mapping[str, Any]) -> Any:
    reference = row.get("agent_ref")
    return reference.get("name") if isinstance(reference, dict) else None


def _response(row: Mapping[str, Any]) -> dict[str, Any]:
    response = row.get("response")
    return response if isinstance(response, dict) else {}


def _truncation(row: Mapping[str, Any]) -> str | None:
    from gymdata.rollouts.outcome import Response, truncation

    response = _response(row)
    return truncation(Response(incomplete_details=response.get("incomplete_details"), status=response.get("status")))
