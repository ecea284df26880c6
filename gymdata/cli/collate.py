"""`gymdata collate`: write the splits of environments, or of plain files, and nothing that measures them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.cli import prepare as command

if TYPE_CHECKING:
    from gymdata.environments.model import Environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    command.add_arguments(parser)
    parser.add_argument("--agent", metavar="NAME", help="collate plain files, stamped with this agent, into the train split")


def run(args: argparse.Namespace) -> int:
    """Collate; 0 done, 1 the data is at fault."""
    environments = [files_of_agent(args.environments, args.agent)] if args.agent else command.load_environments(args)
    return command.run_prepare(args, environments, measure=False)


def files_of_agent(paths: list[str], agent: str) -> Environment:
    """An environment of one agent, whose train datasets are `paths`."""
    from gymdata.environments.model import DatasetConfig, Environment, ServerInstance
    from gymdata.environments.yaml import Place

    datasets = tuple(
        DatasetConfig(name=Path(path).stem, type="train", jsonl_fpath=path, license="TBD").bound(agent, Place(""), Path(path))
        for path in paths
    )
    instance = ServerInstance(name=agent, server_type="responses_api_agents", implementation="files", datasets=datasets)
    return Environment(name=agent, instances=(instance,))
