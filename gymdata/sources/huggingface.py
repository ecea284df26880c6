"""Rows from the Hugging Face Hub: a file as it is, or the splits of a dataset as JSONL with not one value changed.

Data files are read as the repository holds them, found by the card's `configs`; no loader infers types, nothing of the
repository is ever executed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from gymdata.atomic import disk_errors, writing
from gymdata.errors import DataError, ExternalError, UsageError
from gymdata.manifest import sha256
from gymdata.sources.data_files import (
    CONVERT,
    EXECUTABLE,
    append_rows,
    inside,
    joint_digest,
    kind_of,
    matching,
    read_card,
    refuse_impostor,
    split_patterns,
)
from gymdata.sources.hub import ATTEMPTS, BACKOFF, Credentials, Denied, connected, explained

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile, RepoFolder

_BLOCK = 1 << 20

Result = TypeVar("Result")


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
    if not re.fullmatch(r"([\w.-]+/)?[\w.-]+", repo_id):
        raise UsageError(f"{repo_id!r} is not the name of a dataset on the Hub", "write OWNER/NAME")
    if artifact:
        artifact = inside(artifact)
        if artifact.lower().endswith(EXECUTABLE):
            raise UsageError(f"{repo_id}: {artifact} is code, or runs code when it is loaded", "gymdata fetches data only")

    def attempt(api: HfApi) -> tuple[Fetched, ...]:
        repository = Repository(api, repo_id, str(api.dataset_info(repo_id, revision=revision).sha))
        if artifact:
            return (repository.fetch([artifact], output or folder / PurePosixPath(artifact).name, None),)
        splits = repository.splits(config)
        if split and split not in splits:
            raise UsageError(f"{repo_id} has no split {split!r}", f"its splits are {', '.join(splits)}")
        names = [split] if split else list(splits)
        return tuple(repository.fetch(splits[name], output or folder / f"{name}.jsonl", name) for name in names)

    return _allowed(attempt, repo_id, credentials, endpoint)


def latest_commit(repo_id: str, revision: str | None = None, credentials: Credentials | None = None) -> str:
    """The commit that a branch or tag of a dataset (its main branch) points to. Raises ExternalError if the Hub does not say."""
    return _allowed(lambda api: str(api.dataset_info(repo_id, revision=revision).sha), repo_id, credentials, None)


def fetch_statistics(repo_id: str, commit: str, folder: Path, credentials: Credentials | None = None) -> None:
    """Fetch the `_metrics.json` and `_statistics.json` files that stand at the top of a dataset, if there are any."""

    def attempt(api: HfApi) -> None:
        repository = Repository(api, repo_id, commit)
        for path in repository.entries():
            if re.fullmatch(r"\w+_(metrics|statistics)\.json", path):
                repository.fetch([path], folder / path, None)

    _allowed(attempt, repo_id, credentials, None)


def _allowed(attempt: Callable[[HfApi], Result], repo_id: str, credentials: Credentials | None, endpoint: str | None) -> Result:
    """What `attempt` gives an anonymous caller, or, where that is denied, one with credentials."""

    def trial(who: Credentials) -> Result:
        with connected(who, endpoint) as api, explained(f"reading {repo_id}"):
            return attempt(api)

    try:
        return trial(Credentials())
    except Denied:
        if not credentials or not credentials.token:
            raise
    return trial(credentials)


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
        kinds = Counter(kind for path in paths if (kind := kind_of(path)))
        data = [path for path in paths if kinds and kind_of(path) == kinds.most_common(1)[0][0]]
        if not data:
            if any(path.endswith(".py") for path in paths):
                raise DataError(
                    f"{self.repo_id}: its rows come from a script", "gymdata runs no remote code; ask its owners for data files"
                )
            raise DataError(f"{self.repo_id}: no JSONL, JSON or Parquet file in it", CONVERT)
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
            if split and not kind_of(path):
                raise DataError(f"{self.repo_id}: {path} is not JSONL, JSON or Parquet", CONVERT)
        sources = [(path, self.download(path)) for path in paths]
        with writing(target) as temporary, open(temporary, "wb") as out:
            for path, source in sources:
                refuse_impostor(source, f"{self.repo_id}: {path}")
                if split:
                    append_rows(source, path, out)
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


def _is_file(entry: RepoFile | RepoFolder) -> TypeGuard[RepoFile]:
    return hasattr(entry, "blob_id")


def _published_rows(card: Mapping[str, Any], split: str, files: list[str], entries: Mapping[str, RepoFile]) -> list[str] | None:
    """The JSONL from which `gymdata publish` made the tables of a split, if the card says so and they are still those."""
    record = ((card.get("gymdata") or {}).get("rows") or {}).get(split) or {}
    tables = [info.sha256 for path in files if (info := entries[path].lfs)]
    if len(tables) != len(files) or joint_digest(tables) != record.get("tables_sha256") or record.get("file") not in entries:
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
