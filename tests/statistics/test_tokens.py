"""Token counts: always those of tiktoken, whoever counts."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

from gymdata.errors import UsageError
from gymdata.rows.facts import describe
from gymdata.statistics import tokens
from gymdata.statistics.tokens import ENCODINGS, TokenCounter, arbiter_count, is_disputed

CODE_POINTS = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
pieces = words | st.sampled_from(
    [
        "'s",
        "'LL",
        "'\u017f",
        "don't",
        "  ",
        "\n\n",
        "\r\n",
        "1234",
        "ABCdef",
        "été",
        "中文",
        "हिन्दी",
        "👩‍👩‍👧",
        "<|endoftext|>",
        "/\n",
    ]
)
texts = st.lists(pieces, max_size=12).map("".join)


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Vocabularies are cached in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
        tokens._tiktoken.cache_clear()
        for encoding in ENCODINGS:
            arbiter_count("", encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(texts)
@example("it'\u017f")
@example("a\u088f's")
def test_a_count_is_tiktokens(encoding: str, text: str) -> None:
    assert TokenCounter(encoding).count_batch([text]) == [arbiter_count(text, encoding)]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_undisputed_code_point_is_counted_otherwise(encoding: str) -> None:
    # Before a contraction it shows whether a code point is taken for a letter.
    undisputed = [f"ab{point}'s" for point in CODE_POINTS if not is_disputed(point)]
    assert len(undisputed) > len(CODE_POINTS) - 6000
    exact = tiktoken.get_encoding(encoding).encode_ordinary
    counts = TokenCounter(encoding).count_batch(undisputed)
    assert [text for text, count in zip(undisputed, counts, strict=True) if count != len(exact(text))] == []


def test_special_tokens_count_as_text() -> None:
    assert TokenCounter().count_batch(["<|endoftext|>"]) == [7]


def test_long_texts_are_counted() -> None:
    assert TokenCounter().count_batch(["a" * 10_000, "word " * 50_000]) == [1250, 50_001]


def test_a_row_counts_its_texts_and_its_tools() -> None:
    tool = {"type": "function", "name": "f", "parameters": {}, "strict": True}
    plain = {"responses_create_params": {"input": "hello world", "instructions": "be brief"}}
    tooled = {"responses_create_params": {"input": "hello world", "tools": [tool, tool]}}
    counter = TokenCounter()
    facts = [describe(plain), describe(tooled)]
    [of_tool] = counter.count_batch([facts[1].tool_texts[0].decode()])
    assert counter.count(facts) == counter.count(facts) == [4, 2 + 2 * of_tool]


def test_without_the_proven_counter_tiktoken_counts_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = TokenCounter()
    monkeypatch.setattr(tokens, "PROVEN_TOKTOK", "0.0.0")
    slow = TokenCounter()
    assert (slow.tokenizer.counter, slow.tokenizer.version) == ("tiktoken", tiktoken.__version__)
    assert fast.tokenizer.counter == "toktok-rs"
    assert slow.count_batch(["héllo wörld"]) == fast.count_batch(["héllo wörld"])


def test_the_vocabulary_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {name: hashlib.sha256(tokens._vocabulary_of_toktok(name)).hexdigest()[:6] for name in ENCODINGS}
    assert digests == {"o200k_base": "446a95", "cl100k_base": "223921"}


def test_a_vocabulary_that_the_user_keeps_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = hashlib.sha1(tokens._URL.format("o200k_base").encode()).hexdigest()
    (tmp_path / name).write_bytes(tokens._vocabulary_of_toktok("o200k_base"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with tokens._vocabulary("o200k_base"):
        assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path)


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(UsageError, match="p50k"):
        TokenCounter("p50k_base")
