"""The JSON Schema documents in `schemas/`: made from the definitions in the code, never by hand.

`python -m gymdata.schemas --write [DIR]` writes them, `--check [DIR]` fails if one differs from the code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def _row() -> TypeAdapter[Any]:
    from gymdata.rows import schema

    return schema.row()


def _rollout() -> TypeAdapter[Any]:
    from gymdata.rows import schema

    return schema.rollout_row()


def _environment() -> type[Any]:
    from gymdata.environments.schema import EnvironmentConfig

    return EnvironmentConfig


def _finding() -> type[Any]:
    from gymdata.validation.reporters.json import Document

    return Document


def _manifest() -> type[Any]:
    from gymdata.manifest import Manifest

    return Manifest


def _reward_statistics() -> type[Any]:
    from gymdata.rollouts.reward_statistics import RewardStatistics

    return RewardStatistics


def _statistics() -> type[Any]:
    from gymdata.statistics.statistics import Statistics

    return Statistics


MODELS: dict[str, Callable[[], Any]] = {
    "environment": _environment,
    "finding": _finding,
    "manifest": _manifest,
    "reward_statistics": _reward_statistics,
    "rollout": _rollout,
    "row": _row,
    "statistics": _statistics,
}
"""What is documented: name of the document -> a function that gives a pydantic model class or a TypeAdapter."""


def json_schemas() -> dict[str, dict[str, Any]]:
    """The documents by name, as JSON Schema (draft 2020-12)."""
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Generate(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def tagged_union_schema(self, schema: Any) -> dict[str, Any]:
            # What tells the members apart is code where no `discriminator` names a key; then several may fit.
            union = super().tagged_union_schema(schema)
            return union if "discriminator" in union else {"anyOf": union["oneOf"]}

    documents = {}
    for name, model in sorted(MODELS.items()):
        source = model()
        adapter = source if isinstance(source, TypeAdapter) else TypeAdapter(source)
        document = adapter.json_schema(schema_generator=Generate, mode="validation")
        documents[name] = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **document}
    return documents


def texts() -> dict[str, str]:
    """File name -> text of each document."""
    return {
        f"{name}.schema.json": json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        for name, document in json_schemas().items()
    }


def stale(directory: Path) -> list[str]:
    """Names of the files in `directory` that are missing or differ from the code."""
    return [
        name
        for name, text in texts().items()
        if not (directory / name).is_file() or (directory / name).read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """`--check` or `--write`, and the directory (default `schemas`); the exit code."""
    if len(arguments) not in (1, 2) or arguments[0] not in ("--check", "--write"):
        print("usage: python -m gymdata.schemas --check|--write [DIR]", file=sys.stderr)
        return 2
    directory = Path(arguments[1] if len(arguments) == 2 else "schemas")
    if arguments[0] == "--write":
        from gymdata.atomic import write_bytes

        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts().items():
            write_bytes(directory / name, text.encode())
        return 0
    changed = stale(directory)
    for name in changed:
        print(f"{directory / name} differs from the code; run `make schemas`", file=sys.stderr)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
