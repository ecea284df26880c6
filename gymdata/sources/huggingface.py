"""Rows from the Hugging Face Hub: a file as it is, or the splits of a dataset as JSONL with not one value changed.

Data files are read as the repository holds them, found by the card's `configs`; no loader infers types, nothing of the
repository is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, TypeGuard

from gymdata.atomic import disk_errors, writing
from gymdata.errors import DataError, ExternalError, UsageError
from gymdata.manifest import sha256
from gymdata.rows.lines import open_stream
from gymdata.sources.hub import ATTEMPTS, BACKOFF, Credentials, Denied, connected, explained

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile, RepoFolder

EXECUTABLE = (
    ".py",
    ".ipynb",
    ".sh",
    ".pkl",
    ".pickle",
    ".pt",
    ".pth",
    ".bin",
    ".joblib",
    ".dill",
    ".npy",
    ".npz",
    ".h5",
    ".so",
    ".exe",
)
"""Kinds of file that are programs, or that run one when they are loaded."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Fetched:
    """A file that arrived: where it is, and exactly what of the Hub it is."""

    path: Path
    repo_id: str
    commit: str
    """Resolved commit, 40 hexadecimal digits."""
    files: tuple[str, ...]
    """Paths in the repository that went into it."""
    split: str | None
    sha256: str
    bytes: int


def fetch(
    repo_id: str,
    folder: Path,
    *,
    artifact: str | None = None,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    output: Path | None = None,
    credentials: Credentials | None = None,
    endpoint: str | None = None,
) -> tuple[Fetched, ...]:
    """Fetch one file (`artifact`), one `split`, or all splits when neither is given, of a dataset into `folder`.

    `output` names the file of a single result, in place of `folder`'s `<artifact's name>` or `<split>.jsonl`. `credentials` are
    used only where an anonymous caller is refused. Files appear whole or not at all; the next call goes on with a download
    that broke off.

    Raises UsageError for a call that makes no sense, DataError for content that cannot be rows, ExternalError for the network.
    """
    if artifact and split:
        raise UsageError(
            "both a file and a split are asked for", "give --artifact for a file as it is, or --split for a split as rows"
        )
    if output and not (artifact or split):
        raise UsageError("one output file for all splits", "name a split or an artifact, or give a folder")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
        raise UsageError(f"{repo_id!r} is not the name of a dataset on the Hub", "write OWNER/NAME")
    if artifact:
        artifact = inside(artifact)
        if artifact.lower().endswith(EXECUTABLE):
            raise UsageError(f"{repo_id}: {artifact} is code, or runs code when it is loaded", "gymdata fetches data only")

    def attempt(who: Credentials) -> tuple[Fetched, ...]:
        with connected(who, endpoint) as api, explained(f"reading {repo_id}"):
            repository = Repository(api, repo_id, str(api.dataset_info(repo_id, revision=revision).sha))
            if artifact:
                return (repository.fetch([artifact], output or folder / PurePosixPath(artifact).name, None),)
            splits = repository.splits(config)
            if split and split not in splits:
                raise UsageError(f"{repo_id} has no split {split!r}", f"its splits are {', '.join(splits)}")
            names = [split] if split else list(splits)
            return tuple(repository.fetch(splits[name], output or folder / f"{name}.jsonl", name) for name in names)

    try:
        return attempt(Credentials())
    except Denied:
        if not credentials or not credentials.token:
            raise
    return attempt(credentials)


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


@dataclass
class Repository:
    """One commit of one dataset; its methods raise what `huggingface_hub` raises, and DataError for content."""

    api: HfApi
    repo_id: str
    commit: str

    def entries(self) -> dict[str, RepoFile]:
        """The files, by path."""
        found = self.api.list_repo_tree(self.repo_id, recursive=True, revision=self.commit, repo_type="dataset")
        return {entry.path: entry for entry in found if _is_file(entry)}

    def splits(self, config: str | None) -> dict[str, list[str]]:
        """Paths of the data files by split, in the order of the card."""
        entries = self.entries()
        paths = sorted(entries)
        card: dict[str, Any] = {}
        if "README.md" in paths:
            card = read_card(self.download("README.md").read_text("utf-8", errors="replace"))
        patterns = split_patterns(card, config)
        if patterns is None:
            return self._inferred(paths)
        splits: dict[str, list[str]] = {}
        for name, globs in patterns.items():
            if not re.fullmatch(r"\w+(\.\w+)*", name):
                raise DataError(f"{self.repo_id}: its card names a split {name!r}", "fetch a file with --artifact instead")
            found = [path for glob in globs for path in matching(glob, paths)]
            if not found:
                raise DataError(
                    f"{self.repo_id}: no file matches {', '.join(globs)} of split {name}", "fetch a file with --artifact instead"
                )
            splits[name] = _published_rows(card, name, found, entries) or list(dict.fromkeys(found))
        return splits

    def _inferred(self, paths: list[str]) -> dict[str, list[str]]:
        """Without `configs` the file names tell the splits, as `datasets` reads them."""
        kinds = Counter(kind for path in paths if (kind := _kind(path)))
        data = [path for path in paths if kinds and _kind(path) == kinds.most_common(1)[0][0]]
        if not data:
            if any(path.endswith(".py") for path in paths):
                raise DataError(
                    f"{self.repo_id}: its rows come from a script", "gymdata runs no remote code; ask its owners for data files"
                )
            raise DataError(f"{self.repo_id}: no JSONL, JSON or Parquet file in it", _CONVERT)
        from datasets.data_files import _get_data_files_patterns

        # The names are the library's to interpret; the listing is ours, so it fetches nothing.
        globs = _get_data_files_patterns(lambda pattern: matching(pattern, data))
        return {
            str(split): list(dict.fromkeys(path for one in ones for path in matching(one, data))) for split, ones in globs.items()
        }

    def fetch(self, paths: Sequence[str], target: Path, split: str | None) -> Fetched:
        """Put the files, one after the other, into `target`: as rows of a split, or (None) byte for byte."""
        for path in paths:
            inside(path)
            if split and not _kind(path):
                raise DataError(f"{self.repo_id}: {path} is not JSONL, JSON or Parquet", _CONVERT)
        sources = [(path, self.download(path)) for path in paths]
        with writing(target) as temporary, open(temporary, "wb") as out:
            for path, source in sources:
                _refuse_impostor(source, f"{self.repo_id}: {path}")
                if split:
                    _append_rows(source, path, out)
                else:
                    with open(source, "rb") as stream:
                        shutil.copyfileobj(stream, out, _BLOCK)
        return Fetched(target, self.repo_id, self.commit, tuple(paths), split, sha256(target), target.stat().st_size)

    def download(self, path: str) -> Path:
        """The file in the Hub's cache, whole and with the digest that the Hub gives; goes on where an earlier call broke off."""
        from httpx2 import TransportError

        found = self.api.get_paths_info(self.repo_id, path, revision=self.commit, repo_type="dataset")
        entry = next((one for one in found if _is_file(one)), None)
        if entry is None:
            hint = "names are case-sensitive; look at the dataset's files page"
            raise ExternalError(f"{self.repo_id}: there is no file {path} at {self.commit[:12]}", hint)
        damaged = False
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with disk_errors(Path(path)):
                    local = Path(
                        self.api.hf_hub_download(
                            self.repo_id, path, repo_type="dataset", revision=self.commit, force_download=damaged
                        )
                    )
                damaged = not is_whole(local, entry)
                if not damaged:
                    return local
            except TransportError:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(BACKOFF * attempt)
        hint = "check a proxy or a cache on the way to the Hub, then run again"
        raise ExternalError(f"{self.repo_id}: {path} arrives damaged: its digest is not the one that the Hub gives", hint)


_CONVERT = "fetch it with --artifact, then bring it into rows with `gymdata convert`"
_NOT_ROWS = re.compile(r"(_metrics(_conflict)?|_statistics|(^|/)manifest|(^|/)dataset_infos?)\.json$")


def _is_file(entry: RepoFile | RepoFolder) -> TypeGuard[RepoFile]:
    return hasattr(entry, "blob_id")


def _kind(path: str) -> str:
    """The format of a data file by its name, "" if it is none that can be read."""
    name = path.lower()
    if _NOT_ROWS.search(name):
        return ""
    suffix = PurePosixPath(name.removesuffix(".gz").removesuffix(".zst")).suffix
    if suffix in (".jsonl", ".ndjson"):
        return ".jsonl"
    return suffix if name.endswith((".json", ".parquet")) else ""


def _published_rows(card: Mapping[str, Any], split: str, files: list[str], entries: Mapping[str, RepoFile]) -> list[str] | None:
    """The JSONL from which `gymdata publish` made the table of a split, if the card says so and the table is still that one."""
    record = ((card.get("gymdata") or {}).get("rows") or {}).get(split) or {}
    table = entries[files[0]].lfs
    if len(files) != 1 or table is None or table.sha256 != record.get("table_sha256") or record.get("file") not in entries:
        return None
    return [record["file"]]


def is_whole(local: Path, entry: RepoFile) -> bool:
    """Whether a local file is the one that the Hub has: its size and its sha256, or git's digest."""
    size = local.stat().st_size
    if size != entry.size:
        return False
    if entry.lfs:
        return sha256(local) == entry.lfs.sha256
    digest = hashlib.sha1(b"blob %d\0" % size)
    with open(local, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest() == entry.blob_id


def _refuse_impostor(path: Path, name: str) -> None:
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


def _append_rows(source: Path, path: str, out: IO[bytes]) -> None:
    """Append the rows of a data file as lines; a JSONL file keeps its bytes."""
    if out.tell():
        out.flush()
        with open(out.name, "rb") as written:
            written.seek(-1, os.SEEK_END)
            if written.read(1) != b"\n":
                out.write(b"\n")
    kind = _kind(path)
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


_SPACE = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)


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
                raise DataError(f"{path.name}: one JSON document that is no list of rows", _CONVERT) from error
            return None
        try:
            items = msgspec.json.decode(stream.read(), type=list[msgspec.Raw])
        except msgspec.DecodeError as error:
            raise DataError(f"{path.name}: not valid JSON: {error}", "tell its owners, or pin another --revision") from error
    return (_SPACE.sub(rb"\1", bytes(item)) for item in items)
