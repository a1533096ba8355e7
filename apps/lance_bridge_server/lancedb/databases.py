"""Databases: the namespaces that LanceDB's connections are for, named by a header."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers

from lance_bridge.errors import invalid

from .protocol import DATABASE_HEADER

PREFIX_HEADER = "x-lancedb-database-prefix"
"""What follows the database in ``db://DATABASE/…``: names of namespaces below it."""


@dataclass(frozen=True)
class DatabasePaths:
    """The rule by which a database's name gives the path of a namespace."""

    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Paths of databases by their names. They win over the separator."""
    separator: str | None = "."
    """What divides the name of any other database into the names of its path. None to take a name
    as it is."""

    def __call__(self, database: str) -> list[str]:
        """Return the path of a database's namespace.

        Raises:
            InvalidInputError: (13) a part of the name is empty.
        """
        if database in self.names:
            return list(self.names[database])
        parts = [database] if self.separator is None else database.split(self.separator)
        return _checked(parts, f"The database {database[:100]!r}")


def database_of(headers: Headers, path_of: Callable[[str], Sequence[str]]) -> list[str] | None:
    """Return the path of the namespace that a request is for, or None for the root.

    Raises:
        InvalidInputError: (13) a name in it is empty.
    """
    database = headers.get(DATABASE_HEADER)
    if database is None:
        return None
    prefix = headers.get(PREFIX_HEADER)
    below = _checked(prefix.split("/"), f"The header {PREFIX_HEADER}") if prefix else []
    return [*path_of(database), *below]


def _checked(parts: list[str], subject: str) -> list[str]:
    if not all(parts):
        raise invalid(f"{subject} has an empty name in its path")
    return parts


def in_database(path: list[str], operation: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a request's fields with its identifiers below a database.

    Args:
        path: The path of the database's namespace.
    """
    fields = {**fields, "id": [*path, *(fields.get("id") or ())]}
    if operation == "rename_table" and fields.get("new_namespace_id") is not None:
        fields["new_namespace_id"] = [*path, *fields["new_namespace_id"]]
    return fields
