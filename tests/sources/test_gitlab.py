"""What a GitLab model registry gives and takes: whole files, checked answers, and names explained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gymdata.errors import ConfigError, DataError, ExternalError, UsageError
from gymdata.sources.gitlab import Registry, find_registry
from gymdata.sources.hub import Credentials
from tests.servers.gitlab import GitLab

TOKEN = "glpat-canary7QpCanary7QpCan"


@pytest.fixture
def gitlab(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLab]:
    server = GitLab(TOKEN)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    yield server
    server.close()


@pytest.fixture
def registry(gitlab: GitLab) -> Registry:
    return Registry(gitlab.uri, Credentials(TOKEN))


def test_what_is_uploaded_is_downloaded(gitlab: GitLab, registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_bytes(b'{"a": 1e-12}\n' * 100_000)
    assert registry.upload("Math", "0.1.0", file) == "train.jsonl"
    fetched = registry.download("Math", "0.1.0", "train.jsonl", tmp_path / "new" / "back.jsonl")
    assert fetched.path.read_bytes() == file.read_bytes()
    assert (fetched.repo_id, fetched.commit) == ("Math", "0.1.0")


def test_a_second_file_and_a_second_version_join_the_first(gitlab: GitLab, registry: Registry, tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(b"{}\n")
    registry.upload("Math", "0.1.0", tmp_path / "a.jsonl")
    registry.upload("Math", "0.1.0", tmp_path / "b.jsonl")
    registry.upload("Math", "0.2.0", tmp_path / "a.jsonl")
    assert {version: sorted(files) for version, files in gitlab.models["Math"].items()} == {
        "0.1.0": ["a.jsonl", "b.jsonl"],
        "0.2.0": ["a.jsonl"],
    }


@pytest.mark.parametrize(
    ("name", "version", "artifact", "says"),
    [
        ("math", "0.1.0", "train.jsonl", "did you mean 'Math'?"),
        ("Physics", "0.1.0", "train.jsonl", "no dataset 'Physics'"),
        ("Math", "9.0.0", "train.jsonl", "no such version"),
        ("Math", "0.1.0", "Train.jsonl", "case-sensitive"),
    ],
)
def test_what_is_not_there_is_explained_and_nothing_is_written(
    gitlab: GitLab, registry: Registry, tmp_path: Path, name: str, version: str, artifact: str, says: str
) -> None:
    gitlab.models["Math"] = {"0.1.0": {"train.jsonl": b"{}\n"}}
    with pytest.raises(ExternalError) as error:
        registry.download(name, version, artifact, tmp_path / "out.jsonl")
    assert says in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_page_is_not_saved_as_the_dataset(gitlab: GitLab, registry: Registry, tmp_path: Path) -> None:
    gitlab.models["Math"] = {"0.1.0": {"train.jsonl": b"<!DOCTYPE html><html>Sign in</html>"}}
    with pytest.raises(DataError, match="HTML page"):
        registry.download("Math", "0.1.0", "train.jsonl", tmp_path / "out.jsonl")
    gitlab.fail("model-versions", 200, body=b"<html>Sign in</html>")
    with pytest.raises(ExternalError, match="no MLflow API"):
        registry.download("Math", "0.1.0", "train.jsonl", tmp_path / "out.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_busy_server_is_waited_for(gitlab: GitLab, registry: Registry, tmp_path: Path, status: int) -> None:
    gitlab.models["Math"] = {"0.1.0": {"train.jsonl": b"{}\n"}}
    for request in ("model-versions", "runs/get", "files/"):
        gitlab.fail(request, status, times=2)
    assert registry.download("Math", "0.1.0", "train.jsonl", tmp_path / "out.jsonl").bytes == 3


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_an_error_that_keeps_the_token_to_itself(
    registry: Registry, gitlab: GitLab, tmp_path: Path, status: int
) -> None:
    gitlab.fail("model-versions", status)
    with pytest.raises(ExternalError) as error:
        registry.download("Math", "0.1.0", "train.jsonl", tmp_path / "out.jsonl")
    assert "mlflow_tracking_token" in str(error.value)
    assert TOKEN not in str(error.value) + repr(registry)


def test_deleting_needs_the_exact_name(gitlab: GitLab, registry: Registry) -> None:
    gitlab.models["Math"] = {}
    with pytest.raises(ExternalError, match="did you mean 'Math'"):
        registry.delete("math")
    registry.delete("Math")
    assert gitlab.models == {}


def test_a_path_that_leaves_the_dataset_is_refused(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        registry.download("Math", "0.1.0", "../../secret", tmp_path / "out")


def test_versions_have_three_numbers(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"x\.y\.z"):
        registry.upload("Math", "v1", tmp_path)


def test_without_a_registry_the_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError, match="mlflow_tracking_uri"):
        find_registry()
