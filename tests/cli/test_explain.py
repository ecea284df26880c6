"""`gymdata explain`."""

import json

import pytest

from gymdata.cli.main import main
from gymdata.validation.catalogue import RULES


@pytest.mark.parametrize("code", RULES)
def test_a_code_is_explained(code, capsys):
    assert main(["explain", code]) == 0
    page = capsys.readouterr().out
    rule = RULES[code]
    assert page.startswith(f"{code} {rule.name} ({rule.severity})\n")
    assert rule.summary in page and rule.why in page and rule.fix in page
    assert ("--fix" in page) == rule.fixable


def test_a_code_is_explained_to_programs(capsys):
    assert main(["explain", "GD401", "--format", "json"]) == 0
    rule = json.loads(capsys.readouterr().out)
    assert rule["code"] == "GD401"
    assert rule["severity"] == "warning"
    assert rule["bad"] != rule["good"]


def test_without_a_code_all_are_listed(capsys):
    assert main(["explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(RULES)
    assert main(["explain", "--format", "json"]) == 0
    assert [rule["code"] for rule in json.loads(capsys.readouterr().out)] == list(RULES)


def test_an_unknown_code_is_refused_with_the_nearest_ones(capsys):
    assert main(["explain", "GD4011"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "GD401" in captured.err
    assert main(["explain", "zzz"]) == 2
    assert "lists all of them" in capsys.readouterr().err
