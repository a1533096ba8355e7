"""One operation for a principal: authorization, audit, hiding, and the call of the namespace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from lance_namespace import DeclareTableRequest, DescribeTableRequest, LanceNamespace
from lance_namespace.errors import (
    LanceNamespaceError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    ThrottlingError,
)
from starlette.datastructures import State

from lance_bridge import locations
from lance_bridge.credentials import acting_for
from lance_bridge.dataset_versions import VersionChanges
from lance_bridge.errors import internal, invalid, is_panic
from lance_bridge.requests import as_model, require_extensions

from .. import lancedb
from ..access.audit import AuditTrail
from ..access.authentication import Principal
from ..access.authorizer import AllowAll, Authorizer, HiddenError, authorize, sees_namespace
from ..access.permissions import (
    LISTINGS,
    Access,
    NamesAsGiven,
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
from ..operations import Answer, Call
from ..queries.calling import Method, call_namespace
from ..queries.pool import CallerQueries
from ..queries.process import Query
from .threads import SingleFlight

T = TypeVar("T")

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
    queries: CallerQueries | None = None
    """Runs queries in processes; None for the thread of the operation."""
    reads: SingleFlight | None = None
    """Merges equal reads."""

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
                result = self._call_namespace(accesses, changes)
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

    def _call_namespace(self, accesses: list[Access], changes: VersionChanges) -> Any:
        operation, namespace, method = self.call.operation, self.namespace, self.method
        if operation.name == "create_table" and self.call.fields.get("location"):
            self._declare()
        if operation.name in LISTINGS and accesses:
            listing = getattr(namespace, operation.name)
            if method is not None:
                listing = partial(method, namespace)
            listing = self._with_client_pages(self._filter_listing(listing, accesses[0]))
            require_extensions(namespace, self.arguments[0])
            return self._read(partial(listing, *self.arguments), changes)
        if self.queries is not None and self._is_query():
            return self._run_query(self.queries, changes)
        call = partial(call_namespace, namespace, operation, self.arguments, method)
        is_small = operation.is_read and operation.answer is not Answer.ROWS
        return self._read(call, changes) if is_small else call()

    def _read(self, call: Callable[[], Any], changes: VersionChanges) -> Any:
        """Return the result of a read, which equal requests of the principal may share."""
        if self.reads is None or self.method is not None:
            return call()
        principal = self.principal
        caller = (principal, principal.token, repr(principal.claims), id(self.namespace))
        request = self.arguments[0].model_dump_json(exclude={"context"})
        key = (self.call.operation, request, *caller)
        result, changes.read = self.reads.run(key, lambda: (call(), changes.read))
        return result

    def _is_query(self) -> bool:
        """Return whether the operation runs in a process. A count of all rows is fast."""
        operation, request = self.call.operation, self.arguments[0]
        is_count = operation.name == "count_table_rows" and not request.predicate
        return operation.is_query and not is_count

    def _run_query(self, queries: CallerQueries, changes: VersionChanges) -> Any:
        rows = next(iter(self.arguments[1:]), None)
        query = Query(
            queries.source,
            self.call.operation,
            self.arguments[0],
            self.principal.name,
            rows if isinstance(rows, bytes) else None,
            has_upload=rows is not None and not isinstance(rows, bytes),
            method=self.method,
        )
        return queries.processes.run(query, queries.run, rows, changes)

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
