"""Cases: an entry gets another name, by the catalog's rename or as a copy that core asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lance_namespace import ErrorCode

from ...catalog import Path, TableRecord
from ..expect import refused
from .workspace import (
    CatalogCases,
    Workspace,
    require_properties,
    require_same,
    skip_if,
    skip_unless,
)

_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
_NO_TABLE = ErrorCode.TABLE_NOT_FOUND

PROPERTIES = {
    "author": "Ines",
    "long": "x" * 250,
    "odd": "a'b\"c\\d 漢",
    "lance_bridge.version": "7",
}


class RenameCases(CatalogCases):
    """Rename and copy. A catalog has one of them, or says why it has neither."""

    @pytest.fixture
    def renamable(self, workspace: Workspace) -> Workspace:
        """A workspace of a catalog that renames entries."""
        skip_if(workspace, "no_rename")
        return workspace

    def test_a_renamed_entry_keeps_all_but_its_name(self, renamable: Workspace) -> None:
        record = renamable.create("old", PROPERTIES)
        renamable.storage.put(record.location or "", "data", b"content")
        _move(renamable, record, renamable.table("new"))
        found = renamable.catalog.load_table(renamable.table("new"))
        assert found.path == renamable.table("new")
        assert found.location == record.location
        require_properties(found.properties, record.properties)
        assert found.is_external
        if not renamable.capabilities.renames_by_copy:
            assert found.identity == record.identity, "a renamed table has another identity"
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
        found = renamable.catalog.load_table(other)
        assert found.location == record.location
        require_properties(found.properties, record.properties)
        assert found.is_external
        if not renamable.capabilities.renames_by_copy:
            assert found.identity == record.identity, "a renamed table has another identity"
        assert renamable.names() == []
        assert renamable.names(other[:-1]) == ["new"]

    def test_rename_into_a_missing_namespace_is_namespace_not_found(
        self, renamable: Workspace
    ) -> None:
        skip_if(renamable, "no_rename_across")
        record = renamable.create("old")
        missing = renamable.missing_namespace()
        with refused(ErrorCode.NAMESPACE_NOT_FOUND, naming=missing[-1]):
            _move(renamable, record, (*missing, "new"))
        require_same(renamable.catalog.load_table(record.path), record)

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
    if not workspace.capabilities.renames_by_copy:
        workspace.catalog.rename_table(record, new_path)
        return
    workspace.catalog.copy_table(record, replace(record, path=new_path))
    workspace.catalog.drop_table(record)
