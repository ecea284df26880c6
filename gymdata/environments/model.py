"""The types of an environment: data sets and their sources, server instances, row fields, and the environment that holds them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gymdata.environments import licenses
from gymdata.environments.prompt import Prompt
from gymdata.environments.yaml import Place
from gymdata.errors import ConfigError

ServerType = Literal["responses_api_agents", "resources_servers", "responses_api_models", "environment_servers"]
DatasetType = Literal["train", "validation", "example", "benchmark"]
JsonType = Literal["string", "integer", "number", "boolean", "array", "object"]
Domain = Literal[
    "math", "coding", "agent", "knowledge", "instruction_following", "long_context", "safety", "games", "translation", "e2e", "rlhf", "other"
]  # fmt: skip

_IDENTIFIER_DOC = "Old spelling of `source`."


def _not_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"must be a whole number, not {str(value).lower()}")
    return value


Count = Annotated[int, BeforeValidator(_not_boolean)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GitlabIdentifier(_Frozen):
    """A file of a version of a model in a GitLab (MLflow) registry."""

    dataset_name: str
    version: str
    artifact_fpath: str


class HuggingFaceIdentifier(_Frozen):
    """A data set on the Hugging Face Hub: one file of it, one split, or all of it. `split` and `revision` are gymdata's."""

    repo_id: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")
    artifact_fpath: str | None = None
    split: str | None = None
    revision: str | None = Field(default=None, description="A branch, tag or commit of the repository.")

    @model_validator(mode="after")
    def _one_way_in(self) -> HuggingFaceIdentifier:
        if self.artifact_fpath is not None and self.split is not None:
            raise ValueError("`artifact_fpath` names one file and `split` a split: give one of them")
        return self


class GitlabSource(GitlabIdentifier):
    type: Literal["gitlab"]


class HuggingFaceSource(HuggingFaceIdentifier):
    type: Literal["huggingface"]


Source = Annotated[GitlabSource | HuggingFaceSource, Field(discriminator="type")]


class DatasetConfig(_Frozen):
    """One entry of `datasets`, as NeMo Gym 0.7.0 takes it; `start_idx`, `end_idx`, and `prompt_config` on every type, are honoured too."""

    name: str = Field(min_length=1)
    type: DatasetType
    jsonl_fpath: str = Field(
        min_length=1, description="Looked for in NEMO_GYM_EXTRA_ROOTS, the working directory, beside the YAML."
    )
    num_repeats: Count = Field(default=1, ge=1, description="Each row is written this many times, one after the other.")
    license: str | None = Field(
        default=None, description="NeMo Gym's string or an SPDX identifier. Required for train and validation."
    )
    source: Source | None = None
    gitlab_identifier: GitlabIdentifier | None = Field(default=None, description=_IDENTIFIER_DOC)
    huggingface_identifier: HuggingFaceIdentifier | None = Field(default=None, description=_IDENTIFIER_DOC)
    start_idx: Count | None = Field(default=None, ge=0, description="First row used, counted from 0.")
    end_idx: Count | None = Field(default=None, ge=0, description="First row no longer used, counted from 0.")
    prompt_config: str | None = Field(default=None, description="A prompt YAML from which each row's input is made.")
    prepare_script: str | None = None
    prepare_dependencies: tuple[str, ...] = ()
    taskset: str | None = Field(default=None, min_length=1)
    agent: str | None = Field(default=None, description="Which of several agents of a resources server runs these rows.")

    _place: Place = PrivateAttr(default=Place("", 0))
    _instance: str = PrivateAttr(default="")
    _path: Path = PrivateAttr(default=Path())
    _prompt: Prompt | None = PrivateAttr(default=None)

    @field_validator("license", mode="after")
    @classmethod
    def _known_license(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is None or info.data.get("type") == "benchmark":  # NeMo Gym reads no licence of a benchmark
            return name
        return licenses.canonical(name)

    @model_validator(mode="after")
    def _complete(self) -> DatasetConfig:
        if self.type in ("train", "validation") and self.license is None:
            raise ValueError(f"a {self.type} data set needs a `license`")
        if self.type == "benchmark" and self.prepare_script is None:
            raise ValueError("a benchmark needs a `prepare_script`")
        if self.end_idx is not None and self.end_idx <= (self.start_idx or 0):
            raise ValueError(f"`end_idx` {self.end_idx} leaves no row after `start_idx` {self.start_idx or 0}")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> DatasetConfig:
        legacy = {"gitlab": self.gitlab_identifier, "huggingface": self.huggingface_identifier}
        given = {kind: identifier for kind, identifier in legacy.items() if identifier is not None}
        if self.source is None:
            if len(given) == 1:
                (kind, identifier), *_ = given.items()
                model = GitlabSource if kind == "gitlab" else HuggingFaceSource
                object.__setattr__(self, "source", model.model_validate({"type": kind, **identifier.model_dump()}))
            return self
        if given:
            names = " and ".join(f"`{kind}_identifier`" for kind in given)
            raise ValueError(f"the source is given twice: by `source` and by {names}; keep `source`")
        model = GitlabIdentifier if isinstance(self.source, GitlabSource) else HuggingFaceIdentifier
        object.__setattr__(self, f"{self.source.type}_identifier", model.model_validate(self.source.model_dump(exclude={"type"})))
        return self

    @property
    def place(self) -> Place:
        """Where the entry was written."""
        return self._place

    @property
    def instance(self) -> str:
        """The server instance that declares the entry: the `task_source` of its rows."""
        return self._instance

    @property
    def path(self) -> Path:
        """The file to read, found as NeMo Gym finds it; relative to the working directory if there is none yet."""
        return self._path

    @property
    def prompt(self) -> Prompt | None:
        """The prompt that `prompt_config` names, loaded."""
        return self._prompt

    def bound(self, instance: str, place: Place, path: Path, prompt: Prompt | None = None) -> DatasetConfig:
        """The same entry, knowing who declares it, where it was written, which file to read and its prompt."""
        copy = self.model_copy()
        copy._instance, copy._place, copy._path, copy._prompt = instance, place, path, prompt
        return copy

    def metrics_header(self, aggregate: bool = False) -> dict[str, Any]:
        """What NeMo Gym writes before the metrics: beside a source file, or (`aggregate`) of a split in the output directory."""
        data = self.model_dump(mode="json")
        for key in ("source", "huggingface_identifier"):
            if data[key] is not None:
                kept = {name: value for name, value in data[key].items() if name not in ("split", "revision", "type")}
                data[key] = {"type": data[key]["type"], **kept} if key == "source" else kept
        keys = ["name", "type", "jsonl_fpath"]
        if self.type == "benchmark":
            keys += ["prepare_script", "prompt_config", "num_repeats", "prepare_dependencies"]
            return {key: data[key] for key in keys}
        if aggregate:
            keys += [key for key in ("prepare_script", "prepare_dependencies") if data[key]]
        keys += ["num_repeats", "source", "gitlab_identifier", "huggingface_identifier", "license"]
        return {key: data[key] for key in keys}


@dataclass(frozen=True)
class ServerInstance:
    """One server of a configuration. `references` are the servers that its body names, by field: (type, instance name)."""

    name: str
    server_type: ServerType
    implementation: str
    domain: Domain | None = None
    datasets: tuple[DatasetConfig, ...] = ()
    references: Mapping[str, tuple[str, str]] = field(default_factory=dict)


class RowField(_Frozen):
    """A key of the rows that the environment's verifier reads."""

    type: JsonType
    items: JsonType | None = Field(default=None, description="The type of an array's items.")
    required: bool = True
    description: str = ""
    also_in: str = Field(default="", description="A key of the row under which the field may stand instead.")
    path: str = Field(default="", description="The dotted path in the row; the key that the field has in `fields`.")

    def locate(self, row: Mapping[str, Any]) -> tuple[bool, Any]:
        """Whether the row has the field, and its value."""
        prefixes = [[], [self.also_in]] if self.also_in else [[]]
        for prefix in prefixes:
            value: Any = row
            for key in [*prefix, *self.path.split(".")]:
                if not isinstance(value, Mapping) or key not in value:
                    break
                value = value[key]
            else:
                return True, value
        return False, None


class Extension(_Frozen):
    """The top-level `gymdata` block: what gymdata knows of an environment beyond NeMo Gym, which ignores the block."""

    description: str = ""
    prompt: str | None = Field(default=None, description="The prompt YAML that the rows' input was made with.")
    fields: dict[str, RowField] = Field(default={}, description="The row fields that the verifier reads, by dotted path.")

    @model_validator(mode="after")
    def _named(self) -> Extension:
        object.__setattr__(self, "fields", {path: field.model_copy(update={"path": path}) for path, field in self.fields.items()})
        return self


@dataclass(frozen=True)
class Environment:
    """An environment, checked. `config` is the merged configuration with secrets masked; `files` were read for it, in order."""

    name: str
    instances: tuple[ServerInstance, ...]
    description: str = ""
    fields: tuple[RowField, ...] = ()
    prompt: Prompt | None = None
    builtin: bool = False
    files: tuple[Path, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, SecretStr] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def required_fields(self) -> tuple[RowField, ...]:
        """The fields without which a row cannot be scored."""
        return tuple(entry for entry in self.fields if entry.required)

    @property
    def domain(self) -> str | None:
        """The domain of the first resources server."""
        return next((instance.domain for instance in self.instances if instance.domain), None)

    def datasets(self, types: Iterable[str] = get_args(DatasetType), real: bool = False) -> tuple[DatasetConfig, ...]:
        """The data sets of these types, in the order of the configuration.

        A built-in environment's are the rows that come with gymdata, or, with `real`, the public data sets that they stand for: those
        that have a source, with `data/<environment>/source/<type>.jsonl` as the file to read and to download to.
        """
        wanted = set(types)
        found = [entry for instance in self.instances for entry in instance.datasets if entry.type in wanted]
        if not (self.builtin and real):
            return tuple(found)
        moved = []
        for entry in found:
            if entry.source is not None:
                path = Path("data", self.name, "source", f"{entry.type}.jsonl")
                copy = entry.model_copy(update={"jsonl_fpath": path.as_posix()})
                moved.append(copy.bound(entry.instance, entry.place, path, entry.prompt))
        return tuple(moved)

    def agent_of(self, dataset: DatasetConfig) -> str:
        """The agent instance that runs the rows of a data set: its declarer, its `agent`, or the only agent of its resources server.

        Raises ConfigError, with the entry's place, if there is none or more than one.
        """
        agents = {instance.name: instance for instance in self.instances if instance.server_type == "responses_api_agents"}
        file, line = dataset.place
        if dataset.instance in agents:
            if dataset.agent not in (None, dataset.instance):
                raise ConfigError(
                    f"the data set {dataset.name!r} is declared by the agent {dataset.instance!r} but asks for the agent {dataset.agent!r}",
                    "remove `agent`, or declare the data set under the resources server", file, line,
                )  # fmt: skip
            return dataset.instance
        serving = [name for name, agent in agents.items() if ("resources_servers", dataset.instance) in agent.references.values()]
        if dataset.agent in serving:
            return dataset.agent
        if dataset.agent is None and len(serving) == 1:
            return serving[0]
        which = f"none named {dataset.agent!r}" if dataset.agent is not None else "more than one" if serving else "none"
        raise ConfigError(
            f"which agent runs the data set {dataset.name!r} is not clear: of the agents whose `resources_server` is {dataset.instance!r}"
            f" ({', '.join(serving) or 'no agent'}) there is {which}",
            "name one with an `agent:` key in the data set's entry, or stamp rows with task_source", file, line,
        )  # fmt: skip

    def secret(self, name: str) -> SecretStr | None:
        """A secret by its configuration key (`hf_token`, …): from env.yaml or an override, else from the environment (`HF_TOKEN`)."""
        if name in self.secrets:
            return self.secrets[name]
        value = os.environ.get(name.upper())
        return SecretStr(value) if value else None
