"""Errors on the wire: problem details (RFC 9457), one table from the tree of errors to status codes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from pipeline import errors

MEDIA_TYPE = "application/problem+json"

STATUS: Mapping[type[errors.SapwoodError], int] = {
    errors.SapwoodError: 500,
    errors.ConfigurationError: 422,
    errors.InvalidRequest: 422,
    errors.NotFound: 404,
    errors.Refused: 422,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.TooMany: 429,
    errors.Conflict: 409,
    errors.InconsistentGeneration: 500,
    errors.PromotionRefused: 409,
    errors.DocumentError: 422,
    errors.DependencyError: 503,
    errors.EmbeddedServerError: 503,
    errors.ModelError: 502,
    errors.EmbeddingError: 502,
    errors.StoreRefused: 500,
    errors.DeadlineExceeded: 504,
    errors.RunCancelled: 409,
    errors.RunFailed: 500,
    errors.EventsExpired: 410,
}
"""An error that is not here has the status of its nearest parent."""

OURS = "Something is wrong inside of the service; its log says what."


class FieldProblem(BaseModel):
    """What is wrong with one part of a request; `field` is its path, e.g. `body.top_k`."""

    field: str
    message: str


class Problem(BaseModel):
    """A problem (RFC 9457). `code` is the name of the error; `detail` says what to mend."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] = []


RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body cannot be parsed."},
    401: {"model": Problem, "description": "Nobody knows who asks."},
    403: {"model": Problem, "description": "The key lacks the scope."},
    404: {"model": Problem, "description": "There is nothing of that name."},
    409: {"model": Problem, "description": "Somebody else was first."},
    413: {"model": Problem, "description": "The body is too large."},
    422: {"model": Problem, "description": "The request is not valid."},
    429: {"model": Problem, "description": "A limit of the tenant is reached; `Retry-After` says when to come again."},
    "5XX": {"model": Problem, "description": "The service or a server behind it failed."},
}
"""What every route may answer beside its own."""


def status_of(error: type[errors.SapwoodError]) -> int:
    """Return the status of a class of errors: its own, or that of its nearest parent."""
    return next(STATUS[one] for one in error.__mro__ if one in STATUS)


def problem(
    status: int,
    detail: str,
    code: str,
    headers: Mapping[str, str] | None = None,
    fields: Sequence[FieldProblem] = (),
) -> Response:
    """Return a problem as a response."""
    title = HTTPStatus(status).phrase
    body = Problem(title=title, status=status, detail=detail, code=code, errors=list(fields))
    return JSONResponse(body.model_dump(), status, headers=headers, media_type=MEDIA_TYPE)


def problem_of(error: errors.SapwoodError) -> Response:
    """Return an error of ours as a response. What is a fault of ours says no more than that."""
    status = status_of(type(error))
    headers: dict[str, str] = {}
    if isinstance(error, errors.Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.TooMany):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    elif status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    detail = OURS if status == HTTPStatus.INTERNAL_SERVER_ERROR else str(error)
    return problem(status, detail, type(error).__name__, headers)


def install(app: FastAPI) -> None:
    """Have the application answer every error with a problem."""
    app.add_exception_handler(errors.SapwoodError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unforeseen)


async def _ours(_: Request, error: Exception) -> Response:
    return problem_of(cast("errors.SapwoodError", error))


async def _invalid(_: Request, error: Exception) -> Response:
    found = cast("RequestValidationError", error).errors()
    fields = [FieldProblem(field=".".join(str(part) for part in one["loc"]), message=one["msg"]) for one in found]
    detail = "; ".join(f"{one.field}: {one.message}" for one in fields[:3])
    return problem(422, detail.encode("utf-8", "replace").decode(), "InvalidRequest", fields=fields)


async def _http(_: Request, error: Exception) -> Response:
    found = cast("HTTPException", error)
    phrase = HTTPStatus(found.status_code).phrase
    return problem(found.status_code, str(found.detail), phrase.title().replace(" ", ""), found.headers)


async def _unforeseen(_: Request, _error: Exception) -> Response:
    return problem(500, OURS, "InternalServerError")
