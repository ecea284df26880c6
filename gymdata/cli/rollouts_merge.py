"""`gymdata rollouts merge`: one file of the shards of a run, and what is missing in it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="the run's --output; its shards lie beside it")
    parser.add_argument("inputs", nargs="*", type=Path, metavar="ROLLOUTS", help="merge these files instead of the run's shards")
    parser.add_argument("--format", choices=["text", "json"], default="text")


def run(args: argparse.Namespace) -> int:
    """Merge; 0 also where rollouts are missing, which the report says."""
    from gymdata.rollouts.merge import merge

    merged = merge(args.output, args.inputs)
    if args.format == "json":
        told = {**dataclasses.asdict(merged), "output": str(merged.output), "missing": merged.missing}
        print(json.dumps(told, indent=2))
        return 0
    coverage = (
        f" of {merged.expected_rollouts:,} ({merged.rollouts / merged.expected_rollouts:.1%})" if merged.expected_rollouts else ""
    )
    tasks = f" of {merged.expected_tasks:,}" if merged.expected_tasks else ""
    print(f"{merged.rollouts:,}{coverage} rollouts of {merged.tasks:,}{tasks} tasks, from {merged.files} files")
    if merged.missing:
        failed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(merged.failed.items()))
        print(f"{merged.missing:,} are missing" + (f"; of these have failed: {failed}" if failed else ""))
    if merged.repeated:
        print(
            f"{merged.repeated:,} stood in more than one file ({merged.differing:,} with different content: the first was kept)"
        )
    if merged.unreadable:
        print(f"{merged.unreadable:,} lines were no rollouts and were left out")
    print(f"wrote {merged.output}", file=sys.stderr)
    return 0
