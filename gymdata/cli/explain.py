"""`gymdata explain`: what a finding means, a bad and a good row, how to fix it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymdata.validation.findings import Rule

_WIDTH = 240
"""Characters of an example's line that the text format shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("code", nargs="?", metavar="CODE", help="a code (GD101) or its name (not-json); without it, all of them")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Print one rule, or a line for each. Raises UsageError for an unknown code."""
    from dataclasses import asdict

    from gymdata.validation.catalogue import RULES, find

    if args.code is None:
        rules = list(RULES.values())
        print(json.dumps([asdict(rule) for rule in rules], indent=2) if args.format == "json" else _table(rules))
        return 0
    rule = find(args.code)
    print(json.dumps(asdict(rule), indent=2) if args.format == "json" else _page(rule))
    return 0


def _table(rules: list[Rule]) -> str:
    width = max(len(rule.name) for rule in rules)
    return "\n".join(f"{rule.code}  {rule.severity:<7}  {rule.name:<{width}}  {rule.summary}" for rule in rules)


def _page(rule: Rule) -> str:
    page = f"{rule.code} {rule.name} ({rule.severity})\n\n{rule.summary}\n\nwhy: {rule.why}\nfix: {rule.fix}"
    if rule.fixable:
        page += "\n     `gymdata validate --fix` does it."
    if rule.bad:
        page += f"\n\nbad:\n{_example(rule.bad)}"
    if rule.good:
        page += f"\n\ngood:\n{_example(rule.good)}"
    return page


def _example(rows: str) -> str:
    # An invisible byte-order mark would make the bad row look like the good one.
    lines = rows.replace("\ufeff", "<U+FEFF>").split("\n")
    return "\n".join(f"    {line if len(line) <= _WIDTH else line[:_WIDTH] + f'… ({len(line):,} characters)'}" for line in lines)
