"""Annotations that land on their lines, whatever the data says; and a summary that GitHub takes."""

import re

import pytest

from gymdata.validation.findings import Finding
from gymdata.validation.report import FileReport, Report
from gymdata.validation.reporters import github

COMMAND = re.compile(r"::(error|warning) ((?:[a-zA-Z]+=[^,:\r\n]*,?)+)::([^\r\n]*)\n")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)


def report(*findings: Finding, file: str = "train.jsonl") -> Report:
    return Report((FileReport(file, 9, 1, list(findings)),))


def test_an_annotation():
    shown = github.render(report(Finding("GD207", "$.a", "100% missing", "add it", 3)))
    assert shown == "::error file=train.jsonl,line=3,title=GD207 missing-strict::$.a: 100%25 missing%0Ahelp: add it\n"


def test_the_column_is_given_where_the_row_can_be_read(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"ä": 1, "a": 2}\n', encoding="utf-8")
    assert ",line=1,col=10,endColumn=16," in github.render(report(Finding("GD207", "$.a", "m", "", 1)))


def test_data_cannot_write_commands():
    evil = Finding("GD101", "$", "x\r\n::set-output name=a::b\n::error::c\x1b[0m", "%0A::d", 1)
    shown = github.render(report(evil, file="a,b:c\n::error::x%.jsonl"))
    assert COMMAND.fullmatch(shown)
    assert "file=a%2Cb%3Ac%0A%3A%3Aerror%3A%3Ax%25.jsonl," in shown


def test_no_more_than_github_shows_errors_first_every_code_at_least_once():
    many = [Finding("GD207", "$", "m", "", line) for line in range(1, 101)]
    others = [Finding("GD101", "$", "m", "", 500), Finding("GD104", "$", "m", "", 2)]
    shown = github.render(report(*many, *others)).splitlines()
    assert sum(line.startswith("::error") for line in shown) == github.SHOWN_PER_STEP
    assert any("GD101" in line for line in shown)
    assert shown[10] == "gymdata: 91 more errors not shown here; the job summary counts all"
    assert shown[11].startswith("::warning")
    assert len(github.render(report(*many), 2).splitlines()) == 3


def test_a_clean_report_annotates_nothing():
    assert github.render(report()) == ""
    assert "✅ gymdata: 0 errors, 0 warnings" in github.markdown(report())


def test_the_summary_has_files_codes_and_examples():
    findings = [Finding("GD207", "$.a", "m", "add it", line) for line in (3, 4, 9)]
    shown = github.markdown(report(*findings))
    assert "| train.jsonl | 9 | 1 | 3 | 0 |" in shown
    assert "| 3 | 3-4, 9 |" in shown
    assert "- GD207 line 3: <code>$.a</code>: m<br>help: add it" in shown


def test_data_cannot_write_markup():
    evil = Finding("GD101", "$", "| <script> `a` [x](y) @all\n# head", "", 1)
    shown = github.markdown(report(evil, file="<b>|.jsonl"))
    assert "<script>" not in shown and "<b>" not in shown
    assert "\\| &lt;script&gt; \\`a\\` \\[x\\](y) \\@all\\\\n\\# head" in shown


def test_a_summary_beyond_what_github_takes_is_cut():
    reports = Report(tuple(FileReport(f"{at}.jsonl", 1, 0, [Finding("GD101", "$", "m" * 5000, "", 1)]) for at in range(400)))
    shown = github.markdown(reports)
    assert len(shown.encode()) < 1024 * 1024
    assert shown.endswith("too long for a job summary.\n")
