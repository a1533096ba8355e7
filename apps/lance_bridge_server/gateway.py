"""The gateway: a namespace with authentication, authorization, limits and an audit log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import anyio
import pyarrow as pa
from lance_namespace import DeclareTableRequest, DescribeTableRequest, LanceNamespace
from lance_namespace.errors import (
    ErrorCode,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    ThrottlingError,
    UnauthenticatedError,
)
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lance_bridge import locations
from lance_bridge.credentials import acting_for
from lance_bridge.errors import internal, invalid, is_panic
from lance_bridge.extended_requests import require_extensions
from lance_bridge.names import DELIMITER
from lance_bridge.requests import as_model
from lance_bridge_federated.children import close_namespace

from . import lancedb
from .audit import AuditLog, AuditTrail, trail_of
from .authorization.accesses import (
    LISTINGS,
    Access,
    NamesAsGiven,
    accesses_of,
    paths_of_catalogs,
)
from .authorization.cascade import authorize_cascade
from .authorization.hiding import answer_hidden, hide_other_objects
from .authorization.port import AllowAll, Authorizer, HiddenError, authorize, sees_namespace
from .authorization.visible_listing import VisibleListing
from .callers import RootNamespaces
from .calls import Call, check_batch, read_call, receive_within, request_context, run_by_size
from .cors import CorsSettings
from .credentials import caller_of, hide_storage_options, no_store
from .errors import public_text
from .limits import Limits, Slot
from .login import Login
from .monitoring.health import CatalogHealth, ReadinessSettings
from .operation_threads import OperationThreads, TimeLimit, requested_seconds
from .operations import Answer, Body, Operation
from .principals import Anonymous, Authenticator, Principal
from .sql_functions import refuse_functions
from .streams import ARROW_FILE, ARROW_STREAM, RowsResponse, UploadedFile, with_first_batch

T = TypeVar("T")
Method = Callable[[LanceNamespace, Any], Any]
"""Runs a request on a namespace."""

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
    requests: int = 0
    """The number of active requests."""

    def __post_init__(self) -> None:
        self._operations = OperationThreads(self.limits.threads)
        self._readers = anyio.CapacityLimiter(_READERS)
        self.senders = anyio.CapacityLimiter(self.limits.threads)
        self.catalogs = self.catalogs or {"root": self.namespace}
        self.health = CatalogHealth(self.catalogs, self.readiness)

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

    async def answer(self, request: Request, operation: Operation) -> Response:
        """Handle one request, and return its response.

        Raises:
            LanceNamespaceError: What the operation raises; not found for hidden objects.
        """
        principal: Principal = request.state.principal
        limits = self.limits
        limit = TimeLimit(min(limits.operation_seconds, requested_seconds(request.headers)))
        body_bytes = limits.body_bytes_of(principal)
        body_seconds = min(limits.stall_seconds, limit.seconds)
        readers = self._readers
        call = await read_call(request, operation, body_bytes, body_seconds, readers)
        is_lancedb = lancedb.is_lancedb(request)
        prepare = partial(self._prepare, request, call, is_lancedb=is_lancedb)
        call, model = await run_by_size(call.size, prepare, readers)
        arguments: list[Any] = [model]
        if operation.body is Body.ROWS:
            upload = UploadedFile(request, limits.stall_seconds, limits.batch_bytes)
            with receive_within(limit.remaining):
                small = await upload.read_small()
            arguments.append(upload if small is None else small)
        run = self._make_run(request, call, arguments, is_lancedb=is_lancedb)
        work = partial(run.carry_out, partial(run.respond, limit))
        return await self._operations.run(work, call.operation, limit, _slot_of(request))

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
        """Run one of the operations that a page needs, as `answer` does for clients.

        Args:
            fields: The fields of the operation's request as JSON values.
            read: Converts the result for the page. It is called in the operation's thread, because
                it reads rows.
            seconds: How long both may take.
            method: Replaces the namespace's own method. It must have the same effect on the same
                object, because only that is authorized.

        Raises:
            LanceNamespaceError: As `answer`.
        """
        work = partial(self.call_here, request, operation, fields, read, method=method)
        return await self.work(request, work, operation, seconds)

    def call_here(
        self,
        request: Request,
        operation: Operation,
        fields: Mapping[str, Any],
        read: Callable[[Any], T],
        *,
        method: Method | None = None,
    ) -> T:
        """Run an operation as `call` does, in the calling thread.

        Raises:
            LanceNamespaceError: As `answer`.
        """
        call = Call(operation, dict(fields), DELIMITER, request_context(request))
        refuse_functions(call.fields)
        run = replace(self._make_run(request, call, [call.model()]), method=method)
        return run.carry_out(read)

    async def work(
        self, request: Request, work: Callable[[], T], operation: Operation, seconds: float
    ) -> T:
        """Run work for a request in one of the threads for operations.

        Args:
            operation: The operation that it is part of.
            seconds: How long it may take.

        Raises:
            ServiceUnavailableError: (17) it took longer, or no thread was free.
        """
        limit = TimeLimit(min(seconds, self.limits.operation_seconds))
        return await self._operations.run(work, operation, limit, _slot_of(request))

    def _make_run(
        self, request: Request, call: Call, arguments: list[Any], *, is_lancedb: bool = False
    ) -> _Run:
        principal: Principal = request.state.principal
        namespace = self.callers.of(principal) if self.callers else self.namespace
        state, trail = request.state, trail_of(request)
        least = lancedb.min_version(request.headers) if is_lancedb else 0
        return _Run(self, namespace, principal, call, arguments, is_lancedb, least, state, trail)

    def _prepare(self, request: Request, call: Call, *, is_lancedb: bool) -> tuple[Call, Any]:
        """Return the call translated for the namespace, and its request model."""
        call = self._translate_lancedb(request, call, is_lancedb=is_lancedb)
        check_batch(call, self.limits.batch_entries)
        refuse_functions(call.fields)
        return call, call.model()

    def _translate_lancedb(self, request: Request, call: Call, *, is_lancedb: bool) -> Call:
        """Translate a call of LanceDB's client, and prepend the path of its database."""
        operation, fields = call.operation, call.fields
        if is_lancedb:
            fields = lancedb.translate_request(operation.name, fields)
        path = lancedb.database_of(request, self.databases)
        if path is None:
            return replace(call, fields=fields)
        if operation.name == "list_all_tables":
            operation = lancedb.TABLE_NAMES
        fields = lancedb.in_database(path, operation.name, fields)
        return replace(call, operation=operation, fields=fields)


@dataclass(frozen=True)
class _Run:
    """One operation that runs in a thread."""

    gateway: Gateway
    namespace: LanceNamespace
    """The namespace object of the gateway for the principal."""
    principal: Principal
    call: Call
    arguments: list[Any]
    is_lancedb: bool
    min_version: int
    """The oldest version that LanceDB's client accepts."""
    state: State
    """The state of the HTTP request."""
    trail: AuditTrail
    method: Method | None = None
    """Replaces the namespace's own method."""

    def carry_out(self, finish: Callable[[Any], T]) -> T:
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
        gateway = self.gateway
        try:
            accesses = self._find_accesses()
            authorize(gateway.authorizer, self.principal, accesses, self.trail.record)
            authorize_cascade(
                gateway.authorizer, self.principal, self.call, accesses, self.namespace
            )
        except HiddenError as hidden:
            operation, namespace = self.call.operation, self.namespace
            method = self._with_client_pages(getattr(namespace, operation.name))
            return answer_hidden(namespace, method, operation, self.arguments[0], hidden)
        self.trail.begin(self.call.operation)
        try:
            with (
                acting_for(caller_of(gateway.authorizer, self.principal, accesses)),
                self.trail.recording_versions() as changes,
            ):
                result = self._call_namespace(accesses[0] if accesses else None)
        except LanceNamespaceError as error:
            answer = hide_other_objects(gateway.authorizer, error, accesses)
            if answer is error:
                raise
            raise answer from error
        self._require_fresh(changes.read)
        self.trail.note_result(self.arguments[0], result)
        return hide_storage_options(gateway.authorizer, self.principal, accesses, result)

    def _require_fresh(self, version: int | None) -> None:
        """Check that LanceDB's client reads a new enough version; record it for the response.

        Raises:
            ServiceUnavailableError: (17) the latest version of the table is older.
        """
        fields = self.call.fields
        is_latest = not (fields.get("version") or fields.get("tag") or fields.get("branch"))
        if self.is_lancedb and self.call.operation.is_read and is_latest:
            lancedb.require_min_version(self.min_version, version)
            self.state.read_version = version

    def _find_accesses(self) -> list[Access]:
        """Return the accesses of the request.

        Raises:
            HiddenError: The catalog that it names is hidden. Its own error would reveal it.
            LanceNamespaceError: Any other error of the catalog.
        """
        gateway, request = self.gateway, self.arguments[0]
        try:
            return accesses_of(self.call, request, self.namespace)
        except LanceNamespaceError:
            for each in accesses_of(self.call, request, NamesAsGiven()):
                for catalog in paths_of_catalogs(self.namespace, each.path):
                    if not sees_namespace(gateway.authorizer, self.principal, catalog):
                        authorize(gateway.authorizer, self.principal, [each], self.trail.record)
            raise

    def _call_namespace(self, access: Access | None) -> Any:
        operation, namespace = self.call.operation, self.namespace
        require_extensions(namespace, self.arguments[0])
        reads_rows = operation.answer is Answer.ROWS and self.method is None
        if reads_rows and hasattr(namespace, "query_table_reader"):
            return with_first_batch(namespace.query_table_reader(*self.arguments))
        method = getattr(namespace, operation.name)
        if self.method is not None:
            method = partial(self.method, namespace)
        if operation.name == "create_table" and self.call.fields.get("location"):
            self._declare()
        if operation.name in LISTINGS and access is not None:
            method = self._with_client_pages(self._filter_listing(method, access))
        return method(*self.arguments)

    def _filter_listing(self, method: Callable[..., Any], access: Access) -> Callable[..., Any]:
        """Return a listing method that removes the names that the principal may not see."""
        authorizer, name = self.gateway.authorizer, self.call.operation.name
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

    def respond(self, limit: TimeLimit, result: Any) -> Response:
        """Return the response for a client of the API."""
        operation = self.call.operation
        if operation.answer is Answer.EMPTY:
            return Response(status_code=operation.status)
        if operation.answer is Answer.ROWS:
            return self._rows_response(limit, result)
        content = _to_json(result)
        if operation.name == "list_all_tables" and self.call.delimiter != DELIMITER:
            content["tables"] = [
                name.replace(DELIMITER, self.call.delimiter) for name in content["tables"]
            ]
        if operation.answer is Answer.METADATA:
            content = content.get("metadata", {}) if isinstance(content, dict) else content
        elif operation.answer is Answer.VALUE and isinstance(content, dict):
            content = content["count"]
        headers = no_store(content)
        if self.is_lancedb:
            content = lancedb.translate_answer(
                self.namespace, operation.name, self.arguments[0], content
            )
            headers |= self._version_header(content)
        return JSONResponse(content, operation.status, headers)

    def _version_header(self, answer: Any = None) -> dict[str, str]:
        version = lancedb.version_of(answer) or getattr(self.state, "read_version", None)
        return lancedb.version_header(version)

    def _rows_response(self, limit: TimeLimit, result: Any) -> Response:
        if isinstance(result, pa.RecordBatchReader):
            media_type = ARROW_STREAM if self.is_lancedb else ARROW_FILE
            gateway = self.gateway
            headers = self._version_header()
            seconds, senders = gateway.limits.stall_seconds, gateway.senders
            return RowsResponse(result, media_type, seconds, senders, limit, headers=headers)
        return Response(result if isinstance(result, bytes) else result.data, media_type=ARROW_FILE)


def _slot_of(request: Request) -> Slot | None:
    """Return the slot of a request, or None if it has no principal to count it for."""
    slot: Slot | None = getattr(request.state, "slot", None)
    return slot


_DECLARED = ("id", "location", "properties")


def _to_json(result: Any) -> Any:
    if hasattr(result, "model_dump"):
        content = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        context = content.get("context")  # where a federation reports unavailable catalogs
        if context:
            unavailable = ErrorCode.SERVICE_UNAVAILABLE
            content["context"] = {
                key: public_text(text, unavailable) for key, text in context.items()
            }
        return content
    return result
