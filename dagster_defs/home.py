"""The Dagster home: where runs are recorded, `.dagster_home` under the project unless DAGSTER_HOME says otherwise."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
from contextlib import suppress
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

    serves = sys.argv[1:3] == ["dagster", "dev"]
    try:
        home = ensure_home()
        if serves:
            _alone(home, *_address(sys.argv[3:]))
    except UsageError as error:
        print(f"gymdata: error: {error}", file=sys.stderr)
        return error.exit_code
    # Else each start begins with a warning that its command has another name now.
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    if serves:
        print(f"the graph, once it is served: {_graph(sys.argv[3:])}", file=sys.stderr)
    # Started with & by a script, a process ignores interrupts, and Dagster then ignores being ended, too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = str(Path(sys.executable).parent / sys.argv[1])
    os.execv(command, [command, *sys.argv[2:]])


def _alone(home: Path, host: str, port: str) -> None:
    """Raise UsageError if another one serves: Dagster would take a port that nobody is told of, or two daemons one home."""
    with suppress(OSError, OverflowError, ValueError):  # nobody answers there, or it is no address, as Dagster will say
        socket.create_connection((host, int(port)), timeout=10).close()
        hint = 'it may be another `make dev`; for one more: make dev ARGS="--port 3001", with a DAGSTER_HOME of its own'
        raise UsageError(f"{host}:{port} is taken", hint)
    lock = os.open(home / "dev.lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)  # it is held until the command that takes this process over ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"`make dev` is running on {home}", "end it, or set DAGSTER_HOME to another folder for this one"
        ) from None


def _address(options: list[str]) -> tuple[str, str]:
    """Host and port that `dagster dev` is to serve on."""
    given = {"host": "127.0.0.1", "port": "3000"}
    for option, value in pairwise(word for argument in options for word in argument.split("=", 1)):
        if (name := {"-h": "host", "-p": "port"}.get(option, option.removeprefix("--"))) in given:
            given[name] = value
    return given["host"], given["port"]


def _graph(options: list[str]) -> str:
    """Where the UI shows the graph with all groups open, which it keeps closed by itself."""
    groups = ",".join(f"global@global:{group}" for group in GROUPS)
    return f"http://{':'.join(_address(options))}/asset-groups?expanded={quote(groups)}"


if __name__ == "__main__":
    sys.exit(main())
