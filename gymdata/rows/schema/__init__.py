"""What a row is: the one definition, in pydantic, of task rows and rollout rows as NeMo Gym 0.7.0 takes them.

The shapes are typed dictionaries, so that validating a row gives plain JSON data: what NeMo Gym dumps of it, coerced,
without the keys that it drops. Nothing is built before it is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@cache
def task_row() -> TypeAdapter[Any]:
    """Rows with `responses_create_params`; what else they hold is dropped from the result."""
    from pydantic import TypeAdapter

    from gymdata.rows.schema.request import TaskRow
    from gymdata.rows.schema.variants import variant

    return TypeAdapter(variant(TaskRow, "ignore"))


@cache
def materialized_task() -> TypeAdapter[Any]:
    """Rows with `task_id` and `task_input`."""
    from pydantic import TypeAdapter

    from gymdata.rows.schema.request import MaterializedTask

    return TypeAdapter(MaterializedTask)


@cache
def row() -> TypeAdapter[Any]:
    """Any row of a task file."""
    from pydantic import TypeAdapter

    from gymdata.rows.schema.request import MaterializedTask, TaskRow
    from gymdata.rows.schema.variants import variant

    rows: Any = variant(TaskRow, "ignore") | MaterializedTask
    return TypeAdapter(rows)


@cache
def outcome() -> TypeAdapter[Any]:
    """What a rollout adds to its task row."""
    from pydantic import TypeAdapter

    from gymdata.rows.schema.rollout import Outcome
    from gymdata.rows.schema.variants import variant

    return TypeAdapter(variant(Outcome, "ignore"))


@cache
def rollout_row() -> TypeAdapter[Any]:
    """A whole rollout row: task and outcome."""
    from pydantic import TypeAdapter

    from gymdata.rows.schema.rollout import RolloutRow
    from gymdata.rows.schema.variants import variant

    return TypeAdapter(variant(RolloutRow, "ignore"))
