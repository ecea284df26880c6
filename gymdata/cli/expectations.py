"""`gymdata expectations`: what a prepared dataset should be like, run and drafted."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.errors import UsageError

if TYPE_CHECKING:
    from gymdata.environments.model import Environment
    from gymdata.statistics.expectations import Outcome

SHOWN = 10
"""Places printed of each expectation; the JSON has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="run|draft", required=True)
    run = actions.add_parser("run", help="check a prepared dataset against the suite of its environment")
    draft = actions.add_parser("draft", help="propose a suite from a prepared dataset that is good")
    for action in (run, draft):
        action.add_argument(
            "target", metavar="ENV|DIR", help="an environment that was prepared, or the directory it was prepared to"
        )
        action.add_argument(
            "--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own (repeatable)"
        )
        action.add_argument("--output-dir", type=Path, metavar="DIR", help="where `prepare` wrote ENV (default: data/ENV)")
        action.add_argument("--format", choices=("text", "json"), default="text")
        action.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    run.add_argument(
        "--suite", type=Path, metavar="PATH", help="a suite of your own (default: NAME.expectations.json beside the YAML)"
    )
    run.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="a parameter of the suite (repeatable)")
    run.add_argument(
        "--against",
        metavar="WHERE",
        help="what the number of rows is compared with: a prepared directory or OWNER/NAME[@REVISION] on the Hub"
        " (default: what the directory held before)",
    )
    run.add_argument("--gold", action="store_true", help="let each row's verifier read the row's own answer, too (slower)")
    run.add_argument("--data-docs", type=Path, metavar="DIR", help="write Great Expectations' HTML there, too")
    draft.add_argument("--output", type=Path, metavar="PATH", help="write the suite there")


def run(args: argparse.Namespace) -> int:
    """Run or draft. 1 if an expectation whose severity is critical is not met."""
    directory, environments = _target(args)
    return _run(args, directory, environments) if args.action == "run" else _draft(args, directory, environments)


def _target(args: argparse.Namespace) -> tuple[Path, list[Environment]]:
    from gymdata.environments import registry
    from gymdata.environments.config import load_config
    from gymdata.statistics.prepared import load_manifest

    folder = Path(args.target)
    if args.target not in registry.names() and folder.is_dir():
        manifest = load_manifest(folder, "ENV")
        if args.config:
            return folder, [load_config(args.config)]
        return folder, [registry.load(name) for name in manifest.environments]
    environment = registry.load(args.target, (), args.config)
    return args.output_dir or Path("data", environment.name), [environment]


def _run(args: argparse.Namespace, directory: Path, environments: Sequence[Environment]) -> int:
    from gymdata.statistics.expectations import run_suite

    baseline = None
    if args.against:
        from gymdata.cli.download import credentials
        from gymdata.publish.sides import row_counts

        baseline = row_counts(args.against, credentials)
    unreadable = _unreadable(directory, environments) if args.gold else {}
    outcomes: list[Outcome] = []
    for environment in environments:
        docs = args.data_docs / environment.name if args.data_docs and len(environments) > 1 else args.data_docs
        outcomes += run_suite(
            directory,
            environment,
            args.suite,
            baseline=baseline,
            parameters=_parameters(args.set),
            unreadable=unreadable,
            data_docs=docs,
        )
        if docs:
            print(f"Data Docs: {docs / 'index.html'}", file=sys.stderr)
    failed = [outcome for outcome in outcomes if not outcome.success]
    critical = [outcome for outcome in failed if outcome.severity == "critical"]
    if args.format == "json":
        summary = {"expectations": len(outcomes), "failed": len(critical), "warnings": len(failed) - len(critical)}
        document = {"directory": str(directory), "outcomes": [asdict(outcome) for outcome in outcomes], "summary": summary}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print(_page(outcomes))
        others = f", {len(failed) - len(critical)} warnings" if len(failed) > len(critical) else ""
        print(f"{directory}: {len(outcomes) - len(failed)} of {len(outcomes)} expectations met{others}", file=sys.stderr)
    return 1 if critical else 0


def _page(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for people: one line each, by split; what failed with its places."""
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    lines: list[str] = []
    part: tuple[str, str] | None = None
    for outcome in outcomes:
        if part != (part := (outcome.environment, outcome.split)):
            lines.append(f"{chr(10) if lines else ''}{outcome.environment} {outcome.split}")
        mark = "ok" if outcome.success else "FAILED" if outcome.severity == "critical" else outcome.severity
        lines.append(f"  {mark:<7}  {outcome.name:<{width}}  {outcome.message}")
        if not outcome.success:
            lines += [f"           expected: {outcome.description}"] if outcome.description else []
            shown = zip(outcome.places[:SHOWN], outcome.values, strict=False)
            lines += [f"             {place}" + ("" if value is None else f": {value}") for place, value in shown]
            if len(outcome.places) > SHOWN:
                lines.append(f"             and {len(outcome.places) - SHOWN:,} more (--format json has all)")
    return "\n".join(lines)


def _draft(args: argparse.Namespace, directory: Path, environments: Sequence[Environment]) -> int:
    from gymdata.atomic import write_bytes
    from gymdata.environments.registry import own_folder
    from gymdata.statistics.draft import draft
    from gymdata.statistics.prepared import read_splits
    from gymdata.statistics.suites import SUFFIX, expected

    if len(environments) != 1:
        names = ", ".join(environment.name for environment in environments)
        raise UsageError(f"{directory} holds several environments: {names}", "draft one at a time: name it, with --output-dir")
    environment = environments[0]
    suite = draft(environment.name, read_splits(directory, environment))
    text = json.dumps(suite, indent=2, ensure_ascii=False) + "\n"
    if args.output:
        if args.output.exists():
            raise UsageError(f"{args.output} exists already and is not overwritten", "choose another name, or remove it first")
        write_bytes(args.output, text.encode())
    if args.format == "json":
        print(text, end="")
        return 0
    for entry in suite["expectations"]:
        kwargs, mostly = entry["kwargs"], entry["kwargs"].get("mostly")
        share = f" (in at least {mostly:.0%} of the rows)" if mostly else ""
        print(f"{entry['meta']['name']} ({entry['severity']}): {entry['description']}")
        print(f"  {kwargs['column']}: {expected(entry['type'], kwargs)}{share}\n  {entry['notes']}")
    where = own_folder() / f"{environment.name}{SUFFIX}"
    print(f"wrote {args.output}" if args.output else f"keep it with --output {where}, where `run` finds it", file=sys.stderr)
    return 0


def _parameters(words: Sequence[str]) -> dict[str, float]:
    parameters: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        try:
            parameters[name] = float(number)
        except ValueError:
            raise UsageError(f"--set {word}: no number", "write NAME=NUMBER, such as prompt_tokens=8192") from None
    return parameters


def _unreadable(directory: Path, environments: Sequence[Environment]) -> dict[str, dict[int, str]]:
    """By split, the lines whose own answer the verifier refuses or cannot read, and why."""
    from gymdata.cli.progress import Progress
    from gymdata.engine.local import default_jobs
    from gymdata.gold import GoldFile, check_gold
    from gymdata.publish.diff import splits_of

    progress, splits = Progress(), splits_of(directory)
    names, paths = list(splits), list(splits.values())
    done = [0] * len(paths)

    def on_bytes(at: int, size: int) -> None:
        done[at] += size
        progress(names[at], done[at], paths[at].stat().st_size)

    checked = check_gold([GoldFile(path, environments) for path in paths], jobs=default_jobs(), on_bytes=on_bytes)
    found = {
        name: {finding.line: finding.message for finding in one.findings if finding.code != "GD406"}
        for name, one in zip(names, checked, strict=True)
    }
    progress.clear()
    return found
