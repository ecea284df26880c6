"""What the UI shows, from the data's side: nothing in a row breaks out of where it is shown."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import dagster as dg
import pytest

from dagster_defs import metadata
from dagster_defs.failures import explained
from gymdata.errors import UsageError


def test_a_conversation_shows_every_item_and_lets_no_markup_out() -> None:
    row = {
        "responses_create_params": {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "```\n<script>alert(1)</script>\n# no heading"},
                {"type": "function_call", "name": "add", "arguments": '{"a": 1}', "call_id": "c"},
                {"type": "function_call_output", "output": "2", "call_id": "c"},
                {"role": "user", "content": [{"type": "input_text", "text": "and?"}, {"type": "input_image", "image_url": "x"}]},
            ],
            "tools": [{"type": "function", "name": "add"}],
        },
        "expected_answer": "2",
    }
    shown = metadata.conversation(row)
    titles = [line.strip("*") for line in shown.splitlines() if line.startswith("**")]
    assert titles == ["instructions", "user", "call of add", "function_call_output", "user", "tools", "for the verifier"]
    fence = "````"
    assert f"{fence}text\n```\n<script>" in shown and "[input_image]" in shown


def test_a_long_text_is_cut_and_says_so() -> None:
    assert "… (3,000 more characters)" in metadata.conversation({"responses_create_params": {"input": "x" * 5000}})


def test_the_histogram_is_a_picture_whose_bars_hold_all_rows() -> None:
    markdown = metadata.histogram({"train": [5] * 90 + [9] * 10 + [10_000], "validation": [7]}, "tokens")
    data = base64.b64decode(markdown.split("base64,", 1)[1].rstrip(")"))
    picture = ElementTree.fromstring(data)
    texts = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "train: 101 rows, median 5, most 10,000 tokens" in texts and any(text.endswith("+") for text in texts)
    assert metadata.histogram({"train": []}, "tokens") == "no tokens were counted"


def test_the_scale_of_a_histogram_with_limits_ends_at_them() -> None:
    shown = metadata.histogram({"reward": [0, 100]}, "%", "rollouts", 20, (0, 100))
    picture = base64.b64decode(shown.split("base64,")[1].rstrip(")")).decode()
    assert re.findall(r">(\d+)</text>", picture) == ["0", "25", "50", "75", "100"]


def test_statistics_of_several_splits_are_one_table() -> None:
    shown = metadata.statistics({"train": {"rows": 1200, "lengths": {"mean": 1.5}}, "validation": {"rows": 3}})
    assert [dict(record.data) for record in shown.records] == [
        {"measure": "rows", "train": "1,200", "validation": "3"},
        {"measure": "lengths.mean", "train": "1.5", "validation": ""},
    ]


@pytest.mark.parametrize(("hint", "told"), [("name its `source` and use --download", True), ("mend the file", False)])
def test_a_hint_that_names_an_option_says_where_it_is_set_in_the_ui(hint: str, told: bool) -> None:
    with pytest.raises(dg.Failure) as failure, explained():
        raise UsageError("the dataset has no file", hint)
    said = str(failure.value.metadata["what to do"].value)
    assert hint in said and ("under Config" in said) is told
