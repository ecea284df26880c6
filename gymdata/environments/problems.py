"""What is wrong with a configuration: every wrong entry with its place, raised together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from gymdata.environments.yaml import Key, Place, dotted
from gymdata.errors import ConfigError


class Problem(NamedTuple):
    """One wrong entry: where it was written, its key path, what is wrong and what to do."""

    place: Place
    path: tuple[Key, ...]
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {dotted(self.path)}: {self.message}" + (f"\n    help: {self.hint}" if self.hint else "")


class ConfigProblems(ConfigError):
    """All the problems of a configuration; `path` and `line` are those of the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=lambda problem: (problem.place, str(problem.path))))
        first = self.problems[0]
        if len(self.problems) == 1:
            super().__init__(f"{first.place}: {dotted(first.path)}: {first.message}", first.hint)
        else:
            listing = "".join(f"\n  {problem}" for problem in self.problems)
            super().__init__(f"{len(self.problems)} entries of the configuration are wrong:{listing}")
        self.path, self.line = first.place


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for the nearest known word, or an empty text if none is near."""
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else ""
