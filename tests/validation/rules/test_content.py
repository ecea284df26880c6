"""Findings of content: what the schema takes, though a model, a verifier or a reader could not make sense of it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.validation.rules import content

TOOL = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": None,
}
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "1"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(24)


def places(*items: dict[str, Any], rest: dict[str, Any] | None = None, **params: Any) -> list[tuple[str, str]]:
    """Code and path, without the root of the create-params, of the findings about a row."""
    row = {"responses_create_params": {"input": list(items) or "What is 2+2?", **params}, **(rest or {})}
    return [(finding.code, finding.path.replace("$.responses_create_params", "$")) for finding in content.check(row)]


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def codes(text: str, **rest: Any) -> list[str]:
    return [code for code, _ in places(user(text), rest=rest)]


def test_a_conversation_with_calls_has_no_finding() -> None:
    assert places(user("Add."), CALL, OUTPUT, {"role": "assistant", "content": "1"}, tools=[TOOL], tool_choice="auto") == []


def test_calls_of_other_tools_than_functions_have_outputs_of_their_own() -> None:
    call = {"type": "tool_search_call", "id": "t", "call_id": "c1", "arguments": {}, "execution": "client", "status": "completed"}
    output = {"type": "tool_search_output", "id": "o", "call_id": "c1", "execution": "client", "status": "completed", "tools": []}
    assert places(user("Search."), call, output) == []


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([OUTPUT], ("GD302", "$.input[0].call_id")),
        ([CALL, {**OUTPUT, "call_id": "c2"}], ("GD302", "$.input[1].call_id")),
        ([CALL, OUTPUT, CALL, OUTPUT], ("GD302", "$.input[2].call_id")),
        ([CALL, OUTPUT, OUTPUT], ("GD302", "$.input[2].call_id")),
        ([user("Add."), CALL], ("GD302", "$.input[1].call_id")),
        ([CALL, user("And?"), {**CALL, "call_id": "c2"}, OUTPUT], ("GD302", "$.input[2].call_id")),
        ([{**OUTPUT, "arguments": "{}"}], ("GD302", "$.input[0].call_id")),
        ([{**CALL, "arguments": "a=1"}, OUTPUT], ("GD303", "$.input[0].arguments")),
        ([{**CALL, "arguments": "[1]"}, OUTPUT], ("GD303", "$.input[0].arguments")),
        ([{**CALL, "name": "sum"}, OUTPUT], ("GD304", "$.input[0].name")),
    ],
)
def test_calls_fit_their_outputs_and_tools(items: list[dict[str, Any]], expected: tuple[str, str]) -> None:
    assert places(*items, tools=[TOOL]) == [expected]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"tools": [TOOL, TOOL]}, ("GD305", "$.tools[1].name")),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "sum"}}, ("GD306", "$.tool_choice.name")),
        ({"tool_choice": "required"}, ("GD306", "$.tool_choice")),
        ({"temperature": -1}, ("GD308", "$.temperature")),
        ({"temperature": 2.5}, ("GD308", "$.temperature")),
        ({"temperature": "0.7"}, ("GD309", "$.temperature")),
        ({"temperature": True}, ("GD309", "$.temperature")),
        ({"top_p": 1.5}, ("GD308", "$.top_p")),
        ({"max_output_tokens": 0}, ("GD308", "$.max_output_tokens")),
        ({"max_output_tokens": "512"}, ("GD309", "$.max_output_tokens")),
        ({"max_output_tokens": 512.0}, ("GD309", "$.max_output_tokens")),
        ({"parallel_tool_calls": "yes"}, ("GD309", "$.parallel_tool_calls")),
        ({"input": ""}, ("GD301", "$.input")),
        ({"input": " \n"}, ("GD301", "$.input")),
        ({"input": []}, ("GD301", "$.input")),
        ({"input": [user("")]}, ("GD301", "$.input[0].content")),
        ({"input": [user([])]}, ("GD301", "$.input[0].content")),
    ],
)
def test_parameters_say_what_servers_take(params: dict[str, Any], expected: tuple[str, str]) -> None:
    assert places(**params) == [expected]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"type": "dict"}, ".type"),
        ({"type": "object", "properties": {"a": {"type": "float"}}}, ".properties.a.type"),
        ({"type": "object", "properties": {"a b": {"type": ["string", "none"]}}}, '.properties["a b"].type'),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "str"}}}}, ".properties.a.items.type"),
        (
            {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "any"}]}}},
            ".properties.a.anyOf[1].type",
        ),
        ({"type": "object", "properties": ["a"]}, ".properties"),
        ({"type": "object", "required": "a"}, ".required"),
    ],
)
def test_parameters_of_tools_are_json_schema(parameters: dict[str, Any], path: str) -> None:
    tool = {**TOOL, "parameters": parameters}
    assert [(finding.code, finding.path) for finding in content.check_tool(tool)] == [("GD307", f"$.parameters{path}")]
    assert places(tools=[TOOL | {"name": "other"}, tool]) == [("GD307", f"$.tools[1].parameters{path}")]


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (data_url(PNG), None),
        (data_url(b"\xff\xd8\xff\xe0", "image/jpeg"), None),
        ("https://example.com/a.png?size=1", None),
        (None, "GD320"),
        ("", "GD320"),
        ("not a url", "GD320"),
        ("https://", "GD320"),
        ("file:///etc/passwd", "GD320"),
        ("data:image/png,abc", "GD320"),
        ("data:image/png;base64,!!!", "GD320"),
        ("data:image/png;base64,", "GD320"),
        ("data:image/png;base64,iVBORw0KGgo", "GD320"),
        (data_url(b"GIF89a", "image/png"), "GD321"),
        (data_url(b"hello", "text/plain"), "GD321"),
        ("/mnt/data/a.png", "GD321"),
        ("images/a.png", "GD321"),
        ("C:\\images\\a.png", "GD321"),
    ],
)
def test_an_image_can_be_read_by_others(url: str | None, code: str | None) -> None:
    part = {"type": "input_image", "detail": "auto", "image_url": url}
    found = places(user([{"type": "input_text", "text": "What is it?"}, part]))
    assert found == ([(code, "$.input[0].content[1].image_url")] if code else [])


def test_an_uploaded_image_needs_no_url() -> None:
    assert places(user([{"type": "input_image", "detail": "auto", "file_id": "file-1"}])) == []


@pytest.mark.parametrize(
    "text",
    [
        "Solve: {question}",
        "Solve: {{ question }}",
        "Solve: ${problem}",
        "Solve: %(question)s",
        "Solve: <question>",
        "Solve: <|prompt|>",
        "{Question}\nA:",
        "Solve: {item['question']}",
        "Solve: {the_field}",
        "{% if hint %}Hint{% endif %}",
        "Context: {context}",
    ],
)
def test_an_unfilled_placeholder_is_found(text: str) -> None:
    assert codes(text, the_field="What is 2+2?") == ["GD311"]


@pytest.mark.parametrize(
    "text",
    [
        r"Let \frac{a}{b} and \text{question}",
        "the set {x}, {a, b}",
        '```python\nprint(f"{question}")\n```',
        'say {"question": 1}',
        "Put it into <answer></answer> tags",
        "<question>2+2?</question>",
        "Dear {name}, write me",
        r"\begin{problem}x\end{problem}",
        "where $problem$ is NP-hard",
        "if (x) {return}",
        "Reply with {answer}",
    ],
)
def test_braces_of_latex_code_and_formats_are_no_placeholders(text: str) -> None:
    assert codes(text, answer_key="4") == []


@pytest.mark.parametrize(
    "text",
    [
        "\x0crac{1}{2}",
        "\x08eta",
        "a \times b",
        "$\theta$",
        "\text{if}",
        "x \neq 0",
        "\nabla f",
        "\right)",
        "\x07lpha",
        "\x0bec{x}",
        "caf\u00c3\u00a9",
        "it\u00e2\u20ac\u2122s",
        "20 \u00c2\u00b0C",
        "\u00f0\u0178\u02dc\u20ac",
        "it\u0092s",
        "caf\ufffd",
        "\u00d0\u0178\u00d1\u20ac\u00d0\u00b8",
        "\u00e4\u00bd\u00a0\u00e5\u00a5\u00bd",
        "x \u00e2\u2030\u00a4 5",
    ],
)
def test_damaged_text_is_found_in_every_field(text: str) -> None:
    assert codes(f"Find {text}.") == ["GD310"]
    assert places(rest={"metadata": {"notes": ["fine", text]}}) == [("GD310", "$.metadata.notes[1]")]


@pytest.mark.parametrize(
    "text",
    [
        "if:\n\treturn x\n\teach",
        "caf\u00e9 \u00dcber \u00c9COLE\u201d",
        "IRM\u00c3\u201d",
        "\u00c0 la \u00ab carte \u00bb",
        "S\u00c3O PAULO",
        "\u4f60\u597d",
        "\u041f\u0440\u0438\u0432\u0435\u0442",
        "\u0391\u03b2 \u03c0",
        "Stra\u00dfe \u201egro\u00df\u201c",
        "a\r\nb",
        "x \u2264 5\u00a0\u20ac",
        "Ti\u1ebfng Vi\u1ec7t",
    ],
)
def test_good_text_of_any_language_is_not_damaged(text: str) -> None:
    assert codes(f"Read {text}.") == []


@pytest.mark.parametrize(
    "text",
    [
        "2+70? Answer: 72",
        "ANSWER: 72",
        "2+70? The answer is 72.",
        "(The correct answer is: $72$)",
        "#### 72",
        r"\boxed{72}",
        "Answer:\n72",
        "**Answer:** 72",
        "Final answer = 72",
        "Answer (do not show): 72",
        "2+70等于几？答案：72",
        "ans = 72",
    ],
)
def test_an_answer_in_the_prompt_is_found(text: str) -> None:
    assert places(user(text), rest={"expected_answer": "72"}) == [("GD402", "$.input[0].content")]
    assert codes(text, expected_answer=72) == ["GD402"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("There are 72 cows.", "72"),
        ("If the answer is 72.5, what was the question?", "72"),
        (r"Put the answer into \boxed{}, e.g. \boxed{3}.", "3"),
        ("The correct answer is\n\nA: 1\nB: 2", "A"),
        ("Choose the correct answer:\nA. one\nB. two", "A"),
        ('End with "Answer: A" on a line of its own.', "A"),
        ("Write the answer: 'A', 'B' or 'C'.", "A"),
        ("Q: 1+1? Answer: 2\nQ: 2+0? Answer:", "2"),
        ("Q: 1+1? Answer: 2\nQ: 3+3? Answer: 6\nQ: 2+0? ", "2"),
    ],
)
def test_numbers_options_formats_and_examples_are_no_answers(text: str, answer: str) -> None:
    assert codes(text, expected_answer=answer) == []


@pytest.mark.parametrize("answer", ["", " ", None, []])
def test_an_empty_answer_is_found(answer: Any) -> None:
    assert places(rest={"expected_answer": answer}) == [("GD401", "$.expected_answer")]
    assert places(rest={"expected_answer": 0}) == []


@pytest.mark.parametrize(
    ("options", "answer", "expected"),
    [
        ([{"A": "1"}, {"B": "2"}], "B", None),
        ([{"A": "1"}, {"B": "2"}], "b", None),
        ([{"A": "1"}, {"B": "2"}], "(B)", None),
        ([{"A": "1"}, {"B": "2"}, {"C": "3"}], "A, C", None),
        ([{"A": "1"}, {"B": "2"}, {"C": "3"}], "AC", None),
        ([{"A": "1"}, {"B": "2"}], "2", None),
        ({"A": "1", "B": "2"}, "B", None),
        (["red", "blue"], "B", None),
        (["red", "blue"], "blue", None),
        (["red", "blue"], "0", None),
        ([{"A": "1"}, {"B": "2"}], "G", ("GD403", "$.expected_answer")),
        ({"A": "1", "B": "2"}, "G", ("GD403", "$.expected_answer")),
        (["red", "blue"], "G", ("GD403", "$.expected_answer")),
        ([{"A": "1"}, {"B": "1 "}], "A", ("GD404", "$.options[1]")),
        (["red", "red"], "A", ("GD404", "$.options[1]")),
    ],
)
def test_the_answer_is_one_of_different_options(options: Any, answer: str, expected: tuple[str, str] | None) -> None:
    assert places(rest={"options": options, "expected_answer": answer}) == ([expected] if expected else [])


def test_what_a_model_answered_is_not_judged() -> None:
    assert places(rest={"response": {"output": [{"content": "caf\u00c3\u00a9 {question}"}]}, "reward": 1.0}) == []


def test_a_materialised_task_has_no_request_to_judge() -> None:
    assert content.check({"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"a": "caf\u00c3\u00a9"}}) != []


FRAGMENTS = [
    "{",
    "}",
    "{{",
    "}}",
    "{question}",
    "{x}",
    "<question>",
    "</question>",
    "$problem",
    "%(prompt)s",
    "\\frac",
    "\\boxed{4}",
    "\t",
    "\theta",
    "\n",
    "\neq 0",
    "\r",
    "\right",
    "\x0c",
    "\x08",
    "a",
    'f"',
    "`",
    " ",
    "4",
    "answer is ",
    "Answer: ",
    "#### ",
    "答案：",
    "e.g. ",
    "A",
    "A: 1",
    "\u00c3",
    "\u00a9",
    "\u00e2",
    "\u20ac",
    "\u2122",
    "\u00d0",
    "\u0178",
    "\ufffd",
    "\u0085",
    "\u0092",
    "\u4f60",
    "é",
    "”",
]


@given(
    st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=10).map("".join), st.sampled_from(["4", "A", 4, "", None])
)
def test_plain_rows_have_no_finding_of_text_or_answer(text: str, answer: Any) -> None:
    row = {"responses_create_params": {"input": [user(text)]}, "question": "x", "expected_answer": answer}
    found = {finding.code for finding in content.check(row)}
    if content.is_undamaged(text):
        assert "GD310" not in found
    if content.has_no_placeholder(text):
        assert "GD311" not in found
    if content.is_plain_answer(row, [text]):
        assert not found & {"GD401", "GD402", "GD403", "GD404"}
