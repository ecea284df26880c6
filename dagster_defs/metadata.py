"""What assets and checks show in the UI: findings, statistics, files, an example row as a conversation, a histogram."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from gymdata.environments.model import Environment
from gymdata.validation.catalogue import RULES
from gymdata.validation.report import Report

if TYPE_CHECKING:
    from gymdata.publish.gates import Objection

SHOWN = 300
"""Findings that a table holds; the report has all."""

MEND = dg.MetadataValue.md(
    "Mend the rows in the source files; `gymdata validate --fix FILE` repairs what is mechanical, `gymdata explain CODE` says more."
    " Or leave them out: `on_invalid: quarantine` (resource `preparation`). Nothing was written; the last good splits are as they were."
)

FACTS_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("file", "string", "source file, as the configuration names it"),
        dg.TableColumn("line", "int", "line of the source file, from 1"),
        dg.TableColumn("verdict", "string", "valid, or warning"),
        dg.TableColumn("findings", "string", "codes of the row's findings; null without any"),
        dg.TableColumn("key", "string", "digest of the row's content", constraints=dg.TableColumnConstraints(nullable=False)),
        dg.TableColumn("prompt_key", "string", "digest of the prompt"),
        dg.TableColumn("params_key", "string", "digest of responses_create_params"),
        dg.TableColumn("answer_key", "string", "digest of the expected answer; null without one"),
        dg.TableColumn("tokens", "int", "of the prompt; null if they were not counted"),
        dg.TableColumn("words", "int", "of the prompt"),
        dg.TableColumn("characters", "int", "of the prompt"),
        dg.TableColumn("turns", "int", "user messages"),
        dg.TableColumn("tools", "int", "declared tools; null without a list of them"),
        dg.TableColumn("temperature", "float", "sampling temperature; null if the row sets none"),
    ]
)


def table(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> dg.TableMetadataValue:
    """A table of strings, numbers and booleans; everything else as text."""
    rows = [
        dg.TableRecord(
            {column: value if isinstance(value := row.get(column), str | int | float) else _text(value) for column in columns}
        )
        for row in records
    ]
    kinds = {column: "int" if rows and all(isinstance(row.data[column], int) for row in rows) else "string" for column in columns}
    return dg.MetadataValue.table(rows, schema=dg.TableSchema([dg.TableColumn(column, kinds[column]) for column in columns]))


def findings(report: Report, severity: str = "", code: str = "") -> dg.TableMetadataValue | dg.TextMetadataValue:
    """The first findings, errors first; only those of a severity or a code, if one is given."""
    found = [
        {
            "severity": RULES[one.code].severity,
            "file": file.file,
            "line": one.line,
            "path": one.path,
            "code": one.code,
            "message": one.message,
            "what to do": one.hint,
        }
        for file in report.files
        for one in file.findings
        if severity in ("", RULES[one.code].severity) and code in ("", one.code)
    ]
    if not found:
        return dg.MetadataValue.text("none")
    found.sort(key=lambda one: one["severity"])
    return table(found[:SHOWN], ["line", "code", "message", "path", "what to do", "severity", "file"])


def codes(counts: Mapping[str, int]) -> dg.TableMetadataValue:
    """Findings counted by code."""
    rows = [
        {"code": code, "count": count, "severity": RULES[code].severity, "meaning": RULES[code].summary}
        for code, count in sorted(counts.items())
    ]
    return table(rows, ["code", "count", "severity", "meaning"])


def objections(found: Sequence[Objection]) -> dg.TableMetadataValue:
    """Why a dataset may not leave."""
    rows = [
        {"file": one.file, "line": one.finding.line, "code": one.finding.code, "message": one.finding.message,
         "what to do": one.finding.hint}
        for one in found[:SHOWN]
    ]  # fmt: skip
    return table(rows, ["file", "line", "code", "message", "what to do"])


def path(where: Path) -> dg.PathMetadataValue:
    """A file or a directory of this machine."""
    return dg.MetadataValue.path(str(where))


def paths(files: Sequence[Path]) -> dg.MarkdownMetadataValue:
    """Some files of this machine."""
    return dg.MetadataValue.md("\n".join(f"- `{file}`" for file in files))


def error_lines(report: Report) -> str:
    """Where the errors are, as Markdown: the lines of each file."""
    lines = []
    for file in report.files:
        numbers = sorted({one.line for one in file.findings if RULES[one.code].severity == "error"})
        if numbers:
            shown = ", ".join(map(str, numbers[:100])) + (f" and {len(numbers) - 100:,} more" * (len(numbers) > 100))
            lines.append(f"- `{file.file}`: " + ("the file as a whole" if numbers == [0] else f"line {shown}"))
    return "\n".join(lines)


def statistics(documents: Mapping[str, Mapping[str, Any]]) -> dg.TableMetadataValue:
    """Statistics documents by split, as one table: what was measured by row, splits by column."""
    flat = {split: dict(_flatten(document)) for split, document in documents.items()}
    names = list(dict.fromkeys(name for values in flat.values() for name in values))
    rows = [{"measure": name, **{split: _number(values.get(name)) for split, values in flat.items()}} for name in names]
    return table(rows, ["measure", *flat])


def _flatten(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        elif value is not None and not isinstance(value, list):
            yield f"{prefix}{key}", value


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if value % 1 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def first_row(path: Path) -> dict[str, Any] | None:
    """The first row of a split."""
    with open(path, "rb") as stream:
        line = stream.readline(4_000_000)
    try:
        return json.loads(line)
    except ValueError:
        return None


def conversation(row: Mapping[str, Any], longest: int = 2000) -> str:
    """A row as Markdown: the messages and calls of its input, then what its verifier reads. Nothing in it can become markup."""
    params = row.get("responses_create_params", {})
    items = params.get("input", [])
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    parts = []
    if params.get("instructions"):
        parts.append(_quoted("instructions", params["instructions"], longest))
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            content = item.get("content", "")
            if not isinstance(content, str):
                content = "\n".join(part.get("text") or f"[{part.get('type')}]" for part in content)
            parts.append(_quoted(item.get("role", "?"), content, longest))
        elif kind == "function_call":
            parts.append(_quoted(f"call of {item.get('name')}", str(item.get("arguments", "")), longest))
        else:
            parts.append(_quoted(kind, _text(item.get("output", item)), longest))
    tools = [tool.get("name", tool.get("type")) for tool in params.get("tools") or []]
    if tools:
        parts.append(_quoted("tools", ", ".join(map(str, tools)), longest))
    extra = {key: value for key, value in row.items() if key != "responses_create_params"}
    if extra:
        parts.append(_quoted("for the verifier", json.dumps(extra, indent=2, ensure_ascii=False), longest))
    return "\n\n".join(parts)


def _quoted(title: str, text: str, longest: int) -> str:
    """A title, and the text in a fence longer than any that it holds."""
    if len(text) > longest:
        text = f"{text[:longest]}\n… ({len(text) - longest:,} more characters)"
    fence = "```"
    while fence in text:
        fence += "`"
    return f"**{title.replace('*', '').replace('`', '')}**\n\n{fence}text\n{text}\n{fence}"


def histogram(
    values: Mapping[str, Sequence[int]], unit: str, of: str = "rows", bins: int = 40, limits: tuple[int, int] | None = None
) -> str:
    """Markdown with a picture (SVG) of how values are distributed: one line of bars for each name.

    Without `limits` it goes from the lowest to the 99.5th percentile; what is beyond is in the last bar.
    """
    values = {name: sorted(numbers) for name, numbers in values.items() if len(numbers)}
    if not values:
        return f"no {unit} were counted"
    if limits:
        low, high = limits[0], limits[1] + 1
    else:
        low = min(numbers[0] for numbers in values.values())
        # So that one long row does not flatten the rest.
        high = max(numbers[int(0.995 * (len(numbers) - 1))] for numbers in values.values()) + 1
    width, height, gap = 760, 150, 46
    shapes = []
    for place, (name, numbers) in enumerate(values.items()):
        counts = [0] * bins
        for number in numbers:
            counts[min(bins - 1, int((number - low) * bins / max(1, high - low)))] += 1
        top, base = place * (height + gap) + 26, place * (height + gap) + 26 + height
        title = f"{name}: {len(numbers):,} {of}, median {numbers[len(numbers) // 2]:,}, most {numbers[-1]:,} {unit}"
        shapes.append(f'<text x="8" y="{top - 9}" font-weight="bold">{html.escape(title)}</text>')
        for index, count in enumerate(counts):
            tall = max(count * (height - 14) / max(counts), 1 if count else 0)
            left = 8 + index * (width - 16) / bins
            shapes.append(
                f'<rect x="{left:.1f}" y="{base - tall:.1f}" width="{(width - 16) / bins - 1.5:.1f}" height="{tall:.1f}" fill="#4f43dd"/>'
            )
        shapes.append(f'<path d="M8 {base}H{width - 8}" stroke="#888"/>')
        for step in range(5):
            anchor = ("start", "middle", "middle", "middle", "end")[step]
            mark = f"{low + ((limits[1] if limits else high) - low) * step // 4:,}"
            mark += "+" if step == 4 and numbers[-1] >= high else ""
            shapes.append(f'<text x="{8 + step * (width - 16) / 4:.0f}" y="{base + 14}" text-anchor="{anchor}">{mark}</text>')
    size = len(values) * (height + gap)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {size}" width="{width}" height="{size}" font-family="sans-serif"'
        f' font-size="12"><rect width="100%" height="100%" fill="#fff"/>{"".join(shapes)}</svg>'
    )
    return f"![{unit}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def split_schema(environment: Environment) -> dg.TableSchema:
    """The columns of a split's rows."""
    return dg.TableSchema(
        [
            dg.TableColumn("responses_create_params", "object", "The request: a body of the Responses API."),
            *(dg.TableColumn(one.path, one.type, one.description) for one in environment.fields),
            dg.TableColumn("agent_ref", "object", "The agent that runs the row, stamped by gymdata."),
        ]
    )
