"""`gymdata rollouts show`: page through trajectories."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from itertools import islice
from pathlib import Path

from gymdata.cli.numbers import whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="finished rollouts (.gz and .zst too)")
    parser.add_argument("--min-reward", type=float, metavar="R", help="rewards from R on")
    parser.add_argument("--max-reward", type=float, metavar="R", help="rewards up to R")
    parser.add_argument("--environment", metavar="NAME", help="of this agent or environment server")
    parser.add_argument("--task", type=int, metavar="N", help="with this _ng_task_index")
    parser.add_argument("--rollout", type=int, metavar="N", help="with this _ng_rollout_index")
    parser.add_argument("--truncated", action="store_true", help="whose response is incomplete")
    parser.add_argument("--limit", type=whole(1), metavar="N", help="the first N of them")
    parser.add_argument("--full", action="store_true", help="fold no long text")


def run(args: argparse.Namespace) -> int:
    """Show the rollouts that match; 1 if none does."""
    from gymdata.rollouts.viewer import Renderer, Wanted, page, trajectories

    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, 120) if terminal else 100
    renderer = Renderer(width, args.full, color=terminal and "NO_COLOR" not in os.environ)
    wanted = Wanted(args.min_reward, args.max_reward, args.environment, args.task, args.rollout, args.truncated)
    shown = 0

    def texts():
        nonlocal shown
        for number, row in islice(trajectories(args.file, wanted), args.limit):
            shown += 1
            yield renderer.render(number, row)

    page(texts())
    if not shown:
        print("no rollout matches", file=sys.stderr)
    return 0 if shown else 1
