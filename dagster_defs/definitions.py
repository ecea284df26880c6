"""Everything that Dagster loads: `dagster dev`, `dg`, and `make prepare` take their graph from here."""

import os

import dagster as dg

from dagster_defs import automation, checks
from dagster_defs.assets import products, publishing, rollouts, sources
from dagster_defs.resources import Hub, Sampling, preparation
from gymdata.errors import UsageError

EXECUTOR = "GYMDATA_EXECUTOR"


def executor() -> dg.ExecutorDefinition:
    """Where steps run, by GYMDATA_EXECUTOR: in_process (a process for each costs seconds), multiprocess, ray, or k8s."""
    name = os.environ.get(EXECUTOR) or "in_process"
    if name == "ray":
        from dagster_ray import ray_executor  # pyright: ignore[reportMissingImports]  # an extra

        return ray_executor
    if name == "k8s":
        from dagster_k8s import k8s_job_executor  # pyright: ignore[reportMissingImports]

        return k8s_job_executor
    known = {"in_process": dg.in_process_executor, "multiprocess": dg.multiprocess_executor}
    if name not in known:
        raise UsageError(f"{EXECUTOR} is {name!r}", "it is in_process, multiprocess, ray or k8s")
    return known[name]


automatic = [
    sources.source_files,
    sources.validated_rows,
    products.row_facts,
    products.dataset_metrics,
    products.train_split,
    products.validation_split,
]

after = [rollouts.rollouts, rollouts.rewards, rollouts.reward_profile, rollouts.selected_split]

prepare = dg.define_asset_job(
    "prepare",
    dg.AssetSelection.assets(*automatic),
    description="From source files to splits, then what the environment's suite expects of them.",
)

splits = dg.define_asset_job(
    "splits",
    dg.AssetSelection.assets(*automatic) - dg.AssetSelection.checks(checks.expectations),
    description="The same without the suite, whose library takes seconds to load: `make prepare ENV=…`.",
)

defs = dg.Definitions(
    assets=[*automatic, publishing.hub_pull_request, *after],
    asset_checks=[checks.expectations],
    jobs=[prepare, splits, automation.look],
    schedules=[automation.every_day],
    sensors=[automation.edited_files, automation.new_revisions],
    resources={"preparation": preparation, "hub": Hub(), "sampling": Sampling()},
    executor=executor(),
)
