"""Choosing tasks by what was measured of them: rows in, the chosen rows out, their bytes untouched but for `pass_rate` and `weight`."""

from __future__ import annotations

import io
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from gymdata import atomic
from gymdata.engine.local import ordered_map
from gymdata.errors import DataError, UsageError
from gymdata.rollouts.profile import beside
from gymdata.rollouts.tasks import identity
from gymdata.rows.lines import MAX_LINE_BYTES, ByteRange, DamagedFile, chunks, open_stream, ranges
from gymdata.rows.stamp import append_member, replace_member
from gymdata.validation.findings import Finding

Order = Literal["source", "easy-first", "hard-first"]
Measure = Literal["pass_rate", "mean_reward"]

_PROFILE_FIRST = "profile the rollouts first: `gymdata rollouts profile`, then give its <stem>_task_statistics.jsonl"

NOT_MEASURED, INVALID, BEYOND_LIMIT = "not measured", "not valid", "beyond the limit"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a row must meet; None asks nothing. A row whose task was not measured, or not in this respect, meets none of those asked.

    `measure` is the number that the rules on the pass rate, the order and the `pass_rate` written go by. Standard deviations are
    of the rewards, tokens are means per rollout, `max_truncated` is a share of the rollouts.
    """

    measure: Measure = "pass_rate"
    min_pass_rate: float | None = None
    max_pass_rate: float | None = None
    min_std: float | None = None
    max_std: float | None = None
    min_output_tokens: float | None = None
    max_output_tokens: float | None = None
    max_truncated: float | None = None
    min_rollouts: int = 1
    keep_unmeasured: bool = False
    """Keep rows of which there is no rollout; they come last in an order."""

    def bounds(self) -> list[tuple[str, str, float | None, float | None]]:
        """What is asked: its name, the number it is about, and its bounds."""
        asked = [
            ("rollouts", "scored", self.min_rollouts, None),
            (self.measure.replace("_", " "), self.measure, self.min_pass_rate, self.max_pass_rate),
            ("standard deviation", "std_reward", self.min_std, self.max_std),
            ("output tokens", "output_tokens", self.min_output_tokens, self.max_output_tokens),
            ("truncated", "truncated", None, self.max_truncated),
        ]
        return [bound for bound in asked if bound[2] is not None or bound[3] is not None]


@dataclass(slots=True)
class Selection:
    """What came of it. `removed`: by rule, the rows that it was the first to remove, in the order of the rules."""

    rows: int = 0
    selected: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    by_prompt: int = 0
    """Rows found by their conversation alone, because the profile was made without the tasks' rows."""
    findings: dict[str, list[Finding]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "selected": self.selected, "removed": self.removed, "matched_by_prompt": self.by_prompt}


def select(
    datasets: Sequence[Path],
    profile: Path,
    output: Path,
    rules: Rules = Rules(),
    *,
    order: Order = "source",
    weight: bool = False,
    limit: int | None = None,
    write_pass_rate: bool = True,
    environment: str | None = None,
    jobs: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Selection:
    """Write the rows of `datasets` that meet `rules` to `output`; the rest of what is measured is in `profile` (see `measured`).

    `easy-first` and `hard-first` order by `rules.measure`, equal ones as in the source. `weight` writes a `weight` from 0 to 1:
    4 p (1 - p) with p = (passes + 1/2) / (rollouts + 1), highest where half of the rollouts pass and never 0. Rows that
    `gymdata validate` refuses are left out. Raises UsageError where there is no profile, or a task was measured in several
    environments (`environment` names one); DataError if no row is left; ExternalError if the disk refuses. Nothing is written then.
    """
    if output.resolve() in {path.resolve() for path in datasets}:
        raise UsageError(f"{output} is the dataset itself, which is never overwritten", "name another --output")
    tasks = Tasks(profile, environment)
    bounds = rules.bounds()
    found = Selection(removed={NOT_MEASURED: 0, INVALID: 0} | {_words(name, low, high): 0 for name, _, low, high in bounds})
    places, keys = array("Q", [0]), array("d")
    with atomic.disk_errors(output), tempfile.TemporaryFile() as kept:
        for row in _rows(datasets, found, jobs, on_progress):
            task = tasks.find(row, found)
            if task is None and not rules.keep_unmeasured:
                found.removed[NOT_MEASURED] += 1
                continue
            broken = None if task is None else next((b for b in bounds if not _within(task.get(b[1]), b[2], b[3])), None)
            if broken is not None:
                found.removed[_words(broken[0], broken[2], broken[3])] += 1
                continue
            line = row.line
            if task is not None:
                if write_pass_rate and task.get(rules.measure) is not None:
                    line = _with(line, "pass_rate", task[rules.measure])
                if weight and task.get("scored"):
                    rate = (task["passes"] + 0.5) / (task["scored"] + 1)
                    line = _with(line, "weight", round(4 * rate * (1 - rate), 6))
            places.append(places[-1] + kept.write(line + b"\n"))
            value = None if task is None else task.get(rules.measure)
            keys.append(float("inf") if value is None else -value if order == "easy-first" else value)
        chosen = list(range(len(keys)))
        if order != "source":
            chosen.sort(key=keys.__getitem__)
        if limit is not None and limit < len(chosen):
            found.removed[BEYOND_LIMIT] = len(chosen) - limit
            del chosen[limit:]
        found.selected = len(chosen)
        if not chosen:
            raise DataError(f"no row is left of {found.rows:,}:\n{to_text(found)}", "ask for less, or profile more rollouts")
        with atomic.writing(output) as temporary, open(temporary, "wb") as stream:
            for number in chosen:
                kept.seek(places[number])
                stream.write(kept.read(places[number + 1] - places[number]))
    return found


def to_text(found: Selection) -> str:
    """How many rows each rule removed."""
    counts = [
        ("rows", found.rows),
        *((f"  - {rule}", count) for rule, count in found.removed.items() if count),
        ("selected", found.selected),
    ]
    width = max(len(name) for name, _ in counts)
    lines = [f"{name:<{width}}  {count:>9,}" for name, count in counts]
    if found.by_prompt:
        lines.append(f"{found.by_prompt:,} rows were found in the profile by their conversation alone")
    return "\n".join(lines)


class Tasks:
    """What was measured of each task, found by the task's row.

    Read from `<stem>_task_statistics.jsonl`, from NeMo Gym's `<stem>_reward_profiling.jsonl`, or, given the rollouts, from the
    former beside them.
    """

    def __init__(self, path: Path, environment: str | None = None) -> None:
        own = beside(path, "task_statistics.jsonl")
        if own.is_file():
            path = own
        self._by_key: dict[str, dict[str, dict[str, Any]]] = {}
        self._by_prompt: dict[str, dict[str, dict[str, Any]]] = {}
        self._doubled: set[tuple[str, str]] = set()
        for task in measured(path):
            name, key, prompt_key = (str(task.get(part) or "") for part in ("environment", "key", "prompt_key"))
            if environment is not None and name != environment:
                continue
            if key:
                self._by_key.setdefault(key, {})[name] = task
            if prompt_key:
                if name in self._by_prompt.setdefault(prompt_key, {}):
                    self._doubled.add((prompt_key, name))
                self._by_prompt[prompt_key][name] = task
        if not self._by_key and not self._by_prompt:
            raise UsageError(
                f"{path} has no task" + (f" of the environment {environment!r}" if environment else ""),
                "give the profile that `gymdata rollouts profile` wrote",
            )

    def find(self, row: Row, found: Selection) -> dict[str, Any] | None:
        """The numbers of a row's task, None if it was not measured. Raises UsageError if there are several."""
        tasks = self._by_key.get(row.key)
        if tasks is None:
            tasks = {
                name: task
                for name, task in self._by_prompt.get(row.prompt_key, {}).items()
                if (row.prompt_key, name) not in self._doubled
            }
            found.by_prompt += bool(tasks)
        if len(tasks) > 1 and row.agent not in tasks:
            raise UsageError(
                f"a task was measured in several environments: {', '.join(sorted(tasks))}", "name one with --environment"
            )
        return tasks.get(row.agent) or next(iter(tasks.values()), None)


def measured(path: Path) -> Iterator[dict[str, Any]]:
    """The tasks of a profile, as `<stem>_task_statistics.jsonl` has them. Raises UsageError if the file is none."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file", "give a profile; `gymdata rollouts profile` makes one")
    with io.BufferedReader(open_stream(path)) as stream:
        for number, line in enumerate(stream, 1):
            try:
                task = msgspec.json.decode(line)
                if "sample" in task:
                    task = _from_gym(task)
            except (msgspec.DecodeError, UnicodeError, KeyError, TypeError) as error:
                raise UsageError(f"{path}:{number} is no line of a profile", _PROFILE_FIRST) from error
            if not isinstance(task, dict) or not task.keys() >= {"key", "pass_rate", "scored"}:
                raise UsageError(f"{path}:{number} is no line of a profile", _PROFILE_FIRST)
            yield task


def _from_gym(task: Mapping[str, Any]) -> dict[str, Any]:
    """A line of NeMo Gym's reward profile in our terms; a reward of 1 passes."""
    key, prompt_key = identity(msgspec.json.encode(task["sample"]))
    rewards = [info["reward"] for info in task["rollout_infos"] if isinstance(info.get("reward"), int | float)]
    passes = sum(reward >= 1 for reward in rewards)
    agent = task.get("agent_ref") or task["sample"].get("agent_ref") or {}
    return {
        "key": key,
        "prompt_key": prompt_key,
        "environment": agent.get("name") or "",
        "scored": len(rewards),
        "passes": passes,
        "pass_rate": passes / len(rewards) if rewards else None,
        "mean_reward": task.get("mean/reward"),
        "std_reward": task.get("std/reward") if len(rewards) > 1 else None,
        "output_tokens": task.get("mean/output_tokens"),
    }


class Row(msgspec.Struct):
    """A valid line of a dataset, and what finds its task."""

    line: bytes
    key: str
    prompt_key: str
    agent: str


def _rows(datasets: Sequence[Path], found: Selection, jobs: int, on_progress: Callable[[str, int, int], None]) -> Iterator[Row]:
    """The valid rows of some files, the others counted in `found`."""
    for path in datasets:
        if not path.is_file():
            raise UsageError(f"{path}: no such file", "give the rows that the tasks were made of")
        parts, lines, total = ranges(path), 0, path.stat().st_size
        findings = found.findings.setdefault(str(path), [])
        for part, (rows, invalid, wrong, count) in zip(
            parts, ordered_map(_read_part, parts, jobs if total > 1_000_000 else 1), strict=True
        ):
            findings += [finding.at(finding.line + lines) for finding in wrong]
            found.rows += len(rows) + invalid
            found.removed[INVALID] += invalid
            lines += count
            yield from rows
            on_progress(str(path), min(part.stop, total), total)


def _read_part(part: ByteRange) -> tuple[list[Row], int, list[Finding], int]:
    """The valid rows of a range; the number of the others, with their errors; the number of lines."""
    from gymdata.validation.judge import is_error, judge

    rows: list[Row] = []
    findings: list[Finding] = []
    number = invalid = 0
    try:
        for chunk in chunks(part):
            if isinstance(chunk, int):
                number, invalid = number + 1, invalid + 1
                message = f"the line has {chunk:,} bytes; the longest that is read has {MAX_LINE_BYTES:,}"
                findings.append(Finding("GD109", "$", message, line=number))
                continue
            for line in chunk.split(b"\n"):
                number += 1
                if not line.strip():
                    continue
                judgement = judge(line)
                if judgement.row is None:
                    invalid += 1
                    findings += [finding.at(number) for finding in judgement.findings if is_error(finding)]
                else:
                    line = line.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf")
                    key, prompt_key = identity(line)
                    agent = (judgement.row.get("agent_ref") or {}).get("name")
                    rows.append(Row(line, key or "", prompt_key or "", agent or ""))
    except DamagedFile as error:
        findings.append(
            Finding("GD100", "$", f"the compressed file is damaged after line {number}: {error.reason}", line=number + 1)
        )
    return rows, invalid, findings, number


def _with(line: bytes, key: str, value: float) -> bytes:
    """The row with a number as one of its top-level keys; a key that is there keeps its place."""
    text = msgspec.json.encode(value)
    members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    return replace_member(line, key, text) if key in members else append_member(line, key, text)


def _within(value: float | None, low: float | None, high: float | None) -> bool:
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def _words(name: str, low: float | None, high: float | None) -> str:
    bounds = [f"below {low:g}" if low is not None else "", f"above {high:g}" if high is not None else ""]
    return f"{name} {' or '.join(filter(None, bounds))}"
