"""`make prepare`, as a terminal sees it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_defs.home import _alone, ensure_home
from dagster_defs.partitions import usable
from dagster_defs.prepare import main
from gymdata.errors import UsageError
from tests.dagster_defs.conftest import Project, row

ROWS = [row("2 + 2"), row("3 + 1")]
ROOT = Path(__file__).parents[2]


def test_it_prints_what_prepare_prints_and_records_the_run(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.declare(train=ROWS)
    assert main(["math"]) == 0
    out, err = capfd.readouterr()
    assert out == "" and "data/math: 2 of 2 rows valid" in err and "train.jsonl" in err and "dagster - " not in err
    with dg.DagsterInstance.get() as instance:
        (run,) = instance.get_runs()
        assert run.is_success and run.tags["dagster/partition"] == "math" and run.run_id[:8] in err
        assert instance.get_latest_materialization_event(dg.AssetKey("train_split")) is not None


def test_a_second_run_says_that_nothing_changed(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.declare(train=ROWS)
    main(["math"])
    assert main(["math"]) == 0
    assert "up to date" in capfd.readouterr().err


def test_options_are_those_of_the_command_and_are_recorded(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.declare(train=[*ROWS, "{nonsense"])
    assert main(["math", "--on-invalid", "quarantine", "--limit", "2", "--format", "json"]) == 0
    manifest = json.loads(capfd.readouterr().out)
    assert manifest["options"]["on_invalid"] == "quarantine" and manifest["inputs"][0]["rows"] == 2
    with dg.DagsterInstance.get() as instance:
        recorded: Any = instance.get_runs()[0].run_config["resources"]
    assert recorded["preparation"]["config"].items() >= {"on_invalid": "quarantine", "limit": 2}.items()


def test_invalid_rows_are_listed_and_exit_with_1(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.declare(train=[*ROWS, "{nonsense"])
    assert main(["math"]) == 1
    err = capfd.readouterr().err
    assert "train.jsonl:3" in err and "nothing was written" in err and "Traceback" not in err


def test_no_name_of_an_environment_keeps_the_others_from_being_loaded() -> None:
    assert dg.StaticPartitionsDefinition(usable(["math", "a...b", "new\nline", "Größe 2"])).get_partition_keys() == [
        "math",
        "Größe 2",
    ]


@pytest.mark.parametrize("words", [["maths"], []])
def test_a_wrong_name_lists_the_environments(project: Project, capfd: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    err = capfd.readouterr().err
    assert "math" in err and "mcqa" in err and "Traceback" not in err


def test_what_is_wrong_with_the_configuration_is_said_in_a_sentence(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.declare(train=ROWS)
    Path("train.jsonl").unlink()
    assert main(["math"]) == 2
    err = capfd.readouterr().err
    assert "has no file train.jsonl" in err and "Traceback" not in err


def test_the_home_is_made_with_the_settings_that_are_shipped(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    assert ensure_home() == project.folder / ".dagster_home"
    with dg.DagsterInstance.get() as instance:
        assert instance.telemetry_enabled is False and instance.nux_enabled is False
    monkeypatch.setenv("DAGSTER_HOME", "somewhere")
    with pytest.raises(UsageError, match="not absolute"):
        ensure_home()


def dev(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DAGSTER_HOME": str(home)}
    command = [sys.executable, "-m", "dagster_defs.home", "dagster", "dev", *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_a_second_make_dev_on_the_same_home_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "dev.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = dev(tmp_path, "--port", "1")
    assert done.returncode == 2 and f"`make dev` is running on {tmp_path}" in done.stderr


@pytest.mark.parametrize("option", ["-p {}", "--port={}"])
def test_a_port_that_is_taken_is_said(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = dev(tmp_path, *option.format(port).split())
    assert done.returncode == 2 and f"127.0.0.1:{port} is taken" in done.stderr


@pytest.mark.parametrize("address", [("no host", "1"), ("::", "1"), ("127.0.0.1", "99999"), ("127.0.0.1", "")])
def test_what_is_no_address_is_left_to_dagster(tmp_path: Path, address: tuple[str, str]) -> None:
    _alone(tmp_path, *address)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{bad", "cannot be read"),
        ("[1]", "cannot be read"),
        ('{"downlod": true}', "did you mean `download`"),
        ('{"limit": "x"}', "limit: "),
    ],
)
def test_what_is_wrong_with_the_options_of_all_runs_is_said(tmp_path: Path, value: str, says: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GYMDATA_PREPARATION": value}
    command = [sys.executable, "-m", "dagster_defs.prepare", "math"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120, check=False)
    assert (
        done.returncode == 2 and "GYMDATA_PREPARATION" in done.stderr and says in done.stderr and "Traceback" not in done.stderr
    )
