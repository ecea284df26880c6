"""All findings' codes and what they mean."""

from __future__ import annotations

from gymdata.validation.findings import Rule
from gymdata.validation.rules.content import CONTENT_RULES
from gymdata.validation.rules.dataset import DATASET_RULES
from gymdata.validation.rules.files import FILE_RULES
from gymdata.validation.rules.schema_catalogue import SCHEMA_RULES
from gymdata.validation.rules.syntax import SYNTAX_RULES

RULES: dict[str, Rule] = {
    rule.code: rule
    for rule in sorted([*FILE_RULES, *SYNTAX_RULES, *SCHEMA_RULES, *CONTENT_RULES, *DATASET_RULES], key=lambda rule: rule.code)
}
