"""Settings of a request that are objects: prompt template, reasoning, text format, conversation and the like."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Discriminator, Tag
from typing_extensions import TypedDict

from gymdata.rows.schema.content import InputFile, InputImage, InputText

Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority"]


def _variable(value: Any) -> str | None:
    if isinstance(value, dict):
        return f"@{value.get('type')}"
    return "@text"


class PromptTemplate(TypedDict):
    """A prompt stored at the provider, and what to fill into it."""

    id: str
    variables: NotRequired[
        dict[
            str,
            Annotated[
                Annotated[str, Tag("@text")]
                | Annotated[InputText, Tag("@input_text")]
                | Annotated[InputImage, Tag("@input_image")]
                | Annotated[InputFile, Tag("@input_file")],
                Discriminator(_variable),
            ],
        ]
        | None
    ]
    version: NotRequired[str | None]


class Reasoning(TypedDict):
    context: NotRequired[Literal["auto", "current_turn", "all_turns"] | None]
    effort: NotRequired[Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None]
    generate_summary: NotRequired[Literal["auto", "concise", "detailed"] | None]
    summary: NotRequired[Literal["auto", "concise", "detailed"] | None]


class PlainFormat(TypedDict):
    type: Literal["text"]


class JsonSchemaFormat(TypedDict):
    """Answers must follow `schema`, a JSON Schema."""

    name: str
    schema: dict[str, Any]
    type: Literal["json_schema"]
    description: NotRequired[str]
    strict: NotRequired[bool | None]


class JsonObjectFormat(TypedDict):
    type: Literal["json_object"]


class TextSettings(TypedDict):
    format: NotRequired[Annotated[PlainFormat | JsonSchemaFormat | JsonObjectFormat, Discriminator("type")]]
    verbosity: NotRequired[Literal["low", "medium", "high"] | None]


class ContextManagement(TypedDict):
    type: str
    compact_threshold: NotRequired[int | None]


class Conversation(TypedDict):
    id: str


class Moderation(TypedDict):
    model: str


class StreamOptions(TypedDict):
    include_obfuscation: NotRequired[bool]
