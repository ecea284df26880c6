"""Starting up: nothing heavy is loaded before it is needed, and an installed gymdata writes nothing where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gymdata.cli.main import COMMANDS, HUB_PACKAGES, main
from gymdata.environments import registry

ROOT = Path(__file__).parents[2]
HEAVY = (
    "polars",
    "pydantic",
    "datasets",
    "huggingface_hub",
    "httpx2",
    "pyarrow",
    "pandas",
    "numpy",
    "great_expectations",
    "dagster",
)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys, gymdata\n"
        "from gymdata.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr, done.stdout.splitlines()[-1]) == (0, "", "[]")


def test_an_import_loads_nothing_of_others() -> None:
    code = f"import sys, gymdata; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "command",
    [
        ["download", "--repo-id", "acme/x"],
        ["download", "math"],
        ["prepare", "math", "--download"],
        ["publish", "math", "--output-dir", "out", "--organization", "acme"],
        ["publish", "math", "--input", "out/train.jsonl", "--organization", "acme"],
        ["diff", "acme/x", "out"],
        ["registry", "list"],
        ["convert", "a.parquet", "b.jsonl", "--from", "columns", "--prompt-column", "q"],
    ],
    ids=" ".join,
)
def test_without_the_extra_a_command_says_which_one_it_needs(command: list[str], tmp_path: Path, monkeypatch) -> None:
    assert main(["prepare", "math", "--output-dir", str(tmp_path / "out")]) == 0
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    blocked = "import sys; sys.modules.update(dict.fromkeys(" + repr(HUB_PACKAGES) + "))\n"
    code = blocked + "from gymdata.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
        "MLFLOW_TRACKING_TOKEN": "x",
    }
    line = [sys.executable, "-c", code, *command]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "  help: pip install 'gymdata[hub]'"), done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel, as pip would unpack it."""
    pytest.importorskip("hatchling", reason="needs hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def state(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


REPEATED = "math_with_judge_simple_agent.responses_api_agents.simple_agent.datasets.0.num_repeats=4"


@pytest.mark.parametrize("arguments", [[], ["--mode", "example_validation"], ["--overwrite-metrics"], [REPEATED]], ids=str)
def test_the_bundled_rows_are_prepared_without_a_write_to_where_they_are_installed(
    installed: Path, tmp_path: Path, arguments: list[str]
) -> None:
    """As a read-only site-packages would demand; modes would not stop a test that runs as root."""
    names = ["math"] if REPEATED in arguments else registry.builtin_names()
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    before = state(installed)
    command = [sys.executable, "-m", "gymdata.cli.main", "prepare", *names, *arguments, "--output-dir", "out"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/manifest.json").is_file()
    assert state(installed) == before


def test_rows_of_ones_own_in_place_of_the_bundled_ones_are_not_called_bundled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.jsonl").write_bytes((registry.fixtures() / "math/train.jsonl").read_bytes())
    (tmp_path / "own.yaml").write_text(
        "math_with_judge_simple_agent:\n  responses_api_agents:\n    simple_agent:\n      datasets:\n"
        "      - {name: train, type: train, jsonl_fpath: own.jsonl, license: Apache 2.0}\n"
    )
    assert main(["prepare", "math", "--encoding", "none"]) == 0
    assert "small bundled rows" in capsys.readouterr().err
    assert main(["prepare", "math", "--config", "own.yaml", "--encoding", "none", "--output-dir", "out"]) == 0
    assert "small bundled rows" not in capsys.readouterr().err
