"""The Dagster home: where runs are recorded, `.dagster_home` under the project unless DAGSTER_HOME says otherwise."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from gymdata.errors import UsageError

VARIABLE = "DAGSTER_HOME"


def ensure_home() -> Path:
    """The home, made if it is not there, with the shipped dagster.yaml. Raises UsageError if it is not an absolute path."""
    home = Path(os.environ.setdefault(VARIABLE, str(Path.cwd() / ".dagster_home")))
    if not home.is_absolute():
        raise UsageError(f"{VARIABLE} is {home}, which is not absolute", f"set it to {home.absolute()}")
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(Path(__file__).parent / "dagster.yaml", home / "dagster.yaml")
    return home


def main() -> int:
    """`python -m dagster_defs.home COMMAND…`: run a Dagster command with the home in place, which ends on an interrupt or a kill."""
    import signal

    ensure_home()
    # Started with & by a script, a process ignores interrupts, and Dagster then ignores being ended, too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = str(Path(sys.executable).parent / sys.argv[1])
    os.execv(command, [command, *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
