"""The gateway: a namespace with authentication, authorization, limits and an audit log.

Each operation is an `Execution`: it authorizes and records the accesses of a request, calls the
namespace, and hides what its principal may not see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import anyio
from lance_namespace import DeclareTableRequest, DescribeTableRequest, LanceNamespace
from lance_namespace.errors import (
    LanceNamespaceError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    ThrottlingError,
    UnauthenticatedError,
)
from starlette.datastructures import State
from starlette.requests import Request

from lance_bridge import locations
from lance_bridge.credentials import acting_for
from lance_bridge.dotted_names import DELIMITER
from lance_bridge.errors import internal, invalid, is_panic
from lance_bridge.requests import as_model, require_extensions
from lance_bridge.table import ON_OPEN
from lance_bridge.transaction_versions import VersionChanges
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated.children import close_namespace

from .. import lancedb
from ..access.audit import AuditLog, AuditTrail, trail_of
from ..access.authentication import Anonymous, Authenticator, Principal
from ..access.authorizer import AllowAll, Authorizer, HiddenError, authorize, sees_namespace
from ..access.login import Login
from ..access.origins import CorsSettings
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
from ..monitoring import request_context
from ..operations import Answer, Call, Operation
from ..queries.calling import Method, call_namespace
from ..queries.pool import CallerQueries, QueryProcesses
from ..queries.process import Query
from ..queries.runs import Run
from .breakers import (
    CatalogHealth,
    CatalogState,
    CatalogUnavailableError,
    ReadinessSettings,
    RunningReads,
    WatchedCatalog,
)
from .callers import RootNamespaces
from .limits import Limits, Slot
from .threads import FairPlaces, OperationThreads, PacedThread, SingleFlight, TimeLimit, Use

T = TypeVar("T")
HasAnswered = Callable[[Any], bool | None]
"""Returns whether a result shows that its catalog responded; see `Gateway.run`."""

LARGE_BODY = 1 << 20
"""The size of a JSON body of which only few are in memory at once."""
_LARGE_BODIES = 16
"""How many of them: a model takes several times the size of its body."""


def _any_result(_result: object) -> bool:
    return True


@dataclass
class Gateway:
    """Handles requests. Safe to share between threads."""

    namespace: LanceNamespace
    authenticator: Authenticator = field(default_factory=Anonymous)
    authorizer: Authorizer = field(default_factory=AllowAll)
    audit: AuditLog | None = None
    limits: Limits = field(default_factory=Limits)
    databases: lancedb.DatabasePaths = field(default_factory=lancedb.DatabasePaths)
    """The paths of LanceDB's databases."""
    catalogs: Mapping[str, LanceNamespace] = field(default_factory=dict)
    """The catalogs by name; by default the namespace itself, as ``root``."""
    readiness: ReadinessSettings = field(default_factory=ReadinessSettings)
    anonymous_metrics: bool = False
    """Whether metrics are served without credentials."""
    ui: bool = True
    """Whether the catalog page is served."""
    login: Login = field(default_factory=Login)
    """How users sign in to it."""
    cors: CorsSettings | None = None
    hosts: Collection[str] | None = None
    """Host names that are served besides localhost and IP addresses; None for all."""
    callers: RootNamespaces | None = None
    """The namespace of each principal, if any catalog is called as the principal."""
    queries: QueryProcesses | None = None
    """Runs queries; without it, they run in this process."""
    sources: Callable[[Principal], bytes] | None = None
    """Returns a pickled function that connects a principal's namespace, for `queries`."""
    requests: int = 0
    """The number of active requests."""

    def __post_init__(self) -> None:
        self._operations = OperationThreads(self.limits.threads, self.limits.waiting_requests)
        self._reads = SingleFlight()
        self._large_bodies = FairPlaces(_LARGE_BODIES, _LARGE_BODIES)
        self.parsing = PacedThread(self.limits.waiting_requests)
        self.senders = anyio.CapacityLimiter(self.limits.threads)
        self.catalogs = self.catalogs or {"root": self.namespace}
        self.health = CatalogHealth(self.catalogs, self.readiness)
        names = [name for name, each in self.catalogs.items() if each is self.namespace]
        self._root = self.health.catalogs[names[0]] if names else None
        states = self.health.catalogs
        self.watched = {
            name: WatchedCatalog(each, states.values()) for name, each in states.items()
        }
        self._running_reads = {name: RunningReads(each.error) for name, each in states.items()}
        if self.callers is not None:
            self.callers.gates = self.watched
        if isinstance(self.namespace, FederatedNamespace):
            self.namespace.guard(self.watched)

    @property
    def running(self) -> int:
        """How many operations run in threads, including those whose request has timed out.

        A thread that sends the rows of an operation is counted as well: it still reads them.
        """
        return self._operations.running + self.senders.borrowed_tokens

    def close(self) -> None:
        """Close the connections of the catalogs, and the audit log."""
        if self.callers is not None:
            self.callers.close()
        close_namespace(self.namespace)
        self.health.close()
        if self.queries is not None:
            self.queries.close()
        if self.audit is not None:
            self.audit.close()

    @asynccontextmanager
    async def room_for_body(self, principal: Principal, limit: TimeLimit) -> AsyncIterator[None]:
        """Wait until few other requests have a large body in memory.

        Raises:
            ServiceUnavailableError: (17) too many of this principal wait, or it took too long.
        """
        use = Use(principal.name)
        await self._large_bodies.acquire_within(use, limit)
        try:
            yield
        finally:
            self._large_bodies.release(use)

    async def authenticate(self, request: Request) -> Principal:
        """Return the principal of a request.

        Raises:
            UnauthenticatedError: (16) its credentials are wrong, or it has none and needs some.
            ServiceUnavailableError: (17) the service that checks them does not respond.
        """
        principal = await self.authenticator.authenticate(request)
        if principal is None:
            raise UnauthenticatedError("The request has no credentials")
        return principal

    async def call(
        self,
        request: Request,
        operation: Operation,
        fields: Mapping[str, Any],
        read: Callable[[Any], T],
        seconds: float,
        *,
        method: Method | None = None,
        run: Run | None = None,
    ) -> T:
        """Run one of the operations that a page needs, as requests of clients do.

        Args:
            fields: The fields of the operation's request as JSON values.
            read: Converts the result for the page. It is called in the operation's thread, because
                it reads rows.
            seconds: How long both may take.
            method: Replaces the namespace's own method. It must have the same effect on the same
                object, because only that is authorized.
            run: Ends the operation if it is a query.

        Raises:
            LanceNamespaceError: What the operation raises; not found for hidden objects.
        """
        run = run or Run(seconds)
        run.needs_process = operation.is_query and is_long(operation, fields)
        work = partial(self.call_sync, request, operation, fields, read, method=method, run=run)
        catalog = self.catalog_of(fields.get("id"))
        return await self.work(request, work, operation, seconds, catalog, query=run)

    def call_sync(
        self,
        request: Request,
        operation: Operation,
        fields: Mapping[str, Any],
        read: Callable[[Any], T],
        *,
        method: Method | None = None,
        run: Run | None = None,
    ) -> T:
        """Run an operation as `call` does, in the calling thread.

        Args:
            run: Ends the operation if it is a query.

        Raises:
            LanceNamespaceError: What the operation raises; not found for hidden objects.
        """
        call = Call(operation, dict(fields), DELIMITER, request_context(request))
        run = run or Run(self.limits.operation_seconds)
        execution = self.execution(request, call, [call.model()], run)
        return replace(execution, method=method).run(read)

    async def work(
        self,
        request: Request,
        work: Callable[[], T],
        operation: Operation,
        seconds: float,
        catalog: CatalogState | None = None,
        *,
        query: Run | None = None,
        has_answered: HasAnswered = _any_result,
    ) -> T:
        """Run work for a request in one of the threads for operations.

        Args:
            operation: The operation that it is part of.
            seconds: How long it may take.
            catalog: As for `run`.
            query: As for `run`.
            has_answered: As for `run`.

        Raises:
            ServiceUnavailableError: (17) it took longer, or no thread was free.
        """
        limit = TimeLimit(min(seconds, self.limits.operation_seconds))
        return await self.run(
            request, work, operation, limit, catalog, query=query, has_answered=has_answered
        )

    def catalog_of(self, id: Sequence[str] | None) -> CatalogState | None:
        """Return the catalog that an identifier begins with; None for the root of a federation."""
        if isinstance(self.namespace, FederatedNamespace):
            return self.health.catalogs.get(id[0]) if id else None
        return self._root

    def watched_catalog(self, id: Sequence[str]) -> WatchedCatalog | None:
        """Return the catalog that an identifier begins with, for a request about several."""
        catalog = self.catalog_of(id)
        return self.watched[catalog.name] if catalog is not None else None

    def visible_catalogs(self, principal: Principal) -> list[str]:
        """Return the names of the catalogs that a principal may see."""
        names = list(self.catalogs)
        if not isinstance(self.namespace, FederatedNamespace):
            return names
        paths = [(name,) for name in names]
        seen = set(self.authorizer.filter(principal, "list_namespaces", paths))
        return [name for name in names if (name,) in seen]

    async def run(
        self,
        request: Request,
        work: Callable[[], T],
        operation: Operation,
        limit: TimeLimit,
        catalog: CatalogState | None = None,
        *,
        query: Run | None = None,
        has_answered: HasAnswered = _any_result,
    ) -> T:
        """Run work as `work` does, within a time that has begun.

        Args:
            catalog: The catalog that it calls, if it calls one.
            query: Ends the work if it is a query.
            has_answered: Returns whether a result shows that the catalog responded; False if it
                may be down, None if the result does not tell.

        Raises:
            CatalogUnavailableError: (17) the catalog does not respond.
        """
        # A request has a slot if its principal has a limit of all processes.
        slot: Slot | None = getattr(request.state, "slot", None)
        principal: Principal | None = getattr(request.state, "principal", None)
        owner = principal.name if principal else ""
        if catalog is None:
            return await self._operations.run(work, operation, limit, Use(owner), slot)
        catalog.check()
        loop = asyncio.get_running_loop()
        reads = self._running_reads[catalog.name]
        if catalog.on_open is None:
            end = partial(self._end_requests, catalog)
            catalog.on_open = partial(loop.call_soon_threadsafe, end)
        slow = loop.call_later(catalog.timeout, catalog.suspect)
        needs_catalog = None
        if query is not None and operation.is_query:
            ON_OPEN.set(query.note_opened)  # for one that runs in this process
            needs_catalog = query.needs_catalog
        try:
            use = Use(owner, catalog.name, is_query=query is not None and query.needs_process)
            with reads.ending(needs_catalog) if operation.is_read else nullcontext():
                result = await self._operations.run(work, operation, limit, use, slot)
        except ServiceUnavailableError as error:
            catalog.suspect()
            if query is not None and isinstance(error, CatalogUnavailableError):
                query.cancel()
            raise
        finally:
            slow.cancel()
        catalog.note(has_answered(result))
        return result

    def _end_requests(self, catalog: CatalogState) -> None:
        """End the requests that wait for a catalog which does not respond."""
        self._operations.places.refuse(catalog.name, catalog.error)
        self._running_reads[catalog.name].end()

    def execution(self, request: Request, call: Call, arguments: list[Any], run: Run) -> Execution:
        """Return the execution of a call for the principal of a request.

        Args:
            arguments: The request model, and rows.
            run: Ends the call if it is a query.
        """
        principal: Principal = request.state.principal
        queries = None
        if call.operation.is_query and self.queries is not None and self.sources is not None:
            queries = CallerQueries(self.queries, self.sources(principal), run)
        run.needs_process = call.operation.is_query and is_long(call.operation, call.fields)
        return Execution(
            self.authorizer,
            self.callers.of(principal) if self.callers else self.namespace,
            principal,
            call,
            arguments,
            request.state,
            trail_of(request),
            queries=queries,
            reads=self._reads,
        )


# -- execution -------------------------------------------------------------------------------------


_DECLARED = ("id", "location", "properties")


def is_long(query: Operation, fields: Mapping[str, Any]) -> bool:
    """Return whether a query runs in a process. A count of all rows is fast."""
    return query.name != "count_table_rows" or bool(fields.get("predicate"))


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
        if self.queries is not None and is_long(operation, self.call.fields):
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
