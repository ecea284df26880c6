"""Suites of expectations: finds, reads and words them. They are Great Expectations' JSON, which is not needed for this.

An expectation is about a column of the facts (one line per row) or, with `"meta": {"table": "statistics"}`, about a number of
the split's statistics by its dotted path, such as `lengths.tokens.mean`. `"meta": {"name": ...}` is what it is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.environments.registry import own_folder
from gymdata.errors import ConfigError

if TYPE_CHECKING:
    from gymdata.environments.model import Environment

SUFFIX = ".expectations.json"
_PACKAGE = Path(__file__).parents[1]


def find_suite(environment: Environment) -> Path | None:
    """The suite of an environment: `NAME.expectations.json` beside its YAML or in the user's own folder, else the built-in one."""
    beside = [path.with_suffix(SUFFIX) for path in environment.files if path.suffix in (".yaml", ".yml")]
    candidates = [*beside, own_folder() / f"{environment.name}{SUFFIX}"]
    if environment.builtin:
        inside = _PACKAGE / "expectations"
        folder = inside if inside.is_dir() else _PACKAGE.parent / "schemas" / "expectations"
        candidates.append(folder / f"{environment.name}.json")
    return next((path for path in candidates if path.is_file()), None)


def read_suite(path: Path) -> dict[str, Any]:
    """The suite in a file, every expectation with a name of its own in its `meta`. Raises ConfigError if it is none."""
    try:
        suite = json.loads(path.read_bytes())
        entries = suite["expectations"]
        for entry in entries:
            if not isinstance(entry.get("description") or "", str):
                raise TypeError
            entry["meta"] = {"name": _name(entry["type"], entry["kwargs"]), "table": "facts", **(entry.get("meta") or {})}
        suite["meta"] = {"parameters": {}, **(suite.get("meta") or {})}
    except FileNotFoundError:
        raise ConfigError("there is no such file", "`gymdata expectations draft` proposes a suite", str(path)) from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"not JSON: {error.msg}", "mend the file", str(path), error.lineno) from None
    except (UnicodeDecodeError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise ConfigError(
            "not a suite of Great Expectations",
            'it is {"name": ..., "expectations": [{"type": ..., "kwargs": {...}}, ...]}; `gymdata expectations draft` writes one',
            str(path),
        ) from None
    seen: dict[str, int] = {}
    for entry in entries:
        name = str(entry["meta"]["name"])
        seen[name] = seen.get(name, 0) + 1
        entry["meta"]["name"] = name if seen[name] == 1 else f"{name}_{seen[name]}"
        if entry["meta"]["table"] not in ("facts", "statistics"):
            raise ConfigError(f"{name}: `table` is {entry['meta']['table']!r}", "it is facts or statistics", str(path))
    return suite


def names(suite: Mapping[str, Any]) -> list[str]:
    """What the expectations of a suite that was read are called, in its order."""
    return [entry["meta"]["name"] for entry in suite["expectations"]]


def _name(kind: str, kwargs: Mapping[str, Any]) -> str:
    about = kwargs.get("column") or "table"
    return f"{about}_{kind.removeprefix('expect_').removeprefix('column_').removeprefix('values_').removeprefix('to_be_')}"


def expected(kind: str, kwargs: Mapping[str, Any]) -> str:
    """What an expectation asks of a column's values, in a few words."""
    low, high, values = kwargs.get("min_value"), kwargs.get("max_value"), kwargs.get("value_set")
    if low is not None and high is not None:
        return span(low, high)
    if low is not None or high is not None:
        return f"at least {value_text(low)}" if high is None else f"at most {value_text(high)}"
    if values:
        return ("none of " if "not" in kind else "") + ", ".join(map(value_text, values))
    if kind in _WORDS:
        return _WORDS[kind]
    given = ", ".join(
        f"{key} {value_text(value)}" for key, value in kwargs.items() if key not in ("column", "batch_id", "mostly")
    )
    return kind.removeprefix("expect_").replace("_", " ") + (f" ({given})" if given else "")


_WORDS = {
    "expect_column_values_to_be_unique": "different in every row",
    "expect_column_values_to_be_null": "none",
    "expect_column_values_to_not_be_null": "in every row",
}


def span(low: Any, high: Any) -> str:
    """A range in words."""
    return value_text(low) if low == high else f"{value_text(low)} to {value_text(high)}"


def value_text(value: Any) -> str:
    """A value in words."""
    if isinstance(value, Mapping) and "$PARAMETER" in value:
        return f"${value['$PARAMETER']}"
    if isinstance(value, float):
        return f"{value:,.6g}" if value % 1 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
