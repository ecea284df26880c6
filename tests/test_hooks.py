"""The pre-commit hook: what it declares, and a commit that it stops, with the real `pre-commit`."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gymdata.cli.main import main

ROOT = Path(__file__).parent.parent
MANIFEST = ROOT / ".pre-commit-hooks.yaml"
(HOOK,) = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("a.jsonl", True), ("b/c.jsonl.gz", True), ("d.jsonl.zst", True), ("a_metrics.json", False), ("a.jsonl.bak", False)],
)
def test_it_is_for_data_files(path, wanted):
    assert bool(re.search(HOOK["files"], path)) is wanted


def test_its_command_passes_good_rows_and_stops_bad_ones_and_stale_metrics(tmp_path, capsys):
    command, *arguments = shlex.split(HOOK["entry"])
    assert command == "gymdata"
    for name in ("train.jsonl", "train_metrics.json"):
        shutil.copy(ROOT / "fixtures/math" / name, tmp_path)
    assert main([*arguments, str(tmp_path / "train.jsonl")]) == 0
    with open(tmp_path / "train.jsonl", "ab") as rows:
        rows.write(b'{"responses_create_params": {"input": "One more?"}, "question": "One more?", "expected_answer": "4"}\n')
    assert main([*arguments, str(tmp_path / "train.jsonl")]) == 1
    assert "GD113" in capsys.readouterr().out
    assert main([*arguments, str(ROOT / "fixtures/rows/invalid/GD101-truncated.jsonl")]) == 1


@pytest.mark.slow  # it installs gymdata from the package index
def test_pre_commit_installs_it_and_it_stops_a_commit(tmp_path):
    pytest.importorskip("pre_commit", reason="needs pre-commit")
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")}
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)

    def attempt(name: str) -> subprocess.CompletedProcess[str]:
        shutil.copy(ROOT / name, work / "rows.jsonl")
        subprocess.run(["git", "add", "rows.jsonl"], cwd=work, check=True)
        command = [
            sys.executable,
            "-m",
            "pre_commit",
            "try-repo",
            str(ROOT),
            HOOK["id"],
            "--ref",
            "HEAD",
            "--files",
            "rows.jsonl",
        ]
        return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=900, check=False)

    good = attempt("fixtures/math/train.jsonl")
    assert good.returncode == 0 and "Passed" in good.stdout, good.stdout + good.stderr
    bad = attempt("fixtures/rows/invalid/GD101-truncated.jsonl")
    assert bad.returncode == 1 and "rows.jsonl:2  GD101" in bad.stdout
