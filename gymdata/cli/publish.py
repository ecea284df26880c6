"""`gymdata publish`: a prepared dataset to the Hugging Face Hub, checked before it leaves and read back after."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.errors import DataError, ExternalError, UsageError

if TYPE_CHECKING:
    from gymdata.environments.model import Environment
    from gymdata.publish.dataset import Dataset
    from gymdata.publish.gates import Objection
    from gymdata.publish.huggingface import Published
    from gymdata.publish.plan import Plan, Target
    from gymdata.sources.hub import Credentials

_KINDS = {"train": "train", "validation": "validation", "test": "benchmark", "example": "example", "benchmark": "benchmark"}
"""Splits that a file can be, and what such a dataset is called in a configuration."""

SHOWN = 20
"""Objections printed in full."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("environment", nargs="?", metavar="ENV", help="the environment, prepared before")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="where `prepare` wrote it (default: data/ENV)")
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="publish this file of rows; it is prepared first, as one split"
    )
    parser.add_argument(
        "--split", action="append", metavar="NAME", help="only this split (repeatable); with --input, what FILE is (train)"
    )
    add_sending_arguments(parser)


def add_sending_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what says where rows go and how, wherever they come from."""
    parser.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own (repeatable)")
    name = parser.add_argument_group("where to")
    name.add_argument("--repo-id", metavar="OWNER/NAME", help="the repository, instead of a name by NeMo Gym's rule")
    name.add_argument("--organization", metavar="NAME", help="{organization}/{prefix-}{domain-}{name} (default: hf_organization)")
    name.add_argument("--dataset-name", metavar="NAME", help="(default: the environment's)")
    name.add_argument("--prefix", metavar="TEXT", help='(default: hf_dataset_prefix, else "Nemotron-RL")')
    name.add_argument("--collection", metavar="OWNER/SLUG", help="a collection that the dataset joins")
    name.add_argument("--private", action=argparse.BooleanOptionalAction, default=True, help="of a new repository")
    commit = parser.add_argument_group("the commit")
    commit.add_argument("--create-pr", action="store_true", help="propose it in a pull request")
    commit.add_argument(
        "--revision", metavar="REV", help="a branch (made if it is none), or refs/pr/N to add to an open pull request"
    )
    commit.add_argument("--commit-message", default="", metavar="TEXT")
    commit.add_argument("--commit-description", default="", metavar="TEXT")
    parser.add_argument("--license", metavar="NAME", help="NeMo Gym's name of the license, or an SPDX identifier")
    parser.add_argument("--language", action="append", default=[], metavar="CODE", help="of the texts, such as en (repeatable)")
    parser.add_argument("--accept-secrets", action="store_true", help="publish although rows hold what looks like a credential")
    parser.add_argument("--dry-run", action="store_true", help="show what would be sent, and send nothing")
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not read it back afterwards")
    parser.add_argument("--yes", action="store_true", help="if the repository changes meanwhile, publish on top without asking")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Check, plan, send, read back. Raises DataError if the dataset may not leave, ExternalError for the Hub."""
    from gymdata.cli.download import credentials, load
    from gymdata.engine.local import default_jobs
    from gymdata.publish.dataset import load_dataset
    from gymdata.publish.gates import objections
    from gymdata.sources.hub import require_login

    if not (args.environment or args.config):
        raise UsageError("which environment?", "name it, or give its YAML with --config")
    args.license = _license(args.license)
    environment = load(args)
    target, who = _target(args, environment), credentials(environment)
    if not args.dry_run:  # before minutes of judging rows
        require_login(who, target.repo_id)
    with tempfile.TemporaryDirectory(prefix="gymdata-input-") if args.input else nullcontext() as folder:
        if folder:
            directory = _prepare_input(args, environment, Path(folder))
        else:
            directory = args.output_dir or Path("data", environment.name)
        dataset = load_dataset(directory, environment, tuple(args.split or ()), args.license)
        _say("judging and measuring the rows, looking for credentials")
        _refuse(list(objections(dataset, args.accept_secrets, default_jobs())))
        return _publish(args, dataset, target, who)


def _publish(args: argparse.Namespace, dataset: Dataset, target: Target, credentials: Credentials) -> int:
    from gymdata.publish.diff import to_text
    from gymdata.publish.huggingface import Stale, send
    from gymdata.publish.plan import planned
    from gymdata.publish.verify import verify

    again = False
    while True:
        _say(f"comparing with what {target.repo_id} holds")
        with planned(dataset, target, credentials) as plan:
            if again:
                print(to_text(plan.diff), file=sys.stderr)
            if args.dry_run:
                print(
                    json.dumps(_plan_document(plan), indent=2, ensure_ascii=False) if args.format == "json" else _plan_page(plan)
                )
                return 0
            try:
                done = send(plan, credentials, on_step=_say)
            except Stale as stale:
                if args.yes or _agreed(stale):
                    again = True
                    continue
                raise
            verified: dict[str, int] = {}
            if args.verify:  # also what is there already: nobody knows whether an earlier run got as far as this
                verified = verify(done.repo_id, done.commit, plan.splits, credentials, on_step=_say).rows
        _report(done, verified, plan, args.format)
        return 0


def _target(args: argparse.Namespace, environment: Environment) -> Target:
    from gymdata.publish.plan import Target, repository_name

    settings = environment.settings
    repo_id = args.repo_id
    if not repo_id:
        organization = args.organization or settings.get("hf_organization")
        if not organization:
            raise UsageError(
                "to which repository?", "give --organization (or hf_organization in env.yaml), or --repo-id OWNER/NAME"
            )
        prefix = args.prefix if args.prefix is not None else settings.get("hf_dataset_prefix", "Nemotron-RL")
        repo_id = repository_name(organization, args.dataset_name or environment.name, environment.domain, prefix)
    collection = args.collection or ""
    if not collection and settings.get("hf_collection_name") and settings.get("hf_collection_slug"):
        name = str(settings["hf_collection_name"]).lower().replace(" ", "-")
        collection = f"{repo_id.split('/')[0]}/{name}-{settings['hf_collection_slug']}"
    target = Target(
        repo_id,
        args.create_pr,
        args.revision,
        args.commit_message,
        args.commit_description,
        args.private,
        collection,
        tuple(args.language),
    )
    return target


def _prepare_input(args: argparse.Namespace, environment: Environment, folder: Path) -> Path:
    """Validate, measure and collate one file as one split of the environment; raises InvalidRows if its rows are at fault."""
    from gymdata.cli.prepare import print_report
    from gymdata.engine.local import default_jobs
    from gymdata.environments.licenses import forbids_publishing
    from gymdata.environments.yaml import Place
    from gymdata.prepare import InvalidRows, Options, prepare

    if not args.input.is_file():
        raise UsageError(f"{args.input}: no such file")
    split = args.split[0] if args.split else "train"
    if len(args.split or ()) > 1 or split not in _KINDS:
        raise UsageError(f"--input is one split, of {', '.join(_KINDS)}", "name one of them with --split")
    kind = _KINDS[split]
    entries = environment.datasets()
    own = [one for one in entries if one.path.resolve() == args.input.resolve()]
    forbidden = next((one.license for one in own if forbids_publishing(one.license or "")), None)
    like = next((one for one in [*own, *entries] if one.type == kind), next(iter([*own, *entries]), None))
    if like is None:
        raise UsageError(
            f"{environment.name} declares no dataset that {args.input} could be one of", "give its YAML with --config"
        )
    # Beside a link of our own prepare finds, and leaves, no metrics file: those beside the file itself are checked, not made.
    link = folder / "input" / args.input.name
    link.parent.mkdir()
    link.symlink_to(args.input.resolve())
    entry = like.model_copy(
        update={
            "type": kind,
            "jsonl_fpath": str(args.input),
            "num_repeats": 1,
            "start_idx": None,
            "end_idx": None,
            "license": forbidden or args.license or like.license,
        }
    ).bound(like.instance, Place("", 0), link, None)
    instances = tuple(replace(one, datasets=(entry,) if one.name == like.instance else ()) for one in environment.instances)
    directory = folder / environment.name
    mode = "example_validation" if kind == "example" else "train_preparation"
    try:
        prepared = prepare(
            [replace(environment, instances=instances, builtin=False)], directory, Options(mode=mode), jobs=default_jobs()
        )
    except InvalidRows as error:
        print_report(error.report, "text")
        raise DataError(error.message, "nothing was sent; `gymdata validate --fix` repairs what is mechanical") from None
    print_report(prepared.report, "text")
    return directory


def _license(name: str | None) -> str | None:
    from gymdata.environments.licenses import canonical

    try:
        return canonical(name) if name else None
    except ValueError as error:
        raise UsageError(f"--license: {error}") from None


def _refuse(found: list[Objection]) -> None:
    """Raise DataError with the reasons, if there are any."""
    if not found:
        return
    lines = []
    for one in found[:SHOWN]:
        place = f"{one.file}:{one.finding.line}" if one.finding.line else one.file
        lines.append(f"  {place}: {one.finding.code} {one.finding.path} {one.finding.message}\n    help: {one.finding.hint}")
    if len(found) > SHOWN:
        rest = Counter(one.finding.code for one in found[SHOWN:])
        lines.append("  and " + ", ".join(f"{count:,} more {code}" for code, count in rest.items()))
    raise DataError(
        "this dataset may not be published:\n" + "\n".join(lines), "nothing was sent; `gymdata explain CODE` says more"
    )


def _agreed(stale: ExternalError) -> bool:
    if not sys.stdin.isatty():
        return False
    print(stale.message, file=sys.stderr)
    print("publish on top of it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(step: str) -> None:
    print(f"gymdata: {step}", file=sys.stderr)


def _plan_document(plan: Plan) -> dict[str, Any]:
    from gymdata.publish.diff import to_json
    from gymdata.publish.huggingface import default_message

    files = [{"path": one.path, "bytes": one.bytes, "state": one.state} for one in plan.files]
    return {
        "repo_id": plan.target.repo_id,
        "revision": plan.target.branch,
        "create_pr": plan.target.opens,
        "creates_repository": not plan.exists,
        "parent_commit": plan.base,
        "commit_message": plan.target.message or default_message(plan),
        "commit_description": plan.target.description,
        "collection": plan.target.collection if plan.joins else None,
        "nothing_to_do": plan.nothing_to_do,
        "pull_request": plan.proposed,
        "files": files,
        "deletions": list(plan.deletions),
        "rows": plan.rows,
        "card": plan.card,
        "diff": to_json(plan.diff),
    }


def _plan_page(plan: Plan) -> str:
    from gymdata.publish.diff import to_text
    from gymdata.publish.huggingface import default_message

    target = plan.target
    how = "a new pull request to " if target.opens else "a commit to "
    new = "" if plan.exists else f" (a new {'private' if target.private else 'public'} repository)"
    lines = [f"would send {how}{target.repo_id}@{target.branch}{new}:"]
    width = max(len(one.path) for one in plan.files)
    lines += [f"  {one.state:<8} {one.path:<{width}}  {one.bytes:>13,} bytes" for one in plan.files]
    lines += [f"  deleted  {path}" for path in plan.deletions]
    lines.append("rows: " + ", ".join(f"{name} {count:,}" for name, count in plan.rows.items()))
    message = [target.message or default_message(plan), *target.description.splitlines()]
    lines += [f"message: {message[0]}", *(f"         {line}" for line in message[1:])]
    if plan.joins:
        lines.append(f"and add it to the collection {target.collection}")
    lines += ["", to_text(plan.diff), "", "the card:", "", plan.card]
    if plan.nothing_to_do:
        where = f"pull request {plan.proposed} holds" if plan.proposed else f"{target.repo_id}@{target.branch} holds"
        lines.insert(0, f"nothing to do: {where} exactly this\n")
    return "\n".join(lines)


def _report(done: Published, verified: dict[str, int], plan: Plan, format: str) -> None:
    if format == "json":
        print(json.dumps({**asdict(done), "rows": plan.rows, "verified": verified}, indent=2))
        return
    if not done.sent:
        _say("nothing to do: this is there already")
    for split, count in verified.items():
        _say(f"{split}: all {count:,} rows came back as they were sent, plain and streaming")
    print(done.url)
