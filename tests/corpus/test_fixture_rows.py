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
