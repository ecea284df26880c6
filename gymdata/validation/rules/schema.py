"""Rules of shape: whether a row is one that NeMo Gym 0.7.0 takes, and what it takes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymdata.validation.findings import Finding
from gymdata.validation.rules.schema_catalogue import SCHEMA_RULES
from gymdata.validation.rules.schema_words import decodes_to, excerpt, found, json_path

Keys = tuple[str | int, ...]

_ERRORS = frozenset(rule.code for rule in SCHEMA_RULES if rule.severity == "error")


def check(row: object) -> tuple[list[Finding], dict[str, Any] | None]:
    """The findings about a row's shape, and its create-params as NeMo Gym dumps them: coerced, without what Gym drops.

    None instead of the create-params where a finding is an error, and for a materialized task, which has none.
    """
    if not isinstance(row, dict):
        return [_not_a_row(row)], None
    from pydantic import ValidationError

    from gymdata.rows import schema
    from gymdata.rows.schema.request import is_materialized
    from gymdata.validation.rules.schema_explain import explain

    findings: list[Finding] = []
    params = None
    materialized = is_materialized(row)
    try:
        if materialized:
            schema.materialized_task().validate_python(row)
        else:
            params = schema.task_row().validate_python(row)["responses_create_params"]
    except ValidationError as error:
        findings += explain(error, row)
    if "agent_ref" in row:
        findings += _agent_ref(row["agent_ref"])
    if not materialized and isinstance(row.get("responses_create_params"), dict):
        told = {finding.path[:end] for finding in findings for end in _ends(finding.path)}
        findings += [finding for finding in _beyond_gym(row["responses_create_params"]) if finding.path not in told]
    if any(finding.code in _ERRORS for finding in findings):
        return findings, None
    return findings, params


def is_plain_function_tool(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is a function tool without findings of shape that Gym dumps unchanged. Loads no schema."""
    return (
        tool.keys() <= {"type", "name", "parameters", "strict", "description", "defer_loading"}
        and tool.get("type") == "function"
        and isinstance(tool.get("name"), str)
        and tool["name"].strip() != ""
        and isinstance(tool.get("parameters", ""), dict | None)
        and isinstance(tool.get("strict", ""), bool | None)
        and isinstance(tool.get("description"), str | None)
        and isinstance(tool.get("defer_loading", False), bool)
    )


def _ends(path: str) -> Iterator[int]:
    """Where the path, and each path above it, ends."""
    yield from (place for place, character in enumerate(path) if character in ".[")
    yield len(path)


def _not_a_row(row: object) -> Finding:
    if decodes_to(row, dict):
        return Finding("GD200", "$", "the row is JSON text in a string: it was encoded twice", "decode it once more")
    hint = "write one object a line, with `responses_create_params`"
    return Finding("GD200", "$", f"the row is {found(row)}, not an object", hint)


def _agent_ref(agent: Any) -> Iterator[Finding]:
    hint = 'write {"type": "responses_api_agents", "name": …}, or leave it out: collating adds it'
    if not isinstance(agent, dict):
        yield Finding("GD214", "$.agent_ref", f"`agent_ref` is {found(agent)}, not an object with a `name`", hint)
    elif not isinstance(agent.get("name"), str) or not agent["name"]:
        name = found(agent["name"]) if "name" in agent else "missing"
        yield Finding("GD214", "$.agent_ref.name", f"the `name` of `agent_ref` is {name}; no agent could take the row", hint)


def _beyond_gym(params: Mapping[str, Any]) -> Iterator[Finding]:
    """What the definition takes, though NeMo Gym refuses it, crashes on it, or loses some of it."""
    root = ("responses_create_params",)
    for at, tool in _objects(params.get("tools"), (*root, "tools")):
        if isinstance(tool.get("name"), str) and not tool["name"].strip():
            yield Finding("GD213", json_path((*at, "name")), "the tool has an empty name; no model can call it", "name it")
        for key in _crashing_keys(tool):
            yield _crash((*at, *key))
    choice = params.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        yield _crash((*root, "tool_choice"))
    template = params.get("prompt")
    if isinstance(template, dict) and isinstance(template.get("variables"), dict):
        for name, value in template["variables"].items():
            yield from _part((*root, "prompt", "variables", name), value)
    for at, item in _objects(params.get("input"), (*root, "input")):
        yield from beyond_gym_in_item(at, item)
        for part_at, part in _objects(item.get("content"), (*at, "content")):
            if (
                part.get("logprobs")
                and part.get("type", "output_text") == "output_text"
                and item.get("type", "message") == "message"
            ):
                yield _crash((*part_at, "logprobs"))
        lost = next((key for key in ("tool_calls", "function_call") if item.get(key)), None)
        if lost and item.get("type", "message") == "message" and isinstance(item.get("content"), str | list):
            message = f"NeMo Gym drops `{lost}` from the message: the model will not see the calls"
            hint = 'write each as an item {"type": "function_call", "call_id": …, "name": …, "arguments": …}'
            yield Finding("GD221", json_path((*at, lost)), message, hint)


def beyond_gym_in_item(at: Keys, item: Mapping[str, Any]) -> Iterator[Finding]:
    """Parts of an item of a prompt or a response that only NeMo Gym refuses."""
    kind = item.get("type", "message")
    if kind == "message":
        for part_at, part in _objects(item.get("content"), (*at, "content")):
            yield from _part(part_at, part)
    elif kind == "custom_tool_call_output" or (kind == "function_call_output" and at[0] == "response"):
        for part_at, part in _objects(item.get("output"), (*at, "output")):
            yield from _part(part_at, part)


def _objects(values: Any, at: Keys) -> Iterator[tuple[Keys, dict[str, Any]]]:
    if isinstance(values, list):
        for index, value in enumerate(values):
            if isinstance(value, dict):
                yield (*at, index), value


def _part(at: Keys, part: Any) -> Iterator[Finding]:
    if not isinstance(part, dict):
        return
    if part.get("type") == "input_image" and "detail" not in part:
        message = "`detail` is missing from the image; NeMo Gym 0.7.0 refuses the row, older versions take it"
        yield Finding("GD211", json_path((*at, "detail")), message, 'add "detail": "auto"')
    elif part.get("type") == "input_audio":
        message = 'the part is of type "input_audio", which NeMo Gym 0.7.0 refuses'
        yield Finding("GD210", json_path((*at, "type")), message, "give the audio to an environment that serves it itself")


def _crashing_keys(tool: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Places in a tool whose lists NeMo Gym reads lazily and then cannot write."""
    kind = tool.get("type")
    filters, container, shell = tool.get("filters"), tool.get("container"), tool.get("environment")
    if kind == "file_search" and isinstance(filters, dict) and filters.get("type") in ("and", "or"):
        yield ("filters",)
    if kind == "namespace" and "tools" in tool:
        yield ("tools",)
    for key, holder in (("container", container), ("environment", shell)):
        if kind in ("code_interpreter", "shell") and isinstance(holder, dict):
            policy = holder.get("network_policy")
            if key == "environment" and "skills" in holder:
                yield key, "skills"
            if isinstance(policy, dict) and "domain_secrets" in policy:
                yield key, "network_policy", "domain_secrets"


def _crash(at: Keys) -> Finding:
    message = f"{excerpt(str(at[-1]))} is legal in the Responses API, but NeMo Gym stops here with a traceback"
    return Finding("GD212", json_path(at), message, "collate with gymdata; with NeMo Gym 0.7.0, leave it out")
