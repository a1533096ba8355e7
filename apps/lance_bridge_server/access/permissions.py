"""The accesses of a request, an operation on each object that it names, and decisions on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from lance_namespace import LanceNamespace

from lance_bridge import Capabilities, locations
from lance_bridge.errors import invalid
from lance_bridge_federated import FederatedNamespace

from ..operations import Call
from ..redaction import PublicAnswers

Names = tuple[str, ...]

SET_LOCATION = "set_location"
SET_NAMESPACE_LOCATION = "set_namespace_location"
"""Actions of requests that set the location of data. They are not operations of the API."""
READ_AUDIT_LOG = "read_audit_log"
RUN_DOCTOR = "run_doctor"
LIST_MIGRATIONS = "list_migrations"
SERVER_RIGHTS = (READ_AUDIT_LOG, RUN_DOCTOR, LIST_MIGRATIONS)
"""Actions of the catalog page on the server: on the root, and RUN_DOCTOR on each catalog."""
CREATING = frozenset(
    {
        "create_namespace",
        "create_table",
        "declare_table",
        "register_table",
        "create_materialized_view",
        SET_LOCATION,
        SET_NAMESPACE_LOCATION,
    }
)
"""Operations whose object usually does not exist yet."""
LISTINGS = {"list_namespaces", "list_tables", "list_all_tables"}

BATCH_OPERATIONS = {
    "declare_table": "declare_table",
    "create_table_version": "create_table_version",
    "delete_table_versions": "batch_delete_table_versions",
    "deregister_table": "deregister_table",
}
"""The operation of each field of a batch's entry."""
_DELETE_ROWS = "delete_from_table"
_OVERWRITING = {
    "create_table": ("insert_into_table", _DELETE_ROWS, "drop_table"),
    "insert_into_table": (_DELETE_ROWS,),
    "create_namespace": ("drop_namespace",),
    "register_table": ("deregister_table",),
}
"""Further operations that must be allowed to replace an existing object or its rows."""
_KEEPING_MODES = {"", "append", "create", "existok", "exist_ok"}
"""Modes that replace nothing. A namespace may read any other mode as Overwrite."""
_MAX_NAMES, _MAX_CHARACTERS = 32, 8192
_LOCATION = "location"
"""The property with the location of a table, and by default of a namespace."""
_JOINER = "$"
"""Joins names in listings of all tables, and in the directories of pylance's namespaces."""


@dataclass(frozen=True)
class Access:
    """An operation on one object."""

    operation: str
    path: Names
    """The names down to the object, as the catalog resolves them; empty for the root."""
    location: str | None = None
    """The new location, for `SET_LOCATION` and `SET_NAMESPACE_LOCATION`."""

    @property
    def is_table(self) -> bool:
        """Whether the object is a table."""
        return bool(self.path) and is_table_operation(self.operation)


@dataclass(frozen=True)
class Decision:
    """Whether an operation is allowed, and by which policies."""

    allowed: bool
    reasons: tuple[str, ...] = ()
    """Names of the policies that decided; empty if none applied."""
    visible: bool = True
    """Whether the principal may know that the object exists. If not, it counts as not found."""


def is_table_operation(operation: str) -> bool:
    """Return whether an operation is on a table rather than on a namespace."""
    is_other = "namespace" in operation or operation in LISTINGS or operation in SERVER_RIGHTS
    return not is_other


def required_permissions(
    call: Call, request: Any, namespace: LanceNamespace | NamesAsGiven
) -> list[Access]:
    """Return the accesses of a call, starting with its own operation.

    Args:
        request: The call's request model, as it is passed to the namespace.

    Raises:
        InvalidInputError: (13) an identifier or a location is missing or malformed.
    """
    paths, name = _Paths(namespace), call.operation.name
    if name == "batch_create_table_versions":
        return [Access("create_table_version", paths.table(each.id)) for each in request.entries]
    if name == "batch_commit_tables":
        return [
            access for each in request.operations for access in _batch_entry_accesses(each, paths)
        ]
    if name in LISTINGS or "namespace" in name:
        return list(_namespace_accesses(name, request, paths))
    return list(_table_accesses(name, call, request, paths))


class NamesAsGiven:
    """Stands in for a namespace, and accepts every name."""

    def table_path(self, names: Sequence[str]) -> Names:
        return tuple(names)

    def namespace_path(self, names: Sequence[str] | None, *, of_tables: bool) -> Names:  # noqa: ARG002
        return tuple(names or ())


def _batch_entry_accesses(entry: Any, paths: _Paths) -> Iterator[Access]:
    for field, operation in BATCH_OPERATIONS.items():
        inner = getattr(entry, field)
        if inner is None:
            continue
        path = paths.table(inner.id)
        yield Access(operation, path)
        if operation == "declare_table":
            yield from _location_accesses(path, inner.location, inner.properties)


def _namespace_accesses(name: str, request: Any, paths: _Paths) -> Iterator[Access]:
    path = paths.namespace(request.id, of_tables=name == "list_tables")
    yield Access(name, path)
    yield from _overwrite_accesses(name, path, request)
    if name == "create_namespace":
        keys = paths.location_keys(path)
        yield from _location_accesses(path, None, request.properties, SET_NAMESPACE_LOCATION, keys)


def _table_accesses(name: str, call: Call, request: Any, paths: _Paths) -> Iterator[Access]:
    names = request.id
    if name in ("describe_transaction", "alter_transaction"):
        names = (names or ())[:-1]
    path = paths.table(names)
    yield Access(name, path)
    if not call.operation.is_read:
        yield from _overwrite_accesses(name, path, request)
    if name == "rename_table":
        target = request.new_namespace_id
        parent = path[:-1] if target is None else target
        yield Access("declare_table", paths.table([*parent, request.new_table_name]))
    if name == "create_materialized_view":
        # Its SQL query can read any table of the server.
        yield Access("query_table", ())
    if name in CREATING:
        location = getattr(request, "location", None) or call.fields.get("location")
        yield from _location_accesses(path, location, getattr(request, "properties", None))


def _overwrite_accesses(name: str, path: Names, request: Any) -> Iterator[Access]:
    if name in _OVERWRITING and (request.mode or "").lower() not in _KEEPING_MODES:
        for operation in _OVERWRITING[name]:
            yield Access(operation, path)
    if name == "merge_insert_into_table" and (
        request.when_not_matched_by_source_delete or request.when_not_matched_by_source_delete_filt
    ):
        yield Access(_DELETE_ROWS, path)


def _location_accesses(
    path: Names,
    location: str | None,
    properties: Any,
    operation: str = SET_LOCATION,
    keys: Collection[str] = (_LOCATION,),
) -> Iterator[Access]:
    """Yield the accesses for a location, and for the location in each of some properties."""
    for text in (location, *map((properties or {}).get, sorted(keys))):
        if text:
            yield Access(operation, path, _normalize_location(text, operation))


def _normalize_location(text: str, operation: str) -> str:
    """Return a location in the form that policies compare.

    Raises:
        InvalidInputError: (13) it could refer to another location than its text says.
    """
    is_elsewhere = operation == SET_NAMESPACE_LOCATION and not locations.is_supported(text)
    if not is_elsewhere and (":" in text or text.startswith("/")):
        return _plain_location(locations.check(text))
    if ".." in text.split("/") or "%" in text:
        raise invalid("The location must not contain '..' or '%'")
    return text


def _plain_location(location: str) -> str:
    """Return a location without ``.`` segments, and percent-decoded as Lance does it."""
    scheme, separator, rest = location.rpartition("://")
    if not separator:
        return str(PurePosixPath(location))
    bucket, _, path = rest.partition("/")
    return f"{scheme}://{bucket}/{PurePosixPath(unquote(path))}"


def path_of(operation: str, names: Sequence[str], namespace: LanceNamespace) -> Names:
    """Return the path of an operation's identifier, as a namespace resolves it.

    Raises:
        InvalidInputError: (13) the namespace cannot have such an object.
    """
    if is_table_operation(operation):
        return _Paths(namespace).table(names)
    return _Paths(namespace).namespace(names, of_tables=operation == "list_tables")


def catalog_of(namespace: Any, path: Names) -> Any:
    """Return the catalog of a path: a child of a federation, or else the namespace itself."""
    if isinstance(namespace, FederatedNamespace) and path and path[0] in namespace.catalogs:
        return namespace.child(path[0])
    return namespace


def paths_of_catalogs(namespace: Any, path: Names) -> Iterator[Names]:
    """Yield the parts of a path that name a catalog, in federations in federations, too.

    The last of them may name a catalog that does not exist.
    """
    if isinstance(namespace, PublicAnswers):
        namespace = namespace.namespace
    if not isinstance(namespace, FederatedNamespace) or not path:
        return
    yield path[:1]
    child = catalog_of(namespace, path)
    if child is not namespace:
        for inner in paths_of_catalogs(child, path[1:]):
            yield (path[0], *inner)


def _innermost_catalog(namespace: Any, path: Names) -> Any:
    """Return the catalog of a path like `catalog_of`, through federations in federations."""
    if isinstance(namespace, PublicAnswers):
        namespace = namespace.namespace
    child = catalog_of(namespace, path)
    return child if child is namespace else _innermost_catalog(child, path[1:])


@dataclass(frozen=True)
class _Paths:
    """Resolves identifiers to paths, as a namespace does."""

    namespace_: Any

    def table(self, names: Sequence[str] | None) -> Names:
        if not names:
            raise invalid("The request has no table identifier: set `id`")
        _check_size(names)
        if hasattr(self.namespace_, "table_path"):
            return tuple(self.namespace_.table_path(names))
        return _check_names(names)

    def location_keys(self, path: Names) -> set[str]:
        """Return the properties that set the location of a new namespace."""
        capabilities = getattr(_innermost_catalog(self.namespace_, path), "capabilities", None)
        words = capabilities.namespace_words if isinstance(capabilities, Capabilities) else ()
        return {_LOCATION} | {each.location for each in words if each.location}

    def namespace(self, names: Sequence[str] | None, *, of_tables: bool) -> Names:
        _check_size(names or ())
        if hasattr(self.namespace_, "namespace_path"):
            return tuple(self.namespace_.namespace_path(names, of_tables=of_tables))
        return _check_names(names or ())


def _check_size(names: Sequence[str]) -> None:
    """Raise InvalidInput (13) if an identifier is larger than any catalog allows.

    A decision evaluates all parent namespaces, which takes quadratic time and memory.
    """
    if len(names) > _MAX_NAMES or sum(map(len, names)) > _MAX_CHARACTERS:
        raise invalid(
            f"An identifier has at most {_MAX_NAMES} names and {_MAX_CHARACTERS} characters"
        )


def _check_names(names: Sequence[str]) -> Names:
    """Return names unchanged, or raise InvalidInput (13) if one contains the joiner.

    Other libraries' namespaces join the names, so that two identifiers could be the same object.
    """
    if any(_JOINER in each for each in names):
        raise invalid(f"A name contains '{_JOINER}', which joins names here")
    return tuple(names)


def split_name(operation: str, name: str) -> Sequence[str]:
    """Return the names in an entry of a listing."""
    return name.split(_JOINER) if operation == "list_all_tables" else (name,)
