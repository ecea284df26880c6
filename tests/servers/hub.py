"""A Hugging Face Hub on the loopback: repositories, commits, pull requests, LFS, collections, over real HTTP.

It keeps its own storage (a folder of blobs, trees in memory), checks tokens and permissions, and breaks on request:
`Hub.fail` makes the n-th request that matches fail, before or after it took effect. It is driven by the real
`huggingface_hub` and `datasets` clients only.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

BLOCK = 1 << 20
EPOCH = "2026-01-01T00:00:00.000Z"
HEX = re.compile(r"[0-9a-f]{40}")
LFS_SUFFIXES = (".parquet", ".zst", ".gz", ".bin", ".arrow", ".zip")
LFS_BYTES = 10_000_000
"""From this size on, or with one of the suffixes, a file must be stored in LFS."""


@dataclass(frozen=True)
class User:
    name: str
    organizations: tuple[str, ...] = ()
    can_write: bool = True
    """False for a token of the kind `read`."""


@dataclass(frozen=True)
class Blob:
    sha256: str
    size: int
    git_oid: str
    lfs: bool

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_oid


@dataclass(frozen=True)
class Commit:
    oid: str
    parent: str | None
    title: str
    description: str
    author: str
    tree: dict[str, Blob]


@dataclass
class Discussion:
    num: int
    title: str
    author: str
    status: str
    is_pull_request: bool
    base: str
    comments: list[str] = field(default_factory=list)
    merge_commit: str | None = None


@dataclass
class Repo:
    id: str
    private: bool
    gated: bool = False
    refs: dict[str, str] = field(default_factory=dict)
    """`main`, other branches, and `refs/pr/N` -> oid."""
    commits: dict[str, Commit] = field(default_factory=dict)
    discussions: list[Discussion] = field(default_factory=list)

    @property
    def head(self) -> Commit:
        return self.commits[self.refs["main"]]

    def at(self, revision: str) -> Commit | None:
        return self.commits.get(self.refs.get(revision, revision))


How = int | Literal["cut", "truncate", "slow", "html"]


@dataclass
class Fault:
    """One request to break. `how`: a status, `cut` (connection reset), `truncate` (half a body), `slow`, `html` (a page)."""

    how: How
    match: str = ""
    nth: int = 1
    times: int = 1
    when: Literal["before", "after"] = "before"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 5.0
    seen: int = 0

    def strikes(self, line: str) -> bool:
        if not re.search(self.match, line):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


@dataclass(frozen=True)
class Request:
    line: str
    """`METHOD /path?query`."""
    authorized: bool
    host: str
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):
    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


class Hub:
    """The storage and the rules; `Hub.url` is what HF_ENDPOINT should be."""

    def __init__(self, folder: Path) -> None:
        self.blobs = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.users: dict[str, User] = {}
        self.repos: dict[str, Repo] = {}
        self.collections: dict[str, list[str]] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.slept: list[float] = []
        """What clients in this process waited for, where the fixture does not let them."""
        self.before: list[Callable[[str], object]] = []
        """Called with every request's line before it is served: the place for somebody else to act in between."""
        self.lock = threading.RLock()
        self.cdn = False
        """Whether LFS files are served by redirecting to another host name, as the real one does."""
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self.server = _Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    # What tests arrange

    def add_user(self, token: str, name: str, organizations: tuple[str, ...] = (), can_write: bool = True) -> str:
        self.users[token] = User(name, organizations, can_write)
        return token

    def add_repo(
        self, repo_id: str, files: Mapping[str, bytes | Path | None] | None = None, private: bool = False, gated: bool = False
    ) -> Repo:
        repo = self.repos[repo_id] = Repo(repo_id, private, gated)
        first = self._commit(repo, None, {}, "initial commit", "", "system")
        repo.refs["main"] = first.oid
        if files:
            self.commit(repo_id, files)
        return repo

    def commit(
        self, repo_id: str, files: Mapping[str, bytes | Path | None], revision: str = "main", title: str = "change"
    ) -> str:
        """Somebody else's commit, made behind the client's back; None deletes a file."""
        with self.lock:
            repo = self.repos[repo_id]
            tree = dict(repo.commits[repo.refs[revision]].tree)
            for path, content in files.items():
                if content is None:
                    tree.pop(path, None)
                else:
                    tree[path] = self.store(content, path)
            commit = self._commit(repo, repo.refs[revision], tree, title, "", "somebody")
            repo.refs[revision] = commit.oid
            return commit.oid

    def read(self, repo_id: str, path: str, revision: str = "main") -> bytes:
        commit = self.repos[repo_id].at(revision)
        assert commit is not None, f"no revision {revision}"
        return (self.blobs / commit.tree[path].sha256).read_bytes()

    def fail(self, how: How, match: str = "", **options: Any) -> Fault:
        fault = Fault(how, match, **options)
        self.faults.append(fault)
        return fault

    def open_pull_requests(self, repo_id: str) -> list[Discussion]:
        return [one for one in self.repos[repo_id].discussions if one.is_pull_request and one.status in ("open", "draft")]

    # Storage

    def store(self, content: bytes | Path, path: str) -> Blob:
        source = None if isinstance(content, bytes) else content
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        digest, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)
        temporary = self.blobs / f"tmp-{os.urandom(8).hex()}"
        with open(temporary, "wb") as out:
            for block in [content] if isinstance(content, bytes) else _blocks(content):
                digest.update(block)
                git.update(block)
                out.write(block)
        os.replace(temporary, self.blobs / digest.hexdigest())
        del source
        return Blob(digest.hexdigest(), size, git.hexdigest(), is_lfs(path, size))

    def blob_in_lfs(self, sha256: str) -> Blob:
        path = self.blobs / sha256
        if not path.exists():
            raise Refused(400, f"Your push was rejected because an LFS pointer pointed to a file that does not exist: {sha256}")
        size = path.stat().st_size
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n" % (sha256.encode(), size)
        return Blob(sha256, size, hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest(), True)

    def _commit(self, repo: Repo, parent: str | None, tree: dict[str, Blob], title: str, description: str, author: str) -> Commit:
        seed = f"{repo.id}{parent}{title}{description}{author}{len(repo.commits)}{sorted((p, b.sha256) for p, b in tree.items())}"
        commit = Commit(hashlib.sha1(seed.encode()).hexdigest(), parent, title, description, author, tree)
        repo.commits[commit.oid] = commit
        return commit

    # Rules

    def user(self, token: str | None) -> User | None:
        if token is None:
            return None
        if token not in self.users:
            raise Refused(401, "Invalid credentials in Authorization header")
        return self.users[token]

    def can_write(self, repo: Repo, user: User | None) -> bool:
        owner = repo.id.split("/")[0]
        return user is not None and user.can_write and (owner == user.name or owner in user.organizations)

    def repo(self, repo_id: str, user: User | None, content: bool = False) -> Repo:
        repo = self.repos.get(repo_id)
        owner = repo_id.split("/")[0]
        member = user is not None and (owner == user.name or owner in user.organizations)
        if repo is None or (repo.private and not member):
            if user is None:
                raise Refused(401, "Invalid username or password.")
            raise Refused(404, "Repository not found", "RepoNotFound")
        if content and repo.gated and not member:
            raise Refused(401 if user is None else 403, "Access to this dataset is restricted.", "GatedRepo")
        return repo

    def revision(self, repo: Repo, revision: str) -> Commit:
        commit = repo.at(revision)
        if commit is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def apply(self, repo: Repo, user: User, revision: str, create_pr: bool, operations: list[dict[str, Any]]) -> dict[str, Any]:
        header = operations[0]["value"]
        with self.lock:
            if revision not in repo.refs:
                raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
            if not user.can_write:
                raise Refused(403, "Forbidden: you must use a write token to upload to a repository.")
            pull = re.fullmatch(r"refs/pr/(\d+)", revision)
            if pull:
                discussion = repo.discussions[int(pull[1]) - 1]
                if discussion.status not in ("open", "draft"):
                    raise Refused(403, "This pull request is closed.")
                if discussion.author != user.name and not self.can_write(repo, user):
                    raise Refused(403, "Forbidden: not your pull request")
            elif not create_pr and not self.can_write(repo, user):
                raise Refused(403, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")
            parent = header.get("parentCommit")
            base = repo.refs[revision]
            if parent and create_pr:
                base = self.revision(repo, parent).oid
            elif parent and parent != base:
                raise Refused(412, "A commit has happened since. Please refresh and try again.")
            tree = dict(repo.commits[base].tree)
            for operation in operations[1:]:
                value = operation["value"]
                kind = operation["key"]
                if kind == "file":
                    tree[value["path"]] = self.store(base64.b64decode(value["content"]), value["path"])
                    if tree[value["path"]].lfs:
                        raise Refused(400, f"{value['path']} must be uploaded with LFS")
                elif kind == "lfsFile":
                    tree[value["path"]] = self.blob_in_lfs(value["oid"])
                elif kind == "deletedFile":
                    if tree.pop(value["path"], None) is None:
                        raise Refused(404, "A file with this name doesn't exist", "EntryNotFound")
                elif kind == "deletedFolder":
                    folder = value["path"].rstrip("/") + "/"
                    tree = {path: blob for path, blob in tree.items() if not path.startswith(folder)}
            commit = self._commit(repo, base, tree, header["summary"], header.get("description", ""), user.name)
            answer: dict[str, Any] = {"success": True, "commitOid": commit.oid}
            answer["commitUrl"] = f"{self.url}/datasets/{repo.id}/commit/{commit.oid}"
            if create_pr:
                discussion = self.open(repo, user, header["summary"], header.get("description", ""), "open", True, revision)
                repo.refs[f"refs/pr/{discussion.num}"] = commit.oid
                answer["pullRequestUrl"] = f"{self.url}/datasets/{repo.id}/discussions/{discussion.num}"
            else:
                repo.refs[revision] = commit.oid
            return answer

    def open(self, repo: Repo, user: User, title: str, text: str, status: str, pull: bool, base: str) -> Discussion:
        discussion = Discussion(len(repo.discussions) + 1, title, user.name, status, pull, base, [text])
        repo.discussions.append(discussion)
        return discussion

    def merge(self, repo: Repo, user: User, discussion: Discussion) -> None:
        with self.lock:
            if not self.can_write(repo, user):
                raise Refused(403, "Forbidden: only maintainers merge")
            ref = f"refs/pr/{discussion.num}"
            head = repo.commits[repo.refs[ref]]
            seen, ancestor = set(), repo.refs["main"]
            while ancestor:
                seen.add(ancestor)
                ancestor = repo.commits[ancestor].parent or ""
            root: Commit = head
            while root.oid not in seen and root.parent:
                root = repo.commits[root.parent]
            tree = dict(repo.head.tree)
            for path in {*head.tree, *root.tree}:
                if head.tree.get(path) != root.tree.get(path):
                    if repo.head.tree.get(path) not in (root.tree.get(path), head.tree.get(path)):
                        raise Refused(409, f"This pull request has conflicts in {path}")
                    if path in head.tree:
                        tree[path] = head.tree[path]
                    else:
                        tree.pop(path, None)
            commit = self._commit(repo, repo.refs["main"], tree, f"{discussion.title} (#{discussion.num})", "", user.name)
            repo.refs["main"] = commit.oid
            discussion.status, discussion.merge_commit = "merged", commit.oid

    # Documents

    def info(self, repo: Repo, commit: Commit) -> dict[str, Any]:
        card = commit.tree.get("README.md")
        document: dict[str, Any] = {
            "_id": "0" * 24,
            "id": repo.id,
            "author": repo.id.split("/")[0],
            "sha": commit.oid,
            "private": repo.private,
            "gated": "auto" if repo.gated else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "createdAt": EPOCH,
            "lastModified": EPOCH,
            "siblings": [{"rfilename": path} for path in sorted(commit.tree)],
        }
        if card:
            text = (self.blobs / card.sha256).read_text("utf-8", errors="replace")
            if match := re.match(r"---\n(.*?)\n---\n", text, re.DOTALL):
                with contextlib.suppress(yaml.YAMLError):
                    document["cardData"] = yaml.safe_load(match[1])
        return document

    def entry(self, path: str, blob: Blob) -> dict[str, Any]:
        document: dict[str, Any] = {"type": "file", "path": path, "size": blob.size, "oid": blob.git_oid}
        if blob.lfs:
            document["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": 130}
        return document

    def listing(self, commit: Commit, folder: str, recursive: bool) -> list[dict[str, Any]]:
        prefix = f"{folder}/" if folder else ""
        entries: dict[str, dict[str, Any]] = {}
        for path, blob in sorted(commit.tree.items()):
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts) if recursive else min(2, len(parts))):
                name = prefix + "/".join(parts[:depth])
                entries.setdefault(
                    name, {"type": "directory", "path": name, "size": 0, "oid": hashlib.sha1(name.encode()).hexdigest()}
                )
            if recursive or len(parts) == 1:
                entries[path] = self.entry(path, blob)
        if folder and not entries:
            raise Refused(404, f"{folder} does not exist", "EntryNotFound")
        return list(entries.values())

    def discussion(self, repo: Repo, one: Discussion) -> dict[str, Any]:
        author = {"name": one.author, "type": "user"}
        document: dict[str, Any] = {
            "num": one.num,
            "title": one.title,
            "author": author,
            "createdAt": EPOCH,
            "status": one.status,
            "repo": {"name": repo.id, "type": "dataset"},
            "isPullRequest": one.is_pull_request,
            "events": [
                {
                    "id": f"{index:024x}",
                    "type": "comment",
                    "createdAt": EPOCH,
                    "author": author,
                    "data": {
                        "edited": False,
                        "hidden": False,
                        "latest": {"raw": text, "html": text, "updatedAt": EPOCH},
                        "history": [],
                    },
                }
                for index, text in enumerate(one.comments)
            ],
        }
        if one.is_pull_request:
            document["changes"] = {"base": f"refs/heads/{one.base}", "mergeCommitId": one.merge_commit}
            document["filesWithConflicts"] = []
            document["diff"] = ""
        return document


def is_lfs(path: str, size: int) -> bool:
    return size >= LFS_BYTES or (path.endswith(LFS_SUFFIXES) and size > 0)


def _blocks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        while block := stream.read(BLOCK):
            yield block


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do(self) -> None:
        hub = self.hub
        line = f"{self.command} {self.path}"
        self.body_read = False
        for act in list(hub.before):
            act(line)
        with hub.lock:
            struck = [fault for fault in hub.faults if fault.strikes(line)]
            authorization = self.headers.get("Authorization") or ""
            hub.requests.append(
                Request(line, bool(authorization), self.headers.get("Host", ""), {k.lower(): v for k, v in self.headers.items()})
            )
        self.fault = struck[0] if struck else None
        if self.fault and self.fault.when == "before" and self.strike(self.fault):
            return
        self.url = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(self.url.query).items()}
        try:
            token = authorization.removeprefix("Bearer ").strip() or None
            self.user = hub.user(token) if not self.url.path.startswith("/cdn/") else None
            for methods, pattern, handle in ROUTES:
                if self.command in methods and (match := re.fullmatch(pattern, self.url.path)):
                    handle(self, *(unquote(group) for group in match.groups() if group is not None))
                    return
            raise Refused(404, f"no such endpoint: {line}")
        except Refused as refusal:
            headers = {"X-Error-Message": refusal.message}
            if refusal.code:
                headers["X-Error-Code"] = refusal.code
            self.reply({"error": refusal.message}, refusal.status, headers)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do

    def strike(self, fault: Fault) -> bool:
        """Break this request; True if it is over."""
        if fault.how == "slow":
            threading.Event().wait(fault.seconds)
            return False
        if fault.how == "truncate":
            return False
        if fault.how == "cut":
            self.cut()
            return True
        self.drain()
        if fault.how == "html":
            page = b"<!DOCTYPE html>\n<html><head><title>Sign in to the proxy</title></head><body>...</body></html>\n"
            self.send(page, 200, {"Content-Type": "text/html"})
        else:
            assert isinstance(fault.how, int)
            body = json.dumps({"error": "injected"}).encode()
            self.send(body, fault.how, {"Content-Type": "application/json", **fault.headers})
        return True

    def cut(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    # Bodies

    def body_blocks(self) -> Iterator[bytes]:
        self.body_read = True
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            block = self.rfile.read(min(left, BLOCK))
            if not block:
                raise ConnectionError
            left -= len(block)
            yield block

    def body(self) -> bytes:
        return b"".join(self.body_blocks())

    def drain(self) -> None:
        if not self.body_read:
            for _ in self.body_blocks():
                pass

    def reply(self, document: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(json.dumps(document).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def send(self, data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.drain()
        fault = getattr(self, "fault", None)
        if fault and fault.when == "after":
            self.fault = None
            if self.strike(fault):
                return
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_file(self, path: Path, etag: str, headers: dict[str, str]) -> None:
        size = path.stat().st_size
        start, stop, status = 0, size, 200
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            start = int(wanted[1])
            stop = min(size, int(wanted[2]) + 1) if wanted[2] else size
            status = 206
            if start >= size:
                self.send(b"", 416, {"Content-Range": f"bytes */{size}"})
                return
            headers = {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}
        self.drain()
        self.send_response(status)
        for name, value in {
            **headers,
            "ETag": f'"{etag}"',
            "Accept-Ranges": "bytes",
            "Content-Length": str(stop - start),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        fault = getattr(self, "fault", None)
        limit = start + (stop - start) // 2 if fault and fault.how == "truncate" else stop
        with open(path, "rb") as stream:
            stream.seek(start)
            while start < limit and (block := stream.read(min(BLOCK, limit - start))):
                self.wfile.write(block)
                start += len(block)
        if limit < stop:
            self.wfile.flush()
            threading.Event().wait(0.05)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    # Endpoints

    def signed_in(self) -> User:
        if self.user is None:
            raise Refused(401, "Invalid username or password.")
        return self.user

    def whoami(self) -> None:
        user = self.signed_in()
        orgs = [{"name": name, "type": "org", "fullname": name, "roleInOrg": "write"} for name in user.organizations]
        role = "write" if user.can_write else "read"
        auth = {"type": "access_token", "accessToken": {"displayName": "test", "role": role}}
        self.reply({"type": "user", "id": "1", "name": user.name, "fullname": user.name, "orgs": orgs, "auth": auth})

    def create_repo(self) -> None:
        user, wish = self.signed_in(), json.loads(self.body())
        owner = wish.get("organization") or user.name
        repo_id = f"{owner}/{wish['name']}"
        if repo_id in self.hub.repos:
            self.reply({"error": "You already created this dataset repo", "url": f"{self.hub.url}/datasets/{repo_id}"}, 409)
            return
        if not user.can_write or (owner != user.name and owner not in user.organizations):
            raise Refused(403, f"You don't have the rights to create a dataset under the namespace {owner}")
        self.hub.add_repo(repo_id, private=wish.get("visibility") == "private" or bool(wish.get("private")))
        self.reply({"url": f"{self.hub.url}/datasets/{repo_id}", "name": repo_id, "id": "1"})

    def validate_yaml(self) -> None:
        wish = json.loads(self.body())
        match = re.match(r"---\r?\n(.*?)\r?\n---", wish["content"], re.DOTALL)
        errors = []
        try:
            data = yaml.safe_load(match[1]) if match else None
            if data is not None and not isinstance(data, dict):
                errors.append({"message": "the metadata is not a mapping"})
            sizes = data.get("size_categories", []) if isinstance(data, dict) else []
            known = r"n<1K|1K<n<10K|10K<n<100K|100K<n<1M|1M<n<10M|10M<n<100M|100M<n<1B"
            errors += [{"message": f'"size_categories" {one} is not known'} for one in sizes if not re.fullmatch(known, one)]
        except yaml.YAMLError as error:
            errors.append({"message": f"not YAML: {error}"})
        warnings = [] if match else [{"message": "empty or missing yaml metadata in repo card"}]
        self.reply({"errors": errors, "warnings": warnings}, 400 if errors else 200)

    def repo_info(self, repo_id: str, revision: str = "main") -> None:
        repo = self.hub.repo(repo_id, self.user)
        self.reply(self.hub.info(repo, self.hub.revision(repo, revision)))

    def delete_repo(self) -> None:
        raise Refused(403, "this Hub deletes nothing")

    def tree(self, repo_id: str, revision: str, folder: str = "") -> None:
        repo = self.hub.repo(repo_id, self.user, content=True)
        commit = self.hub.revision(repo, revision)
        self.reply(self.hub.listing(commit, folder.strip("/"), self.query.get("recursive", "").lower() in ("1", "true")))

    def paths_info(self, repo_id: str, revision: str) -> None:
        body = self.body()
        if "json" in (self.headers.get("Content-Type") or ""):
            paths = json.loads(body)["paths"]
        else:
            paths = parse_qs(body.decode()).get("paths", [])
        repo = self.hub.repo(repo_id, self.user, content=True)
        tree = self.hub.revision(repo, revision).tree
        folders = [path for path in paths if path not in tree and any(one.startswith(path.rstrip("/") + "/") for one in tree)]
        found = [self.hub.entry(path, tree[path]) for path in paths if path in tree]
        self.reply(found + [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in folders])

    def refs(self, repo_id: str) -> None:
        repo = self.hub.repo(repo_id, self.user)
        branches = [name for name in repo.refs if not name.startswith("refs/")]
        document: dict[str, Any] = {"tags": [], "converts": []}
        document["branches"] = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": repo.refs[name]} for name in branches]
        pulls = [name for name in repo.refs if name.startswith("refs/pr/")]
        document["pullRequests"] = [
            {"name": name.removeprefix("refs/"), "ref": name, "targetCommit": repo.refs[name]} for name in pulls
        ]
        self.reply(document)

    def commits(self, repo_id: str, revision: str) -> None:
        repo = self.hub.repo(repo_id, self.user)
        one: Commit | None = self.hub.revision(repo, revision)
        history = []
        while one:
            authors = [{"user": one.author}]
            history.append({"id": one.oid, "title": one.title, "message": one.description, "date": EPOCH, "authors": authors})
            one = repo.commits.get(one.parent or "")
        self.reply(history)

    def branch(self, repo_id: str, name: str) -> None:
        wish = json.loads(self.body() or b"{}")
        repo = self.hub.repo(repo_id, self.user)
        if not self.hub.can_write(repo, self.signed_in()):
            raise Refused(403, "Forbidden")
        if name in repo.refs:
            raise Refused(409, f"Reference {name} exists already")
        repo.refs[name] = self.hub.revision(repo, wish.get("startingPoint") or "main").oid
        self.reply({"success": True})

    def preupload(self, repo_id: str, revision: str) -> None:
        wish = json.loads(self.body())
        user = self.signed_in()
        repo = self.hub.repo(repo_id, user)
        tree = self.hub.revision(repo, revision).tree
        if not user.can_write or (
            "create_pr" not in self.query and not self.hub.can_write(repo, user) and "/pr/" not in revision
        ):
            raise Refused(403, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")
        files = []
        for one in wish["files"]:
            mode = "lfs" if is_lfs(one["path"], one["size"]) else "regular"
            held = tree.get(one["path"])
            files.append({"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": held.etag if held else None})
        self.reply({"files": files})

    def commit(self, repo_id: str, revision: str) -> None:
        operations = [json.loads(line) for line in self.body().splitlines() if line]
        user = self.signed_in()
        repo = self.hub.repo(repo_id, user)
        self.reply(self.hub.apply(repo, user, revision, "create_pr" in self.query, operations))

    def lfs_batch(self, repo_id: str) -> None:
        wish = json.loads(self.body())
        user = self.signed_in()
        self.hub.repo(repo_id, user)
        if not user.can_write:
            raise Refused(403, "Forbidden: you must use a write token")
        objects = []
        for one in wish["objects"]:
            answer: dict[str, Any] = {"oid": one["oid"], "size": one["size"]}
            if not (self.hub.blobs / one["oid"]).exists():
                base = f"{self.hub.url}/lfs/{repo_id}/{one['oid']}"
                answer["actions"] = {"upload": {"href": base, "header": {}}, "verify": {"href": f"{base}/verify", "header": {}}}
            objects.append(answer)
        self.reply({"transfer": "basic", "objects": objects}, headers={"Content-Type": "application/vnd.git-lfs+json"})

    def lfs_put(self, repo_id: str, oid: str) -> None:
        temporary = self.hub.blobs / f"tmp-{os.urandom(8).hex()}"
        digest = hashlib.sha256()
        try:
            with open(temporary, "wb") as out:
                for block in self.body_blocks():
                    digest.update(block)
                    out.write(block)
            if digest.hexdigest() != oid:
                raise Refused(400, "the content does not have this digest")
            os.replace(temporary, self.hub.blobs / oid)
        finally:
            temporary.unlink(missing_ok=True)
        self.reply({})

    def lfs_verify(self, repo_id: str, oid: str) -> None:
        wish = json.loads(self.body())
        path = self.hub.blobs / wish["oid"]
        if not path.exists() or path.stat().st_size != wish["size"]:
            raise Refused(404, "object not found")
        self.reply({})

    def resolve(self, repo_id: str, revision: str, path: str) -> None:
        repo = self.hub.repo(repo_id, self.user, content=True)
        commit = self.hub.revision(repo, revision)
        headers = {"X-Repo-Commit": commit.oid, "Content-Disposition": f"inline; filename*=UTF-8''{quote(path.split('/')[-1])}"}
        blob = commit.tree.get(path)
        if blob is None:
            self.reply({}, 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found", **headers})
            return
        if blob.lfs:
            headers |= {"X-Linked-Size": str(blob.size), "X-Linked-ETag": f'"{blob.sha256}"'}
            if self.hub.cdn:
                self.send(
                    b"", 302, {**headers, "Location": f"http://localhost:{self.hub.port}/cdn/{blob.sha256}", "ETag": '"302"'}
                )
                return
        self.send_file(self.hub.blobs / blob.sha256, blob.etag, headers)

    def from_cdn(self, sha256: str) -> None:
        self.send_file(self.hub.blobs / sha256, sha256, {})

    def discussions(self, repo_id: str) -> None:
        repo = self.hub.repo(repo_id, self.user)
        if self.command == "POST":
            wish = json.loads(self.body())
            user = self.signed_in()
            pull = wish["pullRequest"]
            one = self.hub.open(repo, user, wish["title"], wish["description"], "draft" if pull else "open", pull, "main")
            if pull:
                repo.refs[f"refs/pr/{one.num}"] = repo.refs["main"]
            self.reply({"num": one.num, "pullRequest": pull, "url": f"{self.hub.url}/datasets/{repo_id}/discussions/{one.num}"})
            return
        kinds = {"pull_request": (True,), "discussion": (False,)}.get(self.query.get("type", ""), (True, False))
        states = {"open": ("open", "draft"), "closed": ("closed", "merged")}.get(self.query.get("status", ""))
        found = [one for one in reversed(repo.discussions) if one.is_pull_request in kinds]
        found = [one for one in found if states is None or one.status in states]
        if author := self.query.get("author"):
            found = [one for one in found if one.author == author]
        start = 10 * int(self.query.get("p", 0))
        page = [self.hub.discussion(repo, one) for one in found[start : start + 10]]
        self.reply({"discussions": page, "count": len(found), "start": start})

    def discussion(self, repo_id: str, num: str, action: str = "") -> None:
        repo = self.hub.repo(repo_id, self.user)
        if not 1 <= int(num) <= len(repo.discussions):
            raise Refused(404, "Discussion not found")
        one = repo.discussions[int(num) - 1]
        if self.command == "POST":
            wish = json.loads(self.body() or b"{}")
            user = self.signed_in()
            if action == "merge":
                self.hub.merge(repo, user, one)
            elif action == "status":
                one.status = wish["status"]
            elif action == "comment":
                one.comments.append(wish["comment"])
                self.reply({"newMessage": self.hub.discussion(repo, one)["events"][-1]})
                return
        self.reply(self.hub.discussion(repo, one))

    def collection(self, owner: str, name: str, items: str = "") -> None:
        slug = f"{owner}/{name}"
        if slug not in self.hub.collections:
            raise Refused(404, "Collection not found")
        held = self.hub.collections[slug]
        if self.command == "POST":
            wish = json.loads(self.body())["item"]
            user = self.signed_in()
            if owner != user.name and owner not in user.organizations:
                raise Refused(403, "Forbidden: not your collection")
            if wish["id"] in held:
                raise Refused(409, "Item is already in the collection")
            held.append(wish["id"])
        shown = [{"_id": f"{index:024x}", "id": one, "type": "dataset", "position": index} for index, one in enumerate(held)]
        document = {"slug": slug, "title": name, "owner": {"name": owner}, "items": shown, "lastUpdated": EPOCH}
        self.reply({**document, "position": 0, "private": False, "theme": "blue", "upvotes": 0})


_REPO = r"/api/datasets/([^/]+/[^/]+)"
_REV = r"(refs/pr/\d+|[^/]+)"
"""A revision, which some clients quote and others do not."""
ROUTES: list[tuple[tuple[str, ...], str, Callable[..., None]]] = [
    (("GET",), "/api/whoami-v2", _Handler.whoami),
    (("POST",), "/api/repos/create", _Handler.create_repo),
    (("DELETE",), "/api/repos/delete", _Handler.delete_repo),
    (("POST",), "/api/validate-yaml", _Handler.validate_yaml),
    (("GET", "POST"), r"/api/collections/([^/]+)/([^/]+)", _Handler.collection),
    (("GET", "POST"), r"/api/collections/([^/]+)/([^/]+)/(items)", _Handler.collection),
    (("GET",), _REPO, _Handler.repo_info),
    (("GET",), _REPO + r"/revision/(.+)", _Handler.repo_info),
    (("GET",), _REPO + r"/tree/" + _REV, _Handler.tree),
    (("GET",), _REPO + r"/tree/" + _REV + r"/(.*)", _Handler.tree),
    (("POST",), _REPO + r"/paths-info/" + _REV, _Handler.paths_info),
    (("GET",), _REPO + r"/refs", _Handler.refs),
    (("GET",), _REPO + r"/commits/" + _REV, _Handler.commits),
    (("POST",), _REPO + r"/branch/(.+)", _Handler.branch),
    (("POST",), _REPO + r"/preupload/" + _REV, _Handler.preupload),
    (("POST",), _REPO + r"/commit/" + _REV, _Handler.commit),
    (("GET", "POST"), _REPO + r"/discussions", _Handler.discussions),
    (("GET",), _REPO + r"/discussions/(\d+)", _Handler.discussion),
    (("POST",), _REPO + r"/discussions/(\d+)/(merge|status|comment)", _Handler.discussion),
    (("POST",), r"/datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch", _Handler.lfs_batch),
    (("PUT",), r"/lfs/([^/]+/[^/]+)/([0-9a-f]{64})", _Handler.lfs_put),
    (("POST",), r"/lfs/([^/]+/[^/]+)/([0-9a-f]{64})/verify", _Handler.lfs_verify),
    (("GET", "HEAD"), r"/datasets/([^/]+/[^/]+)/resolve/" + _REV + r"/(.+)", _Handler.resolve),
    (("GET", "HEAD"), r"/cdn/([0-9a-f]{64})", _Handler.from_cdn),
]


def serve(folder: Path | None = None) -> Hub:
    """A Hub over `folder` (a fresh temporary one if None); use it as a context manager."""
    return Hub(folder or Path(tempfile.mkdtemp(prefix="hub-")))


def discard(hub: Hub) -> None:
    shutil.rmtree(hub.blobs, ignore_errors=True)
