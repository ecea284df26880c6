"""What publishing to the Hugging Face Hub would send, and how it differs from what is there. Nothing is sent here."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.errors import DataError, ExternalError, UsageError
from gymdata.manifest import sha256
from gymdata.publish.card import Facts, SplitFacts, origin_of, own_block, render
from gymdata.publish.dataset import Dataset, read_metrics
from gymdata.publish.diff import SPLITS, Diff, compare
from gymdata.publish.parquet import Kind, columns, shards, write_parquet
from gymdata.sources.data_files import joint_digest, kind_of, matching, read_card, split_patterns
from gymdata.sources.hub import LOG_IN, Credentials, Denied, connected, explained
from gymdata.sources.huggingface import Repository

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD = "README.md"


@dataclass(frozen=True)
class Target:
    """Where to publish, and how. Raises UsageError if `repo_id` is no OWNER/NAME that the Hub takes."""

    repo_id: str
    create_pr: bool = False
    revision: str | None = None
    """A branch, `refs/pr/N`, or N of an open pull request; `main` if None."""
    message: str = ""
    description: str = ""
    private: bool = True
    """Of a repository that does not exist yet."""
    collection: str = ""
    """`OWNER/name-slug` of a collection that the dataset joins."""
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_name(self.repo_id)

    @property
    def branch(self) -> str:
        """The revision as the Hub calls it."""
        revision = (self.revision or "main").lstrip("#")
        return f"refs/pr/{revision}" if revision.isdigit() else re.sub(r"^pr/", "refs/pr/", revision)

    @property
    def opens(self) -> bool:
        """Whether a new pull request is opened: `create_pr`, unless an open one is added to."""
        return self.create_pr and not self.branch.startswith("refs/pr/")


@dataclass(frozen=True)
class PlannedFile:
    """A file of the plan; `state` compares it with what the repository holds."""

    path: str
    local: Path
    bytes: int
    state: str
    """new, changed or same."""


@dataclass(frozen=True)
class Plan:
    """Everything that publishing would do; nothing has been sent."""

    target: Target
    exists: bool
    """Whether the repository does."""
    has_branch: bool
    """Whether the target's branch does; if not, it starts where main is."""
    base: str | None
    """The commit it starts from."""
    files: tuple[PlannedFile, ...]
    deletions: tuple[str, ...]
    rows: dict[str, int]
    splits: dict[str, Path]
    """The local rows of every split that is sent."""
    card: str
    diff: Diff
    joins: bool
    """Whether the dataset is not yet in the target's collection."""
    proposed: int | None
    """The open pull request that holds exactly this, if there is one."""

    @property
    def nothing_to_do(self) -> bool:
        """Whether the repository, or an open pull request, holds exactly this already."""
        if self.proposed is not None:
            return True
        there = self.has_branch or self.target.opens
        return there and not self.deletions and all(file.state == "same" for file in self.files)


def repository_name(organization: str, name: str, domain: str | None = None, prefix: str = "Nemotron-RL") -> str:
    """NeMo Gym's rule: `{organization}/{prefix-}{domain-}{name}`. Raises UsageError if that is no name on the Hub."""
    return checked_name(f"{organization}/{'-'.join(part for part in (prefix, (domain or '').lower(), name) if part)}")


def checked_name(repo_id: str) -> str:
    """The same OWNER/NAME; raises UsageError if the Hub takes no such name."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]{1,96}", repo_id, re.ASCII) or re.search(r"--|\.\.|(^|/)[.-]|[.-](/|$)|\.git$", repo_id):
        raise UsageError(
            f"{repo_id!r} is no name that the Hub takes",
            "OWNER/NAME of letters, digits, - _ . only, at most 96; give one with --repo-id",
        )
    return repo_id


@contextmanager
def planned(dataset: Dataset, target: Target, credentials: Credentials, endpoint: str | None = None) -> Iterator[Plan]:
    """The plan; its files live as long as the block. Raises ExternalError if the Hub cannot be read, DataError for its card."""
    with tempfile.TemporaryDirectory(prefix="gymdata-publish-") as folder, connected(credentials, endpoint) as api:
        with explained(f"reading {target.repo_id}"):
            plan = _plan(dataset, target, api, Path(folder), bool(credentials.token))
        yield plan


def _plan(dataset: Dataset, target: Target, api: HfApi, folder: Path, signed_in: bool) -> Plan:
    repository, has_branch = _open(api, target, signed_in)
    joins = bool(target.collection) and target.repo_id not in _collected(api, target.collection)
    held = repository.entries() if repository else {}
    before = repository.download(CARD).read_text("utf-8", errors="replace") if repository and CARD in held else ""
    try:
        card_before = read_card(before)
    except DataError as error:
        raise DataError(f"{target.repo_id}: {error.message}", "mend the card on the Hub first; nothing was sent") from error
    others, has_jsonl = _other_splits(repository, card_before, dataset, folder) if repository else ({}, set())
    local = {split.name: split.path for split in dataset.splits}
    kinds = columns([*others.values(), *local.values()])
    files: dict[str, Path] = {}
    splits = []
    for name, path in sorted({**local, **others}.items(), key=lambda item: (*SPLITS, item[0]).index(item[0])):
        count = shards(path)
        tables = {f"data/{name}-{index:05}-of-{count:05}.parquet": folder / f"{name}-{index}.parquet" for index in range(count)}
        rows = write_parquet(path, list(tables.values()), kinds)
        files |= tables
        jsonl = f"{name}.jsonl" if name in local or name in has_jsonl else ""
        metrics, statistics = (
            dataset.sidecars.get(file) if name in local else repository.download(file) if repository and file in held else None
            for file in (f"{name}_metrics.json", f"{name}_statistics.json")
        )
        splits.append(
            SplitFacts(
                name,
                rows,
                jsonl,
                tuple(tables),
                joint_digest(map(sha256, tables.values())),
                read_metrics(metrics) if metrics else {},
                read_metrics(statistics) if statistics else {},
                dataset.origin(name) if name in local else origin_of(card_before, name),
            )
        )
    files |= {f"{name}.jsonl": path for name, path in local.items()}
    files |= dataset.sidecars
    card = render(_facts(dataset, target, splits, kinds), before)
    (folder / CARD).write_text(card, encoding="utf-8")
    files[CARD] = folder / CARD
    deletions = tuple(sorted(path for path in held if path not in files and _replaced(path, [split.name for split in splits])))
    _check_globs(card, {*held, *files} - {*deletions}, target.repo_id)
    compared = tuple(PlannedFile(path, file, file.stat().st_size, _state(file, held.get(path))) for path, file in files.items())
    plan = Plan(
        target,
        repository is not None,
        has_branch,
        repository.commit if repository else None,
        compared,
        deletions,
        {split.name: split.rows for split in splits if split.name in local},
        local,
        card,
        _difference(repository, held, local, target, folder),
        joins,
        None,
    )
    if repository and target.opens and not plan.nothing_to_do:
        return replace(plan, proposed=find_proposal(api, plan))
    return plan


def _collected(api: HfApi, collection: str) -> set[str]:
    """The datasets of a collection. Raises ExternalError if there is none of that name: before anything is sent."""
    from huggingface_hub import errors

    try:
        return {item.item_id for item in api.get_collection(collection).items if item.item_type == "dataset"}
    except errors.HfHubHTTPError as error:
        if error.response.status_code != 404:
            raise
        raise ExternalError(f"there is no collection {collection}", "make it on the Hub first; nothing was sent") from error


def _open(api: HfApi, target: Target, signed_in: bool) -> tuple[Repository | None, bool]:
    """The repository at the branch to publish to, or at what it would branch from, and whether there is such a branch.

    None if there is no repository yet.
    """
    from huggingface_hub import errors

    has_branch = True
    try:
        try:
            commit = api.dataset_info(target.repo_id, revision=target.branch).sha
        except errors.RevisionNotFoundError:
            if target.branch.startswith("refs/pr/"):
                raise
            has_branch, commit = False, api.dataset_info(target.repo_id).sha
    except errors.HfHubHTTPError as error:
        if error.response.status_code == 404 and isinstance(error, errors.RepositoryNotFoundError) and signed_in:
            return None, False
        if error.response.status_code == 401 and not signed_in:
            raise Denied(f"{target.repo_id}: not logged in to the Hub, and there is no such public dataset", LOG_IN) from error
        raise
    return Repository(api, target.repo_id, str(commit)), has_branch


def _splits(repository: Repository, card: dict[str, Any] | None = None) -> dict[str, list[str]]:
    """The files of each split; none for a repository without rows. Raises DataError for what `card` names and nothing matches."""
    try:
        return repository.splits(None)
    except DataError:
        if card and split_patterns(card):
            raise
        return {}


def _other_splits(
    repository: Repository, card: dict[str, Any], dataset: Dataset, folder: Path
) -> tuple[dict[str, Path], set[str]]:
    """The rows of splits that the repository has and that are not sent now, since all tables must have the same columns.

    Also the names of those whose rows are `<split>.jsonl` in the repository.
    """
    sent = {split.name for split in dataset.splits}
    splits = _splits(repository, card)
    found = {name: folder / f"other-{name}.jsonl" for name in splits if name not in sent}
    for name, path in found.items():
        repository.fetch(splits[name], path, name)
    return found, {name for name in found if splits[name] == [f"{name}.jsonl"]}


def _replaced(path: str, splits: Sequence[str]) -> bool:
    """Whether a file of the repository is an older table of one of the splits."""
    return any(re.fullmatch(rf"data/{re.escape(name)}-[^/]*-of-[^/]*\.parquet", path) for name in splits)


def _facts(dataset: Dataset, target: Target, splits: list[SplitFacts], kinds: dict[str, Kind]) -> Facts:
    with open(dataset.splits[0].path, "rb") as stream:
        example = stream.readline()
    return Facts(
        target.repo_id,
        dataset.manifest.environments,
        dataset.environment.description,
        tuple(splits),
        kinds,
        example,
        target.languages,
    )


def _check_globs(card: str, paths: set[str], repo_id: str) -> None:
    for config in read_card(card).get("configs", []):
        for split, globs in (split_patterns({"configs": [config]}) or {}).items():
            for glob in globs:
                if not matching(glob, sorted(paths)):
                    raise DataError(
                        f"{repo_id}: its card names {glob} for split {split}, and no file would match: nobody could load it",
                        "mend `configs` in the card on the Hub first",
                    )


def _state(local: Path, entry: Any) -> str:
    from gymdata.sources.huggingface import is_whole

    return "new" if entry is None else "same" if is_whole(local, entry) else "changed"


def _difference(
    repository: Repository | None, held: dict[str, Any], local: dict[str, Path], target: Target, folder: Path
) -> Diff:
    before = {}
    if repository:
        (folder / "before").mkdir()
        # Rows that are no JSONL of ours are what the card, or the names of files, say that the split is.
        others = {name: paths for name, paths in _splits(repository).items() if name in local and f"{name}.jsonl" not in held}
        for name, paths in others.items():
            if all(map(kind_of, paths)):
                before[name] = folder / "before" / f"{name}.jsonl"
                repository.fetch(paths, before[name], name)
        for name in local:
            for path in (f"{name}.jsonl", f"{name}_metrics.json", f"{name}_statistics.json"):
                if path in held:
                    (folder / "before" / path).symlink_to(repository.download(path).resolve())
            if f"{name}.jsonl" in held:
                before[name] = folder / "before" / f"{name}.jsonl"
    return compare(before, local, (f"{target.repo_id}@{target.branch}", "this"))


def find_proposal(api: HfApi, plan: Plan) -> int | None:
    """The number of an open pull request whose files are exactly the plan's."""
    repo_id = plan.target.repo_id
    for one in api.get_repo_discussions(repo_id, repo_type="dataset", discussion_type="pull_request"):
        if one.is_pull_request and one.status in ("open", "draft") and holds(api, plan, f"refs/pr/{one.num}"):
            return one.num
    return None


def holds(api: HfApi, plan: Plan, revision: str) -> bool:
    """Whether a revision has every file of the plan, and none that the plan deletes. The card may differ outside our block."""
    paths = [file.path for file in plan.files] + list(plan.deletions)
    entries = {
        entry.path: entry for entry in api.get_paths_info(plan.target.repo_id, paths, revision=revision, repo_type="dataset")
    }
    if any(path in entries for path in plan.deletions):
        return False
    for file in plan.files:
        if file.path not in entries:
            return False
        if _state(file.local, entries[file.path]) != "same" and file.path != CARD:
            return False
    if _state(plan.files[-1].local, entries[CARD]) == "same":
        return True
    there = Path(api.hf_hub_download(plan.target.repo_id, CARD, repo_type="dataset", revision=revision)).read_text("utf-8")
    return own_block(there) == own_block(plan.card)
