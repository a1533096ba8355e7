"""The plan of maintenance: which tables of a catalog need it, and what for.

It is made from the listings of the catalog and of versions, and from the counters in the latest
manifest of each table. No data is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from itertools import groupby, islice

from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
)

from .. import locations
from ..catalog import NamespaceRecord, Path
from ..catalog_scan import innermost_namespaces
from ..connection import Connection
from ..entry import TableEntry
from ..errors import TableNotWrittenError, display, translate_lance_errors
from ..maintenance_policy import MaintenancePolicy
from ..storage.lance_format import Fragment, ManifestContent, parse_manifest
from ..storage.manifests import Manifest
from ..table import Table
from ..tables import Tables
from .indices import count_unindexed
from .maintenance import count_in_use
from .versions import directory_of

_THREADS = 8
"""Tables that are read at once."""
_VERSIONS = 100
"""So many versions to delete weigh as much as the number of fragments that makes a table due."""

Progress = Callable[[int, int | None], None]
"""Called with the number of tables that were read, and their total if it is known."""


class Action(str, Enum):
    """What maintenance does to a table, in this order."""

    COMPACT = "compact"
    INDEX = "index"
    CLEAN_UP = "clean-up"


@dataclass(frozen=True)
class Debt:
    """What maintenance of a table would remove, and what the table has.

    Attributes:
        rows: Those that are not deleted.
        small_fragments: Fragments that compaction would join, because those beside them are small,
            too, and fragments with more deleted rows than the policy allows.
        deleted_rows: Rows that are deleted, and still in data files.
        unindexed_rows: Rows that an index lacks, of the index that lacks most.
        old_versions: Versions that the policy does not keep. Tags, branches and clones may keep
            some of them.
    """

    rows: int
    fragments: int
    small_fragments: int
    deleted_rows: int
    unindexed_rows: int
    versions: int
    old_versions: int


@dataclass(frozen=True)
class TablePlan:
    """What maintenance would do to a table.

    Attributes:
        actions: Empty if nothing is due.
        weight: By which tables are ranked: each part of the debt in relation to the number from
            which the table is due.
    """

    path: Path
    policy: MaintenancePolicy
    debt: Debt
    actions: tuple[Action, ...]
    weight: float


@dataclass(frozen=True)
class Unplanned:
    """A table, or a namespace with its tables, that could not be read, or cannot be maintained."""

    path: Path
    reason: str


@dataclass(frozen=True)
class MaintenancePlan:
    """The tables of a catalog that need maintenance.

    Attributes:
        due: The tables with something to do, those that gain most first.
        unplanned: What could not be read.
        tables: How many tables were read.
        off: How many tables are not maintained because of their property.
    """

    due: tuple[TablePlan, ...]
    unplanned: tuple[Unplanned, ...]
    tables: int
    off: int


def plan_maintenance(
    tables: Tables, parent: Path = (), *, on_progress: Progress = lambda _done, _total: None
) -> MaintenancePlan:
    """Find the tables that need maintenance. Nothing is changed.

    A table or a namespace that cannot be read is part of the result.

    Args:
        tables: The tables of a catalog.
        parent: A namespace: only tables in it and in the namespaces below it are read.

    Raises:
        NamespaceNotFoundError: (1) the namespace does not exist.
        LanceNamespaceError: The namespaces of the catalog cannot be listed.
    """
    return _Planner(tables, Policies(tables.connection), parent, on_progress).run()


class Policies:
    """The policies of the tables of a catalog. It reads each namespace once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[Path, NamespaceRecord] = {}

    def read(self, namespace: Path) -> None:
        """Read a namespace and those outside of it. Raises what `Catalog.load_namespace` does."""
        for end in range(1, len(namespace) + 1):
            path = namespace[:end]
            if path not in self._known:
                self._known[path] = self._connection.catalog.load_namespace(path)

    def of(self, entry: TableEntry) -> MaintenancePolicy:
        """Return the policy of a table.

        Raises:
            InvalidInputError: (13) a property is not valid.
            LanceNamespaceError: a namespace cannot be read that was not read before.
        """
        self.read(entry.path[:-1])
        above = [self._known[entry.path[:end]].properties for end in range(1, len(entry.path))]
        return MaintenancePolicy.of(*above, entry.record.properties)


def plan_table(entry: TableEntry, policy: MaintenancePolicy) -> TablePlan | None:
    """Return what maintenance would do to a table; None if it has no data yet.

    Raises:
        InvalidTableStateError: (19) its data is missing, or its latest manifest is damaged.
        UnsupportedOperationError: (0) another implementation manages its versions.
        LanceNamespaceError: it cannot be read.
    """
    table = Table.of(entry)
    table.require_own_versions()
    directory = directory_of(table)
    versions = directory.list()
    if not versions:
        _require_unwritten(table)
        return None
    data = directory.files.read(directory.within(versions[-1].name))
    if data is None:
        raise ServiceUnavailableError(
            f"The latest manifest of table '{table.name}' was removed while it was read; retry"
        )
    try:
        content = parse_manifest(data)
    except ValueError as error:
        raise InvalidTableStateError(
            f"The latest manifest of table '{table.name}' is damaged: {error}"
        ) from error
    return _weigh(table, policy, _measure(table, policy, versions, content), content)


def _require_unwritten(table: Table) -> None:
    """Raise unless a table without versions is known to have had none."""
    try:
        table.require_data()
    except TableNotWrittenError:
        return
    raise ServiceUnavailableError(f"Table '{table.name}' changed while it was read; retry")


def _measure(
    table: Table, policy: MaintenancePolicy, versions: Sequence[Manifest], content: ManifestContent
) -> Debt:
    unindexed = 0
    if content.has_indices:
        with translate_lance_errors(f"The indices of table '{table.name}' could not be read"):
            unindexed = count_unindexed(table.open())
    fragments = content.fragments
    return Debt(
        rows=sum(each.rows for each in fragments),
        fragments=len(fragments),
        small_fragments=count_small(fragments, policy),
        deleted_rows=sum(each.deleted for each in fragments),
        unindexed_rows=unindexed,
        versions=len(versions),
        old_versions=_count_old(versions, policy),
    )


def count_small(fragments: Sequence[Fragment], policy: MaintenancePolicy) -> int:
    """Return the number of fragments that a compaction would rewrite, as Lance selects them.

    Those of an old writer of Lance, which have no number of rows, do not count.
    """

    def is_small(each: Fragment) -> bool:
        return 0 < each.rows + each.deleted < policy.target_rows

    count = 0
    for small, beside in groupby(
        fragments, lambda each: is_small(each) or _is_sparse(each, policy)
    ):
        found = list(beside)
        if small and (len(found) > 1 or _is_sparse(found[0], policy)):
            count += len(found)
    return count


def _is_sparse(fragment: Fragment, policy: MaintenancePolicy) -> bool:
    return fragment.deleted > policy.deleted_share * (fragment.rows + fragment.deleted)


def _count_old(versions: Sequence[Manifest], policy: MaintenancePolicy) -> int:
    """Return how many versions a clean-up may delete, by the times of their manifests."""
    if not policy.deletes_versions:
        return 0
    made = {
        each.version: datetime.fromtimestamp(each.timestamp_millis / 1000, timezone.utc)
        for each in versions
    }
    kept = max(policy.keep_versions or 1, count_in_use(made, policy.least_age))
    return max(len(versions) - kept, 0)


def _weigh(
    table: Table, policy: MaintenancePolicy, debt: Debt, content: ManifestContent
) -> TablePlan:
    is_sparse = any(_is_sparse(each, policy) for each in content.fragments)
    weights = {
        Action.COMPACT: debt.small_fragments / policy.min_fragments,
        Action.INDEX: debt.unindexed_rows / policy.unindexed_rows,
        Action.CLEAN_UP: debt.old_versions / _VERSIONS,
    }
    due = {
        Action.COMPACT: is_sparse or debt.small_fragments >= policy.min_fragments,
        Action.INDEX: debt.unindexed_rows >= policy.unindexed_rows,
        Action.CLEAN_UP: debt.old_versions > 0,
    }
    actions = tuple(each for each in Action if due[each])
    return TablePlan(table.path, policy, debt, actions, sum(weights[each] for each in actions))


@dataclass
class _Planner:
    """One plan, while it is made."""

    tables: Tables
    policies: Policies
    parent: Path
    on_progress: Progress
    unplanned: list[Unplanned] = field(default_factory=list)
    read: int = 0
    off: int = 0
    _places: dict[tuple[str, ...], Path] = field(default_factory=dict)

    def run(self) -> MaintenancePlan:
        self.policies.read(self.parent)
        due: list[TablePlan] = []
        entries = self._with_policies()
        with ThreadPoolExecutor(_THREADS) as threads:
            while chunk := list(islice(entries, _THREADS * 4)):
                for found in threads.map(self._plan, chunk):
                    if isinstance(found, Unplanned):
                        self.unplanned.append(found)
                    elif found is not None and found.actions:
                        due.append(found)
                self.read += len(chunk)
                self.on_progress(self.read, None)
        due.sort(key=lambda each: (-each.weight, each.path))
        return MaintenancePlan(tuple(due), tuple(self.unplanned), self.read, self.off)

    @staticmethod
    def _plan(given: tuple[TableEntry, MaintenancePolicy]) -> TablePlan | Unplanned | None:
        entry, policy = given
        try:
            return plan_table(entry, policy)
        except LanceNamespaceError as error:
            return Unplanned(entry.path, str(error))

    def _with_policies(self) -> Iterator[tuple[TableEntry, MaintenancePolicy]]:
        """Yield the entries that are maintained, with their policies."""
        for entry in self._entries():
            try:
                policy = self.policies.of(entry)
            except InvalidInputError as error:
                self.unplanned.append(Unplanned(entry.path, str(error)))
                continue
            if policy.enabled:
                yield entry, policy
            else:
                self.off += 1

    def _entries(self) -> Iterator[TableEntry]:
        """Yield the entries of Lance tables; what cannot be read is added to `unplanned`."""

        def leave_out(namespace: Path, error: LanceNamespaceError) -> None:
            self.unplanned.append(Unplanned(namespace, str(error)))

        catalog = self.tables.connection.catalog
        for namespace in innermost_namespaces(catalog, self.parent, leave_out):
            try:
                self.policies.read(namespace)
                yield from filter(self._is_own, self.tables.scan(namespace, lance_only=True))
            except NamespaceNotFoundError:
                continue  # dropped concurrently
            except LanceNamespaceError as error:
                leave_out(namespace, error)

    def _is_own(self, entry: TableEntry) -> bool:
        """Return whether an entry is the first for its location that is more than a link."""
        if entry.record.link_to or entry.manager:
            return False
        first = self._places.setdefault(locations.key(entry.location or "/"), entry.path)
        if first == entry.path or not entry.location:
            return True
        reason = f"it has the location of '{display(first)}', which is maintained for both"
        self.unplanned.append(Unplanned(entry.path, reason))
        return False
