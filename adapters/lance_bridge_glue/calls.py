"""Calls to Glue: adds the catalog's id, reads all pages, and detects unknown outcomes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from lance_bridge.catalog import Path
from lance_bridge.errors import concurrent_modification, display, table_not_found, unsupported

from .errors import ABSENT, CHANGED, LostReplyError, UnreadableReplyError, is_a, safe_cause
from .mapping import restrict_to_shape
from .session import NEVER_SENT

_PAGE = 100
"""Glue's maximum page size."""

_UNCERTAIN = ("OperationTimeoutException", "InternalServiceException", "RequestTimeout")
# What botocore's parser raises for a reply of an unexpected shape.
_UNREADABLE = (ResponseParserError, ValueError, LookupError, TypeError, AttributeError)


class _Attempts(threading.local):
    """The state of the change that this thread sends."""

    watching = False
    unsure = False
    """An attempt whose reply was lost may have made the change."""

    @contextmanager
    def watch(self) -> Iterator[None]:
        self.watching, self.unsure = True, False
        try:
            yield
        finally:
            self.watching = False


_attempts = _Attempts()


def ask(client: Any, operation: str, members: Iterable[str], **arguments: Any) -> Mapping[str, Any]:
    """Return the response to a read-only operation, which must have all these members.

    Raises the errors of botocore, and UnreadableReplyError.
    """
    try:
        return _check_members(getattr(client, operation)(**arguments), members, operation)
    except _UNREADABLE as error:
        raise UnreadableReplyError(operation) from error


class Calls:
    """Glue's operations, on one catalog.

    Raises the errors of botocore, UnreadableReplyError, and LostReplyError for changes.
    """

    def __init__(self, client: Callable[[], Any], catalog_id: str | None) -> None:
        self._client = client
        self._watched: Any = None
        self._common = {"CatalogId": catalog_id} if catalog_id is not None else {}

    def shape(self, name: str) -> Any:
        """Return a shape of botocore's service model, without a call."""
        return self._client().meta.service_model.shape_for(name)

    def read(self, operation: str, member: str, **arguments: Any) -> Mapping[str, Any]:
        """Return a member of a response, which must have a ``Name``."""
        response = ask(self._client(), operation, (member,), **{**self._common, **arguments})
        found: Mapping[str, Any] = response[member]
        if not found.get("Name"):
            raise UnreadableReplyError(operation)
        return found

    def read_all(self, operation: str, member: str, **arguments: Any) -> Iterator[Any]:
        """Yield the items of all pages, in one call for each page."""
        pages = self._client().get_paginator(operation)
        size = {"PageSize": _PAGE}
        try:
            for page in pages.paginate(**self._common, **arguments, PaginationConfig=size):
                yield from _check_members(page, (member,), operation)[member]
        except _UNREADABLE as error:
            raise UnreadableReplyError(operation) from error

    def change(self, operation: str, **arguments: Any) -> None:
        """Send a change, which botocore may send several times.

        Raises:
            LostReplyError: An attempt whose reply was lost may have succeeded; the response to a
                later attempt does not show it.
        """
        client = self._client()
        if client is not self._watched:
            client.meta.events.register(
                "needs-retry.glue", _record_attempt, "lance-bridge-attempts"
            )
            self._watched = client
        with _attempts.watch():
            try:
                getattr(client, operation)(**{**self._common, **arguments})
            except _UNREADABLE as error:
                raise LostReplyError(operation) from error
            except (ClientError, BotoCoreError) as error:
                if _attempts.unsure:
                    raise LostReplyError(operation) from safe_cause(error)
                raise
            if _attempts.unsure:
                raise LostReplyError(operation)

    def require_comparison(self, path: Path, table: Mapping[str, Any]) -> None:
        """Check that the server compares the VersionId of UpdateTable, with one that no entry has.

        The probe sends the entry's current content. Glue refuses it; a server that ignores a
        VersionId accepts it, and the entry is unchanged.

        Raises:
            UnsupportedOperationError: there is nothing to compare, or commits could be lost.
            ConcurrentModificationError: the reply to the probe was lost.
            TableNotFoundError
        """
        version = table.get("VersionId")
        if version is None:
            raise unsupported(f"Table '{display(path)}' has no version of its entry to compare")
        try:
            self.change(
                "update_table",
                DatabaseName=path[-2],
                TableInput=restrict_to_shape(self.shape("TableInput"), table),
                SkipArchive=True,
                VersionId=f"9{version}",
            )
        except LostReplyError as error:
            raise concurrent_modification(path) from error
        except ClientError as error:
            if is_a(error, CHANGED):
                return
            if is_a(error, ABSENT):
                raise table_not_found(path) from error
            raise
        raise unsupported(
            f"Table '{display(path)}' cannot be managed by this catalog: its server ignores the "
            "VersionId of UpdateTable, so that commits would overwrite each other. AWS Glue "
            "compares it"
        )


def _record_attempt(
    caught_exception: Exception | None = None,
    response: tuple[Any, Mapping[str, Any]] | None = None,
    **_: object,
) -> None:
    """Record whether the outcome of an attempt is unknown.

    botocore calls this after each attempt, but raises only the error of the last one.
    """
    if not _attempts.watching:
        return
    if response is None:
        if caught_exception is not None and not isinstance(caught_exception, NEVER_SENT):
            _attempts.unsure = True
        return
    http, parsed = response
    code = parsed.get("Error", {}).get("Code")
    if http.status_code < 300:
        _attempts.unsure = not _is_success(http.content)
    elif http.status_code >= 500 or code in _UNCERTAIN:
        _attempts.unsure = True


def _is_success(content: bytes) -> bool:
    """Return False for content that Glue never sends, although botocore accepts it.

    It may come from a proxy, and the change may never have reached Glue.
    """
    try:
        return not content or json.loads(content) == {}
    except ValueError:
        return False


def name_of(entry: Mapping[str, Any]) -> str:
    """Return the name of a listed item. Raises UnreadableReplyError if it has none."""
    if not entry.get("Name"):
        raise UnreadableReplyError("a listing")
    return str(entry["Name"])


def _check_members(
    response: Mapping[str, Any], members: Iterable[str], operation: str
) -> Mapping[str, Any]:
    """Require members in a response; botocore parses anything but JSON as an empty one."""
    if not all(member in response for member in members):
        raise UnreadableReplyError(operation)
    return response
