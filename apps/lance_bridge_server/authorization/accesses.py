"""What a request would do to which objects: every namespace and table that it names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from lance_namespace import LanceNamespace
from pydantic import BaseModel

from lance_bridge import Capabilities
from lance_bridge import location as locations
from lance_bridge.errors import invalid
from lance_bridge_federated import FederatedNamespace

from ..calls import Call

Names = tuple[str, ...]

SET_LOCATION = "set_location"
SET_NAMESPACE_LOCATION = "set_namespace_location"
"""What requests do that say where data is to be. These are no operations of their own."""
READ_AUDIT_LOG = "read_audit_log"
RUN_DOCTOR = "run_doctor"
LIST_MIGRATIONS = "list_migrations"
SERVER_RIGHTS = (READ_AUDIT_LOG, RUN_DOCTOR, LIST_MIGRATIONS)
"""What the catalog page shows of the server: on the root, and the doctor's on each catalog."""
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
"""What is done to objects that do not exist yet, as a rule."""
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
"""What else it takes to replace an object that exists, or its rows."""
_KEEPING = {"", "append", "create", "existok", "exist_ok"}
"""Modes that keep it. Any other could be a spelling of Overwrite to some namespace."""
_MOST_NAMES, _MOST_CHARACTERS = 32, 8192
_LOCATION = "location"
"""The property with the location of a table, and by default with that of a namespace."""
_JOINER = "$"
"""What joins names in listings of all tables, and in the directories of pylance's namespaces."""


@dataclass(frozen=True)
class Access:
    """An operation on one object."""

    operation: str
    path: Names
    """The names down to the object, as the catalog understands them; empty for the root."""
    location: str | None = None
    """Where data is to be, for `SET_LOCATION` and its like."""

    @property
    def is_table(self) -> bool:
        """Whether the object is a table."""
        return bool(self.path) and is_table_operation(self.operation)


def is_table_operation(operation: str) -> bool:
    """Return whether an operation is on a table. Else it is on a namespace."""
    is_other = "namespace" in operation or operation in LISTINGS or operation in SERVER_RIGHTS
    return not is_other


def accesses_of(
    call: Call, request: BaseModel, namespace: LanceNamespace | NamesAsGiven
) -> list[Access]:
    """Return what a call would do, the operation that it is for first.

    Args:
        request: The call's request, as the namespace gets it.

    Raises:
        InvalidInputError: (13) an identifier or a location is missing or malformed.
    """
    return list(_accesses(call, request, _Paths(namespace)))


class NamesAsGiven:
    """Takes every name for one that could exist, in place of a namespace."""

    def table_path(self, names: Sequence[str]) -> Names:
        return tuple(names)

    def namespace_path(self, names: Sequence[str] | None, *, of_tables: bool) -> Names:  # noqa: ARG002
        return tuple(names or ())


def _accesses(call: Call, request: Any, paths: _Paths) -> Iterator[Access]:
    name = call.operation.name
    if name == "batch_create_table_versions":
        for entry in request.entries:
            yield Access("create_table_version", paths.table(entry.id))
    elif name == "batch_commit_tables":
        for entry in request.operations:
            yield from _batch_entry(entry, paths)
    elif name in LISTINGS or "namespace" in name:
        yield from _namespace_accesses(name, request, paths)
    else:
        yield from _table_accesses(name, call, request, paths)


def _batch_entry(entry: Any, paths: _Paths) -> Iterator[Access]:
    for field, operation in BATCH_OPERATIONS.items():
        inner = getattr(entry, field)
        if inner is None:
            continue
        path = paths.table(inner.id)
        yield Access(operation, path)
        if operation == "declare_table":
            yield from _location(path, inner.location, inner.properties)


def _namespace_accesses(name: str, request: Any, paths: _Paths) -> Iterator[Access]:
    path = paths.namespace(request.id, of_tables=name == "list_tables")
    yield Access(name, path)
    yield from _overwriting(name, path, request)
    if name == "create_namespace":
        keys = paths.location_keys(path)
        yield from _location(path, None, request.properties, SET_NAMESPACE_LOCATION, keys)


def _table_accesses(name: str, call: Call, request: Any, paths: _Paths) -> Iterator[Access]:
    names = request.id
    if name in ("describe_transaction", "alter_transaction"):
        names = (names or ())[:-1]
    path = paths.table(names)
    yield Access(name, path)
    yield from _overwriting(name, path, request)
    if name == "rename_table":
        target = request.new_namespace_id
        parent = path[:-1] if target is None else target
        yield Access("declare_table", paths.table([*parent, request.new_table_name]))
    if name == "create_materialized_view":
        # Its query is SQL, in which any table of the server can be named.
        yield Access("query_table", ())
    if name in CREATING:
        location = getattr(request, "location", None) or call.fields.get("location")
        yield from _location(path, location, getattr(request, "properties", None))


def _overwriting(name: str, path: Names, request: Any) -> Iterator[Access]:
    if name in _OVERWRITING and (request.mode or "").lower() not in _KEEPING:
        for operation in _OVERWRITING[name]:
            yield Access(operation, path)
    if name == "merge_insert_into_table" and (
        request.when_not_matched_by_source_delete or request.when_not_matched_by_source_delete_filt
    ):
        yield Access(_DELETE_ROWS, path)


def _location(
    path: Names,
    location: str | None,
    properties: Any,
    operation: str = SET_LOCATION,
    keys: Collection[str] = (_LOCATION,),
) -> Iterator[Access]:
    """Yield what a location takes, and one in each of some properties."""
    for text in (location, *map((properties or {}).get, sorted(keys))):
        if text:
            yield Access(operation, path, _checked_location(text, operation))


def _checked_location(text: str, operation: str) -> str:
    """Return a location as policies compare it.

    Raises:
        InvalidInputError: (13) it could mean another place than its text says.
    """
    is_elsewhere = operation == SET_NAMESPACE_LOCATION and not locations.is_supported(text)
    if not is_elsewhere and (":" in text or text.startswith("/")):
        return _plain_location(locations.check(text))
    if ".." in text.split("/") or "%" in text:
        raise invalid("The location must not contain '..' or '%'")
    return text


def _plain_location(location: str) -> str:
    """Return a location without segments ``.``, and decoded where Lance decodes it."""
    scheme, separator, rest = location.rpartition("://")
    if not separator:
        return str(PurePosixPath(location))
    bucket, _, path = rest.partition("/")
    return f"{scheme}://{bucket}/{PurePosixPath(unquote(path))}"


def path_of(operation: str, names: Sequence[str], namespace: LanceNamespace) -> Names:
    """Return the path that an operation's identifier names, as a namespace understands it.

    Raises:
        InvalidInputError: (13) the namespace cannot have such an object.
    """
    if is_table_operation(operation):
        return _Paths(namespace).table(names)
    return _Paths(namespace).namespace(names, of_tables=operation == "list_tables")


def catalog_of(namespace: Any, path: Names) -> Any:
    """Return what answers for a path: a catalog of a federation, or else the namespace itself."""
    if isinstance(namespace, FederatedNamespace) and path and path[0] in namespace.catalogs:
        return namespace.child(path[0])
    return namespace


@dataclass(frozen=True)
class _Paths:
    """Paths of what identifiers name, as a namespace understands them."""

    namespace_: Any

    def table(self, names: Sequence[str] | None) -> Names:
        if not names:
            raise invalid("The request has no table identifier: set `id`")
        _check_size(names)
        if hasattr(self.namespace_, "table_path"):
            return tuple(self.namespace_.table_path(names))
        return _plain(names)

    def location_keys(self, path: Names) -> set[str]:
        """Return the properties that set the location of a new namespace."""
        capabilities = getattr(catalog_of(self.namespace_, path), "capabilities", None)
        words = capabilities.namespace_words if isinstance(capabilities, Capabilities) else ()
        return {_LOCATION} | {each.location for each in words if each.location}

    def namespace(self, names: Sequence[str] | None, *, of_tables: bool) -> Names:
        _check_size(names or ())
        if hasattr(self.namespace_, "namespace_path"):
            return tuple(self.namespace_.namespace_path(names, of_tables=of_tables))
        return _plain(names or ())


def _check_size(names: Sequence[str]) -> None:
    """Raise InvalidInput (13) for an identifier that no catalog has.

    Deciding on an object takes its namespaces too: the square of their number in time and memory.
    """
    if len(names) > _MOST_NAMES or sum(map(len, names)) > _MOST_CHARACTERS:
        raise invalid(
            f"An identifier has at most {_MOST_NAMES} names and {_MOST_CHARACTERS} characters"
        )


def _plain(names: Sequence[str]) -> Names:
    """Return names as they are. Other namespaces join them, so that two ids could be one object."""
    if any(_JOINER in each for each in names):
        raise invalid(f"A name contains '{_JOINER}', which joins names here")
    return tuple(names)


def split_name(operation: str, name: str) -> Sequence[str]:
    """Return the names in one entry of a listing."""
    return name.split(_JOINER) if operation == "list_all_tables" else (name,)
