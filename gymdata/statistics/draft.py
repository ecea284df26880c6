"""Proposes a suite of expectations from a dataset that is as it should be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gymdata.errors import UsageError
from gymdata.statistics.prepared import READABLE, Split
from gymdata.statistics.suites import span


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

    def limits(column: str) -> tuple[int, int, dict[str, Any]]:
        """Least, greatest and `mostly`; where at least half of the rows have some, the least of those."""
        kept = share(pl.col(column) > 0)
        if not kept or kept["mostly"] < 0.5:
            kept, seen = {}, facts[column]
        else:
            seen = facts.filter(pl.col(column) > 0)[column]
        return int(seen.min()), int(seen.max()), kept  # type: ignore[arg-type]

    parameters: dict[str, float] = {}
    if facts["tokens"].count():
        low, high, kept = limits("tokens")
        parameters["prompt_tokens"] = max(4096, 2 ** math.ceil(math.log2(2 * high + 1)))
        add(
            "tokens_in_context",
            "between",
            "Every prompt fits the model's context, with room for an answer.",
            f"The longest prompt has {high:,} tokens; set the parameter prompt_tokens to your model's context less its answers.",
            column="tokens",
            max_value={"$PARAMETER": "prompt_tokens"},
        )
        add(
            "tokens_usual",
            "between",
            "Prompts are about as long as they were.",
            f"Seen: {span(low, high)} tokens. Margin: half and double.",
            severity="warning",
            column="tokens",
            min_value=low // 2,
            max_value=2 * high,
            **kept,
        )
    for column, what, unit in (
        ("turns", "ask as often as they did", "user messages"),
        ("tools", "declare tools as they did", "tools"),
    ):
        low, high, kept = limits(column)
        seen = f"Seen: {span(low, high)} {unit}, {_share(kept)}"
        add(column, "between", f"Rows {what}.", seen, column=column, min_value=low, max_value=high, **kept)
    warm = facts["temperature"].drop_nulls()
    low, high = (float(warm.min()), float(warm.max())) if len(warm) else (0.0, 2.0)  # type: ignore[arg-type]
    seen = f"Seen: {span(low, high)} in {len(warm):,} rows." if len(warm) else "No row sets it; servers take 0 to 2."
    add("temperature", "between", "Sampling temperatures are usual.", seen, column="temperature", min_value=low, max_value=high)
    kept = share(pl.col("answer") == READABLE)
    if kept.get("mostly", 1) >= 0.5:
        add(
            "answer_readable",
            "in_set",
            "Every row has what its verifier compares with, and in a form that it can read.",
            f"Seen: {_share(kept)}",
            column="answer",
            value_set=[READABLE],
            **kept,
        )
    for about, column, what in (("unique_rows", "key", "row"), ("unique_prompts", "prompt_key", "prompt")):
        kept = share(pl.col(column).is_unique())
        if kept.get("mostly", 1) >= 0.5:
            add(about, "unique", f"No {what} stands twice in a split.", f"Seen: {_share(kept)}", column=column, **kept)
    kept = share(pl.col("findings").is_null())
    add(
        "few_warnings",
        "null",
        "Hardly a row has a warning.",
        f"Seen: {_share(kept)}",
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
                f"Seen: {span(round(min(values), 1), round(max(values), 1))} tokens. Margin: a quarter.",
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


def _share(kept: Mapping[str, float]) -> str:
    return f"in {kept['mostly'] + 0.01:.0%} of the rows of a split. Margin: 1 %." if kept else "in all rows. Margin: none."
