"""Tables: the tables of a catalog, found by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lance_namespace.errors import InvalidTableStateError

from ..catalog import Path
from ..connection import Connection
from ..entry import TableEntry, load_entry
from ..errors import display, invalid
from ..managed import conversion
from ..paging import PageRequest
from ..requests import parse_table
from ..table import Table
from . import creation, dropping, listing, rename

NamesPage = tuple[list[str], str | None]
"""Names of tables, and the token of the next page or None."""
PathsPage = tuple[list[Path], str | None]


@dataclass(frozen=True)
class Tables:
    """The tables of one connected namespace. A path is that of the table, with its namespace."""

    connection: Connection

    def path_of(self, identifier: Sequence[str] | None) -> Path:
        """Return the path of the table that a request names. Raises InvalidInput."""
        capabilities = self.connection.catalog.capabilities
        return parse_table(identifier, capabilities, self.connection.default_namespace)

    # -- reading -----------------------------------------------------------------------------------

    def load_by_id(self, identifier: Sequence[str] | None) -> Table:
        """Return the Lance table that a request names; raises as `path_of` and `load`."""
        return self.load(self.path_of(identifier))

    def find(self, path: Path) -> TableEntry | None:
        """Return any entry, Lance's or not; None where it or its namespace does not exist."""
        record = self.connection.find_table(path)
        return None if record is None else TableEntry(self.connection, record)

    def load_entry(self, path: Path) -> TableEntry:
        """Return any entry, Lance's or not.

        Raises:
            TableNotFoundError: (4) the namespace exists, and the table does not.
            NamespaceNotFoundError: (1) the namespace does not exist.
        """
        return load_entry(self.connection, path)

    def load(self, path: Path) -> Table:
        """Return a Lance table.

        Raises:
            TableNotFoundError: (4)
            NamespaceNotFoundError: (1)
            InvalidInputError: (13) the entry is not a Lance table.
            InvalidTableStateError: (19) the entry has no location.
        """
        entry = self._load_lance_entry(path)
        if not entry.location:
            raise InvalidTableStateError(
                f"Table '{entry.name}' has no location: deregister it, and register it with one"
            )
        return Table(self.connection, entry.record)

    def _load_lance_entry(self, path: Path) -> TableEntry:
        entry = self.load_entry(path)
        if not entry.record.is_lance:
            what = creation.describe_type(entry.record)
            raise invalid(f"'{display(path)}' is not a Lance table but {what}")
        return entry

    def list(
        self, namespace: Path, page: PageRequest, *, include_declared: bool = True
    ) -> NamesPage:
        """Return a page of the names of a namespace's Lance tables, and the next page's token.

        Raises:
            NamespaceNotFoundError: (1)
        """
        return listing.list_tables(
            self.connection, namespace, page, include_declared=include_declared
        )

    def list_all(self, page: PageRequest, *, include_declared: bool = True) -> PathsPage:
        """Return a page of the paths of all Lance tables, by namespace."""
        return listing.list_all_tables(self.connection, page, include_declared=include_declared)

    def scan(self, namespace: Path) -> Iterator[TableEntry]:
        """Yield all entries of a namespace, Lance's or not, by name.

        Raises:
            NamespaceNotFoundError: (1)
        """
        for record in self.connection.catalog.scan_tables(namespace):
            yield TableEntry(self.connection, record)

    # -- changing ----------------------------------------------------------------------------------

    def declare(
        self,
        path: Path,
        location: str | None,
        properties: Mapping[str, str] | None,
        *,
        vend: bool | None = None,
    ) -> tuple[Table, dict[str, str] | None]:
        """Add a table without data; returns and raises as `creation.declare`."""
        return creation.declare(self.connection, path, location, properties, vend=vend)

    def add(
        self,
        path: Path,
        location: str,
        properties: Mapping[str, str] | None,
        *,
        overwrite: bool = False,
    ) -> Table:
        """Register data that exists; raises as `creation.register`."""
        return creation.register(self.connection, path, location, properties, overwrite=overwrite)

    def remove(self, path: Path) -> TableEntry:
        """Remove a Lance table's entry and no file. Source: DeregisterTable.

        Raises:
            TableNotFoundError: (4)
            NamespaceNotFoundError: (1)
            InvalidInputError: (13) the entry is not a Lance table.
        """
        entry = self._load_lance_entry(path)
        conversion.finish_latest(entry)
        entry.remove()
        return entry

    def drop(self, path: Path) -> Table:
        """Remove a table's entry, then its files; raises as `load` and `dropping.drop`."""
        table = self.load(path)
        dropping.drop(table)
        return table

    def rename(self, path: Path, new_path: Path) -> None:
        """Give a table's entry another name; raises as `load` and `rename.rename`."""
        rename.require_possible(self.connection.capabilities, path, new_path)
        rename.rename(self.load(path), new_path)
