"""The create-params of a task row: what is sent to the model."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from gymdata.rows.schema.content import text_or_list
from gymdata.rows.schema.items import InputItem
from gymdata.rows.schema.settings import (
    ContextManagement,
    Conversation,
    Includable,
    Moderation,
    PromptTemplate,
    Reasoning,
    ServiceTier,
    StreamOptions,
    TextSettings,
)
from gymdata.rows.schema.tools import Tool, ToolChoice, text_or_object


@with_config(ConfigDict(extra="forbid"))
class CreateParams(TypedDict):
    """A request in the form of the OpenAI Responses API, not streamed. Unknown keys are refused."""

    background: NotRequired[bool | None]
    include: NotRequired[list[Includable] | None]
    input: Annotated[Annotated[str, Tag("@text")] | Annotated[list[InputItem], Tag("@list")], Discriminator(text_or_list)]
    instructions: NotRequired[str | None]
    max_output_tokens: NotRequired[int | None]
    max_tool_calls: NotRequired[int | None]
    metadata: NotRequired[dict[str, str] | None]
    model: NotRequired[str | None]
    parallel_tool_calls: NotRequired[bool]
    previous_response_id: NotRequired[str | None]
    prompt: NotRequired[PromptTemplate | None]
    reasoning: NotRequired[Reasoning | None]
    service_tier: NotRequired[ServiceTier | None]
    store: NotRequired[bool | None]
    context_management: NotRequired[list[ContextManagement] | None]
    conversation: NotRequired[
        Annotated[Annotated[str, Tag("@text")] | Annotated[Conversation, Tag("@object")], Discriminator(text_or_object)] | None
    ]
    moderation: NotRequired[Moderation | None]
    prompt_cache_key: NotRequired[str | None]
    prompt_cache_retention: NotRequired[Literal["in_memory", "24h"] | None]
    safety_identifier: NotRequired[str | None]
    stream_options: NotRequired[StreamOptions | None]
    temperature: NotRequired[float | None]
    text: NotRequired[TextSettings | None]
    tool_choice: NotRequired[ToolChoice]
    tools: NotRequired[list[Tool]]
    top_logprobs: NotRequired[int | None]
    top_p: NotRequired[float | None]
    truncation: NotRequired[Literal["auto", "disabled"] | None]
    user: NotRequired[str | None]
    stream: NotRequired[Literal[False] | None]


def as_replayed(params: Any) -> Any:
    """Smooth what a model's answer spells otherwise than a request, so that answers can be replayed."""
    if not isinstance(params, dict):
        return params
    params = dict(params)
    for key, smooth in (("input", _replayed_item), ("tools", _replayed_tool)):
        if isinstance(params.get(key), list):
            params[key] = [smooth(member) if isinstance(member, dict) else member for member in params[key]]
    return params


def _replayed_item(item: dict[str, Any]) -> dict[str, Any]:
    if item.get("type") == "additional_tools":
        return {**item, "role": "developer"}
    if item.get("type") == "computer_call_output" and item.get("status") == "failed":
        return {key: value for key, value in item.items() if key != "status"}
    return item


def _replayed_tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "defer_loading": False} if "defer_loading" in tool and tool["defer_loading"] is None else tool


@with_config(ConfigDict(extra="ignore"))
class TaskRow(TypedDict):
    """A task: the request, and beside it whatever the verifier needs."""

    responses_create_params: Annotated[CreateParams, BeforeValidator(as_replayed)]
    _ng_rollout_id: NotRequired[str | None]
    capture_rollout_id: NotRequired[str | None]


@with_config(ConfigDict(extra="forbid"))
class TaskId(TypedDict):
    """Name of a task within a taskset."""

    taskset: Annotated[str, Field(min_length=1)]
    task_id: Annotated[str, Field(min_length=1)]


@with_config(ConfigDict(extra="ignore"))
class MaterializedTask(TypedDict):
    """A task that names its taskset; the environment alone knows what `task_input` holds."""

    task_id: TaskId
    task_input: dict[str, Any]


def is_materialized(row: dict[str, Any]) -> bool:
    """Whether a row is a materialized task, well-formed or not."""
    return isinstance(row.get("task_id"), dict) and "task_input" in row
