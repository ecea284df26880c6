"""Prompt YAML (`user`, optional `system`): makes the input of a row from the row's own fields."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from gymdata.environments import yaml
from gymdata.environments.problems import ConfigProblems, Problem, did_you_mean
from gymdata.errors import DataError

_KEYS = ("user", "system")


class Prompt(BaseModel):
    """Templates with `{field}` placeholders; `{{` and `}}` are braces. `path` is the file they came from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: str
    system: str | None = None
    path: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The row fields that the templates name, in order, each once."""
        templates = [template for template in (self.system, self.user) if template is not None]
        return tuple(dict.fromkeys(name for template in templates for _, name, _, _ in _parsed(template) if name is not None))

    def messages(self, row: Mapping[str, Any]) -> list[dict[str, str]]:
        """The input messages for a row. Raises DataError naming the fields that the row lacks."""
        missing = [name for name in self.fields if name not in row]
        if missing:
            raise DataError(
                f"the prompt {self.path or 'template'} needs {', '.join(map(repr, missing))}, which the row does not have",
                f"the row has {', '.join(map(repr, row)) or 'no fields'}",
            )
        roles = {"system": self.system, "user": self.user}
        return [{"role": role, "content": _filled(template, row)} for role, template in roles.items() if template is not None]


def load(path: Path, name: str = "") -> Prompt:
    """Read a prompt YAML. Raises ConfigError, with the line, for a missing or unknown key and for a template that cannot be filled."""
    name = name or str(path)
    root = yaml.load(path, name)
    problems = []
    entries = root.value if isinstance(root.value, dict) else {}
    if "user" not in entries:
        problems.append(Problem(root.place, ("user",), "is required", "a prompt YAML has `user:` and, optionally, `system:`"))
    for key, node in entries.items():
        if key not in _KEYS:
            problems.append(
                Problem(node.place, (key,), "unknown key", did_you_mean(str(key), _KEYS) or "only user and system are read")
            )
        elif not isinstance(node.value, str) and not (key == "system" and node.value is None):
            problems.append(Problem(node.place, (key,), "must be text", "put it in quotes"))
        elif node.value is not None:
            try:
                _parsed(node.value)
            except ValueError as error:
                problems.append(Problem(node.place, (key,), str(error), "for a brace as such, write {{ or }}"))
    if problems:
        raise ConfigProblems(problems)
    return Prompt(user=entries["user"].value, system=entries["system"].value if "system" in entries else None, path=name)


def apply(row: Mapping[str, Any], prompt: Prompt) -> dict[str, Any]:
    """A copy of the row whose `responses_create_params.input` is the filled prompt; its other parameters stay.

    Raises DataError if the row has an input already, if its parameters are no object, or if it lacks a field of the prompt.
    """
    parameters = row.get("responses_create_params", {})
    if not isinstance(parameters, Mapping):
        raise DataError("`responses_create_params` must be an object", "remove it, or make it an object")
    if parameters.get("input"):
        raise DataError(
            "the row has an input and its data set a `prompt_config`: only one of them can make the prompt",
            "remove `prompt_config` from the data set, or `responses_create_params.input` from the rows",
        )
    return {**row, "responses_create_params": {**parameters, "input": prompt.messages(row)}}


@lru_cache(maxsize=256)
def _parsed(template: str) -> tuple[tuple[str, str | None, str, str], ...]:
    """(literal, field, format, conversion) in turn, as str.format sees a template. Raises ValueError where that would reach into values."""
    parts = []
    for literal, name, spec, conversion in string.Formatter().parse(template):
        if name is not None and (not name or name.isdecimal()):
            raise ValueError(f"the placeholder {{{name}}} names no field")
        if name is not None and any(character in name for character in ".[]"):
            raise ValueError(f"the placeholder {{{name}}} reaches into a field: only whole fields can be used")
        if (spec and ("{" in spec or re.search(r"\d{5}", spec))) or conversion not in (None, "r", "s", "a"):
            raise ValueError(f"the format of the placeholder {{{name}}} is not supported")
        parts.append((literal, name, spec or "", conversion or ""))
    return tuple(parts)


def _filled(template: str, row: Mapping[str, Any]) -> str:
    formatter = string.Formatter()
    text = []
    for literal, name, spec, conversion in _parsed(template):
        text.append(literal)
        if name is not None:
            try:
                text.append(format(formatter.convert_field(row[name], conversion or None), spec))
            except (ValueError, TypeError, OverflowError, MemoryError) as error:
                raise DataError(f"the field {name!r} does not fit its format {spec!r} in the prompt: {error}") from None
    return "".join(text)
