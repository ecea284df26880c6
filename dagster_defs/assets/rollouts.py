"""What a model makes of the train split: rollouts, their rewards, how often each task is solved, and the tasks worth training on."""

from collections import Counter
from collections.abc import Iterator
from operator import mul
from pathlib import Path

import dagster as dg

from dagster_defs import metadata
from dagster_defs.automation import WHEN_INPUTS_CHANGE
from dagster_defs.failures import RETRIES, explained
from dagster_defs.partitions import environments
from dagster_defs.resources import ASK, Preparation, Sampling
from gymdata.engine.local import default_jobs
from gymdata.environments import registry
from gymdata.errors import ExternalError, UsageError
from gymdata.manifest import fingerprint, sha256


def _made(path: Path, asset: str) -> Path:
    """The same path; raises UsageError, which no retry mends, if the asset that writes it never did."""
    if not path.is_file():
        raise UsageError(f"{path} is not there yet", f"materialize `{asset}` first; both can be one run")
    return path


@dg.asset(
    group_name="rollouts",
    owners=["team:data"],
    kinds={"jsonl", "openai"},
    partitions_def=environments,
    pool="model_server",
    retry_policy=RETRIES,
    output_required=False,
    deps=["train_split"],
)
def rollouts(context: dg.AssetExecutionContext, preparation: Preparation, sampling: Sampling) -> Iterator[dg.MaterializeResult]:
    """**Several answers of a model to each task**, scored by the environment's verifier. Only run by hand: with a model server under
    *Config*, `resources: {sampling: {config: {model_urls: ['http://127.0.0.1:8000/v1']}}}`. Without one, a run that makes the train
    split, too, leaves it out.

    A run that was interrupted, or whose server went away, goes on where it stopped.
    """
    from gymdata.rollouts.collect import collect

    selection = context.run.asset_selection
    if not sampling.model_urls and (selection is None or dg.AssetKey("train_split") in selection):
        context.log.info(f"no model was asked: under Config there is no `{ASK}`")
        return
    with explained():
        environment = registry.load(context.partition_key)
        run = sampling.run(environment, _made(preparation.directory(environment) / "train.jsonl", "train_split"))
        progress = collect(run)
        for note in progress.notes:
            context.log.info(note)
        if progress.owed or progress.interrupted:
            why = "".join(f"; {count:,} {kind}" for kind, count in sorted(progress.failed.items()))
            raise ExternalError(
                f"{progress.owed:,} of {progress.total:,} rollouts are missing{why}",
                f"run it again: it goes on from there; `{run.files.failures}` says of each why it failed",
            )
    failed = [{"kind": kind, "rollouts": count} for kind, count in sorted(progress.failed.items())]
    yield dg.MaterializeResult(
        metadata={
            "dagster/row_count": progress.before + progress.done,
            "made by this run": progress.done,
            "given up": progress.given_up + progress.final_failures,
            **({"mean reward": round(progress.rewards.mean, 6)} if progress.rewards.mean is not None else {}),
            **({"failed": metadata.table(failed, ["kind", "rollouts"])} if failed else {}),
            "model": progress.model,
            "output tokens": progress.output_tokens,
            "seconds": round(progress.seconds, 3),
            "file": metadata.path(run.files.rollouts),
            "next": dg.MetadataValue.md(f"`gymdata rollouts show {run.files.rollouts}` shows them one by one"),
        },
        data_version=dg.DataVersion(sha256(run.files.rollouts)[:16]),
    )


@dg.asset(
    group_name="rollouts",
    owners=["team:data"],
    kinds={"jsonl"},
    partitions_def=environments,
    automation_condition=WHEN_INPUTS_CHANGE,
    retry_policy=RETRIES,
    deps=[rollouts],
)
def rewards(context: dg.AssetExecutionContext, sampling: Sampling) -> dg.MaterializeResult:
    """**What the answers are worth today**: every stored rollout scored again, so that a verifier that was mended or a judge that
    was changed needs no new answers. Nothing is asked of a model, but of a judge where the verifier has one.
    """
    from gymdata.rollouts.verify import verify

    with explained():
        environment = registry.load(context.partition_key)
        output = sampling.rewards(environment)
        found = verify(
            _made(sampling.output(environment), "rollouts"),
            [environment],
            output=output,
            jobs=default_jobs(),
            judge=sampling.judge(),
            model=sampling.servers(),
        )
    scored = found.rewards.total()
    percents = [round(100 * reward) for reward, count in found.rewards.items() for _ in range(count)]
    limits = (0, 100) if percents and 0 <= min(percents) <= max(percents) <= 100 else None
    changed = [
        {"line": one.line, "stored": one.stored, "reward": one.reward, "reason": one.reason}
        for one in found.differences[: metadata.SHOWN]
    ]
    kinds = Counter(failure.kind for _, failure in found.failures)
    failed = [
        {"kind": kind, "rollouts": count, "the first": next(one.message for _, one in found.failures if one.kind == kind)}
        for kind, count in sorted(kinds.items())
    ]
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": scored,
            **({"mean reward": round(sum(map(mul, found.rewards, found.rewards.values())) / scored, 6)} if scored else {}),
            "rewards": dg.MetadataValue.md(metadata.histogram({"reward": percents}, "%", "rollouts", 20, limits)),
            "other rewards than stored": len(found.differences),
            **({"changed": metadata.table(changed, ["line", "stored", "reward", "reason"])} if changed else {}),
            "not scored": len(found.failures),
            **({"failed": metadata.table(failed, ["kind", "rollouts", "the first"])} if failed else {}),
            "file": metadata.path(output),
        },
        data_version=dg.DataVersion(sha256(output)[:16]),
    )


@dg.asset(
    group_name="rollouts",
    owners=["team:data"],
    kinds={"json"},
    partitions_def=environments,
    automation_condition=WHEN_INPUTS_CHANGE,
    deps=[rewards],
)
def reward_profile(context: dg.AssetExecutionContext, sampling: Sampling) -> dg.MaterializeResult:
    """**How well the model does**: rewards with their confidence, pass@k, lengths, and how often each task is solved."""
    from gymdata.rollouts.profile import Options, profile, write
    from gymdata.rollouts.profile_text import to_markdown

    with explained():
        environment = registry.load(context.partition_key)
        output = sampling.output(environment)
        found = profile(
            [_made(sampling.rewards(environment), "rewards")],
            options=Options(sampling.threshold),
            manifest_of=output,
            jobs=default_jobs(),
        )
        written = write(found, output)
    rates = [round(100 * task.passes / len(task.rewards)) for task in found.tasks if task.rewards]
    return dg.MaterializeResult(
        metadata={
            "profile": dg.MetadataValue.md(to_markdown(found.statistics)),
            "tasks by pass rate": dg.MetadataValue.md(metadata.histogram({"pass rate": rates}, "%", "tasks", 20, (0, 100))),
            "tasks": len(found.tasks),
            "never solved": sum(rate == 0 for rate in rates),
            "always solved": sum(rate == 100 for rate in rates),
            "files": metadata.paths(written),
        },
        data_version=dg.DataVersion(fingerprint([sha256(path) for path in written])[:16]),
    )


@dg.asset(
    group_name="rollouts",
    owners=["team:data"],
    kinds={"jsonl"},
    partitions_def=environments,
    automation_condition=WHEN_INPUTS_CHANGE,
    deps=[reward_profile],
)
def selected_split(context: dg.AssetExecutionContext, preparation: Preparation, sampling: Sampling) -> dg.MaterializeResult:
    """**The tasks worth training on**: those that the model solves sometimes, each with its `pass_rate`."""
    from gymdata.rollouts.select import Rules, select

    with explained():
        environment = registry.load(context.partition_key)
        profiled = _made(sampling.output(environment), "rollouts")
        output = profiled.with_name(f"{profiled.stem}_selected.jsonl")
        rules = Rules(min_pass_rate=sampling.min_pass_rate, max_pass_rate=sampling.max_pass_rate)
        train = _made(preparation.directory(environment) / "train.jsonl", "train_split")
        found = select([train], profiled, output, rules, jobs=default_jobs())
    removed = [{"rule": rule, "rows": count} for rule, count in found.removed.items()]
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": found.selected,
            "of": found.rows,
            "removed": metadata.table(removed, ["rule", "rows"]),
            "first row": dg.MetadataValue.md(metadata.conversation(metadata.first_row(output) or {})),
            "file": metadata.path(output),
        },
        data_version=dg.DataVersion(sha256(output)[:16]),
    )
