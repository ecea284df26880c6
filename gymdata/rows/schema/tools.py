"""Tools that a model may be given, and the ways to choose among them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Discriminator, Tag
from typing_extensions import TypedDict


def text_or_object(value: Any) -> str:
    """Which half of `str | object` a value belongs to."""
    return "@object" if isinstance(value, dict) else "@text"


class FunctionTool(TypedDict):
    """A function that the environment runs. `parameters` is a JSON Schema; `strict` must be there, if only as null."""

    name: str
    parameters: dict[str, Any] | None
    strict: bool | None
    type: Literal["function"]
    defer_loading: NotRequired[bool]
    description: NotRequired[str | None]


class ComparisonFilter(TypedDict):
    key: str
    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    value: str | float | bool | list[str | float]


class CompoundFilter(TypedDict):
    """Filters joined by and/or; NeMo Gym crashes on it."""

    filters: list[ComparisonFilter | Any]
    type: Literal["and", "or"]


class HybridSearch(TypedDict):
    embedding_weight: float
    text_weight: float


class RankingOptions(TypedDict):
    hybrid_search: NotRequired[HybridSearch]
    ranker: NotRequired[Literal["auto", "default-2024-11-15"]]
    score_threshold: NotRequired[float]


class FileSearchTool(TypedDict):
    type: Literal["file_search"]
    vector_store_ids: list[str]
    filters: NotRequired[Annotated[ComparisonFilter | CompoundFilter, Discriminator("type")] | None]
    max_num_results: NotRequired[int]
    ranking_options: NotRequired[RankingOptions]


class ComputerTool(TypedDict):
    type: Literal["computer"]


class ComputerUsePreviewTool(TypedDict):
    display_height: int
    display_width: int
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]
    type: Literal["computer_use_preview"]


class AllowedDomains(TypedDict):
    allowed_domains: NotRequired[list[str] | None]


class UserLocation(TypedDict):
    city: NotRequired[str | None]
    country: NotRequired[str | None]
    region: NotRequired[str | None]
    timezone: NotRequired[str | None]
    type: NotRequired[Literal["approximate"]]


class PreviewUserLocation(TypedDict):
    type: Literal["approximate"]
    city: NotRequired[str | None]
    country: NotRequired[str | None]
    region: NotRequired[str | None]
    timezone: NotRequired[str | None]


class WebSearchTool(TypedDict):
    type: Literal["web_search", "web_search_2025_08_26"]
    filters: NotRequired[AllowedDomains | None]
    search_context_size: NotRequired[Literal["low", "medium", "high"]]
    user_location: NotRequired[UserLocation | None]


class WebSearchPreviewTool(TypedDict):
    type: Literal["web_search_preview", "web_search_preview_2025_03_11"]
    search_content_types: NotRequired[list[Literal["text", "image"]]]
    search_context_size: NotRequired[Literal["low", "medium", "high"]]
    user_location: NotRequired[PreviewUserLocation | None]


class ToolFilter(TypedDict):
    read_only: NotRequired[bool]
    tool_names: NotRequired[list[str]]


class ApprovalFilter(TypedDict):
    always: NotRequired[ToolFilter]
    never: NotRequired[ToolFilter]


def _list_or_object(value: Any) -> str:
    return "@object" if isinstance(value, dict) else "@list"


class McpTool(TypedDict):
    """A remote MCP server or connector."""

    server_label: str
    type: Literal["mcp"]
    allowed_tools: NotRequired[
        Annotated[Annotated[list[str], Tag("@list")] | Annotated[ToolFilter, Tag("@object")], Discriminator(_list_or_object)]
        | None
    ]
    authorization: NotRequired[str]
    connector_id: NotRequired[
        Literal[
            "connector_dropbox",
            "connector_gmail",
            "connector_googlecalendar",
            "connector_googledrive",
            "connector_microsoftteams",
            "connector_outlookcalendar",
            "connector_outlookemail",
            "connector_sharepoint",
        ]
    ]
    defer_loading: NotRequired[bool]
    headers: NotRequired[dict[str, str] | None]
    require_approval: NotRequired[
        Annotated[
            Annotated[ApprovalFilter, Tag("@object")] | Annotated[Literal["always", "never"], Tag("@text")],
            Discriminator(text_or_object),
        ]
        | None
    ]
    server_description: NotRequired[str]
    server_url: NotRequired[str]
    tunnel_id: NotRequired[str]


class NetworkDisabled(TypedDict):
    type: Literal["disabled"]


class DomainSecret(TypedDict):
    domain: str
    name: str
    value: str


class NetworkAllowlist(TypedDict):
    allowed_domains: list[str]
    type: Literal["allowlist"]
    domain_secrets: NotRequired[list[DomainSecret]]


NetworkPolicy = Annotated[NetworkDisabled | NetworkAllowlist, Discriminator("type")]
MemoryLimit = Literal["1g", "4g", "16g", "64g"]


class AutoContainer(TypedDict):
    type: Literal["auto"]
    file_ids: NotRequired[list[str]]
    memory_limit: NotRequired[MemoryLimit | None]
    network_policy: NotRequired[NetworkPolicy]


class CodeInterpreterTool(TypedDict):
    container: Annotated[Annotated[str, Tag("@text")] | Annotated[AutoContainer, Tag("@object")], Discriminator(text_or_object)]
    type: Literal["code_interpreter"]


class ImageMask(TypedDict):
    file_id: NotRequired[str]
    image_url: NotRequired[str]


class ImageGenerationTool(TypedDict):
    type: Literal["image_generation"]
    action: NotRequired[Literal["generate", "edit", "auto"]]
    background: NotRequired[Literal["transparent", "opaque", "auto"]]
    input_fidelity: NotRequired[Literal["high", "low"] | None]
    input_image_mask: NotRequired[ImageMask]
    model: NotRequired[str]
    moderation: NotRequired[Literal["auto", "low"]]
    output_compression: NotRequired[int]
    output_format: NotRequired[Literal["png", "webp", "jpeg"]]
    partial_images: NotRequired[int]
    quality: NotRequired[Literal["low", "medium", "high", "auto"]]
    size: NotRequired[str]


class LocalShellTool(TypedDict):
    type: Literal["local_shell"]


class SkillReference(TypedDict):
    skill_id: str
    type: Literal["skill_reference"]
    version: NotRequired[str]


class SkillArchive(TypedDict):
    data: str
    media_type: Literal["application/zip"]
    type: Literal["base64"]


class InlineSkill(TypedDict):
    description: str
    name: str
    source: SkillArchive
    type: Literal["inline"]


class LocalSkill(TypedDict):
    description: str
    name: str
    path: str


class ContainerEnvironment(TypedDict):
    type: Literal["container_auto"]
    file_ids: NotRequired[list[str]]
    memory_limit: NotRequired[MemoryLimit | None]
    network_policy: NotRequired[NetworkPolicy]
    skills: NotRequired[list[Annotated[SkillReference | InlineSkill, Discriminator("type")]]]


class LocalEnvironment(TypedDict):
    type: Literal["local"]
    skills: NotRequired[list[LocalSkill]]


class ContainerReference(TypedDict):
    container_id: str
    type: Literal["container_reference"]


class ShellTool(TypedDict):
    type: Literal["shell"]
    environment: NotRequired[
        Annotated[ContainerEnvironment | LocalEnvironment | ContainerReference, Discriminator("type")] | None
    ]


class TextFormat(TypedDict):
    type: Literal["text"]


class Grammar(TypedDict):
    definition: str
    syntax: Literal["lark", "regex"]
    type: Literal["grammar"]


class CustomTool(TypedDict):
    """A tool that takes free text, or text of a grammar."""

    name: str
    type: Literal["custom"]
    defer_loading: NotRequired[bool]
    description: NotRequired[str]
    format: NotRequired[Annotated[TextFormat | Grammar, Discriminator("type")]]


class NamespacedFunction(TypedDict):
    name: str
    type: Literal["function"]
    defer_loading: NotRequired[bool]
    description: NotRequired[str | None]
    parameters: NotRequired[Any]
    strict: NotRequired[bool | None]


class NamespaceTool(TypedDict):
    """Tools under a common name; NeMo Gym crashes on it."""

    description: str
    name: str
    tools: list[Annotated[NamespacedFunction | CustomTool, Discriminator("type")]]
    type: Literal["namespace"]


class ToolSearchTool(TypedDict):
    type: Literal["tool_search"]
    description: NotRequired[str | None]
    execution: NotRequired[Literal["server", "client"]]
    parameters: NotRequired[Any]


class ApplyPatchTool(TypedDict):
    type: Literal["apply_patch"]


Tool = Annotated[
    FunctionTool
    | FileSearchTool
    | ComputerTool
    | ComputerUsePreviewTool
    | WebSearchTool
    | McpTool
    | CodeInterpreterTool
    | ImageGenerationTool
    | LocalShellTool
    | ShellTool
    | CustomTool
    | NamespaceTool
    | ToolSearchTool
    | WebSearchPreviewTool
    | ApplyPatchTool,
    Discriminator("type"),
]


class AllowedTools(TypedDict):
    """A choice among some of the tools; NeMo Gym crashes on it."""

    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]
    type: Literal["allowed_tools"]


class HostedToolChoice(TypedDict):
    type: Literal[
        "file_search",
        "web_search_preview",
        "computer",
        "computer_use_preview",
        "computer_use",
        "web_search_preview_2025_03_11",
        "image_generation",
        "code_interpreter",
    ]


class FunctionChoice(TypedDict):
    name: str
    type: Literal["function"]


class McpChoice(TypedDict):
    server_label: str
    type: Literal["mcp"]
    name: NotRequired[str | None]


class CustomChoice(TypedDict):
    name: str
    type: Literal["custom"]


class ApplyPatchChoice(TypedDict):
    type: Literal["apply_patch"]


class ShellChoice(TypedDict):
    type: Literal["shell"]


_ToolChoiceObject = Annotated[
    AllowedTools | HostedToolChoice | FunctionChoice | McpChoice | CustomChoice | ApplyPatchChoice | ShellChoice,
    Discriminator("type"),
]
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("@text")] | Annotated[_ToolChoiceObject, Tag("@object")],
    Discriminator(text_or_object),
]
