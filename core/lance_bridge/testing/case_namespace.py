"""A client under test with a namespace for one case, and the clean-up after the case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from lance_namespace import LanceNamespace

from .build import PREFIX, rows, unique_name
from .calls import Calls
from .expect import code_of
from .hooks import Neighbour
from .storage import Storage
from .target import Target


class CaseNamespace(Calls):
    """A client, a namespace (``id``) that only this case uses, and the files (``storage``)."""

    def __init__(self, target: Target, client: LanceNamespace | None = None) -> None:
        """Make the namespace, with a client of another user than the target's, if one is given."""
        super().__init__(target.connect() if client is None else client)
        self.target = target
        self.features = target.features
        self.storage = Storage(target.storage_options)
        self.namespaces: list[list[str]] = []
        self.neighbours: list[Neighbour] = []
        self._entries: list[tuple[list[str], str]] = []
        self._locations: list[str] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            self.id = self.new_namespace()
            undo.pop_all()

    @property
    def name(self) -> str:
        """The last name of the namespace."""
        return self.id[-1]

    def table(self, name: str = "t") -> list[str]:
        """Return the identifier of a table in the namespace."""
        return [*self.id, name]

    def missing_namespace(self) -> list[str]:
        """Return the identifier of a namespace that does not exist."""
        return [*self.target.parent, unique_name()]

    def missing_table(self) -> list[str]:
        """Return the identifier of a table that does not exist, in the namespace."""
        return self.table(unique_name())

    def track(self, namespace_id: list[str]) -> list[str]:
        """Clean up this namespace too, if it exists at the end."""
        self.namespaces.append(namespace_id)
        return namespace_id

    def new_namespace(self) -> list[str]:
        """Make another namespace."""
        namespace_id = self.track(self.missing_namespace())
        if self.features.namespace_changes:
            self.create_namespace(namespace_id)
        else:
            self.target.make_namespace(namespace_id)
        return namespace_id

    # -- tables and data -------------------------------------------------------------------------

    def with_rows(self, name: str = "t", ids: range = range(3)) -> list[str]:
        """Make a table with these ids by CreateTable, and return its identifier."""
        self.create_table(self.table(name), rows(ids))
        return self.table(name)

    def new_location(self, name: str) -> str:
        """Return a new location under the target's data root, without files."""
        location = f"{self.target.data_root.rstrip('/')}/{self.name}_{name}.lance"
        self._locations.append(location)
        return location

    def dataset(self, name: str, ids: range = range(3)) -> str:
        """Write a Lance dataset to a new location, without the catalog; return the location."""
        location = self.new_location(name)
        self.storage.write(location, rows(ids))
        return location

    def register(self, name: str, location: str) -> list[str]:
        """Register a table at a location under the target's data root; return its identifier."""
        self.register_table(self.table(name), self.target.register_location(location))
        return self.table(name)

    def location(self, table_id: list[str]) -> str:
        """Return a table's location, as the catalog describes it."""
        location = self.describe_table(table_id).location
        assert location, f"describe_table gave no location for {table_id}"
        return location

    def ids(self, table_id: list[str]) -> list[int]:
        """Return the sorted ids in a table, read from its location."""
        return self.storage.ids(self.location(table_id))

    def names(self) -> list[str]:
        """Return the names of the tables in the namespace."""
        return self.all_tables(self.id)

    # -- entries of other implementations --------------------------------------------------------

    def foreign(self, name: str = "foreign") -> list[str]:
        """Make an entry that is not Lance's; return its identifier."""
        location = self.new_location(name)
        self.storage.put(location, "part-0.parquet", b"not Lance")
        self._entries.append((self.id, name))
        self.target.make_foreign_table(self.id, name, location)
        return self.table(name)

    def other_entry(self, name: str, location: str, entry_type: str) -> list[str]:
        """Make an entry of one of the target's types; return its identifier."""
        self._entries.append((self.id, name))
        self.target.make_entry(self.id, name, location, entry_type)
        return self.table(name)

    def inhabit(self) -> CaseNamespace:
        """Fill the namespace with `neighbours`; return it."""
        self.neighbours.extend(self.target.inhabit(self.id, self.new_location("inhabited")))
        self._entries += [(self.id, each.name) for each in self.neighbours]
        return self

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove what the case made, as far as the client can, and close the client."""
        for namespace_id, name in self._entries:
            self.target.remove_entry(namespace_id, name)
        for namespace_id in reversed(self.namespaces):
            self._remove(namespace_id)
        for location in [*self._locations, *self.locations]:
            # The prefix guards against a response with a location that is not the kit's.
            if PREFIX in location:
                self.storage.remove(location)
                self.storage.remove_empty_parents(location, PREFIX)
        super().close()

    def _remove(self, namespace_id: list[str]) -> None:
        """Remove a namespace and its entries. Their files are removed by location: see close()."""
        tables: list[str] = []
        if not _try(lambda: tables.extend(self.all_tables(namespace_id))):
            return
        for name in tables:
            table_id = [*namespace_id, name]
            if not _try(self.deregister_table, table_id):
                _try(self.drop_table, table_id)
        if not self.features.namespace_changes:
            self.target.remove_namespace(namespace_id)
        elif not _try(self.drop_namespace, namespace_id) and self.features.cascade:
            _try(lambda: self.drop_namespace(namespace_id, behavior="Cascade"))


def _try(call: Callable[..., object], *arguments: object) -> bool:
    """Return whether the call succeeded: a failed case may leave anything behind."""
    return code_of(call, *arguments) is None
