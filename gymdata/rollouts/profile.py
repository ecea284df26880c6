"""Profiling rollouts: their files are read once, measured per task and per run, and the profile's files are written.

<stem>_reward_profiling.jsonl      NeMo Gym's, one line per task
<stem>_agent_metrics.json          NeMo Gym's, one entry per agent
<stem>_repeat_level_metrics.json   NeMo Gym's, one entry per agent and rollout index
<stem>_aggregate_metrics.json      NeMo Gym's, one entry per agent with its tasks
<stem>_task_statistics.jsonl       ours, one line per task (reward_statistics.task_line), which `rollouts select` reads
<stem>_reward_statistics.json      ours, RewardStatistics
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from gymdata import atomic
from gymdata.errors import DataError, UsageError
from gymdata.rollouts import gym_profile
from gymdata.rollouts.facts import Rollouts, read
from gymdata.rollouts.gym_profile import Group
from gymdata.rollouts.reward_statistics import (
    Coverage,
    RewardStatistics,
    TaskNumbers,
    environment_statistics,
    task_line,
    task_numbers,
)
from gymdata.rollouts.tasks import TASK_INDEX, Samples, TaskKey, conversation, expected_rollouts, identity
from gymdata.rows.lines import COMPRESSED_SUFFIXES, open_stream
from gymdata.validation.findings import Finding

UNNAMED = "(unnamed)"
"""The environment of rollouts that name neither agent nor server."""

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Options:
    """How rollouts are measured."""

    threshold: float = 1.0
    """The reward from which on a rollout has passed."""
    ks: tuple[int, ...] = ()
    """The k of pass@k; none for the powers of two."""
    answer_key: str = "extracted_answer"
    num_repeats: int = 0
    """How many rollouts each task was to have, where the inputs do not say it; 0 for as many as it has."""
    seed: int = 0
    resamples: int = 1000


@dataclass(frozen=True, slots=True)
class Profile:
    """Rollouts and what was measured of them. `findings`, by file, are of lines that could not be used."""

    rollouts: Rollouts
    samples: Samples
    sources: Mapping[TaskKey, TaskKey]
    """By task and run, the name of its row in `samples`."""
    names: Mapping[str, str]
    """What the rollouts of a run are called: their agent, or their server where several share the agent."""
    shared: bool
    """Whether the same task indices were given to several agents, as far as not all of it is masked."""
    groups: list[Group]
    tasks: list[TaskNumbers]
    statistics: RewardStatistics
    findings: dict[str, list[Finding]]

    def environment(self, run: str | None) -> str:
        """What the rollouts of a run are called."""
        return UNNAMED if run is None else self.names[run]

    def sample(self, group: Group) -> bytes | None:
        """The row of a task, as JSON."""
        return self.samples.get(self.sources[group.task, group.run])


def profile(
    paths: Sequence[Path],
    inputs: Sequence[Path] = (),
    options: Options = Options(),
    *,
    manifest_of: Path | None = None,
    jobs: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Profile:
    """Measure the rollouts of some files, which together are one run.

    `inputs` hold the tasks: the rows that were given out, or NeMo Gym's materialized inputs; without them a task is what its
    rollouts show of it, and what was to be is what the run's manifest says, if there is one. That stands beside the rollouts, or
    beside `manifest_of`. Raises DataError if no line is a rollout, two rollouts have the same indices, or one belongs to no task
    of `inputs`; UsageError if a file is missing.
    """
    for path in (*paths, *inputs):
        if not path.is_file():
            raise UsageError(f"{path}: no such file", "give rollout files, as `gymdata rollouts collect` writes them")
    samples, shown = Samples(), Samples()
    planned = _planned([manifest_of] if manifest_of else paths)
    num_repeats = options.num_repeats or planned["num_repeats"]
    expected, agents = expected_rollouts(inputs, samples, max(1, num_repeats))
    rollouts, findings = read(
        paths, shown if inputs else samples, answer_key=options.answer_key, jobs=jobs, on_progress=on_progress
    )
    if not len(rollouts):
        raise DataError(
            f"{', '.join(map(str, paths))}: no line is a rollout", "`gymdata validate --kind rollout` says what the lines are"
        )
    groups: list[Group] = []
    sources: dict[TaskKey, TaskKey] = {}
    for (task, run), rows in gym_profile.group_rows(rollouts, range(len(rollouts))).items():
        # Rows that were given out may name the agent alone, or nothing, where a rollout names the server too.
        names = (run, rollouts.agents.get(run or ""), None)
        source = next(((task, name) for name in names if (task, name) in expected), None)
        if inputs and source is None:
            raise DataError(
                f"{', '.join(map(str, inputs))}: no task {task} of {run or UNNAMED}, of which there are rollouts",
                "give the inputs of this run",
            )
        if source and _differ(conversation(samples.get(source)), conversation(shown.get((task, run)))):
            raise DataError(
                f"{', '.join(map(str, inputs))}: task {task} is not what the rollouts of task {task} answer",
                "give the rows as they were given out: they are told apart by `_ng_task_index`, or else by their order",
            )
        sources[task, run] = source or (task, run)
        groups.append(Group(task, run, rows, max(expected[source] if source else num_repeats, len(rows))))
    missing = [expected[key] for key in expected.keys() - sources.values()]
    if not inputs:
        missing = [max(1, num_repeats)] * (planned["tasks"] - len(groups))
    tasks = [task_numbers(rollouts, group, options.threshold) for group in groups]
    wanted = [(group.task, group.run) for group in groups if group.expected > sum(rollouts.masked[row] for row in group.rows)]
    wanted += expected.keys() - sources.values()
    shared = len({task for task, _ in wanted}) < len(wanted)
    names = _names(rollouts.agents, agents, {run for _, run in wanted if run is not None})
    by_name: dict[str, list[TaskNumbers]] = {}
    for task in tasks:
        by_name.setdefault(UNNAMED if task.group.run is None else names[task.group.run], []).append(task)
    measured = {
        name: environment_statistics(rollouts, members, options.ks, options.seed, options.resamples)
        for name, members in sorted(by_name.items())
    }
    overall = next(iter(measured.values()))
    if len(measured) > 1:
        overall = environment_statistics(rollouts, tasks, options.ks, options.seed, options.resamples)
    statistics = RewardStatistics(
        files=tuple(map(str, paths)),
        threshold=options.threshold,
        answer_key=options.answer_key,
        resamples=options.resamples,
        seed=options.seed,
        coverage=_coverage(paths, groups, missing, findings),
        overall=overall,
        environments=measured,
    )
    return Profile(rollouts, samples, sources, names, shared, groups, tasks, statistics, findings)


def write(profiled: Profile, rollouts_path: Path) -> list[Path]:
    """Write the files of a profile beside `rollouts_path`, whose name they begin with; each appears whole. Returns their paths.

    Raises ExternalError if the disk refuses.
    """
    files: dict[str, Callable[[Profile], Iterator[bytes]]] = {
        "reward_profiling.jsonl": _reward_profiling,
        "agent_metrics.json": _agent_metrics,
        "repeat_level_metrics.json": _repeat_metrics,
        "aggregate_metrics.json": _aggregate_metrics,
        "task_statistics.jsonl": _task_statistics,
        "reward_statistics.json": lambda profiled: iter([profiled.statistics.model_dump_json(indent=2).encode() + b"\n"]),
    }
    written = []
    for name, content in files.items():
        path = beside(rollouts_path, name)
        with atomic.writing(path) as temporary, open(temporary, "wb") as stream:
            _write(stream, content(profiled))
        written.append(path)
    return written


def beside(rollouts_path: Path, name: str) -> Path:
    """`runs/math.jsonl`, `failures.jsonl` -> `runs/math_failures.jsonl`."""
    plain = rollouts_path.with_suffix("") if rollouts_path.suffix in COMPRESSED_SUFFIXES else rollouts_path
    return plain.with_name(f"{plain.stem}_{name}")


def run_of_shard(path: Path) -> Path:
    """`math-shard-0-of-8.jsonl` -> `math.jsonl`; any other path as it is."""
    return path.with_name(re.sub(r"-shard-\d+-of-\d+(?=\.|$)", "", path.name))


def _write(stream: BinaryIO, blocks: Iterator[bytes]) -> None:
    for block in blocks:
        stream.write(block)


def _measured(profiled: Profile) -> Iterator[tuple[Group, Group]]:
    """The groups that have rollouts that count, as they are, and as NeMo Gym sees them: without what is masked."""
    masked = profiled.rollouts.masked
    for group in profiled.groups:
        rows = [row for row in group.rows if not masked[row]]
        if rows:
            yield group, Group(group.task, group.run, rows, group.expected - len(group.rows) + len(rows))


def _reward_profiling(profiled: Profile) -> Iterator[bytes]:
    rollouts = profiled.rollouts
    whole = gym_profile.whole_numbers(rollouts.fields, _unmasked(rollouts))
    for group, measured in _measured(profiled):
        agent = profiled.environment(group.run) if profiled.shared else None
        entry = gym_profile.profile_task(rollouts, measured, whole, agent)
        sample = profiled.sample(group)
        yield _encode(entry | {"sample": msgspec.Raw(sample or b"{}")}) + b"\n"


def _agent_metrics(profiled: Profile) -> Iterator[bytes]:
    rollouts = profiled.rollouts
    whole = gym_profile.whole_numbers(rollouts.fields, _unmasked(rollouts))
    coverage: dict[str, dict[str, int]] = {}
    by_agent: dict[str, list[int]] = {}
    for row in sorted(range(len(rollouts)), key=lambda row: (rollouts.tasks[row], rollouts.indices[row])):
        if (run := rollouts.runs[row]) is not None and (agent := rollouts.agents[run]) is not None:
            by_agent.setdefault(agent, []).append(row)
    for agent, rows in by_agent.items():
        if found := gym_profile.masked_coverage(rollouts, rows):
            coverage[agent] = found
    entries = []
    for name, rows in _by_label(profiled):
        repeats = gym_profile.repeat_metrics(rollouts, rows, name)
        entries.append(gym_profile.agent_metrics(rollouts, rows, name, whole, repeats) | coverage.pop(name, {}))
    entries += [{"agent_ref": {"name": name}, **rest} for name, rest in coverage.items()]
    yield _encode(entries)


def _repeat_metrics(profiled: Profile) -> Iterator[bytes]:
    by_label = _by_label(profiled)
    yield _encode([entry for name, rows in by_label for entry in gym_profile.repeat_metrics(profiled.rollouts, rows, name)])


def _aggregate_metrics(profiled: Profile) -> Iterator[bytes]:
    """One entry after the other, its groups one by one: they are too many to be held."""
    rollouts = profiled.rollouts
    # NeMo Gym goes by the rollouts alone here.
    names = gym_profile.labels(rollouts.agents)
    runs: dict[str, list[int]] = {}
    for row, run in enumerate(rollouts.runs):
        if run is not None:
            runs.setdefault(run, []).append(row)
    yield b"["
    for number, (run, rows) in enumerate(runs.items()):
        entry = gym_profile.aggregate(rollouts, rows, run, names[run])
        yield b",\n"[: 2 * bool(number)] + _encode(entry)[:-1] + b',"group_level_metrics":['
        for index, group in enumerate(gym_profile.aggregate_groups(rollouts, rows, run)):
            yield b",\n"[: 2 * bool(index)] + _encode(group)
        yield b"]}"
    yield b"]\n"


def _task_statistics(profiled: Profile) -> Iterator[bytes]:
    """A line per task: its index, its environment, the digests of its row (`key`) and of its conversation (`prompt_key`), its numbers."""
    for task in profiled.tasks:
        group = task.group
        key, prompt_key = identity(profiled.sample(group))
        place = {TASK_INDEX: group.task, "environment": profiled.environment(group.run), "key": key, "prompt_key": prompt_key}
        yield _encode(place | task_line(profiled.rollouts, task)) + b"\n"


def _unmasked(rollouts: Rollouts) -> list[int]:
    return [row for row in range(len(rollouts)) if not rollouts.masked[row]]


def _by_label(profiled: Profile) -> list[tuple[str, list[int]]]:
    """The rollouts that count of each run that has a name, by name."""
    rows: dict[str, list[int]] = {}
    for row in _unmasked(profiled.rollouts):
        if (run := profiled.rollouts.runs[row]) is not None:
            rows.setdefault(profiled.names[run], []).append(row)
    return sorted(rows.items())


def _differ(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one != other


def _names(done: Mapping[str, str | None], given: Mapping[str, str | None], wanted: set[str]) -> dict[str, str]:
    """What runs are called, also those of which there is no rollout; rollouts that are all masked take no name from others."""
    agents = {run: agent for run, agent in done.items() if run in wanted}
    for run in wanted - done.keys():
        # Rows that were given out without a server are no run of their own where their agent has rollouts.
        if given[run] != run or run not in done.values():
            agents[run] = given[run]
    return gym_profile.labels(dict(done)) | gym_profile.labels(agents)


def _coverage(
    paths: Sequence[Path], groups: Sequence[Group], missing: Sequence[int], findings: Mapping[str, Sequence[Finding]]
) -> Coverage:
    """`missing`: how many rollouts each task was to have of which there is none."""
    present = sum(len(group.rows) for group in groups)
    complete = sum(len(group.rows) >= group.expected for group in groups)
    wanted = sum(group.expected for group in groups) + sum(missing)
    return Coverage(
        expected_rollouts=wanted,
        rollouts=present,
        missing_rollouts=wanted - present,
        percent=100.0 * present / wanted,
        tasks=len(groups) + len(missing),
        complete_tasks=complete,
        partial_tasks=len(groups) - complete,
        missing_tasks=len(missing),
        unusable_lines=sum(len({finding.line for finding in found}) for found in findings.values()),
        failures=dict(sorted(_failures(paths).items())),
    )


def _planned(paths: Sequence[Path]) -> dict[str, int]:
    """How many tasks and rollouts of each a run was to have, by its manifest; 0 where there is none to tell."""
    path = beside(run_of_shard(paths[0]), "manifest.json")
    try:
        manifest = msgspec.json.decode(path.read_bytes())
        return {"tasks": int(manifest["rows"]["tasks"]), "num_repeats": int(manifest["num_repeats"])}
    except (OSError, msgspec.DecodeError, UnicodeError, KeyError, TypeError, ValueError):
        return {"tasks": 0, "num_repeats": 0}


def _failures(paths: Sequence[Path]) -> Counter[str]:
    """The records of `<stem>_failures.jsonl` beside each file, by class."""
    found: Counter[str] = Counter()
    for path in dict.fromkeys(beside(path, "failures.jsonl") for path in paths):
        if path.is_file():
            with io.BufferedReader(open_stream(path)) as stream:
                for line in stream:
                    try:
                        record = msgspec.json.decode(line)
                    except (msgspec.DecodeError, UnicodeError):
                        continue  # the torn end of a file that is being written
                    if isinstance(record, dict):
                        found[str(record.get("_ng_failure_class") or record.get("failure_kind") or "unknown")] += 1
    return found
