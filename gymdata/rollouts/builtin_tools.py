"""The tools of NeMo Gym's three example servers, with its results: one tool, several steps, a session with state.

Each function is named after its resources server and makes the tools of one rollout of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def example_single_tool_call(row: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """The weather, which is always cold."""

    def get_weather(city: str) -> dict[str, str]:
        """The weather in a city right now."""
        return {"city": city, "weather_description": f"The weather in {city} is cold."}

    return {"get_weather": get_weather}


def example_multi_step(row: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """The value of a word is the sum of its letters' code points."""

    def get_synonym_value(synonym: str) -> dict[str, int]:
        """The value of a synonym."""
        return {"synonym_value": sum(map(ord, synonym))}

    def extract_synonym_values(synonym_values: list[int]) -> dict[str, bool]:
        """Hand in the values of all synonyms, in order."""
        return {"success": True}

    return {"get_synonym_value": get_synonym_value, "extract_synonym_values": extract_synonym_values}


def example_session_state_mgmt(row: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """A counter that begins at the row's `initial_count`."""
    held = row.get("initial_count") or 0

    def increment_counter(count: int) -> dict[str, bool]:
        """Add a number to the counter."""
        nonlocal held
        held += count
        return {"success": True}

    def get_counter_value() -> dict[str, int]:
        """What the counter holds."""
        return {"count": held}

    return {"increment_counter": increment_counter, "get_counter_value": get_counter_value}
