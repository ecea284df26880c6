"""What a run of rollouts is asked for, how its rows are scored, and how far it has come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gymdata.environments.model import Environment
from gymdata.rollouts import agent
from gymdata.rollouts.endpoints import Endpoint
from gymdata.rollouts.files import RunFiles
from gymdata.rollouts.gym import Remote
from gymdata.rollouts.journal import Rewards
from gymdata.rollouts.plan import Options, Who
from gymdata.rollouts.policy import Settings
from gymdata.verifiers import Verifier, make, resources_server_of


@dataclass(frozen=True)
class Run:
    """What to collect. `agents` says, by file, what runs the rows that do not name it; `max_attempts` how often a rollout is tried over all runs.

    `judge` is how the judge is reached that verifiers may ask; None where it is the model itself.
    With `remote`, NeMo Gym's servers make the rollouts, or score them in place of the environments. Without it they make those whose
    agent is a URL.
    """

    rows: tuple[Path, ...]
    environments: tuple[Environment, ...]
    files: RunFiles
    settings: Settings
    judge: Settings | None = None
    options: Options = field(default_factory=Options)
    agents: Mapping[Path, str] = field(default_factory=dict)
    new_run: bool = False
    remote: Remote | None = None
    max_steps: int = 32
    max_attempts: int = 3
    workers: int = 0
    verify_seconds: float = 30.0


@dataclass
class Progress:
    """How far a run has come; the collector changes it as it goes."""

    total: int = 0
    """Rollouts of this shard."""
    before: int = 0
    """Of these, on the disk when the run began."""
    done: int = 0
    rewards: Rewards = field(default_factory=Rewards)
    """Of all rollouts of the run that are on the disk, other shards' too."""
    failed: Counter[str] = field(default_factory=Counter)
    """Rollouts that failed in this run, by class and kind."""
    given_up: int = 0
    """Rollouts that are not tried again: too often failed, or bound to."""
    final_failures: int = 0
    """Of those that failed in this run, how many are not to be tried again."""
    in_flight: int = 0
    servers: Sequence[Endpoint] = ()
    discontinuous: int = 0
    """Of those done, how many have token ids that are not one sequence, or may not be."""
    retries: int = 0
    output_tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    """What the user should know: repairs, keys that the server did not take."""
    model: str = ""

    @property
    def owed(self) -> int:
        """Rollouts that another run would make."""
        return self.total - self.before - self.done - self.given_up - self.final_failures


@dataclass(frozen=True)
class Scoring:
    """What an agent's rollouts need: the verifier, and what makes the tools."""

    verifier: Verifier
    make_tools: agent.MakeTools | None


def scoring(environments: Sequence[Environment], who: Iterable[Who]) -> dict[Who, Scoring]:
    """How the rows of each agent are scored, found out before anything is asked of a model. Raises UsageError."""
    found = {}
    for name in who:
        row = {key: value for key, value in zip(("agent_ref", "task_source"), name, strict=True) if value is not None}
        implementation, options = resources_server_of(environments, row)
        verifier = make(implementation, options)
        _ = verifier.version  # raises where its library or sandbox is missing
        found[name] = Scoring(verifier, agent.tools_for(implementation))
    return found
