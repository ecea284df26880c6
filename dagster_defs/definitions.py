"""Everything that Dagster loads: `dagster dev`, `dg`, and `make prepare` take their graph from here."""

import os

import dagster as dg

from dagster_defs import automation, checks
from dagster_defs.assets import products, publishing, sources
from dagster_defs.resources import Hub, preparation

EXECUTORS = {"in_process": dg.in_process_executor, "multiprocess": dg.multiprocess_executor}
"""A process for each step costs seconds, which pay only for large datasets; another machine's executor is added here."""

automatic = [
    sources.source_files,
    sources.validated_rows,
    products.row_facts,
    products.dataset_metrics,
    products.train_split,
    products.validation_split,
]

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
    assets=[*automatic, publishing.hub_pull_request],
    asset_checks=[checks.expectations],
    jobs=[prepare, splits, automation.look],
    schedules=[automation.every_day],
    sensors=[automation.edited_files, automation.new_revisions],
    resources={"preparation": preparation, "hub": Hub()},
    executor=EXECUTORS[os.environ.get("GYMDATA_EXECUTOR", "in_process")],
)
