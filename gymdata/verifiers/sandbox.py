"""Runs model-written Python programs apart from this machine: namespaces, limits, no network, no files of its own.

A program sees a read-only standard library, an empty /tmp in memory that is gone with the sandbox, no /proc, no other process,
no network interface; it runs as nobody, without capabilities, and may make no further namespaces. Its time, memory, processes,
files and output are limited. A kernel's own faults are not kept out: for hostile code, add a virtual machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gymdata.errors import UsageError
from gymdata.verifiers import VerifierFailure

UNSAFE_VARIABLE = "GYMDATA_UNSAFE_CODE"
"""Set to 1, it lets programs run where the machine gives no isolation; only their limits hold then."""

_START = 20.0


@dataclass(frozen=True)
class Limits:
    """Of one run: `seconds` of time (and of one processor), bytes of memory of each process, of disk, of output; processes and threads."""

    seconds: float = 10.0
    memory: int = 1 << 30
    processes: int = 8
    disk: int = 64 << 20
    output: int = 4 << 20


@dataclass(frozen=True)
class Ran:
    """What a program did: what it wrote to its standard output and to its standard error, and what ended it last.

    `value` is what its function returned, as JSON, or the token that says that it came to its end.
    """

    stopped: Literal["", "time", "output"]
    code: int
    output: str
    errors: str
    value: str
    seconds: float


@lru_cache(maxsize=1)
def missing() -> tuple[str, ...]:
    """What of the isolation this machine does not give; () if it gives all. Found by trying, once."""
    with Sandbox(Limits(), probe=True) as sandbox:
        return sandbox.missing


def require() -> None:
    """Raise UsageError where model-written programs would run without isolation, unless that was asked for."""
    if missing() and not _unsafe():
        raise UsageError(
            f"this machine gives no isolation to model-written programs: {'; '.join(missing())}",
            "run where unprivileged user namespaces are allowed (in a container: --security-opt seccomp=unconfined, or --privileged), "
            f"or set {UNSAFE_VARIABLE}=1 where a program may do whatever you may",
        )


class Sandbox:
    """A sandbox, used as `with Sandbox(limits) as sandbox: sandbox.run(code, stdin=…)`. Programs run one after the other.

    Raises VerifierFailure if the sandbox itself breaks, UsageError where the machine gives no isolation.
    """

    def __init__(self, limits: Limits, probe: bool = False) -> None:
        if not probe:
            require()
        self._limits = limits
        self._folder = tempfile.TemporaryDirectory(prefix="gymdata-code-")
        self._process = subprocess.Popen(
            [_python(), "-I", "-S", str(Path(__file__).with_name("sandbox_init.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        settings = asdict(limits) | {
            "paths": _paths(), "unsafe": _unsafe() and not probe, "folder": self._folder.name, "root": os.getuid() == 0,
            "parent": os.getpid(),
        }  # fmt: skip
        self._buffer = b""
        self.missing: tuple[str, ...] = tuple(self._ask(settings, _START)["missing"])

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._folder.cleanup()

    def run(
        self, code: str, *, stdin: str = "", function: str = "", arguments: Any = (), token: str = "", prelude: bool = False
    ) -> Ran:
        """Run a program to its end; with `function`, call that function of it (or of its class Solution) with the arguments.

        With `prelude` it begins with all names of the modules that NeMo Gym imports before a solution.
        """
        asked = {
            "code": code, "stdin": stdin, "function": function, "arguments": list(arguments), "token": token, "prelude": prelude,
        }  # fmt: skip
        done = self._ask(asked, self._limits.seconds + _START)
        return Ran(done["stopped"], done["code"], done["output"], done["errors"], done["value"], done["seconds"])

    def _ask(self, asked: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._line(time.monotonic() + seconds))
        except (OSError, ValueError) as error:
            raise VerifierFailure(f"the sandbox broke: {error or type(error).__name__}") from error

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise OSError("it did not answer in time")
                block = os.read(descriptor, 1 << 20)
                if not block:
                    raise OSError("it ended")
                self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _unsafe() -> bool:
    return os.environ.get(UNSAFE_VARIABLE) == "1"


def _python() -> str:
    """The interpreter that the virtual environment was made from: its packages are not for programs."""
    return os.path.realpath(sys.executable)


def _paths() -> list[str]:
    """What of the file system a program sees: the standard library and the shared libraries that it needs."""
    paths = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", sysconfig.get_path("stdlib"), sysconfig.get_config_var("LIBDIR")]
    kept: list[str] = []
    for path in (os.path.normpath(path) for path in paths if path and os.path.isdir(path)):
        if not any(path == one or path.startswith(one + "/") for one in kept):
            kept.append(path)
    return kept
