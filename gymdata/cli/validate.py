"""`gymdata validate`: check rows, and say what is wrong, where, why and what to do."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gymdata.engine.local import default_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="*", metavar="PATH|ENV", help="JSONL files (.gz and .zst too), folders, or environments")
    parser.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own; repeatable")
    parser.add_argument("--format", choices=["text", "json", "sarif", "github"], default="text")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the report to a file instead of standard output")
    parser.add_argument("--kind", choices=["task", "rollout"], help="what the rows are (default: seen from the first ones)")
    parser.add_argument("--max-findings", type=int, metavar="N", help="report at most N findings")
    parser.add_argument("--changed", metavar="REF", help="only data files that differ from this git revision, and their metrics files")
    parser.add_argument("--sidecars", action="store_true", help="also compare the metrics file beside each data file")
    parser.add_argument("--fix", action="store_true", help="write a repaired copy of each file that needs one, and show the difference")
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="N", help="processes (default: one per core)")


def run(args: argparse.Namespace) -> int:
    """Validate; 0 no error, 1 errors."""
    from gymdata import validate
    from gymdata.atomic import write_bytes
    from gymdata.cli.progress import Progress
    from gymdata.errors import UsageError
    from gymdata.validation.report import Report
    from gymdata.validation.reporters import render

    if args.changed:
        from gymdata.validation.changed import changed_files

        found = [validate.Target(path) for path in changed_files(args.changed, [Path(path) for path in args.paths])]
    else:
        if not args.paths and not args.config:
            raise UsageError("what should be validated?", "give files, folders or environments, or --changed REF")
        found = validate.targets(args.paths, args.config)
    if args.fix:
        return _fix(found)
    progress = Progress()
    measured = [
        validate.measure(
            target, kind=args.kind, sidecar=args.sidecars or bool(args.changed), jobs=max(1, args.jobs), on_progress=progress
        )
        for target in found
    ]
    progress.clear()
    report = Report(tuple(one.report for one in measured))
    text = render(report, args.format, max_findings=args.max_findings, color=args.output is None and _color())
    if args.output:
        write_bytes(args.output, text.encode())
    else:
        sys.stdout.write(text)
    if args.format == "github" and (summary := os.environ.get("GITHUB_STEP_SUMMARY")):
        with open(summary, "a", encoding="utf-8") as stream:
            stream.write(render(report, "markdown"))
    return 1 if report.errors else 0


def _color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
