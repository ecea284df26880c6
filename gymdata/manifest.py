"""What was made from what: the manifest.json beside the outputs, with the digest of everything that went in and came out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gymdata.errors import DataError

MANIFEST = "manifest.json"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputFile(_Model):
    """A source file as it was read."""

    path: str
    """As the configuration names it: relative to the working directory, or absolute."""
    sha256: str
    bytes: int
    dataset: str
    type: str
    instance: str
    rows: int
    """Non-blank lines read."""
    valid: int
    revision: str | None = None
    """Resolved commit, where the file was downloaded."""
    metrics_sha256: str | None = None
    """Of the metrics file beside it, which was written or found to fit."""


class OutputFile(_Model):
    """A file beside the manifest."""

    path: str
    """Relative to the manifest."""
    sha256: str
    bytes: int
    rows: int | None = None


class Manifest(_Model):
    """The record of one run of `gymdata prepare`."""

    format: int = 1
    environments: tuple[str, ...]
    fingerprint: str
    """Digest of the version, the options, the resolved configuration and the inputs: equal fingerprints, equal outputs."""
    options: dict[str, Any]
    config: list[dict[str, Any]]
    """The resolved dataset entries, in order."""
    inputs: tuple[InputFile, ...]
    outputs: tuple[OutputFile, ...]
    findings: dict[str, int] = Field(default_factory=dict)
    """Count by code."""
    previous: dict[str, int] = Field(default_factory=dict)
    """Rows of each split of the same environments that this run replaced; empty if there was none."""
    versions: dict[str, str]
    seconds: float
    """Wall time of the run."""

    def to_json(self) -> bytes:
        """The file's content: deterministic but for `seconds` and `previous`."""
        return (json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode()


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a prepared directory, or None if there is none. Raises DataError if it cannot be read as one."""
    path = directory / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValidationError, UnicodeDecodeError, IsADirectoryError) as error:
        raise DataError(
            f"{path}: not a manifest that this version of gymdata can read",
            "delete it if nobody else needs it, then prepare the dataset again",
        ) from error


def is_intact(directory: Path, manifest: Manifest) -> bool:
    """Whether every output stands in `directory` as the manifest says."""
    for output in manifest.outputs:
        path = directory / output.path
        if not path.is_file() or path.stat().st_size != output.bytes or sha256(path) != output.sha256:
            return False
    return True


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fingerprint(*parts: Any) -> str:
    """Digest of JSON-able values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
