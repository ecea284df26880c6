"""What several rollouts of a task say about it: unbiased estimates over the ways to draw k of n, and their uncertainty.

None depends on the order of the rollouts. Sources: pass@k, Chen et al. 2021 (arXiv 2107.03374, eq. 1); pass^k, tau-bench (arXiv
2406.12045); Wilson's score interval, JASA 22 (1927).
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any

CONFIDENCE = 0.95
"""The level of every interval."""

MAX_VOTES = 32
"""Above this many rollouts of a task, majority@k is computed for k = n alone: the exact sum over all draws grows too long."""


def pass_at_k(n: int, right: int, k: int) -> float:
    """The probability that at least one of `k` rollouts, drawn from `n` of which `right` passed, passed. Needs 1 <= k <= n."""
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def pass_hat_k(n: int, right: int, k: int) -> float:
    """The probability that all of `k` rollouts, drawn from `n` of which `right` passed, passed. Needs 1 <= k <= n."""
    return math.comb(right, k) / math.comb(n, k)


def best_of_k(rewards: Sequence[float], k: int) -> float:
    """The expected highest reward of `k` rollouts drawn from these; of rewards 0 and 1, pass@k. Needs 1 <= k <= len(rewards)."""
    draws = math.comb(len(rewards), k)
    return math.fsum(reward * (math.comb(index, k - 1) / draws) for index, reward in enumerate(sorted(rewards)) if index >= k - 1)


def majority_at_k(answers: Mapping[Any, Sequence[float]], blank: int, k: int) -> float:
    """The expected reward of the answer that most of `k` drawn rollouts gave.

    `answers` holds the rewards of the rollouts that gave each answer, `blank` is the number of those that gave none. Votes are
    counted on the answer alone; an answer is worth the mean of its rewards, equally frequent answers share, no answer is worth 0.
    """
    ranked = sorted(answers.values(), key=len, reverse=True)
    shares = vote_shares(tuple(map(len, ranked)), blank, k)
    return math.fsum(share * math.fsum(rewards) / len(rewards) for share, rewards in zip(shares, ranked, strict=True))


@cache
def vote_shares(counts: tuple[int, ...], blank: int, k: int) -> tuple[float, ...]:
    """Of all ways to draw `k` of `sum(counts) + blank` rollouts, the share in which each answer wins; m tied answers get 1/m each."""
    n = sum(counts) + blank
    if k == n:
        winners = sum(1 for count in counts if count == max(counts))
        return tuple(1 / winners if count == max(counts) else 0.0 for count in counts)
    shares = {count: _share(counts, counts.index(count), blank, k) / math.comb(n, k) for count in set(counts)}
    return tuple(shares[count] for count in counts)


def _share(counts: tuple[int, ...], mine: int, blank: int, k: int) -> float:
    """The number of draws that the answer at index `mine` wins, a tie of m counting 1/m."""
    others = counts[:mine] + counts[mine + 1 :]
    total = 0.0
    for votes in range(1, min(counts[mine], k) + 1):
        # ways[drawn, tied]: draws from the others so far, none of them with more votes, `tied` with as many.
        ways = {(drawn, 0): math.comb(blank, drawn) for drawn in range(min(blank, k - votes) + 1)}
        for count in others:
            after: dict[tuple[int, int], int] = {}
            for (drawn, tied), number in ways.items():
                for more in range(min(count, votes, k - votes - drawn) + 1):
                    key = drawn + more, tied + (more == votes)
                    after[key] = after.get(key, 0) + number * math.comb(count, more)
            ways = after
        mean = math.fsum(number / (tied + 1) for (drawn, tied), number in ways.items() if drawn == k - votes)
        total += math.comb(counts[mine], votes) * mean
    return total


def wilson(n: int, right: int) -> tuple[float, float]:
    """Wilson's score interval of a pass rate, in which 0 of n and n of n have a width too. (0, 1) if there are no rollouts."""
    if not n:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    rate, spread = right / n, z * z / n
    middle = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / n + spread / (4 * n))
    return (0.0 if right == 0 else max(0.0, middle - half)), (1.0 if right == n else min(1.0, middle + half))


def bootstrap(
    columns: Mapping[str, Sequence[float | None]], seed: int, resamples: int = 1000
) -> dict[str, tuple[float, float] | None]:
    """Percentile intervals of the means of columns that have one value per task, or None where a task has none.

    Whole tasks are drawn, because rollouts of one task are no independent observations. The same seed draws the same tasks for
    all columns, whatever the machine. None for a column with fewer than two values.
    """
    import polars

    frame = polars.DataFrame(dict(columns), schema=dict.fromkeys(columns, polars.Float64))
    size = frame.height
    draw = random.Random(seed)
    means: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(resamples if size > 1 else 0):
        indices = polars.Series(array("I", draw.randbytes(4 * size)), dtype=polars.UInt32) % size
        for name, mean in zip(means, frame.select(polars.all().gather(indices).mean()).row(0), strict=True):
            if mean is not None:
                means[name].append(mean)
    filled = {name: size - frame[name].null_count() for name in columns}
    return {name: _percentiles(values) if filled[name] > 1 else None for name, values in means.items()}


def _percentiles(values: list[float]) -> tuple[float, float] | None:
    values.sort()
    tail = (1 - CONFIDENCE) / 2
    return (values[int(tail * len(values))], values[math.ceil((1 - tail) * len(values)) - 1]) if values else None


@cache
def t_quantile(freedom: int) -> float:
    """The value that Student's t with so many degrees of freedom exceeds in absolute terms with probability 1 - CONFIDENCE."""
    low, high = 0.0, 2.0
    while _t_tail(high, freedom) > 1 - CONFIDENCE:
        high *= 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _t_tail(middle, freedom) > 1 - CONFIDENCE else (low, middle)
    return middle


def _t_tail(t: float, freedom: int) -> float:
    """P(|T| > t): the regularised incomplete beta function at freedom / (freedom + t^2), which for whole degrees is a finite sum.

    Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle) ** 2
    if freedom % 2:
        term = series = math.cos(angle) if freedom > 1 else 0.0
        for index in range(3, freedom - 1, 2):
            term *= cosine * (index - 1) / index
            series += term
        return 1 - 2 / math.pi * (angle + math.sin(angle) * series)
    term = series = 1.0
    for index in range(2, freedom - 1, 2):
        term *= cosine * (index - 1) / index
        series += term
    return 1 - math.sin(angle) * series
