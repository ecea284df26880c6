"""Items of a conversation, and how an item's kind is told from its keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BeforeValidator, ConfigDict, Discriminator, Tag, TypeAdapter, ValidationError, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from gymdata.rows.schema import calls
from gymdata.rows.schema.calls import Progress
from gymdata.rows.schema.content import MessageContent, MessagePart, OutputPart, ResultContent

ROLES = ("user", "assistant", "system", "developer")
OUTPUT_PARTS = ("output_text", "refusal")
DROP = ConfigDict(extra="ignore")


class TokenIds(TypedDict):
    """What a policy sampled, for training: all three lists or none."""

    prompt_token_ids: NotRequired[list[int]]
    generation_token_ids: NotRequired[list[int]]
    generation_log_probs: NotRequired[list[float]]
    routed_experts: NotRequired[str | list[list[list[int]]] | None]


TOKEN_LISTS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


@with_config(DROP)
class Message(TokenIds):
    """A message to the model: text, or parts."""

    content: MessageContent
    role: Literal["user", "assistant", "system", "developer"]
    type: NotRequired[Literal["message"]]
    phase: NotRequired[Literal["commentary", "final_answer"] | None]


@with_config(DROP)
class InputMessage(TokenIds):
    """A message of parts that carries a status."""

    content: list[MessagePart]
    role: Literal["user", "system", "developer"]
    status: NotRequired[Progress]
    type: NotRequired[Literal["message"]]


@with_config(DROP)
class OutputMessage(TokenIds):
    """A message that the model wrote earlier."""

    id: str
    content: list[OutputPart]
    role: NotRequired[Literal["assistant"]]
    status: NotRequired[Progress]
    type: NotRequired[Literal["message"]]
    phase: NotRequired[Literal["commentary", "final_answer"] | None]


@with_config(DROP)
class FunctionCall(TokenIds):
    """A call of a function tool; `arguments` is JSON text."""

    arguments: str
    call_id: str
    name: str
    type: NotRequired[Literal["function_call"]]
    id: NotRequired[str | None]
    status: NotRequired[Progress | None]
    namespace: NotRequired[str | None]


@with_config(DROP)
class FunctionCallOutput(TypedDict):
    """What a called function gave back."""

    call_id: str
    output: ResultContent
    type: NotRequired[Literal["function_call_output"]]
    id: NotRequired[str | None]
    status: NotRequired[Progress | None]


@with_config(ConfigDict(extra="allow"))
class SummaryText(TypedDict):
    text: str
    type: Literal["summary_text"]


@with_config(ConfigDict(extra="allow"))
class ReasoningText(TypedDict):
    text: str
    type: Literal["reasoning_text"]


@with_config(DROP)
class Reasoning(TokenIds):
    """The model's reasoning before a message or a call."""

    id: str
    summary: list[SummaryText]
    type: NotRequired[Literal["reasoning"]]
    encrypted_content: NotRequired[str | None]
    content: NotRequired[list[ReasoningText] | None]


def item_kind(item: Any) -> str | None:
    """The kind of an input item, as NeMo Gym tells it; None where nothing tells.

    Gym takes an untyped item that it cannot tell for an `mcp_list_tools`, whatever it holds. Here it must look like one.
    """
    if not isinstance(item, dict):
        return None
    kind = item.get("type")
    if kind == "message":
        return message_kind(item)
    if isinstance(kind, str):
        return f"@{kind}"
    return _untyped_kind(item) if kind is None else None


def message_kind(item: Mapping[str, Any]) -> str:
    """Which of the three message shapes an item of type `message` has."""
    content = item.get("content")
    if item.get("role") in ("user", "system", "developer"):
        status = item.get("status")
        # A status that is no word at all stops NeMo Gym; the shape that has a status tells so.
        with_status = status in ("in_progress", "completed", "incomplete") or isinstance(status, list | dict)
        return "@input_message" if isinstance(content, list) and with_status else "@message"
    if isinstance(content, list):
        if content and first_part_type(content) in OUTPUT_PARTS:
            return "@output_message"
        if not content and isinstance(item.get("id"), str):
            return "@output_message"
    return "@message"


def first_part_type(content: Any) -> Any:
    """Type of the first part of a content list."""
    if not isinstance(content, list) or not content or not isinstance(content[0], dict):
        return None
    return content[0].get("type") or ("refusal" if "refusal" in content[0] else None)


def _untyped_kind(item: Mapping[str, Any]) -> str | None:
    role, content = item.get("role"), item.get("content")
    has_id = isinstance(item.get("id"), str)
    if isinstance(role, list | dict):
        return None  # no word at all: NeMo Gym stops
    if role in ROLES and isinstance(content, str | list):
        kind = message_kind(item)
        if kind == "@output_message":
            return kind if has_id else None
        return None if first_part_type(content) in OUTPUT_PARTS else kind
    output = isinstance(content, list) and (not content or first_part_type(content) in OUTPUT_PARTS)
    if "role" not in item and has_id and output:
        return "@output_message"
    if "arguments" in item and "name" in item:
        return "@function_call" if "call_id" in item else "@mcp_call"
    if isinstance(item.get("call_id"), str) and "output" in item:
        return "@function_call_output"
    if has_id and isinstance(item.get("summary"), list):
        return "@reasoning"
    return "@mcp_list_tools" if isinstance(item.get("server_label"), str) and "tools" in item else None


@cache
def _token_ids() -> TypeAdapter[TokenIds]:
    return TypeAdapter(TokenIds)


def whole_token_ids(item: Any) -> Any:
    """Token ids come all together or not at all, in an item of any kind."""
    if not isinstance(item, dict):
        return item
    present = {key: item[key] for key in (*TOKEN_LISTS, "routed_experts") if key in item}
    if present:
        missing = [key for key in TOKEN_LISTS if key not in present]
        if missing:
            raise PydanticCustomError("token_ids", "token ids are incomplete", {"missing": missing})
        try:
            _token_ids().validate_python(present)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            raise PydanticCustomError("token_ids_type", "token ids are malformed", {"key": key}) from None
    return item


InputItem = Annotated[
    Annotated[Message, Tag("@message")]
    | Annotated[InputMessage, Tag("@input_message")]
    | Annotated[OutputMessage, Tag("@output_message")]
    | Annotated[FunctionCall, Tag("@function_call")]
    | Annotated[FunctionCallOutput, Tag("@function_call_output")]
    | Annotated[Reasoning, Tag("@reasoning")]
    | Annotated[calls.McpCall, Tag("@mcp_call")]
    | Annotated[calls.McpListTools, Tag("@mcp_list_tools")]
    | Annotated[calls.McpApprovalRequest, Tag("@mcp_approval_request")]
    | Annotated[calls.McpApprovalResponse, Tag("@mcp_approval_response")]
    | Annotated[calls.FileSearchCall, Tag("@file_search_call")]
    | Annotated[calls.WebSearchCall, Tag("@web_search_call")]
    | Annotated[calls.ComputerCall, Tag("@computer_call")]
    | Annotated[calls.ComputerCallOutput, Tag("@computer_call_output")]
    | Annotated[calls.ImageGenerationCall, Tag("@image_generation_call")]
    | Annotated[calls.CodeInterpreterCall, Tag("@code_interpreter_call")]
    | Annotated[calls.LocalShellCall, Tag("@local_shell_call")]
    | Annotated[calls.LocalShellCallOutput, Tag("@local_shell_call_output")]
    | Annotated[calls.CustomToolCall, Tag("@custom_tool_call")]
    | Annotated[calls.CustomToolCallOutput, Tag("@custom_tool_call_output")]
    | Annotated[calls.ApplyPatchCall, Tag("@apply_patch_call")]
    | Annotated[calls.ApplyPatchCallOutput, Tag("@apply_patch_call_output")]
    | Annotated[calls.ShellCall, Tag("@shell_call")]
    | Annotated[calls.ShellCallOutput, Tag("@shell_call_output")]
    | Annotated[calls.ToolSearchCall, Tag("@tool_search_call")]
    | Annotated[calls.ToolSearchOutput, Tag("@tool_search_output")]
    | Annotated[calls.Compaction, Tag("@compaction")]
    | Annotated[calls.CompactionTrigger, Tag("@compaction_trigger")]
    | Annotated[calls.AdditionalTools, Tag("@additional_tools")],
    Discriminator(item_kind),
    BeforeValidator(whole_token_ids),
]
