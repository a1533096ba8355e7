"""The page of an error, whose code is recorded for the audit log and metrics."""

from __future__ import annotations

from lance_namespace.errors import ErrorCode, LanceNamespaceError
from starlette.requests import Request
from starlette.responses import Response

from ..errors import STATUS_BY_CODE, error_headers
from ..monitoring.observed import observed
from .rendering import html_page
from .tree import Node
from .ui_request import error_text

_TITLES = {
    400: "Bad request",
    401: "Sign in to see this",
    403: "Not allowed",
    404: "Not found",
    406: "Not supported",
    429: "Too many requests",
    503: "Service unavailable",
}


def error_page(
    request: Request,
    error: LanceNamespaceError,
    *,
    status: int | None = None,
    tree: Node | None = None,
) -> Response:
    """Return the page of an error.

    Args:
        status: Overrides the status of the error's code.
        tree: The tree beside the page, if it is known.
    """
    code = ErrorCode(error.code)
    status = status or STATUS_BY_CODE[code]
    observed(request.scope).code = code.value
    page = html_page(
        "error.html",
        section="",
        status=status,
        principal=request.state.principal,
        tree=tree,
        title=_TITLES.get(status, "Something went wrong"),
        message=error_text(error),
        code=code,
        request_id=request.state.request_id,
    )
    page.headers.update(error_headers(error))
    return page
