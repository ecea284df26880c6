"""`gymdata rollouts verify`: score stored responses again."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gymdata.cli.numbers import number
from gymdata.cli.rollouts_collect import add_judge_arguments, judge_settings
from gymdata.engine.local import default_jobs

SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("rollouts", type=Path, metavar="ROLLOUTS", help="a file of finished rollouts (.gz and .zst too)")
    parser.add_argument(
        "--env", action="append", default=[], metavar="ENV",
        help="the environment whose verifier scores them (default: the one that has the row's agent); repeatable",
    )  # fmt: skip
    parser.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own; repeatable")
    add_judge_arguments(parser)
    parser.add_argument("--output", "-o", type=Path, metavar="PATH", help="write the rollouts with their new rewards")
    parser.add_argument(
        "--seconds", type=number(above=True), default=30.0, metavar="S", help="what one verification may take (default: 30)"
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="N", help="processes (default: one per core)")


def run(args: argparse.Namespace) -> int:
    """Score again and compare; without --output 1 if a reward is another one now or a rollout could not be scored, else 0."""
    from gymdata.cli.progress import Progress
    from gymdata.environments import registry
    from gymdata.environments.config import load_config
    from gymdata.errors import UsageError
    from gymdata.rollouts.verify import verify

    if not args.rollouts.is_file():
        raise UsageError(f"there is no file {args.rollouts}", "give a file of finished rollouts")
    environments = [registry.load(name, (), args.config) for name in args.env] or (
        [load_config(args.config)] if args.config else [registry.load(name) for name in registry.names()]
    )
    progress, done, total = Progress(), 0, args.rollouts.stat().st_size

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress(str(args.rollouts), done, total)

    found = verify(
        args.rollouts,
        environments,
        output=args.output,
        jobs=max(1, args.jobs),
        seconds=args.seconds,
        judge=judge_settings(args),
        on_bytes=on_bytes,
    )
    progress.clear()
    if args.format == "json":
        differences = [
            {"line": one.line, "stored": one.stored, "reward": one.reward, "reason": one.reason} for one in found.differences
        ]
        failures = [{"line": line, "kind": failure.kind, "message": failure.message} for line, failure in found.failures]
        told = {"rollouts": found.rollouts, "same": found.same, "differences": differences, "failures": failures}
        print(json.dumps(told, indent=2))
    else:
        print(
            f"{found.rollouts:,} rollouts: {found.same:,} with the same reward, {len(found.differences):,} with another, "
            f"{len(found.failures):,} not scored"
        )
        for one in found.differences[:SHOWN]:
            print(f"{args.rollouts}:{one.line}  {one.stored} -> {one.reward:g}  {one.reason}")
        for line, failure in found.failures[:SHOWN]:
            print(f"{args.rollouts}:{line}  {failure.kind}: {failure.message}")
    if args.output is not None:
        print(f"wrote {args.output}", file=sys.stderr)
        return 0
    return 1 if found.differences or found.failures else 0
