"""Cases: entries are created, loaded, scanned, renamed, dropped, and keep their identity."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from lance_namespace import ErrorCode

from ...catalog import CatalogColumn, Column, Path, Published, TableRecord
from ..calls import code_of, refused
from ..cases import local_path, needs
from ..target import RawEntry
from .workspace import (
    CatalogCases,
    Workspace,
    keeps_location,
    require_holds,
    require_properties,
    require_same,
    same_location,
    skip_if,
    skip_unless,
    try_change,
    with_properties,
)

# -- entries ---------------------------------------------------------------------------------------


_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
_NO_NAMESPACE = ErrorCode.NAMESPACE_NOT_FOUND
_NO_TABLE = ErrorCode.TABLE_NOT_FOUND

LOCATIONS = ("plain", "with space", "a%20b", "ä-漢", "plus+and=equals", "UpperCase", "dots.in.it")
"""Last parts of locations."""


class EntryCases(CatalogCases):
    """An entry from its creation to its drop."""

    # -- create, load and scan -------------------------------------------------------------------

    def test_an_entry_is_the_same_when_created_loaded_and_scanned(
        self, workspace: Workspace
    ) -> None:
        wanted = workspace.record("t", {"author": "Ines"})
        created = workspace.catalog.create_table(wanted)
        loaded = workspace.catalog.load_table(wanted.path)
        require_holds(created, wanted)
        require_holds(loaded, wanted)
        assert created.identity in (None, loaded.identity)
        assert loaded.is_lance
        assert loaded.is_external
        require_same(workspace.scanned("t"), loaded)
        lance = list(workspace.catalog.scan_tables(workspace.path, lance_only=True))
        assert [record.path for record in lance] == [wanted.path]
        require_same(lance[0], loaded)

    def test_columns_are_those_of_the_entry_or_none(self, workspace: Workspace) -> None:
        for each in workspace.catalog.load_columns(workspace.create().path):
            assert isinstance(each, CatalogColumn)
            assert each.name, "a column has no name"
            assert each.type, f"column '{each.name}' has no type"

    def test_published_columns_replace_those_of_the_entry(self, workspace: Workspace) -> None:
        skip_unless(workspace, "publishes_columns")
        vector = {"type": "array", "elementType": "float", "containsNull": True}
        columns = (Column("id", "long"), Column("label", "string"), Column("vector", vector))
        record = workspace.create(properties={"team": "sales"})
        for wanted in (columns, columns[2:], ()):
            published = Published(wanted, rows=len(wanted), size=1000)
            workspace.catalog.alter_table(replace(record, published=published))
            altered = workspace.catalog.load_table(record.path)
            record = workspace.set(altered, turn=str(len(wanted)))  # keeps them
            assert record.properties["team"] == "sales"
            found = [each.name for each in workspace.catalog.load_columns(record.path)]
            assert found == [each.name for each in wanted], "an entry has other columns"

    def test_an_entry_has_an_identity_that_stays(self, workspace: Workspace) -> None:
        first = workspace.create()
        assert isinstance(first.identity, str), f"identity is {first.identity!r}"
        assert first.identity, "identity is empty"
        again = workspace.catalog.load_table(first.path)
        assert again.identity == first.identity
        assert again.revision == first.revision
        assert workspace.connect().load_table(first.path).identity == first.identity

    def test_a_recreated_table_has_a_new_identity(self, workspace: Workspace) -> None:
        seen = set()
        for turn in range(3):
            if turn:
                time.sleep(workspace.target.identity_resolution)
            record = workspace.create()
            assert record.identity not in seen, "a recreated table has the identity of the old one"
            seen.add(record.identity)
            workspace.catalog.drop_table(record)

    def test_a_location_is_kept_or_refused(self, workspace: Workspace) -> None:
        workspace.compare({name: self._changed_location(workspace, name) for name in LOCATIONS})

    def _changed_location(self, workspace: Workspace, name: str) -> str:
        """Create an entry at a location; return how it changed, empty if kept or refused."""
        wanted = workspace.record(workspace.unique_table(), location=workspace.location(name))
        if not try_change(lambda: workspace.catalog.create_table(wanted)):
            return "an entry was made" if wanted.path[-1] in workspace.names() else ""
        record = workspace.catalog.load_table(wanted.path)
        found = {record.location, workspace.scanned(wanted.path[-1]).location}
        workspace.catalog.drop_table(record)
        is_kept = len(found) == 1 and keeps_location(record.location, wanted.location)
        return "" if is_kept else f"wanted {wanted.location}, found {found}"

    @needs("write_entry")
    def test_an_entry_whose_files_are_the_catalogs_is_not_external(
        self, workspace: Workspace
    ) -> None:
        assert _owned(workspace).is_external is False
        assert workspace.scanned("t").is_external is False

    @needs("write_entry", "read_entry")
    def test_alter_says_whether_it_made_an_entry_external_and_its_marks_undo_that(
        self, alterable: Workspace
    ) -> None:
        record = _owned(alterable)
        ownership = alterable.catalog.load_ownership(record.path)
        changed = alterable.set(record, note="altered")
        assert changed.is_external is alterable.target.read_entry(record.path).is_external
        if ownership and changed.is_external:
            alterable.catalog.alter_ownership(changed, ownership)
            assert alterable.catalog.load_table(record.path).is_external is False
            assert alterable.catalog.load_ownership(record.path) == ownership

    @needs("write_entry", "read_entry")
    def test_alter_makes_an_entry_external_or_is_unsupported(self, alterable: Workspace) -> None:
        record = _owned(alterable)
        code = code_of(alterable.catalog.alter_table, with_properties(record, note="altered"))
        assert code in (None, ErrorCode.UNSUPPORTED)
        assert alterable.target.read_entry(record.path).is_external is (code is None)

    @needs("read_entry")
    def test_what_the_catalog_adds_to_an_entry_stays(self, alterable: Workspace) -> None:
        record = alterable.create()
        added = set(alterable.target.read_entry(record.path).properties) - set(record.properties)
        record = alterable.set(record, author="Ines")
        assert added <= set(alterable.target.read_entry(record.path).properties)
        capabilities = alterable.capabilities
        if not (capabilities.no_rename or capabilities.renames_by_copy):
            alterable.catalog.rename_table(record, alterable.table("new"))
            held = alterable.target.read_entry(alterable.table("new")).properties
            assert added <= set(held), "the rename lost what the catalog keeps in the entry"

    @needs("write_entry")
    def test_an_entry_of_others_is_shown_whole_and_not_as_lances(
        self, workspace: Workspace
    ) -> None:
        catalog, path, location = workspace.catalog, workspace.table("other"), workspace.location()
        wanted = {"table_type": "parquet", "author": "Ines", "x.y": "z"}
        workspace.target.write_entry(path, RawEntry(location, wanted))
        workspace.create("lance")
        found = catalog.load_table(path)
        assert {key: found.properties.get(key) for key in wanted} == wanted
        assert same_location(found.location, location)
        assert not found.is_lance
        require_same(workspace.scanned("other"), found)
        assert workspace.names() == ["lance", "other"]
        assert list(catalog.list_tables(workspace.path, lance_only=True)) == ["lance"]
        scanned = catalog.scan_tables(workspace.path, lance_only=True)
        assert [record.path[-1] for record in scanned] == ["lance"]

    @needs("write_entry")
    def test_an_entry_without_a_location_has_none(self, workspace: Workspace) -> None:
        path = workspace.table()
        workspace.target.write_entry(path, RawEntry(None, {"table_type": "view"}))
        assert workspace.catalog.load_table(path).location is None
        assert workspace.scanned("t").location is None

    @needs("write_entry")
    def test_the_type_of_lance_tables_is_known_in_any_letter_case(
        self, workspace: Workspace
    ) -> None:
        names = ["a", "b"]
        for name, table_type in zip(names, ("LANCE", "Lance"), strict=True):
            properties = {"table_type": table_type, "managed_by": "storage"}
            entry = RawEntry(workspace.location(name), properties)
            workspace.target.write_entry(workspace.table(name), entry)
            assert workspace.catalog.load_table(workspace.table(name)).is_lance
        assert list(workspace.catalog.list_tables(workspace.path, lance_only=True)) == names
        found = workspace.catalog.scan_tables(workspace.path, lance_only=True)
        assert [record.path[-1] for record in found] == names

    @needs("read_entry")
    def test_the_catalog_itself_holds_what_was_created(self, workspace: Workspace) -> None:
        record = workspace.create("t", {"author": "Ines", "note": "x" * 200})
        raw = workspace.target.read_entry(record.path)
        assert keeps_location(raw.location, record.location)
        held = {key: raw.properties.get(key) for key in record.properties}
        require_properties({k: v for k, v in held.items() if v is not None}, record.properties)
        assert raw.is_external, "the catalog may delete the files of a new entry"

    def test_create_of_an_existing_table_is_refused_and_changes_nothing(
        self, workspace: Workspace
    ) -> None:
        before = workspace.create()
        with refused(_EXISTS, naming="t"):
            workspace.catalog.create_table(workspace.record("t", {"author": "Ada"}))
        require_same(workspace.catalog.load_table(before.path), before)
        assert workspace.names() == ["t"]

    def test_load_of_a_missing_table_is_table_not_found(self, workspace: Workspace) -> None:
        workspace.create("abc")
        for name in ("ab", "abcd", "a_c", "bc"):  # the whole name counts
            with refused(_NO_TABLE, naming=name):
                workspace.catalog.load_table(workspace.table(name))
        with refused(_NO_TABLE, _NO_NAMESPACE):
            workspace.catalog.load_table((*workspace.missing_namespace(), "t"))

    def test_alter_of_a_missing_table_is_table_not_found(self, alterable: Workspace) -> None:
        record = alterable.create()
        alterable.catalog.drop_table(record)
        with refused(_NO_TABLE, ErrorCode.CONCURRENT_MODIFICATION, naming="t"):
            alterable.catalog.alter_table(with_properties(record, author="Ada"))
        assert alterable.names() == []

    def test_a_dropped_entry_is_gone_and_its_files_stay(self, workspace: Workspace) -> None:
        kept, dropped = workspace.create("kept"), workspace.create("dropped")
        for record in (kept, dropped):
            workspace.storage.put(record.location or "", "data/file", b"content")
        workspace.catalog.drop_table(dropped)
        with refused(_NO_TABLE, naming="dropped"):
            workspace.catalog.load_table(dropped.path)
        with refused(_NO_TABLE, naming="dropped"):
            workspace.catalog.drop_table(dropped)
        assert workspace.names() == ["kept"]
        assert [r.path for r in workspace.catalog.scan_tables(workspace.path)] == [kept.path]
        for record in (kept, dropped):
            assert workspace.storage.files(record.location or "") == {"data/file"}

    def test_a_record_of_a_dropped_table_drops_no_later_one_where_the_catalog_compares(
        self, workspace: Workspace
    ) -> None:
        stale = workspace.create()
        workspace.catalog.drop_table(stale)
        time.sleep(workspace.target.identity_resolution)
        later = workspace.create()
        code = code_of(workspace.catalog.drop_table, stale)
        if code is None:
            assert workspace.names() == [], "the drop succeeded, and the table is still there"
            assert not workspace.capabilities.compares_drops, "a later table was dropped"
            return
        assert code == ErrorCode.CONCURRENT_MODIFICATION
        require_same(workspace.catalog.load_table(later.path), later)
        assert workspace.capabilities.compares_drops, "compares_drops is not declared"

    def test_a_dropped_name_can_be_created_again(self, workspace: Workspace) -> None:
        workspace.catalog.drop_table(workspace.create("t", {"old": "yes"}))
        wanted = workspace.record("t", {"new": "yes"}, location=workspace.location("elsewhere"))
        workspace.catalog.create_table(wanted)
        require_holds(workspace.catalog.load_table(wanted.path), wanted)

    def test_a_catalog_makes_directories_only_where_it_says_so(self, workspace: Workspace) -> None:
        record = workspace.record()
        directory = local_path(record.location or "")
        if directory is None:
            pytest.skip("the target's data_root is not on local disk")
        skip_if(workspace, "makes_directories")
        workspace.catalog.create_table(record)
        assert not directory.exists(), "capabilities.makes_directories is False"


def _owned(workspace: Workspace) -> TableRecord:
    """Make an entry whose files the catalog may delete; return it as the catalog has it."""
    record = workspace.record()
    entry = RawEntry(record.location, record.properties, is_external=False)
    workspace.target.write_entry(record.path, entry)
    return workspace.catalog.load_table(record.path)


# -- renames ---------------------------------------------------------------------------------------


PROPERTIES = {
    "author": "Ines",
    "long": "x" * 250,
    "odd": "a'b\"c\\d 漢",
    "lance_bridge.version": "7",
}


class RenameCases(CatalogCases):
    """Rename and copy. A catalog has one of them, or says why it has neither."""

    def test_a_renamed_entry_keeps_all_but_its_name(self, renamable: Workspace) -> None:
        record = renamable.create("old", PROPERTIES)
        renamable.storage.put(record.location or "", "data", b"content")
        _move(renamable, record, renamable.table("new"))
        found = _require_moved(renamable, record, renamable.table("new"))
        require_same(renamable.scanned("new"), found)
        assert renamable.names() == ["new"]
        with refused(_NO_TABLE, naming="old"):
            renamable.catalog.load_table(record.path)
        assert renamable.storage.files(record.location or "") == {"data"}

    def test_rename_to_an_existing_name_is_refused_and_changes_nothing(
        self, renamable: Workspace
    ) -> None:
        source, taken = renamable.create("source"), renamable.create("taken")
        with refused(_EXISTS, naming="taken"):
            _move(renamable, source, taken.path)
        require_same(renamable.catalog.load_table(source.path), source)
        require_same(renamable.catalog.load_table(taken.path), taken)
        assert renamable.names() == ["source", "taken"]

    def test_rename_of_a_missing_table_is_table_not_found(self, renamable: Workspace) -> None:
        record = renamable.create("old")
        renamable.catalog.drop_table(record)
        with refused(_NO_TABLE, naming="old"):
            _move(renamable, record, renamable.table("new"))
        assert renamable.names() == []

    def test_rename_into_another_namespace_keeps_all_but_the_path(
        self, renamable: Workspace
    ) -> None:
        skip_if(renamable, "no_rename_across")
        record = renamable.create("old", PROPERTIES)
        other = (*renamable.new_namespace(), "new")
        _move(renamable, record, other)
        _require_moved(renamable, record, other)
        assert renamable.names() == []
        assert renamable.names(other[:-1]) == ["new"]

    def test_a_copy_leaves_the_entry_and_has_an_identity_of_its_own(
        self, renamable: Workspace
    ) -> None:
        skip_unless(renamable, "renames_by_copy")
        record = renamable.create("old", PROPERTIES)
        wanted = replace(record, path=renamable.table("new")).with_properties(
            {**record.properties, "lance_bridge.copied": "yes"}
        )
        renamable.catalog.copy_table(record, wanted)
        require_same(renamable.catalog.load_table(record.path), record)
        found = renamable.catalog.load_table(wanted.path)
        require_properties(found.properties, wanted.properties)
        assert found.location == record.location
        assert found.is_external


def _move(workspace: Workspace, record: TableRecord, new_path: Path) -> None:
    """Rename as core does it on this catalog."""
    workspace.move(record, new_path)
    if workspace.capabilities.renames_by_copy:
        workspace.catalog.drop_table(record)


def _require_moved(workspace: Workspace, old: TableRecord, path: Path) -> TableRecord:
    """Require all of an entry but its path at the new one; return it."""
    found = workspace.catalog.load_table(path)
    assert (found.path, found.location) == (path, old.location)
    require_properties(found.properties, old.properties)
    assert found.is_external
    if not workspace.capabilities.renames_by_copy:
        assert found.identity == old.identity, "a renamed table has another identity"
    return found
