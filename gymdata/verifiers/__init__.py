"""Response -> reward: what a verdict is, and which verifier scores a row.

A verifier is pure: no files, no network, no clock. `gymdata.verifiers.isolation` runs one in processes that can be killed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gymdata.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from gymdata.environments.model import Environment

Row = Mapping[str, Any]
"""A task row: a JSON object."""
Response = Mapping[str, Any]
"""A Responses object, as in a rollout row: `output` holds the items."""

ENTRY_POINTS = "gymdata.verifiers"
"""The entry point group of verifiers from elsewhere: the name of a resources server -> `make(options) -> Verifier`."""


@dataclass(frozen=True)
class Verdict:
    """A reward, finite, and what explains it: `extracted_answer`, `reason`, and the keys that NeMo Gym's server adds."""

    reward: float
    extras: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ask:
    """A question to a judge model: its request, and what each label that it may answer with leads to, a reward or the next question.

    Of several labels in an answer the first counts, or the `last`; one within another (CORRECT in INCORRECT) does not.
    """

    params: dict[str, Any]
    answers: dict[str, Ask | float]
    last: bool = False


@dataclass(frozen=True)
class Undecided:
    """What only a judge can decide, and what explains it so far. `gymdata.rollouts.judge` asks; a verifier asks nobody."""

    ask: Ask
    extras: dict[str, Any] = field(default_factory=dict)


class VerifierFailure(Exception):
    """The verifier could not decide: the row or the verifier is at fault, not the response. Never a reward of 0."""


@dataclass(frozen=True)
class Gold:
    """Responses made from a row alone: one that must score 1 (None where none can be made), and some that must score 0.

    `path` is the JSON path of the field they come from, `doubt` says why a right answer in other words may be refused.
    """

    path: str
    right: Response | None = None
    wrong: tuple[Response, ...] = ()
    doubt: str = ""


class Verifier(Protocol):
    """A frozen, picklable dataclass. `version` changes when a verdict may.

    One that may leave a response undecided has an attribute `judge`, a `gymdata.verifiers.judge.Judge`.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def verify(self, row: Row, response: Response) -> Verdict | Undecided:
        """Score a response. Raises VerifierFailure if that cannot be decided."""
        ...

    def gold(self, row: Row) -> Gold:
        """What the row itself says is right and wrong. Raises VerifierFailure if no response can be scored."""
        ...


_KINDS = {
    "math_with_judge": ("gymdata.verifiers.math_with_judge", "MathWithJudge"),
    "equivalence_llm_judge": ("gymdata.verifiers.equivalence_llm_judge", "EquivalenceJudge"),
    "mcqa": ("gymdata.verifiers.mcqa", "Mcqa"),
    "single_step_tool_use_with_argument_comparison": ("gymdata.verifiers.tool_call", "ArgumentComparison"),
    "structured_outputs": ("gymdata.verifiers.structured_outputs", "StructuredOutputs"),
    "code_gen": ("gymdata.verifiers.code", "Code"),
    "instruction_following": ("gymdata.verifiers.instruction_following", "InstructionFollowing"),
    "example_single_tool_call": ("gymdata.verifiers.tool_call", "SingleToolCall"),
    "example_multi_step": ("gymdata.verifiers.tool_call", "MultiStep"),
    "example_session_state_mgmt": ("gymdata.verifiers.tool_call", "SessionState"),
}
"""NeMo Gym's resources server -> the module and class that score as it does; the class has `from_options(options)`."""


def verifier_for(environments: Environment | Sequence[Environment], row: Row) -> Verifier:
    """The verifier of a row: that of the resources server behind its agent, with the options of the configuration.

    A row names its agent by `agent_ref` or `task_source`; one that names none belongs to the only agent there is.
    Raises UsageError if there is no such agent, no verifier for its server, or an optional library is missing.
    """
    return make(*resources_server_of(environments, row))


def resources_server_of(environments: Environment | Sequence[Environment], row: Row) -> tuple[str, Mapping[str, Any]]:
    """The implementation of the resources server behind a row's agent, and its options. Raises UsageError as `verifier_for`."""
    known = [environments] if not isinstance(environments, Sequence) else environments
    instances = {instance.name: (environment, instance) for environment in known for instance in environment.instances}
    agents = {name: found for name, found in instances.items() if found[1].server_type == "responses_api_agents"}
    environment, instance = _instance(agents, instances, row)
    kind, server = instance.references.get("resources_server", ("resources_servers", instance.name))
    if server not in instances or instances[server][0] is not environment:
        raise UsageError(f"the agent {instance.name!r} names the resources server {server!r}, which is not in the configuration")
    implementation = instances[server][1].implementation
    body = environment.config.get(server, {}).get(kind, {}).get(implementation, {})
    return implementation, _located(body, environment) if isinstance(body, Mapping) else {}


def make(implementation: str, options: Mapping[str, Any]) -> Verifier:
    """The verifier of a resources server by the name of its implementation. Raises UsageError."""
    if implementation in _KINDS:
        module, name = _KINDS[implementation]
        return getattr(importlib.import_module(module), name).from_options(options)
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS, name=implementation):
        return load(entry)(options)
    raise UsageError(
        f"gymdata has no verifier for the resources server {implementation!r}; it has {', '.join(sorted(_KINDS))}",
        f"a package of your own can add one by an entry point of the group {ENTRY_POINTS!r}",
    )


def load(entry: EntryPoint) -> Any:
    """What an entry point of another package names. Raises UsageError."""
    try:
        return entry.load()
    except Exception as error:
        raise UsageError(
            f"the entry point {entry.name!r} of the group {entry.group!r} cannot be loaded: {type(error).__name__}: {error}",
            f"it names {entry.value}: mend the package that has it, or install it again",
        ) from error


def _located(options: Mapping[str, Any], environment: Environment) -> dict[str, Any]:
    """Options whose relative paths (`…_fpath`) are found as those of data sets are: from the working directory, then beside the YAML."""
    from gymdata.environments.compose import find

    folders = [file.parent for file in environment.files]
    return {
        key: str(find(value, *folders)) if key.endswith("_fpath") and isinstance(value, str) else value
        for key, value in options.items()
    }


def _instance(agents: Mapping[str, Any], instances: Mapping[str, Any], row: Row) -> Any:
    """The environment and the server instance that a row names."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, Mapping) else reference
    if not isinstance(name, str):
        name = row.get("task_source")
    if isinstance(name, str):
        if name in agents:
            return agents[name]
        if name in instances:
            return instances[name]
        raise UsageError(
            f"the row's agent {name!r} is none of {', '.join(sorted(agents)) or 'no agents'}",
            "name the environment that the row was made for, or several",
        )
    if len(agents) != 1:
        raise UsageError(
            f"the row names no agent, and there are {len(agents)}: {', '.join(sorted(agents))}",
            "say which environment the rows are for (`validate --gold --env ENV`); `gymdata prepare` stamps each row with its agent",
        )
    return next(iter(agents.values()))
