"""When what is run by itself: each day, after a change of a file, after a new revision on the Hub. All of it is off until switched on."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import dagster as dg

from dagster_defs.partitions import environments
from dagster_defs.resources import preparation
from gymdata.environments import registry
from gymdata.environments.model import DatasetConfig, Environment
from gymdata.errors import GymdataError
from gymdata.manifest import fingerprint

_settled = (
    ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress()
)
_changed = (
    dg.AutomationCondition.missing().newly_true()
    | dg.AutomationCondition.code_version_changed()
    | dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
)

WHEN_INPUTS_CHANGE = (
    cast("Any", _changed).since_last_handled() & _settled & dg.AutomationCondition.all_deps_blocking_checks_passed()
).with_label("what it is made from has changed")
"""Not `eager`, which fires whenever an input was made again, were it the same."""

WHEN_ITS_ASSET_CHANGES = (
    cast("Any", dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())).since_last_handled()
    & _settled
).with_label("what it checks has changed")
"""Of a check, which a run of its asset may have made already: not `any_deps_updated`, which asks for it before that and after it."""

SOURCE = dg.AssetKey("source_files")
TAG = "gymdata/state"

look = dg.define_asset_job(
    "look_at_sources", dg.AssetSelection.assets(SOURCE), description="Digests of the source files; fetches what is asked for."
)


@dg.schedule(cron_schedule="0 5 * * *", job_name="prepare")
def every_day(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """Validate every environment, each morning; what has not changed is seen to be up to date and left alone."""
    day = context.scheduled_execution_time.strftime("%Y-%m-%d")
    for name in environments.get_partition_keys():
        yield dg.RunRequest(run_key=f"{day} {name}", partition_key=name)


@dg.sensor(job=look, minimum_interval_seconds=60)
def edited_files(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Look at the source files of an environment again when one of them, or its YAML, was written to.

    Only at those looked at before: an environment is first prepared by hand. What is made from the files follows by its automation
    condition, and only if their content is another.
    """
    before: dict[str, str] = json.loads(context.cursor or "{}")
    now = {}
    for environment, datasets in _looked_at(context.instance):
        now[environment.name] = _state([*environment.files, *(dataset.path for dataset in datasets)])
    requests = [
        dg.RunRequest(run_key=f"{name} {state}", partition_key=name, tags={TAG: state})
        for name, state in now.items()
        if before.get(name) != state
    ]
    if not requests:
        return dg.SkipReason(f"no file of {len(now)} environments was written to")
    return dg.SensorResult(requests, cursor=json.dumps({**before, **now}))


@dg.sensor(job=look, minimum_interval_seconds=3600)
def new_revisions(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Fetch again what was fetched from the Hugging Face Hub, when the branch or tag that it came from has moved on."""
    from gymdata.sources.remote import newer_commit

    requests, seen = [], 0
    for environment, datasets in _looked_at(context.instance):
        commits = []
        for dataset in datasets:
            try:
                commits.append(newer_commit(dataset, environment))
            except GymdataError as error:
                context.log.warning(f"{environment.name}: {error}")
        seen += len(commits)
        if newer := [commit for commit in commits if commit]:
            config = {"resources": {"preparation": {"config": {"refresh": True}}}}
            requests.append(
                dg.RunRequest(run_key=f"{environment.name} {' '.join(newer)}", partition_key=environment.name, run_config=config)
            )
    return dg.SensorResult(requests) if requests else dg.SkipReason(f"no news of {seen} datasets")


def _looked_at(instance: dg.DagsterInstance) -> Iterator[tuple[Environment, tuple[DatasetConfig, ...]]]:
    """The environments whose source files were looked at before, with their datasets, as far as their YAML can be read."""
    for name in sorted(instance.get_materialized_partitions(SOURCE) & set(environments.get_partition_keys())):
        try:
            environment = registry.load(name)
            yield environment, preparation.datasets(environment)
        except GymdataError:
            continue  # its own assets say so, when they are run


def _state(files: list[Path]) -> str:
    """A digest of when some files were last written and how long they are."""
    stats = [(str(path), os.stat(path) if path.exists() else None) for path in files]
    return fingerprint([[path, stat.st_mtime_ns, stat.st_size] if stat else [path] for path, stat in stats])[:16]
