"""The workflows are what GitHub reads, and their commands do what they are there for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GOOD = '{"responses_create_params": {"input": "What is 2+2?"}, "expected_answer": "4"}\n'


def job() -> dict:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "validate-data.yml").read_text(encoding="utf-8"))
    return workflow["jobs"]["validate"]


def script(name: str) -> str:
    return next(step["run"] for step in job()["steps"] if step.get("name") == name)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_it_is_valid_against_the_schema_of_workflows(path):
    pytest.importorskip("check_jsonschema", reason="needs check-jsonschema, which carries the schema of GitHub workflows")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_token_may_do_no_more_than_it_must_and_data_is_never_code(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in path.read_text(encoding="utf-8")
    for one in workflow["jobs"].values():
        assert set(one.get("permissions", {})) <= {"contents", "security-events"}
        assert all("${{" not in step.get("run", "") for step in one["steps"])


def test_the_data_that_is_checked_is_there():
    default = job()["env"]["DATA"].split("'")[1].split()
    assert all((ROOT / name).is_dir() for name in default)
    assert {path.name for path in (ROOT / "fixtures").iterdir() if path.is_dir()} == {Path(name).parts[1] for name in default}


@pytest.fixture
def pull_request(tmp_path):
    """A checkout with a base branch and one changed file; returns what runs a step in it."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    command = tmp_path / ".venv" / "bin" / "gymdata"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m gymdata.cli.main "$@"\n')
    command.chmod(0o755)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old.jsonl").write_text("wrong since long ago\n")
    (tmp_path / ".gitignore").write_text(".venv\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-b", "main"], ["add", "."], ["commit", "-m", "one"]):
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def step(name: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "DATA": "data", "BASE": "main", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
        environment["GITHUB_WORKSPACE"] = str(tmp_path)
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script(name)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return step


def test_a_pull_request_is_annotated_where_it_is_wrong(tmp_path, pull_request):
    (tmp_path / "data" / "new.jsonl").write_text(GOOD + '{"responses_create_params": {"input": "x", "tools": null}}\n')
    done = pull_request("Validate what changed")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=data/new.jsonl,line=2,col=")
    assert "old.jsonl" not in done.stdout
    assert "GD208" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    sarif = json.loads((tmp_path / "findings.sarif").read_text(encoding="utf-8"))
    assert [result["ruleId"] for result in sarif["runs"][0]["results"]] == ["GD208"]


def test_a_pull_request_with_sound_rows_passes(tmp_path, pull_request):
    (tmp_path / "data" / "new.jsonl").write_text(GOOD)
    done = pull_request("Validate what changed")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_on_a_schedule_everything_is_checked(pull_request):
    done = pull_request("Validate everything")
    assert done.returncode == 1
    assert "data/old.jsonl,line=1" in done.stdout
