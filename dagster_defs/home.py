"""The Dagster home: where runs are recorded, `.dagster_home` under the project unless DAGSTER_HOME says otherwise."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

from gymdata.errors import UsageError

VARIABLE = "DAGSTER_HOME"

GROUPS = ("rows", "measures", "splits", "publishing", "rollouts")
"""Of the assets."""


def ensure_home() -> Path:
    """The home, made if it is not there, with the shipped dagster.yaml. Raises UsageError if it is not an absolute path."""
    home = Path(os.environ.get(VARIABLE) or Path.cwd() / ".dagster_home")
    if not home.is_absolute():
        raise UsageError(f"{VARIABLE} is {home}, which is not absolute", f"set it to {home.absolute()}")
    os.environ[VARIABLE] = str(home)
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(Path(__file__).parent / "dagster.yaml", home / "dagster.yaml")
    return home


def main() -> int:
    """`python -m dagster_defs.home COMMAND…`: run a Dagster command with the home in place, which ends on an interrupt or a kill."""
    import signal

    try:
        ensure_home()
    except UsageError as error:
        print(f"gymdata: error: {error}", file=sys.stderr)
        return error.exit_code
    # Else each start begins with a warning that its command has another name now.
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    if sys.argv[1:3] == ["dagster", "dev"]:
        print(f"the graph, once it is served: {_graph(sys.argv[3:])}", file=sys.stderr)
    # Started with & by a script, a process ignores interrupts, and Dagster then ignores being ended, too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = str(Path(sys.executable).parent / sys.argv[1])
    os.execv(command, [command, *sys.argv[2:]])


def _graph(options: list[str]) -> str:
    """Where the UI shows the graph with all groups open, which it keeps closed by itself."""
    given = {"host": "127.0.0.1", "port": "3000"}
    for option, value in pairwise(options):
        if (name := {"-h": "host", "-p": "port"}.get(option, option.removeprefix("--"))) in given:
            given[name] = value
    groups = ",".join(f"global@global:{group}" for group in GROUPS)
    return f"http://{given['host']}:{given['port']}/asset-groups?expanded={quote(groups)}"


if __name__ == "__main__":
    sys.exit(main())
