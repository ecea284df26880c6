"""Measures `gymdata prepare` beside NeMo Gym's `ng_prepare_data`: the same rows, the same configuration, in one run.

Every run is a process of its own on a warm page cache, its outputs removed before; variants take turns, and the medians are
printed as a markdown table. Start-up is what a file of 5 rows takes.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from corpora import write_corpus
from reference import prepare_command

SAMPLE_SECONDS = 0.1
CONFIG = """\
math_with_judge:
  resources_servers:
    math_with_judge: {{entrypoint: app.py, domain: math}}
simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: math_with_judge}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets:
      - {{name: rows, type: train, license: Apache 2.0, jsonl_fpath: {path}}}
"""


@dataclass(frozen=True)
class Run:
    """What one run took: wall clock and processor time in seconds, and the peak memory of all its processes in bytes."""

    wall: float
    cpu: float
    peak: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=200, help="size of each corpus (default 200)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each variant (default 3)")
    parser.add_argument("--folder", type=Path, help="where the rows are kept for another run (default: a temporary folder)")
    parser.add_argument("--no-reference", action="store_true", help="measure gymdata alone")
    args = parser.parse_args()
    gym = None if args.no_reference else prepare_command()
    with tempfile.TemporaryDirectory(prefix="gymdata-bench-") as temporary:
        folder = args.folder or Path(temporary)
        corpora = {
            "5 rows": _corpus(folder / "five", "math", rows=5),
            "math": _corpus(folder / "math", "math", size=round(args.megabytes * 1e6)),
            "tools": _corpus(folder / "tools", "tools", size=round(args.megabytes * 1e6)),
        }
        runs: dict[tuple[str, str], list[Run]] = {}
        for number in range(args.rounds):
            for corpus, rows in corpora.items():
                for variant, command in _variants(gym, rows.parent).items():
                    _tell(f"round {number + 1} of {args.rounds}: {corpus}, {variant}")
                    runs.setdefault((corpus, variant), []).append(_measure(command, rows))
        _tell("")
        print(_table(corpora, {key: _median(several) for key, several in runs.items()}, args.rounds))


def _variants(gym: Path | None, folder: Path) -> dict[str, list[str]]:
    """Name -> command; each reads config.yaml in `folder` and writes to `out` there."""
    ours = [str(Path(sys.executable).parent / "gymdata"), "prepare", "--config", "config.yaml", "--output-dir", "out"]
    variants = {
        f"gymdata --jobs {jobs}, {'no' if encoding == 'none' else 'with'} tokens": [*ours, "--jobs", jobs, "--encoding", encoding]
        for encoding in ("none", "o200k_base")
        for jobs in ("1", "2")
    }
    if gym:
        theirs = ["+config_paths=[config.yaml]", "+output_dirpath=out", "+mode=train_preparation"]
        variants = {"NeMo Gym 0.7.0": [str(gym), *theirs], **variants}
    return variants


def _corpus(folder: Path, kind: str, size: int = 0, rows: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.jsonl"
    if not path.exists() or (size and not size <= path.stat().st_size < size + 1_000_000):
        _tell(f"writing {path}")
        write_corpus(kind, path, size, rows)
    (folder / "config.yaml").write_text(CONFIG.format(path=path))
    return path


def _measure(command: list[str], rows: Path) -> Run:
    """Run `command` in the folder of `rows`, emptied of all but the rows and the configuration."""
    for entry in rows.parent.iterdir():
        if entry.name not in ("rows.jsonl", "config.yaml"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    log = rows.parent / "log"
    start, peak = time.perf_counter(), 0
    with open(log, "wb") as stream:
        process = subprocess.Popen(command, cwd=rows.parent, stdout=stream, stderr=subprocess.STDOUT)
    samples = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        wall = time.perf_counter() - start
        if pid:
            break
        if wall > samples * SAMPLE_SECONDS:
            peak, samples = max(peak, _memory(process.pid)), samples + 1
        time.sleep(0.002)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not (rows.parent / "out" / "train.jsonl").is_file():
        sys.exit(f"\n{' '.join(command)}: exit code {process.returncode}\n{log.read_text(errors='replace')[-3000:]}")
    return Run(wall, usage.ru_utime + usage.ru_stime, max(peak, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)))


def _memory(pid: int) -> int:
    """Bytes that a process and its descendants hold now, shared pages counted once; 0 where /proc does not say."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return own + sum(_memory(int(child)) for child in children)


def _median(runs: list[Run]) -> Run:
    return Run(
        statistics.median(run.wall for run in runs), statistics.median(run.cpu for run in runs), max(run.peak for run in runs)
    )


def _table(corpora: dict[str, Path], medians: dict[tuple[str, str], Run], rounds: int) -> str:
    gym = "NeMo Gym 0.7.0"
    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {rounds} rounds: median, top peak",
        "",
        "| rows | size | variant | wall | less start-up | times NeMo Gym | processor time | peak memory |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    for (corpus, variant), run in medians.items():
        size = corpora[corpus].stat().st_size
        small = corpus == "5 rows"
        net, reference = _net(medians, corpus, variant), medians.get((corpus, gym))
        ratio = ""
        if reference and variant != gym:
            ratio = f"{(reference.wall / run.wall) if small else (_net(medians, corpus, gym) / net):.1f}"
        shown = "" if small else f"{net:.2f} s"
        lines.append(
            f"| {corpus} | {size / 1e6:,.2f} MB | {variant} | {run.wall:.2f} s | {shown} | {ratio} | {run.cpu:.2f} s"
            f" | {run.peak / 1e6:,.0f} MB |"
        )
    return "\n".join(lines)


def _net(medians: dict[tuple[str, str], Run], corpus: str, variant: str) -> float:
    """Wall clock less start-up, in seconds."""
    return max(medians[corpus, variant].wall - medians["5 rows", variant].wall, 1e-9)


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
