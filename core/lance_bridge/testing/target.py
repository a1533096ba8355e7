"""What the author of an adapter supplies: the catalog under test, its features, and hooks."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lance_namespace import LanceNamespace

from ..catalog import Capabilities, Catalog, Path
from ..namespace import LanceBridgeNamespace
from ..operations.data import NEED_ENGINE, ComputeOperations

# -- features --------------------------------------------------------------------------------------


HOSTILE_NAMES = (
    "a/b",
    "../a",
    "..",
    ".",
    "a\\b",
    "a'b",
    'a"b',
    "a`b",
    "a;drop table b",
    "a\nb",
    "a\tb",
    "a\x00b",
    "a b",
    " a",
    "a%2Fb",
    "a*",
    "a$b",
    "@a#b",
    "a?x=1#y",
)


@dataclass(frozen=True)
class Features:
    """What the catalog declares about itself. Cases that need a missing feature are skipped.

    The defaults are those of a leveled catalog in which everything works.
    """

    folds_case: bool = False
    """Names are kept in lower case and looked up in any."""
    fixed_depth: bool = True
    """Every table identifier has the same number of names; any other number is InvalidInput."""
    namespace_changes: bool = True
    """Namespaces can be created and dropped under the target's parent."""
    nested_namespaces: bool = False
    """A namespace that holds tables may hold namespaces too."""
    namespace_properties: bool = True
    table_properties: bool = True
    rename: bool = True
    rename_across: bool = True
    """A table can be renamed into another namespace."""
    register: bool = True
    alter: bool = True
    """An entry's properties and location can change, as by RegisterTable with Overwrite."""
    chosen_location: bool = True
    """DeclareTable honours the location in the request."""
    shared_locations: bool = True
    """Two entries can have one location, or one inside the other's."""
    cascade: bool = True
    list_all: bool = True
    declare_again: bool = True
    """A table without data can be declared again, with the same response, so that a failed first
    write can be retried. False: TableAlreadyExists."""
    create_completes: bool = True
    """CreateTable in mode Create fills a declared table without data. False: TableAlreadyExists."""
    exclusive_changes: bool = True
    """Exactly one of several concurrent callers that drop or rename a table succeeds. False: more
    than one may succeed, but the result must be right."""
    managed_tables: bool = True
    """The catalog can hold a table's latest version: ``managed_by=impl`` among the properties. Each
    commit compares and sets the entry. False: Unsupported (0)."""
    pickles: bool = False
    """A client object can be pickled."""
    delimiter: str = "$"
    """Joins the names of an identifier in the response of ListAllTables."""
    good_names: Sequence[str] = ("a", "_a", "a_b", "a1", "1a", "select", "table", "a" * 60)
    """Odd names, in the catalog's own spelling, that must work for namespaces and tables."""
    hostile_names: Sequence[str] = HOSTILE_NAMES
    """Names that must be refused as InvalidInput."""
    max_namespace_name: int | None = None
    """Longest accepted name, in characters; one more is InvalidInput. None: unlimited."""
    max_table_name: int | None = None
    absent: frozenset[str] = frozenset()
    """Operations (method names of ``LanceNamespace``) that must raise Unsupported (0)."""


@dataclass(frozen=True)
class StatefulBounds:
    """How long the stateful case runs: ``examples`` sequences of at most ``steps`` operations."""

    examples: int = 5
    steps: int = 25
    derandomize: bool = True
    """Use the same sequences in every run. False tries new ones, for long manual runs."""
    shrink: bool = True
    """Shorten a failing sequence before it is reported, which repeats it many times."""


def from_capabilities(capabilities: Capabilities, base: Features | None = None) -> Features:
    """Return ``base`` with the features that the capabilities decide."""
    switches: dict[str, Any] = {name: not why for name, why in _reasons(capabilities).items()}
    return replace(
        base or Features(),
        folds_case=capabilities.folds_case,
        max_namespace_name=capabilities.namespace_levels[-1].max_length,
        max_table_name=capabilities.table_rule.max_length,
        **switches,
    )


def reasons_from(capabilities: Capabilities) -> dict[str, str]:
    """Return the features that `from_capabilities` turns off, with the reasons."""
    return {name: f"{name}: {why}" for name, why in _reasons(capabilities).items() if why}


def _reasons(capabilities: Capabilities) -> dict[str, str]:
    return {
        "namespace_changes": capabilities.no_namespace_changes,
        "alter": capabilities.no_alter,
        "managed_tables": capabilities.no_managed_tables or capabilities.no_alter,
        "rename": capabilities.no_rename,
        "rename_across": capabilities.no_rename or capabilities.no_rename_across,
    }


def without(features: Features, *names: str) -> Features:
    """Return the features with these turned off.

    Raises:
        ValueError: a name is not that of a feature that is on or off.
    """
    switches = {field.name for field in fields(Features) if field.type == "bool"}
    unknown = sorted(set(names) - switches)
    if unknown:
        raise ValueError(f"unknown features: {unknown}; known are {sorted(switches)}")
    changes: dict[str, Any] = dict.fromkeys(names, False)
    return replace(features, **changes)


def inherited_operations(implementation: type[LanceNamespace]) -> frozenset[str]:
    """Return the operations that a class does not override, and that are therefore Unsupported.

    They are those of ``LanceNamespace``, and those that need a compute engine.
    """
    operations = {name for name in vars(LanceNamespace) if not name.startswith("_")}
    unsupported = [
        *(vars(LanceNamespace)[name] for name in operations),
        *(vars(ComputeOperations)[name] for name in NEED_ENGINE),
    ]
    return frozenset(
        name for name in operations if getattr(implementation, name, None) in unsupported
    )


# -- hooks for `CatalogSuite` ----------------------------------------------------------------------


@dataclass(frozen=True)
class RawEntry:
    """A table's entry as the catalog itself holds it, read or written without the adapter."""

    location: str | None
    properties: Mapping[str, str] = field(default_factory=dict)
    """All that the catalog stores besides the location, including its own additions."""
    is_external: bool = True
    """The entry has every mark that keeps the catalog from deleting or moving its files."""


@dataclass(frozen=True)
class Neighbour:
    """An entry that another tool keeps in the catalog: see `Target.inhabit`."""

    name: str
    locations: Sequence[str] = ()
    """Where it may have data, by any field of the entry or of its partitions. The kit writes
    datasets there."""
    is_lance: bool = False
    """Whether it is a Lance table, such as one whose data is lost."""


@dataclass
class HeldChange:
    """A request that is stopped on its way to the server."""

    arrived: threading.Event = field(default_factory=threading.Event)
    """Set when the request has left the adapter."""
    release: threading.Event = field(default_factory=threading.Event)
    """Set it to let the request continue."""


class Faults(ABC):
    """Faults between an adapter and its server, or its library if it has no server.

    Every method except `catalog` is optional; the cases that need a missing one are skipped. Each
    returns a context manager, and the fault ends with it.
    """

    @property
    @abstractmethod
    def catalog(self) -> Catalog:
        """The catalog whose requests are affected. It should not wait long between retries."""

    def lose_next_reply(self) -> AbstractContextManager[None]:
        """Let the server make the next change, and lose its reply."""
        raise NotImplementedError

    def stall_next_reply(self) -> AbstractContextManager[None]:
        """Let the server make the next change, and not reply until the context ends.

        `catalog` should wait for a reply for a second or so, not more.
        """
        raise NotImplementedError

    def fail_next_reply(self) -> AbstractContextManager[None]:
        """Let the server make the next change, and reply as `be_broken` does."""
        raise NotImplementedError

    def reject(self) -> AbstractContextManager[None]:
        """Answer every request as the server answers credentials that are wrong or expired."""
        raise NotImplementedError

    def refuse(self) -> AbstractContextManager[None]:
        """Answer every request as the server answers a caller without permission."""
        raise NotImplementedError

    def be_busy(self) -> AbstractContextManager[None]:
        """Answer every request as the server does when it is overloaded or down for a while.

        A library whose readers never wait raises its error for a reader that cannot be admitted.
        """
        raise NotImplementedError

    def be_broken(self) -> AbstractContextManager[None]:
        """Answer every request as the server does after an internal error."""
        raise NotImplementedError

    def break_listing(self) -> AbstractContextManager[None]:
        """Answer the first request of a listing, and later ones as `be_broken` does."""
        raise NotImplementedError

    def hold_next_change(self) -> AbstractContextManager[HeldChange]:
        """Hold the next request that changes something before it reaches the server."""
        raise NotImplementedError

    def changes_received(self) -> int:
        """Return how many requests that change something have reached the server so far.

        For a database these are commits; a change that a comparison refused does not count.
        """
        raise NotImplementedError

    def lacks(self, need: str) -> str:
        """Return why the method ``need`` is missing; empty if it is not."""
        if getattr(type(self), need) is getattr(Faults, need):
            return f"{type(self).__name__} does not implement {need}"
        return ""


# -- target ----------------------------------------------------------------------------------------


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
        if hasattr(Features, need):
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
