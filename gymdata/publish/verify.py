"""What was published, read back as anyone would: through `datasets`, plain and streaming, every row compared with ours."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gymdata.errors import DataError, ExternalError
from gymdata.rows.lines import ByteRange, chunks
from gymdata.sources.hub import Credentials, connected, explained

_MAPPED_AT_ONCE = "64MB"


@dataclass(frozen=True)
class Verified:
    """Rows compared, by split; each was read both ways."""

    rows: dict[str, int]


def verify(
    repo_id: str,
    revision: str,
    splits: Mapping[str, Path],
    credentials: Credentials,
    endpoint: str | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> Verified:
    """Load each split at a commit with `datasets` and compare it with the JSONL file that was sent.

    Raises DataError naming the first row that differs, ExternalError if the Hub cannot be read.
    """
    with (
        connected(credentials, endpoint),
        explained(f"reading {repo_id} back"),
        tempfile.TemporaryDirectory(prefix="gymdata-verify-") as folder,
    ):
        import datasets
        from datasets import config
        from datasets.exceptions import DatasetsError

        datasets.disable_progress_bars()
        # Loading would report the name of the dataset, which may be private, to a counter on another server.
        config.HF_UPDATE_DOWNLOAD_COUNTS = False
        config.MAX_SHARD_SIZE = _MAPPED_AT_ONCE
        rows = {}
        for split, path in splits.items():
            for streaming in (False, True):
                on_step(f"reading {split} back with datasets{' (streaming)' if streaming else ''}")
                options: dict[str, Any] = {} if streaming else {"cache_dir": folder}
                try:
                    loaded = datasets.load_dataset(
                        repo_id, split=split, revision=revision, token=credentials.token or False, streaming=streaming, **options
                    )
                    back = loaded if streaming else _file_by_file(loaded)
                    rows[split] = _compare(path, back, f"{repo_id}@{revision[:12]} {split}")
                except (ValueError, DatasetsError) as error:
                    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                    raise DataError(f"{repo_id}@{revision[:12]}: `datasets` cannot load {split}: {reason}") from error
        return Verified(rows)


def _file_by_file(loaded: Any) -> Iterator[Any]:
    """The rows of a dataset, one of its files mapped into memory after the other: together they are as large as the dataset."""
    from datasets import Dataset

    for file in loaded.cache_files:
        yield from Dataset.from_file(file["filename"])


def same_row(row: Mapping[str, Any], loaded: Mapping[str, Any]) -> bool:
    """Whether `datasets` gave a row back: equal values of equal types, where a column that the row lacks is None."""
    kept = {key: value for key, value in loaded.items() if key in row or value is not None}
    try:
        return msgspec.json.encode(row, order="sorted") == msgspec.json.encode(kept, order="sorted")
    except (OverflowError, UnicodeEncodeError):  # integers beyond 64 bits
        return json.dumps(row, sort_keys=True) == json.dumps(kept, sort_keys=True)


def _compare(path: Path, loaded: Iterable[Any], name: str) -> int:
    count = 0
    rows = iter(loaded)
    for number, line in _lines(path):
        count += 1
        row = next(rows, None)
        if row is None:
            raise DataError(f"{name}: row {count} (line {number} of {path.name}) is not there", _LOOK)
        if not same_row(json.loads(line), row):
            raise DataError(f"{name}: row {count} (line {number} of {path.name}) is not the one that was sent", _LOOK)
    if next(rows, None) is not None:
        raise DataError(f"{name}: there are more rows than the {count:,} that were sent", _LOOK)
    return count


_LOOK = "what is published is not what was sent: look at the revision on the Hub before anyone merges it"


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    for chunk in chunks(ByteRange(path, 0, path.stat().st_size)):
        if isinstance(chunk, int):
            raise ExternalError(f"{path}: a line of {chunk} bytes is too long to compare")
        for line in chunk.split(b"\n"):
            number += 1
            if line.strip():
                yield number, line
