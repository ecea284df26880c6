"""Estimates from n rollouts of a task equal the plain average over all ways to draw k of them."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.rollouts.estimators import (
    best_of_k,
    bootstrap,
    majority_at_k,
    pass_at_k,
    pass_hat_k,
    t_quantile,
    vote_shares,
    wilson,
)

outcomes = st.lists(st.sampled_from([0, 1]), min_size=1, max_size=9).flatmap(
    lambda found: st.tuples(st.just(found), st.integers(1, len(found)))
)
votes = st.lists(st.tuples(st.sampled_from("xyz-"), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=7)


@given(outcomes)
def test_pass_at_k_is_the_share_of_draws_with_a_pass(case: tuple[list[int], int]) -> None:
    found, k = case
    assert pass_at_k(len(found), sum(found), k) == pytest.approx(fmean(max(draw) for draw in combinations(found, k)))


@given(outcomes)
def test_pass_at_k_is_the_closed_form(case: tuple[list[int], int]) -> None:
    found, k = case
    n, right = len(found), sum(found)
    product = math.prod(1 - k / (i + 1) for i in range(n - right, n)) if n - right >= k else 0.0
    assert pass_at_k(n, right, k) == pytest.approx(1 - product)


@given(outcomes)
def test_pass_hat_k_is_the_share_of_draws_that_all_pass(case: tuple[list[int], int]) -> None:
    found, k = case
    assert pass_hat_k(len(found), sum(found), k) == pytest.approx(fmean(min(draw) for draw in combinations(found, k)))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.data())
def test_best_of_k_is_the_mean_highest_reward_of_a_draw(rewards: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(rewards)))
    assert best_of_k(rewards, k) == pytest.approx(fmean(max(draw) for draw in combinations(rewards, k)), abs=1e-6)


@given(outcomes)
def test_best_of_k_of_zeros_and_ones_is_pass_at_k(case: tuple[list[int], int]) -> None:
    found, k = case
    assert best_of_k(found, k) == pytest.approx(pass_at_k(len(found), sum(found), k))


@given(outcomes)
def test_more_draws_never_pass_less_often(case: tuple[list[int], int]) -> None:
    found, k = case
    if k > 1:
        n, right = len(found), sum(found)
        assert pass_at_k(n, right, k) >= pass_at_k(n, right, k - 1) - 1e-12
        assert pass_hat_k(n, right, k) <= pass_hat_k(n, right, k - 1) + 1e-12


@given(votes, st.data())
def test_majority_is_the_mean_reward_of_the_answer_with_most_votes_of_a_draw(
    given: list[tuple[str, float]], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(given)))
    answers: dict[object, list[float]] = {}
    for answer, reward in given:
        if answer != "-":
            answers.setdefault(answer, []).append(reward)

    def worth(draw: tuple[tuple[str, float], ...]) -> float:
        counts = Counter(answer for answer, _ in draw if answer != "-")
        return fmean(fmean(answers[a]) for a in counts if counts[a] == max(counts.values())) if counts else 0.0

    expected = fmean(worth(draw) for draw in combinations(given, k))
    assert majority_at_k(answers, sum(answer == "-" for answer, _ in given), k) == pytest.approx(expected)


def test_votes_count_on_the_answer_even_where_its_rewards_differ() -> None:
    # NeMo Gym counts pairs of answer and score: three x, of which one was judged wrong, lose there to two z.
    assert majority_at_k({"x": [1.0, 1.0, 0.0], "z": [0.0, 0.0]}, 0, 5) == pytest.approx(2 / 3)


def test_no_answer_at_all_is_worth_nothing() -> None:
    assert majority_at_k({}, 4, 2) == 0.0
    assert vote_shares((), 3, 3) == ()


def test_wilsons_interval_has_the_published_values() -> None:
    # Agresti and Coull 1998: of 10 tries 0, 5, 10 successes.
    assert wilson(10, 0) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(10, 5) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706204736), (2, 4.302652730), (5, 2.570581836), (30, 2.042272456), (1000, 1.962339081)]
)
def test_students_t_has_the_tabulated_values(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, rel=1e-9)


def test_the_bootstrap_draws_whole_tasks_and_repeats_itself() -> None:
    columns = {"a": [0.0, 1.0] * 50, "b": [None, 1.0] * 50, "c": [0.25] * 100, "one": [1.0, *[None] * 99]}
    first = bootstrap(columns, seed=7)
    assert first == bootstrap(columns, seed=7)
    spread = {"x": [number / 97 for number in range(97)]}
    assert bootstrap(spread, seed=7) != bootstrap(spread, seed=8)
    low, high = first["a"] or (0, 0)
    # The standard error of 100 coin flips is 0.05.
    assert low == pytest.approx(0.5 - 1.96 * 0.05, abs=0.02) and high == pytest.approx(0.5 + 1.96 * 0.05, abs=0.02)
    assert first["b"] == (1.0, 1.0) and first["c"] == (0.25, 0.25) and first["one"] is None


@pytest.mark.parametrize("mean", [0.2, 0.6])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(mean: float) -> None:
    import random

    draw = random.Random(1)
    covered = 0
    for trial in range(100):
        low, high = bootstrap({"x": [float(draw.random() < mean) for _ in range(60)]}, trial, 100)["x"] or (0, 0)
        covered += low <= mean <= high
    assert 0.85 <= covered / 100 <= 0.99
