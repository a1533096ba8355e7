"""Databases: the namespaces that LanceDB's connections select with a header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from starlette.requests import HTTPConnection

from lance_bridge.errors import invalid

from .protocol import DATABASE_HEADER, is_lancedb

PREFIX_HEADER = "x-lancedb-database-prefix"
"""The part after the database in ``db://DATABASE/…``: names of namespaces below it."""


Names = Sequence[Annotated[str, Field(min_length=1)]]


@dataclass(frozen=True)
class DatabasePaths:
    """Maps a database's name to the path of a namespace.

    The fields are keys of the configuration.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    prefix: Names = ()
    """The path of the namespace that contains the databases."""
    separator: Annotated[str, Field(min_length=1)] | None = "."
    """Splits the name of a database into the names of its path. None leaves names whole."""
    names: Mapping[str, Names] = field(default_factory=dict)
    """Whole paths of databases, by name. They take precedence over the other rules."""

    def __call__(self, database: str) -> list[str]:
        """Return the path of a database's namespace.

        Raises:
            InvalidInputError: (13) a part of the name is empty.
        """
        if database in self.names:
            return list(self.names[database])
        parts = [database] if self.separator is None else database.split(self.separator)
        return [*self.prefix, *_check_parts(parts, f"The database {database[:100]!r}")]

    def name_of(self, path: Sequence[str]) -> str | None:
        """Return the text after ``db://`` for a namespace, or None if no database has its path."""
        for name, named in self.names.items():
            if list(named) == list(path):
                return name
        prefix, below = list(path[: len(self.prefix)]), list(path[len(self.prefix) :])
        if not below or prefix != list(self.prefix):
            return None
        if self.separator is None:
            database, deeper = below[0], below[1:]
        elif any(self.separator in each for each in below):
            return None
        else:
            database, deeper = self.separator.join(below), []
        if "/" in database or [*self(database), *deeper] != list(path):
            return None  # the name is read as another path
        return "/".join([database, *deeper])


def database_of(connection: HTTPConnection, databases: DatabasePaths) -> list[str] | None:
    """Return the path of the namespace that a request selects, or None for the root.

    Requests of LanceDB's catalogs name no database: they select the namespace of databases.

    Raises:
        InvalidInputError: (13) a name in it is empty.
    """
    headers = connection.headers
    database = headers.get(DATABASE_HEADER)
    if database is None:
        return list(databases.prefix) or None if is_lancedb(connection) else None
    prefix = headers.get(PREFIX_HEADER)
    below = _check_parts(prefix.split("/"), f"The header {PREFIX_HEADER}") if prefix else []
    return [*databases(database), *below]


def _check_parts(parts: list[str], subject: str) -> list[str]:
    if not all(parts):
        raise invalid(f"{subject} has an empty name in its path")
    return parts


def in_database(path: list[str], operation: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Prepend the path of a database to the identifiers in a request's fields.

    Args:
        path: The path of the database's namespace.
    """
    if operation == "batch_create_table_versions":
        return {**fields, "entries": _prepend_to_requests(path, fields.get("entries"))}
    if operation == "batch_commit_tables":
        return {**fields, "operations": _prepend_to_batch(path, fields.get("operations"))}
    fields = {**fields, "id": _prepend_path(path, fields.get("id"))}
    if operation == "rename_table" and fields.get("new_namespace_id") is not None:
        fields["new_namespace_id"] = _prepend_path(path, fields["new_namespace_id"])
    return fields


def _prepend_path(path: list[str], names: Any) -> Any:
    """Prepend a path to an identifier. Other values are returned, and the model rejects them."""
    return [*path, *(names or ())] if isinstance(names, list | None) else names


def _prepend_to_batch(path: list[str], operations: Any) -> Any:
    if not isinstance(operations, list):
        return operations
    return [
        dict(zip(each, _prepend_to_requests(path, list(each.values())), strict=True))
        if isinstance(each, dict)
        else each
        for each in operations
    ]


def _prepend_to_requests(path: list[str], requests: Any) -> Any:
    if not isinstance(requests, list):
        return requests
    return [
        {**each, "id": _prepend_path(path, each.get("id"))} if isinstance(each, dict) else each
        for each in requests
    ]
