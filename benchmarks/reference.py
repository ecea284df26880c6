"""The reference to measure beside: NeMo Gym 0.7.0 in a virtual environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

GYM = "nemo-gym==0.7.0"
FOLDER = Path(__file__).resolve().parent.parent / ".venv-gym"
VARIABLE = "GYMDATA_GYM_PYTHON"


def prepare_command() -> Path:
    """Path of its `ng_prepare_data`, installed now if it is not yet; GYMDATA_GYM_PYTHON names the Python of an existing one.

    Exits with a message if there is no Python 3.13 to install it for.
    """
    if given := os.environ.get(VARIABLE):
        command = Path(given).parent / "ng_prepare_data"
        if not command.is_file():
            sys.exit(f"{VARIABLE}={given}: there is no ng_prepare_data beside it; install {GYM} there")
        return command
    command = FOLDER / "bin" / "ng_prepare_data"
    if not command.is_file():
        python = shutil.which("python3.13")
        if python is None:
            sys.exit(f"{GYM} needs Python 3.13, which is not on the PATH; or set {VARIABLE} to a Python that has it")
        print(f"installing {GYM} into {FOLDER.name}, once", file=sys.stderr)
        shutil.rmtree(FOLDER, ignore_errors=True)
        subprocess.run([python, "-m", "venv", FOLDER], check=True)
        # It declares a newer Python than it needs.
        install = [FOLDER / "bin" / "pip", "install", "--quiet", "--ignore-requires-python", GYM]
        subprocess.run(install, check=True)
    return command
