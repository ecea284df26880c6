"""`gymdata diff`: two prepared datasets, or revisions of the Hub, side by side."""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path

from gymdata.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("before", "after"):
        parser.add_argument(
            name, metavar=name.upper(), help="a prepared directory, a JSONL file, or OWNER/NAME[@REVISION] on the Hub"
        )
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text")


def run(args: argparse.Namespace) -> int:
    """Print the comparison. Raises UsageError for a side that is nothing, ExternalError if the Hub cannot be read."""
    from gymdata.publish import diff

    with tempfile.TemporaryDirectory(prefix="gymdata-diff-") as folder:
        sides = [side(name, Path(folder, str(index))) for index, name in enumerate((args.before, args.after))]
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


def side(name: str, folder: Path) -> dict[str, Path]:
    """The split files that a name stands for; those of the Hub are fetched into `folder`. Raises UsageError if it is nothing."""
    from gymdata.publish.diff import splits_of

    if Path(name).exists():
        return splits_of(Path(name))
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@(.+))?", name.removeprefix("hf://datasets/"))
    if not match:
        raise UsageError(f"{name}: no such directory or file, and no OWNER/NAME[@REVISION] of the Hub")
    from gymdata.cli.download import credentials
    from gymdata.sources.huggingface import fetch, fetch_statistics

    who = credentials()
    fetched = fetch(match[1], folder, revision=match[2], credentials=who)
    fetch_statistics(match[1], fetched[0].commit, folder, who)
    return {str(one.split): one.path for one in fetched}
