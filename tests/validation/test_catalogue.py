"""The catalogue: every rule's bad rows give its finding, its good rows none; the published faults are judged as published."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gymdata.errors import UsageError
from gymdata.validate import Target, measure
from gymdata.validation.catalogue import RULES, find
from gymdata.validation.findings import Finding
from gymdata.validation.judge import is_error
from gymdata.validation.rules.gold import GOLD_RULES

ROOT = Path(__file__).parents[2]
BAD = ROOT.parent / "shared/data/bad"
EXPECTATIONS = sorted(BAD.glob("*.expect.json"))

GOLD = {rule.code for rule in GOLD_RULES}
"""Rules whose examples need a verifier: tests/verifiers/test_gold.py."""

NO_EXAMPLE = {"GD109", "GD112", "GD113", "GD505"}
"""Rules that need more than the rows of one file, or more bytes than an explanation has room for."""


def findings_of(rows: str, directory: Path) -> list[Finding]:
    path = directory / "rows.jsonl"
    path.write_bytes(rows.encode() + (b"\n" if rows else b""))
    return measure(Target(path)).report.findings


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES.values() if rule.code < "GD7" and rule.code not in GOLD], ids=lambda rule: rule.code
)
def test_a_rule_is_what_its_examples_say(rule, tmp_path):
    if rule.code in NO_EXAMPLE:
        assert not rule.bad
        return
    assert {finding.code for finding in findings_of(rule.bad, tmp_path)} == {rule.code}
    assert findings_of(rule.good, tmp_path) == []


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_a_rule_explains_itself(rule):
    assert re.fullmatch(r"GD[1-7]\d\d", rule.code)
    assert re.fullmatch(r"[a-z][a-z-]*", rule.name)
    for sentence in (rule.summary, rule.why, rule.fix):
        assert sentence.endswith((".", "…"))


def test_codes_and_names_are_unique():
    assert len({rule.name for rule in RULES.values()}) == len(RULES)


def test_every_code_that_is_given_is_in_the_catalogue():
    given = {code for path in (ROOT / "gymdata").rglob("*.py") for code in re.findall(r'"(GD\d{3})"', path.read_text())}
    assert given <= set(RULES)


def test_a_rule_is_found_by_code_or_name_in_any_case():
    assert find("gd101") is RULES["GD101"]
    assert find("Not-JSON") is RULES["GD101"]
    with pytest.raises(UsageError, match="GD402"):
        find("GD42")


@pytest.mark.skipif(not EXPECTATIONS, reason="the published faults (shared/data/bad) are not beside this checkout")
@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda path: path.name.split(".")[0])
def test_published_faults(expectation):
    expected = json.loads(expectation.read_text())
    findings = measure(Target(BAD / expected["file"])).report.findings
    errors = sorted({finding.line for finding in findings if is_error(finding)})
    here = {finding.path for finding in findings if finding.line in expected["bad_lines"]}
    match expected["want"]:
        case "reject":
            assert errors == expected["bad_lines"]
        case "file_reject":
            assert [(finding.line, finding.path) for finding in findings] == [(0, "$")]
        case "warn":
            assert errors == []
            assert {finding.line for finding in findings} >= set(expected["bad_lines"] or [0])
        case "accept":
            assert errors == []
    if expected["want"] in ("reject", "warn") and here:
        assert expected["json_path"].replace("[-1]", "[1]") in here
