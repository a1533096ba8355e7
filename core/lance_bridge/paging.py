"""Pages of a sorted listing.

A token holds the last name that was returned, so that names which are added or dropped between two
pages neither repeat nor hide others. It is bound to its listing and checked. It is opaque to
callers, but not a secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import InternalError, InvalidInputError

from .errors import invalid

_VERSION = 1
_SCOPE_LENGTH = 16


@dataclass(frozen=True)
class PageRequest:
    """``limit`` names (None: all) that sort after ``after`` (None: from the start)."""

    scope: str
    limit: int | None
    after: tuple[str, ...] | None

    @classmethod
    def parse(cls, scope: str, limit: int | None, token: str | None) -> PageRequest:
        """Parse a request's limit and page token; an empty token means the first page.

        Args:
            scope: What is listed; a token of another listing is refused.

        Raises:
            InvalidInputError: (13) the limit is below 1, or the token is not of this listing.
        """
        if limit is not None and limit < 1:
            raise invalid(f"limit must be 1 or more, not {limit}")
        return cls(scope, limit, decode_token(scope, token) if token else None)

    def cut(self, names: Sequence[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], str | None]:
        """Return one page of ``names`` and the token of the next, or None at the end.

        Args:
            names: Sorted; at least ``limit + 1`` names after ``after``, if that many exist.
        """
        rest = [name for name in names if self.after is None or name > self.after]
        if self.limit is None or len(rest) <= self.limit:
            return rest, None
        page = rest[: self.limit]
        return page, encode_token(self.scope, page[-1])

    def cut_names(self, names: Sequence[str]) -> tuple[list[str], str | None]:
        """Like :meth:`cut`, for single names in any order; sorts and deduplicates them."""
        page, token = self.cut(sorted({(name,) for name in names}))
        return [name for (name,) in page], token


def names_of_all_pages(list_page: Callable[[Any], Any], request: Any, field: str) -> Iterator[str]:
    """Yield the names of a namespace's listing, page by page.

    Args:
        list_page: A method of a `LanceNamespace`, such as `list_tables`.
        request: The request for the first page.
        field: The field of a response that has the names.

    Raises:
        InternalError: (18) a page has the token of its own request, so it would repeat.
        LanceNamespaceError: what the listing raises.
    """
    for page in all_pages(list_page, request):
        yield from getattr(page, field)


def all_pages(list_page: Callable[[Any], Any], request: Any) -> Iterator[Any]:
    """Yield the responses of a listing; for arguments and errors see `names_of_all_pages`."""
    while True:
        answer = list_page(request)
        yield answer
        if not answer.page_token:
            return
        require_progress(request, answer)
        request = request.model_copy(update={"page_token": answer.page_token})


def require_progress(request: Any, answer: Any) -> None:
    """Raise InternalError (18) for a page that has the token of its own request."""
    if request.page_token and answer.page_token == request.page_token:
        raise InternalError("The listing repeats itself: its next page has the same token")


def _digest(scope: str) -> str:
    return hashlib.sha256(scope.encode(errors="surrogatepass")).hexdigest()[:_SCOPE_LENGTH]


def encode_token(scope: str, last: tuple[str, ...]) -> str:
    """Return a token that `decode_token` decodes with the same scope."""
    content = json.dumps([_VERSION, _digest(scope), *last], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode()


def decode_token(scope: str, token: str) -> tuple[str, ...]:
    """Return the name that a token holds.

    Raises:
        InvalidInputError: (13) it is malformed, or of another scope or version.
    """
    try:
        content = json.loads(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise bad_token() from None
    if not isinstance(content, list) or len(content) < 3 or content[0] != _VERSION:
        raise bad_token()
    if content[1] != _digest(scope) or not all(isinstance(name, str) for name in content[2:]):
        raise bad_token()
    return tuple(content[2:])


def bad_token() -> InvalidInputError:
    """Return InvalidInputError (code 13) for a page token that does not fit its listing."""
    return invalid("page_token is not valid for this listing; start again without it")
