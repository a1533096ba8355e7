"""The gateway: a namespace with authentication, authorization, limits and an audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import anyio
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    ServiceUnavailableError,
    UnauthenticatedError,
)
from starlette.requests import Request

from lance_bridge.names import DELIMITER
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated.children import close_namespace

from .. import lancedb
from ..access.audit import AuditLog, trail_of
from ..access.authentication import Anonymous, Authenticator, Principal
from ..access.authorizer import AllowAll, Authorizer
from ..access.login import Login
from ..access.origins import CorsSettings
from ..monitoring import request_context
from ..operations import Call, Operation
from ..queries.calling import Method
from ..queries.pool import CallerQueries, QueryProcesses, Run
from .callers import RootNamespaces
from .execution import Execution
from .health import CatalogHealth, CatalogState, ReadinessSettings, RunningReads, WatchedCatalog
from .limits import Limits, Slot
from .threads import OperationThreads, SingleFlight, TimeLimit, Use

T = TypeVar("T")

_READERS = 4
"""How many large JSON bodies are parsed at once: Python runs one thread at a time."""


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
        self.readers = anyio.CapacityLimiter(_READERS)
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
    ) -> T:
        """Run one of the operations that a page needs, as requests of clients do.

        Args:
            fields: The fields of the operation's request as JSON values.
            read: Converts the result for the page. It is called in the operation's thread, because
                it reads rows.
            seconds: How long both may take.
            method: Replaces the namespace's own method. It must have the same effect on the same
                object, because only that is authorized.

        Raises:
            LanceNamespaceError: What the operation raises; not found for hidden objects.
        """
        run = Run(seconds)
        work = partial(self.call_sync, request, operation, fields, read, method=method, run=run)
        catalog = self.catalog_of(fields.get("id"))
        return await self.work(request, work, operation, seconds, catalog)

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
    ) -> T:
        """Run work for a request in one of the threads for operations.

        Args:
            operation: The operation that it is part of.
            seconds: How long it may take.
            catalog: As for `run`.

        Raises:
            ServiceUnavailableError: (17) it took longer, or no thread was free.
        """
        limit = TimeLimit(min(seconds, self.limits.operation_seconds))
        return await self.run(request, work, operation, limit, catalog)

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
    ) -> T:
        """Run work as `work` does, within a time that has begun.

        Args:
            catalog: The catalog that it calls, if it calls one.

        Raises:
            CatalogUnavailableError: (17) the catalog does not respond.
        """
        # A request has no slot if it has no principal to count it for.
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
        can_end = operation.is_read and not operation.is_query
        try:
            use = Use(owner, catalog.name)
            with reads.ending() if can_end else nullcontext():
                result = await self._operations.run(work, operation, limit, use, slot)
        except ServiceUnavailableError:
            catalog.suspect()
            raise
        finally:
            slow.cancel()
        catalog.note_answer()
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
