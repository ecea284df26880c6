"""The commands as a person runs them: exit codes, what is on which stream, and never a token anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gymdata.publish.dataset import Dataset
from tests.publish.conftest import row
from tests.servers.fixtures import OTHER, OWNER
from tests.servers.gitlab import GitLab
from tests.servers.hub import Hub

REPO = "acme/Nemotron-RL-math-sums"
Prepare = Callable[..., Dataset]
ROOT = Path(__file__).parents[2]


def gymdata(*arguments: object, token: str | None = OWNER, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"HF_TOKEN": token} if token else {})}
    command = [sys.executable, "-m", "gymdata.cli.main", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, check=False
    )


def test_publish_prints_the_pull_request_and_verifies_it(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    dataset = prepare(train=[row("a"), row("b", "0.6")])
    command = ("publish", "math", "--output-dir", dataset.directory, "--repo-id", REPO, "--create-pr")
    done = gymdata(*command, token=OTHER)
    assert (done.returncode, done.stdout) == (0, f"{hub.url}/datasets/{REPO}/discussions/1\n"), done.stderr
    assert "all 2 rows came back as they were sent" in done.stderr
    again = gymdata(*command, "--format", "json", token=OTHER)
    document = json.loads(again.stdout)
    assert document["sent"] is False, again.stderr
    assert document["verified"] == {"train": 2}, "an earlier run may have been killed before it had compared the rows"


def test_dry_run_shows_everything_and_sends_nothing(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO, {"train.jsonl": row("a") + b"\n" + row("gone") + b"\n"})
    dataset = prepare(train=[row("a"), row("b")])
    done = gymdata("publish", "math", "--output-dir", dataset.directory, "--repo-id", REPO, "--create-pr", "--dry-run")
    assert done.returncode == 0, done.stderr
    shown_lines = ("new pull request", "changed  train.jsonl", "2 -> 2 rows; 1 added, 1 removed", "license: mit", "line 2")
    for shown in (*shown_lines, "message: Publish train with gymdata"):
        assert shown in done.stdout
    assert list(hub.repos[REPO].head.tree) == ["train.jsonl"] and not hub.repos[REPO].discussions


def test_a_dataset_that_may_not_leave_exits_1_with_the_reasons(hub: Hub, prepare: Prepare) -> None:
    dataset = prepare(license="NVIDIA Internal Use Only, Do Not Distribute", train=[row("a")])
    done = gymdata("publish", "math", "--output-dir", dataset.directory, "--repo-id", REPO)
    assert done.returncode == 1 and "GD703" in done.stderr and done.stdout == ""
    assert not hub.requests


def test_diff_takes_a_directory_and_a_revision_of_the_hub(hub: Hub, prepare: Prepare) -> None:
    dataset = prepare(train=[row("a"), row("b")])
    gymdata("publish", "math", "--output-dir", dataset.directory, "--repo-id", REPO, "--no-private", "--no-verify")
    same = gymdata("diff", f"{REPO}@main", dataset.directory)
    assert same.returncode == 0 and "the same rows" in same.stdout, same.stderr + same.stdout
    other = prepare(train=[row("a"), row("b", "5")])
    changed = gymdata("diff", f"{REPO}@main", other.directory, "--format", "json")
    assert json.loads(changed.stdout)["splits"][0]["changed"] == 1


def test_download_by_split_and_by_artifact(hub: Hub, tmp_path: Path) -> None:
    content = row("a") + b"\n"
    hub.add_repo(REPO, {"train.jsonl": content})
    by_split = gymdata("download", "--repo-id", REPO, "--split", "train", "--output", tmp_path / "a.jsonl", token=None)
    by_file = gymdata("download", "--repo-id", REPO, "--artifact", "train.jsonl", "--output-dir", tmp_path / "b", token=None)
    assert (by_split.returncode, by_file.returncode) == (0, 0), by_split.stderr + by_file.stderr
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b" / "train.jsonl").read_bytes() == content
    both = gymdata("download", "--repo-id", REPO, "--split", "train", "--artifact", "x")
    assert both.returncode == 2 and "both" in both.stderr


@pytest.mark.parametrize("how", ["none", "cut", 403])
def test_a_token_appears_nowhere(hub: Hub, prepare: Prepare, tmp_path: Path, how) -> None:
    dataset = prepare(train=[row("a")])
    hub.add_repo(REPO)
    if how != "none":
        hub.fail(how, "/commit/", times=1 if how == "cut" else 100)
    command = ("publish", "math", "--output-dir", dataset.directory, "--repo-id", REPO, "--create-pr")
    runs = [gymdata(*command), gymdata(*command, "--debug"), gymdata("download", "--repo-id", "acme/none")]
    assert [run.returncode for run in runs] == ([3, 1, 3] if how == 403 else [0, 0, 3]), runs
    for run in runs:
        assert OWNER not in run.stdout + run.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and OWNER.encode() in path.read_bytes()]
    assert all(OWNER not in request.line for request in hub.requests)


def test_a_dataset_moves_from_gitlab_and_is_deleted_only_once_the_hub_has_it(hub: Hub, tmp_path: Path, monkeypatch) -> None:
    token = "glpat-canary7QpCanary7QpCan"
    gitlab = GitLab(token)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", gitlab.uri)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token)
    (tmp_path / "train.jsonl").write_bytes(row("a") + b"\n" + row("b", "0.6") + b"\n")
    version = ("--name", "Sums", "--version", "0.1.0")
    runs = [gymdata("registry", "upload", *version, "--input", tmp_path / "train.jsonl", cwd=tmp_path)]
    move = ("registry", "migrate", *version, "--artifact", "train.jsonl", "math", "--repo-id", REPO, "--delete")
    runs.append(gymdata(*move, "--input", tmp_path / "train.jsonl", "--confirm", "Sums", cwd=tmp_path))
    assert runs[-1].returncode == 2 and "unrecognized arguments: --input" in runs[-1].stderr
    runs.append(gymdata(*move, "--create-pr", "--confirm", "Sums", cwd=tmp_path))
    assert runs[-1].returncode == 2 and "can still be closed" in runs[-1].stderr
    runs.append(gymdata(*move, "--confirm", "sums", cwd=tmp_path))
    assert runs[-1].returncode == 2 and "not confirmed" in runs[-1].stderr
    assert list(gitlab.models) == ["Sums"]
    runs.append(gymdata(*move, "--confirm", "Sums", cwd=tmp_path))
    assert runs[-1].returncode == 0, runs[-1].stderr
    assert gitlab.models == {} and b'"a"' in hub.read(REPO, "train.jsonl")
    assert not any(token in run.stdout + run.stderr for run in runs)
    gitlab.close()


def test_a_token_in_env_yaml_or_stored_by_the_hubs_login_reaches_a_private_dataset(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo(REPO, {"train.jsonl": row("a") + b"\n"}, private=True)
    fetch = ("download", "--repo-id", REPO, "--output-dir", tmp_path / "out")
    assert gymdata(*fetch, token=None, cwd=tmp_path).returncode == 3
    (tmp_path / "env.yaml").write_text(f"hf_token: {OWNER}\n")
    done = gymdata(*fetch, token=None, cwd=tmp_path)
    compared = gymdata("diff", REPO, tmp_path / "out/train.jsonl", token=None, cwd=tmp_path)
    assert (done.returncode, compared.returncode) == (0, 0), done.stderr + compared.stderr
    (tmp_path / "env.yaml").unlink()
    login = tmp_path / "hf-home/token"
    login.write_text(OWNER)
    assert gymdata(*fetch, token=None, cwd=tmp_path).returncode == 0


def test_a_file_of_ones_own_is_not_replaced_by_a_download(hub: Hub, tmp_path: Path) -> None:
    repo = "nvidia/Nemotron-RL-math-OpenMathReasoning"
    hub.add_repo(repo, {"train.jsonl": row("a") + b"\n", "validation.jsonl": row("b") + b"\n"})
    assert gymdata("download", "math", cwd=tmp_path).returncode == 0
    train = tmp_path / "data/math/source/train.jsonl"
    train.write_bytes(row("mine") + b"\n")
    hub.commit(repo, {"train.jsonl": row("newer") + b"\n", "validation.jsonl": row("newer") + b"\n"})
    done = gymdata("download", "math", cwd=tmp_path)
    assert done.returncode == 0 and "keeping data/math/source/train.jsonl" in done.stderr
    assert b"mine" in train.read_bytes()
    assert b"newer" in train.with_name("validation.jsonl").read_bytes()


def test_prepare_downloads_what_is_missing_and_records_the_commit(hub: Hub, tmp_path: Path) -> None:
    repo = "nvidia/Nemotron-RL-math-OpenMathReasoning"
    hub.add_repo(repo, {"train.jsonl": row("a") + b"\n", "validation.jsonl": row("b") + b"\n"})
    done = gymdata("prepare", "math", "--download", token=None, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    commit = hub.repos[repo].refs["main"]
    assert f"fetched data/math/source/train.jsonl: {repo}@{commit[:12]}" in done.stderr
    inputs = json.loads((tmp_path / "data/math/manifest.json").read_bytes())["inputs"]
    assert [one["revision"] for one in inputs] == [commit, commit]


CONFIG = """
rules:
  resources_servers:
    rules: {entrypoint: app.py, domain: math}
solver:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: rules}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: example, type: example, jsonl_fpath: mine.jsonl}
"""


def test_a_file_is_published_as_a_split_with_a_configuration_of_ones_own(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(row("a") + b"\n" + row("b") + b"\n")
    (tmp_path / "c.yaml").write_text(CONFIG)
    command = ("publish", "--input", "mine.jsonl", "--config", "c.yaml", "--organization", "acme", "--dataset-name", "sums")
    for split in ("validation", "train", "test"):
        done = gymdata(*command, "--split", split, "--license", "MIT", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    tree = hub.repos[REPO].head.tree
    assert {"train.jsonl", "validation.jsonl", "test.jsonl", "test_metrics.json", "data/test-00000-of-00001.parquet"} <= set(tree)
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["c.yaml", "mine.jsonl"], "nothing is left beside the file"
    refused = gymdata(*command, cwd=tmp_path)
    assert refused.returncode == 1 and "there is no license" in refused.stderr
    wrong = gymdata(*command, "--license", "mitt", cwd=tmp_path)
    assert wrong.returncode == 2 and "did you mean 'MIT'" in wrong.stderr
    odd = gymdata(*command, "--split", "dev", cwd=tmp_path)
    assert odd.returncode == 2 and "--input is one split" in odd.stderr


def test_an_internal_dataset_stays_so_whatever_license_is_given_with_its_file(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(row("a") + b"\n")
    config = CONFIG.replace("jsonl_fpath: ", "license: 'NVIDIA Internal Use Only, Do Not Distribute', jsonl_fpath: ")
    (tmp_path / "c.yaml").write_text(config + "      - {name: open, type: validation, license: MIT, jsonl_fpath: open.jsonl}\n")
    own = str(tmp_path / "mine.jsonl")
    for split in ("train", "validation"):
        command = ("publish", "--input", own, "--config", "c.yaml", "--repo-id", REPO, "--split", split)
        done = gymdata(*command, "--license", "MIT", cwd=tmp_path)
        assert done.returncode == 1 and "the license forbids it" in done.stderr
    assert not hub.requests


def test_the_bad_rows_of_an_input_are_shown(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(row("a") + b'\n{"question": "?"}\n')
    (tmp_path / "c.yaml").write_text(CONFIG)
    done = gymdata("publish", "--input", "mine.jsonl", "--config", "c.yaml", "--repo-id", REPO, "--license", "MIT", cwd=tmp_path)
    assert done.returncode == 1 and "mine.jsonl:2  GD201 error" in done.stderr
    assert not hub.requests


def test_the_fields_of_a_verifier_are_known_by_its_name(hub: Hub, tmp_path: Path) -> None:
    """Also where the configuration, as NeMo Gym has it, says nothing of them."""
    (tmp_path / "mine.jsonl").write_bytes(row("a") + b'\n{"responses_create_params": {"input": "b"}, "question": "b"}\n')
    (tmp_path / "c.yaml").write_text(CONFIG.replace("rules: {entrypoint", "math_with_judge: {entrypoint"))
    done = gymdata("publish", "--input", "mine.jsonl", "--config", "c.yaml", "--repo-id", REPO, "--license", "MIT", cwd=tmp_path)
    assert done.returncode == 1 and "train.jsonl:2: GD705 $.expected_answer 1 rows lack 'expected_answer'" in done.stderr


@pytest.mark.parametrize("answer", ["y", "n", "--yes"])
def test_a_repository_that_changes_meanwhile_is_shown_and_asked_about(hub: Hub, prepare: Prepare, answer: str) -> None:
    hub.add_repo(REPO, {"train.jsonl": row("a") + b"\n"})
    dataset = prepare(train=[row("a"), row("b")])

    def meanwhile(line: str) -> None:
        if "/preupload/" in line and "theirs" not in hub.repos[REPO].head.tree:
            hub.commit(REPO, {"theirs": b"x"})

    hub.before.append(meanwhile)
    command = ["publish", "math", "--output-dir", dataset.directory, "--repo-id", REPO, "--no-verify"]
    if answer == "--yes":
        done = gymdata(*command, "--yes")
        code, said = done.returncode, done.stderr
    else:
        code, said = on_a_terminal(*command, type_after=("[y/N]", f"{answer}\n"))
    assert "has changed since the plan was made: theirs" in said or answer == "--yes"
    if answer == "n":
        assert code == 3 and "train_metrics.json" not in hub.repos[REPO].head.tree
    else:
        assert code == 0 and {"theirs", "train_metrics.json"} <= set(hub.repos[REPO].head.tree)
        assert "1 added" in said, "what the commit does to what is there now"


@pytest.mark.slow
def test_a_run_killed_at_any_request_leaves_nothing_or_all_and_the_next_completes_it(hub: Hub, prepare: Prepare) -> None:
    dataset = prepare(train=[row("a"), row("b", "0.6")])
    command = ["publish", "math", "--output-dir", dataset.directory, "--repo-id", REPO, "--create-pr", "--no-verify"]
    hub.add_repo(REPO)
    assert gymdata(*command, token=OTHER).returncode == 0
    total, whole = len(hub.requests), hub.repos[REPO].commits[hub.repos[REPO].refs["refs/pr/1"]].tree
    left = []
    for nth in range(1, total + 1):
        for blob in hub.blobs.iterdir():
            blob.unlink()
        hub.add_repo(REPO)
        hub.requests.clear()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_TOKEN": OTHER}
        child = subprocess.Popen([sys.executable, "-m", "gymdata.cli.main", *map(str, command)], env=environment)
        hub.before.append(partial(kill_at, nth, hub, child))
        assert child.wait() < 0, f"request {nth}"
        hub.before.clear()
        trees = [hub.repos[REPO].commits[hub.repos[REPO].refs[f"refs/pr/{one.num}"]].tree for one in hub.open_pull_requests(REPO)]
        assert trees in ([], [whole]), f"request {nth}"
        left.append(len(trees))
        again = gymdata(*command, token=OTHER)
        assert again.returncode == 0 and len(hub.open_pull_requests(REPO)) == 1, again.stderr
    assert left[0] == 0


def test_environments_prepared_together_are_published_together(hub: Hub, tmp_path: Path) -> None:
    assert gymdata("prepare", "math", "mcqa", "--output-dir", "both", cwd=tmp_path).returncode == 0
    done = gymdata("publish", "math", "--output-dir", "both", "--repo-id", REPO, "--no-verify", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "environment `math`, `mcqa`" in hub.read(REPO, "README.md").decode()


@pytest.mark.parametrize(("typed", "deleted"), [("Sums", True), ("sums", False), ("", False)])
def test_a_deletion_is_confirmed_by_typing_the_name(hub: Hub, monkeypatch, typed: str, deleted: bool) -> None:
    gitlab = GitLab("glpat-canary7QpCanary7QpCan")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", gitlab.uri)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", gitlab.token)
    gitlab.models["Sums"] = {"0.1.0": {"train.jsonl": b"{}"}}
    code, said = on_a_terminal("registry", "delete", "--name", "Sums", type_after=("Type its name:", f"{typed}\n"))
    gitlab.close()
    assert (code, "Sums" not in gitlab.models) == ((0, True) if deleted else (2, False)), said


def kill_at(nth: int, hub: Hub, child: subprocess.Popen, line: str) -> None:
    if len(hub.requests) == nth - 1:
        child.kill()


def on_a_terminal(*arguments: object, type_after: tuple[str, str]) -> tuple[int, str]:
    """Exit code and output of a command on a terminal, where something is typed once a text has appeared."""
    import pty

    prompt, answer = type_after
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_TOKEN": OWNER}
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gymdata.cli.main", *map(str, arguments)]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = ""
    while True:
        try:
            block = os.read(ours, 4096).decode(errors="replace")
        except OSError:  # the other end is closed
            break
        if prompt in said + block and prompt not in said:
            os.write(ours, answer.encode())
        said += block
    os.close(ours)
    return child.wait(), said


SHARED = ROOT.parent / "shared"


def shared_files() -> list[Path]:
    names = [SHARED / "data" / f"{name}.jsonl" for name in ("tools", "mcqa", "rollouts")]
    return [path for path in [*names, *sorted(SHARED.glob("cases/gym_examples/*/example.jsonl"))] if path.is_file()]


@pytest.mark.slow
@pytest.mark.skipif(not shared_files(), reason="needs ../shared: real rows")
def test_real_rows_make_the_round_trip_through_the_hub(hub: Hub, tmp_path: Path, monkeypatch, capsys) -> None:
    from gymdata.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", OWNER)
    (tmp_path / "c.yaml").write_text(CONFIG)
    for number, path in enumerate(shared_files()):
        rows = [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
        name = f"acme/rows-{number}"
        send = ["publish", "--input", str(path), "--config", "c.yaml", "--repo-id", name, "--split", "validation"]
        assert main([*send, "--license", "MIT", "--create-pr"]) == 0, (path, capsys.readouterr().err)
        assert f"all {len(rows):,} rows came back as they were sent, plain and streaming" in capsys.readouterr().err
        fetch = ["download", "--repo-id", name, "--revision", "refs/pr/1", "--split", "validation", "--output", "back.jsonl"]
        assert main(fetch) == 0, path
        back = [json.loads(line) for line in (tmp_path / "back.jsonl").read_bytes().split(b"\n") if line]
        for one in [*rows, *back]:
            one.pop("agent_ref", None)  # the stamp
        assert json.dumps(back, sort_keys=True) == json.dumps(rows, sort_keys=True), path
