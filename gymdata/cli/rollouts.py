"""`gymdata rollouts`: one module per subcommand, `rollouts_<name>.py`, with `add_arguments(parser)` and `run(args)`."""

from __future__ import annotations

import argparse
import importlib

SUBCOMMANDS = {
    "collect": "several rollouts of each task from a model server, scored",
    "verify": "score stored responses again",
    "merge": "one file of the shards of a run, and what is missing in it",
    "profile": "measure finished rollouts, per task and per run",
    "select": "choose tasks by how often they were solved",
    "import": "read rollouts of NeMo Gym, verifiers and NeMo-Skills",
    "export": "write them in the formats of trainers and other tools",
    "show": "page through trajectories",
    "check-tokens": "whether token ids are those that the model saw and sampled",
}
"""Each is the module gymdata.cli.rollouts_<name>, with _ for -; these modules import nothing heavy until they run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="rollouts_command", metavar="|".join(SUBCOMMANDS), required=True)
    for name, summary in SUBCOMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        command.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
        _module(name).add_arguments(command)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; its exit code is the command's."""
    return _module(args.rollouts_command).run(args)


def _module(name: str):
    return importlib.import_module(f"gymdata.cli.rollouts_{name.replace('-', '_')}")
