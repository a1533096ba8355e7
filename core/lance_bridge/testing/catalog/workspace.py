"""What cases on a catalog share: a namespace for each, builders of records, skips, fixtures."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import pytest
from lance_namespace import ErrorCode, LanceNamespaceError

from ... import locations
from ...catalog import (
    GUARD,
    LANCE,
    MANAGED_BY,
    RESERVED_PREFIX,
    STORAGE,
    TABLE_TYPE,
    Catalog,
    NamespaceRecord,
    Path,
    TableRecord,
)
from ..calls import PREFIX, code_of, described, unique_name
from ..cases import Cases, Refusals, Storage
from ..target import Faults, Target

ENTRY_ID = RESERVED_PREFIX + "id"
MARKS = {TABLE_TYPE: LANCE, MANAGED_BY: STORAGE}


class Workspace(Refusals):
    """A catalog under test, and a namespace that no other case uses."""

    def __init__(self, target: Target, catalog: Catalog) -> None:
        self.target = target
        self.catalog = catalog
        self.capabilities = catalog.capabilities
        self.storage = Storage(target.storage_options)
        self._namespaces: list[Path] = []
        self._locations: list[str] = []
        self._connections = [catalog]
        self._numbers = itertools.count()
        self.path = self.new_namespace()

    def connect(self) -> Catalog:
        """Return another connection to the same catalog."""
        catalog = self.target.catalog()
        assert catalog is not None
        self._connections.append(catalog)
        return catalog

    # -- names -----------------------------------------------------------------------------------

    def unique_table(self) -> str:
        """Return a name that no table of the namespace has."""
        return f"t{next(self._numbers)}"

    def table(self, name: str = "t") -> Path:
        """Return the path of a table in the namespace."""
        return (*self.path, name)

    def track(self, namespace: Path) -> Path:
        """Remove this namespace, too, at the end of the case."""
        self._namespaces.append(namespace)
        return namespace

    def missing_namespace(self) -> Path:
        """Return the path of a namespace that does not exist, and is removed if it does later."""
        return self.track((*self.target.parent, unique_name()))

    def new_namespace(self, properties: Mapping[str, str] | None = None) -> Path:
        """Create a namespace and return its path."""
        path = self.missing_namespace()
        if self.capabilities.no_namespace_changes:
            self.target.make_namespace(list(path))
        else:
            self.catalog.create_namespace(self.namespace_record(path, properties))
        return path

    def namespace_record(
        self, path: Path, properties: Mapping[str, str] | None = None
    ) -> NamespaceRecord:
        """Return a record such as core makes for a new namespace."""
        return NamespaceRecord(path, {ENTRY_ID: unique_name(), **(properties or {})})

    # -- tables ----------------------------------------------------------------------------------

    def location(self, name: str = "t") -> str:
        """Return a new location under the target's data root, a URI as core passes it."""
        place = f"{self.target.data_root.rstrip('/')}/{self.path[-1]}_{name}.lance"
        self._locations.append(place)
        return locations.for_catalog(self.target.register_location(place))

    def record(
        self, name: str = "t", properties: Mapping[str, str] | None = None, **changes: str
    ) -> TableRecord:
        """Return a record such as core makes for a new table."""
        location = changes.pop("location", None) or self.location(name)
        own = {**MARKS, ENTRY_ID: unique_name()}
        return TableRecord(self.table(name), location, {**own, **(properties or {}), **changes})

    def create(self, name: str = "t", properties: Mapping[str, str] | None = None) -> TableRecord:
        """Create a table's entry and return it as the catalog has it."""
        record = self.record(name, properties)
        self.catalog.create_table(record)
        return self.catalog.load_table(record.path)

    def set(self, record: TableRecord, **changes: str) -> TableRecord:
        """Alter a record with these properties added; return the altered entry."""
        self.catalog.alter_table(with_properties(record, **changes))
        return self.catalog.load_table(record.path)

    def move(self, record: TableRecord, new_path: Path, catalog: Catalog | None = None) -> None:
        """Rename an entry, or copy it where core renames by copy, by this or another connection."""
        catalog = self.catalog if catalog is None else catalog
        if self.capabilities.renames_by_copy:
            catalog.copy_table(record, replace(record, path=new_path))
        else:
            catalog.rename_table(record, new_path)

    def guard(self) -> TableRecord:
        """Create an entry that the catalog compares and sets; return it as the catalog has it."""
        record = self.create("t", {"count": "0"})
        guard = self.catalog.commit_guard(record)
        assert isinstance(guard, str), f"commit_guard returned {guard!r}"
        assert guard, "commit_guard returned an empty guard"
        return self.set(record, **{GUARD: guard})

    def names(self, path: Path | None = None) -> list[str]:
        """Return the sorted names of all entries of a namespace."""
        return sorted(self.catalog.list_tables(self.path if path is None else path))

    def scanned(self, name: str) -> TableRecord:
        """Return the only entry of this name that a scan finds."""
        found = [r for r in self.catalog.scan_tables(self.path) if r.path[-1] == name]
        assert len(found) == 1, f"scan_tables returned {len(found)} entries of the name {name!r}"
        return found[0]

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove what the case made, as far as the catalog can."""
        for path in reversed(self._namespaces):
            _try(lambda path=path: self._remove(path))  # type: ignore[misc]  # mypy: lambda default
        for location in self._locations:
            if PREFIX in location:
                self.storage.remove(location)
        for catalog in self._connections:
            catalog.close()

    def _remove(self, path: Path) -> None:
        is_checked = self.capabilities.atomic_restrict or len(path) < self.capabilities.levels
        if (
            path != self.path
            and is_checked
            and not self.capabilities.no_namespace_changes
            and code_of(self.catalog.drop_namespace, path) != ErrorCode.NAMESPACE_NOT_EMPTY
        ):
            return
        if len(path) < self.capabilities.levels:
            for child in list(self.catalog.list_namespaces(path)):  # some servers add one
                self._remove((*path, child))
            self.catalog.drop_namespace(path)
            return
        for record in list(self.catalog.scan_tables(path)):
            _try(lambda record=record: self._drop(record))  # type: ignore[misc]  # the same
        if self.capabilities.no_namespace_changes:
            self.target.remove_namespace(list(path))
        else:
            self.catalog.drop_namespace(path)

    def _drop(self, record: TableRecord) -> None:
        try:
            self.catalog.drop_table(record)
        except LanceNamespaceError:
            if not self.target.lacks("remove_entry"):
                self.target.remove_entry(list(record.path[:-1]), record.path[-1])


def _try(action: Callable[[], object]) -> None:
    """Call the action and ignore its errors: a failed case may leave anything behind.

    Raises:
        NotImplementedError: a method of the catalog is not written yet; without it, later cases
            would find what is left.
    """
    with suppress(LanceNamespaceError, AttributeError, TypeError):
        action()


def with_properties(record: TableRecord, **changes: str) -> TableRecord:
    """Return the record with properties added."""
    return record.with_properties({**record.properties, **changes})


def same_location(one: str | None, other: str | None) -> bool:
    """Return whether two spellings mean the same location, as core compares them."""
    if one is None or other is None:
        return one == other
    return locations.key(one) == locations.key(other)


def keeps_location(found: str | None, wanted: str | None) -> bool:
    """Return whether a catalog has a location as core passed it, with a scheme if that had one.

    Other tools take a path without a scheme for one of their default file system.
    """
    return same_location(found, wanted) and _has_scheme(found) >= _has_scheme(wanted)


def _has_scheme(location: str | None) -> bool:
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", location or ""))


def require_same(found: TableRecord, wanted: TableRecord) -> None:
    """Require that an entry is the same when it is read in two ways."""
    for name in (
        "path", "location", "other_locations", "entry_type", "revision", "identity", "is_external"
    ):  # fmt: skip
        one, other = getattr(found, name), getattr(wanted, name)
        assert one == other, f"{name} is {one!r} in one answer and {other!r} in the other"
    assert dict(found.properties) == dict(wanted.properties)


def require_holds(found: TableRecord, wanted: TableRecord) -> None:
    """Require that an entry has what the record requests, and no other property."""
    assert found.path == wanted.path
    assert keeps_location(found.location, wanted.location), (found.location, wanted.location)
    require_properties(found.properties, wanted.properties)


def require_properties(found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Require equal properties, and show only what differs."""
    lost = {key: value for key, value in wanted.items() if key not in found}
    added = {key: value for key, value in found.items() if key not in wanted}
    changed = {k: (v, found[k]) for k, v in wanted.items() if k in found and found[k] != v}
    assert not lost, f"properties were lost: {lost}"
    assert not changed, f"properties were changed (wanted, found): {changed}"
    assert not added, f"properties were added: {added}"


def try_change(change: Callable[[], object]) -> bool:
    """Make a change that the catalog may refuse as InvalidInput; return whether it was made."""
    try:
        change()
    except LanceNamespaceError as error:
        if error.code == ErrorCode.INVALID_INPUT:
            return False
        message = f"expected success or INVALID_INPUT, got {described(error)}"
        raise AssertionError(message) from error
    return True


@contextmanager
def faults_of(target: Target, *needs: str) -> Iterator[Faults]:
    """Open the target's faults; skip the case if it lacks one that is needed."""
    with target.faults() as faults:
        for need in needs:
            reason = faults.lacks(need)
            if reason:
                pytest.skip(reason)
        yield faults


class CatalogCases(Cases):
    """Base of every group. A test module supplies the ``target`` fixture."""

    @pytest.fixture
    def workspace(
        self, request: pytest.FixtureRequest, target: Target, _declared: None
    ) -> Iterator[Workspace]:
        """A catalog and a namespace of the case's own."""
        with closing(open_workspace(target)) as workspace:
            workspace.case = request.node.originalname
            yield workspace

    @pytest.fixture
    def alterable(self, workspace: Workspace) -> Workspace:
        """A workspace of a catalog that alters entries."""
        skip_if(workspace, "no_alter")
        return workspace

    @pytest.fixture
    def guardable(self, alterable: Workspace) -> Workspace:
        """A workspace of a catalog that compares and sets entries."""
        skip_if(alterable, "no_managed_tables")
        return alterable

    @pytest.fixture
    def renamable(self, workspace: Workspace) -> Workspace:
        """A workspace of a catalog that renames entries."""
        skip_if(workspace, "no_rename")
        return workspace

    @pytest.fixture
    def changeable(self, workspace: Workspace) -> Workspace:
        """A workspace of a catalog that creates, alters and drops namespaces."""
        skip_if(workspace, "no_namespace_changes")
        return workspace


def open_workspace(target: Target) -> Workspace:
    """Return a workspace; skip if the target has no catalog of lance-bridge's."""
    catalog = target.catalog()
    if catalog is None:
        pytest.skip(f"{type(target).__name__} has no lance_bridge.Catalog to test")
    return Workspace(target, catalog)


def skip_if(workspace: Workspace, *capabilities: str) -> None:
    """Skip a case if one of these capabilities is set, with its name and value as the reason."""
    for name in capabilities:
        value = getattr(workspace.capabilities, name)
        if value:
            pytest.skip(f"capabilities.{name}: {value}")
        feature = name.removeprefix("no_")
        # The target may leave out a feature that the catalog has, as by ``--without``.
        if feature != name and not getattr(workspace.target.features, feature, True):
            pytest.skip(workspace.target.lacks(feature))


def skip_unless(workspace: Workspace, capability: str) -> None:
    """Skip a case if its capability is not set."""
    value = getattr(workspace.capabilities, capability)
    if not value:
        pytest.skip(f"capabilities.{capability} is {value!r}")
