"""Runs one rollout: the model speaks, its tools answer, until it has nothing more to call.

Tools of an environment of your own: a function that makes them for one rollout, found by an entry point of the group
`gymdata.tools` whose name is that of the resources server. State is what the functions close over:

    # my_package/counter.py                          # pyproject.toml
    def tools(row):                                  [project.entry-points."gymdata.tools"]
        count = row["initial_count"]                 my_counter = "my_package.counter:tools"

        def increment(by: int) -> dict:
            "Add to the counter."
            nonlocal count
            count += by
            return {"count": count}

        return {"increment": increment}

A row says in `responses_create_params.tools` what the model is told of them; one that does not gets that from the functions'
annotations and docstrings. Functions may be `async`. What they return is given to the model, text as it is, anything else as
JSON; what they raise, arguments that do not fit and tools that are not there are told to it as {"error": "…"}.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import uuid4

import msgspec

from gymdata.rollouts import builtin_tools
from gymdata.rollouts.bridge import Unbridgeable
from gymdata.rollouts.chat_reply import Turn
from gymdata.rollouts.overflow import Overflow
from gymdata.rollouts.tokens import check
from gymdata.verifiers import load

ENTRY_POINTS = "gymdata.tools"
Tools = Mapping[str, Callable[..., Any]]
MakeTools = Callable[[Mapping[str, Any]], Tools]
"""From a task row to the tools of one rollout."""
Call = Callable[[str, str], Awaitable[str]]
"""From a tool's name and the JSON text of its arguments to what it says."""
StopReason = Literal["completed", "max_output_tokens", "content_filter", "context_length", "max_steps"]

REASONS: Mapping[str, StopReason] = {
    "stop": "completed",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Why a rollout ends with a reply that stopped so."""
_BUILTIN = frozenset({"example_single_tool_call", "example_multi_step", "example_session_state_mgmt"})


class Model(Protocol):
    """What answers: a `gymdata.rollouts.policy.Trajectory`, or a stand-in."""

    async def respond(self, params: Mapping[str, Any], seed: int | None = None) -> Turn | Overflow: ...


@dataclass(frozen=True)
class Trajectory:
    """A finished conversation: the Responses object, and why it ended. `unbridged` has the turns whose prompts were not made of ids."""

    response: dict[str, Any]
    stop_reason: StopReason
    steps: int
    unbridged: Mapping[int, Unbridgeable] = field(default_factory=dict)


class ToolsFailed(Exception):
    """An environment could not make a rollout's tools; the rollout has no reward. `kind` is the type of what its function raised."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


def tools_for(implementation: str) -> MakeTools | None:
    """What makes the tools of a resources server, by the name of its implementation; None where rollouts are a single turn."""
    if implementation in _BUILTIN:
        return getattr(builtin_tools, implementation)
    from importlib.metadata import entry_points

    return next((load(entry) for entry in entry_points(group=ENTRY_POINTS, name=implementation)), None)


async def run(
    model: Model,
    row: Mapping[str, Any],
    params: Mapping[str, Any],
    make_tools: MakeTools | None = None,
    *,
    call: Call | None = None,
    seed: int | None = None,
    max_steps: int = 32,
    tool_seconds: float = 60.0,
) -> Trajectory | Overflow:
    """One rollout of a row. `params` are its request; `max_steps` limits the replies of the model, `tool_seconds` each call.

    `call`, if given, answers in place of the tools that `make_tools` makes, and what it raises ends the rollout. Without either it
    ends after the first reply, calls or not. Each reply gets a seed of its own, counted up from `seed`.
    A context that is full ends it: with what was said so far, or as an Overflow if nothing was. Raises ToolsFailed.
    """
    try:
        tools = make_tools(row) if make_tools else {}
        if tools and not params.get("tools"):
            params = {**params, "tools": [describe(name, function) for name, function in tools.items()]}
    except Exception as error:  # whatever an environment's own function does with this row
        raise ToolsFailed(type(error).__name__, str(error)) from error
    history = params.get("input") or []
    history = [{"role": "user", "content": history}] if isinstance(history, str) else list(history)
    output: list[dict[str, Any]] = []
    usage: dict[str, Any] | None = None
    started = time.time()
    reason: StopReason = "completed"
    unbridged: dict[int, Unbridgeable] = {}
    for step in range(max_steps):
        turn = await model.respond(
            {**params, "input": [*history, *output]} if output else params, None if seed is None else seed + step
        )
        if isinstance(turn, Overflow):
            if not output:
                return turn
            reason = "context_length"
            break
        output += turn.items
        if turn.unbridged:
            unbridged[step] = turn.unbridged
        usage = _add(usage, turn.usage)
        calls = [item for item in turn.items if item["type"] == "function_call"]
        if turn.stopped != "stop":
            reason = REASONS[turn.stopped]
            break
        if not calls or not (make_tools or call):
            break
        for item in calls:
            asked = item["name"], item["arguments"]
            said = await (call(*asked) if call else answer(tools, *asked, tool_seconds))
            output.append({"type": "function_call_output", "call_id": item["call_id"], "output": said})
        if step == max_steps - 1:  # with the last calls carried out, as NeMo Gym's agent does
            reason = "max_steps"
    return Trajectory(response(params, output, usage, reason, started), reason, step + 1, unbridged)


def token_faults(row: Mapping[str, Any], said: Trajectory) -> list[dict[str, Any]]:
    """Why a rollout's token ids are not one sequence; none if they are, or if there are none."""
    checked = check(row)
    if not checked.turns and not checked.faults:
        return []
    told = [
        {"kind": "rerendered", "turn": turn, "reason": why.reason, "message": why.message} for turn, why in said.unbridged.items()
    ]
    return told + [
        {"kind": fault.kind, "turn": fault.turn, "path": f"$.{fault.place}", "at": fault.at, "message": fault.message}
        for fault in checked.faults
    ]


async def answer(tools: Tools, name: str, arguments: str, seconds: float = 60.0) -> str:
    """What a tool says to a call; of a call that cannot be made, why. Never raises for what the model or the tool did."""
    if name not in tools:
        return _error(f"there is no tool {name!r}; there are {', '.join(sorted(tools)) or 'none'}")
    function = tools[name]
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        return _error(f"the arguments are not JSON: {error}")
    if not isinstance(given, dict):
        return _error("the arguments must be a JSON object")
    try:
        checked = _checked(function)
    except Exception as error:
        return _error(f"the tool {name!r} cannot be called: {error}")
    from pydantic import ValidationError

    try:
        async with asyncio.timeout(seconds):
            value = await checked(**given) if inspect.iscoroutinefunction(function) else await asyncio.to_thread(checked, **given)
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}" for fault in error.errors()]
        return _error(f"the arguments do not fit: {'; '.join(faults)}")
    except TimeoutError:
        return _error(f"the tool took longer than {seconds:g} s")
    except Exception as error:
        return _error(f"{type(error).__name__}: {error}")


def describe(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The Responses tool that stands for a function, by its annotations and docstring."""
    from pydantic import TypeAdapter

    parameters = TypeAdapter(_checked(function)).json_schema()
    parameters.setdefault("properties", {})
    tool = {"type": "function", "name": name, "description": inspect.getdoc(function) or "", "parameters": parameters}
    return {**tool, "strict": False}


def _checked(function: Callable[..., Any]) -> Any:
    from pydantic import validate_call

    return validate_call(function)


def _error(message: str) -> str:
    return json.dumps({"error": message}, ensure_ascii=False)


def _add(total: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any] | None:
    """The sum of two usages, key by key, inner objects too; what is not known of one counts as nothing."""
    if total is None or more is None:
        return total or more
    summed: dict[str, Any] = {}
    for key in {**total, **more}:
        one, two = total.get(key), more.get(key)
        if isinstance(one, dict) or isinstance(two, dict):
            summed[key] = _add(one, two)
        else:
            summed[key] = one if two is None else two if one is None else one + two
    return summed


def response(
    params: Mapping[str, Any], output: list[dict[str, Any]], usage: dict[str, Any] | None, reason: StopReason, started: float
) -> dict[str, Any]:
    """The Responses object, with NeMo Gym's keys. Its `incomplete_details` know two reasons: a full context is told as a full answer."""
    full = reason in ("max_output_tokens", "context_length")
    cut = "content_filter" if reason == "content_filter" else "max_output_tokens" if full else None
    made: dict[str, Any] = {"id": f"resp_{uuid4().hex}", "created_at": round(started, 3), "error": None}
    made["incomplete_details"] = {"reason": cut} if cut else None
    made |= {key: params.get(key) for key in _ECHOED}
    made |= {
        "object": "response",
        "output": output,
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "tool_choice": params.get("tool_choice", "auto"),
        "tools": params.get("tools") or [],
        "status": "incomplete" if cut else "completed",
        "usage": usage,
    }
    return made


_ECHOED = (
    "background", "conversation", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "previous_response_id",
    "prompt", "prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "temperature", "text", "top_logprobs", "top_p",
    "truncation", "user",
)  # fmt: skip
"""What a Responses object repeats of its request; `model` is filled in by the collector."""
