"""Outputs appear whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gymdata.atomic import remove_leftovers, staged, write_bytes
from gymdata.errors import ExternalError


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    target = tmp_path / "new" / "metrics.json"
    write_bytes(target, b"old")
    write_bytes(target, b"new")
    assert target.read_bytes() == b"new"
    assert names(target.parent) == {"metrics.json"}


def test_a_directory_becomes_the_stage_in_one_step(tmp_path):
    out = tmp_path / "out"
    with staged(out) as stage:
        (stage / "train.jsonl").write_text("1")
        assert names(out) == set()
    assert (out / "train.jsonl").read_text() == "1"
    assert names(tmp_path) == {"out"}


def test_a_failure_leaves_the_old_state(tmp_path):
    out = tmp_path / "out"
    with staged(out) as stage:
        (stage / "train.jsonl").write_text("old")
    with pytest.raises(ZeroDivisionError), staged(out) as stage:
        (stage / "train.jsonl").write_text("new")
        raise ZeroDivisionError
    assert (out / "train.jsonl").read_text() == "old"
    assert names(tmp_path) == {"out"}


def test_a_failure_leaves_no_directory_that_was_not_there(tmp_path):
    with pytest.raises(ZeroDivisionError), staged(tmp_path / "out"):
        raise ZeroDivisionError
    assert names(tmp_path) == set()


def test_files_of_the_user_stay_and_replaced_ones_go(tmp_path):
    out = tmp_path / "out"
    (out / "notes").mkdir(parents=True)
    (out / "notes" / "a.txt").write_text("mine")
    (out / "validation.jsonl").write_text("stale")
    with staged(out, replaces=lambda: ["validation.jsonl"]) as stage:
        (stage / "train.jsonl").write_text("new")
    assert names(out) == {"notes", "train.jsonl"}
    assert (out / "notes" / "a.txt").read_text() == "mine"


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    out = tmp_path / "out"
    script = (
        "import os, signal, sys; from pathlib import Path; from gymdata.atomic import staged\n"
        "with staged(Path(sys.argv[1])) as stage:\n"
        "    (stage / 'train.jsonl').write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(out)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert names(out) == set()
    with staged(out) as stage:
        (stage / "train.jsonl").write_text("whole")
    assert names(tmp_path) == {"out"}
    assert (out / "train.jsonl").read_text() == "whole"


def test_leftovers_go_without_a_new_stage(tmp_path):
    directory = tmp_path / "out"
    directory.mkdir()
    leftover = tmp_path / ".out.staging-killed"
    leftover.mkdir()
    remove_leftovers(directory)
    assert list(tmp_path.iterdir()) == [directory]


def test_the_stage_of_a_run_at_work_is_no_leftover(tmp_path):
    directory = tmp_path / "out"
    with staged(directory) as stage:
        remove_leftovers(directory)
        (stage / "file").write_text("whole")
    assert (directory / "file").read_text() == "whole"


def test_a_second_writer_waits_for_the_first(tmp_path):
    out, order, waiting = tmp_path / "out", [], threading.Event()

    def second() -> None:
        with staged(out, on_wait=waiting.set) as stage:
            order.append("second")
            (stage / "b").write_text("b")

    with staged(out) as stage:
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(30)
        order.append("first")
        (stage / "a").write_text("a")
    thread.join(30)
    assert order == ["first", "second"]
    assert names(out) == {"a", "b"}


def test_a_disk_that_refuses_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExternalError, match="file") as caught:
        write_bytes(tmp_path / "file" / "out", b"")
    assert caught.value.exit_code == 3


def test_a_folder_of_the_user_is_not_replaced_by_a_file(tmp_path):
    mine = tmp_path / "out" / "train.jsonl" / "mine"
    mine.parent.mkdir(parents=True)
    mine.touch()
    with pytest.raises(ExternalError, match=r"train\.jsonl: Is a directory"), staged(tmp_path / "out") as stage:
        (stage / "train.jsonl").touch()
    assert mine.exists()


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_bytes(tmp_path / "a", b"")
        with staged(tmp_path / "out") as stage:
            (stage / "b").write_text("")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750
