"""NeMo Gym configuration -> Environment: composes the files, resolves the data sets' entries, reports every wrong one at its line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from gymdata.environments import licenses
from gymdata.environments import prompt as prompts
from gymdata.environments.compose import NOWHERE, compose, find
from gymdata.environments.interpolation import InterpolationError, Interpolator, is_interpolation
from gymdata.environments.model import DatasetConfig, Domain, Environment, Extension, ServerInstance, ServerType
from gymdata.environments.problems import ConfigProblems, Problem, did_you_mean
from gymdata.environments.yaml import Key, Node, dotted
from gymdata.errors import ConfigError

SERVER_TYPES = get_args(ServerType)
EXTENSION = "gymdata"
MASK = "****"

# Top-level keys that NeMo Gym 0.7.0 reads as settings and never as server instances, and gymdata's own.
_RESERVED = """config_paths entrypoint default_host head_server disallowed_ports head_server_deps python_version pip_install_verbose
    use_absolute_ip uv_pip_set_python skip_venv_if_present hf_token ray_head_node_address port_range_low port_range_high dry_run
    server_spinup_timeout_seconds model_endpoint_readiness_timeout_seconds allow_openai_version_skew uv_cache_dir
    uv_lock_timeout_seconds uv_venv_dir results_dir cache_dir _inherit_from _copy nemo_gym_log_dir verbose json query
    observability_enabled model_call_capture_dir token_id_capture component_name skip_verification skip_verification_reward telemetry
    allow_unsupported_pairing environment_server_name environment_server_routes environment_routing_mode gymdata"""
RESERVED = frozenset(_RESERVED.split())
_SECRET = ("token", "key", "secret", "password", "credential", "header")


def load_config(
    paths: Sequence[str | Path],
    overrides: Sequence[str] = (),
    *,
    name: str = "",
    env_yaml: str | Path | None = "env.yaml",
    locate: Callable[[str, Path], Path] = lambda path, folder: find(path, folder),
    builtin: bool = False,
) -> Environment:
    """The environment that the files and overrides describe together; see `compose` for which of them wins.

    `name` defaults to the first file's stem; `locate` finds a data or prompt file named in a file of a folder.
    Raises ConfigError for a file that cannot be read, ConfigProblems with every wrong entry, UsageError for a bad override.
    """
    tree, files = compose(paths, overrides, env_yaml)
    # YAML reads the name 123 as a number.
    tree = Node({str(key): node for key, node in tree.value.items()}, tree.place)
    check = _Check(tree, locate)
    extension = check.extension()
    instances = tuple(instance for key, node in tree.value.items() if (instance := check.instance(key, node)) is not None)
    check.refer()
    if check.problems:
        raise ConfigProblems(check.problems)
    shared = check.prompt(extension.prompt, tree.get(EXTENSION, "prompt"), (EXTENSION, "prompt"))
    if check.problems:
        raise ConfigProblems(check.problems)
    own = {key: node.plain() for key, node in tree.value.items() if not isinstance(node.value, dict)}
    return Environment(
        name=name or (Path(paths[0]).stem if paths else "config"),
        instances=instances,
        description=extension.description,
        fields=tuple(extension.fields.values()),
        prompt=shared,
        builtin=builtin,
        files=tuple(files),
        config=masked({key: node.plain() for key, node in check.resolved.value.items() if node.place != NOWHERE}),
        settings={key: value for key, value in own.items() if not is_secret(key)},
        secrets={key: SecretStr(str(value)) for key, value in own.items() if is_secret(key) and value not in (None, "")},
        warnings=tuple(check.warnings),
    )


def is_secret(key: str) -> bool:
    """Whether a key, by its name, holds something that is never shown."""
    return any(part in key.lower() for part in _SECRET)


def _counts(key: Any, value: Any) -> bool:
    """Whether a value is a number of tokens (`max_output_tokens`), which is no secret."""
    return str(key).endswith("_tokens") and isinstance(value, int)


def masked(value: Any, hidden: bool = False) -> Any:
    """A plain value with everything under a secret-looking key replaced by `****`. Empty values and interpolations show."""
    if isinstance(value, dict):
        return {
            key: masked(child, hidden or (is_secret(str(key)) and not isinstance(child, dict) and not _counts(key, child)))
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [masked(child, hidden) for child in value]
    return MASK if hidden and value not in (None, "") and not is_interpolation(value) else value


M = TypeVar("M", bound=BaseModel)


class _Check:
    """Walks a merged tree, collecting problems. `resolved` is the tree with the data sets' entries resolved in place."""

    def __init__(self, tree: Node, locate: Callable[[str, Path], Path]) -> None:
        self.tree, self.locate = tree, locate
        self.resolved = Node(dict(tree.value), tree.place)
        self.interpolator = Interpolator(tree)
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.references: dict[tuple[Key, ...], dict[str, tuple[str, str]]] = {}

    def instance(self, name: str, node: Node) -> ServerInstance | None:
        """The server instance of a top-level key; None, as in NeMo Gym, for settings and for mappings that are no server."""
        node = self.settled(node, (name,)) if is_interpolation(node.value) else node
        if name in RESERVED or not isinstance(node.value, dict):
            return None
        types = [key for key in node.value if key in SERVER_TYPES]
        if not types:
            for key, child in node.value.items():
                if (hint := did_you_mean(str(key), SERVER_TYPES)) and isinstance(child.value, dict):
                    self.wrong(child, (name, key), "is no server type, so this instance would be ignored", hint)
            return None
        server_type = types[0]
        if len(types) > 1:
            return self.wrong(node, (name,), f"has {len(types)} server types: {', '.join(types)}", "make one instance of each")
        servers = node.value[server_type]
        if not isinstance(servers.value, dict) or len(servers.value) != 1:
            return self.wrong(
                servers, (name, server_type), "must hold exactly one implementation", "its key is the implementation's name"
            )
        ((implementation, body),) = servers.value.items()
        path: tuple[Key, ...] = (name, server_type, implementation)
        if not isinstance(body.value, dict):
            return self.wrong(body, path, "must be a mapping", "it needs an `entrypoint`, for instance app.py")
        before = len(self.problems)
        named = {str(field): found for field, child in body.value.items() if (found := self.reference(child, (*path, field)))}
        self.references[path] = named
        datasets = self.datasets(name, server_type, body, path)
        domain = self.domain(server_type, body, path, bool(datasets))
        if datasets and "entrypoint" not in body.value:
            self.wrong(
                body,
                (*path, "entrypoint"),
                "is required: without it NeMo Gym takes this for no server",
                "write entrypoint: app.py",
            )
        if len(self.problems) > before:
            return None
        return ServerInstance(
            name=name,
            server_type=server_type,
            implementation=str(implementation),
            domain=domain,
            datasets=datasets,
            references=named,
        )

    def domain(self, server_type: str, body: Node, path: tuple[Key, ...], needed: bool) -> Any:
        node = body.get("domain")
        if server_type != "resources_servers":
            return None
        if node is None or node.value is None:
            if needed or "entrypoint" in body.value:
                self.wrong(
                    node or body, (*path, "domain"), "is required for a resources server", f"one of {', '.join(get_args(Domain))}"
                )
            return None
        value = self.settled(node, (*path, "domain")).value
        if value not in get_args(Domain):
            hint = did_you_mean(str(value), get_args(Domain)) or f"one of {', '.join(get_args(Domain))}"
            return self.wrong(node, (*path, "domain"), f"{value!r} is no domain", hint)
        return value

    def datasets(self, instance: str, server_type: str, body: Node, path: tuple[Key, ...]) -> tuple[DatasetConfig, ...]:
        """The checked entries of a body's `datasets`; wrong ones are left out and reported."""
        node, path = body.get("datasets"), (*path, "datasets")
        if node is None or node.value is None:
            return ()
        node = self.settled(node, path)
        if not isinstance(node.value, list):
            return self.wrong(node, path, "must be a list of data sets", "start each entry with a dash") or ()
        if node.value and server_type not in ("responses_api_agents", "resources_servers"):
            self.wrong(
                node, path, f"data sets cannot stand under {server_type}", "declare them on the resources server or on its agent"
            )
            return ()
        self.keep(path, node)
        entries = [self.dataset(instance, entry, (*path, index)) for index, entry in enumerate(node.value)]
        return tuple(entry for entry in entries if entry is not None)

    def dataset(self, instance: str, node: Node, path: tuple[Key, ...]) -> DatasetConfig | None:
        if not isinstance(node.value, dict):
            return self.wrong(node, path, "must be a mapping", "a data set has a name, a type and a jsonl_fpath")
        entry = self.validated(DatasetConfig, node, path)
        if entry is None:
            return None
        if entry.license is not None and entry.type != "benchmark" and not licenses.known_to_gym(entry.license):
            self.warnings.append(
                f"{node.place}: NeMo Gym 0.7.0 does not know the licence {entry.license!r} and would refuse this entry"
            )
        for key, child in node.value.items():
            if (
                isinstance(child.value, int | float)
                and child.text not in (str(child.value), "true", "false")
                and "${" not in child.text
            ):
                self.warnings.append(f"{child.place}: {dotted((*path, key))}: YAML reads `{child.text}` as {child.value}")
        file = node.value["jsonl_fpath"].place.file
        prompt = self.prompt(entry.prompt_config, node.get("prompt_config"), (*path, "prompt_config"))
        return entry.bound(instance, node.place, self.locate(entry.jsonl_fpath, Path(file).parent), prompt)

    def prompt(self, name: str | None, node: Node | None, path: tuple[Key, ...]) -> prompts.Prompt | None:
        if name is None or node is None:
            return None
        try:
            return prompts.load(self.locate(name, Path(node.place.file).parent), name)
        except FileNotFoundError:
            return self.wrong(
                node, path, f"there is no file {name}", "paths are looked for from the working directory, then beside the YAML"
            )
        except ConfigProblems as error:
            self.problems += error.problems
        except ConfigError as error:
            self.wrong(node, path, error.message, error.hint)
        return None

    def extension(self) -> Extension:
        node = self.tree.get(EXTENSION)
        if node is None:
            return Extension()
        return self.validated(Extension, self.settled(node, (EXTENSION,)), (EXTENSION,)) or Extension()

    def reference(self, node: Node, path: tuple[Key, ...]) -> tuple[str, str] | None:
        """(server type, instance name) if a field of a body refers to a server."""
        if not isinstance(node.value, dict) or not {"type", "name"} <= set(node.value):
            return None
        values = [self.settled(node.value[key], (*path, key)).value for key in ("type", "name")]
        return (values[0], values[1]) if values[0] in SERVER_TYPES and isinstance(values[1], str) else None

    def refer(self) -> None:
        """Every agent and resources server that a body refers to must be there; a model that is not is a warning: data needs none."""
        known = {(str(kind), str(name)) for name, kind, _ in self.references} | {("responses_api_models", "policy_model")}
        for path, named in self.references.items():
            for field, (server_type, name) in named.items():
                if path[1] == "environment_servers" or (server_type, name) in known:
                    continue
                at = self.tree.get(*path, field, "name") or self.tree
                if server_type == "responses_api_models":
                    self.warnings.append(f"{at.place}: the model {name!r} is not defined; rollouts will need it")
                else:
                    same = [other for kind, other in known if kind == server_type]
                    hint = did_you_mean(name, same) or f"there is {', '.join(sorted(same)) or 'none'}"
                    self.wrong(at, (*path, field, "name"), f"refers to {server_type} {name!r}, which is not defined", hint)

    def settled(self, node: Node, path: tuple[Key, ...]) -> Node:
        """The node with its interpolations resolved; each that cannot be is reported and left as it is."""
        if isinstance(node.value, dict):
            return Node({key: self.settled(child, (*path, key)) for key, child in node.value.items()}, node.place)
        if isinstance(node.value, list):
            return Node([self.settled(child, (*path, index)) for index, child in enumerate(node.value)], node.place)
        try:
            return self.interpolator.resolve(node, path)
        except InterpolationError as error:
            self.wrong(
                node, path, str(error), "define the key or the environment variable, or give a default: ${oc.env:NAME,default}"
            )
        return node

    def validated(self, model: type[M], node: Node, path: tuple[Key, ...]) -> M | None:
        """The node as a model; what is wrong with it is reported at the place of the key it is about."""
        try:
            return model.model_validate(node.plain())
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_context=True):
                at, keys = _located(node, detail["loc"])
                if not any(problem.path == (*path, *keys) and is_interpolation(at.value) for problem in self.problems):
                    self.wrong(at, (*path, *keys), *_in_words(detail, at, model))
        return None

    def keep(self, path: tuple[Key, ...], node: Node) -> None:
        """Puts a resolved node into `resolved`, copying the mappings on the way so that `tree` stays as it is."""
        at = self.resolved
        for key in path[:-1]:
            at.value[key] = Node(dict(at.value[key].value), at.value[key].place)
            at = at.value[key]
        at.value[path[-1]] = node

    def wrong(self, node: Node, path: tuple[Key, ...], message: str, hint: str = "") -> None:
        self.problems.append(Problem(node.place, path, message, hint))


def _located(node: Node, loc: Sequence[int | str]) -> tuple[Node, tuple[Key, ...]]:
    """The node that an error is about, and its path; parts of `loc` that name no key (a union's tag) are passed over."""
    keys: tuple[Key, ...] = ()
    for part in loc:
        child = node.get(part)
        if child is not None:
            node, keys = child, (*keys, part)
    last = loc[-1] if loc else ""
    return node, keys if not loc or (keys and keys[-1] == last) else (*keys, last)


def _in_words(detail: Any, node: Node, model: type[BaseModel]) -> tuple[str, str]:
    """A pydantic error as a message and a hint in the user's words."""
    kind, context, value = detail["type"], detail.get("ctx", {}), node.value
    surprise = ""
    if isinstance(value, bool | int | float) and node.text and node.text.lower() != str(value).lower():
        surprise = f" (YAML reads `{node.text}` as {str(value).lower() if isinstance(value, bool) else value})"
    match kind:
        case "missing":
            return "is required", ""
        case "extra_forbidden":
            known = _keys_at(model, detail["loc"])
            return f"unknown key{': NeMo Gym would ignore it silently' if model is DatasetConfig else ''}", did_you_mean(
                detail["loc"][-1], known
            ) or f"known: {', '.join(known)}"
        case "string_type":
            return f"must be text{surprise}", "put the value in quotes"
        case "string_too_short":
            return "must not be empty", ""
        case "int_type" | "int_parsing" | "int_from_float":
            return f"must be a whole number, not {str(node.text or value)[:60]!r}{surprise}", ""
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {value}", ""
        case "literal_error" | "union_tag_invalid":
            value = context.get("tag", value)
            expected = str(context.get("expected") or context.get("expected_tags"))
            options = [option.strip(" '") for option in expected.replace(" or ", ",").split(",") if option.strip()]
            return f"{str(value)[:60]!r} is none of {', '.join(options)}{surprise}", did_you_mean(str(value), options)
        case "union_tag_not_found":
            return "needs a `type`: huggingface or gitlab", ""
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be a mapping", ""
        case "string_pattern_mismatch":
            return f"{str(value)[:60]!r} is not an `owner/name` of the Hub", ""
        case "value_error":
            message, _, hint = str(context["error"]).partition("; ")
            return message + surprise, hint
    return detail["msg"], ""


def _keys_at(model: Any, loc: Sequence[int | str]) -> list[str]:
    """The keys that the mapping holding the last part of `loc` may have."""
    from gymdata.environments import model as types

    nested = {
        "gitlab": types.GitlabSource, "huggingface": types.HuggingFaceSource, "gitlab_identifier": types.GitlabIdentifier,
        "huggingface_identifier": types.HuggingFaceIdentifier, "fields": types.RowField,
    }  # fmt: skip
    holder = next((nested[part] for part in reversed(loc[:-1]) if part in nested), model)
    return [name for name in holder.model_fields if name not in ("path",) or holder is not types.RowField]
