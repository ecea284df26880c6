"""The card: what maintainers wrote stays, what rows say cannot break it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymdata.errors import DataError
from gymdata.publish.card import BEGIN, END, Facts, Origin, SplitFacts, origin_of, own_block, render
from gymdata.publish.parquet import Kind
from gymdata.sources.data_files import read_card, split_patterns


def facts(example: bytes = b'{"a": 1}', rows: int = 3, description: str = "Sums.", license: str = "MIT") -> Facts:
    origin = Origin("1.0", "f" * 64, (("a.jsonl", "1" * 64),), (license,))
    split = SplitFacts("train", rows, "train.jsonl", ("data/train-00000-of-00001.parquet",), "0" * 64, origin=origin)
    columns: dict[str, Kind] = {"responses_create_params": "json", "answer": "string"}
    return Facts("acme/sums", ("math",), description, (split,), columns, example)


def test_the_same_facts_make_the_same_card_also_over_itself() -> None:
    once = render(facts())
    assert render(facts(), once) == once


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=200).filter(
    lambda text: "gymdata:" not in text and "---" not in text
)


@given(TEXT, TEXT)
def test_text_around_our_block_survives_any_number_of_times(above: str, below: str) -> None:
    card = render(facts(), f"---\nx: 1\n---\n{above}\n{BEGIN}\nold\n{END}\n{below}")
    for rows in (4, 5):
        card = render(facts(rows=rows), card)
    assert card.split(BEGIN)[0].endswith(f"---\n{above}\n") and card.split(END + "\n")[-1] == below
    assert read_card(card)["x"] == 1


@given(st.text(max_size=300))
def test_no_row_breaks_out_of_its_example(text: str) -> None:
    import json

    hostile = json.dumps({"a": f"{text}\n```\n{END}\n---\n# owned\n{BEGIN}"}).encode()
    card = render(facts(hostile))
    assert own_block(card).endswith(f"{END}\n") and card.endswith(own_block(card))
    assert render(facts(hostile), card) == card


def test_other_configurations_and_keys_stay() -> None:
    extra = {"config_name": "extra", "data_files": "extra.parquet"}
    card = {"configs": [extra, {"config_name": "default", "data_files": "old.jsonl"}], "viewer": False, "tags": ["ours"]}
    front = read_card(render(facts(), f"---\n{yaml.safe_dump(card)}---\n"))
    assert front["viewer"] is False and front["tags"][0] == "ours"
    assert split_patterns(front, "extra") == {"train": ["extra.parquet"]}
    assert split_patterns(front) == {"train": ["data/train-*-of-*.parquet"]}


@pytest.mark.parametrize(("rows", "size"), [(999, "n<1K"), (1000, "1K<n<10K"), (5_000_000, "1M<n<10M")])
def test_the_size_is_the_hubs_word_for_it(rows: int, size: str) -> None:
    assert read_card(render(facts(rows=rows)))["size_categories"] == [size]


def test_a_license_that_the_hub_does_not_know_has_a_name() -> None:
    front = read_card(render(facts(license="NVIDIA Evaluation Dataset License Agreement")))
    assert (front["license"], front["license_name"]) == ("other", "nvidia-evaluation-dataset-license-agreement")


def test_splits_that_stay_keep_their_origin_and_their_license() -> None:
    once = render(facts())
    train = facts().splits[0]
    kept = origin_of(read_card(once), "train")
    assert kept == train.origin
    new = SplitFacts(
        "validation", 1, "validation.jsonl", ("v.parquet",), origin=Origin("2.0", "e" * 64, (("b", "2"),), ("CC0-1.0",))
    )
    card = render(replace(facts(), splits=(replace(train, origin=kept), new)), once)
    assert read_card(card)["license"] == ["mit", "cc0-1.0"]
    assert "train: validated, measured and collated by gymdata 1.0" in card and "from `a.jsonl`" in card
    assert "validation: validated, measured and collated by gymdata 2.0" in card and "License: MIT, CC0-1.0" in card


def test_the_license_of_rows_that_others_made_stays() -> None:
    train = replace(facts().splits[0], name="old", origin=None)
    card = render(replace(facts(), splits=(*facts().splits, train)), "---\nlicense: cc-by-sa-4.0\n---\nTheirs.\n")
    assert read_card(card)["license"] == ["mit", "cc-by-sa-4.0"]
    assert "old: the rows that were in the repository before" in card


def test_tokens_are_among_the_statistics() -> None:
    tokens = {"count": 3, "mean": 20.5, "min": 1, "max": 40, "std": 2} | dict.fromkeys(
        ("p05", "p25", "p50", "p75", "p95", "p99"), 21
    )
    document = {"lengths": {"tokens": tokens}, "tokenizer": {"encoding": "o200k_base"}}
    card = render(replace(facts(), splits=(replace(facts().splits[0], statistics=document),)))
    assert "| Tokens of all texts (o200k_base) | 3 | 20.5 | 1 | 40 | 2 |" in card and "50 % up to 21" in card


def test_a_card_that_cannot_be_read_is_not_overwritten() -> None:
    with pytest.raises(DataError, match="mend the card"):
        render(facts(), "---\na: [\n---\nprecious\n")
