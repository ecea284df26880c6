"""A reward profile for people: tables for the terminal and as markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gymdata.rollouts.reward_statistics import Coverage, EnvironmentStatistics, Estimate, RewardStatistics

Table = Sequence[Sequence[str]]
"""Rows of cells; the first is the head."""


def to_text(statistics: RewardStatistics) -> str:
    """The profile as aligned tables, with a line on what is missing."""
    blocks = [_aligned(table) for table in _tables(statistics)]
    return "\n\n".join([_headline(statistics), *blocks, *_notes(statistics)])


def to_markdown(statistics: RewardStatistics) -> str:
    """The profile as markdown tables."""
    blocks = []
    for table in _tables(statistics):
        rule = ["---"] + ["---:"] * (len(table[0]) - 1)
        blocks.append(
            "\n".join(
                f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in [table[0], rule, *table[1:]]
            )
        )
    return "\n\n".join([f"**{_headline(statistics)}**", *blocks, *_notes(statistics)])


def coverage_line(coverage: Coverage) -> str:
    """What is there of what was to be, in one sentence."""
    line = (
        f"{coverage.rollouts:,} of {coverage.expected_rollouts:,} rollouts ({coverage.percent:.4g} %) of {coverage.tasks:,} tasks"
    )
    if coverage.missing_rollouts:
        line += f"; {coverage.partial_tasks:,} tasks lack some, {coverage.missing_tasks:,} all"
    if coverage.failures:
        line += "; failures: " + ", ".join(f"{name} {count:,}" for name, count in coverage.failures.items())
    if coverage.unusable_lines:
        line += f"; {coverage.unusable_lines:,} lines could not be used"
    return line


def _headline(statistics: RewardStatistics) -> str:
    return f"{', '.join(statistics.files)}: {coverage_line(statistics.coverage)}"


def _tables(statistics: RewardStatistics) -> Iterator[Table]:
    environments = list(statistics.environments.items())
    if len(environments) > 1:
        environments.append(("all", statistics.overall))
    yield [
        (
            "environment",
            "tasks",
            "rollouts",
            "mean reward",
            "95 % interval",
            "pass rate",
            "95 % interval",
            "all right",
            "mixed",
            "all wrong",
        ),
        *((name, *_rewards(one)) for name, one in environments),
    ]
    lengths = [(name, label, one) for name, found in environments for label, one in _lengths(found)]
    if lengths:
        columns = ("mean", "std", "p50", "p95", "max")
        rows = [(name, label, *(_length(getattr(one, column)) for column in columns)) for name, label, one in lengths]
        yield [("environment", "per rollout", *columns), *rows]
    for name, one in environments:
        curves = {"pass@k": one.pass_at_k, "pass^k": one.pass_hat_k, "best@k": one.best_at_k, "majority@k": one.majority_at_k}
        if len(one.pass_at_k) > 1:
            ks = [point.k for point in one.pass_at_k]
            yield [
                (name, *(f"k = {k}" + ("" if k <= one.comparable_k else " *") for k in ks)),
                *((label, *(_number(point.value) for point in curve)) for label, curve in curves.items() if curve),
                ("tasks", *(f"{point.tasks:,}" for point in one.pass_at_k)),
            ]


def _rewards(one: EnvironmentStatistics) -> tuple[str, ...]:
    shares = (_percent(one.all_right), _percent(one.mixed), _percent(one.all_wrong))
    reward, rate = one.mean_reward, one.pass_rate
    return (
        f"{one.tasks:,}",
        f"{one.rollouts:,}",
        _number(reward.value),
        _interval(reward),
        _number(rate.value),
        _interval(rate),
        *shares,
    )


def _lengths(one: EnvironmentStatistics):
    found = {
        **{name.replace("_", " "): numbers for name, numbers in one.tokens.items()},
        "turns": one.turns,
        "tool calls": one.tool_calls,
    }
    found |= {f"component {name}": numbers for name, numbers in one.components.items()}
    return [(label, numbers) for label, numbers in found.items() if numbers.count]


def _notes(statistics: RewardStatistics) -> list[str]:
    notes = []
    overall = statistics.overall
    if overall.truncated:
        reasons = ", ".join(f"{count:,} by {reason}" for reason, count in overall.truncation_reasons.items())
        notes.append(f"{_percent(overall.truncation_rate)} of the responses are truncated ({reasons})")
    if overall.rollouts - overall.masked > overall.scored:
        notes.append(f"{overall.rollouts - overall.masked - overall.scored:,} rollouts have no reward and are in no estimate")
    if overall.masked:
        notes.append(f"{overall.masked:,} rollouts are masked and are in no estimate")
    if overall.component_mismatches:
        notes.append(f"{overall.component_mismatches:,} rewards are not the sum of their components, which NeMo-RL refuses")
    if any(point.k > one.comparable_k for one in statistics.environments.values() for point in one.pass_at_k):
        notes.append("* fewer than 95 % of the tasks have so many rollouts: this k is over other tasks than its neighbours")
    notes.append(
        f"passed: reward >= {statistics.threshold:g}; each task counts once; intervals draw whole tasks anew {statistics.resamples:,} times; "
        "all right, mixed, all wrong: of the tasks with two rollouts or more"
    )
    return ["\n".join(notes)]


def _interval(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"{_number(estimate.low)} – {_number(estimate.high)}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _length(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.2f}"


def _aligned(table: Table) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    words = 1 + (table[0][1:2] == ("per rollout",))
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index < words else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )
