"""Licence names: NeMo Gym's strings, SPDX identifiers and the Hugging Face Hub's, mapped onto one another."""

from __future__ import annotations

import difflib
import re

# NeMo Gym's string -> SPDX identifier. The first string listed for an identifier is the one that the identifier maps back to.
GYM_TO_SPDX: dict[str, str] = {
    "Apache 2.0": "Apache-2.0",
    "MIT": "MIT",
    "Creative Commons Attribution 4.0 International": "CC-BY-4.0",
    "Creative Commons Attribution-ShareAlike 4.0 International": "CC-BY-SA-4.0",
    "CC BY-SA 4.0": "CC-BY-SA-4.0",
    "CC BY-NC 3.0": "CC-BY-NC-3.0",
    "GNU General Public License v3.0": "GPL-3.0-only",
    "NVIDIA Internal Use Only, Do Not Distribute": "LicenseRef-NVIDIA-Internal-Use-Only",
    "NVIDIA Evaluation Dataset License Agreement": "LicenseRef-NVIDIA-Evaluation-Dataset",
    "TBD": "NOASSERTION",
}

# SPDX identifiers that data sets use and NeMo Gym has no string for: kept as they are.
ONLY_SPDX = (
    "0BSD", "AGPL-3.0-only", "Artistic-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-2.0", "CC-BY-2.5", "CC-BY-3.0", "CC-BY-NC-2.0",
    "CC-BY-NC-4.0", "CC-BY-NC-ND-3.0", "CC-BY-NC-ND-4.0", "CC-BY-NC-SA-2.0", "CC-BY-NC-SA-3.0", "CC-BY-NC-SA-4.0", "CC-BY-ND-4.0",
    "CC-BY-SA-3.0", "CC0-1.0", "CDLA-Permissive-1.0", "CDLA-Permissive-2.0", "CDLA-Sharing-1.0", "EPL-2.0", "GFDL-1.3-only",
    "GPL-2.0-only", "ISC", "LGPL-3.0-only", "MPL-2.0", "ODbL-1.0", "ODC-By-1.0", "PDDL-1.0", "Unlicense", "Zlib",
)  # fmt: skip

_SYNONYMS = {
    "GPL-3.0": "GPL-3.0-only",
    "GPL-3.0-or-later": "GPL-3.0-only",
    "AGPL-3.0": "AGPL-3.0-only",
    "GPL-2.0": "GPL-2.0-only",
}
_SPDX_TO_GYM = {spdx: gym for gym, spdx in reversed(GYM_TO_SPDX.items())}
_BY_LOWER = {name.lower(): name for name in (*_SPDX_TO_GYM, *ONLY_SPDX, *_SYNONYMS)}
# Where the Hub's identifier is not the SPDX one in lower case.
_HUB = {"GPL-3.0-only": "gpl-3.0", "GPL-2.0-only": "gpl-2.0", "AGPL-3.0-only": "agpl-3.0", "LGPL-3.0-only": "lgpl-3.0",
        "NOASSERTION": "unknown", "ODC-By-1.0": "odc-by", "ODbL-1.0": "odbl", "PDDL-1.0": "pddl", "GFDL-1.3-only": "gfdl"}  # fmt: skip


def forbids_publishing(name: str) -> bool:
    """Whether a licence keeps its dataset inside the house."""
    return bool(re.search(r"internal.use|do.not.distribute", name, re.IGNORECASE))


def canonical(name: str) -> str:
    """NeMo Gym's string for a licence named by it or by an SPDX identifier (in any case); the SPDX identifier where Gym has none.

    Raises ValueError, with the nearest names, if it is neither.
    """
    if name in GYM_TO_SPDX:
        return name
    spdx = _BY_LOWER.get(name.strip().lower())
    if spdx is not None:
        spdx = _SYNONYMS.get(spdx, spdx)
        return _SPDX_TO_GYM.get(spdx, spdx)
    known = {candidate.lower(): candidate for candidate in (*GYM_TO_SPDX, *_BY_LOWER.values())}
    close = [known[match] for match in difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.5)]
    hint = (
        f"did you mean {' or '.join(map(repr, close))}?" if close else f"one of {', '.join(GYM_TO_SPDX)}, or an SPDX identifier"
    )
    raise ValueError(f"{name!r} is not a licence that NeMo Gym or SPDX knows; {hint}")


def spdx(license: str) -> str:
    """The SPDX identifier of a canonical licence (`LicenseRef-…` for NVIDIA's own, `NOASSERTION` for TBD)."""
    return GYM_TO_SPDX.get(license, license)


def hub(license: str) -> str:
    """The Hugging Face Hub's licence identifier of a canonical licence: `other` where the Hub has none."""
    identifier = spdx(license)
    if identifier.startswith("LicenseRef-"):
        return "other"
    return _HUB.get(identifier, identifier.lower())


def known_to_gym(license: str) -> bool:
    """Whether NeMo Gym itself would take this licence."""
    return license in GYM_TO_SPDX
