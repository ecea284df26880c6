"""Environments are found by name or path; a wrong name gets the right ones."""

from pathlib import Path

import pytest

from gymdata.environments import registry
from gymdata.errors import UsageError

OWN = "r: {resources_servers: {x: {entrypoint: a, domain: other, datasets: [{name: e, type: example, jsonl_fpath: e.jsonl}]}}}\n"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(registry.FOLDER_VARIABLE, raising=False)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)


def test_the_built_in_environments_are_these():
    assert registry.names() == [
        "code",
        "instruction_following",
        "math",
        "mcqa",
        "multi_step",
        "session_state",
        "single_tool_call",
        "structured_outputs",
    ]


@pytest.mark.parametrize("name", registry.builtin_names())
def test_a_built_in_environment_is_complete(name):
    environment = registry.load(name)
    assert environment.builtin
    assert environment.description
    assert environment.prompt is not None
    assert [dataset.type for dataset in environment.datasets()] == ["train", "validation", "example"]
    assert all((dataset.path.is_file() and dataset.license) or dataset.type == "example" for dataset in environment.datasets())
    assert {environment.agent_of(dataset) for dataset in environment.datasets()} == {environment.instances[-1].name}
    assert not environment.warnings


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("math", "nvidia/Nemotron-RL-math-OpenMathReasoning"),
        ("mcqa", "nvidia/Nemotron-RL-knowledge-mcqa"),
        ("instruction_following", "nvidia/Nemotron-RL-instruction_following"),
        ("code", "nvidia/nemotron-RL-coding-competitive_coding"),
    ],
)
def test_a_built_in_environment_names_the_public_data_it_stands_for(name, repository):
    real = registry.load(name).datasets(real=True)
    assert {dataset.source.repo_id for dataset in real if dataset.source and dataset.source.type == "huggingface"} == {repository}
    assert real[0].path == Path("data", name, "source", "train.jsonl")


def test_rows_in_the_working_directory_do_not_stand_in_for_the_bundled_ones(tmp_path):
    (tmp_path / "fixtures/math").mkdir(parents=True)
    (tmp_path / "fixtures/math/train.jsonl").write_text("")
    assert registry.load("math").datasets()[0].path == registry.fixtures() / "math/train.jsonl"


def test_an_environment_of_ones_own_is_found_in_environments(tmp_path):
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/mine.yaml").write_text(OWN)
    assert "mine" in registry.names()
    assert registry.load("mine").name == "mine"
    assert registry.load("environments/mine.yaml").name == "mine"


def test_hidden_files_are_no_environments(tmp_path):
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/mine.yaml").write_text(OWN)
    (tmp_path / "environments/._mine.yaml").write_bytes(b"\x00\x05\x16\x07")  # what macOS leaves beside it
    assert registry.own_names() == ["mine"]


def test_the_folder_can_be_another(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/math.yaml").write_text(OWN)
    monkeypatch.setenv(registry.FOLDER_VARIABLE, "elsewhere")
    assert not registry.load("math").builtin


def test_a_file_and_overrides_go_on_top_of_a_built_in_environment(tmp_path):
    path = "math_with_judge_simple_agent.responses_api_agents.simple_agent.datasets"
    (tmp_path / "top.yaml").write_text("math_with_judge: {resources_servers: {math_with_judge: {domain: other}}}\n")
    environment = registry.load("math", [f"++{path}.0.num_repeats=3"], ["top.yaml"])
    assert (environment.domain, environment.datasets()[0].num_repeats) == ("other", 3)


def test_an_unknown_name_gets_the_list_and_the_nearest():
    with pytest.raises(UsageError) as caught:
        registry.load("mth")
    assert "mcqa" in caught.value.message
    assert "did you mean `math`?" in caught.value.hint
