"""An ordered map, however many processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from gymdata.engine.local import ordered_map
from gymdata.errors import ExternalError


def slow_square(number: int) -> int:
    time.sleep(0.01 * (number % 3))
    return number * number


def die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def raise_at_two(number: int) -> int:
    if number == 2:
        raise ValueError("two")
    return number


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_results_come_in_order(jobs):
    assert list(ordered_map(slow_square, range(10), jobs)) == [number * number for number in range(10)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_exception_of_the_function_is_raised(jobs):
    with pytest.raises(ValueError, match="two"):
        list(ordered_map(raise_at_two, range(5), jobs))


def test_a_process_that_dies_is_an_error_not_a_hang():
    with pytest.raises(ExternalError, match="worker process died"):
        list(ordered_map(die, range(6), 2))


def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    script = (
        "import sys, time; from tests.engine.test_local import sleep_forever; from gymdata.engine.local import ordered_map\n"
        "if __name__ == '__main__': list(ordered_map(sleep_forever, [sys.argv[1]] * 2, 2))\n"
    )
    (tmp_path / "run.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    parent = subprocess.Popen([sys.executable, str(tmp_path / "run.py"), str(tmp_path)], env=environment)
    deadline = time.monotonic() + 60
    while len(pids := list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    while any(alive(int(path.stem)) for path in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(int(path.stem)) for path in pids)


def sleep_forever(directory: str) -> None:
    with open(f"{directory}/{os.getpid()}.pid", "w"):
        time.sleep(600)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or between opening and reading
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked from a server on Linux alone")
def test_an_interrupt_while_workers_are_being_started_ends_without_a_traceback(tmp_path):
    (tmp_path / "slow_import.py").write_text(
        "import os, pathlib, time\npathlib.Path('begun').touch()\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
    )
    (tmp_path / "run.py").write_text(
        "import signal; from gymdata.engine.local import ordered_map, share_imports\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # who runs the tests may ignore it, as `nohup` and `&` do
        "    try:\n"
        "        share_imports('slow_import', now=True)\n"
        "        list(ordered_map(abs, range(4), 2))\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.getcwd()])}
    command = [sys.executable, str(tmp_path / "run.py")]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=120)
    (tmp_path / "go").touch()  # what is forked only now has nothing left to work for
    assert process.communicate(timeout=120) == ("interrupted\n", "")
