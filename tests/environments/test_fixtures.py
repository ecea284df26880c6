"""The rows that come with gymdata: as many as promised, none twice, every answer right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gymdata.environments import registry
from gymdata.environments.prompt import apply

BUILTIN = registry.builtin_names()
PYTHON_TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def rows(name: str, split: str = "") -> list[dict]:
    paths = [dataset.path for dataset in registry.load(name).datasets() if split in ("", dataset.type)]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", BUILTIN)
def test_the_example_has_the_five_rows_of_nemo_gyms_gate(name):
    assert len(rows(name, "example")) == 5
    assert len(rows(name, "train")) >= 20
    assert len(rows(name, "validation")) >= 8


@pytest.mark.parametrize("name", BUILTIN)
def test_no_row_is_there_twice(name):
    inputs = [json.dumps(row["responses_create_params"]["input"]) for row in rows(name)]
    assert len(set(inputs)) == len(inputs)


@pytest.mark.parametrize("name", BUILTIN)
def test_the_input_is_what_the_prompt_makes_of_the_row(name):
    prompt = registry.load(name).prompt
    assert prompt is not None
    for row in rows(name):
        bare = {key: value for key, value in row["responses_create_params"].items() if key != "input"}
        assert apply({**row, "responses_create_params": bare}, prompt) == row


@pytest.mark.parametrize("name", BUILTIN)
def test_the_fields_of_the_verifier_are_there_with_their_types(name):
    for row in rows(name):
        for field in registry.load(name).fields:
            found, value = field.locate(row)
            assert found or not field.required, field.path
            if found:
                assert isinstance(value, PYTHON_TYPES[field.type]), field.path
                assert not field.items or all(isinstance(item, PYTHON_TYPES[field.items]) for item in value)


@pytest.mark.parametrize("name", BUILTIN)
def test_the_metrics_beside_the_rows_begin_as_the_entry_says(name):
    for dataset in registry.load(name).datasets():
        written = json.loads(dataset.path.with_name(f"{dataset.path.stem}_metrics.json").read_text())
        header = dataset.metrics_header()
        assert list(written)[: len(header)] == list(header)
        assert {key: written[key] for key in header} == header
        assert written["Number of examples"] == len(dataset.path.read_text().splitlines())


def test_code_the_reference_solution_prints_the_expected_outputs():
    for row in rows("code"):
        tests = row["verifier_metadata"]["unit_tests"]
        for given, expected in zip(tests["inputs"], tests["outputs"], strict=True):
            command = [sys.executable, "-I", "-S", "-c", row["reference_solution"]]
            run = subprocess.run(command, input=given, capture_output=True, text=True, timeout=20, check=True)
            assert run.stdout == expected, row["hash_id"]


def test_mcqa_options_differ_and_one_of_them_is_the_answer():
    for row in rows("mcqa"):
        options = {letter: text for option in row["options"] for letter, text in option.items()}
        assert len(set(options.values())) == 4
        assert row["expected_answer"] in options
        assert all(f"{letter}: {text}" in row["question"] for letter, text in options.items())


def test_multi_step_values_are_the_sums_of_code_points_in_the_order_of_the_list():
    for row in rows("multi_step"):
        listed = [line.split("'")[3] for line in row["synonyms"].splitlines() if line.split("'")[1] == row["minefield_label"]]
        assert row["expected_synonyms"] == listed
        assert row["expected_synonym_values"] == [sum(map(ord, word)) for word in listed]
        assert row["minefield_label_value"] == sum(map(ord, row["minefield_label"]))


def test_instruction_following_has_arguments_for_each_constraint():
    for row in rows("instruction_following"):
        assert len(row["kwargs"]) == len(row["instruction_id_list"]) == len(set(row["instruction_id_list"]))
    assert len({row["id"] for row in rows("instruction_following")}) == len(rows("instruction_following"))


def test_structured_outputs_the_reference_answer_is_valid_under_the_schema():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    for row in rows("structured_outputs"):
        jsonschema.validate(json.loads(row["reference_answer"]), json.loads(row["schema_str"]))


def test_nothing_but_rows_metrics_and_words_lies_in_fixtures():
    names = {path.name for name in BUILTIN for path in Path(registry.fixtures(), name).iterdir()}
    assert names == {f"{split}{end}" for split in ("example", "train", "validation") for end in (".jsonl", "_metrics.json")}
