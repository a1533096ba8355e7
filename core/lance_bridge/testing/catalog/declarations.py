"""Cases: what a catalog declares in its capabilities is true."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from lance_namespace import ErrorCode, UnsupportedOperationError

from ...catalog import Capabilities, Catalog, NameRule
from ..calls import code_of, refused
from .workspace import CatalogCases, Workspace, require_same, skip_unless, with_properties

UNDECLARED = {"partition_locations": "has_partitions", "scan_hidden_tables": "hides_tables"}
"""Methods whose cases would be skipped if the field did not declare them."""


class CapabilityCases(CatalogCases):
    """What is declared works; what is declared impossible raises and changes nothing."""

    def test_capabilities_are_complete_and_stay_the_same(self, workspace: Workspace) -> None:
        capabilities = workspace.capabilities
        assert isinstance(capabilities, Capabilities)
        assert capabilities.levels == len(workspace.path)
        for rule in (*capabilities.namespace_levels, capabilities.table_rule):
            assert isinstance(rule, NameRule)
            assert rule.noun, f"{rule} names no noun"
            assert rule.allowed, f"{rule} does not say what is allowed"
            assert rule.max_length > 0
        for field in fields(Capabilities):
            if field.name.startswith("no_"):
                reason = getattr(capabilities, field.name)
                assert isinstance(reason, str), f"{field.name} is {reason!r}, not a reason"
        assert len(capabilities.namespace_words) in (0, capabilities.levels)
        assert workspace.connect().capabilities == capabilities

    def test_every_capability_has_its_methods(self, workspace: Workspace) -> None:
        capabilities, kind = workspace.capabilities, type(workspace.catalog)
        needed = {
            "commit_guard": not (capabilities.no_alter or capabilities.no_managed_tables),
            "rename_table": not (capabilities.no_rename or capabilities.renames_by_copy),
            "copy_table": capabilities.renames_by_copy and not capabilities.no_rename,
            "partition_locations": capabilities.has_partitions,
            "scan_hidden_tables": capabilities.hides_tables,
        }
        inherited = [name for name in needed if getattr(kind, name) is getattr(Catalog, name)]
        missing = [name for name in inherited if needed[name]]
        assert not missing, f"declared by the capabilities and not implemented: {missing}"
        for name, field in UNDECLARED.items():
            assert getattr(capabilities, field) or name in inherited, f"{name} without {field}"

    def test_a_table_that_cannot_be_altered_is_left_as_it_is(self, workspace: Workspace) -> None:
        skip_unless(workspace, "no_alter")
        record = workspace.create()
        _require_unsupported(workspace.catalog.alter_table, with_properties(record, author="Ada"))
        require_same(workspace.catalog.load_table(record.path), record)

    def test_a_table_that_cannot_be_renamed_is_left_as_it_is(self, workspace: Workspace) -> None:
        skip_unless(workspace, "no_rename")
        record = workspace.create()
        _require_unsupported(workspace.catalog.rename_table, record, workspace.table("new"))
        assert workspace.names() == ["t"]

    def test_a_table_that_cannot_be_renamed_across_is_left_as_it_is(
        self, workspace: Workspace
    ) -> None:
        skip_unless(workspace, "no_rename_across")
        record = workspace.create()
        other = workspace.new_namespace()
        call = workspace.catalog.rename_table
        if workspace.capabilities.renames_by_copy:
            copy = replace(record, path=(*other, "new"))
            _require_unsupported(workspace.catalog.copy_table, record, copy)
        else:
            _require_unsupported(call, record, (*other, "new"))
        assert workspace.names() == ["t"]
        assert workspace.names(other) == []

    def test_namespaces_that_cannot_change_are_left_as_they_are(self, workspace: Workspace) -> None:
        skip_unless(workspace, "no_namespace_changes")
        missing = workspace.missing_namespace()
        record = workspace.namespace_record(missing)
        _require_unsupported(workspace.catalog.create_namespace, record)
        _require_unsupported(workspace.catalog.drop_namespace, workspace.path)
        with refused(ErrorCode.NAMESPACE_NOT_FOUND):
            workspace.catalog.load_namespace(missing)
        workspace.catalog.load_namespace(workspace.path)

    def test_an_entry_that_cannot_be_compared_has_no_guard(self, workspace: Workspace) -> None:
        skip_unless(workspace, "no_managed_tables")
        _require_unsupported(workspace.catalog.commit_guard, workspace.create())

    # -- names -----------------------------------------------------------------------------------

    def test_the_longest_names_are_kept(self, workspace: Workspace) -> None:
        rule = workspace.capabilities.table_rule
        name = ("abcdefghij" * (rule.max_length // 10 + 1))[: rule.max_length]
        if not rule.pattern.fullmatch(name):
            pytest.skip(f"{name[:20]}… does not fit the rule: {rule.allowed}")
        near = f"{name[:-1]}z"
        for number, each in enumerate((name, near)):
            record = workspace.record(f"t{number}")
            workspace.catalog.create_table(replace(record, path=workspace.table(each)))
        assert workspace.names() == sorted([name, near])
        assert workspace.catalog.load_table(workspace.table(name)).path[-1] == name

    def test_letter_case_is_folded_where_declared_and_else_kept(self, workspace: Workspace) -> None:
        name = "Mixed_Case"
        if not workspace.capabilities.table_rule.pattern.fullmatch(name):
            pytest.skip(f"{name} does not fit the catalog's rule for names")
        workspace.create("lower")
        if workspace.capabilities.folds_case:
            # Core folds every name before it calls the catalog, which must fold alike.
            assert code_of(workspace.catalog.load_table, workspace.table("LOWER")) is None
            with refused(ErrorCode.TABLE_ALREADY_EXISTS):
                workspace.catalog.create_table(workspace.record("LOWER"))
            assert workspace.names() == ["lower"]
        else:
            workspace.create(name)
            assert workspace.names() == [name, "lower"]
            assert workspace.catalog.load_table(workspace.table(name)).path[-1] == name


def _require_unsupported(call: object, *arguments: object) -> None:
    """Require that a call raises UnsupportedOperationError, or is not implemented."""
    assert callable(call)
    try:
        call(*arguments)
    except (UnsupportedOperationError, NotImplementedError):
        return
    raise AssertionError("the call succeeded, though the capabilities say that it cannot")
