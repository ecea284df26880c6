"""Finds environments by name: those that come with gymdata, and the user's own in `./environments`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gymdata.environments.compose import find
from gymdata.environments.config import load_config
from gymdata.environments.model import Environment, RowField
from gymdata.environments.problems import did_you_mean
from gymdata.errors import UsageError

FOLDER_VARIABLE = "GYMDATA_ENVIRONMENTS"
BUILTIN = Path(__file__).parent / "builtin"
_PACKAGE = Path(__file__).parents[1]


def own_folder() -> Path:
    """The folder of the user's own environments: GYMDATA_ENVIRONMENTS, or `./environments`."""
    return Path(os.environ.get(FOLDER_VARIABLE) or "environments")


def builtin_names() -> list[str]:
    """The environments that come with gymdata, sorted."""
    return sorted(file.parent.name for file in BUILTIN.glob("*/config.yaml"))


def own_names() -> list[str]:
    """The user's own environments, sorted: the stem of each YAML in their folder; hidden ones are what editors and systems leave."""
    return sorted(file.stem for file in own_folder().glob("*.yaml") if not file.name.startswith("."))


def names() -> list[str]:
    """All environments that `load` knows by name, sorted."""
    return sorted({*builtin_names(), *own_names()})


def required_fields(environment: Environment) -> dict[str, tuple[RowField, ...]]:
    """What the verifier of a row cannot do without, by the server instance that the row's stamp names.

    An environment that says nothing of its fields has those of the built-in ones with the same resources servers.
    """
    implementations = {one.name: one.implementation for one in environment.instances if one.server_type == "resources_servers"}
    known: dict[str, tuple[RowField, ...]] = {}
    if not environment.fields:
        for name in builtin_names():
            builtin = load_config([BUILTIN / name / "config.yaml"], name=name, env_yaml=None, locate=_bundled, builtin=True)
            for one in builtin.instances:
                if one.server_type == "resources_servers":
                    known[one.implementation] = builtin.required_fields
    found = {}
    for one in environment.instances:
        served = [name for kind, name in one.references.values() if kind == "resources_servers"] or [one.name]
        implementation = implementations.get(served[0], "")
        found[one.name] = environment.required_fields if environment.fields else known.get(implementation, ())
    return found


def fixtures() -> Path:
    """The folder of the bundled rows: inside an installed package, or at the top of a clone."""
    inside = _PACKAGE / "fixtures"
    return inside if inside.is_dir() else _PACKAGE.parent / "fixtures"


def load(name_or_path: str | Path, overrides: Sequence[str] = (), configs: Sequence[str | Path] = ()) -> Environment:
    """An environment by its name, or by the path of its YAML; `configs` are merged on top, then env.yaml, then `overrides`.

    The user's own come first: one named `math` stands before the built-in one.
    Raises UsageError naming the environments there are; ConfigError for what is wrong with the configuration.
    """
    name = str(name_or_path)
    if name.endswith((".yaml", ".yml")) or (os.sep in name and find(name).is_file()):
        return load_config([name, *configs], overrides, name=Path(name).stem)
    if name in own_names():
        return load_config([own_folder() / f"{name}.yaml", *configs], overrides, name=name)
    if name in builtin_names():
        return load_config([BUILTIN / name / "config.yaml", *configs], overrides, name=name, locate=_bundled, builtin=True)
    known = names()
    hint = did_you_mean(name, known)
    raise UsageError(
        f"there is no environment {name!r}; there are {', '.join(known)}",
        f"{hint} " * bool(hint) + "`gymdata envs init NAME` starts one of your own; --config PATH uses a NeMo Gym YAML",
    )


def _bundled(path: str, folder: Path) -> Path:
    """Where a file named in a built-in environment's YAML lies: rows under `fixtures/`, the rest beside the YAML.

    A name in a file of the user's own that is merged on top is looked for as everywhere.
    """
    if folder.parent != BUILTIN:
        return find(path, folder)
    return fixtures().parent / path if path.startswith("fixtures/") else folder / path
