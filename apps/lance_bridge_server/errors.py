"""Errors of the Lance REST protocol: flat JSON with a ``code``, and the HTTP status for it."""

from __future__ import annotations

import logging

from lance_namespace.errors import (
    ErrorCode,
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from starlette.requests import Request
from starlette.responses import JSONResponse

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.lance_texts import without_places

from .monitoring import SERVER_ERROR
from .redaction import SECRETS, hide_addresses

_log = logging.getLogger(__name__)
_LONGEST = 2000

_STATUSES = {
    404: (1, 4, 6, 8, 10, 11, 12, 22),
    409: (2, 3, 5, 7, 9, 14, 19, 23),
    400: (13, 20),
    406: (0,),
    403: (15,),
    401: (16,),
    503: (17,),
    500: (18,),
    429: (21,),
}
STATUS_BY_CODE = {ErrorCode(code): status for status, codes in _STATUSES.items() for code in codes}
"""The HTTP status for each code of Lance. Source: pylance's RestAdapter."""

_CODE_BY_STATUS = {
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    406: UnsupportedOperationError,
    429: ThrottlingError,
    503: ServiceUnavailableError,
}


def error_of_status(status: int, message: str) -> LanceNamespaceError:
    """Return the error for an HTTP status: an unknown route, a wrong method, size or media type."""
    return _CODE_BY_STATUS.get(status, InvalidInputError)(message)


def public_text(text: str, code: ErrorCode) -> str:
    """Return an error's message as clients may read it.

    It has no secrets, addresses, or places in the source of Lance.
    """
    text = without_places(SECRETS.hide(text))
    shown = hide_addresses(text, repeats_request=code is ErrorCode.INVALID_INPUT)
    if shown == text:
        return text
    level = logging.WARNING if STATUS_BY_CODE[code] >= SERVER_ERROR else logging.INFO
    _log.log(level, "%s: %s", code.name, " ".join(text[:_LONGEST].split()))
    return f"{shown} (the server's log has the addresses)"


def error_headers(error: LanceNamespaceError) -> dict[str, str]:
    """Return the HTTP headers of an error."""
    if isinstance(error, UnauthenticatedError):
        return {"WWW-Authenticate": "Bearer"}
    seconds = getattr(error, "retry_after", 1 if isinstance(error, ThrottlingError) else None)
    if seconds is not None:
        return {"Retry-After": str(seconds)}
    return {}


def error_answer(
    request: Request,
    error: LanceNamespaceError,
    *,
    status: int | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """Return the response to a request that failed.

    Args:
        status: Overrides the status of the error's code.
    """
    code = ErrorCode(error.code)
    content = {
        "code": code.value,
        "error": public_text(str(error), code),
        "instance": request.url.path,
        "context": {"request_id": request.state.request_id},
    }
    return JSONResponse(content, status or STATUS_BY_CODE[code], headers)


def unfinished_error(why: str, outcome: str, *, may_change: bool) -> ServiceUnavailableError:
    """Return the error for a request whose operation has not ended.

    Args:
        outcome: The part of the message that says what is unknown.
        may_change: Whether a thread is still running that may change something.
    """
    if not may_change:
        return ServiceUnavailableError(f"{why}; nothing was changed")
    return OutcomeUnknownError(f"{why}: {outcome} is unknown; check it before you repeat it")
