"""LanceBridgeNamespace: every operation of the Lance namespace, over any catalog.

Each method here parses its request, calls the function that does the work, and makes the answer.
Operations on entries are in `entries`, those on what is inside a table in `tables`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from lance_namespace import (
    CountTableRowsRequest,
    CountTableRowsResponse,
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    CreateTableRequest,
    CreateTableResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    DropTableRequest,
    DropTableResponse,
    LanceNamespace,
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
    TableExistsRequest,
    TableExistsResponse,
)

from . import config as configuration
from . import identifier
from . import location as locations
from .bridge import Bridge
from .catalog import Capabilities, Catalog, Path, TableRecord
from .entries import listing, modes, namespaces, rename
from .entries import tables as entries
from .entries.properties import visible
from .errors import invalid, unsupported
from .paging import PageRequest
from .tables import create, ipc, read

NamespaceT = TypeVar("NamespaceT", bound="LanceBridgeNamespace")

DELIMITER = "$"
"""Joins the names of an identifier where the API has one string, as in ListAllTables."""


class LanceBridgeNamespace(LanceNamespace):
    """A Lance namespace made out of a catalog. Safe to share between threads.

    A subclass names its ``impl`` and ``config_type`` and opens its catalog. The constructor takes
    the catalog's properties as keywords and makes no call; it raises InvalidInput (13) for bad
    properties. Pickling carries the properties, without the secret ones unless the property
    ``pickle.secrets`` is true; the other side reconnects.
    """

    impl: ClassVar[str]
    config_type: ClassVar[type[configuration.CatalogConfig]]
    configured_name: str | None = None
    """The name by which the configuration file has it. Its pickle reads that name's variables."""

    def __init__(self, **properties: str) -> None:
        config = configuration.load(self.config_type, self.impl, properties)
        if config.root is not None:
            locations.check(locations.join(config.root, "database.db"))
        self._properties = dict(properties)
        self._bridge = Bridge(self._open(config), config)

    @abstractmethod
    def _open(self, config: Any) -> Catalog:
        """Return the catalog for a checked configuration, without calling it."""

    @property
    def capabilities(self) -> Capabilities:
        """What the catalog is and can do."""
        return self._bridge.capabilities

    # -- life ------------------------------------------------------------------------------------

    def namespace_id(self) -> str:
        """Return what this is connected to; equal for equal connections, without secrets."""
        root = self._bridge.config.root
        place = f", root={root}" if root else ""
        return f"{self.impl}({self._bridge.catalog.describe_connection()}{place})"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace_id()}>"

    def close(self) -> None:
        """Let go of connections. The namespace may be used again: it reconnects."""
        self._bridge.catalog.close()

    def __enter__(self: NamespaceT) -> NamespaceT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., LanceBridgeNamespace], tuple[Any, ...]]:
        carried = dict(self._properties)
        if not self._bridge.config.pickle_secrets:
            carried = {k: v for k, v in carried.items() if not self.config_type.is_secret(k)}
        return _reconnect, (type(self), carried, self.configured_name)

    def _namespace(self, names: Sequence[str] | None) -> Path:
        return identifier.parse_namespace(names, self._bridge.capabilities)

    def _table(self, names: Sequence[str] | None) -> Path:
        return identifier.parse_table(names, self._bridge.capabilities)

    # -- namespaces ------------------------------------------------------------------------------

    def create_namespace(self, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
        """Create a namespace. Errors: 1 (of the parent), 2, 3 (Overwrite), 13."""
        path = self._namespace(request.id)
        mode = modes.parse(modes.CreateMode, request.mode, modes.CreateMode.CREATE)
        properties = namespaces.create(self._bridge, path, mode, request.properties)
        return CreateNamespaceResponse(properties=properties)

    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        """List the names of child namespaces, sorted. Errors: 1, 13."""
        path = self._namespace(request.id)
        page = PageRequest.parse(f"namespaces {path}", request.limit, request.page_token)
        names, token = page.cut_names(namespaces.list_children(self._bridge, path))
        return ListNamespacesResponse(namespaces=names, page_token=token)

    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        """Return a namespace's properties. Errors: 1, 13."""
        properties = namespaces.describe(self._bridge, self._namespace(request.id))
        return DescribeNamespaceResponse(properties=properties)

    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        """Return normally where the namespace exists. Errors: 1, 13."""
        namespaces.describe(self._bridge, self._namespace(request.id))
        return NamespaceExistsResponse()

    def drop_namespace(self, request: DropNamespaceRequest) -> DropNamespaceResponse:
        """Drop a namespace. Errors: 1 (Fail), 3, 13, 19 (Cascade)."""
        path = self._namespace(request.id)
        mode = modes.parse(modes.DropMode, request.mode, modes.DropMode.FAIL)
        behavior = modes.parse(modes.DropBehavior, request.behavior, modes.DropBehavior.RESTRICT)
        properties = namespaces.drop(self._bridge, path, mode, behavior)
        return DropNamespaceResponse(properties=properties)

    # -- tables as entries -----------------------------------------------------------------------

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        """Add an entry without data, or repeat one that never got data. Errors: 0, 1, 5, 13, 14."""
        path = self._table(request.id)
        record, options = entries.declare(
            self._bridge,
            path,
            request.location,
            request.properties,
            vend=request.vend_credentials,
        )
        return DeclareTableResponse(
            location=_location(record),
            storage_options=options,
            properties=visible(record.properties),
        )

    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """List the names of a namespace's Lance tables, sorted. Errors: 1, 13."""
        path = identifier.parse_table_namespace(request.id, self._bridge.capabilities)
        page = PageRequest.parse(f"tables {path}", request.limit, request.page_token)
        names, token = listing.list_tables(
            self._bridge, path, page, include_declared=request.include_declared is not False
        )
        return ListTablesResponse(tables=names, page_token=token)

    def list_all_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """List all Lance tables as identifiers joined with ``$``, by namespace. Errors: 13."""
        if request.id:
            raise invalid("ListAllTables takes no identifier: use ListTables for one namespace")
        page = PageRequest.parse("all tables", request.limit, request.page_token)
        paths, token = listing.list_all_tables(
            self._bridge, page, include_declared=request.include_declared is not False
        )
        return ListTablesResponse(tables=[DELIMITER.join(p) for p in paths], page_token=token)

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        """Describe a Lance table. Errors: 0 (tag, branch), 1, 4, 11, 13 (also: not Lance's), 19."""
        path = self._table(request.id)
        _refuse_refs(tag=request.tag, branch=request.branch, version=request.version)
        return read.describe(self._bridge, entries.load_lance(self._bridge, path), request)

    def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        """Return normally where the Lance table exists. Errors: 1, 4, 11, 13, 19."""
        record = entries.load_lance(self._bridge, self._table(request.id))
        read.describe(self._bridge, record, DescribeTableRequest(version=request.version))
        return TableExistsResponse()

    def register_table(self, request: RegisterTableRequest) -> RegisterTableResponse:
        """Add an entry for data that exists. Errors: 0, 1, 5, 13, 14."""
        mode = modes.parse(modes.RegisterMode, request.mode, modes.RegisterMode.CREATE)
        record = entries.register(
            self._bridge,
            self._table(request.id),
            request.location,
            request.properties,
            overwrite=mode is modes.RegisterMode.OVERWRITE,
        )
        return RegisterTableResponse(
            location=_location(record), properties=visible(record.properties)
        )

    def deregister_table(self, request: DeregisterTableRequest) -> DeregisterTableResponse:
        """Remove an entry and no file. Errors: 1, 4, 13."""
        record = entries.deregister(self._bridge, self._table(request.id))
        return DeregisterTableResponse(
            id=list(record.path),
            location=_location(record),
            properties=visible(record.properties),
        )

    def rename_table(self, request: RenameTableRequest) -> RenameTableResponse:
        """Move an entry to another name; its files stay. Errors: 0, 1, 4, 5, 13, 14, 19."""
        path = self._table(request.id)
        namespace = request.new_namespace_id
        target = list(path[:-1]) if namespace is None else namespace
        new_path = self._table([*target, request.new_table_name])
        rename.rename(self._bridge, path, new_path)
        return RenameTableResponse()

    def drop_table(self, request: DropTableRequest) -> DropTableResponse:
        """Remove an entry, then its files. Errors: 1, 4, 13, 15, 16, 17, 19."""
        record = entries.drop(self._bridge, self._table(request.id))
        return DropTableResponse(
            id=list(record.path),
            location=_location(record),
            properties=visible(record.properties),
        )

    # -- tables as data --------------------------------------------------------------------------

    def create_table(self, request: CreateTableRequest, request_data: bytes) -> CreateTableResponse:
        """Create a table from an Arrow IPC stream. Errors: 1, 5, 13, 14, 15, 16, 17."""
        path = self._table(request.id)
        mode = modes.parse(modes.CreateMode, request.mode, modes.CreateMode.CREATE)
        table = create.NewTable(
            path,
            ipc.read_stream(request_data),
            mode,
            request.properties,
            request.storage_options,
        )
        record, version = create.create_table(self._bridge, table)
        return CreateTableResponse(
            location=_location(record),
            version=version,
            storage_options=self._bridge.storage_options(record, vend=None, write=True),
            properties=visible(record.properties),
        )

    def count_table_rows(self, request: CountTableRowsRequest) -> CountTableRowsResponse:
        """Count rows, with a version and a predicate. Errors: 0 (branch), 1, 4, 11, 13, 19."""
        path = self._table(request.id)
        _refuse_refs(branch=request.branch)
        record = entries.load_lance(self._bridge, path)
        count = read.count_rows(self._bridge, record, request.version, request.predicate)
        return CountTableRowsResponse(count=count)


def _reconnect(
    kind: type[LanceBridgeNamespace], properties: dict[str, str], name: str | None
) -> LanceBridgeNamespace:
    found = configuration.environment(kind.config_type, name) if name is not None else {}
    namespace = kind(**{**found, **properties})
    namespace.configured_name = name
    return namespace


def _location(record: TableRecord) -> str | None:
    return locations.for_lance(record.location) if record.location else None


def _refuse_refs(
    tag: str | None = None, branch: str | None = None, version: int | None = None
) -> None:
    if tag is not None and (branch is not None or version is not None):
        raise invalid("`tag` cannot be used together with `version` or `branch`")
    for name, value in (("tag", tag), ("branch", branch)):
        if value is not None:
            raise unsupported(f"Not supported yet: `{name}` of a table")
