"""Rules across the rows of a file, on their columns: duplicates, conflicting answers, uneven fields, leakage between splits."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymdata.rows.columns import Columns
from gymdata.rows.fields import KINDS
from gymdata.validation.findings import Finding, Rule

VERIFIER_FIELDS = frozenset(
    "expected_answer options unit_tests verifier_metadata expected_action instruction_id_list kwargs schema_str schema_type"
    " expected_synonym_values expected_count".split()
)
"""Top-level fields that verifiers of NeMo Gym's environments read."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What most rows of a file do with a field: `kind` is "string", "number" or "" (present, of any kind)."""

    field: str
    kind: str = ""
    share: str = ""
    """How many rows do, in words."""
    required: bool = False
    """Whether the environment says that its verifier needs the field."""


def empty_file() -> list[Finding]:
    """The finding for a file with nothing in it."""
    return [Finding("GD510", "$", "the file is empty", "write rows to it, or take it out of the configuration")]


def check_columns(columns: Columns) -> list[Finding]:
    """Exact duplicates, and prompts with more than one expected answer."""
    columns.flush()
    findings: list[Finding] = []
    keys = array("Q")
    keys.frombytes(columns.keys)
    duplicates: set[int] = set()
    for index, first in _repeats(keys[::2]):
        if keys[2 * index + 1] == keys[2 * first + 1]:
            duplicates.add(index)
            message = f"the same row as line {columns.lines[first]}"
            findings.append(
                Finding("GD501", "$", message, "remove one of them; to weigh rows, use num_repeats", columns.lines[index])
            )
    answers = columns.answer_keys
    answered = array("Q", (key if answer else 0 for key, answer in zip(columns.prompt_keys, answers, strict=True)))
    for index, first in _repeats(answered):
        if index not in duplicates and answers[index] != answers[first]:
            message = f"the same prompt as line {columns.lines[first]}, with another answer"
            hint = "find out which answer is right; a policy cannot satisfy both"
            findings.append(Finding("GD502", "$.expected_answer", message, hint, columns.lines[index]))
    return findings


def _repeats(keys: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(index, index of the first) of each key that has been there before; 0 is no key."""
    if len(keys) > 50_000:
        import polars as pl

        key, index, share = pl.col("key"), pl.col("index"), 16
        frame = pl.DataFrame({"key": pl.Series(keys, dtype=pl.UInt64)}).with_row_index().filter(key != 0)
        # A share of the keys at a time: the table that tells them apart is the largest thing in memory.
        several = pl.concat([frame.filter(key % share == rest).filter(key.is_duplicated()) for rest in range(share)])
        first = several.with_columns(first=index.min().over("key")).filter(index != pl.col("first")).sort("index")
        yield from first.select("index", "first").iter_rows()
        return
    seen: dict[int, int] = {}
    for index, key in enumerate(keys):
        first = seen.setdefault(key, index)
        if first != index and key:
            yield index, first


def check_splits(train: Sequence[tuple[str, Columns]], validation: Columns) -> list[Finding]:
    """Prompts of a validation set that stand in a train set, too. `train` are the train files by name."""
    wanted: dict[int, list[int]] = {}
    validation.flush()
    for line, key in zip(validation.lines, validation.prompt_keys, strict=True):
        if key:
            wanted.setdefault(key, []).append(line)
    findings: list[Finding] = []
    for name, columns in train:
        columns.flush()
        for line, key in zip(columns.lines, columns.prompt_keys, strict=True):
            for leaked in wanted.pop(key, ()):
                message = f"the prompt stands in the train split, too: {name}:{line}"
                findings.append(
                    Finding("GD505", "$.responses_create_params.input", message, "remove it from one of the two", leaked)
                )
    return findings


def suspicious_fields(columns: Columns, needed: Collection[str], required: Collection[str] = ()) -> list[Expectation]:
    """Fields of which some rows differ from most: strings among numbers (or the reverse), or missing.

    `needed` fields may be missing where other keys are, too; `required` ones never.
    """
    columns.flush()
    rows = len(columns) - len(columns.task_words)
    found: list[Expectation] = []
    found += [Expectation(name, "", "none", True) for name in required if rows and name not in columns.fields]
    for name, field in columns.fields.items():
        kinds, elements = field.kinds, field.elements
        strings = kinds["string"]
        numbers = kinds["integer"] + kinds["number"] + kinds["boolean"]
        strings += elements["string"]
        numbers += elements["integer"] + elements["number"] + elements["boolean"]
        if strings and numbers:
            kind = "number" if numbers > strings else "string"
            found.append(Expectation(name, kind, f"{max(strings, numbers):,} of {strings + numbers:,} places"))
        if (name in required and field.present < rows) or (name in needed and rows / 2 < field.present < rows):
            found.append(Expectation(name, "", f"{field.present:,} of {rows:,}", name in required))
    return found


class FieldCheck:
    """Compares rows with what most of a file do; give it every row, then ask for the findings."""

    def __init__(self, expectations: Sequence[Expectation]) -> None:
        self._expectations = expectations
        self._shapes: set[frozenset[str]] = set()
        self._candidates: list[tuple[Expectation, frozenset[str], Finding]] = []

    def add(self, line: int, row: Mapping[str, Any]) -> None:
        """Look at a row."""
        shape = frozenset(row)
        if len(self._shapes) < _MAX_SHAPES:
            self._shapes.add(shape)
        for expectation in self._expectations:
            if finding := _check_field(row, expectation):
                self._candidates.append((expectation, shape, finding.at(line)))

    def findings(self) -> Iterator[Finding]:
        """The findings about the rows given. A missing field counts only if other rows have it beside the same keys: a file
        may hold tasks of several kinds.
        """
        for expectation, shape, finding in self._candidates:
            if expectation.kind or expectation.required or shape | {expectation.field} in self._shapes:
                yield finding


_MAX_SHAPES = 10_000


def _check_field(row: Mapping[str, Any], expectation: Expectation) -> Finding | None:
    name = expectation.field
    path = f"$.{name}" if name.isidentifier() else f'$["{name}"]'
    if not expectation.kind:
        if name in row:
            return None
        hint = "the verifier cannot score the row without it"
        return Finding("GD504", path, f"`{name}` is missing; {expectation.share} of the rows have it", hint)
    value = row.get(name)
    values = value if isinstance(value, list) else [value]
    for element in values:
        if element is None or isinstance(element, dict | list):
            continue
        kind = "string" if isinstance(element, str) else "number"
        if kind != expectation.kind:
            where = " in a list" if isinstance(value, list) else ""
            usual = _article(expectation.kind)
            message = f"`{name}` holds {_article(KINDS[type(element)])}{where} here, {usual} in {expectation.share}"
            return Finding("GD503", path, f"{message}; NeMo Gym dies on such a column", f"write {usual} in every row")
    return None


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


_ROW = '{"responses_create_params": {"input": "What is 2+2?"}, "expected_answer": "4"}'
_OTHER = '{"responses_create_params": {"input": "What is 3+4?"}, "expected_answer": "7"}'
_THIRD = '{"responses_create_params": {"input": "What is 5+4?"}, "expected_answer": "9"}'

DATASET_RULES = [
    Rule(
        "GD501", "duplicate-row", "warning", "The same row stands in the file more than once.",
        "Duplicates weigh a task more than the others without anyone having decided so;"
        " whole datasets have been shipped a hundredfold.",
        "Remove them; to weigh rows, use num_repeats. Stamps (agent_ref, task_source) do not make rows different.",
        f"{_ROW}\n{_ROW}", f"{_ROW}\n{_OTHER}",
    ),
    Rule(
        "GD502", "conflicting-answers", "warning", "One prompt, two different expected answers.",
        "No response can be right for both, so the reward is noise.", "Find out which answer is right.",
        _ROW + "\n" + _ROW.replace('"4"', '"5"'), f"{_ROW}\n{_OTHER}",
    ),
    Rule(
        "GD503", "mixed-types", "warning", "A field holds strings in some rows and numbers in others.",
        "NeMo Gym's statistics die on such a column, and verifiers compare \"4\" and 4 differently.",
        "Write the field with one type in every row.",
        f"{_ROW}\n{_OTHER}\n" + _THIRD.replace('"9"', "9"), f"{_ROW}\n{_OTHER}\n{_THIRD}",
    ),
    Rule(
        "GD504", "missing-field", "warning", "A field that the verifier reads is missing, where most rows have it.",
        "The row cannot be scored.", "Add the field, or remove the row.",
        f"{_ROW}\n{_OTHER}\n" + _THIRD.replace(', "expected_answer": "9"', ""), f"{_ROW}\n{_OTHER}\n{_THIRD}",
    ),
    Rule(
        "GD505", "leakage", "warning", "A prompt of the validation split stands in the train split.",
        "What was trained on does not measure generalisation.", "Remove the prompt from one of the splits.", "", "",
    ),
    Rule(
        "GD510", "empty-file", "warning", "The file has no bytes.", "There is nothing to train on.",
        "Write rows to it, or take it out of the configuration.", "", _ROW,
    ),
]  # fmt: skip
