"""`gymdata rollouts export`: finished rollouts in the formats of trainers and other tools."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from gymdata.cli.numbers import number, whole

FORMATS = ("sft", "dpo", "kto", "nemo-rl", "nemo-rl-preference", "trl", "verl", "verifiers", "atif")
"""The keys of gymdata.export.export.FORMATS, which are many imports away."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="finished rollouts (.gz and .zst too); nemo-rl, trl, verl: also rows"
    )
    parser.add_argument("--to", required=True, choices=FORMATS, help="the format; docs/export.md says what each keeps and drops")
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="PATH", help="a .jsonl or .parquet file")
    parser.add_argument(
        "--pick", choices=["all", "best"], default="all", help="of each task all rollouts, or the first with the highest reward"
    )
    parser.add_argument("--min-reward", type=number(-math.inf), metavar="R", help="rewards from R on")
    parser.add_argument("--keep-truncated", action="store_true", help="also answers that were cut off")
    parser.add_argument(
        "--reasoning",
        choices=["tags", "field", "drop"],
        default="tags",
        help="thoughts: <think> tags in the text, the field reasoning_content, or nothing",
    )
    parser.add_argument(
        "--tokens",
        action="store_true",
        help="sft, nemo-rl: the token ids that were sampled in place of texts; verifiers, atif: beside them",
    )
    parser.add_argument(
        "--threshold",
        type=number(-math.inf),
        default=1.0,
        metavar="R",
        help="kto: the reward from which on an answer is good (default: 1)",
    )
    parser.add_argument(
        "--margin",
        type=number(),
        default=0.0,
        metavar="R",
        help="dpo, nemo-rl-preference: by how much the rewards of a pair differ at least",
    )
    parser.add_argument(
        "--max-pairs", type=whole(1), default=1, metavar="N", help="dpo, nemo-rl-preference: pairs of a task (default: 1)"
    )
    parser.add_argument(
        "--max-model-len", type=whole(1), metavar="N", help="verl: the model's context, for each row's response budget"
    )
    parser.add_argument("--agent", default="", metavar="NAME", help="nemo-rl: the agent of rows that name none")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="of the summary")


def run(args: argparse.Namespace) -> int:
    """Write the records and say what became of the rollouts; 1 if there were lines that are none, which are left out."""
    from gymdata.cli.progress import Progress
    from gymdata.export.export import export, to_text
    from gymdata.export.options import Options
    from gymdata.validation.report import FileReport, Report
    from gymdata.validation.reporters import text

    progress = Progress()
    options = Options(
        pick=args.pick,
        min_reward=args.min_reward,
        keep_truncated=args.keep_truncated,
        reasoning=args.reasoning,
        tokens=args.tokens,
        threshold=args.threshold,
        margin=args.margin,
        max_pairs=args.max_pairs,
        max_model_len=args.max_model_len,
        agent=args.agent,
    )
    found = export(args.files, args.to, args.output, options, on_progress=progress)
    progress.clear()
    report = Report(tuple(FileReport(path, 0, 0, list(findings)) for path, findings in found.findings.items()))
    if report.errors:
        print(text.render(report), file=sys.stderr, end="")
    print(json.dumps(found.to_json(), indent=2) if args.format == "json" else to_text(found))
    print(f"{args.to} drops: {found.drops}\nwrote {args.output}", file=sys.stderr)
    return 1 if report.errors else 0
