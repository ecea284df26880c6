"""Publishing to the Hugging Face Hub: a plan carried out in one atomic commit, or not at all."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymdata.errors import ExternalError
from gymdata.publish.plan import Plan, Target, find_proposal, holds
from gymdata.sources.hub import ATTEMPTS, BACKOFF, Credentials, Denied, Unsettled, connected, explained, require_login
from gymdata.sources.huggingface import Repository

if TYPE_CHECKING:
    from huggingface_hub import HfApi


@dataclass(frozen=True)
class Published:
    """What was done. `commit` is what the revision points to."""

    repo_id: str
    revision: str
    commit: str
    url: str
    """The pull request's page, or the commit's."""
    pull_request: int | None
    sent: bool
    """False if there was nothing to do."""


class Stale(ExternalError):
    """The repository changed after the plan was made; `changed` names the files."""

    def __init__(self, repo_id: str, changed: Sequence[str]) -> None:
        what = ", ".join(changed[:5]) + (" …" if len(changed) > 5 else "") if changed else "its history"
        super().__init__(
            f"{repo_id} has changed since the plan was made: {what}",
            "nothing was sent; run the same command again to publish on top of it",
        )
        self.changed = tuple(changed)


def send(
    plan: Plan, credentials: Credentials, endpoint: str | None = None, on_step: Callable[[str], None] = lambda step: None
) -> Published:
    """Carry the plan out: all of it in one commit, or nothing. What is there already is not sent again.

    Raises Stale if the repository moved since the plan, Denied without rights, ExternalError for everything else outside; after
    any of them the same call can be repeated.
    """
    target = plan.target
    require_login(credentials, target.repo_id)
    with connected(credentials, endpoint) as api, explained(f"publishing to {target.repo_id}"):
        if not plan.exists:
            on_step(f"creating {target.repo_id} ({'private' if target.private else 'public'})")
            _create(api, target)
        done = _already(api, plan) or _commit(api, plan, on_step)
        if plan.joins:
            on_step(f"adding it to the collection {target.collection}")
            with explained(f"published ({done.url}), but not added to the collection {target.collection}"):
                api.add_collection_item(target.collection, item_id=target.repo_id, item_type="dataset", exists_ok=True)
        return done


def default_message(plan: Plan) -> str:
    """The commit's message if the target has none."""
    return f"Publish {', '.join(plan.rows)} with gymdata"


def _create(api: HfApi, target: Target) -> None:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        api.create_repo(target.repo_id, repo_type="dataset", private=target.private, exist_ok=True)
    except HfHubHTTPError as error:
        if error.response.status_code != 403:
            raise
        owner = target.repo_id.split("/")[0]
        hint = f"use a token with write access to {owner}, or publish under a name of yours with --organization"
        raise Denied(f"{target.repo_id}: there is no such dataset, and you may not make it", hint) from error


def _already(api: HfApi, plan: Plan) -> Published | None:
    if plan.proposed is not None:
        return _published(api, plan, f"refs/pr/{plan.proposed}", sent=False)
    if plan.nothing_to_do and plan.exists:
        return _published(api, plan, plan.target.branch if plan.has_branch else "main", sent=False)
    return None


def _commit(api: HfApi, plan: Plan, on_step: Callable[[str], None]) -> Published:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete
    from huggingface_hub.errors import HfHubHTTPError

    target = plan.target
    base = _base(api, plan)
    sends = [file for file in plan.files if file.state != "same"]
    if not sends and not plan.deletions:
        return _published(api, plan, target.branch, sent=True)  # a new branch of what main holds
    message = target.message or default_message(plan)
    for attempt in range(1, ATTEMPTS + 1):
        on_step(f"sending {len(sends)} files, {sum(file.bytes for file in sends) / 1e6:,.1f} MB")
        operations = [CommitOperationAdd(file.path, file.local) for file in sends]
        try:
            commit = api.create_commit(
                target.repo_id,
                [*operations, *(CommitOperationDelete(path) for path in plan.deletions)],
                commit_message=message,
                commit_description=target.description,
                repo_type="dataset",
                revision=target.branch,
                create_pr=target.opens,
                parent_commit=base,
            )
        except Unsettled as unsettled:
            # It may have taken effect: look before doing it again.
            on_step("the connection broke; looking whether the commit was made")
            for look in range(ATTEMPTS if unsettled.slow else 1):
                if settled := _settled(api, plan):
                    return settled
                time.sleep(BACKOFF * 2 ** (attempt + look))
            if unsettled.slow:
                hint = "wait a minute, then run the same command again: it looks for it before it sends anything"
                raise ExternalError(f"{target.repo_id}: the Hub does not say whether the commit was made", hint) from unsettled
            if attempt == ATTEMPTS:
                raise
        except HfHubHTTPError as error:
            if error.response.status_code == 412:
                raise Stale(target.repo_id, _changed_since(api, plan)) from error
            raise
        else:
            revision = str(commit.pr_revision) if target.opens else target.branch
            return _result(api, target.repo_id, revision, commit.oid, sent=True)
    raise AssertionError("unreachable")


def _base(api: HfApi, plan: Plan) -> str:
    """The commit to build on: the plan's, which must still be the head; a branch that does not exist yet is made."""
    from huggingface_hub.errors import RevisionNotFoundError

    target = plan.target
    try:
        head = str(api.dataset_info(target.repo_id, revision=target.branch).sha)
    except RevisionNotFoundError:
        if target.branch.startswith("refs/pr/"):
            raise
        _branch(api, plan)
        head = str(api.dataset_info(target.repo_id, revision=target.branch).sha)
    if plan.base is not None and head != plan.base:
        raise Stale(target.repo_id, _changed_since(api, plan))
    return head


def _branch(api: HfApi, plan: Plan) -> None:
    from huggingface_hub.errors import HfHubHTTPError

    target = plan.target
    try:
        api.create_branch(target.repo_id, branch=target.branch, repo_type="dataset", revision=plan.base, exist_ok=True)
    except HfHubHTTPError as error:
        if error.response.status_code != 403:
            raise
        hint = "leave --revision out: with --create-pr the pull request then goes to main"
        raise Denied(f"{target.repo_id}: there is no branch {target.branch}, and you may not make one", hint) from error


def _changed_since(api: HfApi, plan: Plan) -> list[str]:
    if plan.base is None:
        return []
    now = Repository(api, plan.target.repo_id, plan.target.branch).entries()
    then = Repository(api, plan.target.repo_id, plan.base).entries()
    return sorted(path for path in {*now, *then} if _oid(now.get(path)) != _oid(then.get(path)))


def _oid(entry: Any) -> str | None:
    return None if entry is None else entry.blob_id


def _settled(api: HfApi, plan: Plan) -> Published | None:
    """After a commit with an unknown end: what it made, or None if it made nothing."""
    if plan.target.opens:
        number = find_proposal(api, plan)
        return _published(api, plan, f"refs/pr/{number}", sent=True) if number else None
    return _published(api, plan, plan.target.branch, sent=True) if holds(api, plan, plan.target.branch) else None


def _published(api: HfApi, plan: Plan, revision: str, sent: bool) -> Published:
    repo_id = plan.target.repo_id
    return _result(api, repo_id, revision, str(api.dataset_info(repo_id, revision=revision).sha), sent)


def _result(api: HfApi, repo_id: str, revision: str, commit: str, sent: bool) -> Published:
    pull = re.fullmatch(r"refs/pr/(\d+)", revision)
    page = f"discussions/{pull[1]}" if pull else f"commit/{commit}"
    return Published(repo_id, revision, commit, f"{api.endpoint}/datasets/{repo_id}/{page}", int(pull[1]) if pull else None, sent)
