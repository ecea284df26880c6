"""Credentials in rows: the token patterns of `detect-secrets`, and those of the services that people publish datasets from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any, NamedTuple

from gymdata.engine.local import ordered_map
from gymdata.rows.lines import ByteRange, chunks, ranges
from gymdata.scan import SMALL_BYTES
from gymdata.validation.findings import Finding

# The literal comes first and what may not stand before it after: so `re` can search for the literal, 30 times faster.
OURS = {
    "Hugging Face token": r"hf_(?<!\whf_)[A-Za-z]{30,40}\b",
    "NVIDIA API key": r"nvapi-(?<!\wnvapi-)[A-Za-z0-9_-]{60,70}\b",
    "GitHub fine-grained token": r"github_pat_(?<!\wgithub_pat_)[A-Za-z0-9]{22}_[A-Za-z0-9]{59}\b",
    "Anthropic API key": r"sk-ant-(?<!\wsk-ant-)[a-z]+\d\d-[A-Za-z0-9_-]{80,}",
    "OpenAI project key": r"sk-(?<!\wsk-)(?:proj|svcacct)-[A-Za-z0-9_-]{60,}",
    "Google API key": r"AIza(?<!\wAIza)[A-Za-z0-9_-]{35}\b",
}
# Not tokens by their shape but by their surroundings or their randomness: in prose, code and mathematics these are mostly wrong.
_GUESSES = frozenset(
    {
        "Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector", "IPPublicDetector", "BasicAuthDetector",
        "ArtifactoryDetector", "MailchimpDetector", "CloudantDetector", "IbmCloudIamDetector", "IbmCosHmacDetector",
        "SoftlayerDetector",
    }
)  # fmt: skip


# A necessary condition, for patterns whose own beginning is found everywhere.
_FASTER = {
    r"\d{8,10}:[0-9A-Za-z_-]{35}": r":[0-9A-Za-z_-]{35}",
    r"[MNO][a-zA-Z\d_-]{23,25}\.[a-zA-Z\d_-]{6}\.[a-zA-Z\d_-]{27}": r"\.[a-zA-Z\d_-]{6}\.[a-zA-Z\d_-]{27}",
}


class Detector(NamedTuple):
    """A pattern of credentials, and what a text must hold to be worth searching."""

    name: str
    pattern: re.Pattern[str]
    literal: bytes
    """In lower case where the pattern ignores case."""
    condition: re.Pattern[str] | None

    def starts(self, chunk: bytes, lowered: bytes, text: str) -> Iterator[int]:
        """Where credentials begin in `text`, which is `chunk` decoded."""
        if self.literal not in (lowered if self.pattern.flags & re.IGNORECASE else chunk):
            return
        if self.condition is None or self.condition.search(text):
            yield from (match.start() for match in self.pattern.finditer(text))


def find_secrets(path: Path, jobs: int = 1) -> Iterator[Finding]:
    """Findings (GD704) for what looks like a credential in a file of rows; the credential itself is not repeated in them."""
    hint = "remove the row, or the credential from it, and revoke it: it has been written to disk"
    before = 0
    for lines, hits in ordered_map(_search, ranges(path), jobs if path.stat().st_size >= SMALL_BYTES else 1):
        for line, name in hits:
            yield Finding("GD704", "$", f"this looks like a credential ({name})", hint, before + line)
        before += lines


def _search(part: ByteRange) -> tuple[int, list[tuple[int, str]]]:
    """The number of lines in a range, and on which of them, from 1, there is a credential of which kind."""
    lines, hits = 0, []
    for chunk in chunks(part):
        if isinstance(chunk, int):
            lines += 1
            continue
        text, lowered = chunk.decode("utf-8", errors="replace"), chunk.lower()
        found = {(start, one.name) for one in detectors() for start in one.starts(chunk, lowered, text)}
        hits += sorted({(lines + 1 + text.count("\n", 0, start), name) for start, name in found})
        lines += chunk.count(b"\n") + 1
    return lines, hits


@cache
def detectors() -> tuple[Detector, ...]:
    """All that is looked for."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    found = [(name, re.compile(pattern)) for name, pattern in OURS.items()]
    for name, detector in get_mapping_from_secret_type_to_class().items():
        if detector.__name__ not in _GUESSES:
            found += [(name, pattern) for pattern in getattr(detector, "denylist", ())]
    made = []
    for name, pattern in found:
        literal = _literal(_parser.parse(pattern.pattern, pattern.flags))
        literal = literal.lower() if pattern.flags & re.IGNORECASE else literal
        faster = _FASTER.get(pattern.pattern)
        made.append(Detector(name, pattern, literal.encode(), re.compile(faster) if faster else None))
    return tuple(made)


def _literal(parsed: Any) -> str:
    """The longest run of characters that every match of a parsed pattern holds."""
    best = run = ""
    for operation, argument in parsed:
        if operation is _parser.LITERAL:
            run += chr(argument)
            best = max(best, run, key=len)
            continue
        run = ""
        if operation is _parser.SUBPATTERN:
            best = max(best, _literal(argument[-1]), key=len)
        elif operation is _parser.MAX_REPEAT and argument[0] > 0:
            best = max(best, _literal(argument[2]), key=len)
    return best
