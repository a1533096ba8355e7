"""Databases: the namespaces that LanceDB's connections are for, named by a header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from starlette.requests import HTTPConnection

from lance_bridge.errors import invalid

from .protocol import DATABASE_HEADER, is_lancedb

PREFIX_HEADER = "x-lancedb-database-prefix"
"""What follows the database in ``db://DATABASE/…``: names of namespaces below it."""


Names = Sequence[Annotated[str, Field(min_length=1)]]


@dataclass(frozen=True)
class DatabasePaths:
    """The rule by which a database's name gives the path of a namespace.

    Its fields are keys of the configuration.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    prefix: Names = ()
    """The path of the namespace that databases are in."""
    separator: Annotated[str, Field(min_length=1)] | None = "."
    """What divides the name of a database into the names of its path. None to take a name as it
    is."""
    names: Mapping[str, Names] = field(default_factory=dict)
    """Whole paths of databases with names of their own. They win over the other rules."""

    def __call__(self, database: str) -> list[str]:
        """Return the path of a database's namespace.

        Raises:
            InvalidInputError: (13) a part of the name is empty.
        """
        if database in self.names:
            return list(self.names[database])
        parts = [database] if self.separator is None else database.split(self.separator)
        return [*self.prefix, *_checked(parts, f"The database {database[:100]!r}")]

    def name_of(self, path: Sequence[str]) -> str | None:
        """Return what a client writes after ``db://`` for a namespace, or None if nothing can."""
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
            return None  # another name has this form
        return "/".join([database, *deeper])


def database_of(connection: HTTPConnection, databases: DatabasePaths) -> list[str] | None:
    """Return the path of the namespace that a request is for, or None for the root.

    Requests of LanceDB's catalogs name no database: they are for the namespace of databases.

    Raises:
        InvalidInputError: (13) a name in it is empty.
    """
    headers = connection.headers
    database = headers.get(DATABASE_HEADER)
    if database is None:
        return list(databases.prefix) or None if is_lancedb(connection) else None
    prefix = headers.get(PREFIX_HEADER)
    below = _checked(prefix.split("/"), f"The header {PREFIX_HEADER}") if prefix else []
    return [*databases(database), *below]


def _checked(parts: list[str], subject: str) -> list[str]:
    if not all(parts):
        raise invalid(f"{subject} has an empty name in its path")
    return parts


def in_database(path: list[str], operation: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a request's fields with its identifiers below a database.

    Args:
        path: The path of the database's namespace.
    """
    if operation == "batch_create_table_versions":
        return {**fields, "entries": _each_below(path, fields.get("entries"))}
    if operation == "batch_commit_tables":
        return {**fields, "operations": _batch_below(path, fields.get("operations"))}
    fields = {**fields, "id": _below(path, fields.get("id"))}
    if operation == "rename_table" and fields.get("new_namespace_id") is not None:
        fields["new_namespace_id"] = _below(path, fields["new_namespace_id"])
    return fields


def _below(path: list[str], names: Any) -> Any:
    """Return an identifier below a path; what is not one is left for the model to refuse."""
    return [*path, *(names or ())] if isinstance(names, list | None) else names


def _batch_below(path: list[str], operations: Any) -> Any:
    if not isinstance(operations, list):
        return operations
    return [
        dict(zip(each, _each_below(path, list(each.values())), strict=True))
        if isinstance(each, dict)
        else each
        for each in operations
    ]


def _each_below(path: list[str], requests: Any) -> Any:
    if not isinstance(requests, list):
        return requests
    return [
        {**each, "id": _below(path, each.get("id"))} if isinstance(each, dict) else each
        for each in requests
    ]
