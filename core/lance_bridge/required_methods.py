"""Whether a catalog's class has the methods that its capabilities promise."""

from __future__ import annotations

from .catalog import Catalog


def require_methods(catalog: Catalog) -> None:
    """Check that a catalog's class overrides each method that its capabilities promise.

    Called when a namespace is made over the catalog. Otherwise the method that is missing would be
    noticed in the middle of an operation, after an entry was made.

    Raises:
        TypeError: a method is missing. It is what Python raises where a class lacks an abstract
            method, at the same moment and for the same reason: the class is not complete. That is
            its author's mistake. No Lance error is right for it: they are about a request or a
            property, which somebody could correct, and callers catch them.
    """
    capabilities = catalog.capabilities
    can_rename = not capabilities.no_rename
    required = {
        "rename_table": (
            can_rename and not capabilities.renames_by_copy,
            _reason_in("no_rename"),
        ),
        "copy_table": (can_rename and capabilities.renames_by_copy, _reason_in("no_rename")),
        "commit_guard": (
            not (capabilities.no_managed_tables or capabilities.no_alter),
            _reason_in("no_managed_tables"),
        ),
        "partition_locations": (
            capabilities.has_partitions,
            "leave Capabilities.has_partitions False",
        ),
        "scan_hidden_tables": (
            capabilities.hides_tables,
            "leave Capabilities.hides_tables False",
        ),
    }
    for method, (is_promised, instead) in required.items():
        if is_promised and not _overrides(catalog, method):
            raise TypeError(
                f"{type(catalog).__name__} must implement {method}: its capabilities promise that "
                f"it can. Else {instead}"
            )
    if _overrides(catalog, "load_marks") != _overrides(catalog, "alter_marks"):
        raise TypeError(
            f"{type(catalog).__name__} must implement both load_marks and alter_marks, or neither"
        )


def _reason_in(field: str) -> str:
    return f"give the reason why it cannot as Capabilities.{field}"


def _overrides(catalog: Catalog, method: str) -> bool:
    return getattr(type(catalog), method) is not getattr(Catalog, method)
