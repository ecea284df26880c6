"""Rollouts of an environment with a real model, from nothing: `make rollouts ENV=math`.

Starts `serving/serve.py` if no server answers on port 8000 (or PORT), runs `gymdata rollouts collect` and `profile`, and ends what
it started. Options after ENV are those of `gymdata rollouts collect`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = f"http://127.0.0.1:{os.environ.get('PORT', '8000')}"
START_SECONDS = 300
FORM = {"structured_outputs": {"regex": r"[^\\.]{1,120}\. The answer is \\boxed\{-?[0-9]{1,4}\}"}}
"""SmolLM2 seldom thinks of boxes, and talks on until it is wrong: with this it says a sentence and then a number in a box."""


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print("which environment? make rollouts ENV=math; `gymdata envs list` names them", file=sys.stderr)
        return 2
    environment, *more = sys.argv[1:]
    output = Path("rollouts", f"{environment}.jsonl")
    command = [sys.executable, "-m", "gymdata.cli.main", "rollouts"]
    collect = [*command, "collect", environment, "--output", str(output), "--temperature", "0.7", "--max-output-tokens", "512"]
    elsewhere = "--model-url" in more
    if not elsewhere:
        collect += ["--model-url", f"{ROOT}/v1"]
    if environment == "math" and not elsewhere and "--extra-body" not in more:
        collect += ["--extra-body", json.dumps(FORM)]
    if not elsewhere and not healthy():
        # Before minutes go into a server: where none answers, a call with which nothing else is wrong ends with 3.
        looked_over = subprocess.run([*collect, *more, "--wait", "0"], capture_output=True, text=True, check=False)
        if looked_over.returncode != 3:
            sys.stdout.write(looked_over.stdout)
            sys.stderr.write(looked_over.stderr)
            return looked_over.returncode
    with contextlib.nullcontext() if elsewhere else server(output.parent / "vllm.log"):
        code = subprocess.run([*collect, *more], check=False).returncode
    if code in (0, 1, 3) and output.is_file() and output.stat().st_size:
        subprocess.run([*command, "profile", str(output)], check=False)
    return code


@contextlib.contextmanager
def server(log: Path) -> Iterator[None]:
    """A server that answers: the one that is there, or one of our own, ended afterwards."""
    if healthy():
        yield
        return
    # What takes long the first time, the virtual environment and the model, shows on the terminal; vLLM's own words go to the log.
    serve = [sys.executable, HERE / "serve.py"]
    if code := subprocess.run([*serve, "--install-only"], check=False).returncode:
        sys.exit(code)
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"starting vLLM with SmolLM2; its log: {log}", file=sys.stderr, flush=True)
    with open(log, "wb") as file:
        process = subprocess.Popen([*serve, "--port", ROOT.rpartition(":")[2]], stdout=file, stderr=file, start_new_session=True)
    try:
        started = time.monotonic()
        while not healthy():
            if process.poll() is not None or time.monotonic() - started > START_SECONDS:
                sys.exit(f"vLLM did not start; see {log}")
            time.sleep(0.5)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            os.killpg(process.pid, signal.SIGKILL)  # its engine, a process of its own, at times outlives it


def healthy() -> bool:
    try:
        with urllib.request.urlopen(f"{ROOT}/health", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
