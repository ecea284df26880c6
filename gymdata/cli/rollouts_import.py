"""`gymdata rollouts import`: rollouts that others wrote, for profile, show, select and export."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what another program wrote (.gz and .zst too)")
    parser.add_argument(
        "--from",
        dest="form",
        required=True,
        choices=["gym", "verifiers", "skills"],
        help="NeMo Gym (rollouts), verifiers (results.jsonl, traces.jsonl), NeMo-Skills (output-rs*.jsonl)",
    )
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="PATH", help="the .jsonl file of rollouts to write")
    parser.add_argument("--agent", default="", metavar="NAME", help="verifiers, skills: what to call the environment")
    parser.add_argument(
        "--prompt-key", default="", metavar="KEY", help="skills: the key of the request (default: problem, question, …)"
    )
    parser.add_argument(
        "--reward-key",
        default="",
        metavar="KEY",
        help="verifiers, skills: the key of the reward (default: reward; is_correct, …)",
    )
    parser.add_argument("--skip-invalid", action="store_true", help="leave out records that are no rollouts")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="of the summary")


def run(args: argparse.Namespace) -> int:
    """Import; 1 if records that are no rollouts were left out."""
    from gymdata.errors import UsageError
    from gymdata.rollouts.foreign.read import import_rollouts
    from gymdata.rollouts.foreign.record import Settings

    if args.output.suffix != ".jsonl":
        raise UsageError(f"{args.output}: rollouts are written as plain JSON Lines", "name a file that ends in .jsonl")
    settings = Settings(args.agent, args.prompt_key, args.reward_key)
    found = import_rollouts(args.files, args.form, args.output, settings, args.skip_invalid)
    if args.format == "json":
        print(json.dumps(dataclasses.asdict(found) | {"output": str(args.output)}, indent=2))
    else:
        tasks = f" of {found.tasks:,} tasks" if found.tasks else ""
        print(f"{found.rollouts:,} rollouts{tasks} and {found.failures:,} failures of {found.records:,} records")
    for problem in found.problems:
        print(f"left out: {problem}", file=sys.stderr)
    for note, count in found.notes.items():
        print(f"note: {count:,} times: {note}", file=sys.stderr)
    print(f"wrote {args.output}", file=sys.stderr)
    return 1 if found.problems else 0
