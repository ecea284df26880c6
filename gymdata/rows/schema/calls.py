"""Calls of hosted and client-run tools, and their outcomes, as the OpenAI SDK spells them: unknown keys are kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Discriminator, with_config
from pydantic.config import JsonDict
from typing_extensions import TypedDict

from gymdata.rows.schema.content import PlainContent
from gymdata.rows.schema.tools import Tool
from gymdata.rows.schema.variants import NOT_NULL

Progress = Literal["in_progress", "completed", "incomplete"]
KEEP = ConfigDict(extra="allow")


@with_config(KEEP)
class McpCall(TypedDict):
    id: NotRequired[str]
    arguments: str
    name: str
    server_label: NotRequired[str]
    type: NotRequired[Annotated[Literal["mcp_call"], NOT_NULL]]
    approval_request_id: NotRequired[str]
    error: NotRequired[str]
    output: NotRequired[str]
    status: NotRequired[str]


_TOLD: JsonDict = {"anyOf": [{"required": ["type"]}, {"required": ["server_label", "tools"]}]}


@with_config(ConfigDict(extra="allow", json_schema_extra=_TOLD))
class McpListTools(TypedDict):
    """Tools of an MCP server. Without a `type` it is told by `server_label` and `tools`."""

    id: NotRequired[str]
    server_label: NotRequired[str]
    tools: NotRequired[Annotated[list[Any], NOT_NULL]]
    type: NotRequired[Annotated[Literal["mcp_list_tools"], NOT_NULL]]
    error: NotRequired[str]


@with_config(KEEP)
class McpApprovalRequest(TypedDict):
    id: NotRequired[str]
    arguments: str
    name: str
    server_label: NotRequired[str]
    type: NotRequired[Annotated[Literal["mcp_approval_request"], NOT_NULL]]


@with_config(KEEP)
class McpApprovalResponse(TypedDict):
    approval_request_id: str
    approve: bool
    type: Literal["mcp_approval_response"]
    id: NotRequired[str]
    reason: NotRequired[str]


class FileSearchResult(TypedDict):
    attributes: NotRequired[dict[str, str | float | bool]]
    file_id: NotRequired[str]
    filename: NotRequired[str]
    score: NotRequired[float]
    text: NotRequired[str]


@with_config(KEEP)
class FileSearchCall(TypedDict):
    id: str
    queries: list[str]
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    type: Literal["file_search_call"]
    results: NotRequired[list[FileSearchResult]]


class SearchSource(TypedDict):
    type: Literal["url"]
    url: str


class Search(TypedDict):
    type: Literal["search"]
    queries: NotRequired[list[str]]
    query: NotRequired[str]
    sources: NotRequired[list[SearchSource]]


class OpenPage(TypedDict):
    type: Literal["open_page"]
    url: NotRequired[str]


class FindInPage(TypedDict):
    pattern: str
    type: Literal["find_in_page"]
    url: str


@with_config(KEEP)
class WebSearchCall(TypedDict):
    id: str
    action: Annotated[Search | OpenPage | FindInPage, Discriminator("type")]
    status: Literal["in_progress", "searching", "completed", "failed"]
    type: Literal["web_search_call"]


class Click(TypedDict):
    button: Literal["left", "right", "wheel", "back", "forward"]
    type: Literal["click"]
    x: int
    y: int
    keys: NotRequired[list[str]]


class DoubleClick(TypedDict):
    keys: NotRequired[list[str]]
    type: Literal["double_click"]
    x: int
    y: int


class Point(TypedDict):
    x: int
    y: int


class Drag(TypedDict):
    path: list[Point]
    type: Literal["drag"]
    keys: NotRequired[list[str]]


class Keypress(TypedDict):
    keys: list[str]
    type: Literal["keypress"]


class Move(TypedDict):
    type: Literal["move"]
    x: int
    y: int
    keys: NotRequired[list[str]]


class Screenshot(TypedDict):
    type: Literal["screenshot"]


class Scroll(TypedDict):
    scroll_x: int
    scroll_y: int
    type: Literal["scroll"]
    x: int
    y: int
    keys: NotRequired[list[str]]


class TypeText(TypedDict):
    text: str
    type: Literal["type"]


class Wait(TypedDict):
    type: Literal["wait"]


ComputerAction = Annotated[
    Click | DoubleClick | Drag | Keypress | Move | Screenshot | Scroll | TypeText | Wait, Discriminator("type")
]


class SafetyCheck(TypedDict):
    id: str
    code: NotRequired[str]
    message: NotRequired[str]


@with_config(KEEP)
class ComputerCall(TypedDict):
    id: str
    call_id: str
    pending_safety_checks: list[SafetyCheck]
    status: Progress
    type: Literal["computer_call"]
    action: NotRequired[ComputerAction]
    actions: NotRequired[list[ComputerAction]]


class ComputerScreenshot(TypedDict):
    type: Literal["computer_screenshot"]
    file_id: NotRequired[str]
    image_url: NotRequired[str]


@with_config(KEEP)
class ComputerCallOutput(TypedDict):
    call_id: str
    output: ComputerScreenshot
    type: Literal["computer_call_output"]
    id: NotRequired[str]
    acknowledged_safety_checks: NotRequired[list[SafetyCheck]]
    status: NotRequired[Progress]


@with_config(KEEP)
class ImageGenerationCall(TypedDict):
    id: str
    result: NotRequired[str]
    status: Literal["in_progress", "completed", "generating", "failed"]
    type: Literal["image_generation_call"]


class CodeLogs(TypedDict):
    logs: str
    type: Literal["logs"]


class CodeImage(TypedDict):
    type: Literal["image"]
    url: str


@with_config(KEEP)
class CodeInterpreterCall(TypedDict):
    id: str
    code: NotRequired[str]
    container_id: str
    outputs: NotRequired[list[Annotated[CodeLogs | CodeImage, Discriminator("type")]]]
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]
    type: Literal["code_interpreter_call"]


class LocalShellAction(TypedDict):
    command: list[str]
    env: dict[str, str]
    type: Literal["exec"]
    timeout_ms: NotRequired[int]
    user: NotRequired[str]
    working_directory: NotRequired[str]


@with_config(KEEP)
class LocalShellCall(TypedDict):
    id: str
    action: LocalShellAction
    call_id: str
    status: Progress
    type: Literal["local_shell_call"]


@with_config(KEEP)
class LocalShellCallOutput(TypedDict):
    id: str
    output: str
    type: Literal["local_shell_call_output"]
    status: NotRequired[Progress]


@with_config(KEEP)
class CustomToolCall(TypedDict):
    call_id: str
    input: str
    name: str
    type: Literal["custom_tool_call"]
    id: NotRequired[str]
    namespace: NotRequired[str]


@with_config(KEEP)
class CustomToolCallOutput(TypedDict):
    call_id: str
    output: PlainContent
    type: Literal["custom_tool_call_output"]
    id: NotRequired[str]


class CreateFile(TypedDict):
    diff: str
    path: str
    type: Literal["create_file"]


class DeleteFile(TypedDict):
    path: str
    type: Literal["delete_file"]


class UpdateFile(TypedDict):
    diff: str
    path: str
    type: Literal["update_file"]


@with_config(KEEP)
class ApplyPatchCall(TypedDict):
    id: str
    call_id: str
    operation: Annotated[CreateFile | DeleteFile | UpdateFile, Discriminator("type")]
    status: Literal["in_progress", "completed"]
    type: Literal["apply_patch_call"]
    created_by: NotRequired[str]


@with_config(KEEP)
class ApplyPatchCallOutput(TypedDict):
    id: str
    call_id: str
    status: Literal["completed", "failed"]
    type: Literal["apply_patch_call_output"]
    created_by: NotRequired[str]
    output: NotRequired[str]


class ShellAction(TypedDict):
    commands: list[str]
    max_output_length: NotRequired[int]
    timeout_ms: NotRequired[int]


class LocalShellEnvironment(TypedDict):
    type: Literal["local"]


class ContainerShellEnvironment(TypedDict):
    container_id: str
    type: Literal["container_reference"]


@with_config(KEEP)
class ShellCall(TypedDict):
    id: str
    action: ShellAction
    call_id: str
    environment: NotRequired[Annotated[LocalShellEnvironment | ContainerShellEnvironment, Discriminator("type")]]
    status: Progress
    type: Literal["shell_call"]
    created_by: NotRequired[str]


class TimeoutOutcome(TypedDict):
    type: Literal["timeout"]


class ExitOutcome(TypedDict):
    exit_code: int
    type: Literal["exit"]


class ShellOutput(TypedDict):
    outcome: Annotated[TimeoutOutcome | ExitOutcome, Discriminator("type")]
    stderr: str
    stdout: str
    created_by: NotRequired[str]


@with_config(KEEP)
class ShellCallOutput(TypedDict):
    id: str
    call_id: str
    max_output_length: NotRequired[int]
    output: list[ShellOutput]
    status: Progress
    type: Literal["shell_call_output"]
    created_by: NotRequired[str]


@with_config(KEEP)
class ToolSearchCall(TypedDict):
    id: str
    arguments: Any
    call_id: NotRequired[str]
    execution: Literal["server", "client"]
    status: Progress
    type: Literal["tool_search_call"]
    created_by: NotRequired[str]


@with_config(KEEP)
class ToolSearchOutput(TypedDict):
    id: str
    call_id: NotRequired[str]
    execution: Literal["server", "client"]
    status: Progress
    tools: list[Tool]
    type: Literal["tool_search_output"]
    created_by: NotRequired[str]


@with_config(KEEP)
class Compaction(TypedDict):
    """A record of compacted context; opaque."""

    id: str
    encrypted_content: str
    type: Literal["compaction"]
    created_by: NotRequired[str]


@with_config(KEEP)
class CompactionTrigger(TypedDict):
    type: Literal["compaction_trigger"]


@with_config(KEEP)
class AdditionalTools(TypedDict):
    role: Literal["developer"]
    tools: list[Tool]
    type: Literal["additional_tools"]
    id: NotRequired[str]
