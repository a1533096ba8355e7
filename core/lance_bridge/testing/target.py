"""What the author of an adapter supplies: the catalog under test, and locations for data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from lance_namespace import LanceNamespace

from ..catalog import Catalog, Path
from ..namespace import LanceBridgeNamespace
from .features import Features, StatefulBounds

if TYPE_CHECKING:
    from .hooks import Faults, Neighbour, RawEntry


class Target(ABC):
    """The catalog under test.

    Everything the kit makes is in namespaces ``[*parent, <unique name>]``, in tables one level
    below, and in files under ``data_root`` or where the catalog itself puts those tables.
    """

    features: Features = Features()
    parent: Sequence[str] = ()
    """Existing namespace under which the kit makes its own; empty for the root."""
    data_root: str
    """Location for the data of registered tables: a directory or a URI that Lance can write."""
    storage_options: Mapping[str, str] = {}
    """What Lance needs to read and write ``data_root`` and the catalog's default locations."""
    deviations: Mapping[str, str] = {}
    """Known deviations: case to reason. The key is a case's name, possibly with the values of its
    own parameters, ``test_case[value]``. Each must fail; if one passes, the run fails until it is
    removed here."""
    other_entry_types: Sequence[str] = ()
    """Names of the ways in which other implementations write Lance entries, for ``make_entry``:
    with ``table_type=LANCE`` in capitals, or a location without a scheme."""
    broken_entry_types: Sequence[str] = ()
    """Names of the ways in which a Lance entry can have no usable location, for ``make_entry``: the
    adapter returns a record of ``table_type=lance`` with None or the bad text as its location. An
    entry that it cannot read at all is `TableRecord.unreadable` instead, and not one of these."""
    unreadable_types: Sequence[str] = ()
    """Names of what the server can list without being able to return it, for ``unreadable``: an
    entry, an entry that fails the request for all of its namespace, a namespace, a catalog."""
    stateful_bounds: StatefulBounds = StatefulBounds()
    restart_deadline: float = 60.0
    """Seconds within which the catalog must work again after ``start_server`` returned."""
    page_size: int = 100
    """`CatalogSuite`: the most entries that one request of a listing returns. The suite makes a few
    more than that, and 200 at least. If the server has no pages, the number that the adapter reads
    in a request."""
    identity_resolution: float = 0.0
    """`CatalogSuite`: seconds after which a recreated table is sure to have another ``identity``,
    if that is the time of creation."""
    secrets: Sequence[str] = ()
    """`CatalogSuite`: texts among the connection properties that must never be shown."""

    @abstractmethod
    def connect(self) -> LanceNamespace:
        """Return a new client object. It is closed by its ``close`` method, if it has one."""

    def register_location(self, location: str) -> str:
        """Return ``location`` under ``data_root`` in the form that RegisterTable takes."""
        return location

    def make_namespace(self, namespace_id: Sequence[str]) -> None:
        """Make a namespace if ``features.namespace_changes`` is False."""
        raise NotImplementedError

    def remove_namespace(self, namespace_id: Sequence[str]) -> None:
        """Remove what ``make_namespace`` made."""
        raise NotImplementedError

    def make_foreign_table(self, namespace_id: Sequence[str], name: str, location: str) -> None:
        """Make an entry that is not Lance's, with its data at ``location``."""
        raise NotImplementedError

    def make_entry(
        self, namespace_id: Sequence[str], name: str, location: str, entry_type: str
    ) -> None:
        """Make an entry of one of ``other_entry_types`` or ``broken_entry_types``.

        ``location`` has a Lance dataset already.
        """
        raise NotImplementedError

    def remove_entry(self, namespace_id: Sequence[str], name: str) -> None:
        """Remove an entry made by the two methods above, if it still exists; never its files."""
        raise NotImplementedError

    def inhabit(self, namespace_id: Sequence[str], location: str) -> Sequence[Neighbour]:
        """Fill a new namespace with what other tools keep in such a catalog, and return that.

        All cases of a class run beside these entries, which ``remove_entry`` removes. They can be
        read, and their data is below ``location``. Good choices are formats that name their files
        in a property, views, partitions elsewhere, odd names, and locations inside others.
        """
        raise NotImplementedError

    def unreadable(self, unreadable_type: str) -> AbstractContextManager[Sequence[str]]:
        """Return a context manager in which the server cannot return something that it lists.

        The value is that object's identifier: a namespace, or an entry of a namespace that also has
        others, which can be read. Only clients that are opened within the context need see it.
        """
        raise NotImplementedError

    def stop_server(self) -> None:
        """Kill the server, as a crash would."""
        raise NotImplementedError

    def start_server(self) -> None:
        """Start it again at the same address with its data; return when it responds."""
        raise NotImplementedError

    def second_user(self) -> LanceNamespace:
        """Return a client of a user with a part of the rights.

        She may make namespaces under ``parent``, and create, read and drop what is in them. No
        listing shows them to her. She may read nothing in the namespaces of ``connect``, and what
        exists there is refused to her, as permission denied. For a catalog whose listings omit what
        the caller has no right to list.
        """
        raise NotImplementedError

    # -- hooks of CatalogSuite -------------------------------------------------------------------

    def catalog(self) -> Catalog | None:
        """Return a new catalog to test, without calling it; None for another kind of namespace."""
        namespace = self.connect()
        return namespace.catalog if isinstance(namespace, LanceBridgeNamespace) else None

    def other_catalog(self) -> Catalog:
        """Return a catalog with a different connection, without calling it."""
        raise NotImplementedError

    def read_entry(self, path: Path) -> RawEntry:
        """Return the entry of a table in the catalog itself, read without the adapter."""
        raise NotImplementedError

    def write_entry(self, path: Path, entry: RawEntry) -> None:
        """Create an entry without the adapter. With ``is_external=False`` the entry says that the
        catalog may delete its files."""
        raise NotImplementedError

    def make_partitioned_table(
        self, namespace_id: Sequence[str], name: str, location: str, partitions: Sequence[str]
    ) -> None:
        """Make an entry that is not Lance's, with partitions at these locations; ``remove_entry``
        removes it. For a catalog with ``has_partitions``."""
        raise NotImplementedError

    def hidden_table(self, location: str) -> AbstractContextManager[None]:
        """Return a context manager in which the server has an entry at this location that no
        namespace of the catalog lists. For a catalog with ``hides_tables``."""
        raise NotImplementedError

    def faults(self) -> AbstractContextManager[Faults]:
        """Return a context manager for faults between an adapter and its server."""
        raise NotImplementedError

    def grants(self, options: Mapping[str, str], location: str, *, write: bool) -> bool:
        """Return whether vended storage options let their holder read, or write, a location."""
        raise NotImplementedError

    def lacks(self, need: str) -> str:
        """Return why ``need`` is missing; empty if it is not.

        A need is a feature, an optional method, or an operation (``LanceNamespace``).
        """
        if hasattr(Features, need) or need in Features.__dataclass_fields__:
            value = getattr(self.features, need)
            return "" if value else f"{type(self).__name__} declares features.{need} = {value!r}"
        if hasattr(LanceNamespace, need):
            is_absent = need in self.features.absent
            return f"{type(self).__name__} declares that {need} is absent" if is_absent else ""
        if need in ("other_entry_types", "broken_entry_types", "unreadable_types", "secrets"):
            return "" if getattr(self, need) else f"{type(self).__name__} declares no {need}"
        if getattr(type(self), need) is getattr(Target, need):
            return f"{type(self).__name__} does not implement {need}"
        return ""

    def deviates(self, case: str) -> bool:
        """Return whether a case, or ``case[name]``, is a known deviation, with any parameter."""
        plain = case.partition("[")[0]
        return any(case in (key, key.partition("[")[0]) or key == plain for key in self.deviations)
