"""The first process of a sandbox: a script of its own, with nothing but the standard library, that model-written programs are forked from.

`gymdata.verifiers.sandbox` starts it as `python -I -S sandbox_init.py` and talks to it in JSON lines: the settings, answered
with what isolation there is; then a run at a time, answered with what the program did. Three processes: the outer one makes the
maps of user ids, the middle one enters the namespaces, the inner one is process 1 of the new ones and starts each program.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
NOBODY = 65534

LIBC = ctypes.CDLL(None, use_errno=True)

PRELUDE = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json builtins typing"
).split()
"""What NeMo Gym imports before a solution, all names of each in this order."""


def main() -> None:
    """Enter the namespaces as far as the machine allows, and serve."""
    settings = json.loads(sys.stdin.buffer.readline())
    _die_with(settings["parent"])
    ready, go = os.pipe(), os.pipe()
    parent = os.getpid()
    middle = os.fork()
    if middle == 0:
        _enter(ready[1], go[0], parent, settings)
    os.close(ready[1])
    os.close(0)
    if os.read(ready[0], 1):
        _map_ids(middle)
        os.write(go[1], b"1")
    os.close(go[1])
    _, status = os.waitpid(middle, 0)
    sys.exit(os.waitstatus_to_exitcode(status) != 0)


def _map_ids(process: int) -> None:
    """Root outside may map two ids: its own, for the mounts, and nobody's, for the programs. Anyone else only their own."""
    root = os.getuid() == 0
    try:
        if not root:
            _write(f"/proc/{process}/setgroups", "deny")
        for kind, own in (("uid", os.getuid()), ("gid", os.getgid())):
            _write(f"/proc/{process}/{kind}_map", f"0 {own} 1\n" + f"{NOBODY} {NOBODY} 1\n" * root)
    except OSError:
        pass  # what follows fails, and says so


def _enter(ready: int, go: int, parent: int, settings: dict[str, Any]) -> NoReturn:
    missing = []
    if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS):
        full = "no more are allowed, see user.max_user_namespaces"  # told as if a disk were full
        missing.append(f"namespaces ({full if ctypes.get_errno() == errno.ENOSPC else os.strerror(ctypes.get_errno())})")
        os.close(ready)
    else:
        os.write(ready, b"1")
        os.close(ready)
        os.read(go, 1)
    _die_with(parent)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) != 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if not missing:
        try:
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            _private_root(settings["paths"], settings["disk"])
        except OSError as error:
            missing.append(f"a file system of its own ({error})")
    _say({"missing": missing})
    if missing and not settings["unsafe"]:
        os._exit(0)
    _serve(settings, isolated=not missing)


def _private_root(paths: list[str], disk: int) -> None:
    """A root of nothing but read-only copies of `paths`, an empty /tmp in memory, and a few devices."""
    root = "/tmp"
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for path in paths:
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif os.path.isdir(path):
            os.makedirs(root + path, exist_ok=True)
            _mount(path, root + path, "", MS_BIND | MS_REC)
            _mount("none", root + path, "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.makedirs(root + "/dev")
    for device in ("null", "zero", "urandom", "random"):
        os.close(os.open(f"{root}/dev/{device}", os.O_CREAT | os.O_WRONLY))
        _mount(f"/dev/{device}", f"{root}/dev/{device}", "", MS_BIND)
    for folder in ("/tmp", "/old", "/proc"):
        os.mkdir(root + folder)
    try:  # no further namespaces, which lead to the weak spots of kernels; the switch is in a /proc, which programs do not get
        _mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV)
        _write(root + "/proc/sys/user/max_user_namespaces", "0")
        LIBC.umount2((root + "/proc").encode(), MNT_DETACH)
    except OSError:
        pass
    os.chdir(root)
    if platform.machine() not in PIVOT_ROOT:
        raise OSError(f"unknown on {platform.machine()}")
    if LIBC.syscall(PIVOT_ROOT[platform.machine()], b".", b"old"):
        raise OSError(ctypes.get_errno(), "pivot_root")
    if LIBC.umount2(b"/old", MNT_DETACH):
        raise OSError(ctypes.get_errno(), "umount")
    os.rmdir("/old")
    os.chdir("/")
    _fresh_tmp(disk)
    _mount("none", "/", "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _fresh_tmp(disk: int) -> None:
    """An empty /tmp, whatever the last program left in it."""
    LIBC.umount2(b"/tmp", MNT_DETACH)
    _mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"size={disk},mode=1777")


def _serve(settings: dict[str, Any], isolated: bool) -> NoReturn:
    """Run programs until standard input ends."""
    LIBC.prctl(PR_SET_DUMPABLE, 0)
    names: dict[str, Any] = {}
    for module in PRELUDE:
        exec(f"from {module} import *\nimport {module}", names)  # noqa: S102 - names of modules from above
    while line := sys.stdin.buffer.readline():
        _say(_run(json.loads(line), settings, names, isolated))
    os._exit(0)


def _run(asked: dict[str, Any], settings: dict[str, Any], names: dict[str, Any], isolated: bool) -> dict[str, Any]:
    """One program: feed it, read what it writes up to the limit, stop it in time, and clear what it left behind."""
    if isolated:
        _fresh_tmp(settings["disk"])
    feed, output, errors, result = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        for wanted, end in ((0, feed[0]), (1, output[1]), (2, errors[1]), (3, result[1])):
            os.dup2(end, wanted)
        os.closerange(4, 1024)
        _become_program(asked, settings, names, isolated)
    for end in (feed[0], output[1], errors[1], result[1]):
        os.close(end)
    empty = {end: bytearray() for end in (output[0], errors[0], result[0])}
    texts, stopped = _exchange(feed[1], empty, asked, settings, started, child, isolated)
    _, status, usage = os.wait4(child, 0)
    if isolated:
        _kill_all()
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        stopped = "time"
    said, complained, value = (bytes(text).decode(errors="replace") for text in texts.values())
    return {
        "stopped": stopped,
        "code": code,
        "output": said,
        "errors": complained,
        "value": value,
        "seconds": time.monotonic() - started,
        "cpu": usage.ru_utime,
    }


def _exchange(
    feed: int,
    texts: dict[int, bytearray],
    asked: dict[str, Any],
    settings: dict[str, Any],
    started: float,
    child: int,
    isolated: bool,
) -> tuple[dict[int, bytearray], str]:
    """Texts by pipe, and why the program was stopped, if it was. All pipes are closed and the program is dead or dying then."""
    pending = memoryview(asked.get("stdin", "").encode(errors="replace"))
    os.set_blocking(feed, False)
    reading, stopped, ended = set(texts), "", False
    writing = {feed}
    while reading:
        left = started + settings["seconds"] + 0.5 - time.monotonic()
        if left <= 0:
            stopped = "time"
            break
        readable, writable, _ = select.select(reading, writing, [], 0 if ended else min(left, 0.05))
        for end in readable:
            block = os.read(end, 65536)
            texts[end] += block
            if not block:
                reading.discard(end)
        if sum(map(len, texts.values())) > settings["output"]:
            stopped = "output"
            break
        for end in writable:
            try:
                pending = pending[os.write(end, pending[:65536]) :]
            except OSError:
                pending = pending[:0]
            if not pending:
                os.close(end)
                writing.clear()
        if ended and not readable:
            break  # a process that it left behind holds the pipes open
        # Looked at before the pipes are: what it wrote last is then still read.
        ended = ended or bool(os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    for end in (*texts, *writing):
        os.close(end)
    try:
        os.kill(child, signal.SIGKILL)
        if isolated:
            os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return texts, stopped


def _kill_all() -> None:
    """Kill and reap every other process, until there is none: one killed may just have made another."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            return


def _become_program(asked: dict[str, Any], settings: dict[str, Any], names: dict[str, Any], isolated: bool) -> NoReturn:
    """Give up all rights, then run the program; ends without anything of the parent's being run."""
    try:
        seconds = int(settings["seconds"]) + 1
        limits = {
            resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: settings["memory"], resource.RLIMIT_FSIZE: settings["disk"],
            resource.RLIMIT_NOFILE: 64, resource.RLIMIT_CORE: 0,
        }  # fmt: skip
        if isolated:
            limits[resource.RLIMIT_NPROC] = settings["processes"]
        for kind, most in limits.items():
            resource.setrlimit(kind, (most, most + (kind == resource.RLIMIT_CPU)))
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if isolated and settings["root"]:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        if isolated:
            _drop_capabilities()
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        LIBC.prctl(PR_SET_DUMPABLE, 0)
        os.chdir("/tmp" if isolated else settings["folder"])
        sys.argv[:] = ["solution.py"]
        sys.setrecursionlimit(50_000)
        # As Python itself opens them: a program that puts others in their place closes no pipe, and is not taken to have ended.
        sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        code = _program(asked, names)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if not isinstance(stop.code, int | None):
            with contextlib.suppress(BaseException):
                print(str(stop.code)[:1000], file=sys.stderr)
    except BaseException as error:
        code = 1
        with contextlib.suppress(BaseException):
            print(f"{type(error).__name__}: {error}"[:1000], file=sys.stderr, flush=True)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 255)


def _program(asked: dict[str, Any], names: dict[str, Any]) -> int:
    """Execute the code; then call the function with the arguments, if one is named; then say that the end was reached."""
    names = (names if asked["prelude"] else {}) | {"__name__": "__main__"}
    exec(compile(asked["code"], "solution.py", "exec"), names)  # noqa: S102 - what the sandbox is for
    token = asked.get("token", "")
    if asked.get("function"):
        function = getattr(names["Solution"](), asked["function"]) if "Solution" in names else names[asked["function"]]
        token = json.dumps(function(*asked["arguments"]))
    with open(3, "w") as result:
        result.write(token)
    return 0


def _drop_capabilities() -> None:
    """None left: neither effective, permitted nor inheritable."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if LIBC.capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset")


def _die_with(parent: int) -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    if LIBC.mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None):
        raise OSError(ctypes.get_errno(), f"mount {target}: {os.strerror(ctypes.get_errno())}")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
