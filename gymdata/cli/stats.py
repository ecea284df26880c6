"""`gymdata stats`: measure the rows of files or environments."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gymdata.engine.local import default_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="*", metavar="PATH|ENV", help="JSONL files (.gz and .zst too), folders, or environments")
    parser.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own; repeatable")
    parser.add_argument(
        "--format",
        choices=["text", "gym", "json"],
        default="text",
        help="gym: the metrics part of NeMo Gym's X_metrics.json, of several files an object by path",
    )
    parser.add_argument(
        "--encoding",
        choices=["o200k_base", "cl100k_base", "none"],
        default="o200k_base",
        help="tokenizer for token counts; none skips them",
    )
    parser.add_argument("--kind", choices=["task", "rollout"], help="what the rows are (default: seen from the first ones)")
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="N", help="processes (default: one per core)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print statistics of the valid rows; 0 also where some rows have errors, which are counted on standard error."""
    from gymdata import validate
    from gymdata.cli.progress import Progress
    from gymdata.errors import UsageError
    from gymdata.statistics.metrics import gym_metrics
    from gymdata.statistics.statistics import render_text, summarise
    from gymdata.statistics.tokens import TokenCounter

    if not args.paths and not args.config:
        raise UsageError("what should be measured?", "give files, folders or environments")
    encoding = None if args.encoding == "none" or args.format == "gym" else args.encoding
    tokenizer = TokenCounter(encoding).tokenizer if encoding else None
    progress = Progress()
    documents: dict[str, Any] = {}
    for target in validate.targets(args.paths, args.config):
        measured = validate.measure(target, kind=args.kind, encoding=encoding, jobs=max(1, args.jobs), on_progress=progress)
        report = measured.report
        progress.clear()
        if report.rows > report.valid:
            bad = f"{report.rows - report.valid:,} of {report.rows:,} rows have errors and are left out"
            print(f"{report.file}: {bad}; see `gymdata validate`", file=sys.stderr)
        elif whole := next((finding for finding in report.findings if finding.code in ("GD100", "GD111", "GD510")), None):
            print(f"{report.file}: {whole.message}", file=sys.stderr)
        if args.format == "gym":
            documents[report.file] = gym_metrics([(measured.columns, 1)])
        else:
            documents[report.file] = summarise(measured.columns, report.rows, tokenizer)
    progress.clear()
    if args.format == "text":
        print("\n\n".join(f"{name}\n{render_text(statistics)}" for name, statistics in documents.items()))
        return 0
    if args.format == "json":
        documents = {name: statistics.model_dump(mode="json") for name, statistics in documents.items()}
    only = next(iter(documents.values())) if len(documents) == 1 else documents
    print(json.dumps(only, indent=4 if args.format == "gym" else 2, ensure_ascii=args.format == "gym"))
    return 0
