"""`gymdata validate`: check rows, and say what is wrong, where, why and what to do."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gymdata.engine.local import default_jobs

if TYPE_CHECKING:
    from gymdata.cli.progress import Progress
    from gymdata.validate import Target
    from gymdata.validation.report import FileReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="*", metavar="PATH|ENV", help="JSONL files (.gz and .zst too), folders, or environments")
    parser.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own; repeatable")
    parser.add_argument("--format", choices=["text", "json", "sarif", "github"], default="text")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the report to a file instead of standard output")
    parser.add_argument("--kind", choices=["task", "rollout"], help="what the rows are (default: seen from the first ones)")
    parser.add_argument("--max-findings", type=int, metavar="N", help="report at most N findings")
    parser.add_argument(
        "--changed", metavar="REF", help="only data files that differ from this git revision, and their metrics files"
    )
    parser.add_argument("--sidecars", action="store_true", help="also compare the metrics file beside each data file")
    parser.add_argument(
        "--fix", action="store_true", help="write a repaired copy of each file that needs one, and show the difference"
    )
    parser.add_argument(
        "--gold", action="store_true", help="also run each row's verifier on the row's own answer and on a wrong one"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="ENV",
        help="with --gold: the environment of rows that name no agent; repeatable",
    )
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="N", help="processes (default: one per core)")


def run(args: argparse.Namespace) -> int:
    """Validate; 0 no error, 1 errors."""
    from gymdata import validate
    from gymdata.atomic import disk_errors, writing
    from gymdata.cli.progress import Progress
    from gymdata.errors import UsageError
    from gymdata.validation.report import Report
    from gymdata.validation.reporters import pieces, render
    from gymdata.validation.reporters.text import summary

    if args.changed:
        from gymdata.validation.changed import changed_files

        found = [validate.Target(path) for path in changed_files(args.changed, [Path(path) for path in args.paths])]
    else:
        if not args.paths and not args.config:
            raise UsageError("what should be validated?", "give files, folders or environments, or --changed REF")
        found = validate.targets(args.paths, args.config)
    progress = Progress()
    jobs = max(1, args.jobs)

    def measure(target: Target) -> FileReport:
        sidecar = args.sidecars or bool(args.changed)
        return validate.measure(target, kind=args.kind, sidecar=sidecar, jobs=jobs, on_progress=progress).report

    if args.fix:
        return _fix(found, measure, progress)
    reports = list(map(measure, found))
    if args.gold:
        reports, checked, unanswered = validate.with_gold(found, reports, args.env, args.config, jobs=jobs, on_progress=progress)
    report = Report(tuple(reports))
    progress.clear()
    color = args.output is None and _color(sys.stdout)
    text = pieces(report, args.format, max_findings=args.max_findings, color=color)
    if args.output:
        with writing(args.output) as temporary, open(temporary, "w", encoding="utf-8") as stream:
            stream.writelines(text)
    else:
        sys.stdout.writelines(text)
    if args.gold:
        print(f"gold check: {checked:,} rows; {unanswered:,} of them have no answer of their own to try", file=sys.stderr)
    if args.format == "text":
        print(summary(report, color=_color(sys.stderr)), file=sys.stderr)
    if args.format == "github" and (page := os.environ.get("GITHUB_STEP_SUMMARY")):
        with disk_errors(Path(page)), open(page, "a", encoding="utf-8") as stream:
            stream.write(render(report, "markdown"))
    return 1 if report.errors else 0


def _fix(found: list[Target], measure: Callable[[Target], FileReport], progress: Progress) -> int:
    """Write a repaired copy of each file that mechanical repairs help; 1 if errors remain."""
    from gymdata.validate import Target
    from gymdata.validation.repair import repair_file
    from gymdata.validation.report import Report

    remaining = 0
    for target in found:
        before = measure(target)
        progress.clear()
        repaired = repair_file(target.path, lines={finding.line for finding in before.findings})
        if repaired.out is None:
            remaining += Report((before,)).errors
            print(f"{before.file}: nothing that can be repaired mechanically", file=sys.stderr)
            continue
        sys.stdout.write(repaired.diff)
        errors = Report((measure(Target(repaired.out)),)).errors
        progress.clear()
        remaining += errors
        done = ", ".join(f"{name} ({count:,})" for name, count in repaired.repairs.most_common())
        print(f"{repaired.out}: {repaired.changed:,} lines repaired: {done}; {errors:,} errors left", file=sys.stderr)
    return 1 if remaining else 0


def _color(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")
