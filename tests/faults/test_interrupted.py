"""A run that is killed, or that meets a full disk, leaves the old state or the new one, and nothing else."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from gymdata import atomic
from gymdata.environments.config import load_config
from gymdata.errors import ExternalError
from gymdata.prepare import InvalidRows, Options, SidecarConflict, prepare

KILLS = int(os.environ.get("GYMDATA_KILLS", "6"))
"""`make faults` does 200."""

CONFIG = """
res:
  resources_servers:
    math_with_judge: {entrypoint: app.py, domain: math}
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: res}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: a, type: train, jsonl_fpath: train.jsonl, license: Apache 2.0}
      - {name: b, type: validation, jsonl_fpath: validation.jsonl, license: Apache 2.0}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a configuration and its data; runs are made from there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    write_rows(tmp_path / "train.jsonl", 20_000, "first")
    write_rows(tmp_path / "validation.jsonl", 100, "first")
    return tmp_path


def write_rows(path: Path, count: int, word: str) -> None:
    rows = (
        {"responses_create_params": {"input": f"{word} {number}? " + "x" * 500}, "expected_answer": str(number)}
        for number in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def state(directory: Path) -> dict[str, str]:
    """Digest by name of what makes a prepared directory; of the manifest only what does not depend on the clock."""
    found = {}
    for path in sorted(directory.iterdir()) if directory.exists() else []:
        data = path.read_bytes()
        if path.name == "manifest.json":
            data = json.dumps(json.loads(data)["outputs"]).encode()
        found[path.name] = hashlib.sha256(data).hexdigest()
    return found


def run(*, wait: bool = True) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "gymdata.cli.main",
        "prepare",
        "--config",
        "config.yaml",
        "--output-dir",
        "out",
        "--jobs",
        "2",
        "--overwrite-metrics",
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    if wait:
        assert process.wait(120) == 0
    return process


def test_kill_at_any_moment(project):
    out = project / "out"
    run()
    states = {"first": state(out)}
    write_rows(project / "train.jsonl", 20_000, "second")
    began = time.monotonic()
    run()
    seconds = time.monotonic() - began
    states["second"] = state(out)
    assert states["first"] != states["second"]
    choose = random.Random(7)
    word, seen = "second", set()
    for number in range(KILLS):
        word = "first" if word == "second" else "second"
        write_rows(project / "train.jsonl", 20_000, word)
        process = run(wait=False)
        # Most of a run reads; its end, where files change places, is hit often enough by drawing towards it.
        time.sleep(seconds * (choose.random() if number % 2 else choose.uniform(0.7, 1.1)))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        after = state(out)
        assert after in states.values(), "neither the old state nor the new one"
        seen.add(after == states[word])
        run()
        assert state(out) == states[word]
        assert {path.name for path in project.iterdir()} <= {
            "config.yaml", "out", "train.jsonl", "validation.jsonl", "train_metrics.json", "validation_metrics.json",
        }  # fmt: skip


def test_a_rerun_writes_the_same_bytes(project):
    run()
    first = state(project / "out")
    for path in (project / "out").iterdir():
        path.unlink()
    run()
    assert state(project / "out") == first


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["replace", "fsync", "mkstemp"])
def test_a_disk_that_refuses_leaves_the_old_state(project, monkeypatch, call, number):
    environment = load_config(["config.yaml"])
    out = project / "out"
    options = Options(encoding=None)
    prepare([environment], out, options)
    before = state(out)
    write_rows(project / "train.jsonl", 50, "third")

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number), "disk")

    holder = {"replace": atomic.os, "fsync": atomic, "mkstemp": atomic.tempfile}[call]
    with monkeypatch.context() as patch:
        patch.setattr(holder, call, refuse)
        with pytest.raises(ExternalError) as caught:
            prepare([environment], out, options, overwrite_metrics=True)
    assert caught.value.exit_code == 3
    assert state(out) == before
    prepare([environment], out, options, overwrite_metrics=True)
    assert state(out) != before


def test_a_source_file_that_changes_while_it_is_read_leaves_the_old_state(project):
    environment = load_config(["config.yaml"])
    write_rows(project / "train.jsonl", 50, "first")
    prepare([environment], project / "out", Options(encoding=None))
    before = state(project / "out")
    write_rows(project / "train.jsonl", 60, "second")

    def edit(name: str, done: int, total: int) -> None:
        if name == "train.jsonl":
            write_rows(project / name, 60, "edited")

    with pytest.raises(ExternalError, match=r"train\.jsonl was changed while it was read"):
        prepare([environment], project / "out", Options(encoding=None), overwrite_metrics=True, on_progress=edit)
    assert state(project / "out") == before
    prepare([environment], project / "out", Options(encoding=None), overwrite_metrics=True)
    assert "edited" in (project / "out" / "train.jsonl").read_text()


@pytest.mark.parametrize(
    ("name", "data"), [("validation.jsonl.gz", gzip.compress(os.urandom(5000))[:4000]), ("validation.jsonl", b"<html>")]
)
def test_a_file_that_cannot_be_read_is_not_quarantined(project, name, data):
    (project / name).write_bytes(data)
    (project / "config.yaml").write_text(CONFIG.replace("validation.jsonl", name))
    with pytest.raises(InvalidRows) as caught:
        prepare([load_config(["config.yaml"])], project / "out", Options(encoding=None, on_invalid="quarantine"))
    assert "quarantine" not in caught.value.hint
    assert not (project / "out").exists()


def test_a_file_in_the_way_of_the_output_is_told(project):
    (project / "taken").write_text("mine")
    for out in ("taken", "taken/out"):
        with pytest.raises(ExternalError, match=f"{out}: ") as caught:
            prepare([load_config(["config.yaml"])], project / out, Options(encoding=None))
        assert "choose another folder" in caught.value.hint
    assert (project / "taken").read_text() == "mine"


def test_a_folder_of_the_user_where_an_earlier_output_stood_is_kept(project):
    write_rows(project / "train.jsonl", 50, "first")
    environment = load_config(["config.yaml"])
    prepare([environment], project / "out", Options(encoding=None))
    (project / "out" / "validation.jsonl").unlink()
    (project / "out" / "validation.jsonl").mkdir()
    (project / "out" / "validation.jsonl" / "mine").write_text("mine")
    (project / "config.yaml").write_text(CONFIG.rsplit("      - ", 1)[0])
    prepare([load_config(["config.yaml"])], project / "out", Options(encoding=None))
    assert (project / "out" / "validation.jsonl" / "mine").read_text() == "mine"


def test_an_edited_metrics_file_is_checked_again_though_the_rows_are_the_same(project):
    environment, options = load_config(["config.yaml"]), Options(encoding=None)
    write_rows(project / "train.jsonl", 50, "first")
    prepare([environment], project / "out", options)
    assert prepare([environment], project / "out", options).cached
    metrics = project / "train_metrics.json"
    metrics.write_text(metrics.read_text().replace('"Number of examples": 50', '"Number of examples": 51'))
    with pytest.raises(SidecarConflict, match="Number of examples: 51 there, 50 now"):
        prepare([environment], project / "out", options)
    prepare([environment], project / "out", options, overwrite_metrics=True)
    assert prepare([environment], project / "out", options).cached


def test_a_window_behind_the_last_row_is_told_as_that(project):
    (project / "config.yaml").write_text(CONFIG.replace("validation.jsonl,", "validation.jsonl, start_idx: 100,"))
    prepared = prepare([load_config(["config.yaml"])], project / "out", Options(encoding=None))
    assert [one.message for file in prepared.report.files for one in file.findings] == [
        "the file has no row from start_idx 100 on"
    ]


def test_any_number_of_repetitions_is_written_in_little_memory(project):
    (project / "config.yaml").write_text(CONFIG.replace("validation.jsonl,", "validation.jsonl, num_repeats: 100001,"))
    write_rows(project / "train.jsonl", 2, "few")
    write_rows(project / "validation.jsonl", 2, "few")
    tracemalloc.start()
    prepare([load_config(["config.yaml"])], project / "out", Options(encoding=None))
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()
    with open(project / "out" / "validation.jsonl") as stream:
        assert ["few 0?" in line for line in stream] == [True] * 100_001 + [False] * 100_001


def test_a_full_disk(project):
    disk = project / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        environment = load_config(["config.yaml"])
        write_rows(project / "train.jsonl", 500, "small")
        for out in (disk / "out", disk):
            prepare([environment], out, Options(encoding=None), overwrite_metrics=True)
            before = state(disk / "out") if out != disk else None
            write_rows(project / "train.jsonl", 20_000, "large")
            with pytest.raises(ExternalError, match="No space left"):
                prepare([environment], out, Options(encoding=None), overwrite_metrics=True)
            if before is not None:
                assert state(out) == before
            assert not [path for path in disk.rglob("*") if "staging" in path.name]
            write_rows(project / "train.jsonl", 500, "small")
            assert prepare([environment], out, Options(encoding=None), overwrite_metrics=True).cached
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
