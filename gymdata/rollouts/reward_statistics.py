"""Our statistics of rewards: per task and per environment, with estimates that unequal numbers of rollouts do not bend.

A rollout passes if its reward reaches `threshold`. Numbers of an environment are means over its tasks, each task counting once;
their intervals come from drawing whole tasks anew (estimators.bootstrap). A task's pass rate has Wilson's interval.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from gymdata.rollouts.estimators import CONFIDENCE, MAX_VOTES, best_of_k, bootstrap, majority_at_k, pass_at_k, pass_hat_k, wilson
from gymdata.rollouts.facts import Column, Rollouts
from gymdata.rollouts.gym_profile import Group
from gymdata.statistics.statistics import Distribution, distribution

COMPARABLE = 0.95
"""Of this share of the tasks, or more, every k of a curve can be estimated; the curve is over those tasks alone."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Estimate(_Model):
    """A mean over `tasks` tasks, with its interval; None without tasks, or for the interval with fewer than two."""

    value: float | None
    low: float | None
    high: float | None
    tasks: int


class AtK(Estimate):
    """An estimate for `k` rollouts."""

    k: int


class EnvironmentStatistics(_Model):
    """The rollouts of one environment, or of all.

    The curves over k: `pass_at_k`, at least one of k passes; `pass_hat_k`, all do; `best_at_k`, the expected highest reward (None
    where all rewards are 0 or 1: it is pass@k then); `majority_at_k`, the expected reward of the most frequent answer, equal ones
    sharing (None without answers). Up to `comparable_k` all are over the same tasks, those with at least so many rollouts; beyond it,
    each k is over the tasks that have k. `all_right`, `mixed`, `all_wrong` are shares of the `repeated_tasks`, those with two or
    more scored rollouts. `component_mismatches` counts rollouts whose reward is not the sum of its components.
    """

    tasks: int
    rollouts: int
    scored: int
    masked: int
    reward: Distribution
    mean_reward: Estimate
    pass_rate: Estimate
    comparable_k: int
    pass_at_k: tuple[AtK, ...]
    pass_hat_k: tuple[AtK, ...]
    best_at_k: tuple[AtK, ...] | None
    majority_at_k: tuple[AtK, ...] | None
    repeated_tasks: int
    all_right: float | None
    mixed: float | None
    all_wrong: float | None
    reward_std_within_tasks: float | None
    components: dict[str, Distribution]
    component_mismatches: int
    tokens: dict[str, Distribution]
    turns: Distribution
    tool_calls: Distribution
    truncated: int
    truncation_rate: float | None
    truncation_reasons: dict[str, int]


class Coverage(_Model):
    """What there is of what was to be. `failures`: by class, the records beside the rollouts (several attempts of one count each)."""

    expected_rollouts: int
    rollouts: int
    missing_rollouts: int
    percent: float
    tasks: int
    complete_tasks: int
    partial_tasks: int
    missing_tasks: int
    unusable_lines: int
    failures: dict[str, int]


class RewardStatistics(_Model):
    """`<stem>_reward_statistics.json`. Intervals have the level `confidence`."""

    files: tuple[str, ...]
    threshold: float
    answer_key: str
    confidence: float = CONFIDENCE
    resamples: int
    seed: int
    coverage: Coverage
    overall: EnvironmentStatistics
    environments: dict[str, EnvironmentStatistics]


@dataclass(slots=True)
class TaskNumbers:
    """The scored rollouts of one task."""

    group: Group
    rows: list[int]
    """Row numbers of the scored ones."""
    rewards: list[float]
    passes: int
    answers: dict[int, list[float]] = field(default_factory=dict)
    """By digest of the answer, the rewards of the rollouts that gave it."""

    @property
    def blank(self) -> int:
        """Rollouts without an answer."""
        return len(self.rewards) - sum(map(len, self.answers.values()))


def task_numbers(rollouts: Rollouts, group: Group, threshold: float) -> TaskNumbers:
    """The scored rollouts of a task; those masked or without a reward are left out."""
    rows = [row for row in group.rows if not rollouts.masked[row] and not math.isnan(rollouts.rewards[row])]
    rewards = [rollouts.rewards[row] for row in rows]
    numbers = TaskNumbers(group, rows, rewards, sum(reward >= threshold for reward in rewards))
    for row, reward in zip(rows, rewards, strict=True):
        if rollouts.answers[row]:
            numbers.answers.setdefault(rollouts.answers[row], []).append(reward)
    return numbers


def task_line(rollouts: Rollouts, task: TaskNumbers) -> dict[str, Any]:
    """The numbers of a task in `<stem>_task_statistics.jsonl`; None where there is nothing to tell.

    `pass_rate_low` and `pass_rate_high` are Wilson's interval; `std_reward` is that of the sample, from two rollouts on;
    `majority` is the reward of the most frequent answer.
    """
    count = len(task.rewards)
    low, high = wilson(count, task.passes)
    every = task.group.rows
    return {
        "rollouts": len(every),
        "expected": task.group.expected,
        "scored": count,
        "passes": task.passes,
        "pass_rate": task.passes / count if count else None,
        "pass_rate_low": low,
        "pass_rate_high": high,
        "mean_reward": _mean(task.rewards),
        "std_reward": _deviation(task.rewards),
        "min_reward": min(task.rewards, default=None),
        "max_reward": max(task.rewards, default=None),
        "answers": len(task.answers) if rollouts.has_answers else None,
        "majority": majority_at_k(task.answers, task.blank, count) if rollouts.has_answers and count else None,
        "input_tokens": _mean(_field(rollouts, "input_tokens", every)),
        "output_tokens": _mean(_field(rollouts, "output_tokens", every)),
        "max_output_tokens": max(_field(rollouts, "output_tokens", every), default=None),
        "turns": _mean([rollouts.turns[row] for row in every if rollouts.turns[row] >= 0]),
        "truncated": sum(rollouts.truncated[row] is not None for row in every) / len(every) if every else None,
    }


def environment_statistics(
    rollouts: Rollouts, tasks: Sequence[TaskNumbers], ks: Sequence[int], seed: int, resamples: int
) -> EnvironmentStatistics:
    """The statistics of some tasks. `ks` are the k of the curves; without any, the powers of two and the highest number of rollouts."""
    scored = [task for task in tasks if task.rewards]
    counts = sorted((len(task.rewards) for task in scored), reverse=True)
    comparable = counts[math.ceil(COMPARABLE * len(counts)) - 1] if counts else 0
    ks = sorted({k for k in ks if counts and k <= counts[0]} if ks else _usual_ks(counts[0] if counts else 0))
    rows = [row for task in tasks for row in task.group.rows]
    rewards = array("d", (reward for task in scored for reward in task.rewards))
    binary = all(reward in (0.0, 1.0) for reward in rewards)
    columns: dict[str, list[float | None]] = {
        "mean_reward": [_mean(task.rewards) for task in scored],
        "pass_rate": [task.passes / len(task.rewards) for task in scored],
    }
    for k in ks:
        able = [task if len(task.rewards) >= max(k, comparable) else None for task in scored]
        columns[f"pass_at {k}"] = [task and pass_at_k(len(task.rewards), task.passes, k) for task in able]
        columns[f"pass_hat {k}"] = [task and pass_hat_k(len(task.rewards), task.passes, k) for task in able]
        if not binary:
            columns[f"best_at {k}"] = [task and best_of_k(task.rewards, k) for task in able]
        if rollouts.has_answers:
            voted = [task if task and (len(task.rewards) <= MAX_VOTES or len(task.rewards) == k) else None for task in able]
            columns[f"majority_at {k}"] = [task and majority_at_k(task.answers, task.blank, k) for task in voted]
    intervals = bootstrap(columns, seed, resamples)

    def estimate(name: str) -> dict[str, Any]:
        values = [value for value in columns[name] if value is not None]
        low, high = intervals[name] or (None, None)
        return {"value": _mean(values), "low": low, "high": high, "tasks": len(values)}

    def curve(name: str) -> tuple[AtK, ...]:
        return tuple(AtK(k=k, **estimate(f"{name} {k}")) for k in ks)

    repeated = [task for task in scored if len(task.rewards) > 1]
    right, wrong = (sum(task.passes == share * len(task.rewards) for task in repeated) for share in (1, 0))
    shares = (None,) * 3 if not repeated else (part / len(repeated) for part in (right, len(repeated) - right - wrong, wrong))
    answered = [row for row in rows if rollouts.turns[row] >= 0]
    reasons = Counter(reason for row in rows if (reason := rollouts.truncated[row]) is not None)
    used = {key: column for key, column in (rollouts.details | rollouts.fields).items() if key.endswith("_tokens")}
    return EnvironmentStatistics(
        tasks=len(tasks),
        rollouts=len(rows),
        scored=len(rewards),
        masked=sum(rollouts.masked[row] for row in rows),
        reward=distribution(rewards),
        mean_reward=Estimate(**estimate("mean_reward")),
        pass_rate=Estimate(**estimate("pass_rate")),
        comparable_k=comparable,
        pass_at_k=curve("pass_at"),
        pass_hat_k=curve("pass_hat"),
        best_at_k=None if binary else curve("best_at"),
        majority_at_k=curve("majority_at") if rollouts.has_answers else None,
        repeated_tasks=len(repeated),
        **dict(zip(("all_right", "mixed", "all_wrong"), shares, strict=True)),
        reward_std_within_tasks=_mean([value for task in repeated if (value := _deviation(task.rewards)) is not None]),
        components={
            key: distribution(numbers)
            for key, column in sorted(rollouts.components.items())
            if (numbers := array("d", _present(column, rows)))
        },
        component_mismatches=_mismatches(rollouts, rows),
        tokens={key: distribution(numbers) for key in sorted(used) if (numbers := array("d", _present(used[key], rows)))},
        turns=distribution(array("l", (rollouts.turns[row] for row in answered))),
        tool_calls=distribution(array("l", (rollouts.calls[row] for row in answered))),
        truncated=reasons.total(),
        truncation_rate=reasons.total() / len(answered) if answered else None,
        truncation_reasons=dict(sorted(reasons.items())),
    )


def _usual_ks(most: int) -> set[int]:
    return {2**power for power in range(most.bit_length())} | {most} if most else set()


def _mismatches(rollouts: Rollouts, rows: Iterable[int]) -> int:
    """Rollouts with components whose sum is not the reward, which NeMo-RL refuses."""
    count = 0
    for row in rows:
        parts = [column.values[row] for column in rollouts.components.values() if column.kinds[row]]
        count += bool(parts) and not math.isclose(math.fsum(parts), rollouts.rewards[row], rel_tol=1e-6, abs_tol=1e-6)
    return count


def _field(rollouts: Rollouts, key: str, rows: Sequence[int]) -> list[float]:
    return _present(rollouts.fields[key], rows) if key in rollouts.fields else []


def _present(column: Column, rows: Sequence[int]) -> list[float]:
    return [column.values[row] for row in rows if column.kinds[row]]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
