"""The connection to the Hugging Face Hub: who calls, how patiently, and what a failure means to the person who asked.

Every request of `huggingface_hub` (and of `datasets`, which uses it) passes `Patience`: what is safe to repeat is repeated,
with jitter and within bounds; what may have taken effect is never repeated blindly but reported as `Unsettled`.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymdata.errors import ExternalError, GymdataError, UsageError

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

ATTEMPTS = 5
BACKOFF = 0.5
"""Seconds before the first repetition; doubles each time, times a random factor between 1 and 2."""
LONGEST_WAIT = 60.0
"""Seconds. A server that asks for more is not waited for."""
TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as dead."""

LOG_IN = "set HF_TOKEN, hf_token in env.yaml, or run `hf auth login`"

_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_NOT_REPEATABLE = ("/commit/", "/discussions")


class Unsettled(ExternalError):
    """A request that writes was cut off: it may have taken effect or not, so look before repeating it.

    After `slow`, which means that no answer came in time, it may even take effect later: then it must not be repeated.
    """

    slow = False


class Denied(ExternalError):
    """The Hub does not show this to whoever asks: wrong name, private, gated, or no rights."""


@dataclass(frozen=True, repr=False)
class Credentials:
    """What may be sent to prove who calls. Never printed. Raises UsageError for a token that no request can carry."""

    token: str | None = None

    def __post_init__(self) -> None:
        # The HTTP client would print it: "Illegal header value b'Bearer …'".
        if self.token and not re.fullmatch(r"[!-~]+", self.token):
            raise UsageError(
                "the token holds a line break, a space, or a letter that no token has",
                "copy it anew to where it comes from: the environment variable, env.yaml, or the hub's own login",
            )

    def __repr__(self) -> str:
        return f"Credentials({'set' if self.token else 'none'})"


def find_credentials(configured: str | None = None) -> Credentials:
    """HF_TOKEN, else `configured` (env.yaml's), else what `hf auth login` stored; Credentials(None) if there is none."""
    if token := os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or configured:
        return Credentials(token.strip())
    from huggingface_hub import get_token

    return Credentials(get_token())


def require_login(credentials: Credentials, repo_id: str) -> None:
    """Raise Denied without a token: what writes to the Hub says who it is, also to a public dataset."""
    if not credentials.token:
        raise Denied(f"{repo_id}: not logged in to the Hub; nothing was sent", LOG_IN)


@contextmanager
def connected(credentials: Credentials, endpoint: str | None = None) -> Iterator[HfApi]:
    """A client of the Hub at `endpoint` (HF_ENDPOINT if None) that is patient, and silent but for progress bars on a terminal.

    Within the block the process-wide HTTP client of `huggingface_hub` is ours; the one before comes back after it.
    """
    from huggingface_hub import HfApi, set_client_factory
    from huggingface_hub.utils import _http, logging
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    import gymdata

    before = _http._GLOBAL_CLIENT_FACTORY
    verbosity = logging.get_verbosity()
    silent = are_progress_bars_disabled()

    def make() -> httpx2.Client:
        client = before()
        client.timeout = TIMEOUT
        client.send = Patience(client.send)  # type: ignore[method-assign]
        return client

    set_client_factory(make)
    logging.set_verbosity_error()
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        token = credentials.token or False
        yield HfApi(endpoint=endpoint, token=token, library_name="gymdata", library_version=gymdata.__version__)
    finally:
        set_client_factory(before)
        logging.set_verbosity(verbosity)
        if not silent and not sys.stderr.isatty():
            enable_progress_bars()


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn what the client raises while `doing` (such as "reading acme/math") into an ExternalError with a remedy."""
    import httpx2
    from huggingface_hub import errors

    try:
        yield
    except GymdataError:
        raise
    except Exception as error:
        reason: BaseException = error
        # The client wraps what happens to an upload in a RuntimeError, and a refused download in "not in the cache".
        while reason.__cause__ and type(reason) in (RuntimeError, errors.LocalEntryNotFoundError):
            reason = reason.__cause__
        if isinstance(reason, GymdataError):
            raise reason from error
        if isinstance(reason, errors.LocalEntryNotFoundError | errors.FileMetadataError):
            raise ExternalError(f"{doing}: the Hub cannot be reached, or what answers is not the Hub", _UNREACHABLE) from error
        if isinstance(reason, errors.HfHubHTTPError):
            raise _translated(doing, reason) from error
        if isinstance(reason, errors.HFValidationError):
            raise UsageError(f"{doing}: {reason}", "write OWNER/NAME as the Hub shows it") from error
        if isinstance(reason, errors.OfflineModeIsEnabled):
            raise ExternalError(f"{doing}: HF_HUB_OFFLINE is set", "unset it to reach the Hub") from error
        if isinstance(reason, httpx2.HTTPError):
            raise ExternalError(f"{doing}: {_reason(reason)}", _UNREACHABLE) from error
        if isinstance(reason, json.JSONDecodeError):
            raise ExternalError(f"{doing}: what answers is not the Hub: no JSON (a proxy's page?)", _UNREACHABLE) from error
        if isinstance(reason, OSError):
            where = f"{reason.filename}: " if reason.filename else ""
            hint = _DISK if reason.errno else _UNREACHABLE  # hf_xet raises its network errors as an OSError without a number
            raise ExternalError(f"{doing}: {where}{reason.strerror or reason}", hint) from error
        if type(reason) is RuntimeError:  # what the transfer library hf_xet raises for everything
            raise ExternalError(f"{doing}: {str(reason) or 'the transfer failed'}", _UNREACHABLE) from error
        raise


def _translated(doing: str, error: HfHubHTTPError) -> ExternalError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        hint = f"ask for access on the dataset's page, then log in: {LOG_IN}"
        return Denied(f"{doing}: access to this dataset is restricted", hint)
    if isinstance(error, errors.RevisionNotFoundError):
        return ExternalError(f"{doing}: there is no such revision", "give a branch, a tag, a commit or refs/pr/N")
    if isinstance(error, errors.EntryNotFoundError):
        return ExternalError(f"{doing}: there is no such file", "names are case-sensitive; look at the dataset's files page")
    if isinstance(error, errors.RepositoryNotFoundError):
        return Denied(f"{doing}: {_NO_REPOSITORY[0]}", _NO_REPOSITORY[1])
    return _refusal(doing, error.response.status_code, error.response.headers.get("X-Error-Message") or "")


_NO_REPOSITORY = (
    "there is no such dataset, or it is private",
    f"check the name (OWNER/NAME); for a private one log in: {LOG_IN}",
)
_DISK = "if the disk is full, free some space, or set TMPDIR and HF_HOME to where there is more; then run the same command again"
_UNREACHABLE = "check the network, a proxy, and HF_ENDPOINT; then run the same command again: it goes on where it stopped"


def _refusal(doing: str, status: int, said: str) -> ExternalError:
    said = f" ({said})" if said else ""
    if status == 401:
        if "Invalid credentials" in said:
            return Denied(f"{doing}: the Hub does not know this token", "make a new one under Settings > Access Tokens")
        return Denied(f"{doing}: {_NO_REPOSITORY[0]}", _NO_REPOSITORY[1])
    if status == 403:
        hint = "use a token with write access; without rights on the repository, propose the change with --create-pr"
        return Denied(f"{doing}: the Hub refuses this{said}", hint)
    if status == 409:
        return ExternalError(
            f"{doing}: there is a conflict with what the Hub holds{said}", "look at the repository, then run again"
        )
    if status == 412:
        return ExternalError(
            f"{doing}: the repository changed in between", "run the same command again: it starts from what is there now"
        )
    if status in _BUSY:
        return ExternalError(f"{doing}: the Hub answers {status}{said}", "try again in a while; nothing is lost")
    return ExternalError(f"{doing}: the Hub answers {status}{said}", "run again with --debug for the whole answer")


def _reason(error: BaseException) -> str:
    return f"no connection ({error or type(error).__name__})"


class Patience:
    """`httpx2.Client.send` that repeats what is safe to repeat; `server` is what messages call the other side."""

    def __init__(self, send: Callable[..., httpx2.Response], server: str = "the Hub") -> None:
        self._send = send
        self._server = server

    def __call__(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        import httpx2

        where = f"{request.method} {request.url.host}{request.url.path}"
        writes = request.method == "POST" and any(part in request.url.path for part in _NOT_REPEATABLE)
        # The body of an upload is a stream that only huggingface_hub can rewind: it repeats those itself, five times.
        rewinds = request.method != "PUT"
        failure = ExternalError(f"{where}: no answer", _UNREACHABLE)
        for attempt in range(1, ATTEMPTS + 1):
            wait = BACKOFF * 2 ** (attempt - 1) * random.uniform(1, 2)
            try:
                response = self._send(request, **options)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = ExternalError(f"{where}: {_reason(error)}", _UNREACHABLE)
            except httpx2.TransportError as error:
                if writes:
                    unsettled = Unsettled(f"{where}: the connection broke before the answer came ({_reason(error)})")
                    unsettled.slow = isinstance(error, httpx2.ReadTimeout)
                    raise unsettled from error
                if not rewinds:
                    raise
                failure = ExternalError(f"{where}: {_reason(error)}", _UNREACHABLE)
            else:
                if response.status_code not in _BUSY:
                    return response
                failure = ExternalError(
                    f"{where}: {self._server} answers {response.status_code}", "try again in a while; nothing is lost"
                )
                if asked := _retry_after(response):
                    if asked > LONGEST_WAIT:
                        response.close()
                        raise ExternalError(
                            f"{where}: {self._server} asks to wait {asked:.0f} s ({response.status_code})", "try again after that"
                        )
                    wait = asked
                if writes and response.status_code != 429:
                    response.close()
                    raise Unsettled(failure.message, failure.hint)
                if not rewinds:
                    return response
                response.close()
            if attempt < ATTEMPTS:
                time.sleep(wait)
        raise failure


def _retry_after(response: httpx2.Response) -> float:
    """Seconds the server asks to wait, 0 if it does not say; a date counts from now."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdigit():
        return float(value)
    if value:
        from email.utils import parsedate_to_datetime

        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return 0.0
    return 0.0
