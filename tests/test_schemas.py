"""The JSON Schema documents: made from the code, the same each time, and true of rows."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from gymdata import schemas
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
