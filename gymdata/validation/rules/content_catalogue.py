"""The catalogue of the rules of content: GD3xx for the request, GD4xx for answers, each with a bad and a good row."""

from __future__ import annotations

from gymdata.validation.findings import Rule


def _row(params: str, rest: str = "") -> str:
    return f'{{"responses_create_params": {{{params}}}{rest}}}'


_ASK = '"input": "What is 2+2?"'
_ROW = _row(_ASK, ', "expected_answer": "4"')
_TOOL = '{"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": null}'
_CALL = '{"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"}'
_OUTPUT = '{"type": "function_call_output", "call_id": "1", "output": "4"}'
_CALLED = _row(f'"input": [{_CALL}, {_OUTPUT}], "tools": [{_TOOL}]')
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg=="


def _image(url: str) -> str:
    part = f'{{"type": "input_image", "detail": "auto", "image_url": "{url}"}}'
    return _row(f'"input": [{{"role": "user", "content": [{part}]}}]')


CONTENT_RULES = [
    Rule(
        "GD301", "empty-prompt", "warning", "A prompt with nothing in it.",
        "The policy has nothing to answer.", "Write the prompt, or remove the row.", _row('"input": ""'), _ROW,
    ),
    Rule(
        "GD302", "call-ids", "warning", "Calls and their outputs do not pair up.",
        "Chat templates and servers pair them by `call_id`; an orphan or a repeated id is refused, or shown wrongly.",
        "Give each call an id of its own and each output the id of a call before it.",
        _row(f'"input": [{_OUTPUT}], "tools": [{_TOOL}]'), _CALLED,
    ),
    Rule(
        "GD303", "call-arguments", "warning", "The arguments of a call are no JSON object.",
        "Chat templates decode them, and fail.", "Write a JSON object, in a string.",
        _CALLED.replace('"arguments": "{}"', '"arguments": "2+2"'), _CALLED,
    ),
    Rule(
        "GD304", "undeclared-tool", "warning", "A call to a tool that the row does not declare.",
        "The model sees a history that it could not have produced.", "Declare the tool, or mend the name.",
        _CALLED.replace('"call_id": "1", "name": "add"', '"call_id": "1", "name": "sum"'), _CALLED,
    ),
    Rule(
        "GD305", "repeated-tool", "warning", "Two tools with one name.",
        "A call cannot say which it means.", "Rename or remove one.",
        _row(f'{_ASK}, "tools": [{_TOOL}, {_TOOL}]'), _row(f'{_ASK}, "tools": [{_TOOL}]'),
    ),
    Rule(
        "GD306", "tool-choice", "warning", "`tool_choice` asks for a tool that is not there.", "Servers refuse the request.",
        "Name a declared tool.", _row(f'{_ASK}, "tool_choice": {{"type": "function", "name": "add"}}'),
        _row(f'{_ASK}, "tools": [{_TOOL}], "tool_choice": {{"type": "function", "name": "add"}}'),
    ),
    Rule(
        "GD307", "tool-parameters", "warning", "A tool's parameters are no JSON Schema.",
        "Servers that constrain calls by them, and many chat templates, refuse the tool.", "Use JSON Schema's types.",
        _row(f'{_ASK}, "tools": [{_TOOL}]').replace('"type": "object"', '"type": "dict"'), _row(f'{_ASK}, "tools": [{_TOOL}]'),
    ),
    Rule(
        "GD308", "sampling-range", "warning", "A sampling parameter out of range.",
        "NeMo Gym does not look; the model server refuses the request in the middle of a run.", "Write a value in range.",
        _row(f'{_ASK}, "temperature": 9'), _row(f'{_ASK}, "temperature": 0.9'),
    ),
    Rule(
        "GD309", "coerced-parameter", "warning", "A parameter of another type than it has.",
        "NeMo Gym converts it; other readers refuse it, or take it for what it says.", "Write a number, or true or false.",
        _row(f'{_ASK}, "temperature": "0.7"'), _row(f'{_ASK}, "temperature": 0.7'),
    ),
    Rule(
        "GD310", "damaged-text", "warning", "Text that was damaged on its way into the row.",
        "A backslash that was not doubled makes \\frac a form feed and the rest; a wrong encoding makes é two signs.",
        "Write rows with a JSON library, and read their source with its real encoding.",
        _row('"input": "What is \\frac{1}{2}?"'), _row('"input": "What is \\\\frac{1}{2}?"'),
    ),
    Rule(
        "GD311", "unfilled-placeholder", "warning", "A placeholder of a prompt template that nobody filled.",
        "The policy is asked about the word in braces.", "Fill it; prompt_config does so from the row's fields.",
        _row('"input": "Solve: {question}"', ', "question": "What is 2+2?"'), _row('"input": "Solve: What is 2+2?"'),
    ),
    Rule(
        "GD320", "unreadable-image", "error", "An image part that holds no image.",
        "The model server refuses the request.", "Give an https URL, or embed the bytes as data:image/…;base64,….",
        _image("not a url"), _image(f"data:image/png;base64,{_PIXEL}"),
    ),
    Rule(
        "GD321", "doubtful-image", "warning", "An image that others may not be able to read.",
        "A local path exists on one machine only, and servers trust the declared type.",
        "Give an https URL, or embed the bytes as data:image/…;base64,….",
        _image("/mnt/data/a.png"), _image(f"data:image/png;base64,{_PIXEL}"),
    ),
    Rule(
        "GD401", "empty-answer", "warning", "The expected answer is empty.", "No response can be right.",
        "Write the answer, or remove the row.", _row(_ASK, ', "expected_answer": ""'), _ROW,
    ),
    Rule(
        "GD402", "answer-in-prompt", "warning", "The prompt gives the expected answer away.", "The policy learns to copy.",
        "Remove the answer from the prompt.", _row('"input": "What is 2+2? Answer: 4"', ', "expected_answer": "4"'), _ROW,
    ),
    Rule(
        "GD403", "answer-not-an-option", "warning", "The expected answer is none of the options.", "No response can be right.",
        "Write the letter of the right option.", _row(_ASK, ', "options": [{"A": "3"}, {"B": "4"}], "expected_answer": "G"'),
        _row(_ASK, ', "options": [{"A": "3"}, {"B": "4"}], "expected_answer": "B"'),
    ),
    Rule(
        "GD404", "repeated-option", "warning", "Two options are the same.", "One of two right answers is graded wrong.",
        "Make the options different.", _row(_ASK, ', "options": [{"A": "4"}, {"B": "4"}], "expected_answer": "B"'),
        _row(_ASK, ', "options": [{"A": "3"}, {"B": "4"}], "expected_answer": "B"'),
    ),
]  # fmt: skip
