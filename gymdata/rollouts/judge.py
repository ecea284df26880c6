"""Asks a judge model what a verifier leaves undecided, question after question, until a label leads to a reward.

The judge has places of its own at its servers, also where they are those of the model that is judged: a rollout that waits for its
verdict must not wait for one that is still being made.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from gymdata.errors import UsageError
from gymdata.rollouts import agent
from gymdata.rollouts.overflow import Overflow
from gymdata.rollouts.policy import FailureKind, Policy, RequestFailed, Settings, connections
from gymdata.verifiers import Ask, Response, Row, Undecided, Verdict, Verifier
from gymdata.verifiers.isolation import Failure, Workers
from gymdata.verifiers.judge import POLICY
from gymdata.verifiers.responses import output_text

MOST = 1024
"""Questions in flight."""


@dataclass(frozen=True)
class JudgeFailed:
    """The judge gave no verdict: it could not be asked, or none of the labels is in its answer. The rollout has no reward."""

    kind: FailureKind | Literal["context_overflow", "no_label"]
    message: str
    evaluations: list[dict[str, Any]]


Outcome = Verdict | Failure | JudgeFailed


def judge_settings(verifiers: Iterable[Verifier], wanted: Settings | None, policy: Settings | None) -> Settings | None:
    """How the judge of these verifiers is reached, None if none has one: as `wanted`, else as the policy if that is the judge.

    Raises UsageError if it is not known where the judge is, or one is wanted that nobody asks.
    """
    servers = {verifier.name: judge.server for verifier in verifiers if (judge := getattr(verifier, "judge", None))}
    if not servers and wanted:
        raise UsageError(
            "no verifier of these rows asks a judge", "for mathematics, set `should_use_judge: true` in the environment's YAML"
        )
    if not servers:
        return None
    found = wanted
    if found is None and policy is not None and set(servers.values()) == {POLICY}:
        found = policy
    if found is None:
        name, server = next(item for item in servers.items() if policy is None or item[1] != POLICY)
        raise UsageError(
            f"the verifier {name!r} asks the judge {server!r}: where is it?", "--judge-url URL says where its server is"
        )
    return found


class Judge:
    """A judge model behind its servers; `async with Judge(settings) as judge`. Its servers are met by `meet`, or the first question."""

    def __init__(self, settings: Settings, seed: int | None = 0) -> None:
        # What is forced on the model is not meant for its judge.
        most = min(settings.most, MOST, max(1, connections() // 2))
        self._met, self._meeting = False, asyncio.Lock()
        self.policy, self._seed = Policy(replace(settings, most=most, token_ids=False, extra_body={})), seed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._met:
            await self.policy.__aexit__(*exception)

    async def meet(self) -> None:
        """Find out which model it is. Raises as `Policy`."""
        async with self._meeting:
            if not self._met:
                await self.policy.__aenter__()
                self._met = True

    async def decide(self, open_case: Undecided) -> Verdict | JudgeFailed:
        """Ask until there is a reward. Extras: `judge_evaluations` as NeMo Gym's (request, response, `verdict_label`), `reason`."""
        await self.meet()
        evaluations: list[dict[str, Any]] = []
        step: Ask | float = open_case.ask
        while isinstance(step, Ask):
            said = await self._ask(step.params)
            if not isinstance(said, agent.Trajectory):
                kind = "context_overflow" if isinstance(said, Overflow) else said.kind
                return JudgeFailed(kind, f"the judge: {said.message}", evaluations)
            text = _last_text(said.response)
            label = _label(text, step)
            response = {**said.response, "model": self.policy.model}
            evaluations.append({"responses_create_params": step.params, "response": response, "verdict_label": label})
            if label is None:
                ending = text if len(text) <= 200 else f"… {text[-200:]}"
                return JudgeFailed("no_label", f"the judge says none of {', '.join(step.answers)}, but {ending!r}", evaluations)
            step = step.answers[label]
        labels = [one["verdict_label"] for one in evaluations]
        before = f"; {why}" if (why := open_case.extras.get("reason")) else ""
        told = {"judge_evaluations": evaluations, "reason": f"the judge says {', then '.join(labels)}{before}"}
        return Verdict(float(step), {**open_case.extras, **told})

    async def _ask(self, params: Mapping[str, Any]) -> agent.Trajectory | Overflow | RequestFailed:
        async with await self.policy.begin() as place:
            try:
                return await agent.run(place, {}, params, seed=self._seed)
            except RequestFailed as error:
                return error


async def score(workers: Workers, judge: Judge | None, verifier: Verifier, row: Row, response: Response) -> Outcome:
    """Score a response in a worker, and by the judge where that leaves it undecided."""
    outcome = await workers.verify(verifier, row, response)
    if not isinstance(outcome, Undecided):
        return outcome
    if judge is None:
        return Failure("error", f"the verifier {verifier.name!r} leaves this to a judge, but has no attribute `judge`")
    return await judge.decide(outcome)


def _last_text(response: Response) -> str:
    """The text of the last item, "" if that is no message."""
    return output_text({"output": response["output"][-1:]})


def _label(text: str, ask: Ask) -> str | None:
    """The first or the last label in a text; where one is the beginning of another, the longer one."""
    labels = sorted(ask.answers, key=len, reverse=True)
    found = re.findall("|".join(map(re.escape, labels)), text)
    return found[-1 if ask.last else 0] if found else None
