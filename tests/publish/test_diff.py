"""The difference of two datasets: rows by content, not by position or spelling; statistics beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.errors import UsageError
from gymdata.publish.diff import Change, Diff, SplitDiff, compare, content_key, splits_of, to_json, to_markdown, to_text
from tests.publish.conftest import row

A, B, C = row("a"), row("b"), row("c")


def diff(tmp_path: Path, before: list[bytes], after: list[bytes]) -> Diff:
    paths = []
    for name, rows in (("before", before), ("after", after)):
        (tmp_path / name).mkdir(exist_ok=True)
        paths.append(tmp_path / name / "train.jsonl")
        paths[-1].write_bytes(b"".join(one + b"\n" for one in rows))
    return compare({"train": paths[0]}, {"train": paths[1]})


def test_rows_are_added_removed_and_changed(tmp_path: Path) -> None:
    (split,) = diff(tmp_path, [A, B, row("d")], [A, row("b", "5"), C]).splits
    assert (split.added, split.removed, split.changed) == (1, 1, 1)
    assert (split.added_lines, split.removed_lines, split.changed_lines) == ((3,), (3,), (2,))


def test_spelling_order_of_keys_and_stamps_are_no_difference(tmp_path: Path) -> None:
    stamped = json.dumps(
        {**dict(reversed(json.loads(A).items())), "agent_ref": {"name": "x"}}, indent=None, separators=(",", ":")
    )
    assert diff(tmp_path, [A], [stamped.encode()]).same


def test_another_order_is_said(tmp_path: Path) -> None:
    found = diff(tmp_path, [A, B], [B, A])
    assert found.splits[0].reordered and not found.same
    assert "another order" in to_text(found)


def test_repeats_count(tmp_path: Path) -> None:
    (split,) = diff(tmp_path, [A], [A, A, A]).splits
    assert (split.added, split.removed, split.changed) == (2, 0, 0)


def test_a_split_that_is_new_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(A + b"\n")
    (new,), (gone,) = compare({}, {"train": path}).splits, compare({"train": path}, {}).splits
    assert (new.before, new.after, new.added) == (None, 1, 1)
    assert (gone.before, gone.after, gone.removed) == (1, None, 1)


def test_a_file_of_something_else_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: 1\n")
    with pytest.raises(UsageError, match=r"config\.yaml"):
        splits_of(tmp_path / "config.yaml")


def test_numbers_that_differ_stand_side_by_side(tmp_path: Path) -> None:
    found = diff(tmp_path, [A], [A])
    for name, mean in (("before", 3), ("after", 4.5)):
        (tmp_path / name / "train_metrics.json").write_text(
            json.dumps({"name": "x", "Number of turns": {"Average": mean, "Max": 9}})
        )
    found = compare({"train": tmp_path / "before" / "train.jsonl"}, {"train": tmp_path / "after" / "train.jsonl"})
    (change,) = found.statistics
    assert (change.name, change.before, change.after) == ("train: Number of turns.Average", 3, 4.5)
    assert "Number of turns.Average" in to_text(found) and "| 3 | 4.5 |" in to_markdown(found)
    assert json.loads(json.dumps(to_json(found)))["same"] is False


def test_a_line_that_is_no_row_still_has_an_identity() -> None:
    assert content_key(b"not json") == content_key(b"not json") != content_key(b"else")
    assert content_key(b"[1]") != content_key(b"[2]")


LISTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), max_size=8)


@given(LISTS, LISTS)
def test_the_counts_always_add_up(tmp_path_factory, before: list, after: list) -> None:
    folder = tmp_path_factory.mktemp("diff")
    found = diff(folder, [row(*one) for one in before], [row(*one) for one in after])
    (split,) = found.splits
    assert len(before) - split.removed + split.added == len(after)
    assert split.removed + split.changed <= len(before)
    assert (split.added + split.removed + split.changed == 0) == (sorted(before) == sorted(after))
    assert found.same == (before == after)


def test_counts_that_follow_the_number_of_rows_are_left_to_the_document() -> None:
    split = SplitDiff("train", 40, 30, 0, 10, 0, False, (), (), ())
    names = ("rows", "Temperature.Total # non-null values", "fields.uuid.kinds.string", "lengths.tokens.max", "unique.prompts")
    changes = tuple(Change(f"train: {name}", 4.0, 3.0) for name in names)
    assert [one.name for one in Diff("a", "b", (split,), changes).telling] == [
        "train: lengths.tokens.max",
        "train: unique.prompts",
    ]
    same_size = replace(split, after=40, removed=0)
    assert len(Diff("a", "b", (same_size,), changes).telling) == len(names)
