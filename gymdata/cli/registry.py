"""`gymdata registry`: datasets in a GitLab model registry, and their way to the Hugging Face Hub."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.errors import UsageError

if TYPE_CHECKING:
    from gymdata.sources.gitlab import Registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gymdata.cli import publish

    actions = parser.add_subparsers(dest="action", metavar="list|upload|download|delete|migrate", required=True)
    listing = actions.add_parser("list", help="the datasets there are")
    upload = actions.add_parser("upload", help="put a file into a version of a dataset")
    download = actions.add_parser("download", help="fetch a file of a version")
    delete = actions.add_parser("delete", help="delete a dataset with all its versions")
    migrate = actions.add_parser("migrate", help="publish a file of a version to the Hugging Face Hub")
    for action in (upload, download, delete, migrate):
        action.add_argument("--name", required=True, help="of the dataset; case-sensitive")
    for action in (upload, download, migrate):
        action.add_argument("--version", required=True, metavar="X.Y.Z")
    for action in (download, migrate):
        action.add_argument("--artifact", required=True, metavar="PATH", help="the file in the version")
    upload.add_argument("--input", type=Path, required=True, metavar="FILE")
    download.add_argument("--output", type=Path, required=True, metavar="FILE")
    migrate.add_argument("environment", nargs="?", metavar="ENV", help="the environment that the rows are for")
    migrate.add_argument("--split", metavar="NAME", help="the split that the file is (default: train)")
    publish.add_sending_arguments(migrate)
    migrate.add_argument(
        "--delete",
        action="store_true",
        help="delete the dataset, with all its versions, from GitLab once the file is on the Hub and verified",
    )
    for action in (delete, migrate):
        action.add_argument("--confirm", metavar="NAME", help="the dataset's name once more, in place of typing it")
    for action in (listing, upload, download, delete):
        action.add_argument("--format", choices=("text", "json"), default="text")
    for action in (listing, upload, download, delete, migrate):
        action.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for. Raises ConfigError without a registry, UsageError without a confirmation, ExternalError."""
    registry = _registry()
    if args.action == "list":
        names = registry.names()
        print(json.dumps(names, indent=2) if args.format == "json" else "\n".join(names))
    elif args.action == "upload":
        path = registry.upload(args.name, args.version, args.input)
        done = {"name": args.name, "version": args.version, "artifact": path}
        print(json.dumps(done, indent=2) if args.format == "json" else f"{args.name} {args.version} {path}")
    elif args.action == "download":
        fetched = registry.download(args.name, args.version, args.artifact, args.output)
        done = {"path": str(fetched.path), "sha256": fetched.sha256, "bytes": fetched.bytes}
        print(json.dumps(done, indent=2) if args.format == "json" else fetched.path)
    elif args.action == "delete":
        _confirm(args)
        registry.delete(args.name)
        print(json.dumps({"deleted": args.name}) if args.format == "json" else f"deleted {args.name}")
    else:
        return _migrate(args, registry)
    return 0


def _migrate(args: argparse.Namespace, registry: Registry) -> int:
    from gymdata.cli import publish

    if args.delete:
        if args.create_pr or args.dry_run or not args.verify:
            why = "a pull request can still be closed" if args.create_pr else "nothing shows that the Hub has it"
            raise UsageError(
                f"--delete does not go with this: {why}", "migrate first; delete with `gymdata registry delete` after"
            )
        _confirm(args)
    with tempfile.TemporaryDirectory(prefix="gymdata-migrate-") as folder:
        args.input = Path(folder, Path(args.artifact).name)
        args.split = [args.split] if args.split else None
        registry.download(args.name, args.version, args.artifact, args.input)
        code = publish.run(args)
    if args.delete and code == 0:
        registry.delete(args.name)
        print(f"gymdata: deleted {args.name} from GitLab", file=sys.stderr)
    return code


def _confirm(args: argparse.Namespace) -> None:
    """Raise UsageError unless the name was typed, or given, once more."""
    typed = args.confirm
    if typed is None and sys.stdin.isatty():
        print(f"This deletes {args.name} with all its versions, for good. Type its name: ", end="", file=sys.stderr, flush=True)
        typed = sys.stdin.readline().strip()
    if typed != args.name:
        raise UsageError(f"{args.name} was not deleted: its name was not confirmed", "type it when asked, or give --confirm NAME")


def _registry() -> Registry:
    from gymdata.environments.config import load_config
    from gymdata.sources.gitlab import find_registry

    return find_registry(load_config([]) if Path("env.yaml").is_file() else None)
