"""Runs a suite of expectations over a prepared dataset: the only module that imports Great Expectations and pandas.

Everything is in memory: no context folder, no network, no telemetry.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.errors import ConfigError, UsageError
from gymdata.statistics.data_docs import make_readable
from gymdata.statistics.prepared import NONE, Split, read_splits
from gymdata.statistics.suites import expected, find_suite, read_suite, span, value_text

if TYPE_CHECKING:
    import polars

    from gymdata.environments.model import Environment


@dataclass(frozen=True)
class Outcome:
    """What became of one expectation on one split."""

    environment: str
    split: str
    name: str
    description: str
    """What is expected and why, in the suite's words."""
    severity: str
    """critical, warning or info."""
    success: bool
    message: str
    """One sentence: what was seen, and where it failed, what was expected."""
    column: str
    """Of the facts, or the dotted path of a number of the statistics; "" if it is about no single one."""
    observed: Any
    """The number or value that an expectation about a whole column saw; None for one about rows."""
    unexpected: int
    total: int
    """Rows that were looked at."""
    places: tuple[str, ...]
    """`file:line` of every unexpected row."""
    values: tuple[Any, ...]
    """Their values, in the same order; None also where the expectation is about several columns."""


def run_suite(
    directory: Path,
    environment: Environment,
    suite: Path | None = None,
    *,
    baseline: Mapping[str, int] | None = None,
    parameters: Mapping[str, float] | None = None,
    unreadable: Mapping[str, Mapping[int, str]] = NONE,
    data_docs: Path | None = None,
) -> list[Outcome]:
    """Every expectation of the environment's suite, or of `suite`, on every split that `prepare` wrote to `directory`.

    `baseline` are the published rows by split (None: those that the directory held before), `parameters` go before the suite's
    own, `unreadable` are the lines of each split whose answer the verifier cannot read, and why (as `gymdata.gold` finds them),
    `data_docs` is a directory for Great Expectations' HTML. An expectation may name its splits, `"meta": {"splits": [...]}`.
    Raises UsageError if there is no suite or nothing to look at, ConfigError if the suite cannot be used on it.
    """
    path = suite or find_suite(environment)
    if path is None:
        raise UsageError(
            f"{environment.name} has no suite of expectations", f"`gymdata expectations draft {environment.name}` proposes one"
        )
    document = read_suite(path)
    needs_answers = any(entry["kwargs"].get("column") == "answer" for entry in document["expectations"])
    splits = read_splits(directory, environment, baseline, answers=needs_answers, unreadable=unreadable)
    known = document["meta"]["parameters"]
    for name in parameters or ():
        if name not in known:
            raise UsageError(f"{path.name} has no parameter {name!r}", f"it has {', '.join(known) or 'none'}")
    outcomes: list[Outcome] = []
    met: dict[str, tuple[int, int]] = {}
    with _context(data_docs) as (context, stage):
        for split, tables in splits.items():
            for table, frame in (("facts", tables.facts), ("statistics", _one_row(tables, splits.values()))):
                if entries := [entry for entry in document["expectations"] if _concerns(entry, table, split)]:
                    title = f"{environment.name} {split} {table}"
                    expectations = [_build(entry, frame, path) for entry in entries]
                    results = _validate(context, title, expectations, frame, {**known, **(parameters or {})}, path)
                    found = [
                        _outcome(environment.name, split, entry, results[entry["meta"]["name"]], tables, path)
                        for entry in entries
                    ]
                    met[title] = sum(outcome.success for outcome in found), len(found)
                    outcomes += found
        if stage:
            context.build_data_docs()
            make_readable(stage, met)
    order = {entry["meta"]["name"]: index for index, entry in enumerate(document["expectations"])}
    return sorted(outcomes, key=lambda outcome: ([*splits].index(outcome.split), order[outcome.name]))


def _concerns(entry: Mapping[str, Any], table: str, split: str) -> bool:
    return entry["meta"]["table"] == table and split in entry["meta"].get("splits", [split])


def _one_row(split: Split, splits: Iterable[Split]) -> polars.DataFrame:
    """The statistics of a split; null where only others have a number."""
    import polars as pl

    names = dict.fromkeys(name for one in splits for name in one.statistics)
    return pl.DataFrame({name: pl.Series([split.statistics.get(name)], dtype=pl.Float64) for name in names})


@contextmanager
def _context(data_docs: Path | None) -> Iterator[tuple[Any, Path | None]]:
    """Great Expectations in memory; with `data_docs`, also where to build the HTML that replaces what is in that directory."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read when it is imported
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import great_expectations
            import pandas  # noqa: F401
            import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            f"expectations need {error.name}, which is not installed", "pip install 'gymdata[expectations]'"
        ) from error
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults, ProgressBarsConfig

    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    context = great_expectations.get_context(mode="ephemeral", project_config=config)
    if data_docs is None:
        yield context, None
        return
    from gymdata.atomic import staged

    with staged(data_docs, lambda: ("index.html", "expectations", "static", "validations")) as stage:
        backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(stage)}
        site: Any = {
            "class_name": "SiteBuilder",
            "store_backend": backend,
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        }
        context.add_data_docs_site(site_name="gymdata", site_config=site)
        yield context, stage


def _build(entry: Mapping[str, Any], frame: polars.DataFrame, path: Path) -> Any:
    """One expectation. A suite that holds a wrong one would leave it out without a word."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    name = entry["meta"]["name"]
    for key in ("column", "column_A", "column_B"):
        column = entry["kwargs"].get(key)
        if column is not None and column not in frame.columns:
            near = get_close_matches(str(column), frame.columns)
            raise ConfigError(
                f"{name}: there is no {column!r} in the {entry['meta']['table']}",
                f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(frame.columns)[:40])}",
                str(path),
            )
    try:
        return ExpectationConfiguration(**entry).to_domain_obj()
    except Exception as error:  # pydantic's, the registry's, or a TypeError, by what is wrong
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{name}: {reason}", "see Great Expectations' gallery for its types and arguments", str(path)
        ) from error


def _validate(
    context: Any, name: str, expectations: Sequence[Any], frame: polars.DataFrame, parameters: Mapping[str, float], path: Path
) -> dict[str, Any]:
    """The results of some expectations on a table, by name."""
    import great_expectations as gx
    from great_expectations.exceptions.exceptions import GreatExpectationsError

    batches = context.data_sources.add_pandas(name).add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)
    suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=list(expectations)))
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batches, suite=suite))
    index = ["file", "line"] if "line" in frame.columns else []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = definition.run(
                batch_parameters={"dataframe": frame.to_pandas()},
                expectation_parameters=dict(parameters),
                result_format={"result_format": "COMPLETE", **({"unexpected_index_column_names": index} if index else {})},
            )
    except GreatExpectationsError as error:
        raise ConfigError(str(error), "mend the suite", str(path)) from error
    except TypeError as error:  # 1.24 cannot record what quantiles and divergences gave (its issue 12248)
        raise ConfigError(
            f"Great Expectations cannot run it: {error}",
            "expect nothing of quantiles or divergences of facts: quantiles are among the statistics, as lengths.tokens.p95",
            str(path),
        ) from error
    return {result.expectation_config.meta["name"]: result for result in found.results}


def _outcome(environment: str, split: str, entry: Mapping[str, Any], result: Any, tables: Split, path: Path) -> Outcome:
    name, kind = entry["meta"]["name"], entry["type"]
    kwargs, seen, success = result.expectation_config.kwargs, result.to_json_dict()["result"], bool(result.success)
    failure = _exception(result.exception_info)
    if failure:
        raise ConfigError(f"{name} cannot be looked at: {failure}", "mend the expectation", str(path))
    column = str(kwargs.get("column", ""))
    about_rows = entry["meta"]["table"] == "facts" and "unexpected_count" in seen
    observed, places, values = None, [], []
    if about_rows:
        index = [one for one in seen.get("unexpected_index_list") or () if isinstance(one, Mapping)]
        if kind == "expect_column_values_to_be_unique":
            index.sort(key=lambda one: str(one.get(column)))  # what repeats stands together
        places = [f"{one['file']}:{one['line']}" for one in index]
        values = [None if (value := one.get(column)) != value else value for one in index]  # NaN is no JSON
        message = _sentence(kind, kwargs, seen, values if column else [], success, tables.facts)
    else:
        observed = seen["observed_value"] if "observed_value" in seen else tables.statistics.get(column)
        message = _number_sentence(column, kind, kwargs, observed, success, tables)
    return Outcome(
        environment,
        split,
        name,
        entry.get("description") or "",
        entry.get("severity") or "critical",
        success,
        message,
        column,
        observed,
        unexpected=int(seen.get("unexpected_count") or 0) if about_rows else 0,
        total=int(seen.get("element_count") or 0) if about_rows else 0,
        places=tuple(places),
        values=tuple(values),
    )


def _exception(info: Mapping[str, Any]) -> str:
    """What an evaluation raised: by itself, or by metric."""
    for one in [info, *(inner for inner in info.values() if isinstance(inner, Mapping))]:
        if one.get("raised_exception"):
            return str(one.get("exception_message"))
    return ""


def _sentence(
    kind: str, kwargs: Mapping[str, Any], seen: Mapping[str, Any], values: Sequence[Any], success: bool, facts: polars.DataFrame
) -> str:
    """About rows. `values` are all that were unexpected: of its own list of them the result keeps 200."""
    column = kwargs.get("column")
    total, bad = seen.get("element_count") or 0, seen.get("unexpected_count") or 0
    if not bad and (seen.get("missing_count") == total or kind == "expect_column_values_to_be_null"):
        return f"no row has {column}" if total else "there are no rows"
    if not bad:
        found = facts[column] if column in facts.columns and facts[column].dtype.is_numeric() else None
        return f"all {total:,} rows" + (f": {span(found.min(), found.max())}" if found is not None else "")
    few = f"{bad:,} of {total:,} rows"
    if kind == "expect_column_values_to_be_unique":
        text = f"{few} share their {column} with another row"
    elif kind == "expect_column_values_to_not_be_null":
        text = f"{few} have no {column}"
    else:
        words = list(dict.fromkeys(map(value_text, values)))
        if len(words) > SHOWN and all(isinstance(value, int | float) for value in values):
            words = [span(min(values), max(values))]
        more = f" and {len(words) - SHOWN:,} other values" if len(words) > SHOWN else ""
        found = f"{', '.join(words[:SHOWN])}{more}"
        if kind == "expect_column_values_to_be_null":
            text = f"{few} have {column} {found}"
        elif column == "answer":  # its values are sentences
            text = f"{few}: {found}"
        else:
            text = few + (f": {column} is {found}" if words else "") + ("" if success else f"; expected {expected(kind, kwargs)}")
    mostly = kwargs.get("mostly") or 1
    return text + (f" (up to {100 * (1 - mostly):.3g} % may)" if mostly < 1 else "")


def _number_sentence(column: str, kind: str, kwargs: Mapping[str, Any], observed: Any, success: bool, tables: Split) -> str:
    """About a number, or a column as a whole."""
    if observed is None:
        return "nothing to compare with: there were no rows before" if column == "rows_kept" else f"there is no {column}"
    measure = kind.removeprefix("expect_column_values").removeprefix("expect_").split("_to_")[0].replace("_", " ").strip()
    text = f"{' of '.join(filter(None, (measure, column)))} is {value_text(observed)}"
    if column == "rows_kept":
        text += f" ({tables.statistics['rows']:,.0f} rows, {tables.statistics['rows_before']:,.0f} before)"
    return text + ("" if success else f"; expected {expected(kind, kwargs)}")


SHOWN = 3
"""Values that a sentence names."""
