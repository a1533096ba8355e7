"""Before files are deleted: check that no other catalog of a federation has an entry for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError

from lance_bridge.catalog import TableRecord
from lance_bridge.errors import display, marking_other_entries
from lance_bridge.namespace import LanceBridgeNamespace

from .children import Child
from .identifiers import errors_of, with_text


def may_have_entries(child: Child) -> bool:
    """Return whether a catalog's entries can be read by location, as far as is known by now."""
    made = child.made
    if made is None:
        return not child.is_native
    inner = getattr(made, "children", ())
    return isinstance(made, LanceBridgeNamespace) or any(map(may_have_entries, inner))


def entry_of(namespace: LanceNamespace, id: Sequence[str] | None) -> TableRecord | None:
    """Return the entry of a table that is to be dropped; None if it has no location.

    Of a namespace of another library, only the location is known.

    Raises:
        LanceNamespaceError: what finding the table raises.
    """
    if isinstance(namespace, LanceBridgeNamespace):
        return namespace.tables.load_by_id(id).record
    found = namespace.describe_table(api.DescribeTableRequest(id=list(id or ())))
    return TableRecord(tuple(id or ()), found.location) if found.location else None


def entries_below(namespace: LanceNamespace, id: Sequence[str] | None) -> list[TableRecord]:
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


def require_unshared(
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
    for child in filter(may_have_entries, others if entries else ()):
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
        is_same = _catalog_of(namespace) == _catalog_of(owner)
        namespace.tables.require_unshared(entries, is_same_catalog=is_same)
    else:
        for child in getattr(namespace, "children", ()):
            _require_unshared_in(child.namespace(), owner, entries)


def _catalog_of(namespace: LanceNamespace) -> tuple[str, str] | None:
    """Return what a namespace is connected to, without its credentials and its root."""
    if not isinstance(namespace, LanceBridgeNamespace):
        return None
    return namespace.impl, namespace.connection.catalog.describe_connection()
