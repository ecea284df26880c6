"""What preparing wrote, product by product: checked against the manifest, and shown."""

import json
from pathlib import Path

import dagster as dg

from dagster_defs import metadata
from dagster_defs.assets.sources import validated_rows
from dagster_defs.automation import WHEN_INPUTS_CHANGE
from dagster_defs.failures import explained
from dagster_defs.partitions import environments
from dagster_defs.resources import Preparation
from gymdata import __version__
from gymdata.environments import registry
from gymdata.environments.model import Environment
from gymdata.errors import DataError
from gymdata.manifest import Manifest, OutputFile, fingerprint, sha256
from gymdata.statistics.prepared import FACTS, load_manifest


def _outputs(directory: Path, manifest: Manifest, *suffixes: str) -> list[OutputFile]:
    """The outputs whose names end so, which are as the manifest says. Raises DataError for one that is not."""
    found = [output for output in manifest.outputs if output.path.endswith(suffixes)]
    for output in found:
        path = directory / output.path
        if not path.is_file() or sha256(path) != output.sha256:
            raise DataError(f"{path} is not what was prepared", "run validated_rows again, which writes it anew")
    return found


def _version(outputs: list[OutputFile]) -> dg.DataVersion:
    return dg.DataVersion(fingerprint([[output.path, output.sha256] for output in outputs])[:16])


@dg.asset(
    group_name="measures",
    owners=["team:data"],
    kinds={"parquet", "polars"},
    partitions_def=environments,
    code_version=__version__,
    automation_condition=WHEN_INPUTS_CHANGE,
    deps=[validated_rows],
    metadata={"dagster/column_schema": metadata.FACTS_SCHEMA},
)
def row_facts(context: dg.AssetExecutionContext, preparation: Preparation) -> dg.MaterializeResult:
    """**One line of facts per row**: where it stands, its digests, and how long, how many turns and tools it has.

    The expectations of the environment's suite look at these, and so can polars, DuckDB or a notebook: the file is Parquet.
    """
    import polars as pl

    with explained():
        environment = registry.load(context.partition_key)
        directory = preparation.directory(environment)
        outputs = _outputs(directory, load_manifest(directory, environment.name), FACTS)
    splits = {one.path.removesuffix(FACTS): pl.read_parquet(directory / one.path) for one in outputs}
    lengths = {name: facts["tokens"].drop_nulls().to_list() for name, facts in splits.items()}
    shares = [
        {"split": name, "rows": facts.height, "distinct prompts": facts["prompt_key"].n_unique(),
         "with a warning": facts.filter(pl.col("verdict") == "warning").height}
        for name, facts in splits.items()
    ]  # fmt: skip
    return dg.MaterializeResult(
        metadata={
            "lengths": dg.MetadataValue.md(metadata.histogram(lengths, "tokens")),
            "dagster/row_count": sum(facts.height for facts in splits.values()),
            "splits": metadata.table(shares, ["split", "rows", "distinct prompts", "with a warning"]),
            **{f"median tokens, {name}": int(sorted(numbers)[len(numbers) // 2]) for name, numbers in lengths.items() if numbers},
            "first rows": metadata.table(
                next(iter(splits.values())).head(10).to_dicts() if splits else [],
                [column.name for column in metadata.FACTS_SCHEMA.columns if "key" not in column.name],
            ),
            "files": metadata.paths([directory / one.path for one in outputs]),
        },
        data_version=_version(outputs),
    )


@dg.asset(
    group_name="measures",
    owners=["team:data"],
    kinds={"json"},
    partitions_def=environments,
    code_version=__version__,
    automation_condition=WHEN_INPUTS_CHANGE,
    deps=[validated_rows],
)
def dataset_metrics(context: dg.AssetExecutionContext, preparation: Preparation) -> dg.MaterializeResult:
    """**What the dataset is like**: NeMo Gym's metrics, number for number, and our statistics (lengths with quantiles, roles, tools,
    sampling parameters, verifier fields)."""
    with explained():
        environment = registry.load(context.partition_key)
        directory = preparation.directory(environment)
        manifest = load_manifest(directory, environment.name)
        outputs = _outputs(directory, manifest, "_metrics.json", "_statistics.json")
    documents = {one.path: json.loads((directory / one.path).read_bytes()) for one in outputs}

    def by_split(suffix: str) -> dict[str, dict]:
        return {name.removesuffix(suffix): document for name, document in documents.items() if name.endswith(suffix)}

    rows = {Path(one.path).stem: one.rows for one in manifest.outputs if one.rows is not None}
    return dg.MaterializeResult(
        metadata={
            "statistics": metadata.statistics(by_split("_statistics.json")),
            "metrics": metadata.statistics(by_split("_metrics.json")),
            **{f"rows, {name}": count for name, count in rows.items()},
            **{f"rows before, {name}": count for name, count in manifest.previous.items()},
            "files": metadata.paths([directory / one.path for one in outputs]),
        },
        data_version=_version(outputs),
    )


def _split(name: str, context: dg.AssetExecutionContext, preparation: Preparation) -> dg.MaterializeResult:
    with explained():
        environment: Environment = registry.load(context.partition_key)
        directory = preparation.directory(environment)
        manifest = load_manifest(directory, environment.name)
        outputs = _outputs(directory, manifest, f"{name}.jsonl")
    if not outputs:
        return dg.MaterializeResult(
            metadata={"dagster/row_count": 0, "note": f"{environment.name} has no {name} dataset"}, data_version=_version(outputs)
        )
    output, path = outputs[0], directory / outputs[0].path
    example = metadata.first_row(path)
    return dg.MaterializeResult(
        metadata={
            "first row": dg.MetadataValue.md(metadata.conversation(example) if example else "(no row)"),
            "dagster/row_count": output.rows or 0,
            "bytes": output.bytes,
            "file": metadata.path(path),
            "sha256": output.sha256,
            "manifest": metadata.path(directory / "manifest.json"),
            "dagster/column_schema": metadata.split_schema(environment),
        },
        data_version=_version(outputs),
    )


_SPLIT = {
    "group_name": "splits",
    "owners": ["team:data"],
    "kinds": {"jsonl"},
    "partitions_def": environments,
    "code_version": __version__,
    "automation_condition": WHEN_INPUTS_CHANGE,
    "deps": [validated_rows],
}


@dg.asset(**_SPLIT)
def train_split(context: dg.AssetExecutionContext, preparation: Preparation) -> dg.MaterializeResult:
    """**Rows to train on**, each as its author wrote it, with the agent that runs it stamped on."""
    return _split("train", context, preparation)


@dg.asset(**_SPLIT)
def validation_split(context: dg.AssetExecutionContext, preparation: Preparation) -> dg.MaterializeResult:
    """**Rows to measure progress on**, none of whose prompts is trained on."""
    return _split("validation", context, preparation)
