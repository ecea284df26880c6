"""Scores stored responses again, with the verifiers of today: what stays the same, what changes, what cannot be scored."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gymdata.atomic import writing
from gymdata.environments.model import Environment
from gymdata.errors import DataError, UsageError
from gymdata.rollouts.files import failures_of
from gymdata.rollouts.judge import Judge, JudgeFailed, Outcome, judge_settings, score
from gymdata.rollouts.policy import Settings
from gymdata.rollouts.tokens import TOKEN_IDS
from gymdata.rows.lines import open_stream
from gymdata.verifiers import Verifier, verifier_for
from gymdata.verifiers.isolation import Failure, Workers

AHEAD = 4
"""Responses per worker that are read ahead."""
JUDGED_AHEAD = 256
"""Responses that are read ahead where a judge is asked."""


@dataclass(frozen=True)
class Difference:
    """A rollout whose reward is another one now; `stored` is None where the file has none."""

    line: int
    stored: float | None
    reward: float
    reason: str


@dataclass
class Verified:
    """What scoring again gave: rollouts, of these how many have the same reward, the others, and what could not be scored."""

    rollouts: int = 0
    rewards: Counter[float] = field(default_factory=Counter)
    """How often each reward was given."""
    same: int = 0
    differences: list[Difference] = field(default_factory=list)
    failures: list[tuple[int, Failure | JudgeFailed]] = field(default_factory=list)
    """(line, why), in the order of the file."""


def verify(
    path: Path,
    environments: Sequence[Environment],
    *,
    output: Path | None = None,
    jobs: int = 1,
    seconds: float = 30.0,
    judge: Settings | None = None,
    model: Settings | None = None,
    on_bytes: Callable[[int], None] = lambda count: None,
) -> Verified:
    """Score each rollout of a file again; with `output` write all that could be scored there, the others beside it as failures.

    `judge` is how the judge is reached that verifiers may ask, None where it is the `model`. Memory is O(jobs). Raises DataError for a line that is no rollout,
    UsageError where no environment has a row's agent or there is no judge for it, ExternalError if the judge does not answer.
    """
    with contextlib.ExitStack() as stack:
        targets: list[BinaryIO] = []
        if output is not None:
            if output.exists() and output.samefile(path):
                raise UsageError(f"{output} is the file that is read", "choose another --output")
            temporaries = [stack.enter_context(writing(one)) for one in (output, failures_of(output))]
            targets = [stack.enter_context(open(temporary, "wb")) for temporary in temporaries]
        return asyncio.run(_verify(_rollouts(path, environments, judge, model), targets, jobs, seconds, judge or model, on_bytes))


async def _verify(
    rollouts: Iterator[tuple[int, dict[str, Any], Verifier, int]],
    targets: list[BinaryIO],
    jobs: int,
    seconds: float,
    judge: Settings | None,
    on_bytes: Callable[[int], None],
) -> Verified:
    found = Verified()
    asked = Judge(judge) if judge else None
    ahead = max(JUDGED_AHEAD if judge else 0, AHEAD * jobs)
    async with Workers(jobs, seconds=seconds) as workers, asked or contextlib.nullcontext():
        async for line, row, outcome, size in _in_order(rollouts, workers, asked, ahead):
            found.rollouts += 1
            stored = row.get("reward")
            if isinstance(outcome, Failure | JudgeFailed):
                found.failures.append((line, outcome))
                if targets:
                    targets[1].write(msgspec.json.encode(_failed(row, outcome)) + b"\n")
            else:
                found.rewards[outcome.reward] += 1
                if stored == outcome.reward:
                    found.same += 1
                else:
                    known = stored if isinstance(stored, int | float) else None
                    found.differences.append(Difference(line, known, outcome.reward, str(outcome.extras.get("reason", ""))))
                if targets:
                    targets[0].write(msgspec.json.encode({**row, **outcome.extras, "reward": outcome.reward}) + b"\n")
            on_bytes(size)
    return found


async def _in_order(
    rollouts: Iterator[tuple[int, dict[str, Any], Verifier, int]], workers: Workers, judge: Judge | None, ahead: int
) -> AsyncIterator[tuple[int, dict[str, Any], Outcome, int]]:
    """Each rollout with its outcome, in the order of the file, `ahead` of them at once."""
    pending: deque[tuple[int, dict[str, Any], asyncio.Task[Outcome], int]] = deque()
    try:
        for line, row, verifier, size in rollouts:
            pending.append((line, row, asyncio.create_task(score(workers, judge, verifier, row, _bare(row))), size))
            if len(pending) >= ahead:
                line, row, task, size = pending.popleft()
                yield line, row, await task, size
        while pending:
            line, row, task, size = pending.popleft()
            yield line, row, await task, size
    finally:
        for *_, task, _ in pending:
            task.cancel()


def _rollouts(
    path: Path, environments: Sequence[Environment], judge: Settings | None, model: Settings | None
) -> Iterator[tuple[int, dict[str, Any], Verifier, int]]:
    versions: dict[Verifier, str] = {}
    with io.BufferedReader(open_stream(path)) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise DataError(
                    f"{path}:{number}: not a rollout: {error}", "`gymdata validate --kind rollout` says more"
                ) from error
            if "response" not in row:
                raise DataError(f"{path}:{number}: not a rollout: it has no `response`", "give a file of finished rollouts")
            try:
                verifier = verifier_for(environments, row)
                if getattr(verifier, "judge", None):
                    judge_settings([verifier], judge, model)
            except UsageError as error:
                raise UsageError(f"{path}:{number}: {error.message}", error.hint) from error
            if verifier not in versions:
                versions[verifier] = verifier.version  # raises UsageError where its library is missing
            yield number, row, verifier, len(line)


def _bare(row: dict[str, Any]) -> Any:
    """The response without token ids and their probabilities, which are most of its bytes and which no verifier reads."""
    response = row["response"]
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        return response
    output = [
        {key: value for key, value in item.items() if key not in TOKEN_IDS} if isinstance(item, dict) else item
        for item in response["output"]
    ]
    return {**response, "output": output}


def _failed(row: dict[str, Any], failure: Failure | JudgeFailed) -> dict[str, Any]:
    """As `collect` writes a rollout that the verifier failed on."""
    kept = {key: row[key] for key in ("_ng_task_index", "_ng_rollout_index", "agent_ref", "response") if key in row}
    told = {
        "class": "judge_failed" if isinstance(failure, JudgeFailed) else "verifier_failed",
        "type": failure.kind,
        "message": failure.message,
    }
    return kept | {f"_ng_failure_{name}": value for name, value in told.items()}
