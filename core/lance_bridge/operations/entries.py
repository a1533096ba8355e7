"""Operations on namespaces, and on tables as entries of the catalog."""

from __future__ import annotations

import lance_namespace as api
from lance_namespace.errors import TableAlreadyExistsError

from ..dataset import read
from ..dotted_names import DELIMITER
from ..errors import invalid, unsupported
from ..paging import PageRequest
from ..requests import LATEST, CreateMode, DropBehavior, DropMode, Ref, RegisterMode, parse_mode
from ..tables import namespaces
from . import Operations


class EntryOperations(Operations):
    """Create, list, describe, register, rename and drop."""

    # -- namespaces --------------------------------------------------------------------------------

    def create_namespace(self, request: api.CreateNamespaceRequest) -> api.CreateNamespaceResponse:
        """Create a namespace.

        Raises: UnsupportedOperation, NamespaceNotFound (of the parent), NamespaceAlreadyExists,
        NamespaceNotEmpty (Overwrite), InvalidInput.
        """
        path = self._namespace(request.id)
        mode = parse_mode(CreateMode, request.mode, CreateMode.CREATE)
        properties = namespaces.create(self.connection, path, mode, request.properties)
        return api.CreateNamespaceResponse(properties=properties)

    def list_namespaces(self, request: api.ListNamespacesRequest) -> api.ListNamespacesResponse:
        """List the names of child namespaces, sorted. Raises: NamespaceNotFound, InvalidInput."""
        path = self._namespace(request.id)
        page = PageRequest.parse(f"namespaces {path}", request.limit, request.page_token)
        names, token = page.cut_names(namespaces.list_children(self.connection, path))
        return api.ListNamespacesResponse(namespaces=names, page_token=token)

    def describe_namespace(
        self, request: api.DescribeNamespaceRequest
    ) -> api.DescribeNamespaceResponse:
        """Return a namespace's properties. Raises: NamespaceNotFound, InvalidInput."""
        properties = namespaces.describe(self.connection, self._namespace(request.id))
        return api.DescribeNamespaceResponse(properties=properties)

    def namespace_exists(self, request: api.NamespaceExistsRequest) -> api.NamespaceExistsResponse:
        """Return normally where the namespace exists. Raises: NamespaceNotFound, InvalidInput."""
        namespaces.describe(self.connection, self._namespace(request.id))
        return api.NamespaceExistsResponse()

    def drop_namespace(self, request: api.DropNamespaceRequest) -> api.DropNamespaceResponse:
        """Drop a namespace.

        Raises: NamespaceNotFound (Fail), NamespaceNotEmpty, InvalidInput, InvalidTableState
        (Cascade).
        """
        path = self._namespace(request.id)
        mode = parse_mode(DropMode, request.mode, DropMode.FAIL)
        behavior = parse_mode(DropBehavior, request.behavior, DropBehavior.RESTRICT)
        properties = namespaces.drop(self.connection, path, mode, behavior)
        return api.DropNamespaceResponse(properties=properties)

    # -- tables as entries -------------------------------------------------------------------------

    def declare_table(self, request: api.DeclareTableRequest) -> api.DeclareTableResponse:
        """Add an entry without data, or repeat one that never got data.

        Raises: UnsupportedOperation, NamespaceNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, InvalidTableState (managed).
        """
        path = self.tables.path_of(request.id)
        table, options = self.tables.declare(
            path, request.location, request.properties, vend=request.vend_credentials
        )
        return api.DeclareTableResponse(
            location=table.uri,
            storage_options=options,
            properties=table.properties,
            managed_versioning=True if table.managed is not None else None,
        )

    def create_empty_table(
        self, request: api.CreateEmptyTableRequest
    ) -> api.CreateEmptyTableResponse:
        """Do as `declare_table`, which replaces this operation.

        ExistOk returns an existing table unchanged; Overwrite is not supported.

        Raises: UnsupportedOperation, NamespaceNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, InvalidTableState.
        """
        mode = parse_mode(CreateMode, request.mode, CreateMode.CREATE)
        if mode is CreateMode.OVERWRITE:
            raise unsupported("CreateEmptyTable overwrites nothing: use CreateTable for that")
        path = self.tables.path_of(request.id)
        try:
            table, options = self.tables.declare(path, None, request.properties)
        except TableAlreadyExistsError:
            if mode is CreateMode.CREATE:
                raise
            table = self.tables.load_by_id(request.id)
            options = table.answer_options(vend=None, write=True)
        return api.CreateEmptyTableResponse(
            location=table.uri, storage_options=options, properties=table.properties
        )

    def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        """List the names of a namespace's Lance tables, sorted.

        Raises: NamespaceNotFound, InvalidInput.
        """
        path = self.connection.table_namespace_path(request.id)
        page = PageRequest.parse(f"tables {path}", request.limit, request.page_token)
        names, token = self.tables.list(
            path, page, include_declared=request.include_declared is not False
        )
        return api.ListTablesResponse(tables=names, page_token=token)

    def list_all_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        """List all Lance tables as identifiers joined with ``$``, by namespace.

        Raises: InvalidInput.
        """
        if request.id:
            raise invalid("ListAllTables takes no identifier: use ListTables for one namespace")
        page = PageRequest.parse("all tables", request.limit, request.page_token)
        paths, token = self.tables.list_all(
            page, include_declared=request.include_declared is not False
        )
        return api.ListTablesResponse(tables=[DELIMITER.join(p) for p in paths], page_token=token)

    def describe_table(self, request: api.DescribeTableRequest) -> api.DescribeTableResponse:
        """Describe a Lance table.

        Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, TableVersionNotFound,
        InvalidInput (also: not Lance's), InvalidTableState, TableBranchNotFound.
        """
        return read.describe(self.tables.load_by_id(request.id), request)

    def table_exists(self, request: api.TableExistsRequest) -> api.TableExistsResponse:
        """Return normally where the Lance table exists.

        Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, InvalidInput,
        InvalidTableState.
        """
        table = self.tables.load_by_id(request.id)
        ref = Ref.of(request.version)
        if ref != LATEST:
            table.open(ref)
        return api.TableExistsResponse()

    def register_table(self, request: api.RegisterTableRequest) -> api.RegisterTableResponse:
        """Add an entry for data that exists.

        Raises: UnsupportedOperation, NamespaceNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, InvalidTableState.
        """
        mode = parse_mode(RegisterMode, request.mode, RegisterMode.CREATE)
        table = self.tables.add(
            self.tables.path_of(request.id),
            request.location,
            request.properties,
            overwrite=mode is RegisterMode.OVERWRITE,
        )
        return api.RegisterTableResponse(location=table.uri, properties=table.properties)

    def deregister_table(self, request: api.DeregisterTableRequest) -> api.DeregisterTableResponse:
        """Remove an entry and no file.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification (managed).
        """
        entry = self.tables.remove(self.tables.path_of(request.id))
        return api.DeregisterTableResponse(
            id=list(entry.path),
            location=entry.uri if entry.location else None,
            properties=entry.properties,
        )

    def rename_table(self, request: api.RenameTableRequest) -> api.RenameTableResponse:
        """Move an entry to another name; its files stay.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableAlreadyExists,
        InvalidInput, ConcurrentModification, InvalidTableState.
        """
        path = self.tables.path_of(request.id)
        namespace = request.new_namespace_id
        target = list(path[:-1]) if namespace is None else namespace
        new_path = self.tables.path_of([*target, request.new_table_name])
        self.tables.rename(path, new_path)
        return api.RenameTableResponse()

    def drop_table(self, request: api.DropTableRequest) -> api.DropTableResponse:
        """Remove an entry, then its files.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, PermissionDenied, Unauthenticated,
        ServiceUnavailable, InvalidTableState.
        """
        table = self.tables.drop(self.tables.path_of(request.id))
        return api.DropTableResponse(
            id=list(table.path), location=table.uri, properties=table.properties
        )
