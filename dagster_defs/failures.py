"""gymdata's errors as Dagster's failures: what went wrong and what to do, tried again only where that can help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from dagster_defs import resources
from gymdata.errors import ExternalError, GymdataError

RETRIES = dg.RetryPolicy(max_retries=3, delay=10, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""Of steps that reach out to a server: 10, 20 and 40 seconds later, give or take."""

OPTIONS = "`--some-option` is set here under Config: `resources: {NAME: {config: {some_option: …}}}`; NAME is `preparation`, `sampling` or `hub`."


@contextmanager
def explained() -> Iterator[None]:
    """Raise dg.Failure for a GymdataError; only one about something outside is worth another try."""
    try:
        yield
    except GymdataError as error:
        resources.onlooker.failed(error)
        outside = isinstance(error, ExternalError)
        named = re.search(r"(^|\s)--[a-z]", f"{error.message}\n{error.hint}")
        said = "\n\n".join(filter(None, [error.hint, OPTIONS if named else ""]))
        hint = {"what to do": dg.MetadataValue.md(said)} if said else {}
        raise dg.Failure(error.message, metadata=hint, allow_retries=outside) from None
