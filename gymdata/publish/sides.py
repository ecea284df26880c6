"""What a dataset to compare with is: a prepared directory, a file of rows, or a revision of a dataset on the Hub."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.errors import UsageError
from gymdata.publish.diff import splits_of

if TYPE_CHECKING:
    from gymdata.sources.hub import Credentials


def split_files(name: str, folder: Path, credentials: Callable[[], Credentials]) -> dict[str, Path]:
    """The files of a dataset by split; those of OWNER/NAME[@REVISION] are fetched into `folder`, their statistics beside them.

    `credentials` is asked only for those. Raises UsageError if `name` is none of the three, ExternalError for the Hub.
    """
    if Path(name).exists():
        return splits_of(Path(name))
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@(.+))?", name.removeprefix("hf://datasets/"))
    if not match:
        raise UsageError(f"{name}: no such directory or file, and no OWNER/NAME[@REVISION] of the Hub")
    from gymdata.sources.huggingface import fetch, fetch_statistics

    who = credentials()
    fetched = fetch(match[1], folder, revision=match[2], credentials=who)
    fetch_statistics(match[1], fetched[0].commit, folder, who)
    return {str(one.split): one.path for one in fetched}


def row_counts(name: str, credentials: Callable[[], Credentials]) -> dict[str, int]:
    """Rows by split of a dataset. Raises as `split_files` does."""
    with tempfile.TemporaryDirectory(prefix="gymdata-published-") as folder:
        return {split: _rows(path) for split, path in split_files(name, Path(folder), credentials).items()}


def _rows(path: Path) -> int:
    with open(path, "rb") as stream:
        return sum(not line.isspace() for line in stream)
