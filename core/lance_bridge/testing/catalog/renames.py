"""Cases: an entry gets another name, by the catalog's rename or as a copy that core asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lance_namespace import ErrorCode

from ...catalog import Path, TableRecord
from ..expect import refused
from .cases import CatalogCases, skip_if, skip_unless
from .workspace import Workspace, require_properties, require_same

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

    @pytest.fixture(autouse=True)
    def _able(self, workspace: Workspace) -> None:
        skip_if(workspace, "no_rename")

    def test_a_renamed_entry_keeps_all_but_its_name(self, workspace: Workspace) -> None:
        record = workspace.create("old", PROPERTIES)
        workspace.storage.put(record.location or "", "data", b"content")
        _move(workspace, record, workspace.table("new"))
        found = workspace.catalog.load_table(workspace.table("new"))
        assert found.path == workspace.table("new")
        assert found.location == record.location
        require_properties(found.properties, record.properties)
        assert found.is_external
        if not workspace.capabilities.renames_by_copy:
            assert found.identity == record.identity, "a renamed table has another identity"
        require_same(workspace.scanned("new"), found)
        assert workspace.names() == ["new"]
        with refused(_NO_TABLE, naming="old"):
            workspace.catalog.load_table(record.path)
        assert workspace.storage.files(record.location or "") == {"data"}

    def test_rename_to_an_existing_name_is_refused_and_changes_nothing(
        self, workspace: Workspace
    ) -> None:
        source, taken = workspace.create("source"), workspace.create("taken")
        with refused(_EXISTS, naming="taken"):
            _move(workspace, source, taken.path)
        require_same(workspace.catalog.load_table(source.path), source)
        require_same(workspace.catalog.load_table(taken.path), taken)
        assert workspace.names() == ["source", "taken"]

    def test_rename_of_a_missing_table_is_table_not_found(self, workspace: Workspace) -> None:
        record = workspace.create("old")
        workspace.catalog.drop_table(record)
        with refused(_NO_TABLE, naming="old"):
            _move(workspace, record, workspace.table("new"))
        assert workspace.names() == []

    def test_rename_into_another_namespace_keeps_all_but_the_path(
        self, workspace: Workspace
    ) -> None:
        skip_if(workspace, "no_rename_across")
        record = workspace.create("old", PROPERTIES)
        other = (*workspace.new_namespace(), "new")
        _move(workspace, record, other)
        found = workspace.catalog.load_table(other)
        assert found.location == record.location
        require_properties(found.properties, record.properties)
        assert workspace.names() == []
        assert workspace.names(other[:-1]) == ["new"]

    def test_rename_into_a_missing_namespace_is_namespace_not_found(
        self, workspace: Workspace
    ) -> None:
        skip_if(workspace, "no_rename_across")
        record = workspace.create("old")
        missing = workspace.missing_namespace()
        with refused(ErrorCode.NAMESPACE_NOT_FOUND, naming=missing[-1]):
            _move(workspace, record, (*missing, "new"))
        require_same(workspace.catalog.load_table(record.path), record)

    def test_a_copy_leaves_the_entry_and_has_an_identity_of_its_own(
        self, workspace: Workspace
    ) -> None:
        skip_unless(workspace, "renames_by_copy")
        record = workspace.create("old", PROPERTIES)
        wanted = replace(record, path=workspace.table("new")).with_properties(
            {**record.properties, "lance_bridge.copied": "yes"}
        )
        workspace.catalog.copy_table(record, wanted)
        require_same(workspace.catalog.load_table(record.path), record)
        found = workspace.catalog.load_table(wanted.path)
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
