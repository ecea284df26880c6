"""Measures `gymdata rollouts profile` beside NeMo Gym's `gym eval profile`: the same rollouts, in completion order, in one run.

Each runs in a process of its own; NeMo Gym's is what its command does, called from Python. It runs on a share of the tasks, because
its time and memory grow with them. Processor time and memory are those of the main process: with --jobs 2 its workers add to them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reference import prepare_command

GYM = """
import sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import orjson
from nemo_gym.reward_profile import RewardProfiler, coverage_by_agent, select_measured
rows, results = ([orjson.loads(line) for line in open(path, "rb")] for path in sys.argv[1:])
results.sort(key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))
profiler = RewardProfiler()
profiler.align_rows_and_results(rows, results)
rows, results, _, _ = select_measured(rows, results)
profiler.write_to_disk(*profiler.profile_from_data(rows, results), Path(sys.argv[2]))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000, help="default 20,000")
    parser.add_argument("--repeats", type=int, default=16, help="rollouts per task (default 16)")
    parser.add_argument("--reference-tasks", type=int, default=2_000, help="tasks that NeMo Gym profiles; 0 leaves it out")
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print(
        "| tasks | rollouts | size | variant | wall | processor time | peak memory | rollouts/s |\n|--:|--:|--:|---|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory(prefix="gymdata-bench-") as folder:
        for tasks in dict.fromkeys([args.reference_tasks, args.tasks]):
            if not tasks:
                continue
            run, inputs = write(Path(folder), tasks, args.repeats)
            ours = [str(Path(sys.executable).parent / "gymdata"), "rollouts", "profile", str(run)]
            variants = {f"gymdata --jobs {jobs}": [*ours, "--jobs", jobs] for jobs in ("1", "2")}
            if tasks == args.reference_tasks:
                python = prepare_command().parent / "python"
                variants["NeMo Gym 0.7.0"] = [str(python), "-c", GYM, str(inputs), str(run)]
            for name, command in variants.items():
                wall, processor, peak = measure(command)
                print(
                    f"| {tasks:,} | {tasks * args.repeats:,} | {run.stat().st_size / 1e6:,.0f} MB | {name} | {wall:.1f} s | {processor:.1f} s"
                    f" | {peak / 1e6:,.0f} MB | {tasks * args.repeats / wall:,.0f} |",
                    flush=True,
                )


def write(folder: Path, tasks: int, repeats: int) -> tuple[Path, Path]:
    """A file of rollouts, shuffled as they complete, of 3 kB each; and NeMo Gym's copy of the inputs."""
    draw = random.Random(0)
    run, inputs = folder / "run.jsonl", folder / "inputs.jsonl"
    keys = [(task, index) for task in range(tasks) for index in range(repeats)]
    rates = [draw.random() for _ in range(tasks)]
    with open(inputs, "w") as stream:
        for task, index in keys:
            stream.write(json.dumps(_task(task, index)) + "\n")
    draw.shuffle(keys)
    with open(run, "w") as stream:
        for task, index in keys:
            right, tokens = draw.random() < rates[task], draw.randint(100, 900)
            text = [{"type": "output_text", "text": "So x = 3. " * 200, "annotations": []}]
            message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": text}
            usage = {"input_tokens": 300, "output_tokens": tokens, "total_tokens": 300 + tokens}
            response = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [message], "usage": usage}
            answer = str(task if right else draw.randint(0, 5))
            outcome = {"response": response, "reward": float(right), "extracted_answer": answer, "library_reward": float(right)}
            stream.write(json.dumps(_task(task, index) | outcome) + "\n")
    return run, inputs


def _task(task: int, index: int) -> dict[str, object]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"Problem {task}. " + "Find x. " * 40}]},
        "expected_answer": str(task),
        "agent_ref": {"type": "responses_api_agents", "name": "math_with_judge_simple_agent"},
        "_ng_task_index": task,
        "_ng_rollout_index": index,
    }


def measure(command: list[str]) -> tuple[float, float, int]:
    """Wall clock and processor time in seconds, and the peak memory in bytes of the largest process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    complaint = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]}: exit code {process.returncode}\n{complaint.decode(errors='replace')[-3000:]}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
