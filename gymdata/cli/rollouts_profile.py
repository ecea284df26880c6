"""`gymdata rollouts profile`: measure finished rollouts, per task and per run."""

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
        "paths", nargs="+", type=Path, metavar="ROLLOUTS", help="files of finished rollouts, together one run (.gz and .zst too)"
    )
    parser.add_argument(
        "--inputs",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="the rows given out, or NeMo Gym's materialized inputs: shows what is missing (repeatable)",
    )
    parser.add_argument(
        "--num-repeats",
        type=whole(0),
        default=0,
        metavar="N",
        help="rollouts each task was to have, where --inputs does not say it",
    )
    parser.add_argument(
        "--threshold", type=float, default=1.0, metavar="R", help="the reward from which on a rollout has passed (default: 1)"
    )
    parser.add_argument("--k", type=_ks, default=(), metavar="K,K,...", help="the k of pass@k (default: powers of two)")
    parser.add_argument(
        "--answer-key",
        default="extracted_answer",
        metavar="KEY",
        help="where verifiers put the answer they found, for majority@k",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the bootstrap (default: 0)")
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="name the files after this one instead of the (first) ROLLOUTS"
    )
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument(
        "--plot", type=Path, metavar="PATH.svg|.png|.pdf", help="draw the distribution of the tasks' rewards (needs matplotlib)"
    )
    parser.add_argument("--format", choices=["text", "markdown", "json"], default="text")
    parser.add_argument("--jobs", type=whole(0), default=default_jobs(), metavar="N", help="processes (default: one per core)")


def run(args: argparse.Namespace) -> int:
    """Print and write the profile; 1 if there were lines that could not be used, which are reported and left out."""
    from gymdata.cli.progress import Progress
    from gymdata.rollouts.profile import Options, profile, run_of_shard, write
    from gymdata.rollouts.profile_text import to_markdown, to_text
    from gymdata.validation.report import FileReport, Report
    from gymdata.validation.reporters import text

    progress = Progress()
    options = Options(args.threshold, args.k, args.answer_key, args.num_repeats, args.seed)
    found = profile(args.paths, args.inputs, options, jobs=max(1, args.jobs), on_progress=progress)
    progress.clear()
    if args.plot:
        from gymdata.rollouts.plot import plot

        plot(found, args.plot)
    written = (
        []
        if args.no_write
        else write(found, args.output or (args.paths[0] if len(args.paths) == 1 else run_of_shard(args.paths[0])))
    )
    report = Report(tuple(FileReport(path, 0, 0, findings) for path, findings in found.findings.items()))
    if report.errors:
        print(text.render(report), file=sys.stderr, end="")
    if args.format == "json":
        print(json.dumps(found.statistics.model_dump(mode="json"), indent=2))
    else:
        print((to_text if args.format == "text" else to_markdown)(found.statistics))
    for path in [*written, *([args.plot] if args.plot else [])]:
        print(f"wrote {path}", file=sys.stderr)
    return 1 if report.errors else 0


def _ks(text: str) -> tuple[int, ...]:
    try:
        ks = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        ks = (0,)
    if ks[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers such as 1,2,4")
    return ks
