"""One operation for a principal: authorization, audit, hiding, and the call of the namespace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from lance_namespace import DeclareTableRequest, DescribeTableRequest, LanceNamespace
from lance_namespace.errors import (
    LanceNamespaceError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    ThrottlingError,
)
from starlette.datastructures import State

from lance_bridge import LanceBridgeNamespace, locations
from lance_bridge.credentials import acting_for
from lance_bridge.errors import internal, invalid, is_panic
from lance_bridge.requests import as_model, require_extensions
from lance_bridge_federated import FederatedNamespace

from .. import lancedb
from ..access.audit import AuditTrail
from ..access.authentication import Principal
from ..access.authorizer import AllowAll, Authorizer, HiddenError, authorize, sees_namespace
from ..access.permissions import (
    LISTINGS,
    Access,
    NamesAsGiven,
    catalog_of,
    paths_of_catalogs,
    required_permissions,
)
from ..access.visibility import (
    VisibleListing,
    answer_hidden,
    authorize_cascade,
    caller_of,
    hide_other_objects,
    hide_storage_options,
)
from ..operations import Answer, Body, Call

T = TypeVar("T")
Method = Callable[[LanceNamespace, Any], Any]
"""Runs a request on a namespace."""

_PIECE_BYTES = 1 << 20
_MOST_BYTES = 1 << 30
"""The most rows for a catalog that takes them as bytes."""
_DECLARED = ("id", "location", "properties")


@dataclass(frozen=True)
class Execution:
    """One operation that runs in a thread, for a principal."""

    authorizer: Authorizer
    namespace: LanceNamespace
    """The namespace object for the principal."""
    principal: Principal
    call: Call
    arguments: list[Any]
    state: State
    """The state of the HTTP request."""
    trail: AuditTrail
    method: Method | None = None
    """Replaces the namespace's own method."""

    def run(self, finish: Callable[[Any], T]) -> T:
        """Run the operation, and return the result of a function on its result."""
        self.state.is_started = True
        try:
            with self.trail.running(self.call.operation):
                result = self._authorize_and_run()
            return finish(result)
        except LanceNamespaceError:
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise internal(self.call.operation.name, error) from error

    def _authorize_and_run(self) -> Any:
        """Authorize the request, then run it."""
        try:
            accesses = self._find_accesses()
            authorize(self.authorizer, self.principal, accesses, self.trail.record)
            if self.call.operation.name == "drop_namespace":
                authorize_cascade(
                    self.authorizer, self.principal, self.call, accesses, self.namespace
                )
        except HiddenError as hidden:
            operation, namespace = self.call.operation, self.namespace
            method = self._with_client_pages(getattr(namespace, operation.name))
            return answer_hidden(namespace, method, operation, self.arguments[0], hidden)
        self.trail.begin(self.call.operation)
        try:
            with (
                acting_for(caller_of(self.authorizer, self.principal, accesses)),
                self.trail.recording_versions() as changes,
            ):
                result = self._call_namespace(accesses[0] if accesses else None)
        except LanceNamespaceError as error:
            answer = hide_other_objects(self.authorizer, error, accesses)
            if answer is error:
                raise
            raise answer from error
        if not self.call.operation.is_read:
            self.trail.note_result(self.arguments[0], result)
        elif self.call.min_version is not None:
            self._require_fresh(self.call.min_version, changes.read)
        return hide_storage_options(self.authorizer, self.principal, accesses, result)

    def _require_fresh(self, least: int, version: int | None) -> None:
        """Check that LanceDB's client reads a new enough version; record it for the response.

        Args:
            least: The oldest version that it accepts.

        Raises:
            ServiceUnavailableError: (17) the latest version of the table is older.
        """
        fields = self.call.fields
        is_latest = not (fields.get("version") or fields.get("tag") or fields.get("branch"))
        if is_latest:
            lancedb.require_min_version(least, version)
            self.state.read_version = version

    def _find_accesses(self) -> list[Access]:
        """Return the accesses of the request.

        Raises:
            HiddenError: The catalog that it names is hidden. Its own error would reveal it.
            LanceNamespaceError: Any other error of the catalog.
        """
        request = self.arguments[0]
        try:
            return required_permissions(self.call, request, self.namespace)
        except LanceNamespaceError:
            for each in required_permissions(self.call, request, NamesAsGiven()):
                for catalog in paths_of_catalogs(self.namespace, each.path):
                    if not sees_namespace(self.authorizer, self.principal, catalog):
                        authorize(self.authorizer, self.principal, [each], self.trail.record)
            raise

    def _call_namespace(self, access: Access | None) -> Any:
        operation, namespace = self.call.operation, self.namespace
        require_extensions(namespace, self.arguments[0])
        reads_rows = operation.answer is Answer.ROWS and self.method is None
        if reads_rows and hasattr(namespace, "query_table_reader"):
            return with_first_batch(namespace.query_table_reader(*self.arguments))
        if operation.body is Body.ROWS and not self._streams_rows():
            self.arguments[1:] = [_read_all(each) for each in self.arguments[1:]]
        method = getattr(namespace, operation.name)
        if self.method is not None:
            method = partial(self.method, namespace)
        if operation.name == "create_table" and self.call.fields.get("location"):
            self._declare()
        if operation.name in LISTINGS and access is not None:
            method = self._with_client_pages(self._filter_listing(method, access))
        return method(*self.arguments)

    def _streams_rows(self) -> bool:
        """Return whether the catalog reads rows from a file; other libraries take bytes."""
        catalog, path = self.namespace, tuple(self.call.id or ())
        while isinstance(catalog, FederatedNamespace) and path:
            catalog, path = catalog_of(catalog, path), path[1:]
        return isinstance(catalog, (FederatedNamespace, LanceBridgeNamespace))

    def _filter_listing(self, method: Callable[..., Any], access: Access) -> Callable[..., Any]:
        """Return a listing method that removes the names that the principal may not see."""
        authorizer, name = self.authorizer, self.call.operation.name
        if type(authorizer) is AllowAll:  # filtering can cost a second call
            return method
        return VisibleListing(authorizer, self.principal, name, access.path, method).page

    def _with_client_pages(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a listing method with the page tokens of the client's protocol."""
        is_by_name = self.call.operation is lancedb.TABLE_NAMES
        return lancedb.pages_by_name(method) if is_by_name else method

    def _declare(self) -> None:
        """Declare a table at the location that a header gives, unless it is declared there.

        Raises:
            TableAlreadyExistsError: (5) the mode is Create, and the table has data or another
                location.
            InvalidInputError: (13) the mode allows an existing table, and it is at another
                location.
            ServiceUnavailableError: (17) the catalog or the storage is unavailable; likewise
                ThrottlingError (21).
        """
        namespace, fields = self.namespace, self.call.fields
        request = as_model(DeclareTableRequest, {key: fields.get(key) for key in _DECLARED})
        try:
            namespace.declare_table(request)
        except TableAlreadyExistsError:
            if (fields.get("mode") or "create").lower() == "create":
                if not self._is_declared(request):
                    raise
                return  # CreateTable completes it, whichever client declared it
            found = namespace.describe_table(DescribeTableRequest(id=request.id)).location
            if locations.key(found or "") != locations.key(request.location or ""):
                raise invalid(f"The table exists at {found}") from None

    def _is_declared(self, request: DeclareTableRequest) -> bool:
        """Return whether a table without data has the name and the location of a request."""
        describe = DescribeTableRequest(id=request.id, check_declared=True, vend_credentials=False)
        try:
            found = self.namespace.describe_table(describe)
        except (ServiceUnavailableError, ThrottlingError):
            raise
        except LanceNamespaceError:
            return False
        is_there = locations.key(found.location or "") == locations.key(request.location or "")
        return is_there and found.is_only_declared is True


def with_first_batch(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Read the first batch, and return a reader of all rows. Raises what reading raises."""
    first = next(iter(reader), None)

    def batches() -> Any:
        if first is not None:
            yield first
            yield from reader

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _read_all(rows: Any) -> bytes:
    """Return rows as bytes. Raises InvalidInput (13) if there are too many of them."""
    if isinstance(rows, bytes):
        return rows
    parts, size = list[bytes](), 0
    while part := rows.read(_PIECE_BYTES):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise invalid(
                f"This catalog takes at most {_MOST_BYTES >> 20} MiB of rows at once: send them in "
                "several requests"
            )
    return b"".join(parts)
