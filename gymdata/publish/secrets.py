"""Credentials in rows: the token patterns of `detect-secrets`, and those of the services that people publish datasets from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gymdata.rows.lines import ByteRange, chunks
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


def find_secrets(path: Path) -> Iterator[Finding]:
    """Findings (GD704) for what looks like a credential in a file of rows; the credential itself is not repeated in them."""
    line = 1
    for chunk in chunks(ByteRange(path, 0, path.stat().st_size)):
        if isinstance(chunk, int):
            line += 1
            continue
        text = chunk.decode("utf-8", errors="replace")
        found = ((match.start(), name) for name, pattern in _patterns() for match in pattern.finditer(text))
        hits = {(line + text.count("\n", 0, start), name) for start, name in found}
        for number, name in sorted(hits):
            hint = "remove the row, or the credential from it, and revoke it: it has been written to disk"
            yield Finding("GD704", "$", f"this looks like a credential ({name})", hint, number)
        line += chunk.count(b"\n") + 1


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    found = [(name, re.compile(pattern)) for name, pattern in OURS.items()]
    for name, detector in get_mapping_from_secret_type_to_class().items():
        if detector.__name__ not in _GUESSES:
            found += [(name, pattern) for pattern in getattr(detector, "denylist", ())]
    return tuple(found)
