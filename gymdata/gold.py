"""The gold check: each row's verifier on the row's own answer, which must score 1, and on wrong ones, which must score 0."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gymdata.environments.model import Environment
from gymdata.errors import UsageError
from gymdata.rows.lines import DamagedFile, open_stream
from gymdata.validation.findings import Finding
from gymdata.verifiers import Response, Row, Undecided, Verdict, Verifier, verifier_for
from gymdata.verifiers.isolation import Failure, Workers
from gymdata.verifiers.responses import items, output_text


@dataclass(frozen=True)
class GoldCheck:
    """A verifier that scores what another one scores a row's own answers: run in a worker, one round trip a row."""

    verifier: Verifier

    @property
    def name(self) -> str:
        return self.verifier.name

    @property
    def version(self) -> str:
        return self.verifier.version

    @property
    def seconds(self) -> float:
        return 3 * getattr(self.verifier, "seconds", 0.0)

    def verify(self, row: Row, response: Response) -> Verdict:
        """The reward of the right answer (1 where the row has none); extras name what is wrong."""
        gold = self.verifier.gold(row)
        right = self._score(row, gold.right) if gold.right else Verdict(1.0)
        accepted = next((wrong for wrong in gold.wrong if self._score(row, wrong).reward > 0), None)
        return Verdict(
            right.reward,
            {
                "path": gold.path,
                "doubt": gold.doubt,
                "reason": right.extras.get("reason", ""),
                "none": gold.right is None,
            }
            | ({"accepted": _shown(accepted)} if accepted else {}),
        )

    def gold(self, row: Row) -> Any:
        """The other verifier's."""
        return self.verifier.gold(row)

    def _score(self, row: Row, response: Response) -> Verdict:
        """What is left to a judge is not rewarded: no model is asked here."""
        outcome = self.verifier.verify(row, response)
        return outcome if isinstance(outcome, Verdict) else Verdict(0.0, outcome.extras)


@dataclass(slots=True)
class Checked:
    """What a gold check of a file found: rows checked, rows whose answer cannot be made from the row, findings in line order."""

    rows: int
    unanswered: int
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class GoldFile:
    """A file to check, the environments of its rows, and the lines (1-based) to leave out.

    `instance` is the agent, or the declarer of the file, of rows that name none.
    """

    path: Path
    environments: Sequence[Environment]
    instance: str = ""
    skip: Collection[int] = ()


def check_gold(
    files: Sequence[GoldFile], *, jobs: int = 1, on_bytes: Callable[[int, int], None] = lambda file, count: None
) -> list[Checked]:
    """Check every row of files; memory is O(jobs). `on_bytes` is told the index of a file and how many bytes of it were done.

    Raises UsageError if no environment has a row's agent, or a verifier's library or sandbox is missing.
    """
    return asyncio.run(_check(files, jobs, on_bytes))


async def _check(files: Sequence[GoldFile], jobs: int, on_bytes: Callable[[int, int], None]) -> list[Checked]:
    found = [Checked(0, 0, []) for _ in files]
    async with Workers(jobs) as workers:

        async def check(at: int, line: int, verifier: Verifier, row: Row, size: int) -> None:
            outcome = await workers.verify(GoldCheck(verifier), row, {})
            assert not isinstance(outcome, Undecided)  # a gold check is a verdict
            found[at].rows += 1
            found[at].findings += [finding.at(line) for finding in _findings(verifier, outcome)]
            found[at].unanswered += isinstance(outcome, Verdict) and bool(outcome.extras["none"])
            on_bytes(at, size)

        rows = (check(at, *row) for at, file in enumerate(files) for row in _rows(file))
        async for _ in _bounded(rows, 2 * jobs):
            pass
    for checked in found:
        checked.findings.sort(key=lambda finding: finding.line)
    return found


def _rows(file: GoldFile) -> Iterator[tuple[int, Verifier, Row, int]]:
    versions: dict[Verifier, str] = {}
    # A compressed file that is damaged further on was reported when it was validated.
    with suppress(DamagedFile), io.BufferedReader(open_stream(file.path)) as stream:
        for number, line in enumerate(stream, start=1):
            if number in file.skip or not line.strip():
                continue
            row = msgspec.json.decode(line)
            if file.instance and not ("agent_ref" in row or "task_source" in row):
                row["task_source"] = file.instance
            try:
                verifier = verifier_for(file.environments, row)
            except UsageError as error:
                raise UsageError(f"{file.path}:{number}: {error.message}", error.hint) from error
            if verifier not in versions:
                versions[verifier] = verifier.version  # raises UsageError where its library is missing
            yield number, verifier, row, len(line)


async def _bounded(coroutines: Iterator[Any], limit: int) -> AsyncIterator[None]:
    """Run coroutines, at most so many at once; raises what one raises, after cancelling the rest."""
    running: set[asyncio.Task[None]] = set()
    try:
        for coroutine in coroutines:
            running.add(asyncio.create_task(coroutine))
            if len(running) >= limit:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            yield
        for task in running:
            await task
    finally:
        for task in running:
            task.cancel()


def _findings(verifier: Verifier, outcome: Verdict | Failure) -> Iterator[Finding]:
    name = verifier.name
    if isinstance(outcome, Failure):
        hint = "`gymdata envs show ENV` lists the fields that the verifier reads"
        yield Finding("GD408", "$", f"the verifier {name!r} cannot score any response: {outcome.message}", hint)
        return
    extras, path = outcome.extras, str(outcome.extras["path"])
    if outcome.reward != 1:
        message = f"the verifier {name!r} gives the row's own answer {outcome.reward:g}: {extras['reason']}"
        yield Finding("GD405", path, message, "correct the answer, or remove the row")
    if extras["doubt"]:
        yield Finding("GD407", path, f"the verifier {name!r} cannot read the answer: {extras['doubt']}", "write the bare answer")
    elif "accepted" in extras:
        message = f"the verifier {name!r} also rewards the wrong answer {extras['accepted']}"
        yield Finding("GD406", path, message, "write only the final result, so that the verifier reads all of it")


def _shown(response: Response) -> str:
    text = output_text(response) or str(items(response))
    return repr(text if len(text) <= 120 else text[:120] + "…")
