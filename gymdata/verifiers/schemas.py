"""JSON Schemas of rows: made strict, compiled without anything that could run away, and a smallest value that fits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gymdata.verifiers import VerifierFailure
from gymdata.verifiers.responses import whole_text

DEPTH = 60


def strict(schema: Any) -> Any:
    """The schema with every property of an object required and no other allowed, as OpenAI's strict mode and NeMo Gym have it."""
    if not isinstance(schema, Mapping):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if "properties" in made and isinstance(made["properties"], Mapping):
        made["required"], made["additionalProperties"] = list(made["properties"]), False
    return made


def validator(schema: Any) -> Any:
    """A validator of OpenAPI 3.1 schemas (JSON Schema 2020-12). Raises VerifierFailure if the schema is none."""
    import jsonschema
    from jsonschema import validators
    from referencing import Registry

    base = jsonschema.Draft202012Validator

    def pattern(check: Any, expression: str, value: Any, _: Any) -> Any:
        if check.is_type(value, "string") and not _compiled(expression).search(whole_text(value)):
            yield jsonschema.ValidationError(f"{value!r:.100} does not match {expression!r}")

    try:
        base.check_schema(schema)
        return validators.extend(base, {"pattern": pattern})(schema, registry=Registry())
    except jsonschema.SchemaError as error:
        raise VerifierFailure(f"the row's `schema_str` is no JSON Schema: {error.message[:300]}") from error
    except RecursionError:
        raise VerifierFailure("the row's `schema_str` is nested too deeply") from None


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    """On RE2, where it knows all of the expression; a look-around is left to `re` and the worker's time limit."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error:
        return re.compile(expression)


def instance(schema: Any) -> Any:
    """A small value that fits a schema, for schemas of the usual keywords; None where that takes more than this.

    A schema that contradicts itself gives a value that does not fit: the gold check says so.
    """
    try:
        return _instance(schema, schema, 0)
    except _Unusual:
        return None


class _Unusual(Exception):
    """The schema uses what `instance` does not know."""


_KNOWN = {
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "anyOf", "oneOf", "$ref", "$defs", "definitions", "default",
    "title", "description", "examples", "example", "$schema", "$id", "nullable", "multipleOf", "format", "$comment", "name", "strict",
}  # fmt: skip


def _instance(schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or set(schema) - _KNOWN or depth > DEPTH:
        raise _Unusual
    if "$ref" in schema:
        return _instance(_referred(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            if set(schema) & {"type", "properties", "items"}:
                raise _Unusual
            return _instance(schema[choice][0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind:
        case "object":
            return {key: _instance(value, root, depth + 1) for key, value in schema.get("properties", {}).items()}
        case "array":
            count = schema.get("minItems", 1 if schema.get("maxItems", 1) > 0 else 0)
            if count > 100:
                raise _Unusual
            return [_instance(schema.get("items", {"type": "string"}), root, depth + 1) for _ in range(count)]
        case "string":
            if "format" in schema or schema.get("minLength", 0) > 1000:
                raise _Unusual
            return "x" * schema.get("minLength", min(1, schema.get("maxLength", 1)))
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
    raise _Unusual


def _number(schema: Mapping[str, Any]) -> Any:
    low, high = schema.get("minimum"), schema.get("maximum")
    step = schema.get("multipleOf", 1)
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if any(isinstance(bound, bool) for bound in (above, below)) or not isinstance(step, int) or step < 1:
        raise _Unusual
    start = (
        low
        if low is not None
        else above + 1
        if above is not None
        else high
        if high is not None
        else below - 1
        if below is not None
        else 1
    )
    if schema.get("type") != "number" or step != 1:
        start = -(-start // step) * step
        return int(start)
    return start if above is None or below is None or above + 1 < below else (above + below) / 2


def _referred(reference: Any, root: Any) -> Any:
    found = root
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise _Unusual
    for key in reference[1:].split("/")[1:]:
        if not isinstance(found, Mapping) or key not in found:
            raise _Unusual
        found = found[key]
    return found
