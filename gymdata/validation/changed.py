"""Which data files differ from a git revision, for validating what a pull request touches and nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gymdata.errors import UsageError

DATA_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_METRICS = "_metrics.json"


def changed_files(ref: str, paths: Sequence[Path] = (), cwd: Path | None = None) -> list[Path]:
    """Data files of the repository around `cwd` that were added, modified or renamed since `ref` and this branch parted.

    What is not committed, or not even added (and not ignored), counts too; what was deleted does not. With `paths`, only files
    that are one of them or lie below one. Paths are relative to `cwd`, in order of their names. Raises UsageError outside of a
    git repository and for an unknown `ref`. A metrics file that changed stands for the data file beside it.
    """
    cwd = Path.cwd() if cwd is None else cwd
    try:
        top = Path(os.fsdecode(_git(cwd, "rev-parse", "--show-toplevel").removesuffix(b"\n")))
    except _GitError as error:
        words = error.message
        reason = "is not in a git repository" if "not a git repository" in words else f"cannot be read by git: {words}"
        raise UsageError(f"--changed {ref}: {cwd} {reason}", "run it inside the repository, or give the files by name") from None
    base = _merge_base(cwd, ref)
    listed = _git(top, "diff", "--name-only", "-z", "--no-ext-diff", "--diff-filter=ACMRT", "--find-renames", base, "--")
    listed += _git(top, "ls-files", "-z", "--others", "--exclude-standard")
    for path in paths:
        if not (cwd / path).exists() and not _git(cwd, "ls-tree", base, "--", os.fspath(path)):
            raise UsageError(f"{path}: no such file or folder, nor was there one at {ref}", "check its name")
    chosen = [Path(os.path.realpath(cwd / path)) for path in paths]
    found: list[Path] = []
    names = {os.fsdecode(name) for name in listed.split(b"\0") if name}
    names |= {name.removesuffix(_METRICS) + suffix for name in names if name.endswith(_METRICS) for suffix in DATA_SUFFIXES}
    for name in sorted(names):
        path = top / name
        if not name.endswith(DATA_SUFFIXES) or not path.is_file():
            continue
        if not chosen or any(path == place or path.is_relative_to(place) for place in chosen):
            found.append(Path(os.path.relpath(path, cwd.resolve())))
    return found


def _merge_base(cwd: Path, ref: str) -> str:
    try:
        commit = _git(cwd, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip().decode()
    except _GitError:
        hint = "fetch it (git fetch origin BRANCH; in GitHub Actions: fetch-depth: 0), or name another revision"
        raise UsageError(f"--changed {ref}: git knows no such revision", hint) from None
    try:
        return _git(cwd, "merge-base", commit, "HEAD").split()[0].decode()
    except (_GitError, IndexError):
        hint = "fetch more history (git fetch --unshallow; in GitHub Actions: fetch-depth: 0)"
        raise UsageError(f"--changed {ref}: it has no commit in common with HEAD here", hint) from None


class _GitError(UsageError):
    """What git said."""


def _git(cwd: Path, *arguments: str) -> bytes:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(["git", *arguments], cwd=cwd, env=environment, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError("--changed needs git, which is not installed", "install git, or give the files by name") from None
    if done.returncode:
        raise _GitError(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return done.stdout
