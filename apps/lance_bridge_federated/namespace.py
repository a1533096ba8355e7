"""FederatedNamespace: every operation of the Lance namespace, over several namespaces.

A new operation of the trait is delegated as soon as the trait has it. All fields of its models
except identifiers and page tokens are passed on unchanged. Before files are deleted, the other
catalogs are asked whether they have an entry for them.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import lance_namespace as api
import pyarrow as pa
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError
from pydantic import BaseModel

from lance_bridge.catalog import Path, TableRecord
from lance_bridge.errors import (
    display,
    invalid,
    mark_missing,
    marking_other_entries,
    unsupported,
)
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.native_errors import readable_errors
from lance_bridge.paging import PageRequest, decode_token, encode_token
from lance_bridge.requests import DropBehavior, as_model, require_extensions

from . import listing
from .children import IMPL, Child, Connect, Gate, children_from
from .identifiers import check_catalog_name, errors_of, ids_in, map_ids, split, with_text

NamespaceT = TypeVar("NamespaceT", bound=type[LanceNamespace])


def operations() -> Iterator[str]:
    """Yield the operations of the trait: its methods with a ``request`` parameter."""
    for name, function in inspect.getmembers(LanceNamespace, inspect.isfunction):
        if not name.startswith("_") and "request" in inspect.signature(function).parameters:
            yield name


@functools.cache
def request_type(operation: str) -> type[Any]:
    """Return the type of an operation's request."""
    found: type[Any] = typing.get_type_hints(getattr(LanceNamespace, operation))["request"]
    return found


def delegates(cls: NamespaceT) -> NamespaceT:
    """Add each operation of the trait that a class does not define, as a call of `delegate`.

    It takes the operation's name, the request, and the operation's other argument, if it has one.
    """
    for name in operations():
        if name not in vars(cls):
            setattr(cls, name, _create_method(name))
    return cls


def _create_method(name: str) -> Callable[..., Any]:
    function = getattr(LanceNamespace, name)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def operation(*arguments: Any, **named: Any) -> Any:
        namespace, request, *rows = signature.bind(*arguments, **named).args
        return namespace.delegate(name, request, *rows)

    return operation


@delegates
class FederatedNamespace(LanceNamespace):
    """A Lance namespace over several others, its catalogs. Safe to share between threads.

    The children of its root are the catalogs: ``["prod", "sales", "orders"]`` is the table
    ``["sales", "orders"]`` of the catalog ``prod``. An operation is answered by the catalog that
    its identifier begins with; a request with identifiers of several raises InvalidInput (13).

    Args:
        catalogs: Name to namespace, or to a function that makes it when it is first used. Its
            calls must be safe to share between threads, too.
        properties: ``catalogs``, names in the configuration file, joined with commas;
            ``catalog.<name>.impl`` and other properties of a catalog. Without any, it has all
            catalogs of the configuration file. No catalog is called.

    Raises:
        InvalidInputError: (13) a property or a name is wrong.
        UnsupportedOperationError: (0) a catalog needs an extra that is not installed.
    """

    def __init__(
        self,
        catalogs: Mapping[str, LanceNamespace | Connect] | None = None,
        /,
        **properties: str,
    ) -> None:
        if catalogs is None:
            children = children_from(properties, FederatedNamespace)
        elif properties:
            raise invalid(f"impl={IMPL} takes catalogs as objects or as properties, not both")
        else:
            children = {name: Child(name, source) for name, source in catalogs.items()}
        if not children:
            raise invalid(f"impl={IMPL} needs at least one catalog")
        for name in children:
            check_catalog_name(name)
        self._children = dict(sorted(children.items()))

    # -- catalogs ----------------------------------------------------------------------------------

    @property
    def catalogs(self) -> list[str]:
        """The names of the catalogs, sorted."""
        return list(self._children)

    @property
    def children(self) -> list[Child]:
        """The catalogs, each of which is connected when it is first used."""
        return list(self._children.values())

    def guard(self, gates: Mapping[str, Gate]) -> None:
        """Set what is consulted before each use of a catalog, by its name, in place of probes.

        Pickling and copying leave it out.
        """
        for child in self.children:
            child.gate = gates.get(child.name)

    def child(self, catalog: str) -> LanceNamespace:
        """Return a catalog's own namespace, which takes identifiers without the catalog's name.

        Raises:
            NamespaceNotFoundError: (1) there is no such catalog.
            LanceNamespaceError: it cannot be connected.
        """
        child = self._child(catalog)
        with errors_of(catalog, "connect", [[]]):
            return child.namespace()

    def _child(self, catalog: str) -> Child:
        if catalog not in self._children:
            error = NamespaceNotFoundError(
                f"Namespace not found: {catalog}. No catalog has this name: list the namespaces of "
                "the root"
            )
            raise mark_missing(error, (catalog,))
        return self._children[catalog]

    def table_path(self, names: Sequence[str]) -> Path:
        """Return the path of the table that an identifier names, as its catalog interprets it.

        All identifiers of a table have the same path. Those of a catalog that does not exist are
        unchanged. Raises InvalidInput (13), and the errors of connecting the catalog.
        """
        return self._path(names, "table_path")

    def namespace_path(self, names: Sequence[str] | None, *, of_tables: bool = False) -> Path:
        """Return the path of the namespace that an identifier names, like `table_path`.

        Args:
            of_tables: Whether its tables are listed.
        """
        return self._path(names or (), "namespace_path", of_tables=of_tables)

    def _path(self, names: Sequence[str], method: str, **options: bool) -> Path:
        if not names or names[0] not in self._children:
            return tuple(names)
        catalog, *rest = names
        resolve = getattr(self.child(catalog), method, None)
        if resolve is not None:
            return (catalog, *resolve(rest, **options))
        if any("$" in name for name in rest):
            raise invalid("A name contains '$', which joins names in this catalog")
        return tuple(names)

    # -- delegation --------------------------------------------------------------------------------

    def delegate(self, operation: str, request: Any, *rows: Any) -> Any:
        """Send a request to the catalog that it names; return the response.

        Args:
            operation: The name of a method of the trait.
            request: Its request, as a model or a mapping.
            rows: The operation's other argument, if it has one.

        Raises:
            InvalidInputError: (13) the request is malformed, has no identifier, or has identifiers
                of several catalogs.
            NamespaceNotFoundError: (1) there is no such catalog.
            LanceNamespaceError: what the catalog raises, with its name in the message.
        """
        return self._delegate(operation, as_model(request_type(operation), request), *rows)

    def _delegate(self, operation: str, request: BaseModel, *rows: Any) -> Any:
        catalog, inner = split(request)
        child = self._child(catalog)
        token = getattr(inner, "page_token", None)
        if token:
            own, *_ = decode_token(_scope(catalog), token)
            inner = inner.model_copy(update={"page_token": own})
        with errors_of(catalog, operation, list(ids_in(inner))):
            namespace = child.namespace()
            require_extensions(namespace, inner)
            with _readable_errors_of(namespace, operation, inner):
                response = getattr(namespace, operation)(inner, *rows)
        return _with_catalog(response, catalog) if isinstance(response, BaseModel) else response

    def query_table_reader(self, request: api.QueryTableRequest) -> pa.RecordBatchReader:
        """Return a reader of a query's result, which may exceed memory. Not in the specification.

        The result of a catalog that is not lance-bridge's own is in memory as a whole.

        Raises what `query_table` raises.
        """
        model = as_model(api.QueryTableRequest, request)
        catalog, _ = split(model)
        if hasattr(self.child(catalog), "query_table_reader"):
            reader: pa.RecordBatchReader = self._delegate("query_table_reader", model)
            return reader
        response = self._delegate("query_table", model)
        file = pa.ipc.open_file(getattr(response, "data", response))
        batches = (file.get_batch(number) for number in range(file.num_record_batches))
        return pa.RecordBatchReader.from_batches(file.schema, batches)

    # -- operations on the root and on catalogs ----------------------------------------------------

    def list_namespaces(self, request: api.ListNamespacesRequest) -> api.ListNamespacesResponse:
        """List the names of child namespaces; those of the root are the catalogs.

        A catalog that does not respond is among them. Raises: NamespaceNotFound, InvalidInput.
        """
        model = as_model(api.ListNamespacesRequest, request)
        if model.id:
            response: api.ListNamespacesResponse = self._delegate("list_namespaces", model)
            return response
        page = PageRequest.parse("catalogs", model.limit, model.page_token)
        names, token = page.cut_names(self.catalogs)
        return api.ListNamespacesResponse(namespaces=names, page_token=token)

    def describe_namespace(
        self, request: api.DescribeNamespaceRequest
    ) -> api.DescribeNamespaceResponse:
        """Return a namespace's properties; the root has none.

        Raises: NamespaceNotFound, InvalidInput.
        """
        model = as_model(api.DescribeNamespaceRequest, request)
        if not model.id:
            return api.DescribeNamespaceResponse(properties={})
        response: api.DescribeNamespaceResponse = self._delegate("describe_namespace", model)
        return response

    def namespace_exists(self, request: api.NamespaceExistsRequest) -> api.NamespaceExistsResponse:
        """Return normally where the namespace exists. Raises: NamespaceNotFound, InvalidInput."""
        model = as_model(api.NamespaceExistsRequest, request)
        if not model.id:
            return api.NamespaceExistsResponse()
        response: api.NamespaceExistsResponse = self._delegate("namespace_exists", model)
        return response

    def create_namespace(self, request: api.CreateNamespaceRequest) -> api.CreateNamespaceResponse:
        """Create a namespace in a catalog. Raises what the catalog does, and Unsupported."""
        model = as_model(api.CreateNamespaceRequest, request)
        _refuse_to_change_catalogs("created", model.id)
        response: api.CreateNamespaceResponse = self._delegate("create_namespace", model)
        return response

    def drop_namespace(self, request: api.DropNamespaceRequest) -> api.DropNamespaceResponse:
        """Drop a namespace of a catalog. Raises what the catalog does, and Unsupported.

        With `Cascade`, the other catalogs are read first, as for `drop_table`.
        """
        model = as_model(api.DropNamespaceRequest, request)
        _refuse_to_change_catalogs("dropped", model.id)
        if (model.behavior or "").lower() == DropBehavior.CASCADE.value.lower():
            self._require_unshared(model, _entries_below)
        response: api.DropNamespaceResponse = self._delegate("drop_namespace", model)
        return response

    def drop_table(self, request: api.DropTableRequest) -> api.DropTableResponse:
        """Drop a table of a catalog, unless another catalog has an entry for its files.

        Raises what the catalog does, and InvalidTableState, or what another catalog raises that
        cannot be read; nothing is changed then.
        """
        model = as_model(api.DropTableRequest, request)
        self._require_unshared(model, _entries_of_table)
        response: api.DropTableResponse = self._delegate("drop_table", model)
        return response

    def _require_unshared(
        self,
        request: BaseModel,
        entries: Callable[[LanceNamespace, Sequence[str] | None], list[TableRecord]],
    ) -> None:
        """Check that no other catalog needs the files that a request deletes."""
        catalog, inner = split(request)
        others = [each for name, each in self._children.items() if name != catalog]
        others = list(filter(_may_have_entries, others))
        if not others:
            return
        child, id = self._child(catalog), getattr(inner, "id", None)
        with errors_of(catalog, "find what is dropped", list(ids_in(inner))):
            owner = child.namespace()
            with _readable_errors_of(owner, "drop_table", inner):
                found = entries(owner, id)
        if found:
            _require_unshared_with([catalog, *(id or ())], owner, found, others)

    def list_all_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        """List the tables of all catalogs as identifiers joined with ``$``, by catalog.

        A catalog that does not respond is left out: the response's ``context`` has the key
        ``unavailable.<catalog>``, whose value says why.

        Raises: InvalidInput.
        """
        model = as_model(api.ListTablesRequest, request)
        if model.id:
            raise invalid("ListAllTables takes no identifier: use ListTables for one namespace")
        return listing.list_all(self._children, model)

    # -- lifecycle ---------------------------------------------------------------------------------

    def namespace_id(self) -> str:
        """Return what this is connected to; equal for equal connections, without secrets."""
        parts = (f"{name}={child.identity()}" for name, child in self._children.items())
        return f"{IMPL}({', '.join(parts)})"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self.__dict__.get('_children', ()))}>"

    def close(self) -> None:
        """Close the connections of the catalogs. They may be used again, and reconnect."""
        for child in self._children.values():
            child.close()

    def __enter__(self) -> FederatedNamespace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_children": self._children}


def _readable_errors_of(
    namespace: LanceNamespace, operation: str, request: BaseModel
) -> AbstractContextManager[None]:
    """Return what translates the errors of another library's catalog."""
    if isinstance(namespace, LanceBridgeNamespace):
        return nullcontext()
    return readable_errors(operation, getattr(request, "id", None) or ())


def _scope(catalog: str) -> str:
    return f"a listing of the catalog {catalog}"


def _with_catalog(response: BaseModel, catalog: str) -> BaseModel:
    """Return a catalog's response with its name in all identifiers, and in the page token."""
    full = map_ids(response, lambda each: [catalog, *each])
    token = getattr(full, "page_token", None)
    if token:
        full = full.model_copy(update={"page_token": encode_token(_scope(catalog), (token,))})
    return full


def _refuse_to_change_catalogs(changed: str, names: list[str] | None) -> None:
    if not names:
        raise invalid(f"The root namespace cannot be {changed}")
    if len(names) == 1:
        raise unsupported(
            f"The catalog '{names[0]}' cannot be {changed}: the catalogs of a federation are those "
            "of its configuration"
        )


# -- files that catalogs share ---------------------------------------------------------------------


def _may_have_entries(child: Child) -> bool:
    """Return whether a catalog's entries can be read by location, as far as is known by now."""
    made = child.made
    if made is None:
        return not child.is_native
    inner = getattr(made, "children", ())
    return isinstance(made, LanceBridgeNamespace) or any(map(_may_have_entries, inner))


def _entries_of_table(namespace: LanceNamespace, id: Sequence[str] | None) -> list[TableRecord]:
    """Return the entry of a table that is to be dropped; none if it has no location.

    Of a namespace of another library, only the location is known.

    Raises:
        LanceNamespaceError: what finding the table raises.
    """
    if isinstance(namespace, LanceBridgeNamespace):
        return [namespace.tables.load_by_id(id).record]
    found = namespace.describe_table(api.DescribeTableRequest(id=list(id or ())))
    return [TableRecord(tuple(id or ()), found.location)] if found.location else []


def _entries_below(namespace: LanceNamespace, id: Sequence[str] | None) -> list[TableRecord]:
    """Return the entries of a namespace that is to be dropped with its tables.

    There are none if it does not exist, or is one of another library: pylance's own do not drop
    the tables of a namespace.
    """
    if not isinstance(namespace, LanceBridgeNamespace):
        return []
    try:
        return [each.record for each in namespace.tables.scan_below(namespace.namespace_path(id))]
    except NamespaceNotFoundError:
        return []


def _require_unshared_with(
    dropped: Sequence[str],
    owner: LanceNamespace,
    entries: Sequence[TableRecord],
    others: Iterable[Child],
) -> None:
    """Check that no entry of other catalogs overlaps the locations of tables to drop.

    Each catalog is read as its own `drop.check-sharing` says. Those of other libraries cannot be
    searched for a location, and are left out.

    Args:
        dropped: The identifier of what is to be dropped, with its catalog.
        owner: That catalog's namespace.
        entries: The entries in it whose files would be deleted.

    Raises:
        InvalidTableStateError: (19) an entry does, or may do so and cannot be read.
        LanceNamespaceError: a catalog cannot be read, by its own error.
    """
    for child in others:
        with marking_other_entries():
            try:
                with errors_of(child.name, "check its entries", [[]]):
                    _require_unshared_in(child.namespace(), owner, entries)
            except LanceNamespaceError as error:
                raise with_text(
                    error,
                    f"'{display(dropped)}' is not dropped, and no file is deleted, because of the "
                    f"catalog '{child.name}' of this federation, which may need these files: "
                    f"{error}. DeregisterTable removes an entry alone",
                ) from error


def _require_unshared_in(
    namespace: LanceNamespace, owner: LanceNamespace, entries: Sequence[TableRecord]
) -> None:
    if isinstance(namespace, LanceBridgeNamespace):
        is_same = isinstance(owner, LanceBridgeNamespace) and (
            _catalog_of(namespace) == _catalog_of(owner)
        )
        namespace.tables.require_unshared(entries, is_same_catalog=is_same)
    else:
        for child in getattr(namespace, "children", ()):
            _require_unshared_in(child.namespace(), owner, entries)


def _catalog_of(namespace: LanceBridgeNamespace) -> tuple[str, str]:
    """Return what a namespace is connected to, without its credentials and its root."""
    return namespace.impl, namespace.connection.catalog.describe_connection()
