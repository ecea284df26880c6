"""NeMo Gym's reward profile and aggregate metrics (0.7.0), number for number and key for key, from columns of numbers.

Its rules, kept as they are: a field is described by mean, max, min, median and the deviation of the sample; where no field of a
group has a deviation (one rollout), it is 0; what is missing has no key. Per repeat there are quartiles and an interval of
Student's t too, and across repeats the same of the repeats' means. Rollouts with a true `mask_sample` are in no number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gymdata.rollouts.estimators import t_quantile
from gymdata.rollouts.facts import Column, Rollouts
from gymdata.rollouts.tasks import ROLLOUT_INDEX, TASK_INDEX

# Names of fields that end so are no estimates of their own to NeMo Gym: it takes no mean of them across repeats.
_NO_ESTIMATE = (
    "/max", "/min", "/median", "/p5", "/p25", "/p75", "/p95", "/ci_low_95", "/ci_high_95", "/ci_lower", "/ci_upper", "_ci_lower",
    "_ci_upper", "_ci95_lower", "_ci95_upper", "/_ng_attempt_index", "/std_dev_across_runs", "/std_err_across_runs",
    "/avg_sample_std_dev",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task: their row numbers, by rollout index, and how many were to be."""

    task: int
    run: str | None
    rows: list[int]
    expected: int


def labels(agents: dict[str, str | None]) -> dict[str, str]:
    """What each run is called: its agent where no other run has the same, else by its own name."""
    shared = Counter(agent for agent in agents.values() if agent is not None)
    named = {run: agent if agent is not None and shared[agent] == 1 else run for run, agent in agents.items()}
    while clashes := [
        run for counts in [Counter(named.values())] for run, name in named.items() if counts[name] > 1 and name != run
    ]:
        named |= {run: run for run in clashes}
    return named


def group_rows(rollouts: Rollouts, rows: Iterable[int]) -> dict[tuple[int, str | None], list[int]]:
    """The row numbers of each (task, run), by rollout index; tasks in order, then runs."""
    groups: dict[tuple[int, str | None], list[int]] = {}
    for row in rows:
        groups.setdefault((rollouts.tasks[row], rollouts.runs[row]), []).append(row)
    for members in groups.values():
        members.sort(key=rollouts.indices.__getitem__)
    return dict(sorted(groups.items(), key=lambda group: (group[0][0], group[0][1] or "")))


def profile_task(rollouts: Rollouts, group: Group, whole: bool, agent: str | None) -> dict[str, Any]:
    """A line of `<stem>_reward_profiling.jsonl`, without its `sample`. `whole` is `whole_numbers` of the run.

    `agent` is named in it where the same tasks were given to several.
    """
    entry: dict[str, Any] = {TASK_INDEX: group.task}
    entry |= describe(rollouts.fields, group.rows, whole)
    if agent is not None:
        entry["agent_ref"] = {"name": agent}
    count = len(group.rows)
    entry |= {
        "num_rollouts": count,
        "expected_num_rollouts": group.expected,
        "missing_num_rollouts": group.expected - count,
        "reward_profile_completion_pct": 100.0 * count / group.expected if group.expected else 100.0,
        "rollout_infos": [_info(rollouts, row) for row in group.rows],
    }
    return entry


def whole_numbers(columns: dict[str, Column], rows: Sequence[int]) -> bool:
    """Whether every field is an integer in every rollout: then, and only then, NeMo Gym writes extremes without a point."""
    return all({column.kinds[row] for row in rows} in ({1}, {0}) for column in columns.values())


def describe(columns: dict[str, Column], rows: Sequence[int], whole: bool) -> dict[str, Any]:
    """`{stat}/{field}` of some rollouts."""
    found: dict[str, list[float]] = {}
    for key, column in columns.items():
        values = [column.values[row] for row in rows if column.kinds[row]]
        if values:
            found[key] = sorted(values)
    means = {key: math.fsum(values) / len(values) for key, values in found.items()}
    deviations = {key: _deviation(values, means[key]) for key, values in found.items() if len(values) > 1}
    if not deviations:
        deviations = {key: 0.0 for key, values in found.items() if len(values) == len(rows)}
    statistics = {f"mean/{key}": mean for key, mean in means.items()}
    statistics |= {f"max/{key}": int(values[-1]) if whole else values[-1] for key, values in found.items()}
    statistics |= {f"min/{key}": int(values[0]) if whole else values[0] for key, values in found.items()}
    statistics |= {f"median/{key}": _quantile(values, 0.5) for key, values in found.items()}
    return statistics | {f"std/{key}": deviation for key, deviation in deviations.items()}


def agent_metrics(
    rollouts: Rollouts, rows: Sequence[int], agent: str, whole: bool, repeats: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """One agent's entry of `<stem>_agent_metrics.json`: its rollouts pooled, then its repeats' means. `whole` is that of the file."""
    return describe(rollouts.fields, rows, whole) | {"agent_ref": {"name": agent}} | across_repeats(repeats)


def repeat_metrics(rollouts: Rollouts, rows: Sequence[int], agent: str) -> list[dict[str, Any]]:
    """One agent's entries of `<stem>_repeat_level_metrics.json`, one per rollout index; none if there is only one."""
    repeats: dict[int, list[int]] = {}
    for row in rows:
        repeats.setdefault(rollouts.indices[row], []).append(row)
    if len(repeats) < 2:
        return []
    tasks = len({rollouts.tasks[row] for row in rows})
    entries = []
    for index in sorted(repeats):
        present = len({rollouts.tasks[row] for row in repeats[index]})
        entry = {"agent_ref": {"name": agent}, ROLLOUT_INDEX: index, "sample_count": present, "missing_count": tasks - present}
        for key in sorted(rollouts.fields):
            column = rollouts.fields[key]
            values = sorted(column.values[row] for row in repeats[index] if column.kinds[row])
            if values:
                numbers = _spread(values)
                numbers |= {
                    "sem": numbers["std"] / math.sqrt(len(values)),
                    "p25": _quantile(values, 0.25),
                    "p75": _quantile(values, 0.75),
                }
                entry |= {
                    f"{name}/{key}": number
                    for name, number in (numbers | _interval(numbers["mean"], numbers["sem"], len(values))).items()
                }
        entries.append(entry)
    return entries


def across_repeats(repeats: Sequence[dict[str, Any]]) -> dict[str, float]:
    """`{stat}_across_repeats/mean/{field}` of the entries of `repeat_metrics`."""
    names = dict.fromkeys(
        name for entry in repeats for name in entry if name.startswith("mean/") and not name.endswith(_NO_ESTIMATE)
    )
    statistics: dict[str, float] = {}
    for name in names:
        values = sorted(entry[name] for entry in repeats if name in entry)
        numbers = _spread(values)
        numbers["se"] = numbers["std"] / math.sqrt(len(values))
        numbers |= _interval(numbers["mean"], numbers["se"], len(values))
        statistics |= {f"{stat}_across_repeats/{name}": number for stat, number in numbers.items()}
    return statistics


def aggregate(rollouts: Rollouts, rows: Sequence[int], run: str, agent: str) -> dict[str, Any]:
    """The entry of one run in `<stem>_aggregate_metrics.json`, but for its groups; `rows` with the masked ones.

    Where an environment's server in NeMo Gym adds metrics of its own, this has the common ones. `_ng_environment_server` is there
    if the rollouts named it.
    """
    scored = [row for row in rows if not rollouts.masked[row]]
    statistics: dict[str, Any] = {}
    repeats: list[dict[str, Any]] = []
    if scored:
        whole = whole_numbers(rollouts.fields, scored)
        repeats = repeat_metrics(rollouts, scored, agent)
        statistics = describe(rollouts.fields, scored, whole) | across_repeats(repeats)
    coverage = masked_coverage(rollouts, rows)
    statistics |= coverage
    key_metrics = dict(coverage)
    if scored:
        statistics["num_repeats"] = len({rollouts.indices[row] for row in rows})
        key_metrics = {key: value for key, value in statistics.items() if key.startswith("mean/")} | coverage
    found: dict[str, Any] = {"agent_ref": {"name": agent}}
    if rollouts.agents.get(run) != run:
        found["_ng_environment_server"] = run
    found |= {"agent_metrics": statistics, "key_metrics": key_metrics}
    found["repeat_level_metrics"] = [{key: value for key, value in entry.items() if key != "agent_ref"} for entry in repeats]
    if performance := _performance([rollouts.performance[row] for row in rows if row in rollouts.performance], len(rows)):
        found["perf_summary"] = performance
    return found


def aggregate_groups(rollouts: Rollouts, rows: Sequence[int], run: str) -> Iterator[dict[str, Any]]:
    """The `group_level_metrics` of that entry, one per task."""
    scored = [row for row in rows if not rollouts.masked[row]]
    whole = whole_numbers(rollouts.fields, scored)
    for (task, _), members in group_rows(rollouts, scored).items():
        entry = profile_task(rollouts, Group(task, run, members, len(members)), whole, None)
        yield entry | {"sample": {"agent_ref": {"name": "agent"}}}


def masked_coverage(rollouts: Rollouts, rows: Sequence[int]) -> dict[str, int]:
    """How much of a run its numbers were made from; nothing if nothing was masked."""
    measured = [row for row in rows if not rollouts.masked[row]]
    if len(measured) == len(rows):
        return {}
    tasks, measured_tasks = ({rollouts.tasks[row] for row in some} for some in (rows, measured))
    return {
        "coverage/measured_rollouts": len(measured),
        "coverage/masked_rollouts": len(rows) - len(measured),
        "coverage/measured_tasks": len(measured_tasks),
        "coverage/fully_masked_tasks": len(tasks - measured_tasks),
    }


def _info(rollouts: Rollouts, row: int) -> dict[str, Any]:
    task, index = rollouts.tasks[row], rollouts.indices[row]
    numbers = rollouts.odd.get(row)
    if numbers is None:
        numbers = {key: column.number(row) for key, column in rollouts.fields.items() if column.kinds[row]}
    return {"rollout_id": f"{task}:{index}", TASK_INDEX: task, ROLLOUT_INDEX: index} | numbers


def _spread(ordered: Sequence[float]) -> dict[str, float]:
    mean = math.fsum(ordered) / len(ordered)
    deviation = _deviation(ordered, mean) if len(ordered) > 1 else 0.0
    return {"mean": mean, "median": _quantile(ordered, 0.5), "std": deviation, "min": ordered[0], "max": ordered[-1]}


def _deviation(values: Sequence[float], mean: float) -> float:
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest values, in proportion."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    first, second = ordered[low], ordered[min(low + 1, len(ordered) - 1)]
    return (first + second) / 2 if place - low == 0.5 else first + (second - first) * (place - low)


def _interval(mean: float, error: float, count: int) -> dict[str, float]:
    if count < 2:
        return {}
    half = t_quantile(count - 1) * error if error else 0.0
    return {"ci_low_95": mean - half, "ci_high_95": mean + half}


def _performance(records: Sequence[dict[str, Any]], rollouts: int) -> dict[str, float]:
    """`perf_summary`, from the `ng_perf` of the rollouts that have one."""
    if not records:
        return {}

    def numbers(key: str) -> Iterator[float]:
        return (record[key] for record in records if isinstance(record.get(key), int | float))

    summary: dict[str, float] = {
        "overall_observability_coverage": len(records) / rollouts,
        "token_observability_coverage": sum(value > 0 for value in numbers("token_observability_coverage")) / rollouts,
    }
    for key in ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens"):
        if values := sorted(numbers(key)):
            summary |= {
                f"mean_{key}": math.fsum(values) / len(values),
                f"median_{key}": _median(values),
                f"total_{key}": sum(values),
            }
    if values := sorted(numbers("num_turns")):
        mean = math.fsum(values) / len(values)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
        turns = {
            "mean": mean,
            "median": _median(values),
            "std": deviation,
            "min": values[0],
            "p90": _quantile(values, 0.9),
            "max": values[-1],
        }
        summary |= {f"{stat}_num_turns": value for stat, value in turns.items()}
    ratios = sorted(
        record["completion_tokens"] / record["num_turns"]
        for record in records
        if all(isinstance(record.get(key), int | float) for key in ("completion_tokens", "num_turns")) and record["num_turns"] > 0
    )
    if ratios:
        summary |= {"mean_tokens_per_turn": math.fsum(ratios) / len(ratios), "median_tokens_per_turn": _median(ratios)}
    if values := sorted(numbers("total_latency_ms")):
        summary |= {f"total_latency_p{percent}_ms": _quantile(values, percent / 100) for percent in (50, 90, 99)}
        summary["total_latency_mean_ms"] = math.fsum(values) / len(values)
    return summary


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
