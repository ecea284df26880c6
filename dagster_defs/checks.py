"""The bridge from Great Expectations: each expectation of an environment's suite is a check of an asset. None of them blocks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from dagster_defs import metadata, reports
from dagster_defs.automation import WHEN_ITS_ASSET_CHANGES
from dagster_defs.failures import explained
from dagster_defs.partitions import environments
from dagster_defs.resources import Hub, Preparation
from gymdata.environments import registry
from gymdata.environments.model import Environment
from gymdata.errors import GymdataError
from gymdata.statistics.expectations import Outcome, run_suite
from gymdata.statistics.suites import find_suite, read_suite

ASSETS = {"facts": "row_facts", "statistics": "dataset_metrics"}
"""The asset whose check an expectation becomes, by the table that it is about."""


def check_name(expectation: str) -> str:
    """An expectation's name as Dagster takes it."""
    return re.sub(r"\W", "_", expectation, flags=re.ASCII)


def specs() -> list[dg.AssetCheckSpec]:
    """A check for each expectation of any environment's suite."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name in registry.names():
        try:
            suite = find_suite(registry.load(name))
            entries: Sequence[dict[str, Any]] = read_suite(suite)["expectations"] if suite else ()
        except GymdataError:
            continue  # its assets say what is wrong when they are run; the others shall be there meanwhile
        for entry in entries:
            told = found.setdefault((ASSETS[entry["meta"]["table"]], check_name(entry["meta"]["name"])), {})
            told.setdefault(entry.get("description", ""), []).append(name)
    return [
        dg.AssetCheckSpec(
            name,
            asset=asset,
            description=_description(told),
            partitions_def=environments,
            automation_condition=WHEN_ITS_ASSET_CHANGES,
        )
        for (asset, name), told in found.items()
    ]


def _description(told: Mapping[str, Sequence[str]]) -> str:
    """What is expected; by environment, if they expect different things."""
    if len(told) == 1:
        return next(iter(told))
    return "\n".join(f"- {', '.join(names)}: {text}" for text, names in told.items())


@dg.multi_asset_check(specs=specs(), can_subset=True)
def expectations(context: dg.AssetCheckExecutionContext, preparation: Preparation, hub: Hub) -> Iterator[dg.AssetCheckResult]:
    """The suite of the environment, `schemas/expectations/ENV.json` or `ENV.expectations.json` beside its YAML, on each split."""
    with explained():
        environment = registry.load(context.partition_key)
        suite = find_suite(environment)
        if suite is None:
            context.log.info(f"{environment.name} has no suite; `gymdata expectations draft {environment.name}` proposes one")
            return
        entries = read_suite(suite)["expectations"]
        selected = {key.name for key in context.selected_asset_check_keys}
        if selected.isdisjoint(check_name(entry["meta"]["name"]) for entry in entries):
            return  # those of other environments, which automation asks for because nothing ever came of them here
        docs = reports.folder(environment.name) / "data_docs"
        counted = any(entry["kwargs"].get("column") == "rows_kept" for entry in entries)
        baseline = _published(context, environment, hub) if counted else None
        outcomes = run_suite(preparation.directory(environment), environment, baseline=baseline, data_docs=docs)
    for key in sorted(context.selected_asset_check_keys):
        of_check = [outcome for outcome in outcomes if check_name(outcome.name) == key.name]
        if of_check:
            yield _result(key, of_check, dg.MetadataValue.path(str(docs / "index.html")))


def _published(context: dg.AssetCheckExecutionContext, environment: Environment, hub: Hub) -> dict[str, int] | None:
    """The rows of each split on the Hub; None, for those that the directory held before, where nothing is published or known."""
    from gymdata.publish.sides import row_counts
    from gymdata.sources.hub import find_credentials

    if not hub.names(environment):
        return None
    try:
        token = environment.secret("hf_token")
        name = hub.target(environment).repo_id
        return row_counts(name, lambda: find_credentials(token.get_secret_value() if token else None))
    except GymdataError as error:
        context.log.warning(f"row counts are compared with those of the last run, not with what is published: {error.message}")
        return None


def _result(key: dg.AssetCheckKey, outcomes: Sequence[Outcome], docs: dg.PathMetadataValue) -> dg.AssetCheckResult:
    """One expectation on all splits."""
    failed = [outcome for outcome in outcomes if not outcome.success]
    places = [
        {"split": outcome.split, "place": place, outcome.column or "value": value}
        for outcome in outcomes
        for place, value in zip(outcome.places, outcome.values, strict=True)
    ]
    numbers = {f"{one.split}: unexpected rows": one.unexpected for one in outcomes if one.total} | {
        f"{one.split}: {one.column}": one.observed for one in outcomes if isinstance(one.observed, int | float)
    }
    return dg.AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=not failed,
        severity=dg.AssetCheckSeverity.ERROR
        if any(outcome.severity == "critical" for outcome in failed)
        else dg.AssetCheckSeverity.WARN,
        description="; ".join(f"{outcome.split}: {outcome.message}" for outcome in failed or outcomes),
        metadata={
            **({"unexpected rows": metadata.table(places[: metadata.SHOWN], list(places[0]))} if places else {}),
            **numbers,
            "expected": outcomes[0].description,
            "data docs": docs,
        },
    )
