"""Structured outputs: a response in JSON, YAML, XML, TOML or CSV, or the arguments of a call, valid under the row's schema.

Source of the rules: NeMo Gym 0.7.0, resources server `structured_outputs`: the whole text is parsed (no code fence is
removed), every property is required and none may be added. Differences: a schema that cannot be used is a failure of the
row, where NeMo Gym gives 0; YAML with aliases and XML with a document type are refused, since both can grow without bound;
references to other documents are never followed; patterns of the schema run on RE2 where it knows them.
"""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymdata.errors import UsageError
from gymdata.verifiers import Gold, Response, Row, Verdict, VerifierFailure
from gymdata.verifiers.limits import LimitError, time_limit
from gymdata.verifiers.responses import calls, function_calls, message, output_text
from gymdata.verifiers.schemas import instance, strict, validator

FORMATS = ("json", "yaml", "xml", "toml", "csv")
LONGEST = 1 << 20
"""Characters of a response that are parsed."""
SECONDS = 5.0
"""What parsing and checking may take; a response that takes longer is not valid (`reason` says so)."""


class _Refused(Exception):
    """The response is not right: NeMo Gym's `error_type`, and its message."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text[:300]


@dataclass(frozen=True)
class StructuredOutputs:
    """Scores `schema_str` and `schema_type` of a row."""

    xml_coerce_types: bool = True
    name: str = field(default="structured_outputs", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> StructuredOutputs:
        """From the body of NeMo Gym's resources server."""
        return cls(bool(options.get("xml_coerce_types", True)))

    @property
    def version(self) -> str:
        from importlib.metadata import version
        from importlib.util import find_spec

        missing = [name for name in ("jsonschema", "re2", "xmltodict") if find_spec(name) is None]
        if missing:
            raise UsageError(f"scoring structured outputs needs {', '.join(missing)}", "pip install 'gymdata[verifiers]'")
        return f"1 jsonschema {version('jsonschema')}"

    def verify(self, row: Row, response: Response) -> Verdict:
        """1 if the response is valid. Extras: error_type, error_message (both None then), extracted_answer, reason."""
        schema, kind = _schema(row), _format(row)
        check = validator(schema)
        try:
            with time_limit(SECONDS):
                value = self._valid(row, response, kind, schema, check)
        except LimitError as limit:
            return _wrong(_Refused("parse_error", f"limit: {limit}"))
        except _Refused as refused:
            return _wrong(refused)
        answer = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
        extras = {"error_type": None, "error_message": None, "extracted_answer": answer, "reason": "valid under the schema"}
        return Verdict(1.0, extras)

    def _valid(self, row: Row, response: Response, kind: str, schema: Any, check: Any) -> Any:
        """The value that the response holds, valid under the schema. Raises _Refused."""
        if row.get("response_mode") == "tool_call":
            value = _payload(row, response)
        else:
            value = self._parsed(output_text(response), kind, schema)
        try:
            error = next(check.iter_errors(value), None)
        except RecursionError:
            raise _Refused("validation_error", "the response is nested too deeply") from None
        if error is not None:
            raise _Refused("validation_error", f"{error.json_path}: {error.message}")
        return value

    def gold(self, row: Row) -> Gold:
        """The row's `reference_answer`, or a small value that the schema allows where one can be made; the same less a key."""
        schema, kind = _schema(row), _format(row)
        validator(schema)
        reference = row.get("reference_answer")
        if isinstance(reference, str) and row.get("response_mode") != "tool_call":
            return Gold("$.reference_answer", message(reference))
        value = instance(schema)
        if value is None:
            return Gold("$.schema_str")
        less = {key: one for key, one in value.items() if key != next(iter(value))} if isinstance(value, dict) and value else None
        if row.get("response_mode") == "tool_call":
            made = [calls((str(row.get("tool_name") or "tool"), _wrapped(row, one))) for one in (value, less) if one is not None]
        else:
            made = [message(text) for one in (value, less) if one is not None and (text := _written(one, kind)) is not None]
        return Gold("$.schema_str", made[0] if made else None, tuple(made[1:]))

    def _parsed(self, text: str, kind: str, schema: Any) -> Any:
        if not text.strip():
            raise _Refused("empty_response", "No assistant response text")
        if len(text) > LONGEST:
            raise _Refused("parse_error", f"the response has {len(text):,} characters")
        try:
            value = _PARSERS[kind](text)
        except Exception as error:  # each parser has errors of its own, and RecursionError
            raise _Refused("parse_error", f"{type(error).__name__}: {error}") from error
        try:
            if kind == "xml" and self.xml_coerce_types:
                return _typed_xml(value, schema)
            return _typed_csv(value, schema) if kind == "csv" else value
        except (AttributeError, TypeError, RecursionError) as error:
            raise _Refused("validation_error", f"{type(error).__name__}: {error}") from error


def _wrong(refused: _Refused) -> Verdict:
    extras = {"error_type": refused.kind, "error_message": refused.text, "extracted_answer": None}
    return Verdict(0.0, extras | {"reason": f"{refused.kind}: {refused.text}"})


def _schema(row: Row) -> Any:
    try:
        schema = json.loads(row["schema_str"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise VerifierFailure(f"the row's `schema_str` is not JSON: {error}") from error
    return strict(schema)


def _format(row: Row) -> str:
    kind = row.get("schema_type", "json")
    if kind not in FORMATS:
        raise VerifierFailure(f"the row's `schema_type` is {kind!r}, none of {', '.join(FORMATS)}")
    return kind


def _payload(row: Row, response: Response) -> Any:
    """The object in the arguments of the one call that is expected."""
    if response.get("error") is not None:
        raise _Refused("api_error", str(response["error"]))
    made = function_calls(response)
    names = ", ".join(str(call.get("name")) for call in made)
    if not made:
        raise _Refused("missing_tool_call", "No function_call item found in assistant response")
    if len(made) > 1:
        raise _Refused("multiple_tool_calls", f"Expected exactly one function_call, got: {names}")
    if row.get("tool_name") and made[0].get("name") != row["tool_name"]:
        raise _Refused("wrong_tool_name", f"Expected tool '{row['tool_name']}', got: {names}")
    try:
        arguments = json.loads(made[0].get("arguments") or "")
    except (TypeError, ValueError, RecursionError) as error:
        raise _Refused("tool_arguments_parse_error", f"{type(error).__name__}: {error}") from error
    key = row.get("tool_payload_key")
    if key and (not isinstance(arguments, dict) or key not in arguments):
        raise _Refused("missing_tool_payload_key", f"Missing tool payload key: {key}")
    return arguments[key] if key else arguments


def _wrapped(row: Row, value: Any) -> Any:
    return {row["tool_payload_key"]: value} if row.get("tool_payload_key") else value


def _yaml(text: str) -> Any:
    import yaml

    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases are refused: they can stand for more than any memory holds")
    return yaml.safe_load(text)


def _xml(text: str) -> Any:
    import xmltodict

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("a document type is refused: its entities can stand for more than any memory holds")
    return xmltodict.parse(text, disable_entities=True)


def _csv(text: str) -> Any:
    return list(csv.DictReader(io.StringIO(text)))


_PARSERS = {"json": json.loads, "yaml": _yaml, "xml": _xml, "toml": tomllib.loads, "csv": _csv}


def _typed_xml(value: Any, schema: Any) -> Any:
    """Elements are texts: make of them what the schema asks for, where that can be read; a wrapper around list items goes."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "object" and isinstance(value, dict):
        properties = schema.get("properties", {})
        return {key: _typed_xml(one, properties[key]) if key in properties else one for key, one in value.items()}
    if kind == "array":
        if isinstance(value, dict) and len(value) == 1:
            value = next(iter(value.values()))
        listed = value if isinstance(value, list) else [] if value is None else [value]
        return [_typed_xml(one, schema.get("items", {})) for one in listed]
    if value is None and kind == "string":
        return ""
    return _typed(value, kind) if isinstance(value, str) else value


def _typed_csv(rows: list[dict[Any, Any]], schema: Any) -> Any:
    """Cells are texts: make of them what the schema of a row asks for."""
    properties = schema.get("items", schema).get("properties", {})
    return [{key: _typed_cell(cell, properties.get(key, {}).get("type", "string")) for key, cell in row.items()} for row in rows]


def _typed_cell(cell: Any, kinds: Any) -> Any:
    if not isinstance(kinds, list):
        return _typed(cell, kinds) if isinstance(cell, str) and cell else cell
    if not cell and "null" in kinds:
        return None
    for kind in kinds:
        if kind != "null":
            typed = _typed_cell(cell, kind)
            if not isinstance(typed, str) or kind == "string":
                return typed
    return cell


def _typed(text: str, kind: Any) -> Any:
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    except ValueError:
        pass
    return text


def _written(value: Any, kind: str) -> str | None:
    """A value in a format, for the gold check; None where the format cannot hold it, or writing it takes more than this."""
    if kind == "json":
        return json.dumps(value)
    if kind == "yaml":
        import yaml

        return yaml.safe_dump(value)
    return None
