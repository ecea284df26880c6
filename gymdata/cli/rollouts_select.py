"""`gymdata rollouts select`: choose tasks by how often they were solved."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gymdata.cli.numbers import whole
from gymdata.engine.local import default_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "datasets", nargs="+", type=Path, metavar="DATASET", help="the rows that the tasks were made of (.gz and .zst too)"
    )
    parser.add_argument(
        "--profile",
        type=Path,
        required=True,
        metavar="PATH",
        help="rollouts that were profiled, their <stem>_task_statistics.jsonl, or NeMo Gym's <stem>_reward_profiling.jsonl",
    )
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="PATH", help="where the chosen rows go")
    parser.add_argument(
        "--measure", choices=["pass_rate", "mean_reward"], default="pass_rate", help="what counts as the pass rate"
    )
    rates = {"--min-pass-rate": "keep tasks solved at least so often", "--max-pass-rate": "at most so often (0 to 1)"}
    others = {
        "--min-std": "standard deviation of a task's rewards, at least",
        "--max-std": "at most",
        "--min-output-tokens": "mean tokens of a task's responses, at least",
        "--max-output-tokens": "at most",
        "--max-truncated": "share of a task's responses that are truncated, at most",
    }
    for name, text in (rates | others).items():
        parser.add_argument(name, type=float, metavar="X", help=text)
    parser.add_argument(
        "--min-rollouts", type=whole(0), default=1, metavar="N", help="keep tasks with at least so many scored rollouts"
    )
    parser.add_argument("--keep-unmeasured", action="store_true", help="keep rows of which there is no rollout")
    parser.add_argument("--environment", metavar="NAME", help="use what was measured in this environment")
    parser.add_argument(
        "--order", choices=["source", "easy-first", "hard-first"], default="source", help="the order of the rows: a curriculum"
    )
    parser.add_argument("--limit", type=whole(1), metavar="N", help="the first N rows in that order")
    parser.add_argument(
        "--weight", action="store_true", help="write a `weight` into each row, highest where half of the rollouts pass"
    )
    parser.add_argument("--no-pass-rate", action="store_true", help="do not write `pass_rate` into the rows")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="N", help="processes (default: one per core)")


def run(args: argparse.Namespace) -> int:
    """Write the chosen rows and say what each rule removed; 1 if there were rows that are not valid, which are left out."""
    from gymdata.cli.progress import Progress
    from gymdata.rollouts.select import Rules, select, to_text
    from gymdata.validation.report import FileReport, Report
    from gymdata.validation.reporters import text

    progress = Progress()
    rules = Rules(
        args.measure,
        args.min_pass_rate,
        args.max_pass_rate,
        args.min_std,
        args.max_std,
        args.min_output_tokens,
        args.max_output_tokens,
        args.max_truncated,
        args.min_rollouts,
        args.keep_unmeasured,
    )
    found = select(
        args.datasets,
        args.profile,
        args.output,
        rules,
        order=args.order,
        weight=args.weight,
        limit=args.limit,
        write_pass_rate=not args.no_pass_rate,
        environment=args.environment,
        jobs=max(1, args.jobs),
        on_progress=progress,
    )
    progress.clear()
    report = Report(tuple(FileReport(path, 0, 0, findings) for path, findings in found.findings.items()))
    if report.errors:
        print(text.render(report), file=sys.stderr, end="")
    print(json.dumps(found.to_json(), indent=2) if args.format == "json" else to_text(found))
    print(f"wrote {args.output}", file=sys.stderr)
    return 1 if report.errors else 0
