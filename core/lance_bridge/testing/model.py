"""The in-memory model that the stateful case compares a catalog with.

Its methods return a value or raise the error type that the catalog must raise. The catalog chooses
locations: the caller sets the location of a new table in the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lance_namespace import (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

Ids = list[int]


@dataclass
class Entry:
    """One table: its location, and its ids, which are None if it is only declared."""

    location: str = ""
    ids: Ids | None = None


@dataclass
class Model:
    """Namespaces by name, each with its tables by name, in the catalog's spelling."""

    declare_again: bool
    create_completes: bool
    namespaces: dict[str, dict[str, Entry]] = field(default_factory=dict)
    kept: dict[str, Ids] = field(default_factory=dict)
    """Data that no entry refers to any more, and that must still exist, by location."""

    # -- namespaces ------------------------------------------------------------------------------

    def create_namespace(self, name: str, mode: str) -> None:
        """Apply CreateNamespace."""
        if name in self.namespaces:
            if mode == "ExistOk":
                return
            if mode == "Create":
                raise NamespaceAlreadyExistsError(name)
            if self.namespaces[name]:
                raise NamespaceNotEmptyError(name)
        self.namespaces[name] = {}

    def drop_namespace(self, name: str, mode: str, behavior: str) -> None:
        """Apply DropNamespace."""
        if name not in self.namespaces:
            if mode == "Skip":
                return
            raise NamespaceNotFoundError(name)
        if self.namespaces[name] and behavior == "Restrict":
            raise NamespaceNotEmptyError(name)
        del self.namespaces[name]

    def tables(self, namespace: str) -> dict[str, Entry]:
        """Return the tables of a namespace by name."""
        if namespace not in self.namespaces:
            raise NamespaceNotFoundError(namespace)
        return self.namespaces[namespace]

    # -- tables ----------------------------------------------------------------------------------

    def table(self, namespace: str, name: str) -> Entry:
        """Return an entry."""
        tables = self.tables(namespace)
        if name not in tables:
            raise TableNotFoundError(name)
        return tables[name]

    def declare(self, namespace: str, name: str) -> Entry:
        """Apply DeclareTable; the caller sets the location of a new entry."""
        entry = self.tables(namespace).get(name)
        if entry and not (self.declare_again and entry.ids is None):
            raise TableAlreadyExistsError(name)
        return self.namespaces[namespace].setdefault(name, Entry())

    def create(self, namespace: str, name: str, mode: str, ids: Ids) -> Entry:
        """Apply CreateTable; the caller sets the location."""
        entry = self.tables(namespace).get(name)
        if entry is None:
            entry = self.namespaces[namespace][name] = Entry(ids=ids)
        elif entry.ids is None and (self.create_completes or mode == "Overwrite"):
            entry.ids = ids
        elif mode == "Create":
            raise TableAlreadyExistsError(name)
        elif mode == "Overwrite":
            entry.ids = ids
        return entry

    def register(self, namespace: str, name: str, mode: str, location: str, ids: Ids) -> Entry:
        """Apply RegisterTable."""
        entry = self.tables(namespace).get(name)
        if entry and mode == "Create":
            raise TableAlreadyExistsError(name)
        if entry:
            self._keep(entry)
        self.namespaces[namespace][name] = Entry(location, ids)
        return self.namespaces[namespace][name]

    def deregister(self, namespace: str, name: str) -> Entry:
        """Apply DeregisterTable."""
        entry = self.table(namespace, name)
        self._keep(entry)
        return self.namespaces[namespace].pop(name)

    def drop(self, namespace: str, name: str) -> Entry:
        """Apply DropTable."""
        self.table(namespace, name)
        return self.namespaces[namespace].pop(name)

    def rename(self, namespace: str, name: str, new_namespace: str, new_name: str) -> Entry:
        """Apply RenameTable."""
        entry = self.table(namespace, name)
        if new_name in self.tables(new_namespace):
            raise TableAlreadyExistsError(new_name)
        self.namespaces[new_namespace][new_name] = self.namespaces[namespace].pop(name)
        return entry

    def _keep(self, entry: Entry) -> None:
        if entry.ids is not None:
            self.kept[entry.location] = entry.ids
