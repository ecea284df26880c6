"""From a dataset's entry in a configuration to its file: the source that the entry names, fetched to where it is looked for."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.atomic import write_bytes
from gymdata.environments.model import DatasetConfig, Environment
from gymdata.errors import ConfigError
from gymdata.manifest import sha256
from gymdata.sources.hub import Credentials, find_credentials
from gymdata.sources.huggingface import Fetched, fetch, latest_commit

if TYPE_CHECKING:
    from pydantic import BaseModel


def fetch_dataset(dataset: DatasetConfig, environment: Environment, data_source: str | None = None) -> Fetched:
    """Fetch a dataset from the source that it names, `data_source` ("huggingface" or "gitlab") deciding where it names both.

    The file goes to `dataset.path`. Without a split in the entry it is the one of the dataset's type, as in NeMo Gym. Raises
    ConfigError, at the entry, if there is no such source; ExternalError if it cannot be reached.
    """
    place = dataset.place
    kind = data_source or (
        dataset.source.type if dataset.source else "huggingface" if dataset.huggingface_identifier else "gitlab"
    )
    identifier = dataset.huggingface_identifier if kind == "huggingface" else dataset.gitlab_identifier
    if identifier is None:
        raise ConfigError(f"the dataset {dataset.name!r} names no source on {kind}", "give it a `source`", *place)
    target = Path(dataset.path)
    if kind == "gitlab":
        from gymdata.sources.gitlab import Registry, find_registry

        assert dataset.gitlab_identifier is not None
        registry: Registry = find_registry(environment)
        wanted = dataset.gitlab_identifier
        return _recorded(registry.download(wanted.dataset_name, wanted.version, wanted.artifact_fpath, target), wanted)
    assert dataset.huggingface_identifier is not None
    source = dataset.huggingface_identifier
    (fetched,) = fetch(
        source.repo_id,
        target.parent,
        artifact=source.artifact_fpath,
        split=None if source.artifact_fpath else source.split or ("test" if dataset.type == "benchmark" else dataset.type),
        revision=source.revision,
        output=target,
        credentials=_credentials(environment),
    )
    return _recorded(fetched, source)


def is_of_another_source(dataset: DatasetConfig) -> bool:
    """Whether a dataset's file was fetched from another repository, file, split or revision than its entry names now.

    A file that was not fetched, or that was changed since, is its owner's and of no source.
    """
    before = _read_record(dataset.path).get("wanted")
    now = [one.model_dump(mode="json") for one in (dataset.huggingface_identifier, dataset.gitlab_identifier) if one]
    return bool(before and now) and before not in now and is_as_fetched(dataset.path)


def newer_commit(dataset: DatasetConfig, environment: Environment) -> str | None:
    """The commit that a dataset's source on the Hugging Face Hub has now, if its file was fetched at another one.

    None if there is nothing newer, and for a file of one's own, which is never replaced. Raises ExternalError if the Hub does not
    say.
    """
    source, record = dataset.huggingface_identifier, _read_record(dataset.path)
    if source is None or record.get("repo_id") != source.repo_id or not is_as_fetched(dataset.path):
        return None
    latest = latest_commit(source.repo_id, source.revision, _credentials(environment))
    return latest if latest != record.get("commit") else None


def _credentials(environment: Environment) -> Credentials:
    configured = environment.secret("hf_token")
    return find_credentials(configured.get_secret_value() if configured else None)


def revision_of(path: Path, digest: str) -> str | None:
    """The commit that a file was fetched at, None if it was not fetched or has changed since; for the manifest."""
    record = _read_record(path)
    return record.get("commit") if record.get("sha256") == digest else None


def is_as_fetched(path: Path) -> bool:
    """Whether a file is what was fetched to its place, unchanged."""
    return path.is_file() and _read_record(path).get("sha256") == sha256(path)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(_record(path).read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _record(path: Path) -> Path:
    return path.with_name(f".{path.name}.source.json")


def _recorded(fetched: Fetched, wanted: BaseModel) -> Fetched:
    record = {**asdict(fetched), "path": fetched.path.name, "wanted": wanted.model_dump(mode="json")}
    write_bytes(_record(fetched.path), json.dumps(record).encode() + b"\n")
    return fetched
