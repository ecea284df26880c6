"""The JSON Schema documents: made from the code, the same each time, and true of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gymdata import schemas
from gymdata.cli.main import main
from gymdata.environments import registry
from gymdata.validation.findings import Rule
from gymdata.validation.rules.schema_catalogue import SCHEMA_RULES

BEYOND_JSON_SCHEMA = {"GD213", "GD214", "GD219", "GD220", "GD604"}


def test_the_committed_documents_are_those_of_the_code() -> None:
    assert schemas.stale(Path(__file__).parents[1] / "schemas") == []


def test_write_then_check_agree_and_a_changed_document_is_stale(tmp_path: Path) -> None:
    assert schemas.main(["--write", str(tmp_path)]) == 0
    assert schemas.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "row.schema.json").write_text("{}")
    assert schemas.stale(tmp_path) == ["row.schema.json"]
    assert schemas.main(["--check", str(tmp_path)]) == 1


def test_the_call_says_how_it_is_used() -> None:
    assert schemas.main([]) == 2


@pytest.mark.parametrize("rule", SCHEMA_RULES, ids=lambda rule: rule.code)
def test_documents_take_good_rows_and_refuse_bad_ones(rule: Rule) -> None:
    documents = schemas.json_schemas()
    name = "rollout" if rule.code.startswith("GD6") else "row"
    validator = jsonschema.Draft202012Validator(documents[name])
    assert validator.is_valid(json.loads(rule.good))
    if rule.severity == "error" and rule.code not in BEYOND_JSON_SCHEMA:
        assert not validator.is_valid(json.loads(rule.bad))


ROOT = Path(__file__).parents[1]


def faults(name: str, document: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / f"schemas/{name}.schema.json").read_text(encoding="utf-8")))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("environment", registry.names())
def test_what_prepare_reads_and_writes_fits_the_documents(environment: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for mode, splits in (("train_preparation", ("train", "validation")), ("example_validation", ("example",))):
        assert main(["prepare", environment, "--output-dir", mode, "--mode", mode, "--format", "json"]) == 0
        written = json.loads((tmp_path / mode / "manifest.json").read_bytes())
        assert written == json.loads(capsys.readouterr().out)
        assert faults("manifest", written) == []
        for split in splits:
            assert faults("statistics", json.loads((tmp_path / mode / f"{split}_statistics.json").read_bytes())) == []
            rows = (tmp_path / mode / f"{split}.jsonl").read_bytes().splitlines()
            assert [fault for row in rows for fault in faults("row", json.loads(row))] == []
    config = ROOT / f"gymdata/environments/builtin/{environment}/config.yaml"
    assert faults("environment", yaml.safe_load(config.read_text(encoding="utf-8"))) == []


def test_what_validate_and_stats_print_fits_the_documents(capsys) -> None:
    assert main(["validate", str(ROOT / "fixtures/rows/invalid"), "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert len(report["files"]) >= 90 and faults("finding", report) == []
    assert main(["stats", str(ROOT / "fixtures/rows/valid/tools.jsonl"), "--format", "json"]) == 0
    assert faults("statistics", json.loads(capsys.readouterr().out)) == []


def test_rollouts_fit_their_document() -> None:
    for line in (ROOT / "fixtures/rows/valid/rollouts.jsonl").read_bytes().splitlines():
        assert faults("rollout", json.loads(line)) == []


@pytest.mark.parametrize("name", schemas.MODELS)
def test_a_document_refuses_what_is_something_else(name: str) -> None:
    for other in ([], {"files": 1, "rows": "x", "responses_create_params": 1, "gymdata": 1}):
        assert faults(name, other)
