"""Repairs are mechanical: what is valid stays as it is, what is changed is better, and nothing is guessed."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.errors import DataError, UsageError
from gymdata.validation.catalogue import RULES
from gymdata.validation.judge import is_error, judge
from gymdata.validation.repair import repair, repair_file

FIXABLE = [rule for rule in RULES.values() if rule.fixable]
GOOD = b'{"responses_create_params": {"input": "What is 2+2?"}, "expected_answer": "4"}'


def weight(line: bytes) -> tuple[int, int]:
    findings = judge(line).findings
    errors = sum(map(is_error, findings))
    return errors, len(findings) - errors


@pytest.mark.parametrize("rule", FIXABLE, ids=lambda rule: rule.code)
def test_a_fixable_finding_is_repaired(rule):
    lines = [line for line in rule.bad.encode().split(b"\n") if any(one.code == rule.code for one in judge(line).findings)]
    assert lines
    for line in lines:
        repaired, names = repair(line)
        assert names
        assert not repaired or judge(repaired).findings == []


@pytest.mark.parametrize(
    ("line", "repaired", "names"),
    [
        (b"\xef\xbb\xbf" + GOOD + b"\r", GOOD, ["carriage return removed", "byte-order mark removed"]),
        (b" \t\r", b"", ["blank line removed"]),
        (
            b'{"responses_create_params": {"input": "x", "tools": null, "parallel_tool_calls":null,"tool_choice": null }}',
            b'{"responses_create_params": {"input": "x" }}',
            ["null tools removed", "null tool_choice removed", "null parallel_tool_calls removed"],
        ),
        (
            b'{"responses_create_params": {"input": [{"type": null, "role": "user", "content": "x"}], "metadata": null}}',
            b'{"responses_create_params": {"input": [{"role": "user", "content": "x"}], "metadata": null}}',
            ["null type removed"],
        ),
    ],
)
def test_repairs(line, repaired, names):
    new, done = repair(line)
    assert new == repaired
    assert sorted(done) == sorted(names)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"responses_create_params": {"input": null}}', id="a null that must be something"),
        pytest.param(b'{"responses_create_params": {"input": [{"role": "User", "content": "x"}]}}', id="a guess"),
        pytest.param(b'{"responses_create_params": {"messages": [{"role": "a"}, {"role": "b"}]}}', id="half understood"),
        pytest.param(b'{"responses_create_params": {"input": "x"},}', id="no JSON"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"[" * 100_000, id="no end"),
    ],
)
def test_what_is_not_mechanical_stays(line):
    assert repair(line) == (line, [])


TEXT = st.sampled_from(["x", "4", "", "é", "{}"])
PART = st.sampled_from(
    [
        {"type": "text", "text": "a"},
        {"type": "input_text", "text": "a"},
        {"type": "output_text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}},
        {"type": "input_image", "image_url": "https://a.b/c.png"},
        {"type": "input_image", "image_url": {"url": "https://a.b/c.png", "detail": "low"}, "detail": "high"},
        {"type": "file", "file": {}},
    ]
)
CALL = st.sampled_from(
    [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c2", "function": {"name": "f", "arguments": {"a": 1}}},
        {"function": {"name": "f", "arguments": "{}"}},
    ]
)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "function_call_output", None, "text"]),
        "role": st.sampled_from(["user", "assistant", "tool", "system", "User", None]),
        "content": TEXT | st.none() | st.lists(PART, max_size=3),
        "tool_calls": st.none() | st.lists(CALL, max_size=2),
        "tool_call_id": st.sampled_from(["c1", 1]),
        "call_id": st.sampled_from(["c1", None]),
        "name": st.just("f"),
        "arguments": st.sampled_from(["{}", {"a": 1}, None]),
        "output": TEXT | st.just({"a": 1}) | st.lists(PART, max_size=2),
        "id": st.sampled_from(["m1", None]),
        "status": st.sampled_from(["completed", None]),
        "reasoning_content": st.just("hm"),
    },
)
TOOL = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "web_search"])},
    optional={
        "name": st.just("f"),
        "strict": st.sampled_from([None, True]),
        "parameters": st.sampled_from([None, {}, "{}"]),
        "function": st.fixed_dictionaries({"name": st.just("f")}, optional={"parameters": st.just({"type": "object"})}),
    },
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "input": TEXT | st.none() | st.lists(ITEM, max_size=3),
        "messages": st.none() | st.lists(ITEM, max_size=3),
        "tools": st.none() | st.lists(TOOL, max_size=2) | st.lists(TOOL, max_size=1).map(json.dumps),
        "tool_choice": st.sampled_from([None, "auto", {"type": "function", "function": {"name": "f"}}]),
        "parallel_tool_calls": st.sampled_from([None, True]),
        "max_tokens": st.sampled_from([None, 5]),
        "max_completion_tokens": st.just(5),
        "temperature": st.sampled_from([None, 1.0]),
        "stop": st.none(),
    },
)
ROW = st.fixed_dictionaries(
    {"responses_create_params": PARAMS | PARAMS.map(json.dumps) | st.none()}, optional={"expected_answer": TEXT | st.none()}
)
LINE = st.builds(
    lambda row, separators, head, tail: head + json.dumps(row, separators=separators, ensure_ascii=False).encode() + tail,
    ROW,
    st.sampled_from([(", ", ": "), (",", ":")]),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"  "]),
    st.sampled_from([b"", b"\r", b" "]),
)


@given(LINE)
@settings(max_examples=400, deadline=None)
def test_laws(line):
    repaired, names = repair(line)
    assert repair(repaired)[0] == repaired
    if not names:
        assert repaired == line
    elif names != ["carriage return removed"]:
        assert weight(repaired) < weight(line)
    if weight(line) == (0, 0):
        assert repaired == line.removesuffix(b"\r")


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_taken(line):
    repair(line.replace(b"\n", b""))


def test_a_file_is_repaired_into_a_new_one(tmp_path):
    path = tmp_path / "train.jsonl"
    rows = [
        b"\xef\xbb\xbf" + GOOD,
        b"",
        GOOD + b"\r",
        b'{"responses_create_params": {"messages": [{"role": "user", "content": "x"}]}}',
        b"no row",
    ]
    path.write_bytes(b"\n".join(rows))
    report = repair_file(path)
    assert path.read_bytes() == b"\n".join(rows)
    assert report.out == tmp_path / "train.fixed.jsonl" and report.out is not None
    fixed = b'{"responses_create_params": {"input": [{"role": "user", "content": "x"}]}}'
    assert report.out.read_bytes() == b"".join(line + b"\n" for line in (GOOD, GOOD, fixed, b"no row"))
    assert (report.lines, report.changed) == (5, 4)
    assert report.repairs["messages renamed to input"] == 1
    assert report.diff.startswith(f"--- {path}\n+++ {report.out}\n@@ line 1 @@ byte-order mark removed\n")
    assert report.diff.endswith("""\
@@ line 4 @@ messages renamed to input
-{"responses_create_params": {"messages": [{"role": "user", "content"…
+{"responses_create_params": {"input": [{"role": "user", "content"…
""")


def test_nothing_is_written_where_nothing_is_to_repair(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_bytes(GOOD + b"\n")
    assert repair_file(path).out is None
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_json_lines_is_left_alone(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_bytes(b"question,answer\r\nx,4\r\n")
    assert repair_file(path).out is None


def test_no_file_is_overwritten_unasked(tmp_path):
    path, out = tmp_path / "train.jsonl", tmp_path / "train.fixed.jsonl"
    path.write_bytes(GOOD + b"\r\n")
    out.write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists"):
        repair_file(path)
    assert out.read_bytes() == b"mine"
    assert repair_file(path, overwrite=True).out == out
    with pytest.raises(UsageError, match="the file to repair"):
        repair_file(path, path, overwrite=True)


def test_a_damaged_compressed_file_leaves_no_half_repair(tmp_path):
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03")
    with pytest.raises(DataError, match="damaged"):
        repair_file(path)
    assert list(tmp_path.iterdir()) == [path]


def test_only_the_lines_that_are_named_are_looked_at(tmp_path):
    path = tmp_path / "train.jsonl"
    chat = b'{"responses_create_params": {"messages": [{"role": "user", "content": "x"}]}}'
    path.write_bytes(chat + b"\n" + chat + b"\r\n")
    report = repair_file(path, lines={1})
    assert report.out is not None
    assert report.out.read_bytes().split(b"\n")[1] == chat


def test_a_diff_cannot_steer_the_terminal(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_bytes(b'{"responses_create_params": {"messages": "\x1b[2J\xe2\x80\xae"}}\r\n')
    assert "\x1b" not in repair_file(path).diff


def test_real_rows_need_no_repair():
    data = Path("../shared/data")
    if not data.is_dir():
        pytest.skip("needs the real rows of ../shared/data")
    for name in ("math_train", "tools", "mcqa", "code", "instruction_following"):
        with open(data / f"{name}.jsonl", "rb") as stream:
            for line, _ in zip(stream, range(300), strict=False):
                assert repair(line.rstrip(b"\n")) == (line.rstrip(b"\n"), [])
