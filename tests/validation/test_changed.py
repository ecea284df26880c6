"""What differs from a revision, asked of a real git repository."""

import subprocess
from pathlib import Path

import pytest

from gymdata.errors import UsageError
from gymdata.validation.changed import changed_files


def git(repo: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=repo, check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path) -> Path:
    """A branch beside `main`: each has changed since they parted."""
    git(tmp_path, "init", "-b", "main")
    (tmp_path / "data").mkdir()
    for name in ("kept", "edited", "moved", "gone", "theirs"):
        (tmp_path / "data" / f"{name}.jsonl").write_text(f"{name}\n" * 20)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    git(tmp_path, "checkout", "-b", "work")
    (tmp_path / "data" / "edited.jsonl").write_text("other\n")
    git(tmp_path, "mv", "data/moved.jsonl", "data/new name é.jsonl")
    git(tmp_path, "rm", "data/gone.jsonl")
    (tmp_path / "data" / "added.jsonl.gz").write_text("x")
    (tmp_path / "README.md").write_text("x")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "two")
    git(tmp_path, "checkout", "main")
    (tmp_path / "data" / "theirs.jsonl").write_text("theirs\n")
    git(tmp_path, "commit", "-am", "three")
    git(tmp_path, "checkout", "work")
    return tmp_path


def names(paths: list[Path]) -> list[str]:
    return [path.as_posix() for path in paths]


def test_added_edited_and_renamed_data_of_this_branch(repo):
    expected = ["data/added.jsonl.gz", "data/edited.jsonl", "data/new name é.jsonl"]
    assert names(changed_files("main", cwd=repo)) == expected


def test_what_is_not_committed_yet_counts(repo):
    (repo / ".gitignore").write_text("ignored.jsonl\n")
    (repo / "ignored.jsonl").write_text("x")
    (repo / "untracked.jsonl.zst").write_text("x")
    (repo / "data" / "kept.jsonl").write_text("x")
    (repo / "data" / "edited.jsonl").unlink()
    expected = ["data/added.jsonl.gz", "data/kept.jsonl", "data/new name é.jsonl", "untracked.jsonl.zst"]
    assert names(changed_files("main", cwd=repo)) == expected


def test_a_metrics_file_stands_for_its_data(repo):
    git(repo, "checkout", "main")
    (repo / "data" / "kept_metrics.json").write_text("{}")
    (repo / "data" / "no_data_metrics.json").write_text("{}")
    assert names(changed_files("main", cwd=repo)) == ["data/kept.jsonl"]


def test_from_a_folder_paths_are_as_seen_from_there(repo):
    (repo / "top.jsonl").write_text("x")
    (repo / "other").mkdir()
    assert "../data/edited.jsonl" in names(changed_files("main", cwd=repo / "other"))
    assert "../top.jsonl" in names(changed_files("main", cwd=repo / "data"))


def test_paths_narrow_it_down(repo):
    (repo / "top.jsonl").write_text("x")
    assert names(changed_files("main", [Path("top.jsonl")], cwd=repo)) == ["top.jsonl"]
    assert names(changed_files("main", [Path("../data/edited.jsonl")], cwd=repo / "data")) == ["edited.jsonl"]
    assert len(changed_files("main", [Path("data")], cwd=repo)) == 3


def test_a_path_that_never_was_is_a_mistake_and_one_that_is_gone_is_not(repo):
    assert changed_files("main", [Path("gone.jsonl")], cwd=repo / "data") == []
    with pytest.raises(UsageError, match="dat: no such file or folder"):
        changed_files("main", [Path("dat")], cwd=repo)


@pytest.mark.parametrize("ref", ["no-such-branch", "--output=x", ""])
def test_an_unknown_revision_is_said(repo, ref):
    with pytest.raises(UsageError, match="no such revision") as caught:
        changed_files(ref, cwd=repo)
    assert "fetch-depth: 0" in caught.value.hint
    assert not (repo / "x").exists()


def test_a_branch_without_a_common_past_is_said(repo):
    git(repo, "checkout", "--orphan", "alone")
    git(repo, "commit", "-m", "alone")
    with pytest.raises(UsageError, match="no commit in common"):
        changed_files("main", cwd=repo)


def test_outside_of_a_repository_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="not in a git repository"):
        changed_files("main", cwd=tmp_path)


def test_no_git_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="not installed"):
        changed_files("main", cwd=tmp_path)
