"""The JSON Schema of an environment's YAML, for editors and for people who write one by hand."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gymdata.environments.model import DatasetConfig, Domain, Extension


class Body(BaseModel):
    """The body of a server. Keys that are not listed here belong to the implementation."""

    model_config = ConfigDict(extra="allow")

    entrypoint: str | None = Field(default=None, description="Without it NeMo Gym takes the block for no server.")
    domain: Domain | None = Field(default=None, description="Required for a resources server.")
    datasets: list[DatasetConfig] | None = None


Servers = Annotated[dict[str, Body], Field(min_length=1, max_length=1, description="One implementation, by name.")]


class Instance(BaseModel):
    """A server instance: exactly one of the four server types. A mapping with none of them is no server and may hold anything."""

    model_config = ConfigDict(extra="allow")

    responses_api_agents: Servers | None = None
    resources_servers: Servers | None = None
    responses_api_models: Servers | None = None
    environment_servers: Servers | None = None


class EnvironmentConfig(BaseModel):
    """A NeMo Gym configuration once `${…}`, `_inherit_from`, `_copy`, `_delete_key` and `???` are carried out."""

    model_config = ConfigDict(extra="allow", title="gymdata environment")
    __pydantic_extra__: dict[str, Instance | list[JsonValue] | str | int | float | bool | None] = Field(init=False)  # pyright: ignore

    config_paths: list[str] = Field(default=[], description="Files included under this one.")
    gymdata: Extension = Extension()


def environment_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of an environment's YAML."""
    schema = EnvironmentConfig.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
