"""The gold check: rows that no response could get right, or that a wrong one could, found before any model runs."""

import json
from pathlib import Path

import pytest

pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'gymdata[verifiers]'")
pytest.importorskip("re2", reason="google-re2 is not installed: pip install 'gymdata[verifiers]'")

from gymdata.cli.main import main
from gymdata.environments import registry
from gymdata.validation.catalogue import RULES
from gymdata.validation.rules.gold import GOLD_RULES
from gymdata.verifiers.sandbox import missing

SHARED = Path(__file__).parents[3] / "shared/data"


def check(capsys, *words):
    """Exit code, (line, code) of the findings, and what was said."""
    code = main(["validate", "--gold", "--format", "json", *map(str, words)])
    out, err = capsys.readouterr()
    found = [(one["line"], one["code"]) for file in json.loads(out)["files"] for one in file["findings"]] if out else []
    return code, found, out + err


def rows(tmp_path, *lines):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return path


needs_isolation = pytest.mark.skipif(bool(missing()), reason=f"this machine gives no isolation to programs: {missing()}")
MARKS = {"code": needs_isolation}
ENVIRONMENTS = [pytest.param(name, marks=MARKS.get(name, ())) for name in registry.builtin_names()]


@needs_isolation
@pytest.mark.parametrize("rule", GOLD_RULES, ids=lambda rule: rule.code)
def test_a_rule_is_what_its_examples_say(rule, tmp_path, capsys):
    assert check(capsys, rows(tmp_path, rule.good))[:2] == (0, [])
    code, found, _ = check(capsys, rows(tmp_path, rule.bad))
    assert found == [(1, rule.code)]
    assert code == (1 if rule.severity == "error" else 0)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_bundled_row_passes(name, capsys):
    assert check(capsys, name)[:2] == (0, [])


def test_rows_with_errors_are_not_checked_and_lines_stay_true(tmp_path, capsys):
    assert check(capsys, rows(tmp_path, "{", "", RULES["GD407"].bad))[1] == [(1, "GD101"), (2, "GD104"), (3, "GD407")]


def test_rows_that_name_no_agent_need_an_environment(tmp_path, capsys):
    path = rows(tmp_path, '{"responses_create_params": {"input": "?"}, "expected_answer": "4", "question": "?"}')
    code, _, said = check(capsys, path)
    assert code == 2
    assert "--env" in said
    assert check(capsys, path, "--env", "math")[:2] == (0, [])


@needs_isolation
def test_a_file_may_mix_environments(tmp_path, capsys):
    mixed = rows(tmp_path, *(rule.good for rule in GOLD_RULES))
    assert check(capsys, mixed)[:2] == (0, [])


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not beside this checkout")
def test_real_answers_of_math_are_all_accepted_and_those_written_as_lists_are_doubted(tmp_path, capsys):
    lines = (SHARED / "math_validation.jsonl").read_text().splitlines()[::20]
    code, found, _ = check(capsys, rows(tmp_path, *lines))
    lists = [number for number, line in enumerate(lines, 1) if json.loads(line)["expected_answer"].startswith("['")]
    assert code == 0
    assert [line for line, finding in found if finding == "GD407"] == lists


OWN = """
mcqa: {resources_servers: {mcqa: {entrypoint: app.py, domain: knowledge}}}
own_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: mcqa}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: train, type: train, jsonl_fpath: own.jsonl, license: Apache 2.0}]
"""


def test_prepare_writes_nothing_where_an_answer_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", "math", "--gold"]) == 0
    assert "gold check: 52 rows" in capsys.readouterr().err
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "own.yaml").write_text(OWN)
    row = {"responses_create_params": {"input": "?"}, "options": [{"A": "1"}, {"B": "2"}], "expected_answer": "B"}
    for answer, code in (("B", 0), ("C", 1)):
        (tmp_path / "own.jsonl").write_text(json.dumps(row | {"expected_answer": answer}) + "\n")
        assert main(["prepare", "own", "--gold"]) == code
        assert (tmp_path / "data/own/train.jsonl").read_text().count('"expected_answer": "B"') == 1
    said = capsys.readouterr().err
    assert "GD405" in said
    assert "nothing was written" in said
