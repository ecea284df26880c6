"""Token counts of texts, as tiktoken gives them for text that holds no special tokens.

tiktoken is the arbiter. toktok-rs counts several times faster and agrees with it but for texts with one of `_DISPUTED`: it
knows the letters, marks and digits of Unicode 17, tiktoken's tables end with Unicode 16; and only tiktoken takes an
apostrophe and U+017F (a long s) for a contraction. Such texts go to tiktoken; so does every text if the installed toktok-rs
is not the one for which this was proven (tests/statistics/test_tokens.py: every code point, and random texts). toktok-rs
holds the vocabularies, and tiktoken is given them from there, so nothing is downloaded.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gymdata.atomic import write_bytes
from gymdata.errors import ExternalError, GymdataError, UsageError
from gymdata.rows.facts import Facts

DEFAULT_ENCODING = "o200k_base"
ENCODINGS = ("o200k_base", "cl100k_base")

PROVEN_TOKTOK = "0.3.0"

_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_MAX_TOOLS = 50_000

_DISPUTED_RANGES = (
    "017F 088F 0C5C 0CDC 1ACF-1ADD 1AE0-1AEB A7CE-A7CF A7D2 A7D4 A7F1 10940-10959 10EC5-10EC7 10EFA-10EFB 11B60-11B67"
    " 11DB0-11DDB 11DE0-11DE9 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6 187F8-187FF 18D09-18D1E 18D80-18DF2 1E6C0-1E6DE 1E6E0-1E6F5"
    " 1E6FE-1E6FF 2B73A-2B73F 2CEA2-2CEAD 323B0-33479"
)
_DISPUTED = re.compile(
    "[" + "".join("-".join(f"\\U{end:0>8}" for end in span.split("-")) for span in _DISPUTED_RANGES.split()) + "]"
)
_ASCII = bytes(range(128))


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """What counted: the encoding, and the package and its version."""

    encoding: str
    counter: str
    version: str


class TokenCounter:
    """Counts tokens in one encoding. Raises UsageError for an encoding that is not one of ENCODINGS."""

    def __init__(self, encoding: str = DEFAULT_ENCODING) -> None:
        if encoding not in ENCODINGS:
            raise UsageError(f'there is no tokenizer "{encoding}"', f"choose one of {', '.join(ENCODINGS)}")
        self._encoding = encoding
        self._fast = _toktok(encoding)
        self._tools: dict[bytes, int] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        """What counts."""
        if self._fast is not None:
            return Tokenizer(encoding=self._encoding, counter="toktok-rs", version=PROVEN_TOKTOK)
        import tiktoken

        return Tokenizer(encoding=self._encoding, counter="tiktoken", version=tiktoken.__version__)

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text. Texts must be free of lone surrogates.

        Raises ExternalError if tiktoken is needed, its vocabulary is nowhere on this machine and cannot be downloaded.
        """
        if not texts:
            return []
        if self._fast is None:
            return [arbiter_count(text, self._encoding) for text in texts]
        counts = self._fast(list(texts))
        foreign = [text for text in texts if not text.isascii()]
        if foreign and is_disputed("".join(foreign)):
            for index, text in enumerate(texts):
                if not text.isascii() and is_disputed(text):
                    counts[index] = arbiter_count(text, self._encoding)
        return counts

    def count(self, rows: Sequence[Facts]) -> list[int]:
        """Tokens of all texts of each row and of its tool definitions (as JSON), without what a chat template adds."""
        new = {tool for row in rows for tool in row.tool_texts if tool not in self._tools}
        if len(self._tools) > _MAX_TOOLS:
            self._tools.clear()
            new = {tool for row in rows for tool in row.tool_texts}
        batch = [text for row in rows for text in row.texts]
        counts = self.count_batch(batch + [tool.decode() for tool in new])
        self._tools.update(zip(new, counts[len(batch) :], strict=True))
        totals: list[int] = []
        start = 0
        for row in rows:
            stop = start + len(row.texts)
            totals.append(sum(counts[start:stop]) + sum([self._tools[tool] for tool in row.tool_texts]))
            start = stop
        return totals


def is_disputed(text: str) -> bool:
    """Whether toktok-rs and tiktoken may count `text` differently."""
    # The expression is slow on ASCII, of which most texts consist: it is cut out first.
    return _DISPUTED.search(text.encode().translate(None, _ASCII).decode()) is not None


def arbiter_count(text: str, encoding: str = DEFAULT_ENCODING) -> int:
    """Number of tokens of `text` by tiktoken itself."""
    return len(_tiktoken(encoding)(text))


def _toktok(encoding: str) -> Callable[[list[str]], list[int]] | None:
    try:
        import toktok
    except ImportError:
        return None
    if toktok.__version__ != PROVEN_TOKTOK:
        return None
    # One thread: the work is spread over processes.
    return lambda texts: toktok.batch_count(texts, encoding, threads=1)


@cache
def _tiktoken(encoding: str) -> Callable[[str], list[int]]:
    import tiktoken

    with _vocabulary(encoding):
        try:
            return tiktoken.get_encoding(encoding).encode_ordinary
        except Exception as error:  # requests' errors, or a damaged download
            raise ExternalError(
                f"the vocabulary of {encoding} could not be had from {_URL.format(encoding)}: {error}",
                "connect to the network once, or set TIKTOKEN_CACHE_DIR to a folder that has it",
            ) from error


@contextmanager
def _vocabulary(encoding: str) -> Iterator[None]:
    """Let tiktoken find its vocabulary: where its own variables say, else in our cache, filled from toktok-rs.

    tiktoken itself checks the digest of what it finds, and downloads it if there is nothing or the digest is wrong.
    """
    name = hashlib.sha1(_URL.format(encoding).encode()).hexdigest()
    chosen = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    if chosen and (Path(chosen) / name).exists():
        yield
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gymdata" / "tiktoken"
        if not (folder / name).exists():
            write_bytes(folder / name, _vocabulary_of_toktok(encoding))
    except (GymdataError, OSError, RuntimeError, ImportError, AttributeError, KeyError):
        yield  # nowhere to write, or nothing to write: tiktoken is left to its own ways
        return
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["TIKTOKEN_CACHE_DIR"]
        if before is not None:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


def _vocabulary_of_toktok(encoding: str) -> bytes:
    """The `.tiktoken` file: a line with base64 and rank per token."""
    import toktok

    tokens = toktok._encoding(encoding).token_byte_values()
    return b"".join(b"%s %d\n" % (base64.b64encode(bytes(token)), rank) for rank, token in enumerate(tokens))
