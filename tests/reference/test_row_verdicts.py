"""Verdicts, numbers and places against those that NeMo Gym 0.7.0 gave (cases beside the repository).

Where gymdata is stricter or laxer on purpose, the rule that makes it so is stated here, not the rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymdata.validation.rules import rollout, schema
from gymdata.validation.rules.schema_catalogue import SCHEMA_RULES

SHARED = Path(__file__).parents[3] / "shared"
if not (SHARED / "cases").is_dir():
    pytest.skip("the reference cases (../shared/cases) are not here", allow_module_level=True)

SEVERITY = {rule.code: rule.severity for rule in SCHEMA_RULES}
ONLY_GYM_MINDS = {"GD210", "GD211"}
STRICTER = {"GD213", "GD214"}
VERDICTS = [json.loads(line) for line in (SHARED / "cases" / "row_verdicts.jsonl").read_bytes().splitlines()]
FAULTS = sorted(path.name.removesuffix(".expect.json") for path in (SHARED / "data" / "bad").glob("*.expect.json"))


def decode(line: str) -> Any:
    """The value of a line, or None where it is no JSON."""
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def judge(row: Any) -> tuple[set[str], dict[str, Any] | None, list[Any]]:
    """Codes of the errors, the dumped create-params, all findings."""
    findings, params = schema.check(row)
    return {finding.code for finding in findings if SEVERITY[finding.code] == "error"}, params, findings


def numbers(params: dict[str, Any]) -> list[Any]:
    """[tools, turns, words, temperature] as Gym measures a dumped row."""
    items = params["input"]
    turns = 1 if isinstance(items, str) else sum(item.get("role") == "user" for item in items)
    tools = len(params["tools"]) if "tools" in params else None
    return [tools, turns or None, len(json.dumps(params).split()), params.get("temperature")]


def untold_item(row: Any, findings: list[Any]) -> bool:
    """Whether each error lies in an item without `type`: Gym takes any such item for a list of MCP tools."""
    errors = [finding for finding in findings if SEVERITY[finding.code] == "error"]
    return all(
        finding.path.startswith(f"$.responses_create_params.input[{index}]")
        for finding in errors
        for index in [int(finding.path.removeprefix("$.responses_create_params.input[").partition("]")[0])]
        if "type" not in row["responses_create_params"]["input"][index]
    ) and all(finding.path.startswith("$.responses_create_params.input[") for finding in errors)


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: case["label"])
def test_a_row_gets_gyms_verdict(case: dict[str, Any]) -> None:
    try:
        row = decode(case["line"])
    except RecursionError:
        pytest.skip("how deep a row may nest is decided by the rules of syntax")
    errors, params, findings = judge(row)
    codes = {finding.code for finding in findings}
    if case["gym"].startswith("CRASH"):
        assert findings or params is None
    elif case["gym"] == "OFFENDING":
        assert errors or codes & ONLY_GYM_MINDS
    elif errors:
        assert errors <= STRICTER or untold_item(row, findings)
    elif params is not None:
        told = dict(part.split("=") for part in case["gym"].split()[1:])
        tools, turns, words, temperature = numbers(params)
        assert told["tools"] == ("0:0" if tools is None else f"1:{tools}")
        assert told["turns"] == ("0:0" if turns is None else f"1:{turns}")
        assert told["words"] == str(words)
        count, _, total = told["temp"].partition(":")
        assert count == ("0" if temperature is None else "1")
        if temperature is not None:
            value = float(total)
            assert value == pytest.approx(temperature) or (math.isnan(value) and math.isnan(temperature))


def test_generated_rows_get_gyms_verdict_and_numbers() -> None:
    differing = []
    for line in (SHARED / "cases" / "fuzz_rows.jsonl").read_bytes().splitlines():
        case = json.loads(line)
        row = json.loads(case["line"])
        errors, params, findings = judge(row)
        offending, *expected = case["gym"]
        if offending != bool(errors):
            excused = untold_item(row, findings) if errors else {f.code for f in findings} & ONLY_GYM_MINDS
            if not excused:
                differing.append((case, findings))
        elif params is not None and numbers(params) != expected:
            differing.append((case, numbers(params)))
    assert differing == []


@pytest.mark.parametrize("case", sorted((SHARED / "cases" / "gym_examples").iterdir()), ids=lambda path: path.name)
def test_rows_of_public_environments_are_taken_with_gyms_numbers(case: Path) -> None:
    rows = [json.loads(line) for line in (case / "example.jsonl").read_bytes().splitlines()]
    measured = [judge(row) for row in rows]
    assert [findings for errors, _, findings in measured if errors] == []
    if not (case / "gym_rows.json").is_file():
        return  # Gym itself dies on these
    expected = json.loads((case / "gym_rows.json").read_bytes())
    for (_, params, _), (offending, *told) in zip(measured, expected, strict=True):
        assert not offending
        if params is not None:
            assert numbers(params) == told


def data_rows(name: str) -> Iterator[Any]:
    with (SHARED / "data" / name).open("rb") as lines:
        for line in lines:
            yield json.loads(line)


TASK_FILES = ["code", "instruction_following", "math_train", "math_validation", "mcqa", "tools"]


@pytest.mark.parametrize("name", TASK_FILES)
def test_public_datasets_have_no_finding_of_shape(name: str) -> None:
    assert [findings for row in data_rows(f"{name}.jsonl") if (findings := schema.check(row)[0])] == []


def test_real_rollouts_have_no_finding_of_shape() -> None:
    for row in data_rows("rollouts.jsonl"):
        assert rollout.looks_like_rollout(row)
        assert schema.check(row)[0] + rollout.check(row) == []


@pytest.mark.parametrize("fault", [name for name in FAULTS if name.startswith(("schema_", "ro_", "json_top_", "ds_agent"))])
def test_a_fault_is_told_at_its_place_and_nowhere_else(fault: str) -> None:
    """Faults of content (images, sampling, templates) and of JSON text are other rules' business: silence is right here."""
    expect = json.loads((SHARED / "data" / "bad" / f"{fault}.expect.json").read_bytes())
    lines = (SHARED / "data" / "bad" / f"{fault}.jsonl").read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = json.loads(line)
        findings = schema.check(row)[0]
        if fault.startswith("ro_"):
            findings = findings + rollout.check(row)
        if number not in expect["bad_lines"]:
            assert findings == []
            continue
        assert len(findings) <= 1
        for finding in findings:
            assert SEVERITY[finding.code] == {"reject": "error", "warn": "warning"}[expect["want"]]
            assert finding.path == expect["json_path"].replace("input[-1]", "input[1]")
        gym_refuses = expect["nemo_gym_verdict"] == "reject" or fault.startswith("ro_")
        assert findings or not gym_refuses or fault in ("ro_reward_nan", "schema_temp_nan")
