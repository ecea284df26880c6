"""`gymdata diff`: two prepared datasets, or revisions of the Hub, side by side."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("before", "after"):
        parser.add_argument(
            name, metavar=name.upper(), help="a prepared directory, a JSONL file, or OWNER/NAME[@REVISION] on the Hub"
        )
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text")


def run(args: argparse.Namespace) -> int:
    """Print the comparison. Raises UsageError for a side that is nothing, ExternalError if the Hub cannot be read."""
    from gymdata.cli.download import credentials
    from gymdata.publish import diff
    from gymdata.publish.sides import split_files

    with tempfile.TemporaryDirectory(prefix="gymdata-diff-") as folder:
        sides = [split_files(name, Path(folder, str(index)), credentials) for index, name in enumerate((args.before, args.after))]
        files = [Path(name).is_file() for name in (args.before, args.after)]
        if all(files):
            # Two files are two states of one split, whatever they are called.
            sides = [{"rows": next(iter(one.values()))} for one in sides]
        found = diff.compare(sides[0], sides[1], (args.before, args.after))
    if args.format == "json":
        print(json.dumps(diff.to_json(found), indent=2))
    else:
        print(
            diff.to_text(found) if args.format == "text" else diff.to_markdown(found),
            end="" if args.format == "markdown" else "\n",
        )
    return 0
