"""`gymdata rollouts check-tokens`: whether the token ids of rollouts, anyone's, are those that were seen and sampled."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymdata.rollouts.token_check import Decode, Line
    from gymdata.rollouts.tokens import Fault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="finished rollouts, NeMo Gym's too (.gz and .zst as well)")
    parser.add_argument("--model-url", metavar="URL", help="a vLLM with their model: the ids that differ are shown as text")
    parser.add_argument("--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="(default: OPENAI_API_KEY)")
    parser.add_argument("--max-findings", type=int, default=20, metavar="N", help="how many the text shows (default: 20; 0: all)")
    parser.add_argument("--format", choices=["text", "json"], default="text")


def run(args: argparse.Namespace) -> int:
    """Check; 1 if a rollout is broken, a line cannot be read, or no rollout has token ids."""
    from gymdata.rollouts.token_check import decoder, lines

    decode = decoder(args.model_url, os.environ.get(args.api_key_env, "")) if args.model_url else None
    names = ("rollouts", "turns", "sampled_tokens", "broken", "without_ids", "unreadable")
    counts: dict[str, int] = dict.fromkeys(names, 0)
    told = 0
    if args.format == "json":
        print(f'{{"file": {json.dumps(str(args.file))}, "faults": [', end="")
    for line in lines(args.file):
        faults = _count(counts, line)
        for fault in faults:
            if args.format == "json":
                print(f"{',' if told else ''}\n {json.dumps(_document(line, fault, decode))}", end="")
            elif told < (args.max_findings or told + 1):
                print(_text(line, fault, decode))
            told += 1
    good = not counts["broken"] and not counts["unreadable"] and counts["without_ids"] < counts["rollouts"]
    if args.format == "json":
        print(f'\n], "summary": {json.dumps({**counts, "faults": told})}}}')
    else:
        if told > args.max_findings > 0:
            print(f"… {told - args.max_findings:,} more (--max-findings 0 shows them)")
        print(_summary(args.file, counts))
    return 0 if good else 1


def _count(counts: dict[str, int], line: Line) -> tuple[Fault | str, ...]:
    counts["rollouts"] += 1
    if isinstance(line.checked, str):
        counts["unreadable"] += 1
        return (line.checked,)
    counts["turns"] += len(line.checked.turns)
    counts["sampled_tokens"] += line.checked.sampled
    counts["broken"] += bool(line.checked.faults)
    counts["without_ids"] += not line.checked.turns and not line.checked.faults
    return line.checked.faults


def _document(line: Line, fault: Fault | str, decode: Decode | None) -> dict[str, Any]:
    document: dict[str, Any] = {"line": line.number, "task": line.task, "rollout": line.rollout}
    if isinstance(fault, str):
        return document | {"kind": "unreadable", "message": fault}
    document |= {"kind": fault.kind, "turn": fault.turn, "path": f"$.{fault.place}", "message": fault.message, "at": fault.at}
    if fault.kind == "diverges":
        document |= {"start": fault.start, "expected": list(fault.expected), "found": list(fault.found)}
        if decode:
            document |= {"expected_text": decode(fault.expected), "found_text": decode(fault.found)}
    return document


def _text(line: Line, fault: Fault | str, decode: Decode | None) -> str:
    rollout = "" if line.task is None else f" (task {line.task}, rollout {line.rollout})"
    head = f"line {line.number}{rollout}"
    if isinstance(fault, str):
        return f"{head}: {fault}"
    shown = [f"{head}, turn {fault.turn}, {fault.place}: {fault.message}"]
    if fault.kind == "diverges":
        for word, ids in (("came before", fault.expected), ("its prompt ", fault.found)):
            text = f"  {json.dumps(decode(ids), ensure_ascii=False)}" if decode else ""
            shown.append(f"  {word} from {fault.start}: {' '.join(map(str, ids))}{text}")
    return "\n".join(shown)


def _summary(file: Path, counts: dict[str, int]) -> str:
    whole = counts["rollouts"] - counts["broken"] - counts["without_ids"] - counts["unreadable"]
    line = f"{file}: {counts['rollouts']:,} rollouts: {whole:,} whole, {counts['broken']:,} broken, {counts['without_ids']:,} without token ids"
    if counts["unreadable"]:
        line += f", {counts['unreadable']:,} unreadable"
    return f"{line}; {counts['turns']:,} turns, {counts['sampled_tokens']:,} sampled tokens"
