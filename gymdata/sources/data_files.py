"""Data files as repositories hold them: which there are, which split they belong to, and their rows as lines, unchanged."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gymdata.errors import DataError, UsageError
from gymdata.rows.lines import open_stream

CONVERT = "fetch it with --artifact, then bring it into rows with `gymdata convert`"
_NOT_ROWS = re.compile(r"(_metrics(_conflict)?|_statistics|(^|/)manifest|(^|/)dataset_infos?)\.json$")
EXECUTABLE = (".py", ".ipynb", ".sh", ".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib", ".dill", ".npy", ".npz", ".h5", ".so")
"""Kinds of file that are programs, or that run one when they are loaded."""
_BLOCK = 1 << 20


def inside(path: str) -> str:
    """The normal form of a path in a repository; raises UsageError if it could leave the folder it is fetched into."""
    parts = path.split("/")
    bad = not path or "\\" in path or "\0" in path or path.startswith("/") or re.match(r"[A-Za-z]:", path) or ".." in parts
    normal = posixpath.normpath(path)
    if bad or normal in (".", "..") or not normal.isprintable():
        raise UsageError(
            f"{path!r} is no path of a file in a repository", "give it as the files page shows it, such as data/train.jsonl"
        )
    return normal


def split_patterns(card: Mapping[str, Any], config: str | None = None) -> dict[str, list[str]] | None:
    """Glob patterns by split from the card's `configs`, or None if it has none. Raises UsageError for an unknown `config`.

    Without `config` the one marked default is meant, else the one named `default`, else the only or first one.
    """
    configs = [one for one in card.get("configs") or [] if isinstance(one, dict) and one.get("data_files")]
    if not configs:
        if config and config != "default":
            raise UsageError(f"the dataset has no configuration {config!r}", "leave it out")
        return None
    names = [str(one.get("config_name", "default")) for one in configs]
    if config is not None and config not in names:
        raise UsageError(f"the dataset has no configuration {config!r}", f"it has {', '.join(names)}")
    wanted = config or next(
        (n for n, one in zip(names, configs, strict=True) if one.get("default")), "default" if "default" in names else names[0]
    )
    chosen = configs[names.index(wanted)]
    base = str(chosen.get("data_dir") or "").strip("/")
    files = chosen["data_files"]
    entries = (
        files if isinstance(files, list) and all(isinstance(one, dict) for one in files) else [{"split": "train", "path": files}]
    )
    found: dict[str, list[str]] = {}
    for entry in entries:
        paths = entry.get("path") or []
        for path in [paths] if isinstance(paths, str) else paths:
            found.setdefault(str(entry.get("split", "train")), []).append(posixpath.normpath(posixpath.join(base, path)))
    return found


def matching(pattern: str, paths: Sequence[str]) -> list[str]:
    """The paths that a card's glob means: `*` within a folder, `**` across folders; hidden files and `__folders__` never."""
    if not any(mark in pattern for mark in "*?[{"):
        return [pattern] if pattern in paths else []
    from fsspec.utils import glob_translate

    expression = re.compile(glob_translate(pattern))
    return sorted(path for path in paths if expression.match(path) and not re.search(r"(^|/)(\.|__)", path))


def joint_digest(digests: Iterable[str]) -> str:
    """One digest for several files, given theirs, in order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def read_card(text: str) -> dict[str, Any]:
    """The YAML block of a dataset card; {} if there is none. Raises DataError if it cannot be read."""
    import yaml

    match = re.match(r"\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|$)", text, re.DOTALL)
    if not match:
        return {}
    try:
        card = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        raise DataError(
            f"the dataset card's YAML cannot be read: {str(error).splitlines()[0]}", "name a file with --artifact"
        ) from error
    return card if isinstance(card, dict) else {}


def kind_of(path: str) -> str:
    """The format of a data file by its name, "" if it is none that can be read."""
    name = path.lower()
    if _NOT_ROWS.search(name):
        return ""
    suffix = PurePosixPath(name.removesuffix(".gz").removesuffix(".zst")).suffix
    if suffix in (".jsonl", ".ndjson"):
        return ".jsonl"
    return suffix if name.endswith((".json", ".parquet")) else ""


def refuse_impostor(path: Path, name: str) -> None:
    """Raise DataError for a page or a pointer that stands where data should."""
    with open(path, "rb") as stream:
        head = stream.read(512).lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        raise DataError(
            f"{name} is an HTML page, no data", "its owners have uploaded an error page: tell them, or pin a --revision before it"
        )
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        raise DataError(
            f"{name} is a Git LFS pointer, no data", "its owners have uploaded the pointer in place of the file: tell them"
        )


def append_rows(source: Path, path: str, out: IO[bytes]) -> None:
    """Append the rows of a data file as lines; a JSONL file keeps its bytes."""
    if out.tell():
        out.flush()
        with open(out.name, "rb") as written:
            written.seek(-1, os.SEEK_END)
            if written.read(1) != b"\n":
                out.write(b"\n")
    kind = kind_of(path)
    if kind == ".parquet":
        from gymdata.sources.parquet import parquet_to_jsonl

        with tempfile.TemporaryDirectory(dir=Path(out.name).parent, prefix=".parquet-") as folder:
            rows = Path(folder) / "rows.jsonl"
            parquet_to_jsonl(source, rows)
            with open(rows, "rb") as stream:
                shutil.copyfileobj(stream, out, _BLOCK)
    elif kind == ".json" and (items := _array_items(source)) is not None:
        for item in items:
            out.write(item + b"\n")
    else:
        with open_stream(source) as stream:
            shutil.copyfileobj(stream, out, _BLOCK)


_SPACE = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+', re.DOTALL)


def _array_items(path: Path) -> Iterator[bytes] | None:
    """The items of a file that is one JSON array, one per line, numbers and escapes as they are written.

    None if the file is lines. It is held in memory. Raises DataError if it is not JSON, or one object over several lines.
    """
    import msgspec

    with open(path, "rb") as stream:
        first = stream.read(64).lstrip()[:1]
        stream.seek(0)
        if first != b"[":
            line = stream.readline().strip()
            try:
                msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            except msgspec.DecodeError as error:
                raise DataError(f"{path.name}: one JSON document that is no list of rows", CONVERT) from error
            return None
        try:
            items = msgspec.json.decode(stream.read(), type=list[msgspec.Raw])
        except msgspec.DecodeError as error:
            raise DataError(f"{path.name}: not valid JSON: {error}", "tell its owners, or pin another --revision") from error
    return (_SPACE.sub(rb"\1", bytes(item)) for item in items)
