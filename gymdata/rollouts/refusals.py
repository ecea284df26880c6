"""What the server says when it does not do what it was asked for: OpenAI's error objects, with a status that tells whose fault it was."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gymdata.errors import ExternalError, GymdataError, UsageError
from gymdata.rollouts.agent import ToolsFailed
from gymdata.rollouts.judge import JudgeFailed
from gymdata.rollouts.kept import Full
from gymdata.rollouts.overflow import Overflow
from gymdata.rollouts.policy import RequestFailed
from gymdata.verifiers.isolation import Failure

_UPSTREAM = {"rate_limited": 503, "timeout": 504}
"""Status by the kind of a request's failure, where that is not 502."""


class Refused(Exception):
    """A request that gets an error for an answer. `type` says what failed, `code` how, `param` which part of the request is at fault."""

    def __init__(
        self, status: int, message: str, type: str = "invalid_request_error", code: str | None = None, param: str | None = None
    ):
        super().__init__(message)
        self.status, self.message, self.type, self.code, self.param = status, message, type, code, param

    def to_json(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def refused(what: Exception | Overflow | Failure | JudgeFailed) -> Refused:
    """The answer to what went wrong. 4xx: the request is at fault; 500 the verifier, its judge, the tools or this server; 502 to 504 the model server."""
    match what:
        case Refused():
            return what
        case Overflow():
            return Refused(400, what.message, code="context_length_exceeded")
        case Failure():
            return Refused(500, what.message, "verifier_failed", what.kind)
        case JudgeFailed():
            return Refused(500, what.message, "judge_failed", what.kind)
        case ToolsFailed():
            return Refused(500, what.message, "tools_failed", what.kind)
        case RequestFailed() if what.kind == "bad_request":
            return Refused(what.status or 400, what.message, code="refused_by_the_model_server")
        case RequestFailed() if what.kind == "inexpressible":
            return Refused(400, what.message, code="inexpressible")
        case RequestFailed():
            return Refused(_UPSTREAM.get(what.kind, 502), what.message, "model_server_error", what.kind)
        case Full():
            return Refused(
                429, "there are as many rollouts as this server keeps: DELETE those that are finished", "too_many_rollouts"
            )
        case ExternalError():
            return Refused(503, what.message, "model_server_error", "unavailable")
        case GymdataError():
            return Refused(400 if isinstance(what, UsageError) else 422, what.message)
        case web.HTTPException():
            return Refused(what.status, what.text or what.reason, code={413: "request_too_large"}.get(what.status))
        case _:
            return Refused(500, f"{type(what).__name__}: {what}", "internal_error")
