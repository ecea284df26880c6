"""`make prepare ENV=NAME`: the assets of one environment in this process, recorded in the Dagster home that `make dev` shows."""

import argparse
import sys

from gymdata.cli import prepare as command
from gymdata.environments import registry
from gymdata.environments.model import Environment
from gymdata.errors import GymdataError, UsageError


def main(words: list[str] | None = None) -> int:
    """Run it; options, output and exit codes are those of `gymdata prepare`."""
    parser = argparse.ArgumentParser(prog="make prepare", description="As `gymdata prepare`, recorded for `make dev`.")
    command.add_arguments(parser)
    parser.add_argument(
        "--expectations", action="store_true", help="run the environment's suite, too (its library takes seconds)"
    )
    args = parser.parse_args(words)
    try:
        environment = _environment(args)
        if not args.download:
            command.tell_bundled([environment])
        return _run(environment, args)
    except GymdataError as error:
        print(f"gymdata: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("gymdata: interrupted; nothing was changed", file=sys.stderr)
        return 130


def _environment(args: argparse.Namespace) -> Environment:
    names = registry.names()
    if args.config or args.output_dir or len(args.environments) > 1:
        raise UsageError(
            "one environment by its name, and its usual directory", "`gymdata prepare` takes several, YAML files and directories"
        )
    if not args.environments or args.environments[0] not in names:
        what = f"there is no environment {args.environments[0]!r}" if args.environments else "which environment?"
        raise UsageError(what, f"make prepare ENV=NAME, with one of {', '.join(names)}")
    return registry.load(args.environments[0])


def _run(environment: Environment, args: argparse.Namespace) -> int:
    from dagster import DagsterInstance

    from dagster_defs import resources
    from dagster_defs.definitions import defs
    from dagster_defs.home import ensure_home
    from dagster_defs.terminal import Terminal

    ensure_home()
    terminal = resources.onlooker = Terminal()
    options = resources.Preparation.model_fields.keys() & vars(args).keys()
    job = defs.resolve_job_def("prepare" if args.expectations else "splits")
    with DagsterInstance.get() as instance:
        result = job.execute_in_process(
            partition_key=environment.name,
            instance=instance,
            raise_on_error=False,
            run_config={
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                "resources": {
                    "preparation": {"config": {name: vars(args)[name] for name in options if vars(args)[name] is not None}}
                },
            },
        )
    return terminal.tell(result, args.format)


if __name__ == "__main__":
    sys.exit(main())
