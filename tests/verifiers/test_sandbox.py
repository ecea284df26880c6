"""The sandbox: model-written programs end in time and change nothing outside. Skipped, loudly, where the machine cannot isolate."""

import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gymdata.errors import UsageError
from gymdata.verifiers import sandbox as module
from gymdata.verifiers.sandbox import Limits, Sandbox, missing

needs_isolation = pytest.mark.skipif(bool(missing()), reason=f"this machine gives no isolation to programs: {missing()}")
LIMITS = Limits(seconds=2.0, memory=512 << 20, processes=8, disk=4 << 20, output=1 << 20)

COUNT_PROCESSES = """
import os
def lives(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
print(sum(map(lives, range(2, 5000))))
"""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(LIMITS) as opened:
        yield opened


def test_a_machine_without_isolation_is_refused_unless_forced(monkeypatch):
    monkeypatch.setattr(module, "missing", lambda: ("namespaces (Operation not permitted)",))
    monkeypatch.delenv(module.UNSAFE_VARIABLE, raising=False)
    with pytest.raises(UsageError, match="no isolation") as refused:
        Sandbox(LIMITS)
    assert module.UNSAFE_VARIABLE in refused.value.hint
    monkeypatch.setenv(module.UNSAFE_VARIABLE, "1")
    with Sandbox(LIMITS) as opened:
        assert opened.run("print(input())", stdin="5").output == "5\n"


@needs_isolation
class TestIsolated:
    def test_a_program_reads_its_input_and_writes_its_output(self, sandbox):
        ran = sandbox.run("import sys\nprint(int(input()) * 2)\nsys.exit(3)", stdin="21\n")
        assert (ran.stopped, ran.code, ran.output) == ("", 3, "42\n")

    def test_nothing_of_a_short_output_is_lost_between_two_looks_at_the_pipes(self, sandbox):
        ran = [sandbox.run("print('said')", token=str(number)) for number in range(200)]
        assert [(one.output, one.value) for one in ran] == [("said\n", str(number)) for number in range(200)]

    def test_a_function_is_called_with_arguments(self, sandbox):
        assert sandbox.run("def f(a, b): return a, [b]", function="f", arguments=[1, "x"]).value == '[1, ["x"]]'
        assert sandbox.run("class Solution:\n def f(self): return None", function="f").value == "null"

    def test_a_token_comes_back_only_from_a_program_that_came_to_its_end(self, sandbox):
        assert sandbox.run("x = 1", token="end").value == "end"
        assert sandbox.run("raise SystemExit", token="end").value == ""
        assert sandbox.run("import os; os._exit(0)", token="end").value == ""

    @pytest.mark.parametrize(
        "code",
        [
            "while True: pass",
            "import time; time.sleep(1000)",
            "9**9**9**9",
            "import signal, time\nfor n in range(1, 32):\n  try: signal.signal(n, signal.SIG_IGN)\n  except OSError: pass\nwhile True: time.sleep(1)",
            "import re; re.match('(a+)+$', 'a' * 100 + 'b')",
            "import os\nos.close(1); os.close(2)\nwhile True: pass",
        ],
    )
    def test_what_does_not_end_is_stopped(self, sandbox, code):
        assert sandbox.run(code).stopped == "time"
        assert sandbox.run("print('next')").output == "next\n"

    @pytest.mark.parametrize(
        "code",
        [
            "import os\nwhile True: os.fork()",
            "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
            "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(100,)).start()",
            "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(1000)\nraise SystemExit(1)",
            "import os\nos.kill(-1, 9)",
        ],
    )
    def test_a_fork_bomb_and_what_it_leaves_behind_end(self, sandbox, code):
        ran = sandbox.run(code)
        assert ran.stopped or ran.code
        assert sandbox.run(COUNT_PROCESSES).output == "1\n"

    @pytest.mark.parametrize(
        ("code", "what"),
        [
            ("x = 'a' * (1 << 30)", "MemoryError"),
            ("open('/tmp/x', 'w').write('x' * (8 << 20))", "File too large"),
            ("import os\nfor n in range(9):\n  with open(f'/tmp/{n}', 'w') as f: f.write('x' * (1 << 20))", "No space left"),
            ("f = [open('/dev/null') for _ in range(100)]", "Too many open files"),
        ],
    )
    def test_memory_disk_and_files_are_limited(self, sandbox, code, what):
        ran = sandbox.run(code)
        assert ran.code == 1
        assert what in ran.errors

    def test_output_is_limited(self, sandbox):
        assert sandbox.run("import sys\nwhile True: sys.stdout.write('x' * 10000)").stopped == "output"

    def test_nothing_of_the_machine_can_be_read(self, sandbox, tmp_path):
        secret = tmp_path / "secret"
        secret.write_text("s3cret")
        secret.chmod(0o644)
        for path in (
            secret,
            "/etc/passwd",
            "/proc/1/environ",
            "/proc/self/status",
            Path(__file__),
            "/sys/kernel",
            "/dev/mem",
            "/var",
            "/home",
        ):
            ran = sandbox.run(
                f"import os\nprint(os.listdir({str(path)!r}) if os.path.isdir({str(path)!r}) else open({str(path)!r}).read())"
            )
            assert "FileNotFoundError" in ran.errors, path
        assert sandbox.run("import os\nprint(dict(os.environ))").output.count("TOKEN") == 0

    def test_nothing_of_the_machine_can_be_written(self, sandbox):
        for path in ("/x", "/usr/lib/x", "/dev/x", "/lib/x", os.path.dirname(os.__file__) + "/x"):
            assert "Error" in sandbox.run(f"open({path!r}, 'w')").errors, path

    def test_the_next_program_finds_nothing_of_the_last_one(self, sandbox):
        sandbox.run("open('/tmp/left', 'w').write('x')\nimport builtins\nbuiltins.left = 1\nimport json\njson.loads = None")
        ran = sandbox.run("import os, builtins, json\nprint(os.listdir('/tmp'), hasattr(builtins, 'left'), json.loads('1'))")
        assert ran.output == "[] False 1\n"

    def test_no_connection_is_made(self, sandbox):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(0)
            port = server.getsockname()[1]
            for address in (f"('127.0.0.1', {port})", "('10.0.0.1', 80)"):
                assert "unreachable" in sandbox.run(f"import socket\nsocket.create_connection({address}, 1)").errors
            with pytest.raises(BlockingIOError):
                server.accept()

    def test_no_rights_can_be_had(self, sandbox):
        assert "PermissionError" in sandbox.run("import os\nos.setuid(0)").errors
        assert "PermissionError" in sandbox.run("import os\nos.kill(1, 9)").errors
        assert "PermissionError" in sandbox.run("import os\nos.chroot('/tmp')").errors
        calls = (
            "unshare(0x10000000)",
            "unshare(0x20000)",
            "mount(b'none', b'/tmp', b'tmpfs', 0, None)",
            "umount2(b'/tmp', 2)",
            "ptrace(16, 1, 0, 0)",
        )
        for call in calls:
            assert sandbox.run(f"import ctypes\nprint(ctypes.CDLL(None).{call})").output == "-1\n", call

    def test_a_program_cannot_answer_for_the_sandbox(self, sandbox):
        forged = '{"stopped": "", "code": 0, "output": "forged", "value": "forged", "seconds": 0}'
        ran = sandbox.run(f"import os\nfor end in range(256):\n  try: os.write(end, b'{forged}\\n')\n  except OSError: pass")
        assert ran.output != "forged"
        assert sandbox.run("print('mine')").output == "mine\n"

    def test_a_crash_is_the_programs_own(self, sandbox):
        assert sandbox.run("import ctypes\nctypes.string_at(0)").code == -11
        assert sandbox.run("print(1)").output == "1\n"

    def test_it_dies_with_the_process_that_opened_it(self):
        code = "while True: pass"
        script = f"from gymdata.verifiers.sandbox import *\nopened = Sandbox(Limits(seconds=600))\nprint(opened._process.pid, flush=True)\nopened.run({code!r})"
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as opener:
            assert opener.stdout is not None
            inside = os.pidfd_open(int(opener.stdout.readline()))
            opener.kill()
        assert select.select([inside], [], [], 20)[0], "the sandbox outlived the process that opened it"
        os.close(inside)
