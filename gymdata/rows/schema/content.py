"""What messages and tool outputs are made of: content parts, annotations, log-probabilities."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BeforeValidator, Discriminator, Tag
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from gymdata.rows.schema.variants import NOT_NULL

ImageDetail = Literal["low", "high", "auto", "original"]


class InputText(TypedDict):
    """Text for the model to read."""

    text: str
    type: Literal["input_text"]


class InputImage(TypedDict):
    """An image, by URL (http, https or data) or by file id. NeMo Gym 0.7.0 wants `detail`; its absence is a warning here."""

    detail: NotRequired[Annotated[ImageDetail, NOT_NULL]]
    type: Literal["input_image"]
    file_id: NotRequired[str | None]
    image_url: NotRequired[str | None]


class InputFile(TypedDict):
    """A file, by its data, id or URL."""

    type: Literal["input_file"]
    detail: NotRequired[Literal["low", "high"]]
    file_data: NotRequired[str]
    file_id: NotRequired[str | None]
    file_url: NotRequired[str]
    filename: NotRequired[str]


class AudioData(TypedDict):
    """Base64 data and its format."""

    data: str
    format: str


class InputAudio(TypedDict):
    """Audio for the model to hear: legal Responses content that NeMo Gym 0.7.0 refuses, so a warning here."""

    type: Literal["input_audio"]
    input_audio: AudioData


def _one_video_source(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    sources = [key for key in ("video_url", "video") if key in part]
    if len(sources) != 1:
        raise PydanticCustomError("video_source", "exactly one of video_url and video")
    source = part[sources[0]]
    url = source.get("url") if isinstance(source, dict) else source
    if not isinstance(url, str) or not url.strip():
        raise PydanticCustomError("video_url", "a URL", {"key": sources[0]})
    return part


class InputVideo(TypedDict):
    """A video, by exactly one of its two keys: a URL, or an object with a `url`."""

    type: Literal["input_video"]
    video_url: NotRequired[str | dict[str, Any]]
    video: NotRequired[str | dict[str, Any]]


MessagePart = Annotated[
    InputText | InputImage | InputFile | InputAudio | Annotated[InputVideo, BeforeValidator(_one_video_source)],
    Discriminator("type"),
]
PlainPart = Annotated[InputText | InputImage | InputFile, Discriminator("type")]


class ResultImage(TypedDict):
    """An image that a tool gave back."""

    type: Literal["input_image"]
    detail: NotRequired[ImageDetail | None]
    file_id: NotRequired[str | None]
    image_url: NotRequired[str | None]


class ResultFile(TypedDict):
    """A file that a tool gave back."""

    type: Literal["input_file"]
    detail: NotRequired[Literal["low", "high"]]
    file_data: NotRequired[str | None]
    file_id: NotRequired[str | None]
    file_url: NotRequired[str | None]
    filename: NotRequired[str | None]


ResultPart = Annotated[InputText | ResultImage | ResultFile, Discriminator("type")]


class FileCitation(TypedDict):
    file_id: str
    filename: str
    index: int
    type: Literal["file_citation"]


class UrlCitation(TypedDict):
    end_index: int
    start_index: int
    title: str
    type: Literal["url_citation"]
    url: str


class ContainerFileCitation(TypedDict):
    container_id: str
    end_index: int
    file_id: str
    filename: str
    start_index: int
    type: Literal["container_file_citation"]


class FilePath(TypedDict):
    file_id: str
    index: int
    type: Literal["file_path"]


Citation = Annotated[FileCitation | UrlCitation | ContainerFileCitation | FilePath, Discriminator("type")]


class TopLogprob(TypedDict):
    token: str
    bytes: list[int]
    logprob: float


class Logprob(TypedDict):
    """Log-probability of one token of an answer; NeMo Gym crashes on a prompt that holds one."""

    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[TopLogprob]


class OutputText(TypedDict):
    """Text that the model wrote."""

    annotations: list[Citation]
    text: str
    type: NotRequired[Literal["output_text"]]
    logprobs: NotRequired[list[Logprob] | None]


class Refusal(TypedDict):
    """The model's refusal, in its words."""

    refusal: str
    type: NotRequired[Literal["refusal"]]


def _output_part(part: Any) -> str | None:
    """Output parts may go without `type`; then their keys tell."""
    if not isinstance(part, dict):
        return None
    refuses = "refusal" in part and not ("text" in part and "annotations" in part)
    kind = part.get("type", "refusal" if refuses else "output_text")
    return f"@{kind}" if isinstance(kind, str) else None


OutputPart = Annotated[
    Annotated[OutputText, Tag("@output_text")] | Annotated[Refusal, Tag("@refusal")], Discriminator(_output_part)
]


def text_or_list(value: Any) -> str:
    """Which half of `str | list[...]` a value belongs to."""
    return "@list" if isinstance(value, list) else "@text"


MessageContent = Annotated[Annotated[str, Tag("@text")] | Annotated[list[MessagePart], Tag("@list")], Discriminator(text_or_list)]
ResultContent = Annotated[Annotated[str, Tag("@text")] | Annotated[list[ResultPart], Tag("@list")], Discriminator(text_or_list)]
PlainContent = Annotated[Annotated[str, Tag("@text")] | Annotated[list[PlainPart], Tag("@list")], Discriminator(text_or_list)]
