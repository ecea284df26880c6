"""Checks the token ids of a file of rollouts, whoever wrote it: line by line, in the memory of one line."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec

from gymdata.errors import ExternalError, UsageError
from gymdata.rollouts.tasks import ROLLOUT_INDEX, TASK_INDEX
from gymdata.rollouts.tokens import Checked, check
from gymdata.rows.lines import ByteRange, DamagedFile, chunks

Decode = Callable[[Sequence[int]], str]
"""From token ids to the text that they are."""


class _Row(msgspec.Struct):
    """What is read of a rollout."""

    responses_create_params: Any = None
    response: Any = None
    task: Any = msgspec.field(name=TASK_INDEX, default=None)
    rollout: Any = msgspec.field(name=ROLLOUT_INDEX, default=None)


_decode = msgspec.json.Decoder(_Row).decode


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file; `checked` is what is wrong with a line that is no rollout."""

    number: int
    checked: Checked | str
    task: Any = None
    rollout: Any = None


def lines(path: Path) -> Iterator[Line]:
    """Each line that is not blank, checked. Raises UsageError if there is no such file."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file", "give a file of rollouts, as `gymdata rollouts collect` or NeMo Gym writes it")
    number = 0
    try:
        for chunk in chunks(ByteRange(path, 0, path.stat().st_size)):
            for line in chunk.split(b"\n") if isinstance(chunk, bytes) else [chunk]:
                number += 1
                if isinstance(line, int):
                    yield Line(number, f"a line of {line:,} bytes, which is too long")
                elif line.strip():
                    yield _line(number, line)
    except DamagedFile as error:
        yield Line(number + 1, f"the compressed file is damaged from here on: {error.reason}")


def _line(number: int, line: bytes) -> Line:
    try:
        row = _decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        # Python writes NaN, which is no JSON; that a log probability is one is to be told of its reply.
        try:
            loose = json.loads(line)
            row = _Row(*(loose.get(key) for key in ("responses_create_params", "response", TASK_INDEX, ROLLOUT_INDEX)))
        except (ValueError, AttributeError, RecursionError):
            return Line(number, f"no rollout: {error}")
    checked = check({"responses_create_params": row.responses_create_params, "response": row.response})
    return Line(number, checked, row.task, row.rollout)


def decoder(url: str, key: str = "") -> Decode:
    """What asks a vLLM for the text of ids. Raises ExternalError, when called, if it does not tell."""
    address = f"{url.rstrip('/').removesuffix('/v1')}/detokenize"

    def decode(ids: Sequence[int]) -> str:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        try:
            request = urllib.request.Request(address, json.dumps({"tokens": list(ids)}).encode(), headers)
            with urllib.request.urlopen(request, timeout=30) as reply:
                return json.load(reply)["prompt"]
        except urllib.error.HTTPError as error:
            if error.code == 400:  # an id that the tokenizer does not have: another model's
                return ""
            raise ExternalError(
                f"{address}: {error}", "--model-url is that of a vLLM with the model of these rollouts"
            ) from error
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise ExternalError(
                f"{address}: {error}", "--model-url is that of a vLLM with the model of these rollouts"
            ) from error

    return decode
