"""A picture of a profile: how the tasks' mean rewards are spread, and what more rollouts would bring. Needs matplotlib (extra `plot`)."""

from __future__ import annotations

from pathlib import Path

from gymdata import atomic
from gymdata.errors import UsageError
from gymdata.rollouts.profile import Profile
from gymdata.rollouts.reward_statistics import AtK

FORMATS = ("svg", "png", "pdf")
MAX_ENVIRONMENTS = 10
"""More are drawn as one: ten colours can still be told apart."""


def plot(profiled: Profile, path: Path) -> None:
    """Draw a profile to a file, whose suffix decides the format.

    Raises UsageError for another suffix than those of FORMATS, or if matplotlib is not installed; ExternalError if the disk refuses.
    """
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise UsageError(f"{path} cannot be drawn", f"name a file that ends in {', '.join(f'.{name}' for name in FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("a plot needs matplotlib, which is not installed", "pip install 'gymdata[plot]'") from error
    rewards: dict[str, list[float]] = {}
    for task in profiled.tasks:
        if task.rewards:
            rewards.setdefault(profiled.environment(task.group.run), []).append(sum(task.rewards) / len(task.rewards))
    environments = profiled.statistics.environments
    if len(environments) > MAX_ENVIRONMENTS:
        rewards, environments = (
            {"all": [value for values in rewards.values() for value in values]},
            {"all": profiled.statistics.overall},
        )
    figure = Figure(figsize=(10, 4), layout="constrained")
    spread, curves = figure.subplots(1, 2)
    spread.hist(
        list(rewards.values()), bins=20, stacked=True, label=[f"{name} ({len(values):,})" for name, values in rewards.items()]
    )
    spread.set(xlabel="mean reward of a task", ylabel="tasks", title="Tasks by mean reward")
    spread.legend(fontsize="small")
    for number, (name, one) in enumerate(environments.items()):
        for label, curve, line in (("pass@k", one.pass_at_k, "-"), ("pass^k", one.pass_hat_k, "--")):
            points = [point for point in curve if point.k <= one.comparable_k] or list(curve[:1])
            curves.plot(*_line(points), line, marker="o", color=f"C{number}", label=f"{label} {name}")
            bounds = [(point.k, point.low, point.high) for point in points if point.low is not None and point.high is not None]
            if bounds:
                curves.fill_between(*zip(*bounds, strict=True), color=f"C{number}", alpha=0.15)
    curves.set(xlabel="k", ylabel="probability", ylim=(-0.02, 1.02), title="At least one of k passes, and all of k")
    curves.set_xscale("log", base=2)
    curves.xaxis.set_major_formatter("{x:g}")
    curves.legend(fontsize="small")
    # No date and fixed ids: the same profile gives the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[form]
    with atomic.writing(path) as temporary, _fixed_ids():
        figure.savefig(temporary, format=form, dpi=150, metadata=metadata)


def _line(points: list[AtK]) -> tuple[list[int], list[float]]:
    return [point.k for point in points], [point.value or 0.0 for point in points]


def _fixed_ids():
    from matplotlib import rc_context

    return rc_context({"svg.hashsalt": "gymdata"})
