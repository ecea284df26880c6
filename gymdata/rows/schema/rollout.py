"""A rollout row: a task row with the model's response and its reward."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BeforeValidator, ConfigDict, Discriminator, Tag, with_config
from typing_extensions import TypedDict

from gymdata.rows.schema import calls, items
from gymdata.rows.schema.calls import KEEP, Progress
from gymdata.rows.schema.content import PlainContent, text_or_list
from gymdata.rows.schema.request import TaskRow
from gymdata.rows.schema.settings import Conversation, PromptTemplate, Reasoning, ServiceTier, TextSettings
from gymdata.rows.schema.tools import Tool, ToolChoice


@with_config(KEEP)
class FunctionCallOutputItem(TypedDict):
    """A function's result as the provider returns it."""

    id: str
    call_id: str
    output: PlainContent
    status: Progress
    type: Literal["function_call_output"]
    created_by: NotRequired[str]


@with_config(KEEP)
class ComputerCallOutputItem(TypedDict):
    id: str
    call_id: str
    output: calls.ComputerScreenshot
    status: Literal["completed", "incomplete", "failed", "in_progress"]
    type: Literal["computer_call_output"]
    acknowledged_safety_checks: NotRequired[list[calls.SafetyCheck]]
    created_by: NotRequired[str]


@with_config(KEEP)
class CustomToolCallOutputItem(TypedDict):
    call_id: str
    output: PlainContent
    type: Literal["custom_tool_call_output"]
    id: str
    status: Progress
    created_by: NotRequired[str]


@with_config(KEEP)
class McpApprovalResponseItem(TypedDict):
    id: str
    approval_request_id: str
    approve: bool
    type: Literal["mcp_approval_response"]
    reason: NotRequired[str]


@with_config(KEEP)
class AdditionalToolsItem(TypedDict):
    id: str
    role: Literal["unknown", "user", "assistant", "system", "critic", "discriminator", "developer", "tool"]
    tools: list[Tool]
    type: Literal["additional_tools"]


def output_kind(item: Any) -> str | None:
    """The kind of an output item; unlike in a request, it must have a `type`."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return None
    if item["type"] == "message":
        return items.message_kind(item)
    if item["type"] == "function_call_output":
        done = isinstance(item.get("id"), str) and item.get("status") in ("in_progress", "completed", "incomplete")
        return "@function_call_output_item" if done else "@function_call_output"
    return f"@{item['type']}"


OutputItem = Annotated[
    Annotated[items.Message, Tag("@message")]
    | Annotated[items.InputMessage, Tag("@input_message")]
    | Annotated[items.OutputMessage, Tag("@output_message")]
    | Annotated[items.FunctionCall, Tag("@function_call")]
    | Annotated[items.FunctionCallOutput, Tag("@function_call_output")]
    | Annotated[FunctionCallOutputItem, Tag("@function_call_output_item")]
    | Annotated[items.Reasoning, Tag("@reasoning")]
    | Annotated[calls.McpCall, Tag("@mcp_call")]
    | Annotated[calls.McpListTools, Tag("@mcp_list_tools")]
    | Annotated[calls.McpApprovalRequest, Tag("@mcp_approval_request")]
    | Annotated[McpApprovalResponseItem, Tag("@mcp_approval_response")]
    | Annotated[calls.FileSearchCall, Tag("@file_search_call")]
    | Annotated[calls.WebSearchCall, Tag("@web_search_call")]
    | Annotated[calls.ComputerCall, Tag("@computer_call")]
    | Annotated[ComputerCallOutputItem, Tag("@computer_call_output")]
    | Annotated[calls.ImageGenerationCall, Tag("@image_generation_call")]
    | Annotated[calls.CodeInterpreterCall, Tag("@code_interpreter_call")]
    | Annotated[calls.LocalShellCall, Tag("@local_shell_call")]
    | Annotated[calls.LocalShellCallOutput, Tag("@local_shell_call_output")]
    | Annotated[calls.CustomToolCall, Tag("@custom_tool_call")]
    | Annotated[CustomToolCallOutputItem, Tag("@custom_tool_call_output")]
    | Annotated[calls.ApplyPatchCall, Tag("@apply_patch_call")]
    | Annotated[calls.ApplyPatchCallOutput, Tag("@apply_patch_call_output")]
    | Annotated[calls.ShellCall, Tag("@shell_call")]
    | Annotated[calls.ShellCallOutput, Tag("@shell_call_output")]
    | Annotated[calls.ToolSearchCall, Tag("@tool_search_call")]
    | Annotated[calls.ToolSearchOutput, Tag("@tool_search_output")]
    | Annotated[calls.Compaction, Tag("@compaction")]
    | Annotated[AdditionalToolsItem, Tag("@additional_tools")],
    Discriminator(output_kind),
    BeforeValidator(items.whole_token_ids),
]


class ResponseError(TypedDict):
    code: Literal[
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    ]
    message: str


class IncompleteDetails(TypedDict):
    reason: NotRequired[Literal["max_output_tokens", "content_filter"]]


class InputTokensDetails(TypedDict):
    cached_tokens: int | None


class OutputTokensDetails(TypedDict):
    reasoning_tokens: int | None


class Usage(TypedDict):
    """Tokens read and written."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ModerationResult(TypedDict):
    categories: dict[str, bool]
    category_applied_input_types: dict[str, list[Literal["text", "image"]]]
    category_scores: dict[str, float]
    flagged: bool
    model: str
    type: Literal["moderation_result"]


class ModerationError(TypedDict):
    code: str
    message: str
    type: Literal["error"]


class ModerationReport(TypedDict):
    input: Annotated[ModerationResult | ModerationError, Discriminator("type")]
    output: Annotated[ModerationResult | ModerationError, Discriminator("type")]


@with_config(KEEP)
class Response(TypedDict):
    """The model's answer in the form of the Responses API. A list of `instructions` is not looked into."""

    id: str
    created_at: float
    error: NotRequired[ResponseError]
    incomplete_details: NotRequired[IncompleteDetails]
    instructions: NotRequired[
        Annotated[Annotated[str, Tag("@text")] | Annotated[list[dict[str, Any]], Tag("@list")], Discriminator(text_or_list)]
    ]
    metadata: NotRequired[dict[str, str]]
    model: str
    object: Literal["response"]
    output: list[OutputItem]
    parallel_tool_calls: bool
    temperature: NotRequired[float]
    tool_choice: ToolChoice
    tools: list[Tool]
    top_p: NotRequired[float]
    background: NotRequired[bool]
    completed_at: NotRequired[float]
    conversation: NotRequired[Conversation]
    max_output_tokens: NotRequired[int]
    max_tool_calls: NotRequired[int]
    moderation: NotRequired[ModerationReport]
    previous_response_id: NotRequired[str]
    prompt: NotRequired[PromptTemplate]
    prompt_cache_key: NotRequired[str]
    prompt_cache_retention: NotRequired[Literal["in_memory", "24h"]]
    reasoning: NotRequired[Reasoning]
    safety_identifier: NotRequired[str]
    service_tier: NotRequired[ServiceTier]
    status: NotRequired[Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]]
    text: NotRequired[TextSettings]
    top_logprobs: NotRequired[int]
    truncation: NotRequired[Literal["auto", "disabled"]]
    usage: NotRequired[Usage]
    user: NotRequired[str]


@with_config(ConfigDict(extra="ignore"))
class Outcome(TypedDict):
    """What a rollout adds to its task. A null `response` is let through: old files have it."""

    response: Response | None
    reward: float
    mask_sample: NotRequired[bool]
    failure_kind: NotRequired[str | None]
    failure_reason: NotRequired[str | None]


@with_config(ConfigDict(extra="ignore"))
class RolloutRow(TaskRow, Outcome):
    """A task row, the response to it and the reward of that response."""
