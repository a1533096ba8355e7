"""Cases: listings and scans are whole, with entries of others and hidden ones, or they fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import pytest
from lance_namespace import ErrorCode

from ... import locations
from ...catalog import Catalog, Path
from ...errors import OF_ONE_OBJECT
from ..calls import code_of, refused
from ..cases import Namespace, needs
from ..target import Target
from .connections import FAILURE_CODES
from .workspace import (
    CatalogCases,
    Workspace,
    faults_of,
    open_workspace,
    require_same,
    same_location,
    skip_unless,
)

# -- listings --------------------------------------------------------------------------------------


_MORE = 5
"""Entries on the last page."""
_FEWEST = 200
"""Entries before the last page, however small pages are: clients have limits of their own."""
_THREADS = 4

ODD_NAMES = ("a", "aa", "ab", "a_b", "a__", "a1", "a10", "a9", "_a", "b", "B", "A_b", "9", "10")
"""Names that databases and people sort differently."""

Listing = Callable[[Catalog, Path], Iterable[str]]

LISTINGS: dict[str, Listing] = {
    "list_tables": lambda catalog, path: catalog.list_tables(path),
    "list_lance_only": lambda catalog, path: catalog.list_tables(path, lance_only=True),
    "scan_tables": lambda catalog, path: (r.path[-1] for r in catalog.scan_tables(path)),
    "scan_lance_only": lambda catalog, path: (
        r.path[-1] for r in catalog.scan_tables(path, lance_only=True)
    ),
}


class FullNamespace(NamedTuple):
    """A namespace with more tables than fit on a page."""

    workspace: Workspace
    path: Path
    names: list[str]


class ListingCases(CatalogCases):
    """Tables and namespaces of more than one page."""

    @pytest.fixture(scope="class")
    @classmethod
    def full(cls, target: Target) -> Iterator[FullNamespace]:
        """A namespace with pages of tables and a few more; cases leave it as it is."""
        count = max(target.page_size, _FEWEST) + _MORE
        names = [f"t{number:05d}" for number in range(count)]
        in_any_order = sorted(names, key=lambda name: name[::-1])
        with closing(open_workspace(target)) as workspace:
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(lambda n: _create(workspace, n), in_any_order))
            yield FullNamespace(workspace, workspace.path, names)

    # -- tables ----------------------------------------------------------------------------------

    def test_a_listing_of_more_than_a_page_is_whole(self, full: FullNamespace) -> None:
        for name, listing in LISTINGS.items():
            _require_names(name, list(listing(full.workspace.catalog, full.path)), full.names)
        catalog = full.workspace.catalog
        scanned = {record.path[-1]: record for record in catalog.scan_tables(full.path)}
        for name in (full.names[0], full.names[full.workspace.target.page_size], full.names[-1]):
            require_same(scanned[name], catalog.load_table((*full.path, name)))

    def test_a_scan_begins_after_a_name(self, full: FullNamespace) -> None:
        catalog, names = full.workspace.catalog, full.names
        marks = (None, names[0], "", "t00002x", names[-_MORE], names[-_MORE], "zz", names[-1])
        for number, after in enumerate(marks):
            wanted = [name for name in names if after is None or name > after]
            records = catalog.scan_tables(full.path, lance_only=number % 2 == 1, after=after)
            assert [r.path[-1] for r in records] == wanted, f"after {after!r}"

    def test_names_are_sorted_as_python_sorts_them(self, workspace: Workspace) -> None:
        rule, folds_case = workspace.capabilities.table_rule, workspace.capabilities.folds_case
        names = sorted(
            name
            for name in ODD_NAMES
            if rule.pattern.fullmatch(name) and not (folds_case and name != name.lower())
        )
        for name in names:
            workspace.create(name)
        other = workspace.new_namespace()
        for name, listing in LISTINGS.items():
            found = list(listing(workspace.catalog, workspace.path))
            assert found == names, f"{name} returned {found}"
            assert list(listing(workspace.catalog, other)) == [], name
        for after in names:
            records = workspace.catalog.scan_tables(workspace.path, after=after)
            assert [r.path[-1] for r in records] == [name for name in names if name > after]

    def test_a_scan_goes_on_where_entries_vanish(self, full: FullNamespace) -> None:
        """Of entries that vanish, the last is on a later page than the first."""
        catalog = full.workspace.catalog
        scan = iter(catalog.scan_tables(full.path))
        found = {next(scan).path[-1]}
        dropped = {full.names[len(full.names) // 2], full.names[-2]}
        try:
            for name in dropped:
                catalog.drop_table(catalog.load_table((*full.path, name)))
            found |= {record.path[-1] for record in scan}
        finally:
            for name in dropped:
                _create(full.workspace, name)
        kept = {*full.names} - dropped
        assert kept <= found, f"missing: {sorted(kept - found)[:5]}"

    @needs("faults")
    def test_a_listing_that_breaks_off_fails(self, full: FullNamespace) -> None:
        with faults_of(full.workspace.target, "break_listing") as faults:
            for name, listing in LISTINGS.items():
                found: list[str] = []
                with faults.break_listing():
                    code = code_of(_fill, found, listing, faults.catalog, full.path)
                if code is None:
                    # It took only one request, or read the rest in another way.
                    _require_names(name, found, full.names)
                else:
                    assert code in FAILURE_CODES, name

    def test_a_listing_of_a_missing_namespace_is_namespace_not_found(
        self, workspace: Workspace
    ) -> None:
        missing = workspace.missing_namespace()
        for listing in LISTINGS.values():
            with refused(ErrorCode.NAMESPACE_NOT_FOUND, naming=missing[-1]):
                list(listing(workspace.catalog, missing))

    @needs("broken_entry_types", "make_entry", "remove_entry")
    def test_a_broken_entry_does_not_stop_a_listing(self, workspace: Workspace) -> None:
        entry_types = workspace.target.broken_entry_types
        whole = ["a", "m", "z"]
        for name in whole:
            workspace.create(name)
        broken = [f"m{number}" for number, _ in enumerate(entry_types)]
        try:
            for name, entry_type in zip(broken, entry_types, strict=True):
                place = workspace.location(name)
                workspace.target.make_entry(list(workspace.path), name, place, entry_type)
            for name, listing in LISTINGS.items():
                found = list(listing(workspace.catalog, workspace.path))
                assert {*whole} <= {*found} <= {*whole, *broken}, f"{name} returned {found}"
                assert len(found) == len(set(found)), f"{name} returned {found}"
            # If it were left out, its name would look free, and its files could be deleted.
            scanned = {r.path[-1]: r for r in workspace.catalog.scan_tables(workspace.path)}
            assert set(scanned) == {*whole, *broken}, "a scan leaves out what it cannot read"
            for name in broken:
                if not scanned[name].is_readable:
                    assert not scanned[name].is_lance
                    assert scanned[name].location is None
            # If a name were left out, a namespace that is not empty would look empty.
            assert workspace.names() == sorted([*whole, *broken])
        finally:
            for name in broken:
                workspace.target.remove_entry(list(workspace.path), name)

    def test_a_listing_of_more_namespaces_than_a_page_is_whole(self, changeable: Workspace) -> None:
        parent = tuple(changeable.target.parent)
        count = changeable.target.page_size + _MORE
        with ThreadPoolExecutor(_THREADS) as pool:
            made = list(pool.map(lambda _: changeable.new_namespace()[-1], range(count)))
        found = list(changeable.catalog.list_namespaces(parent))
        assert len(found) == len(set(found)), "a namespace is listed twice"
        assert set(made) <= set(found), f"missing: {sorted(set(made) - set(found))[:5]}"


def _create(workspace: Workspace, name: str) -> None:
    workspace.catalog.create_table(workspace.record(name))


def _fill(found: list[str], listing: Listing, catalog: Catalog, path: Path) -> None:
    found.extend(listing(catalog, path))


def _require_names(listing: str, found: list[str], wanted: list[str]) -> None:
    twice = sorted({name for name in found if found.count(name) > 1})
    assert not twice, f"{listing} returned twice: {twice[:5]}"
    missing = sorted(set(wanted) - set(found))
    assert not missing, f"{listing} lacks {len(missing)} of {len(wanted)}: {missing[:5]}"
    assert found == wanted, f"{listing} returned {found[:5]}…"


# -- entries of other tools ------------------------------------------------------------------------


class NeighbourCases(CatalogCases):
    """DropTable deletes the files at a location that a scan does not return."""

    @needs("inhabit")
    def test_every_location_of_an_entry_is_returned(
        self, workspace: Workspace, inhabited: Namespace
    ) -> None:
        catalog = workspace.catalog
        scanned = {each.path[-1]: each for each in catalog.scan_tables(tuple(inhabited.id))}
        assert sorted(scanned) == sorted(each.name for each in inhabited.neighbours)
        for each in inhabited.neighbours:
            record = scanned[each.name]
            require_same(record, catalog.load_table(record.path))
            assert record.is_lance is each.is_lance, each.name
            partitions = catalog.partition_locations(record) if record.is_partitioned else ()
            found = locations.keys_of([*record.all_locations, *partitions])
            lost = [place for place in each.locations if locations.key(place) not in found]
            assert not lost, f"the record of {each.name} lacks {lost}"

    @needs("unreadable_types", "unreadable")
    def test_what_cannot_be_read_is_neither_absent_nor_the_end_of_a_scan(
        self, target: Target
    ) -> None:
        for name in target.unreadable_types:
            with target.unreadable(name) as found, closing(open_workspace(target)) as workspace:
                catalog, path = workspace.catalog, tuple(found)
                if len(path) > workspace.capabilities.levels:
                    _require_unreadable_entry(catalog, path)
                    continue
                assert path[-1] in catalog.list_namespaces(path[:-1])
                is_innermost = len(path) == workspace.capabilities.levels
                with pytest.raises(OF_ONE_OBJECT):
                    list((catalog.scan_tables if is_innermost else catalog.list_namespaces)(path))


def _require_unreadable_entry(catalog: Catalog, path: Path) -> None:
    scanned = {record.path: record for record in catalog.scan_tables(path[:-1])}
    unread = [each for each, record in scanned.items() if not record.is_readable]
    assert unread == [path], f"a scan returns {unread} as unreadable, instead of {path}"
    assert len(scanned) > 1, "a scan leaves out what is beside an unreadable entry"
    assert sorted(each[-1] for each in scanned) == list(catalog.list_tables(path[:-1]))
    assert path not in [each.path for each in catalog.scan_tables(path[:-1], lance_only=True)]
    absent = (None, ErrorCode.TABLE_NOT_FOUND, ErrorCode.NAMESPACE_NOT_FOUND)
    assert code_of(catalog.load_table, path) not in absent


# -- hidden tables and partitions ------------------------------------------------------------------


_NAME = "partitioned"


class SharedLocationCases(CatalogCases):
    """DropTable deletes the files at a location that is missing from these results."""

    @pytest.fixture
    def partitions(self, workspace: Workspace) -> Iterator[list[str]]:
        """The locations of more partitions of the entry `_NAME` than fit on a page."""
        _require(workspace, "has_partitions", "make_partitioned_table")
        count = workspace.target.page_size + _MORE
        partitions = [workspace.location(f"day{number}") for number in range(count)]
        namespace_id, own = list(workspace.path), workspace.location(_NAME)
        workspace.target.make_partitioned_table(namespace_id, _NAME, own, partitions)
        yield partitions
        workspace.target.remove_entry(namespace_id, _NAME)

    def test_partitions_of_more_than_a_page_are_all_returned(
        self, workspace: Workspace, partitions: list[str]
    ) -> None:
        record = workspace.catalog.load_table(workspace.table(_NAME))
        for found in (record, workspace.scanned(_NAME)):
            assert found.is_partitioned, "an entry with partitions says that it has none"
            assert _keys(workspace.catalog.partition_locations(found)) == _keys(partitions)

    def test_an_entry_that_has_vanished_has_no_partitions(
        self, workspace: Workspace, partitions: list[str]
    ) -> None:
        assert partitions
        record = workspace.catalog.load_table(workspace.table(_NAME))
        workspace.target.remove_entry(list(workspace.path), _NAME)
        assert list(workspace.catalog.partition_locations(record)) == []

    def test_a_table_without_partitions_says_so(self, workspace: Workspace) -> None:
        record = workspace.create()
        assert not record.is_partitioned
        assert not workspace.scanned("t").is_partitioned

    @needs("faults")
    def test_partitions_that_may_not_be_read_are_permission_denied(
        self, workspace: Workspace, partitions: list[str]
    ) -> None:
        assert partitions
        record = workspace.catalog.load_table(workspace.table(_NAME))
        _require_denied(workspace, lambda catalog: list(catalog.partition_locations(record)))

    @needs("faults")
    def test_partitions_whose_reading_breaks_off_are_whole_or_an_error(
        self, workspace: Workspace, partitions: list[str]
    ) -> None:
        record = workspace.catalog.load_table(workspace.table(_NAME))
        found: list[str] = []
        with faults_of(workspace.target, "break_listing") as faults, faults.break_listing():
            code = code_of(lambda: found.extend(faults.catalog.partition_locations(record)))
        assert code in FAILURE_CODES or _keys(found) == _keys(partitions), (
            f"{len(found)} were returned"
        )

    def test_a_hidden_table_is_returned(self, workspace: Workspace) -> None:
        _require(workspace, "hides_tables", "hidden_table")
        place = workspace.location("hidden")
        with workspace.target.hidden_table(place):
            found = list(workspace.catalog.scan_hidden_tables())
            assert any(same_location(each.location, place) for each in found)
        found = list(workspace.catalog.scan_hidden_tables())
        assert not any(same_location(each.location, place) for each in found)

    def test_a_table_of_the_catalog_is_not_hidden(self, workspace: Workspace) -> None:
        record = workspace.create()
        hidden = workspace.catalog.scan_hidden_tables()
        assert not any(same_location(each.location, record.location) for each in hidden)

    @needs("faults")
    def test_hidden_tables_that_may_not_be_read_are_permission_denied(
        self, workspace: Workspace
    ) -> None:
        skip_unless(workspace, "hides_tables")
        _require_denied(workspace, lambda catalog: list(catalog.scan_hidden_tables()))


def _require_denied(workspace: Workspace, read: Callable[[Catalog], object]) -> None:
    with faults_of(workspace.target, "refuse") as faults, faults.refuse():
        assert code_of(read, faults.catalog) == ErrorCode.PERMISSION_DENIED


def _require(workspace: Workspace, capability: str, hook: str) -> None:
    """Skip a case if the catalog lacks the capability, or the target the hook."""
    skip_unless(workspace, capability)
    reason = workspace.target.lacks(hook)
    if reason:
        pytest.skip(reason)


def _keys(partitions: Iterable[str]) -> Counter[tuple[str, ...]]:
    return Counter(map(locations.key, partitions))
