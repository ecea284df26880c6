"""The dataset card: what the Hub, `datasets` and a reader need to know, written around whatever maintainers wrote themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymdata.environments import licenses
from gymdata.errors import DataError
from gymdata.publish.parquet import Kind

BEGIN = "<!-- gymdata:begin (written by `gymdata publish`; what stands outside these two lines is yours and stays) -->"
END = "<!-- gymdata:end -->"
TAGS = ("rl-environment", "nemo-gym", "gymdata")
EXAMPLE_CHARACTERS = 4000

_FRONT = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_BLOCK = re.compile(r"^<!-- gymdata:begin[^\n]*-->$.*?^<!-- gymdata:end -->$\n?", re.DOTALL | re.MULTILINE)
_STATISTICS = ("Average", "Min", "Max", "Standard deviation")
_SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
)


@dataclass(frozen=True)
class Origin:
    """How the rows of a split came to be; kept in the card's YAML, so that it outlives the publishing of other splits."""

    version: str
    manifest: str
    """Fingerprint: digest of version, options, configuration and inputs."""
    inputs: tuple[tuple[str, str], ...]
    """File name and sha256."""
    licenses: tuple[str, ...]
    """As the configuration names them."""


@dataclass(frozen=True)
class SplitFacts:
    """What the card says of one split."""

    name: str
    rows: int
    jsonl: str
    """Path in the repository, "" if the split has no JSONL there."""
    tables: tuple[str, ...]
    """Paths of its Parquet files."""
    tables_sha256: str = ""
    """Digest of their digests; ties the JSONL to them."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """NeMo Gym's statistics."""
    statistics: Mapping[str, Any] = field(default_factory=dict)
    """Ours."""
    origin: Origin | None = None
    """None for rows that gymdata did not make."""


@dataclass(frozen=True)
class Facts:
    """What the card says; everything in it is determined by the rows and the configuration, so equal rows make an equal card."""

    repo_id: str
    environments: tuple[str, ...]
    description: str
    splits: tuple[SplitFacts, ...]
    columns: Mapping[str, Kind]
    example: bytes
    """One row."""
    languages: tuple[str, ...] = ()


def render(facts: Facts, existing: str = "") -> str:
    """The card; of an `existing` one stays what is not ours: other YAML keys, configurations, tags, the text around our block.

    Raises DataError if the existing card's YAML cannot be read.
    """
    import yaml

    front, text = _parts(existing)
    header = yaml.safe_dump(_header(facts, front), sort_keys=False, allow_unicode=True, width=10**6)
    block = f"{BEGIN}\n{_body(facts, _licenses(facts, front))}{END}\n"
    if _BLOCK.search(text):
        text = _BLOCK.sub(lambda _: block, text, count=1)
    elif text.strip():
        text = text.rstrip("\n") + "\n\n" + block
    else:
        text = f"\n# {facts.repo_id.split('/')[-1]}\n\n{block}"
    return f"---\n{header}---\n{text}"


def origin_of(card: Mapping[str, Any], split: str) -> Origin | None:
    """What the YAML of a card says of how a split came to be."""
    record = ((card.get("gymdata") or {}).get("rows") or {}).get(split) or {}
    try:
        inputs = tuple((str(one["name"]), str(one["sha256"])) for one in record["inputs"])
        return Origin(str(record["version"]), str(record["manifest"]), inputs, tuple(map(str, record["licenses"])))
    except (KeyError, TypeError, AttributeError):
        return None


def own_block(card: str) -> str:
    """The part of a card between our two lines, "" if there is none."""
    found = _BLOCK.search(card)
    return found[0] if found else ""


def _parts(card: str) -> tuple[dict[str, Any], str]:
    import yaml

    match = _FRONT.match(card)
    if not match:
        return {}, card
    try:
        front = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        hint = "mend the card on the Hub first, or publish to another repository"
        raise DataError(f"the YAML of the card that is there cannot be read: {str(error).splitlines()[0]}", hint) from error
    return front if isinstance(front, dict) else {}, card[match.end() :]


def _header(facts: Facts, front: Mapping[str, Any]) -> dict[str, Any]:
    header = dict(front)
    named = _licenses(facts, front)
    identifiers = list(dict.fromkeys(named.values()))
    header["license"] = identifiers[0] if len(identifiers) == 1 else identifiers
    header.pop("license_name", None)
    if others := [name for name, identifier in named.items() if identifier == "other"]:
        header["license_name"] = re.sub(r"[^a-z0-9]+", "-", others[0].lower()).strip("-")
    if facts.languages or "language" not in header:
        header["language"] = list(facts.languages or ("en",))
    header["tags"] = list(dict.fromkeys([*(header.get("tags") or []), *TAGS]))
    rows = sum(split.rows for split in facts.splits)
    header["size_categories"] = [next((name for limit, name in _SIZES if rows < limit), "100M<n<1B")]
    own = {
        "config_name": "default",
        "data_files": [{"split": one.name, "path": f"data/{one.name}-*-of-*.parquet"} for one in facts.splits],
    }
    others = [
        one for one in header.get("configs") or [] if isinstance(one, dict) and one.get("config_name", "default") != "default"
    ]
    header["configs"] = [own, *others]
    types = {"json": "json", "string": "string", "int64": "int64", "float64": "float64", "bool": "bool"}
    info = {"config_name": "default", "features": [{"name": name, "dtype": types[kind]} for name, kind in facts.columns.items()]}
    kept = header.get("dataset_info") or []
    kept = [kept] if isinstance(kept, dict) else kept
    kept = [one for one in kept if isinstance(one, dict) and one.get("config_name", "default") != "default"]
    header["dataset_info"] = [info, *kept] if kept else info
    header["gymdata"] = {"rows": {one.name: _record(one) for one in facts.splits if one.jsonl or one.origin}}
    return header


def _licenses(facts: Facts, front: Mapping[str, Any]) -> dict[str, str]:
    """The Hub's identifiers of the licenses, by their names; of splits that others made, those that the card has."""
    found = {name: licenses.hub(name) for split in facts.splits if split.origin for name in split.origin.licenses}
    there = front.get("license") or []
    if any(split.origin is None for split in facts.splits):
        for identifier in [there] if isinstance(there, str) else there:
            if identifier not in found.values():
                found[str(front.get("license_name") or identifier) if identifier == "other" else str(identifier)] = str(
                    identifier
                )
    return found


def _record(split: SplitFacts) -> dict[str, Any]:
    record: dict[str, Any] = {"file": split.jsonl, "tables_sha256": split.tables_sha256} if split.jsonl else {}
    if (origin := split.origin) is None:
        return record
    inputs = [{"name": name, "sha256": digest} for name, digest in origin.inputs]
    return record | {
        "version": origin.version, "manifest": origin.manifest, "inputs": inputs, "licenses": list(origin.licenses)
    }  # fmt: skip


def _body(facts: Facts, named: Mapping[str, str]) -> str:
    first = facts.splits[0]
    parts = [f"{facts.description.strip()}\n"] if facts.description.strip() else []
    parts.append(
        f"Rows for reinforcement learning, environment {', '.join(map(_code, facts.environments))}, in NeMo Gym's format: each is one task,"
        " with the request for the model in `responses_create_params` and, beside it, what the verifier needs.\n"
    )
    table = ["| split | rows | JSONL (canonical) | Parquet |", "|---|---:|---|---|"]
    for split in facts.splits:
        more = f" and {len(split.tables) - 1:,} more" if len(split.tables) > 1 else ""
        table.append(f"| {split.name} | {split.rows:,} | {_code(split.jsonl)} | {_code(next(iter(split.tables), ''))}{more} |")
    parts.append("\n".join(table) + "\n")
    parts.append(f"License: {', '.join(map(_plain, named)) or 'none given'}\n")
    if statistics := _statistics(facts.splits):
        parts.append("## Statistics\n\n" + statistics)
    parts.append("## Example\n\n" + _example(facts.example))
    parts.append("## Columns\n\n" + _columns(facts.columns))
    parts.append(
        "## Loading\n\n```python\nfrom datasets import load_dataset\n\n"
        f'rows = load_dataset("{facts.repo_id}", split="{first.name}")\n```\n\n'
        f"```bash\ngymdata download --repo-id {facts.repo_id} --split {first.name} --output {first.name}.jsonl\n```\n\n"
        "The second gives the very bytes that were published. `datasets` shows an absent key as `None`. In JSON columns of the Parquet"
        " files a number may be spelled in another way (`0.60` for `0.6`): as the same double, where `datasets` would misread the first.\n"
    )
    parts.append("## How it was made\n\n" + "\n".join(_made(split) for split in facts.splits))
    return "\n".join(parts)


def _made(split: SplitFacts) -> str:
    if (origin := split.origin) is None:
        return f"{split.name}: the rows that were in the repository before, as they were.\n"
    how = f"validated, measured and collated by gymdata {_plain(origin.version)}, manifest `{_plain(origin.manifest)}`"
    made = [f"- from `{_plain(name)}`, sha256 `{_plain(digest)}`" for name, digest in origin.inputs]
    return f"{split.name}: {how}\n\n" + "\n".join(made) + "\n"


def _statistics(splits: Sequence[SplitFacts]) -> str:
    tables = []
    for split in splits:
        rows = []
        for name, value in split.metrics.items():
            if isinstance(value, Mapping) and value.get("Total # non-null values") == 0:
                continue
            if isinstance(value, Mapping) and all(key in value for key in _STATISTICS):
                numbers = " | ".join("" if value[key] is None else f"{value[key]:,g}" for key in _STATISTICS)
                rows.append(f"| {_plain(name)} | {value.get('Total # non-null values', 0):,g} | {numbers} |")
            elif isinstance(value, Mapping) and "unique_count" in value:
                rows.append(f"| {_plain(name)} (distinct: {value['unique_count']:,}) | {value.get('total_count', 0):,} | | | | |")
        quantiles = ""
        tokens = (split.statistics.get("lengths") or {}).get("tokens") or {}
        if tokens.get("count"):
            encoding = _plain(str((split.statistics.get("tokenizer") or {}).get("encoding", "")))
            numbers = " | ".join("" if tokens[key] is None else f"{tokens[key]:,.6g}" for key in ("mean", "min", "max", "std"))
            rows.append(f"| Tokens of all texts ({encoding}) | {tokens['count']:,} | {numbers} |")
            shown = ", ".join(
                f"{key[1:].lstrip('0')} % up to {tokens[key]:,g}" for key in ("p05", "p25", "p50", "p75", "p95", "p99")
            )
            quantiles = f"\nOf the rows, by tokens: {shown}.\n"
        if rows:
            head = (
                f"### {split.name}\n\n| | values | average | min | max | standard deviation |\n|---|---:|---:|---:|---:|---:|\n"
            )
            tables.append(head + "\n".join(rows) + "\n" + quantiles)
    return "\n".join(tables)


def _example(row: bytes) -> str:
    try:
        text = json.dumps(json.loads(row), indent=2, ensure_ascii=False)
    except ValueError:
        text = row.decode("utf-8", errors="replace")
    if len(text) > EXAMPLE_CHARACTERS:
        text = text[:EXAMPLE_CHARACTERS] + f"\n… ({len(text) - EXAMPLE_CHARACTERS:,} more characters)"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}json\n{text}\n{fence}\n"


def _columns(columns: Mapping[str, Kind]) -> str:
    meaning = {"json": "JSON (any value; an absent key is a null)"}
    lines = ["| column | type |", "|---|---|"]
    return "\n".join(lines + [f"| {_code(name)} | {meaning.get(kind, kind)} |" for name, kind in columns.items()]) + "\n"


def _code(text: str) -> str:
    return f"`{_plain(text)}`" if text else ""


def _plain(text: str) -> str:
    """Text that cannot break out of a table cell or a line of code."""
    return re.sub(r"[`|\r\n<>]", " ", text)
