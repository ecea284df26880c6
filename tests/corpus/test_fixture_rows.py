"""The rows under fixtures/rows: the valid ones give no finding, the invalid ones exactly the one in their name."""

import json
from pathlib import Path

import pytest

from gymdata.cli.main import main

pytest.importorskip("gymdata.cli.validate", reason="gymdata validate is not there yet")
ROWS = Path(__file__).parents[2] / "fixtures/rows"


def codes(path: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    main(["validate", str(path), "--format", "json"])
    (file,) = json.loads(capsys.readouterr().out)["files"]
    return {finding["code"] for finding in file["findings"]}


@pytest.mark.parametrize("path", sorted((ROWS / "valid").glob("*.jsonl")), ids=lambda path: path.stem)
def test_valid_rows_give_no_finding(path, capsys):
    assert codes(path, capsys) == set()


@pytest.mark.parametrize("path", sorted((ROWS / "invalid").glob("*.jsonl")), ids=lambda path: path.stem)
def test_invalid_rows_give_the_finding_in_their_name_and_no_other(path, capsys):
    assert codes(path, capsys) == {path.name[:5]}


@pytest.mark.parametrize("path", sorted(ROWS.parent.glob("*/*.jsonl")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_rows_of_the_built_in_environments_give_no_finding(path, capsys):
    assert codes(path, capsys) == set()


BEYOND_A_FILE = {
    "GD109": "a line of more than 256 MB",
    "GD112": "a prompt format",
    "GD113": "a metrics file beside the rows",
    "GD405": "a verifier: validate --gold",
    "GD406": "a verifier: validate --gold",
    "GD407": "a verifier: validate --gold",
    "GD408": "a verifier: validate --gold",
    "GD505": "a second split",
}
"""Codes that rows alone cannot show, and what they need."""


def test_every_code_that_rows_can_show_has_a_file():
    from gymdata.validation.catalogue import RULES

    shown = {path.name[:5] for path in (ROWS / "invalid").glob("*.jsonl")}
    assert shown == {code for code in RULES if code < "GD7"} - set(BEYOND_A_FILE)
