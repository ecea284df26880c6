"""`gymdata rollouts profile | select | show`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from gymdata.cli.main import main

SCHEMA = Path(__file__).parents[2] / "schemas" / "reward_statistics.schema.json"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two tasks, solved twice and once in two rollouts."""
    lines = []
    for task, index, reward in ((0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0)):
        row = {"responses_create_params": {"input": f"task {task}"}, "expected_answer": str(task)}
        row |= {"response": {"output": []}, "reward": reward, "agent_ref": {"type": "responses_api_agents", "name": "math_agent"}}
        lines.append(json.dumps(row | {"_ng_task_index": task, "_ng_rollout_index": index}))
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_profile_prints_a_table_and_writes_six_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollouts", "profile", str(run)]) == 0
    captured = capsys.readouterr()
    assert "math_agent" in captured.out and "0.750" in captured.out
    assert captured.err.count("wrote ") == 6
    assert sorted(path.name for path in run.parent.iterdir() if path != run) == [
        "run_agent_metrics.json",
        "run_aggregate_metrics.json",
        "run_repeat_level_metrics.json",
        "run_reward_profiling.jsonl",
        "run_reward_statistics.json",
        "run_task_statistics.jsonl",
    ]


def test_profile_for_programs_writes_only_what_it_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollouts", "profile", str(run), "--no-write", "--format", "json", "--k", "1,2"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert [point["value"] for point in document["overall"]["pass_at_k"]] == [0.75, 1.0]
    assert [*run.parent.iterdir()] == [run]
    assert main(["rollouts", "profile", str(run), "--no-write", "--format", "markdown"]) == 0
    assert "| pass@k |" in capsys.readouterr().out


def test_profile_names_bad_lines_and_exits_1(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.write_text(run.read_text() + '{"torn\n')
    assert main(["rollouts", "profile", str(run)]) == 1
    captured = capsys.readouterr()
    assert f"{run}:5  GD101 error" in captured.err and "1 lines could not be used" in captured.out


@pytest.mark.parametrize(
    "arguments",
    [["--k", "0"], ["--k", "a"], ["--num-repeats", "-1"], ["--plot", "x.gif"], ["--inputs", "absent.jsonl"], ["absent.jsonl"]],
)
def test_profile_refuses_what_it_cannot_do(run: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["rollouts", "profile", str(run), *arguments])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert "error" in capsys.readouterr().err
    assert [*run.parent.iterdir()] == [run]


def test_select_writes_rows_and_says_what_each_rule_removed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks, output = run.with_name("tasks.jsonl"), run.with_name("chosen.jsonl")
    tasks.write_text(
        "".join(json.dumps({"responses_create_params": {"input": f"task {n}"}, "expected_answer": str(n)}) + "\n" for n in (0, 1))
    )
    arguments = ["rollouts", "select", str(tasks), "--profile", str(run), "-o", str(output), "--max-pass-rate", "0.9"]
    assert main(arguments) == 2
    assert "profile the rollouts first" in capsys.readouterr().err
    assert main(["rollouts", "profile", str(run)]) == 0
    capsys.readouterr()
    assert main([*arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["selected"] == 1 and document["removed"]["pass rate above 0.9"] == 1
    assert output.read_text() == tasks.read_text().splitlines()[1][:-1] + ', "pass_rate": 0.5}\n'
    assert main([*arguments, "--min-pass-rate", "0.8"]) == 1
    assert "no row is left" in capsys.readouterr().err


def test_show_prints_trajectories_and_exits_1_where_none_matches(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollouts", "show", str(run), "--max-reward", "0"]) == 0
    text = capsys.readouterr().out
    assert text.count("verdict") == 1 and "task 1 · rollout 1 · math_agent" in text and "\x1b" not in text
    assert main(["rollouts", "show", str(run), "--limit", "2"]) == 0
    assert capsys.readouterr().out.count("verdict") == 2
    assert main(["rollouts", "show", str(run), "--environment", "other"]) == 1
    assert "no rollout matches" in capsys.readouterr().err


def test_a_subcommand_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["rollouts"])
    assert stopped.value.code == 2
    assert "profile" in capsys.readouterr().err
