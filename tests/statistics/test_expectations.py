"""Suites of expectations on real prepared data: each kind met and not met, the lines named, nothing left behind."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymdata.environments import registry
from gymdata.errors import ConfigError, UsageError
from gymdata.statistics.expectations import Outcome, run_suite
from gymdata.statistics.suites import find_suite, names, read_suite

pytest.importorskip("great_expectations", reason="the extra `expectations` is not installed")

SUITES = Path(__file__).parents[2] / "schemas" / "expectations"


def by_name(outcomes: list[Outcome]) -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in outcomes}


def suite_of(tmp_path: Path, *entries: dict[str, Any], **meta: Any) -> Path:
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"name": "own", "meta": meta, "expectations": entries}))
    return path


def between(column: str, low: float | None = None, high: Any = None, **meta: Any) -> dict[str, Any]:
    kwargs = {"column": column, "min_value": low, "max_value": high}
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    return {"type": "expect_column_values_to_be_between", "kwargs": kwargs, "meta": meta}


def test_every_built_in_environment_has_a_suite_that_its_bundled_rows_meet(prepared: Any) -> None:
    assert sorted(path.stem for path in SUITES.glob("*.json")) == registry.builtin_names()
    for name in registry.builtin_names():
        outcomes = run_suite(*prepared(name))
        assert [outcome for outcome in outcomes if not outcome.success] == []
        assert [outcome.name for outcome in outcomes] == names(read_suite(SUITES / f"{name}.json"))


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.json")), ids=lambda path: path.stem)
def test_suites_are_great_expectations_own_format(path: Path) -> None:
    import great_expectations as gx

    document = json.loads(path.read_bytes())
    suite = gx.ExpectationSuite(**document)
    assert suite.name == path.stem
    # It leaves out, without a word, what it does not know.
    assert len(suite.expectations) == len(document["expectations"])


def long_prompt(rows: list[dict[str, Any]]) -> None:
    rows[2]["responses_create_params"]["input"][0]["content"] = "long " * 9000


def second_question(rows: list[dict[str, Any]]) -> None:
    rows[4]["responses_create_params"]["input"] += [
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And then?"},
    ]


def no_tools(rows: list[dict[str, Any]]) -> None:
    del rows[1]["responses_create_params"]["tools"]
    rows[6]["responses_create_params"]["tools"] = []


def no_answer(rows: list[dict[str, Any]]) -> None:
    del rows[3]["expected_answer"]


def blank_answer(rows: list[dict[str, Any]]) -> None:
    rows[3]["expected_answer"] = " "


def no_such_option(rows: list[dict[str, Any]]) -> None:
    rows[3]["expected_answer"] = "Z"


def answer_of_another_type(rows: list[dict[str, Any]]) -> None:
    rows[3]["schema_str"] = {}


def hot(rows: list[dict[str, Any]]) -> None:
    rows[0]["responses_create_params"]["temperature"] = 0.6
    rows[5]["responses_create_params"]["temperature"] = 9.0


def row_twice(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[7])


def prompt_twice(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[7] | {"expected_answer": "another"})


def warnings(rows: list[dict[str, Any]]) -> None:
    rows[8]["responses_create_params"]["temperature"] = 9.0


@pytest.mark.parametrize(
    ("name", "environment", "change", "lines", "message"),
    [
        ("tokens_in_context", "math", long_prompt, [3], "1 of 40 rows: tokens is 9,0"),
        ("turns", "math", second_question, [5], "1 of 40 rows: turns is 2; expected 1"),
        ("tools", "single_tool_call", no_tools, [2, 7], "2 of 40 rows: tools is 0; expected 1 to 128"),
        ("answer_readable", "math", no_answer, [4], "1 of 40 rows: expected_answer is missing"),
        ("answer_readable", "mcqa", blank_answer, [4], "1 of 40 rows: expected_answer is empty"),
        ("answer_readable", "mcqa", no_such_option, [4], "1 of 40 rows: the expected answer is none of the options (GD403)"),
        ("answer_readable", "structured_outputs", answer_of_another_type, [4], "schema_str is not of type string"),
        ("temperature", "math", hot, [6], "1 of 40 rows: temperature is 9; expected 0 to 2"),
        ("unique_rows", "math", row_twice, [41, 8], "2 of 41 rows share their key with another row (up to 1 % may)"),
        ("unique_prompts", "math", prompt_twice, [41, 8], "2 of 41 rows share their prompt_key"),
        ("few_warnings", "math", warnings, [9], "1 of 40 rows have findings GD308 (up to 2 % may)"),
    ],
)
def test_an_expectation_that_is_not_met_names_the_lines(
    prepared: Any, name: str, environment: str, change: Callable[[Any], None], lines: list[int], message: str
) -> None:
    outcome = by_name(run_suite(*prepared(environment, change)))[name]
    assert not outcome.success
    assert sorted(outcome.places) == [f"train.jsonl:{line}" for line in lines]
    assert outcome.unexpected == len(outcome.values) == len(lines)
    assert message in outcome.message
    assert outcome.description


def test_what_repeats_stands_together(prepared: Any) -> None:
    directory, environment = prepared(change=lambda rows: rows.extend([rows[0], rows[1], rows[0]]))
    outcome = by_name(run_suite(directory, environment))["unique_rows"]
    assert {frozenset(outcome.places[:3]), frozenset(outcome.places[:2])} & {
        frozenset(f"train.jsonl:{line}" for line in lines) for lines in ([1, 41, 43], [2, 42])
    }


def test_rows_that_have_gone_are_noticed(prepared: Any) -> None:
    assert "no rows before" in by_name(run_suite(*prepared()))["rows_kept"].message
    directory, environment = prepared(change=lambda rows: rows.pop())
    outcome = by_name(run_suite(directory, environment))["rows_kept"]
    assert not outcome.success
    assert outcome.message == "rows_kept is 0.975 (39 rows, 40 before); expected at least 1"
    assert by_name(run_suite(directory, environment, baseline={"train": 30}))["rows_kept"].success
    assert not by_name(run_suite(directory, environment, baseline={"train": 50}))["rows_kept"].success


def test_every_unexpected_row_counts_however_many_they_are(prepared: Any) -> None:
    def many(rows: list[dict[str, Any]]) -> None:
        for number in range(1000):
            params = {"input": f"{number}: " + "long " * (8200 + number)}
            rows.append(rows[0] | {"responses_create_params": params})

    outcome = by_name(run_suite(*prepared(change=many)))["tokens_in_context"]
    assert len(outcome.places) == len(outcome.values) == outcome.unexpected == 1000
    assert outcome.message.startswith(f"1,000 of 1,040 rows: tokens is {min(outcome.values):,} to {max(outcome.values):,};")
    assert max(outcome.values) >= 9199


def test_a_parameter_goes_before_the_suite_s_own(prepared: Any) -> None:
    directory, environment = prepared()
    assert by_name(run_suite(directory, environment))["tokens_in_context"].success
    outcome = by_name(run_suite(directory, environment, parameters={"prompt_tokens": 40}))["tokens_in_context"]
    assert not outcome.success
    assert all(value > 40 for value in outcome.values)
    with pytest.raises(UsageError, match="no parameter 'context'"):
        run_suite(directory, environment, parameters={"context": 40})


def test_expectations_about_statistics_columns_and_tables_say_what_they_saw(prepared: Any, tmp_path: Path) -> None:
    entries = [
        between("lengths.tokens.mean", high=10, table="statistics", name="short"),
        {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "tokens", "min_value": 10}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 10}},
        {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": ["file", "turns"]}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "temperature"}},
        between("turns", 2, splits=["validation"]),
    ]
    directory, environment = prepared()
    outcomes = run_suite(directory, environment, suite_of(tmp_path, *entries))
    assert [(outcome.success, outcome.message) for outcome in outcomes] == [
        (False, "lengths.tokens.mean is 38.15; expected at most 10"),
        (True, "column mean of tokens is 38.15"),
        (False, "table row count is 40; expected at most 10"),
        (False, "40 of 40 rows; expected compound columns to be unique (column_list ['file', 'turns'])"),
        (False, "40 of 40 rows have no temperature"),
    ]
    assert set(outcomes[4].values) == {None}
    assert len(outcomes[3].places) == 40


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (between("tokns", 1), "did you mean tokens"),
        (between("tokens"), "cannot both be None"),
        ({"type": "expect_column_to_be_nice", "kwargs": {}}, "not found"),
        ({"type": "expect_column_values_to_be_null", "kwargs": {"column": "key", "colour": 1}}, "extra fields"),
        (between("tokens", 1) | {"severity": "grave"}, "Invalid severity"),
        (between("tokens", 1, table="rows"), "`table` is 'rows'"),
        (between("tokens", 1, {"$PARAMETER": "nowhere"}), "nowhere"),
        ({"type": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "("}}, "cannot be looked at"),
        (
            {
                "type": "expect_column_quantile_values_to_be_between",
                "kwargs": {"column": "tokens", "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[1, 9]]}},
            },
            "quantiles",
        ),
    ],
    ids=str,
)
def test_a_wrong_expectation_is_an_error_of_the_suite(prepared: Any, tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    directory, environment = prepared()
    with pytest.raises(ConfigError) as caught:
        run_suite(directory, environment, suite_of(tmp_path, entry))
    assert message in str(caught.value)
    assert "suite.json" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"expectations": [1]}', '{"expectations": [{"type": "x"}]}', "\xff", '{"expectations": 4}']
)
def test_a_file_that_is_no_suite_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "suite.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"suite\.json"):
        read_suite(path)


def test_expectations_of_one_kind_get_names_of_their_own(tmp_path: Path) -> None:
    path = suite_of(tmp_path, between("tokens", 1), between("tokens", 2), between("turns", 1, name="turns"))
    assert names(read_suite(path)) == ["tokens_between", "tokens_between_2", "turns"]


def test_the_suite_of_an_own_environment_stands_beside_its_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gymdata.cli.envs import init

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYMDATA_ENVIRONMENTS", raising=False)
    init("sums")
    assert find_suite(registry.load("sums")) is None
    own = Path("environments/sums.expectations.json")
    own.write_text("{}")
    assert find_suite(registry.load("sums")) == own
    found = find_suite(registry.load(str(Path("environments/sums.yaml").absolute())))
    assert found is not None
    assert found.samefile(own)
    # One for a built-in environment goes before the one that came with it.
    assert find_suite(registry.load("math")) != Path("environments/math.expectations.json")
    Path("environments/math.expectations.json").write_text("{}")
    assert find_suite(registry.load("math")) == Path("environments/math.expectations.json")


def test_a_directory_may_hold_several_environments(tmp_path: Path) -> None:
    from gymdata.prepare import prepare

    environments = [registry.load("math"), registry.load("single_tool_call")]
    prepare(environments, tmp_path / "out")
    outcomes = [outcome for one in environments for outcome in run_suite(tmp_path / "out", one)]
    assert all(outcome.success for outcome in outcomes)
    assert {(outcome.environment, outcome.split) for outcome in outcomes} == {
        (one, split) for one in ("math", "single_tool_call") for split in ("train", "validation")
    }


def test_what_is_not_prepared_or_not_measured_is_said(tmp_path: Path) -> None:
    from gymdata.prepare import Options, prepare

    environment = registry.load("math")
    with pytest.raises(UsageError, match="no prepared dataset"):
        run_suite(tmp_path / "nowhere", environment)
    prepare([environment], tmp_path / "out", Options(measure=False))
    with pytest.raises(UsageError, match="no facts"):
        run_suite(tmp_path / "out", environment)


def test_without_the_extra_one_message_says_what_to_install(prepared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, environment = prepared()
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    with pytest.raises(UsageError, match=r"gymdata\[expectations\]"):
        run_suite(directory, environment)


def test_no_network_and_nothing_left_anywhere(prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, environment = prepared()
    for name in ("home", "work", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "work")

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    before = sorted(directory.iterdir())
    assert all(outcome.success for outcome in run_suite(directory, environment))
    assert [path for name in ("home", "work", "temporary") for path in (tmp_path / name).iterdir()] == []
    assert sorted(directory.iterdir()) == before


def test_data_docs_are_pages_that_load_and_run_nothing(prepared: Any, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    suite = suite_of(
        tmp_path, {"type": "expect_column_values_to_be_null", "kwargs": {"column": "key"}, "description": "<b onclick=x>"}
    )
    directory, environment = prepared()
    for _ in range(2):
        run_suite(directory, environment, suite, data_docs=docs)
        assert len(list(docs.rglob("validations/**/*.html"))) == 1
    for page in docs.rglob("*.html"):
        text = page.read_text("utf-8")
        assert text.index("default-src 'none'") < text.index("<title>")
    index = (docs / "index.html").read_text("utf-8")
    assert "0 of 1" in index
    (link,) = re.findall('href="([^"]*)"', index)
    assert "unexpected values found" in (docs / link).read_text("utf-8")


def test_importing_it_loads_neither_great_expectations_nor_pandas() -> None:
    code = (
        "import sys, gymdata.statistics.expectations, gymdata.statistics.suites, gymdata.cli.expectations;"
        "print([name for name in ('great_expectations', 'pandas', 'polars') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
