"""The JSON document is the contract of design.md."""

import json

from gymdata.validation.findings import Finding
from gymdata.validation.report import FileReport, Report
from gymdata.validation.reporters import render
from gymdata.validation.reporters.json import document, pieces

REPORT = Report(
    (
        FileReport("a.jsonl", 7, 6, [Finding("GD206", "$.x", "m\ud800é", "h", 3), Finding("GD104", "$", "blank", "", 4)]),
        FileReport("b.jsonl", 1, 1, []),
    )
)


def test_the_document():
    assert json.loads(render(REPORT, "json")) == {
        "files": [
            {
                "file": "a.jsonl",
                "rows": 7,
                "valid": 6,
                "findings": [
                    {
                        "line": 3,
                        "severity": "error",
                        "code": "GD206",
                        "path": "$.x",
                        "message": "m\ud800é",
                        "hint": "h",
                        "fixable": True,
                    },
                    {
                        "line": 4,
                        "severity": "warning",
                        "code": "GD104",
                        "path": "$",
                        "message": "blank",
                        "hint": "",
                        "fixable": True,
                    },
                ],
            },
            {"file": "b.jsonl", "rows": 1, "valid": 1, "findings": []},
        ],
        "summary": {"files": 2, "rows": 8, "valid": 7, "errors": 1, "warnings": 1},
    }


def test_a_limit_cuts_findings_and_not_the_summary():
    document = json.loads(render(REPORT, "json", max_findings=1))
    assert [len(file["findings"]) for file in document["files"]] == [1, 0]
    assert document["summary"]["warnings"] == 1


def test_written_finding_by_finding_it_is_one_plain_document():
    for report in (REPORT, Report(()), Report((FileReport('"findings": []', 0, 0, []), *REPORT.files, *REPORT.files))):
        assert "".join(pieces(report)) == json.dumps(document(report), indent=2) + "\n"


def test_it_can_be_printed_anywhere():
    assert render(REPORT, "json").isascii()
