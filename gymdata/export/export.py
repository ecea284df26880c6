"""Writes finished rollouts in a format, as JSON Lines or Parquet, whole or not at all, and says why rollouts are not in it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gymdata import atomic
from gymdata.errors import DataError, UsageError
from gymdata.export import atif, dpo, kto, nemo_rl, sft, trl, verifiers, verl
from gymdata.export.options import Options, Tally
from gymdata.export.plain import write_plain
from gymdata.export.source import Rollout, Source, read
from gymdata.validation.findings import Finding


@dataclass(frozen=True, slots=True)
class Format:
    """A format: what makes its records of a task's rollouts, what it drops of them, which options it heeds.

    `answered` says that it is about answers, not tasks alone; `plain` that its readers know no JSON columns.
    """

    records: Callable[[Sequence[Rollout], Options, Tally], Iterator[dict[str, Any]]]
    drops: str
    heeds: tuple[str, ...]
    answered: bool = True
    plain: bool = False


_PICK = ("pick", "min_reward", "keep_truncated")
_PAIRS = ("min_reward", "keep_truncated", "reasoning", "margin", "max_pairs")

FORMATS = {
    "sft": Format(sft.records, sft.DROPS, (*_PICK, "reasoning", "tokens")),
    "dpo": Format(dpo.records, dpo.DROPS, _PAIRS),
    "kto": Format(kto.records, kto.DROPS, (*_PICK, "reasoning", "threshold")),
    "nemo-rl": Format(nemo_rl.records, nemo_rl.DROPS, (*_PICK, "tokens", "agent"), answered=False),
    "nemo-rl-preference": Format(nemo_rl.preferences, nemo_rl.PREFERENCE_DROPS, _PAIRS),
    "verifiers": Format(verifiers.records, verifiers.DROPS, (*_PICK, "reasoning", "tokens")),
    "atif": Format(atif.records, atif.DROPS, (*_PICK, "reasoning", "tokens")),
    "trl": Format(trl.records, trl.DROPS, ("reasoning",), answered=False),
    "verl": Format(verl.records, verl.DROPS, ("reasoning", "max_model_len"), answered=False, plain=True),
}

_TOKEN_COLUMNS = ("input_ids", "labels")
_ALL = Options()


@dataclass(frozen=True, slots=True)
class Exported:
    """What came of it. `removed`: by reason, the rollouts that are in no record; `examples`: the first that was removed for a reason."""

    output: Path
    to: str
    rollouts: int
    records: int
    removed: dict[str, int]
    examples: dict[str, str]
    drops: str
    findings: Mapping[str, Sequence[Finding]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "findings"} | {"output": str(self.output)}


def export(
    paths: Sequence[Path],
    to: str,
    output: Path,
    options: Options = _ALL,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Exported:
    """Write the rollouts of `paths` to `output`, whose suffix says how. What a format drops is in its `drops`.

    Raises UsageError for what cannot be asked, DataError if no record is left, ExternalError if the disk refuses. Nothing is written then.
    """
    form = FORMATS[to]
    if output.suffix not in (".jsonl", ".parquet"):
        raise UsageError(f"{output}: records are written as JSON Lines or Parquet", "name a file that ends in .jsonl or .parquet")
    if output.resolve() in {path.resolve() for path in paths}:
        raise UsageError(f"{output} holds the rollouts themselves, which are never overwritten", "name another --output")
    for option in fields(Options):
        if getattr(options, option.name) != option.default and option.name not in form.heeds:
            able = ", ".join(name for name, one in FORMATS.items() if option.name in one.heeds)
            raise UsageError(f"--{option.name.replace('_', '-')} means nothing to {to}", f"it goes with {able}")
    with atomic.disk_errors(output):
        source = read(paths, answered=form.answered or options.tokens, truncated=options.keep_truncated, on_progress=on_progress)
        tally = Tally(source.removed, sets_template=source.sets_template)
        count = 0
        with atomic.writing(output) as temporary:
            lines = _lines(source, form, options, tally)
            count = (
                _write_parquet(temporary, lines, form.plain) if output.suffix == ".parquet" else _write_lines(temporary, lines)
            )
            if not count:
                raise DataError(
                    f"no record is left of {source.rollouts:,} rollouts:\n{_reasons(tally)}", "ask for less, or see the reasons"
                )
    return Exported(output, to, source.rollouts, count, dict(tally.removed), tally.examples, form.drops, source.findings)


def to_text(found: Exported) -> str:
    """How many rollouts there were, and why some are in no record."""
    counts = [("rollouts", found.rollouts), *((f"  - {reason}", count) for reason, count in found.removed.items())]
    counts.append((f"{found.to} records", found.records))
    width = max(len(name) for name, _ in counts)
    lines = [f"{name:<{width}}  {count:>9,}" for name, count in counts]
    return "\n".join(lines + [f"for one, {example}" for example in found.examples.values()])


def _reasons(tally: Tally) -> str:
    lines = [f"    {count:,} {reason}" for reason, count in tally.removed.items()]
    return "\n".join(lines + [f"    for one, {example}" for example in tally.examples.values()])


def _lines(source: Source, form: Format, options: Options, tally: Tally) -> Iterator[bytes]:
    for task in source.tasks():
        for record in form.records(task, options, tally):
            yield json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _write_lines(path: Path, lines: Iterator[bytes]) -> int:
    count = 0
    with open(path, "wb") as stream:
        for count, line in enumerate(lines, 1):  # noqa: B007 (the last number is how many there are)
            stream.write(line)
    return count


def _write_parquet(path: Path, lines: Iterator[bytes], plain: bool) -> int:
    """Columns of more than plain values are JSON text, marked `arrow.json`: nothing is filled in where two records have different keys."""
    from gymdata.publish.parquet import columns, write_parquet

    with tempfile.TemporaryDirectory(prefix="gymdata-export-") as folder:
        records = Path(folder, "records.jsonl")
        count = _write_lines(records, lines)
        if count and plain:
            write_plain(records, path)
        elif count:
            try:
                kinds = columns([records])
                kinds |= {key: "int64s" for key in _TOKEN_COLUMNS if key in kinds}
                write_parquet(records, [path], kinds)
            except DataError as error:
                message = error.message.replace(f"{records.name}: row", "record")
                raise DataError(message, f"{error.hint}; a .jsonl file takes the records as they are") from error
    return count
