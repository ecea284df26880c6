"""`gymdata download`: the datasets that an environment names, or one of the Hub's by its name."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.errors import UsageError

if TYPE_CHECKING:
    from gymdata.environments.model import Environment
    from gymdata.sources.hub import Credentials
    from gymdata.sources.huggingface import Fetched


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "environment", nargs="?", metavar="ENV", help="fetch what this environment's datasets name as their source"
    )
    parser.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own (repeatable)")
    parser.add_argument(
        "--type", action="append", choices=("train", "validation", "example", "benchmark"), help="only these datasets"
    )
    parser.add_argument("--data-source", choices=("huggingface", "gitlab"), help="where a dataset names both")
    parser.add_argument("--repo-id", metavar="OWNER/NAME", help="fetch a dataset of the Hugging Face Hub instead")
    parser.add_argument("--artifact", metavar="PATH", help="one file of it, byte for byte")
    parser.add_argument("--split", metavar="NAME", help="one split as JSONL (default: all of them)")
    parser.add_argument("--subset", metavar="NAME", help="a configuration of the dataset other than its default")
    parser.add_argument("--revision", metavar="REV", help="a branch, tag, commit or refs/pr/N")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where a single file goes")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="where files go (default: data/NAME)")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Fetch, then say what arrived. Raises UsageError for a call that makes no sense, ExternalError for the Hub."""
    own = [name for name in ("artifact", "split", "subset", "revision", "output", "output_dir") if getattr(args, name)]
    if bool(args.repo_id) == bool(args.environment or args.config):
        raise UsageError("what is to be fetched?", "give an environment (or --config), or --repo-id")
    if args.repo_id:
        from gymdata.sources.huggingface import fetch

        folder = args.output_dir or Path("data", args.repo_id.split("/")[-1])
        fetched = fetch(
            args.repo_id,
            folder,
            artifact=args.artifact,
            split=args.split,
            config=args.subset,
            revision=args.revision,
            output=args.output,
            credentials=credentials(),
        )
    elif own:
        raise UsageError(f"--{own[0].replace('_', '-')} goes with --repo-id", "an environment's datasets name these themselves")
    else:
        fetched = download(load(args), tuple(args.type or ()), args.data_source)
    _report(fetched, args.format)
    return 0


def load(args: argparse.Namespace) -> Environment:
    """The environment that the arguments name: ENV with --config on top, or --config alone."""
    from gymdata.environments import config, registry

    if args.environment:
        return registry.load(args.environment, (), args.config)
    return config.load_config(args.config, name=Path(args.config[0]).stem)


def credentials(environment: Environment | None = None) -> Credentials:
    """Who calls the Hub: HF_TOKEN, else hf_token of the environment (of env.yaml if None), else what `hf auth login` stored."""
    from gymdata.environments.config import load_config
    from gymdata.sources.hub import find_credentials

    if environment is None and Path("env.yaml").is_file():
        environment = load_config([])
    configured = environment.secret("hf_token") if environment else None
    return find_credentials(configured.get_secret_value() if configured else None)


def download(environment: Environment, types: tuple[str, ...] = (), data_source: str | None = None) -> tuple[Fetched, ...]:
    """Fetch the datasets of `types` (all) that have a source, to where the environment will look for them.

    A file that is there and is not what was fetched before, byte for byte, is kept, and said to be.
    """
    from gymdata.sources.remote import fetch_dataset, is_as_fetched

    datasets = [one for one in environment.datasets(real=True) if one.source is not None and (not types or one.type in types)]
    if not datasets:
        raise UsageError(
            f"{environment.name}: none of its datasets names a source", "give its entries a `source`, or use --repo-id"
        )
    fetched = []
    for one in datasets:
        if one.path.exists() and not is_as_fetched(one.path):
            why = "it was not fetched, or has been changed since; delete it to fetch it"
            print(f"gymdata: keeping {one.path}: {why}", file=sys.stderr)
        else:
            fetched.append(fetch_dataset(one, environment, data_source))
    return tuple(fetched)


def _report(fetched: tuple[Fetched, ...], format: str) -> None:
    documents: list[dict[str, Any]] = [{**asdict(one), "path": str(one.path)} for one in fetched]
    if format == "json":
        print(json.dumps(documents, indent=2))
        return
    for one in fetched:
        print(one.path)
        print(f"  {describe(one)}", file=sys.stderr)


def describe(fetched: Fetched) -> str:
    """What of which repository a file is, in a line."""
    what = f"{fetched.repo_id}@{fetched.commit[:12]} {', '.join(fetched.files)}"
    return f"{what}, {fetched.bytes:,} bytes, sha256 {fetched.sha256}"
