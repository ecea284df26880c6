"""Rules of rollouts: the response and the reward beside a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymdata.validation.findings import Finding
from gymdata.validation.rules.schema import beyond_gym_in_item
from gymdata.validation.rules.schema_words import found


def looks_like_rollout(row: object) -> bool:
    """Whether a row is a task that somebody answered: it holds a response object or a reward."""
    if not isinstance(row, dict) or not ("responses_create_params" in row or "task_input" in row):
        return False
    return isinstance(row.get("response"), dict) or "reward" in row


def check(row: Mapping[str, Any]) -> list[Finding]:
    """The findings about a rollout row, but for those about its task, which `schema.check` has."""
    from pydantic import ValidationError

    from gymdata.rows import schema
    from gymdata.validation.rules.schema_explain import explain

    findings: list[Finding] = []
    try:
        schema.outcome().validate_python(row)
    except ValidationError as error:
        findings += explain(error, row)
    reward = row.get("reward")
    if isinstance(reward, bool | str) and not any(finding.path == "$.reward" for finding in findings):
        message = f"`reward` is {found(reward)}; NeMo Gym reads it as {float(reward)}"
        findings.append(Finding("GD605", "$.reward", message, f"write {float(reward)}"))
    if "response" in row and row["response"] is None:
        message = "`response` is null; nothing can be scored again, and NeMo Gym's own reader refuses the row"
        findings.append(Finding("GD602", "$.response", message, "keep the response that the model gave"))
    response = row.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    for index, item in enumerate(output if isinstance(output, list) else ()):
        if isinstance(item, dict):
            findings += beyond_gym_in_item(("response", "output", index), item)
    return findings
