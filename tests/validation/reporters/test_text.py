"""The report for people: first findings in full, the rest counted, nothing that steers a terminal."""

import re

import pytest

from gymdata.validation.findings import Finding
from gymdata.validation.report import FileReport, Report
from gymdata.validation.reporters import text


def report(*findings: Finding, file: str = "train.jsonl", rows: int = 900) -> Report:
    return Report((FileReport(file, rows, rows - len({one.line for one in findings}), list(findings)),))


def strict(line: int) -> Finding:
    return Finding("GD207", "$.responses_create_params.tools[0].strict", "`strict` is missing", "add it", line)


def test_a_finding_says_where_what_and_what_to_do():
    assert text.render(report(strict(3))) == (
        "train.jsonl:3  GD207 error  $.responses_create_params.tools[0].strict: `strict` is missing\n    help: add it\n"
    )


def test_many_of_a_kind_are_counted_with_their_lines_and_help_is_said_once():
    shown = text.render(report(*(strict(line) for line in [1, 2, 3, 5, 6, 7, 9, 12, 12])))
    assert shown.count("GD207 error") == text.SHOWN_OF_EACH
    assert shown.count("help:") == 1
    assert shown.endswith("    … 6 more GD207 (missing-strict) on 5 lines: 5-7, 9, 12\n")


def test_max_findings_is_shared_by_all_kinds_of_findings():
    blank = [Finding("GD104", "$", "blank line", "", line) for line in (2, 4)]
    shown = text.render(report(*[strict(line) for line in range(10, 30)], *blank), max_findings=4)
    assert len(re.findall(r"^train.jsonl:\d+ ", shown, re.MULTILINE)) == 4
    assert shown.count("GD104 warning") == 2
    assert "18 more GD207" in shown
    assert text.render(report(strict(1)), max_findings=0) == "train.jsonl  1 GD207 (missing-strict) on line 1\n"


def test_errors_come_before_warnings_and_the_whole_file_before_its_lines():
    found = [Finding("GD104", "$", "blank", "", 1), Finding("GD101", "$", "no JSON", "", 9), Finding("GD113", "$", "stale")]
    codes = re.findall(r"GD\d+", text.render(report(*found)))
    assert codes == ["GD113", "GD101", "GD104"]
    assert text.render(report(found[2])) == "train.jsonl  GD113 error  stale\n"


def test_no_findings_print_nothing():
    assert text.render(report()) == ""
    assert text.summary(report()) == "1 file, 900 of 900 rows valid: 0 errors, 0 warnings"


def test_the_summary_counts_by_code_and_says_what_can_be_repaired():
    shown = text.summary(report(strict(1), strict(2), Finding("GD101", "$", "x", "", 3)))
    assert "GD207 error           2  missing-strict  --fix" in shown
    assert "1 file, 897 of 900 rows valid: 3 errors, 0 warnings" in shown
    assert "2 may be repaired with --fix" in shown


def test_color_only_where_asked_and_never_from_data():
    evil = Finding("GD101", "$.\x1b[31m", "a\x1b[2J\nb\u202e\x00", "\x9b1m", 1)
    plain = text.render(report(evil, file="a\nb.jsonl"))
    assert all(character.isprintable() or character == "\n" for character in plain)
    assert "\\x1b[2J\\nb" in plain
    assert "\x1b[1;31mGD101 error\x1b[0m" in text.render(report(evil), color=True)


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([1], "1"), ([1, 2, 3], "1-3"), ([1, 3, 4, 1200, 1201], "1, 3-4, 1,200-1,201"), ([1, 3, 5, 7, 9], "1, 3, 5, … 9")],
)
def test_line_ranges(numbers, shown):
    assert text.line_ranges(numbers, most=3) == shown
