"""`gymdata envs`: which environments there are, what one consists of, and a start for one of your own."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from gymdata.environments.model import DatasetConfig, Environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="list|show|init", required=True)
    listing = actions.add_parser("list", help="the environments there are")
    show = actions.add_parser("show", help="one environment: data sets, fields, sources, licences, prompt, configuration")
    show.add_argument("environment", metavar="ENV", help="a name, or the path of a NeMo Gym YAML")
    show.add_argument("--config", action="append", default=[], metavar="PATH", help="a YAML merged on top (repeatable)")
    show.add_argument("overrides", nargs="*", metavar="key=value", help="overrides, as NeMo Gym takes them")
    init = actions.add_parser("init", help="start an environment of your own: YAML, example rows, prompt, test")
    init.add_argument("name", metavar="NAME", help="lower-case letters, digits and underscores")
    for action in (listing, show, init):
        action.add_argument("--format", choices=("text", "json"), default="text")
        action.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for. Raises UsageError for an unknown name, ConfigError for a configuration at fault."""
    from gymdata.environments import registry

    if args.action == "list":
        environments = [_listed(name) for name in registry.names()]
        print(json.dumps(environments, indent=2) if args.format == "json" else _table(environments))
    elif args.action == "show":
        environment = registry.load(args.environment, args.overrides, args.config)
        print(json.dumps(_details(environment), indent=2, ensure_ascii=False) if args.format == "json" else _page(environment))
    else:
        written = init(args.name)
        done = {"environment": args.name, "files": [str(path) for path in written]}
        text = (
            "".join(f"wrote {path}\n" for path in written)
            + f"next: edit them, then `gymdata prepare {args.name} --mode example_validation`"
        )
        print(json.dumps(done, indent=2) if args.format == "json" else text)
    return 0


def init(name: str) -> list[Path]:
    """Write `environments/NAME.yaml` and, in `environments/NAME/`, a prompt, five example rows and a test. Returns the paths.

    Raises UsageError, having written nothing, if the name is no name or taken, or if one of the files is there.
    """
    from gymdata import atomic
    from gymdata.environments import registry, template

    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise UsageError(
            f"{name!r} cannot be an environment's name", "use lower-case letters, digits and underscores, a letter first"
        )
    if name in registry.builtin_names():
        raise UsageError(f"{name!r} is the name of a built-in environment", "choose another")
    files = template.files(name, registry.own_folder())
    taken = [str(path) for path in files if path.exists()]
    if taken:
        raise UsageError(f"{', '.join(taken)} exists already and is not overwritten", "choose another name, or remove it first")
    for path, text in files.items():
        atomic.write_bytes(path, text.encode())
    return list(files)


def _listed(name: str) -> dict[str, Any]:
    """The summary of an environment; of one whose configuration is at fault, what is wrong: the others still show."""
    from gymdata.environments import registry

    try:
        return _summary(registry.load(name))
    except ConfigError as error:
        return {
            "name": name,
            "domain": None,
            "builtin": False,
            "description": f"cannot be used: {error.message}",
            "datasets": [],
            "source": None,
        }


def _summary(environment: Environment) -> dict[str, Any]:
    return {
        "name": environment.name,
        "domain": environment.domain,
        "builtin": environment.builtin,
        "description": environment.description,
        "datasets": sorted({entry.type for entry in environment.datasets()}),
        "source": next((named for entry in environment.datasets() if (named := _source(entry))), None),
    }


def _details(environment: Environment) -> dict[str, Any]:
    prompt = environment.prompt
    return {
        **_summary(environment),
        "files": [str(path) for path in environment.files],
        "datasets": [
            {
                **entry.model_dump(mode="json", exclude_none=True, exclude={"huggingface_identifier", "gitlab_identifier"}),
                "instance": entry.instance,
                "place": str(entry.place),
                "path": str(entry.path),
                "exists": entry.path.exists(),
            }
            for entry in environment.datasets()
        ],
        "fields": [
            field.model_dump(mode="json", exclude_defaults=True) | {"required": field.required} for field in environment.fields
        ],
        "prompt": prompt.model_dump(mode="json", exclude_none=True) if prompt else None,
        "warnings": list(environment.warnings),
        "config": environment.config,
    }


def _source(entry: DatasetConfig) -> str | None:
    source = entry.source
    if source is None:
        return None
    name = f"{source.dataset_name} {source.version}" if source.type == "gitlab" else source.repo_id
    return f"{source.type}: {name}" + (f", {source.artifact_fpath}" if source.artifact_fpath else "")


def _table(environments: list[dict[str, Any]]) -> str:
    width = max((len(environment["name"]) for environment in environments), default=0)
    lines = [
        f"{environment['name']:<{width}}  {environment['description'] or environment['domain'] or ''}"
        for environment in environments
    ]
    own = [environment["name"] for environment in environments if not environment["builtin"]]
    return "\n".join([*lines, *([f"your own: {', '.join(own)}"] if own else [])])


def _page(environment: Environment) -> str:
    """An environment for people; what is under `configuration` is YAML."""
    import yaml

    lines = [
        environment.name + (f" ({environment.domain})" if environment.domain else ""),
        *([environment.description] * bool(environment.description)),
    ]
    if environment.builtin:
        lines.append("Built in: uses the rows that come with gymdata, or with --download the public data named below.")
    lines.append("\ndata sets")
    for entry in environment.datasets():
        repeats = f", each row {entry.num_repeats} times" if entry.num_repeats > 1 else ""
        lines.append(
            f"  {entry.name} ({entry.type}{repeats}): {entry.path}" + ("" if entry.path.exists() else "  [not there yet]")
        )
        lines += [f"    {label}: {value}" for label, value in (("licence", entry.license), ("source", _source(entry))) if value]
        lines.append(f"    declared by {entry.instance} at {entry.place}")
    if environment.fields:
        lines.append("\nrow fields that the verifier reads")
    for field in environment.fields:
        kind = field.type + (f" of {field.items}" if field.items else "") + ("" if field.required else ", optional")
        lines.append(f"  {field.path} ({kind}): {field.description}")
    if environment.prompt:
        lines.append(f"\nprompt ({environment.prompt.path})")
        for role, text in (("system", environment.prompt.system), ("user", environment.prompt.user)):
            lines += [f"  {role}: " + text.replace("\n", "\n    ")] if text else []
    lines += ["\nwarnings", *(f"  {warning}" for warning in environment.warnings)] if environment.warnings else []
    lines += [
        "\nconfiguration (secrets hidden)",
        yaml.safe_dump(environment.config, sort_keys=False, allow_unicode=True).rstrip(),
    ]
    return "\n".join(lines)
