"""Composes configuration files into one tree, in NeMo Gym's order of precedence, and carries out its directives."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path

from gymdata.environments import overrides, yaml
from gymdata.environments.interpolation import MISSING, InterpolationError, Interpolator
from gymdata.environments.problems import ConfigProblems, Problem
from gymdata.environments.yaml import Key, Node, Place
from gymdata.errors import ConfigError

EXTRA_ROOTS = "NEMO_GYM_EXTRA_ROOTS"

# What NeMo Gym puts in place of the policy model when data is prepared: configurations that mention it still resolve.
NOWHERE = Place("gymdata")
DUMMY = "dummy_model"
NO_MODEL = {
    "policy_base_url": "",
    "policy_api_key": "",
    "policy_model_name": "",
    "policy_model": {"responses_api_models": {DUMMY: {"entrypoint": "app.py"}}},
}


def roots(*folders: Path) -> list[Path]:
    """Where relative paths are looked for, first match wins: NEMO_GYM_EXTRA_ROOTS, the working directory, then `folders`."""
    extra = [Path(root) for root in os.environ.get(EXTRA_ROOTS, "").split(os.pathsep) if root]
    return [*extra, Path(), *folders]


def find(path: str | Path, *folders: Path) -> Path:
    """The first existing candidate for a path, or the path itself, relative to the working directory, if there is none."""
    return next((root / path for root in roots(*folders) if (root / path).exists()), Path(path))


def compose(
    paths: Sequence[str | Path], texts: Sequence[str] = (), env_yaml: str | Path | None = "env.yaml"
) -> tuple[Node, list[Path]]:
    """The merged tree, with directives carried out and interpolations still in it, and the files read, in order.

    Later wins: the files that a file includes (`config_paths`), the file, later files, env.yaml, the overrides. Mappings merge, lists
    and scalars replace. `env_yaml` may be missing unless it names another file than `env.yaml`; None reads none.
    Raises ConfigError for a file that is missing or is not YAML, ConfigProblems for directives that lead nowhere and values left `???`.
    """
    changes = [overrides.parse(text) for text in texts]
    files: list[Path] = []
    secrets = Node({}, Place("env.yaml"))
    if env_yaml is not None:
        file = find(env_yaml)
        if file.exists() or str(env_yaml) != "env.yaml":
            secrets = _read(str(env_yaml), file)
            files.append(file)
    roots_of_merge = [str(path) for path in paths]
    given = Node({}, Place("the overrides"))
    for change in changes:
        given = _put(given, change.path, change.value)
    if not roots_of_merge or given.get("config_paths"):
        roots_of_merge += _includes(merge(secrets, given))
    tree = yaml.of(NO_MODEL, NOWHERE)
    for node, file in _in_order(roots_of_merge):
        tree = merge(tree, node)
        files.append(file)
    tree = merge(tree, secrets)
    for change in changes:
        tree = _put(tree, change.path, change.value)
    tree = Directives(tree).tree
    for instance in tree.value.values():
        models = instance.get("responses_api_models")
        if models is not None and isinstance(models.value, dict) and len(models.value) > 1:
            models.value.pop(DUMMY, None)
    missing = [(path, node) for path, node in tree.walk() if node.value == MISSING]
    if missing:
        raise ConfigProblems(
            Problem(node.place, path, f"has no value yet ({MISSING})", f"give it one: ++{'.'.join(map(str, path))}=value")
            for path, node in missing
        )
    return tree, files


def merge(under: Node, over: Node) -> Node:
    """`over` on top of `under`: mappings merge, everything else replaces, `???` never does. Raises ConfigError for a list on a mapping."""
    if isinstance(under.value, dict) and isinstance(over.value, dict):
        merged = dict(under.value)
        for key, child in over.value.items():
            merged[key] = merge(merged[key], child) if key in merged else child
        return Node(merged, over.place)
    if {type(under.value), type(over.value)} == {dict, list}:
        kinds = ("a list", "a mapping") if isinstance(over.value, list) else ("a mapping", "a list")
        raise ConfigError(f"{over.place}: {kinds[0]} cannot replace {kinds[1]} ({under.place})", "give both the same shape")
    return under if over.value == MISSING else over


def _put(tree: Node, path: tuple[Key, ...], value: Node) -> Node:
    """The tree with a value merged in at a path: what is not there is made, a number picks an item of a list."""
    if not path:
        return merge(tree, value)
    key, rest = path[0], path[1:]
    if isinstance(tree.value, list):
        if not isinstance(key, int) or key >= len(tree.value):
            raise ConfigError(
                f"{value.place}: {key!r} picks no item of the list at {tree.place}", "count from 0, or give the whole list"
            )
        items = list(tree.value)
        items[key] = _put(items[key], rest, value)
        return Node(items, tree.place)
    name = key if isinstance(tree.value, dict) and key in tree.value else str(key)
    children = dict(tree.value) if isinstance(tree.value, dict) else {}
    children[name] = _put(children[name] if name in children else Node(None, value.place), rest, value)
    return Node(children, tree.place if isinstance(tree.value, dict) else value.place)


def _includes(node: Node) -> dict[str, Place]:
    """The `config_paths` of a file, resolved, and where they are written."""
    entry = node.get("config_paths")
    if entry is None or entry.value is None:
        return {}
    try:
        entry = Interpolator(node).resolve(entry, ("config_paths",))
    except InterpolationError as error:
        raise ConfigProblems([Problem(entry.place, ("config_paths",), str(error))]) from None
    if not isinstance(entry.value, list) or not all(isinstance(item.value, str) for item in entry.value):
        raise ConfigProblems(
            [Problem(entry.place, ("config_paths",), "must be a list of paths", "write config_paths: [a.yaml, b.yaml]")]
        )
    return {item.value: item.place for item in entry.value}


def _in_order(paths: list[str]) -> list[tuple[Node, Path]]:
    """Every file once, each after all that it includes; breadth first decides which of two includes of one file counts."""
    names = list(dict.fromkeys(paths))
    top = len(names)
    folders = [Path()] * top
    places: list[Place | None] = [None] * top
    read: list[tuple[Node, Path]] = []
    included: list[list[int]] = []
    for index in range(MAX_FILES):
        if index == len(names):
            break
        file = find(names[index], folders[index])
        node = _read(names[index], file, folders[index], places[index])
        read.append((node, file))
        included.append([])
        for name, place in _includes(node).items():
            if name not in names:
                included[index].append(len(names))
                names.append(name)
                folders.append(file.parent)
                places.append(place)
    else:
        raise ConfigError(f"the configuration includes more than {MAX_FILES} files", path=names[0])
    order: list[tuple[Node, Path]] = []

    def visit(index: int) -> None:
        for child in included[index]:
            visit(child)
        order.append(read[index])

    for index in range(top):
        visit(index)
    return order


MAX_FILES = 200


def _read(name: str, file: Path, folder: Path = Path(), place: Place | None = None) -> Node:
    try:
        node = yaml.load(file, name if Path(name).is_absolute() else str(file))
    except FileNotFoundError:
        looked = ", ".join(dict.fromkeys(str(root.resolve() / name) for root in roots(folder)))
        path, line = place or ("", 0)
        raise ConfigError(f"the configuration file {name} was not found", f"looked for {looked}", path, line) from None
    if not isinstance(node.value, dict):
        raise ConfigError(
            "is not a mapping of server instances", "see `gymdata envs show math` for an example", name, node.place.line
        )
    return node


class Directives:
    """Carries out `_inherit_from`, `${inherit_from:x}` (move), `_copy`, `${copy:x}` (copy) and `_delete_key`. `tree` is the result."""

    def __init__(self, tree: Node) -> None:
        self.frozen = tree
        self.tree = copy.deepcopy(tree)
        self.visit(self.tree, (), 0)

    def visit(self, node: Node, path: tuple[Key, ...], depth: int) -> None:
        if isinstance(node.value, list):
            for index, child in enumerate(node.value):
                self.visit(child, (*path, index), depth)
        if isinstance(node.value, dict):
            for key in list(node.value):
                if key in node.value:
                    node.value[key] = self.entry(node.value[key], (*path, key), depth)

    def entry(self, node: Node, path: tuple[Key, ...], depth: int) -> Node:
        """What stands at `path` once its directives are done."""
        later: set[str] = set()
        if isinstance(node.value, dict) and "_delete_key" in node.value:
            names = {name.strip() for name in str(node.value.pop("_delete_key").value).split(",")}
            later = {name for name in names if node.value.pop(name, None) is None}
        self.visit(node, path, depth)
        source, moves = self.source(node)
        if not source:
            return node
        if depth > 30:
            raise ConfigProblems([Problem(node.place, path, f"inherits from {source} in a circle")])
        names = source.split(".")
        if any(
            above is not None and above.value == MISSING
            for above in (self.frozen.get(*names[:n]) for n in range(1, len(names) + 1))
        ):
            return Node(MISSING, node.place)
        found = self.frozen.get(*names)
        if found is None:
            raise ConfigProblems([Problem(node.place, path, f"inherits from `{source}`, which the configuration does not have")])
        holder = self.tree.get(*names[:-1])
        if moves and holder is not None and isinstance(holder.value, dict):
            holder.value.pop(names[-1], None)
        result = self.entry(copy.deepcopy(found), tuple(names), depth + 1)
        if isinstance(node.value, dict):
            if not isinstance(result.value, dict):
                raise ConfigProblems(
                    [Problem(node.place, path, f"inherits from `{source}`, which is no mapping ({result.place})")]
                )
            result = merge(result, node)
        if isinstance(result.value, dict):
            for name in later:
                if result.value.pop(name, None) is None:
                    raise ConfigProblems([Problem(node.place, path, f"`_delete_key` names `{name}`, which is not there")])
        return result

    @staticmethod
    def source(node: Node) -> tuple[str, bool]:
        """The path that a node inherits from, or an empty text; and whether that moves it."""
        if isinstance(node.value, dict):
            for key in ("_inherit_from", "_copy"):
                if key in node.value:
                    return str(node.value.pop(key).value), key == "_inherit_from"
        elif isinstance(node.value, str):
            for prefix in ("${inherit_from:", "${copy:"):
                if node.value.startswith(prefix):
                    return node.value.removeprefix(prefix).removesuffix("}").strip(), prefix == "${inherit_from:"
        return "", False
