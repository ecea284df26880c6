"""Entry point of the `gymdata` command: finds the subcommand, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

from gymdata import __version__
from gymdata.errors import ExternalError, GymdataError

COMMANDS = {
    "prepare": "validate, measure and collate the datasets of an environment",
    "download": "fetch the datasets that an environment names",
    "validate": "check rows, and say what is wrong, where, why and what to do",
    "stats": "measure rows",
    "collate": "write the splits of an environment and their manifest, no statistics",
    "expectations": "check what a prepared dataset should be like, or draft it",
    "publish": "send a prepared dataset to the Hugging Face Hub, in a pull request or a commit",
    "diff": "compare two prepared datasets",
    "rollouts": "collect rollouts from a model, measure them, choose from them, look at them",
    "serve": "environments and a model over HTTP, as NeMo Gym, NeMo-RL and verifiers ask for them",
    "convert": "turn chat rows, ShareGPT, CSV or Parquet into rows",
    "envs": "list, show or start environments",
    "registry": "datasets in a GitLab model registry",
    "explain": "what a finding means, a bad and a good row, how to fix it",
}
"""Each command is the module of its name in gymdata.cli: `add_arguments(parser)`, `run(args) -> exit code`."""

HUB_PACKAGES = ("datasets", "detect_secrets", "fsspec", "httpx2", "huggingface_hub", "pyarrow")
"""What the extra `hub` brings."""


_OF_THE_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""Standard output has no name in an error; others without one, of sockets or processes, are not of a file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (0 done, 1 the data, 2 the call, 3 something outside)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for what its encoding lacks, as standard error has it
    try:
        args = _parser(arguments).parse_args(arguments)
        if not args.command:
            _parser([]).print_help()
            return 2
        code = _module(args.command).run(args)
        sys.stdout.flush()
        return code
    except GymdataError as error:
        if debug:
            raise
        print(f"gymdata: error: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if debug or package not in HUB_PACKAGES:
            return _internal(error, debug)
        print(
            f"gymdata: error: this needs {package.replace('_', '-')}, which is not installed\n  help: pip install 'gymdata[hub]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("gymdata: interrupted; nothing was changed", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if debug or not (error.filename or error.errno in _OF_THE_OUTPUT):
            return _internal(error, debug)
        hint = "check the file and its permissions" if error.filename else "check the disk that the output goes to"
        print(f"gymdata: error: {error.filename or 'the output'}: {error.strerror}\n  help: {hint}", file=sys.stderr)
        return ExternalError.exit_code
    except Exception as error:
        return _internal(error, debug)


def _internal(error: Exception, debug: bool) -> int:
    if debug:
        raise error
    print(
        f"gymdata: internal error: {type(error).__name__}: {error}\n"
        "  help: this is a bug in gymdata; run again with --debug and report what it prints",
        file=sys.stderr,
    )
    return 3


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the subcommand that `arguments` name is filled in, so that nothing else is imported."""
    parser = argparse.ArgumentParser(
        prog="gymdata",
        description="Validated, measured, published data for reinforcement learning of language models.",
        epilog="Exit codes: 0 done, 1 the data is at fault, 2 the call or configuration, 3 something outside.",
    )
    parser.add_argument("--version", action="version", version=f"gymdata {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    named = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        command.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
        if name == named:
            _module(name).add_arguments(command)
    return parser


def _module(command: str):
    return importlib.import_module(f"gymdata.cli.{command}")


if __name__ == "__main__":
    sys.exit(main())
