"""What other formats write becomes what a row holds, in the row's own bytes."""

import pytest

from gymdata.rows.chat import translate


def params(text: str) -> bytes:
    return b'{"responses_create_params": ' + text.encode() + b', "id": 1.10}'


def items(*texts: str) -> bytes:
    return params('{"input": [' + ", ".join(texts) + "]}")


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        pytest.param(
            items('{"role": "tool", "type": "message", "tool_call_id": "c1", "name": "f", "content": "4\\u00e9"}'),
            items('{"type": "function_call_output", "call_id": "c1", "name": "f", "output": "4\\u00e9"}'),
            ["tool message made a function_call_output"],
            id="tool message",
        ),
        pytest.param(
            items('{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function":'
                  ' {"name": "f", "arguments": {"x": 1.10}}}]}'),
            items('{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\\"x\\": 1.10}"}'),
            ["tool_calls made function_call items"],
            id="silent calls",
        ),
        pytest.param(
            items('{"role": "assistant", "content": "Wait.", "tool_calls": [{"id": "c1", "function":'
                  ' {"name": "f", "arguments": "{}"}}]}'),
            items('{"role": "assistant", "content": "Wait."}',
                  '{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}'),
            ["tool_calls made function_call items"],
            id="calls beside words",
        ),
        pytest.param(
            items('{"role": "user", "content": [{"type": "text", "text": "é"}, {"type": "image_url", "image_url":'
                  ' {"url": "https://a.b/c.png", "detail": "low"}}]}'),
            items('{"role": "user", "content": [{"type": "input_text", "text": "é"}, {"type": "input_image", "image_url":'
                  ' "https://a.b/c.png", "detail": "low"}]}'),
            ["part text renamed to input_text", "image URL out of its object", "part image_url renamed to input_image"],
            id="parts",
        ),
        pytest.param(
            params('{"input": "x", "tools": [{"type": "function", "function": {"description": "d", "name": "f",'
                   ' "parameters": {"maximum": 1.50e1}}}]}'),
            params('{"input": "x", "tools": [{"type": "function", "description": "d", "name": "f",'
                   ' "parameters": {"maximum": 1.50e1}, "strict": null}]}'),
            ["chat-style tool made flat", "missing strict set to null"],
            id="tool",
        ),
        pytest.param(
            params('{"messages": [], "max_tokens": 9, "tool_choice": {"type": "function", "function": {"name": "f"}}}'),
            params('{"input": [], "max_output_tokens": 9, "tool_choice": {"type": "function", "name": "f"}}'),
            ["messages renamed to input", "max_tokens renamed to max_output_tokens", "tool_choice made flat"],
            id="keys of the request",
        ),
        pytest.param(
            params('"{\\"input\\":\\n \\"x\\\\n\\", \\"top_p\\": 0.50}"'),
            params('{"input":  "x\\n", "top_p": 0.50}'),
            ["responses_create_params out of its string"],
            id="encoded twice",
        ),
    ],
)  # fmt: skip
def test_translation(before, after, names):
    assert translate(before) == (after, names)
    assert translate(after) == (after, [])


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(items('{"role": "tool", "content": "4"}'), id="a result of no call"),
        pytest.param(items('{"role": "function", "name": "f", "content": "4"}'), id="a result of before call ids"),
        pytest.param(
            items('{"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls":'
                  ' [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]}'),
            id="reasoning that would be lost",
        ),
        pytest.param(
            items('{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}'),
            id="a call without id",
        ),
        pytest.param(
            items('{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}'),
            id="an answer in several parts",
        ),
        pytest.param(params('{"input": "x", "messages": [{"role": "user", "content": "y"}]}'), id="two prompts"),
        pytest.param(params('{"input": "x", "max_tokens": 1, "max_completion_tokens": 2}'), id="two limits"),
        pytest.param(params('{"input": "{\\"a\\": 1}"}'), id="a prompt that looks like JSON"),
        pytest.param(params('{"input": "x", "tools": [{"type": "function", "name": "f", "name": "g"}]}'), id="a repeated key"),
        pytest.param(
            params('{"input": "x", "tools": [{"type": "function", "name": "f", "function": {"name": "g"}}]}'), id="two names"
        ),
        pytest.param(b'{"question": "no request at all", "messages": []}', id="no request"),
    ],
)  # fmt: skip
def test_what_would_have_to_be_guessed_stays(line):
    assert translate(line) == (line, [])
