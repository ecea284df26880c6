"""Suites of expectations: finds, reads and drafts them. They are Great Expectations' JSON, which is not needed for this.

An expectation is about a column of the facts (one line per row) or, with `"meta": {"table": "statistics"}`, about a number of
the split's statistics by its dotted path, such as `lengths.tokens.mean`. `"meta": {"name": ...}` is what it is called.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.environments.registry import own_folder
from gymdata.errors import ConfigError, UsageError
from gymdata.statistics.prepared import READABLE, Split

if TYPE_CHECKING:
    from gymdata.environments.model import Environment

SUFFIX = ".expectations.json"
_PACKAGE = Path(__file__).parents[1]


def find_suite(environment: Environment) -> Path | None:
    """The suite of an environment: `NAME.expectations.json` beside its YAML or in the user's own folder, else the built-in one."""
    beside = [path.with_suffix(SUFFIX) for path in environment.files if path.suffix in (".yaml", ".yml")]
    candidates = [*beside, own_folder() / f"{environment.name}{SUFFIX}"]
    if environment.builtin:
        inside = _PACKAGE / "expectations"
        folder = inside if inside.is_dir() else _PACKAGE.parent / "schemas" / "expectations"
        candidates.append(folder / f"{environment.name}.json")
    return next((path for path in candidates if path.is_file()), None)


def read_suite(path: Path) -> dict[str, Any]:
    """The suite in a file, every expectation with a name of its own in its `meta`. Raises ConfigError if it is none."""
    try:
        suite = json.loads(path.read_bytes())
        entries = suite["expectations"]
        for entry in entries:
            entry["meta"] = {"name": _name(entry["type"], entry["kwargs"]), "table": "facts", **(entry.get("meta") or {})}
        suite["meta"] = {"parameters": {}, **(suite.get("meta") or {})}
    except FileNotFoundError:
        raise ConfigError("there is no such file", "`gymdata expectations draft` proposes a suite", str(path)) from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"not JSON: {error.msg}", "mend the file", str(path), error.lineno) from None
    except (UnicodeDecodeError, KeyError, TypeError, AttributeError, ValueError):
        raise ConfigError(
            "not a suite of Great Expectations",
            'it is {"name": ..., "expectations": [{"type": ..., "kwargs": {...}}, ...]}; `gymdata expectations draft` writes one',
            str(path),
        ) from None
    seen: dict[str, int] = {}
    for entry in entries:
        name = str(entry["meta"]["name"])
        seen[name] = seen.get(name, 0) + 1
        entry["meta"]["name"] = name if seen[name] == 1 else f"{name}_{seen[name]}"
        if entry["meta"]["table"] not in ("facts", "statistics"):
            raise ConfigError(f"{name}: `table` is {entry['meta']['table']!r}", "it is facts or statistics", str(path))
    return suite


def names(suite: Mapping[str, Any]) -> list[str]:
    """What the expectations of a suite that was read are called, in its order."""
    return [entry["meta"]["name"] for entry in suite["expectations"]]


def _name(kind: str, kwargs: Mapping[str, Any]) -> str:
    about = kwargs.get("column") or "table"
    return f"{about}_{kind.removeprefix('expect_').removeprefix('column_').removeprefix('values_').removeprefix('to_be_')}"


def draft(name: str, splits: Mapping[str, Split]) -> dict[str, Any]:
    """A suite that a good dataset meets, and one that has shifted does not; each `notes` says what it was made from.

    Raises UsageError if there are no rows.
    """
    import polars as pl

    facts = pl.concat([split.facts for split in splits.values()], how="diagonal")
    rows = facts.height
    if not rows:
        raise UsageError(f"{name} has no valid rows", "draft a suite from a dataset that is as it should be")
    entries: list[dict[str, Any]] = []

    def add(
        about: str, kind: str, description: str, notes: str, *, table: str = "facts", severity: str = "critical", **kwargs: Any
    ) -> None:
        entries.append(
            {
                "type": f"expect_column_values_to_be_{kind}",
                "kwargs": kwargs,
                "severity": severity,
                "description": description,
                "notes": notes,
                "meta": {"name": about, "table": table},
            }
        )

    def share(condition: pl.Expr) -> dict[str, Any]:
        """`mostly` for what does not hold in all rows: what was seen in the worst split, less a hundredth."""
        seen = facts.group_by("split").agg(condition.mean().alias("share"))["share"].min()
        return {} if seen == 1 else {"mostly": max(0.0, math.floor(float(seen) * 100 - 1) / 100)}  # type: ignore[arg-type]

    parameters: dict[str, float] = {}
    counted = facts["tokens"].drop_nulls()
    if len(counted):
        low, high = int(counted.min()), int(counted.max())  # type: ignore[arg-type]
        parameters["prompt_tokens"] = max(4096, 2 ** math.ceil(math.log2(2 * high + 1)))
        add(
            "tokens_in_context",
            "between",
            "Every prompt fits the model's context, with room for an answer.",
            f"The longest prompt has {high:,} tokens; set the parameter prompt_tokens to your model's context less its answers.",
            column="tokens",
            min_value=1,
            max_value={"$PARAMETER": "prompt_tokens"},
        )
        add(
            "tokens_usual",
            "between",
            "Prompts are about as long as they were.",
            f"Seen: {low:,} to {high:,} tokens. Margin: half and double.",
            severity="warning",
            column="tokens",
            min_value=low // 2,
            max_value=2 * high,
        )
    for column, what, unit in (("turns", "ask as often as they did", "user messages"), ("tools", "declare their tools", "tools")):
        low, high = int(facts[column].min() or 0), int(facts[column].max() or 0)  # type: ignore[arg-type]
        add(
            column,
            "between",
            f"Rows {what}.",
            f"Seen: {_span(low, high)} {unit} in each of {rows:,} rows. Margin: none.",
            column=column,
            min_value=low,
            max_value=high,
        )
    warm = facts["temperature"].drop_nulls()
    low, high = (float(warm.min()), float(warm.max())) if len(warm) else (0.0, 2.0)  # type: ignore[arg-type]
    seen = f"Seen: {_span(low, high)} in {len(warm):,} rows." if len(warm) else "No row sets it; servers take 0 to 2."
    add("temperature", "between", "Sampling temperatures are usual.", seen, column="temperature", min_value=low, max_value=high)
    if facts.filter(pl.col("answer") == READABLE).height:
        kept = share(pl.col("answer") == READABLE)
        add(
            "answer_readable",
            "in_set",
            "Every row has what its verifier compares with, and in a form that it can read.",
            _seen(kept),
            column="answer",
            value_set=[READABLE],
            **kept,
        )
    for about, column, what in (("unique_rows", "key", "row"), ("unique_prompts", "prompt_key", "prompt")):
        kept = share(pl.col(column).is_unique())
        if kept.get("mostly", 1) >= 0.5:
            add(about, "unique", f"No {what} stands twice in a split.", _seen(kept), column=column, **kept)
    kept = share(pl.col("findings").is_null())
    add(
        "few_warnings",
        "null",
        "Hardly a row has a warning.",
        _seen(kept),
        severity="warning",
        column="findings",
        **(kept or {"mostly": 0.99}),
    )
    add(
        "rows_kept",
        "between",
        "No rows have gone since the last time.",
        "Rows now, divided by the rows that were published, or that the directory held before.",
        table="statistics",
        column="rows_kept",
        min_value=1,
    )
    for path, what in (
        ("lengths.tokens.mean", "mean length of prompts"),
        ("lengths.tokens.p95", "length of the longest 5 % of prompts"),
    ):
        values = [value for split in splits.values() if (value := split.statistics.get(path)) is not None]
        if values:
            add(
                f"{path.split('.')[-1]}_tokens",
                "between",
                f"The {what} has not shifted.",
                f"Seen: {_span(round(min(values), 1), round(max(values), 1))} tokens. Margin: a quarter.",
                table="statistics",
                column=path,
                min_value=math.floor(0.75 * min(values)),
                max_value=math.ceil(1.25 * max(values)),
            )
    source = ", ".join(f"{split.facts.height:,} rows of {name}" for name, split in splits.items())
    return {
        "name": name,
        "notes": f"Drafted from {source}. Read each expectation, and keep what must hold.",
        "meta": {"parameters": parameters},
        "expectations": entries,
    }


def _span(low: float, high: float) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _seen(kept: Mapping[str, float]) -> str:
    return (
        f"Seen: in {kept['mostly'] + 0.01:.0%} of the rows of a split. Margin: 1 %."
        if kept
        else "Seen: in all rows. Margin: none."
    )
