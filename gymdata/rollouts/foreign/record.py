"""What a reader of foreign rollouts is given, what it returns, and how it says that a record is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gymdata.rollouts.chat_reply import to_items

Kind = TypeVar("Kind")


class Misfit(ValueError):
    """A record that is no rollout: the key at fault, and what is wrong with it."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user says of the records. Empty texts leave it to the reader."""

    agent: str = ""
    prompt_key: str = ""
    reward_key: str = ""


@dataclass(slots=True)
class Found:
    """A rollout. `task` tells its task from others, None if the row says it itself; of a failure, `failure` is what failed and why."""

    row: dict[str, Any]
    task: str | None = None
    failure: tuple[str, str] | None = None
    notes: list[str] = field(default_factory=list)


def take(record: Mapping[str, Any], key: str, kind: type[Kind] | tuple[type[Kind], ...], default: Kind | None = None) -> Any:
    """A member of a record, the default where it is missing or null. Raises Misfit where it is of another kind."""
    value = record.get(key)
    if value is None:
        return default
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kinds):
        raise Misfit(key, f"{' or '.join(one.__name__ for one in kinds)} is wanted, not {type(value).__name__}")
    return value


def number(record: Mapping[str, Any], key: str) -> float | None:
    """A number or boolean as a reward; None where it is missing or null."""
    value = take(record, key, (int, float, bool))
    return None if value is None else float(value)


def items(messages: Sequence[Mapping[str, Any]], key: str) -> list[dict[str, Any]]:
    """Responses items of chat messages. Raises Misfit."""
    try:
        return to_items(messages)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Misfit(key, f"no chat messages: {error!r}" if isinstance(error, KeyError) else str(error)) from error


def response(
    output: list[dict[str, Any]], params: Mapping[str, Any], model: str | None, cut_off: bool, usage: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A Responses object of the items that a rollout gave; when it was made, nobody wrote down."""
    return {
        "id": "resp_imported",
        "created_at": 0.0,
        "object": "response",
        "model": model or "",
        "status": "incomplete" if cut_off else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut_off else None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": params.get("tools") or [],
        "usage": usage,
    }


def usage(prompt: int | None, answer: int | None) -> dict[str, Any] | None:
    """Tokens as a Responses object counts them; None where the answer's were not counted."""
    if answer is None:
        return None
    return {
        "input_tokens": prompt or 0,
        "input_tokens_details": {"cached_tokens": None},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": (prompt or 0) + answer,
    }
