"""`gymdata expectations`: what is printed, exit codes, drafts that hold and drafts that do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymdata.cli.main import main
from gymdata.environments import registry
from tests.servers.fixtures import OWNER, hub  # noqa: F401
from tests.servers.hub import Hub

pytest.importorskip("great_expectations", reason="the extra `expectations` is not installed")


TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": None}


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, with an environment `own` whose rows are those of math."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYMDATA_ENVIRONMENTS", raising=False)
    folder = tmp_path / "environments"
    folder.mkdir()
    config = (registry.BUILTIN / "math" / "config.yaml").read_text("utf-8")
    (folder / "own.yaml").write_text(config.replace("fixtures/math", "rows").replace("prompt: prompt.yaml", "prompt: null"))
    write_rows()
    return tmp_path


def write_rows(change: Callable[[dict[str, Any]], object] = lambda row: None) -> None:
    Path("rows").mkdir(exist_ok=True)
    for split in ("train", "validation", "example"):
        lines = (registry.fixtures() / "math" / f"{split}.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        for row in rows:
            change(row)
        Path("rows", f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_dataset_that_is_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "math"]) == 0
    capsys.readouterr()
    assert main(["expectations", "run", "math"]) == 0
    out, err = capsys.readouterr()
    assert "math train\n  ok       tokens_in_context  all 40 rows: 27 to 65\n" in out
    assert err.endswith("data/math: 18 of 18 expectations met\n")


def test_what_is_not_as_expected_is_named_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "math"])
    capsys.readouterr()
    assert main(["expectations", "run", "data/math", "--set", "prompt_tokens=60"]) == 1
    out, err = capsys.readouterr()
    assert "FAILED   tokens_in_context  2 of 40 rows: tokens is 61, 65; expected 1 to 60\n" in out
    assert "expected: Every prompt fits" in out
    assert "train.jsonl:21: 61\n" in out
    assert "17 of 18 expectations met" in err


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "math"])
    capsys.readouterr()
    assert main(["expectations", "run", "math", "--set", "prompt_tokens=40", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["summary"] == {"expectations": 18, "failed": 2, "warnings": 0}
    first = document["outcomes"][0]
    assert (first["split"], first["name"], first["success"]) == ("train", "tokens_in_context", False)
    assert len(first["places"]) == len(first["values"]) == first["unexpected"] > 10


def test_warnings_alone_are_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(lambda row: row["responses_create_params"]["input"].append({"role": "user", "content": "And then?"}))
    main(["prepare", "own"])
    capsys.readouterr()
    suite = str(registry.BUILTIN.parents[2] / "schemas" / "expectations" / "math.json")
    assert main(["expectations", "run", "own", "--suite", suite]) == 0
    out, err = capsys.readouterr()
    assert "  warning  turns" in out
    assert "16 of 18 expectations met, 2 warnings" in err


def test_a_draft_holds_for_what_it_was_made_from_and_not_for_what_has_shifted(capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "own"])
    assert main(["expectations", "run", "own"]) == 2
    assert "`gymdata expectations draft own` proposes one" in capsys.readouterr().err
    assert main(["expectations", "draft", "own"]) == 0
    out, err = capsys.readouterr()
    assert "Seen: 27 to 65 tokens. Margin: half and double." in out
    assert "--output environments/own.expectations.json" in err
    assert main(["expectations", "draft", "own", "--output", "environments/own.expectations.json"]) == 0
    assert main(["expectations", "run", "own"]) == 0
    capsys.readouterr()

    def shift(row: dict[str, Any]) -> None:
        params = row["responses_create_params"]
        params["input"][0]["content"] *= 3
        params["temperature"] = 3

    write_rows(shift)
    main(["prepare", "own", "--overwrite-metrics"])
    capsys.readouterr()
    assert main(["expectations", "run", "own", "--format", "json"]) == 1
    outcomes = json.loads(capsys.readouterr().out)["outcomes"]
    failed = {outcome["name"] for outcome in outcomes if not outcome["success"]}
    assert failed == {"tokens_usual", "temperature", "few_warnings", "mean_tokens", "p95_tokens"}


def test_a_draft_of_imperfect_data_leaves_room_for_its_faults(capsys: pytest.CaptureFixture[str]) -> None:
    def fault(row: dict[str, Any]) -> None:
        row["responses_create_params"]["tools"] = [] if row["expected_answer"] == "6" else [TOOL]
        if row["expected_answer"] in ("360", "23"):
            row["expected_answer"] = ""
            row["responses_create_params"]["input"] = "Again?"

    write_rows(fault)
    main(["prepare", "own"])
    capsys.readouterr()
    main(["expectations", "draft", "own", "--format", "json"])
    suite = json.loads(capsys.readouterr().out)
    mostly = {entry["meta"]["name"]: entry["kwargs"].get("mostly") for entry in suite["expectations"]}
    assert mostly["unique_rows"] is None
    assert 0 < mostly["unique_prompts"] < 1
    assert 0 < mostly["answer_readable"] < 1
    assert 0 < mostly["tools"] < 1
    assert mostly["turns"] is None
    Path("environments/own.expectations.json").write_text(json.dumps(suite))
    assert main(["expectations", "run", "own"]) == 0


def test_what_was_not_counted_is_said_and_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "own"])
    main(["expectations", "draft", "own", "--output", "environments/own.expectations.json"])
    main(["prepare", "own", "--encoding", "none"])
    capsys.readouterr()
    assert main(["expectations", "run", "own"]) == 0
    out = capsys.readouterr().out
    assert "tokens_in_context  no row has tokens\n" in out
    assert "mean_tokens        there is no lengths.tokens.mean\n" in out
    assert main(["expectations", "draft", "own"]) == 0
    assert "tokens" not in capsys.readouterr().out


def test_a_draft_overwrites_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "math"])
    Path("mine.json").write_text("{}")
    assert main(["expectations", "draft", "math", "--output", "mine.json"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert Path("mine.json").read_text() == "{}"


def test_rows_are_compared_with_another_directory(capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "math", "--output-dir", "published"])
    main(["prepare", "math", "--limit", "30"])
    assert main(["expectations", "run", "math"]) == 0
    assert main(["expectations", "run", "math", "--against", "published"]) == 1
    assert "rows_kept is 0.75 (30 rows, 40 before); expected at least 1" in capsys.readouterr().out


def test_rows_are_compared_with_what_is_published(
    hub: Hub,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_TOKEN", OWNER)
    main(["prepare", "math"])
    assert main(["publish", "math", "--repo-id", "acme/math", "--no-verify"]) == 0
    main(["prepare", "math", "--limit", "30"])
    capsys.readouterr()
    assert main(["expectations", "run", "math", "--against", "acme/math@main"]) == 1
    out = capsys.readouterr().out
    assert "rows_kept is 0.75 (30 rows, 40 before); expected at least 1" in out
    assert "rows_kept is 1 (12 rows, 12 before)" in out


def test_the_verifier_may_read_every_answer(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("math_verify", reason="the extra `verifiers` is not installed")
    write_rows(lambda row: row.update(expected_answer="???") if row["expected_answer"] == "23" else None)
    main(["prepare", "own"])
    suite = str(registry.BUILTIN.parents[2] / "schemas" / "expectations" / "math.json")
    assert main(["expectations", "run", "own", "--suite", suite]) == 0
    capsys.readouterr()
    assert main(["expectations", "run", "own", "--suite", suite, "--gold"]) == 1
    out = capsys.readouterr().out
    assert "answer_readable    2 of 12 rows: the verifier 'math" in out
    assert "rows/validation.jsonl:" in out


def test_data_docs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "math"])
    assert main(["expectations", "run", "math", "--data-docs", "docs"]) == 0
    assert "Data Docs: docs/index.html" in capsys.readouterr().err
    assert Path("docs/index.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "mth"], "there is no environment 'mth'; there are code, "),
        (["run", "math"], "data/math holds no prepared dataset"),
        (["draft", "math"], "run `gymdata prepare math` first"),
        (["run", "environments"], "environments holds no prepared dataset"),
        (["run", "math", "--suite", "nowhere.json"], "nowhere.json: there is no such file"),
        (["run", "math", "--set", "prompt_tokens"], "--set prompt_tokens: no number"),
        (["run", "math", "--against", "nowhere"], "nowhere: no such directory"),
    ],
)
def test_a_call_at_fault_is_one_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expectations", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err
