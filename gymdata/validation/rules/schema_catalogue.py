"""The catalogue of the rules of shape: GD2xx for task rows, GD6xx for rollouts, each with a bad and a good row."""

from __future__ import annotations

import json

from gymdata.validation.findings import Rule

_PROMPT = '"input": [{"role": "user", "content": "What is 2+2?"}]'
_GOOD = f'{{"responses_create_params": {{{_PROMPT}}}}}'


def _params(more: str) -> str:
    return f'{{"responses_create_params": {{{_PROMPT}, {more}}}}}'


def _items(*items: str) -> str:
    return f'{{"responses_create_params": {{"input": [{", ".join(items)}]}}}}'


def _parts(*parts: str) -> str:
    return _items(f'{{"role": "user", "content": [{", ".join(parts)}]}}')


_TOOL = '{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": false}'
_RESPONSE = (
    '{"id": "r1", "created_at": 1, "model": "m", "object": "response", "output": [%s], "parallel_tool_calls": true,'
    ' "tool_choice": "auto", "tools": []%s}'
)
_ANSWER = (
    '{"type": "message", "id": "m1", "role": "assistant", "status": "completed",'
    ' "content": [{"type": "output_text", "text": "4", "annotations": []}]}'
)

_USAGE = (
    '{"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,'
    ' "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}'
)


def _rollout(response: str | None = _RESPONSE % (_ANSWER, ""), reward: str | None = "1.0") -> str:
    members = [f'"responses_create_params": {{{_PROMPT}}}']
    members += [f'"response": {response}'] if response is not None else []
    members += [f'"reward": {reward}'] if reward is not None else []
    return f"{{{', '.join(members)}}}"


SCHEMA_RULES = [
    Rule(
        "GD200", "not-a-row", "error", "The line is not an object.",
        "A row is one JSON object; NeMo Gym stops with a traceback at anything else.",
        "Write one object a line. A row that is a string was encoded twice: decode it once more.",
        json.dumps(_GOOD), _GOOD,
    ),
    Rule(
        "GD201", "missing-key", "error", "A required key is not there.",
        "NeMo Gym refuses the row, leaves it out of the statistics, and collates it nevertheless.",
        "Add the key that the finding names.",
        '{"question": "What is 2+2?", "expected_answer": "4"}', _GOOD,
    ),
    Rule(
        "GD202", "wrong-type", "error", "A value has another type than its place wants.",
        "NeMo Gym refuses the row. What it can read nevertheless, such as a number in a string, is a warning elsewhere.",
        "Write a value of the type that the finding names.",
        _items('{"role": "user", "content": 7}'), _GOOD,
    ),
    Rule(
        "GD203", "unknown-value", "error", "A role, type or other word is not one of the known ones.",
        "A message of unknown role is not read as a message; other unknown words make NeMo Gym refuse the row.",
        "Write one of the words that the finding lists.",
        _items('{"role": "human", "content": "What is 2+2?"}'), _GOOD,
    ),
    Rule(
        "GD204", "unknown-key", "error", "A key that the request does not know.",
        "NeMo Gym refuses unknown keys in `responses_create_params`, its tools and settings: most are slips of the pen.",
        "Correct the spelling, or move the key out of `responses_create_params`.",
        _params('"max_tokens": 100'), _params('"max_output_tokens": 100'),
    ),
    Rule(
        "GD205", "untold-item", "error", "An item without `type` that is no kind of item.",
        "NeMo Gym takes it for a list of MCP tools and accepts the row; the model then never sees what it holds.",
        "Give the item a role and content, or a `type`.",
        _items("{}"), _GOOD,
    ),
    Rule(
        "GD206", "chat-tool", "error", "A tool in the form of the Chat Completions API.",
        "In the Responses API name, description and parameters stand beside `type`; NeMo Gym refuses the row.",
        "Lift the keys of `function` up, and add `strict`.",
        _params('"tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]'),
        _params(f'"tools": [{_TOOL}]'), fixable=True,
    ),
    Rule(
        "GD207", "missing-strict", "error", "A function tool without `strict`.",
        "The key is required, even if only as null; NeMo Gym refuses the row.",
        'Add "strict": false, or true where arguments must follow the parameters to the letter.',
        _params('"tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}}]'),
        _params(f'"tools": [{_TOOL}]'), fixable=True,
    ),
    Rule(
        "GD208", "null", "error", "null where a value must be.",
        "Tables with one column per key fill absent keys with null; NeMo Gym refuses the row.",
        "Leave the key out, or give it a value.",
        _params('"tools": null'), _GOOD, fixable=True,
    ),
    Rule(
        "GD209", "chat-messages", "error", "The prompt is under `messages`.",
        "That is the Chat Completions API; in the Responses API the key is `input`, and NeMo Gym refuses the row.",
        "Rename `messages` to `input`, or convert the file with `gymdata convert --from chat`.",
        '{"responses_create_params": {"messages": [{"role": "user", "content": "What is 2+2?"}]}}', _GOOD, fixable=True,
    ),
    Rule(
        "GD210", "part-refused-by-newest", "warning", "A part that NeMo Gym 0.7.0 refuses, though it is legal.",
        "The Responses API had this part; NeMo Gym 0.7.0 refuses the row.",
        "Keep such rows for environments that serve the part themselves.",
        _parts('{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}'),
        _parts('{"type": "input_text", "text": "What is 2+2?"}'),
    ),
    Rule(
        "GD211", "image-without-detail", "warning", "An image part without `detail`.",
        "NeMo Gym 0.7.0 requires the key and refuses the row; older versions take it.",
        'Add "detail": "auto".',
        _parts('{"type": "input_image", "image_url": "https://example.com/a.png"}'),
        _parts('{"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"}'), fixable=True,
    ),
    Rule(
        "GD212", "crashes-gym", "warning", "Legal, but NeMo Gym crashes on it.",
        "NeMo Gym reads some lists lazily and then fails to write them: the whole run dies with a TypeError.",
        "Collate with gymdata, or leave it out for NeMo Gym.",
        _params(f'"tools": [{_TOOL}], "tool_choice": {{"type": "allowed_tools", "mode": "auto", "tools": []}}'),
        _params(f'"tools": [{_TOOL}], "tool_choice": "auto"'),
    ),
    Rule(
        "GD213", "tool-without-name", "error", "A tool whose name is empty.",
        "NeMo Gym accepts the row, but model servers refuse the request.",
        "Name the tool.",
        _params(f'"tools": [{_TOOL.replace("add", "")}]'), _params(f'"tools": [{_TOOL}]'),
    ),
    Rule(
        "GD214", "unusable-agent-ref", "error", "`agent_ref` names no agent.",
        "Collecting rollouts looks up the agent by `agent_ref.name` and fails on the row.",
        "Write an object with a `name`, or leave `agent_ref` out: collating adds it.",
        f'{_GOOD[:-1]}, "agent_ref": "math"}}',
        f'{_GOOD[:-1]}, "agent_ref": {{"type": "responses_api_agents", "name": "math"}}}}',
    ),
    Rule(
        "GD215", "encoded-twice", "error", "JSON text in a string where the value itself must be.",
        "The value was encoded before the row was; NeMo Gym refuses the row.",
        "Decode the string and put the value in its place.",
        '{"responses_create_params": "{\\"input\\": \\"What is 2+2?\\"}"}',
        '{"responses_create_params": {"input": "What is 2+2?"}}', fixable=True,
    ),
    Rule(
        "GD216", "chat-item", "error", "A message of the Chat Completions API about a tool call.",
        "Calls and their results are items of their own; without a `type` NeMo Gym takes the message for a list of MCP"
        " tools, and the model never sees it.",
        "Write function_call and function_call_output items, or convert the file with `gymdata convert --from chat`.",
        _items('{"role": "user", "content": "Go."}', '{"role": "tool", "tool_call_id": "c1", "content": "4"}'),
        _items(
            '{"role": "user", "content": "Go."}',
            '{"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}',
            '{"type": "function_call_output", "call_id": "c1", "output": "4"}',
        ),
    ),
    Rule(
        "GD217", "chat-part", "error", "A content part of the Chat Completions API.",
        "The types are input_text and input_image, and an image's URL is a plain string; NeMo Gym refuses the row.",
        "Write the part in the form of the Responses API.",
        _parts('{"type": "text", "text": "What is 2+2?"}'), _parts('{"type": "input_text", "text": "What is 2+2?"}'),
        fixable=True,
    ),
    Rule(
        "GD218", "sharegpt-item", "error", "A ShareGPT turn among the items.",
        "NeMo Gym takes it for a list of MCP tools and accepts the row; the model then never sees the turn.",
        "Write role and content, or convert the file with `gymdata convert --from sharegpt`.",
        _items('{"from": "human", "value": "What is 2+2?"}'), _GOOD,
    ),
    Rule(
        "GD219", "partial-token-ids", "error", "Some of the token ids of an item, but not all.",
        "prompt_token_ids, generation_token_ids and generation_log_probs belong together; NeMo Gym refuses the row.",
        "Give all three lists, or none.",
        _items('{"role": "user", "content": "Go.", "prompt_token_ids": [1]}'), _items('{"role": "user", "content": "Go."}'),
    ),
    Rule(
        "GD220", "video-source", "error", "A video part without exactly one URL.",
        "NeMo Gym refuses the row.",
        "Give one of `video_url` and `video`, with a URL in it.",
        _parts('{"type": "input_video"}'), _parts('{"type": "input_video", "video_url": "https://example.com/a.mp4"}'),
    ),
    Rule(
        "GD221", "dropped-calls", "warning", "Tool calls inside a message, which NeMo Gym drops.",
        "The row is accepted, but the calls are no part of it any more.",
        "Write each call as an item of type function_call.",
        _items(
            '{"role": "user", "content": "Go."}',
            '{"role": "assistant", "content": "I add.", "tool_calls": [{"id": "c1"}]}',
        ),
        _items(
            '{"role": "user", "content": "Go."}',
            '{"role": "assistant", "content": "I add."}',
            '{"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}',
            '{"type": "function_call_output", "call_id": "c1", "output": "4"}',
        ),
    ),
    Rule(
        "GD600", "no-response", "error", "A rollout without its response.",
        "Nothing can be scored again, profiled or exported.",
        "Keep the response that the model gave.",
        _rollout(response=None).replace('"reward"', '"_ng_rollout_index": 0, "reward"'), _rollout(),
    ),
    Rule(
        "GD601", "no-reward", "error", "A rollout without a reward.",
        "A rollout without a reward has failed; a failure is not a reward of 0.",
        "Keep failed rollouts in the file of failures.",
        _rollout(reward=None), _rollout(),
    ),
    Rule(
        "GD602", "null-response", "warning", "A rollout whose response is null.",
        "Old files have such rows; nothing can be scored again, and NeMo Gym's own reader refuses them.",
        "Keep the response that the model gave.",
        _rollout(response="null"), _rollout(),
    ),
    Rule(
        "GD603", "chat-usage", "error", "`usage` as the Chat Completions API counts it.",
        "NeMo Gym refuses the response.",
        "Write input_tokens, output_tokens, total_tokens and their details.",
        _rollout(_RESPONSE % (_ANSWER, ', "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}')),
        _rollout(_RESPONSE % (_ANSWER, f', "usage": {_USAGE}')),
    ),
    Rule(
        "GD604", "output-without-type", "error", "An output item without `type`.",
        "In a response, unlike in a prompt, nothing else may tell the kind of an item.",
        'Add "type": "message", "function_call", …',
        _rollout(_RESPONSE % (_ANSWER.replace('"type": "message", ', ""), "")), _rollout(),
    ),
    Rule(
        "GD605", "reward-coerced", "warning", "A reward that is no number.",
        "NeMo Gym reads true as 1.0 and \"0.5\" as 0.5; other readers do not.",
        "Write a number.",
        _rollout(reward="true"), _rollout(),
    ),
]  # fmt: skip
