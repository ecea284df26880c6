"""`gymdata prepare`: validate, measure and collate the datasets of one or more environments."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.engine.local import LARGE_BYTES, SMALL_BYTES, default_jobs, share_imports
from gymdata.errors import UsageError

if TYPE_CHECKING:
    from gymdata.cli.progress import Progress
    from gymdata.environments.model import Environment
    from gymdata.prepare import Options, Prepared
    from gymdata.validation.report import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_environment_arguments(parser)
    parser.add_argument(
        "--on-invalid",
        choices=["fail", "quarantine"],
        default="fail",
        help="rows with errors: write nothing (default), or leave them out and list them in rejected.jsonl",
    )
    parser.add_argument(
        "--stamp",
        choices=["agent_ref", "task_source", "both"],
        default="agent_ref",
        help="how rows name their agent: agent_ref (NeMo Gym up to 0.5, trainers; default), task_source (from 0.6)",
    )
    parser.add_argument(
        "--validation-fraction",
        type=float,
        default=0.0,
        metavar="F",
        help="move this share of the train rows, chosen by their prompt, to the validation split",
    )
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="shuffle the train split")
    parser.add_argument(
        "--overwrite-metrics",
        action="store_true",
        help="replace the metrics file beside a source file if it does not fit the rows",
    )
    parser.add_argument(
        "--gold",
        action="store_true",
        help="also run each row's verifier on the row's own answer and on a wrong one; refused answers stop the run",
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")  # fmt: skip


def add_environment_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what names environments and says how to read them; shared by the commands that do so."""
    parser.add_argument(
        "environments",
        nargs="*",
        metavar="ENV",
        help="an environment's name (see `gymdata envs list`) or YAML; also KEY=VALUE overrides of the configuration",
    )
    parser.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own; repeatable")
    parser.add_argument(
        "--mode",
        choices=["train_preparation", "example_validation"],
        default="train_preparation",
        help="prepare train and validation datasets (default), or example datasets",
    )
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="default: data/ENV")
    parser.add_argument(
        "--download",
        action="store_true",
        help="fetch missing datasets; for a built-in environment, the public"
        " dataset that it stands for instead of the bundled rows",
    )
    parser.add_argument(
        "--data-source",
        choices=["huggingface", "gitlab"],
        help="where to fetch from, if a dataset names both",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="read only the first N rows of each dataset")
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="N", help="processes (default: one per core)")
    parser.add_argument("--encoding", choices=["o200k_base", "cl100k_base", "none"], default="o200k_base",
                        help="tokenizer for token counts; none skips them")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Prepare; 0 done, 1 the data is at fault."""
    return run_prepare(args, load_environments(args))


def run_prepare(args: argparse.Namespace, environments: list[Environment], measure: bool = True) -> int:
    """Prepare `environments` as the arguments say; without `measure`, write no statistics and no metrics."""
    size = sum(_size(dataset.path) for environment in environments for dataset in environment.datasets())
    if args.jobs > 1 and size >= SMALL_BYTES:
        vocabulary = ("gymdata.statistics.vocabulary",) if args.encoding == "o200k_base" and measure else ()
        share_imports("gymdata.scan", *vocabulary, now=size < LARGE_BYTES)

    from gymdata.cli.download import describe
    from gymdata.cli.progress import Progress
    from gymdata.prepare import InvalidRows, Options, prepare

    progress = Progress()
    directory = args.output_dir or Path("data", "+".join(environment.name for environment in environments))
    options = Options(
        mode=args.mode,
        on_invalid=args.on_invalid,
        stamp=args.stamp,
        validation_fraction=_fraction(args.validation_fraction),
        shuffle=args.shuffle,
        limit=_positive(args.limit, "--limit"),
        encoding=None if args.encoding == "none" or not measure else args.encoding,
        measure=measure,
    )
    if not args.download:
        tell_bundled(environments)
    gold = getattr(args, "gold", False)  # a command of its own shares this, without the option

    def accept(report: Report) -> None:
        if gold:
            _with_gold(report, environments, options, args, progress)

    try:
        prepared = prepare(
            environments,
            directory,
            options,
            download=args.download,
            data_source=args.data_source,
            overwrite_metrics=args.overwrite_metrics,
            jobs=_positive(args.jobs, "--jobs") or 1,
            accept=accept,
            on_progress=progress,
            on_wait=lambda: print(f"another run is writing to {directory}; waiting for it", file=sys.stderr),
            on_fetched=lambda fetched: print(f"fetched {fetched.path}: {describe(fetched)}", file=sys.stderr),
        )
    except InvalidRows as error:
        progress.clear()
        print_report(error.report, args.format)
        print(f"gymdata: error: {error}", file=sys.stderr)
        return error.exit_code
    if prepared.cached:
        accept(prepared.report)
    progress.clear()
    if args.format == "json":
        sys.stdout.write(prepared.manifest.to_json().decode())
    else:
        print_report(prepared.report, "text")
        print(summary(prepared), file=sys.stderr)
    return 0


def _with_gold(
    report: Report, environments: list[Environment], options: Options, args: argparse.Namespace, progress: Progress
) -> None:
    """Run the gold check on the files that were read, and print what it found. Raises DataError if a right answer is refused."""
    from gymdata.errors import DataError
    from gymdata.prepare import source_files
    from gymdata.validate import Target, with_gold
    from gymdata.validation.report import Report

    datasets = source_files(environments, options, download=args.download)
    targets = [Target(one.path, one.jsonl_fpath, environment=of, instance=one.instance) for of, one in datasets]
    files, rows, unanswered = with_gold(targets, report.files, jobs=args.jobs, on_progress=progress)
    checked = Report(tuple(files))
    progress.clear()
    print(f"gold check: {rows:,} rows; {unanswered:,} of them have no answer of their own to try", file=sys.stderr)
    if (refused := checked.errors - report.errors) > 0:
        print_report(checked, args.format)
        raise DataError(
            f"the gold check refuses {refused:,} rows: no response to them could be right; nothing was written",
            "correct their answers, or remove the rows",
        )
    if checked.warnings > report.warnings:
        print_report(checked, "text")


def load_environments(args: argparse.Namespace) -> list[Environment]:
    """The environments that the arguments name; `--config` alone makes one, beside names it is merged on top of each."""
    from gymdata.environments import registry
    from gymdata.environments.config import load_config

    names = [word for word in args.environments if "=" not in word]
    overrides = [word for word in args.environments if "=" in word]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{twice} is named twice", "name it once; `num_repeats` of its datasets repeats rows")
    if not names:
        if not args.config:
            raise UsageError(
                f"which environment? There are {', '.join(registry.names())}",
                "name one, or give a NeMo Gym YAML of your own with --config PATH",
            )
        return [load_config(args.config, overrides)]
    return [registry.load(name, overrides, args.config) for name in names]


def tell_bundled(environments: list[Environment]) -> None:
    """Say which environments run on the rows that come with gymdata."""
    from gymdata.environments import registry

    bundled = registry.fixtures()
    names = [
        environment.name
        for environment in environments
        if environment.builtin and any(dataset.path.is_relative_to(bundled) for dataset in environment.datasets())
    ]
    if names:
        print(f"{', '.join(names)}: using the small bundled rows; --download takes the public dataset", file=sys.stderr)


def print_report(report: Report, form: str, max_findings: int | None = None) -> None:
    """Print the findings: JSON on standard output, or text on standard error, so that standard output stays clean."""
    from gymdata.validation.reporters import pieces, render

    if form == "json":
        sys.stdout.writelines(pieces(report, "json"))
    elif report.errors or report.warnings:
        print(render(report, "text", max_findings=max_findings, color=sys.stderr.isatty()), file=sys.stderr)


def summary(prepared: Prepared) -> str:
    """What was made, as a table: rows and bytes of each split, and where the files are."""
    manifest = prepared.manifest
    if prepared.cached:
        return f"{prepared.directory}: up to date (inputs, options and version unchanged)"
    lines = []
    for output in manifest.outputs:
        if output.rows is not None:
            lines.append(f"  {output.path:<18}{output.rows:>12,} rows {output.bytes / 1e6:>12,.2f} MB")
    read, valid = sum(entry.rows for entry in manifest.inputs), sum(entry.valid for entry in manifest.inputs)
    lines.insert(0, f"{prepared.directory}: {valid:,} of {read:,} rows valid, {manifest.seconds:.1f} s")
    for check in prepared.sidecars:
        if check.status != "up to date":
            lines.append(f"  {check.path}: {check.status}")
    codes = ", ".join(f"{code} {count:,}" for code, count in manifest.findings.items())
    if codes:
        lines.append(f"  warnings: {codes}   (gymdata explain CODE)")
    others = [output.path for output in manifest.outputs if output.rows is None]
    lines.append(f"  {', '.join([*others, 'manifest.json'])}")
    return "\n".join(lines)


def _fraction(value: float) -> float:
    if not 0 <= value < 1:
        raise UsageError(f"--validation-fraction {value}: must be at least 0 and less than 1")
    return value


def _positive(value: int | None, name: str) -> int | None:
    if value is not None and value < 1:
        raise UsageError(f"{name} {value}: must be at least 1")
    return value


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
