"""`gymdata envs` lists, shows and starts environments."""

import json
from pathlib import Path

import pytest

from gymdata.cli.main import main


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYMDATA_ENVIRONMENTS", raising=False)


def test_list_names_every_environment_on_a_line(capsys):
    assert main(["envs", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8


def test_list_shows_a_broken_environment_and_all_the_others(tmp_path, capsys):
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/broken.yaml").write_text("a: [")
    assert main(["envs", "list", "--format", "json"]) == 0
    found = {entry["name"]: entry["description"] for entry in json.loads(capsys.readouterr().out)}
    assert len(found) == 9
    assert "cannot be used" in found["broken"]


@pytest.mark.parametrize(
    "part",
    [
        "nvidia/Nemotron-RL-math-OpenMathReasoning",
        "expected_answer",
        "Creative Commons",
        "\\boxed",
        "math_with_judge_simple_agent",
    ],
)
def test_show_tells_sources_fields_licences_prompt_and_configuration(capsys, part):
    assert main(["envs", "show", "math"]) == 0
    assert part in capsys.readouterr().out


def test_show_as_json_is_one_document(capsys):
    assert main(["envs", "show", "mcqa", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [dataset["exists"] for dataset in document["datasets"]] == [True, True, True]
    assert "mcqa_simple_agent" in document["config"]


def test_show_hides_secrets(tmp_path, capsys):
    (tmp_path / "env.yaml").write_text("hf_token: hunter2\nmine: {api_key: hunter2}\n")
    assert main(["envs", "show", "math", "+policy_api_key=hunter2"]) == 0
    printed = capsys.readouterr()
    assert "hunter2" not in printed.out + printed.err


def test_init_writes_an_environment_that_works_and_never_overwrites(tmp_path, capsys):
    assert main(["envs", "init", "my_env"]) == 0
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    folder = "environments/my_env"
    assert written == {f"{folder}.yaml", f"{folder}/prompt.yaml", f"{folder}/example.jsonl", f"{folder}/test_my_env.py"}
    compile(Path(folder, "test_my_env.py").read_text(), "test_my_env.py", "exec")
    capsys.readouterr()
    assert main(["envs", "show", "my_env", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["datasets"][0]["exists"]
    before = {path: Path(path).read_bytes() for path in written}
    assert main(["envs", "init", "my_env"]) == 2
    assert before == {path: Path(path).read_bytes() for path in written}


def test_the_rows_that_init_writes_are_what_its_prompt_makes(capsys):
    from gymdata.environments import registry
    from gymdata.environments.prompt import apply

    main(["envs", "init", "my_env"])
    environment = registry.load("my_env")
    assert environment.prompt is not None
    for line in environment.datasets()[0].path.read_text().splitlines():
        row = json.loads(line)
        assert apply({**row, "responses_create_params": {}}, environment.prompt) == row


@pytest.mark.parametrize("name", ["math", "Math", "../x", "a b", ""])
def test_init_refuses_names_that_are_taken_or_no_names(capsys, name):
    assert main(["envs", "init", name]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_unknown_environment_exits_2(capsys):
    assert main(["envs", "show", "nope"]) == 2
    assert "there is no environment 'nope'" in capsys.readouterr().err


def test_an_environment_that_is_named_twice_is_not_prepared_twice(tmp_path, capsys):
    assert main(["prepare", "math", "mcqa", "math", "--output-dir", str(tmp_path / "out")]) == 2
    assert "math is named twice" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
