"""Cases: listings are whole, whatever the size of a page, or they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from lance_namespace import ErrorCode

from ...catalog import Catalog, Path
from ..cases import needs
from ..expect import code_of, refused
from ..target import Target
from .faults import FAILURE_CODES
from .workspace import CatalogCases, Workspace, faults_of, open_workspace, require_same, skip_if

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


class FullNamespace:
    """A namespace with more tables than fit on a page."""

    def __init__(self, workspace: Workspace, names: list[str]) -> None:
        self.workspace = workspace
        self.names = names

    @property
    def path(self) -> Path:
        return self.workspace.path


class ListingCases(CatalogCases):
    """Tables and namespaces of more than one page."""

    @pytest.fixture(scope="class")
    @classmethod
    def full(cls, target: Target) -> Iterator[FullNamespace]:
        """A namespace with pages of tables and a few more; cases leave it as it is."""
        workspace = open_workspace(target)
        count = max(target.page_size, _FEWEST) + _MORE
        names = [f"t{number:05d}" for number in range(count)]
        in_any_order = sorted(names, key=lambda name: name[::-1])
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda n: _create(workspace, n), in_any_order))
        yield FullNamespace(workspace, names)
        workspace.close()

    # -- tables ----------------------------------------------------------------------------------

    def test_a_listing_of_more_than_a_page_is_whole(self, full: FullNamespace) -> None:
        for name, listing in LISTINGS.items():
            _require_names(name, list(listing(full.workspace.catalog, full.path)), full.names)

    def test_a_scan_of_more_than_a_page_returns_what_load_returns(
        self, full: FullNamespace
    ) -> None:
        catalog = full.workspace.catalog
        scanned = {record.path[-1]: record for record in catalog.scan_tables(full.path)}
        _require_names("scan_tables", sorted(scanned), full.names)
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
        for name, listing in LISTINGS.items():
            found = list(listing(workspace.catalog, workspace.path))
            assert found == names, f"{name} returned {found}"
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

    def test_a_listing_is_of_its_own_namespace(self, workspace: Workspace) -> None:
        workspace.create("here")
        other = workspace.new_namespace()
        for name, listing in LISTINGS.items():
            assert list(listing(workspace.catalog, other)) == [], name
            assert list(listing(workspace.catalog, workspace.path)) == ["here"], name

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
                assert set(whole) <= set(found), f"{name} returned {found}"
                assert set(found) <= {*whole, *broken}, f"{name} returned {found}"
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

    # -- namespaces ------------------------------------------------------------------------------

    def test_a_listing_of_more_namespaces_than_a_page_is_whole(self, workspace: Workspace) -> None:
        skip_if(workspace, "no_namespace_changes")
        parent = tuple(workspace.target.parent)
        count = workspace.target.page_size + _MORE
        with ThreadPoolExecutor(_THREADS) as pool:
            made = list(pool.map(lambda _: workspace.new_namespace()[-1], range(count)))
        found = list(workspace.catalog.list_namespaces(parent))
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
