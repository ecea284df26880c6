"""All findings' codes and what they mean."""

from __future__ import annotations

import difflib

from gymdata.errors import UsageError
from gymdata.validation.findings import Rule
from gymdata.validation.rules.content import CONTENT_RULES
from gymdata.validation.rules.dataset import DATASET_RULES
from gymdata.validation.rules.files import FILE_RULES
from gymdata.validation.rules.gold import GOLD_RULES
from gymdata.validation.rules.publish import PUBLISH_RULES
from gymdata.validation.rules.schema_catalogue import SCHEMA_RULES
from gymdata.validation.rules.syntax import SYNTAX_RULES

_ALL = [*FILE_RULES, *SYNTAX_RULES, *SCHEMA_RULES, *CONTENT_RULES, *GOLD_RULES, *DATASET_RULES, *PUBLISH_RULES]

RULES: dict[str, Rule] = {rule.code: rule for rule in sorted(_ALL, key=lambda rule: rule.code)}


def find(word: str) -> Rule:
    """The rule with a code or a name, in any case. Raises UsageError, with the nearest ones, if there is none."""
    wanted = word.strip().upper()
    by_word = {key: rule for rule in RULES.values() for key in (rule.code, rule.name.upper())}
    if rule := by_word.get(wanted):
        return rule
    near = [by_word[key] for key in difflib.get_close_matches(wanted, by_word, n=3, cutoff=0.6)]
    meant = ", ".join(dict.fromkeys(f"{rule.code} ({rule.name})" for rule in near))
    raise UsageError(
        f"there is no finding {word!r}",
        f"did you mean {meant}?" if meant else "`gymdata explain` without a code lists all of them",
    )
