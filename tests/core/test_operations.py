"""Which operations are there, and that the others say so by name."""

from __future__ import annotations

import inspect

import lance_namespace as api
import pytest
from lance_namespace import errors

from .building import TABLE, create
from .memory_catalog import MemoryNamespace, MemoryServer

IMPLEMENTED = {
    "alter_table_add_columns",
    "alter_table_alter_columns",
    "alter_table_backfill_columns",
    "alter_table_drop_columns",
    "alter_transaction",
    "analyze_table_query_plan",
    "batch_commit_tables",
    "batch_create_table_versions",
    "batch_delete_table_versions",
    "count_table_rows",
    "create_namespace",
    "create_table",
    "create_table_branch",
    "create_table_index",
    "create_table_scalar_index",
    "create_table_tag",
    "create_table_version",
    "declare_table",
    "delete_from_table",
    "delete_table_branch",
    "delete_table_tag",
    "deregister_table",
    "describe_namespace",
    "describe_table",
    "describe_table_index_stats",
    "describe_table_version",
    "describe_transaction",
    "drop_namespace",
    "drop_table",
    "drop_table_index",
    "explain_table_query_plan",
    "get_table_stats",
    "get_table_tag_version",
    "insert_into_table",
    "list_all_tables",
    "list_namespaces",
    "list_table_branches",
    "list_table_indices",
    "list_table_tags",
    "list_table_versions",
    "list_tables",
    "merge_insert_into_table",
    "namespace_exists",
    "namespace_id",
    "query_table",
    "register_table",
    "rename_table",
    "restore_table",
    "table_exists",
    "update_field_metadata",
    "update_table",
    "update_table_schema_metadata",
    "update_table_tag",
}
OPERATIONS = sorted(
    name
    for name, member in inspect.getmembers(api.LanceNamespace, inspect.isfunction)
    if not name.startswith("_")
)


def test_the_list_of_operations_is_that_of_the_interface() -> None:
    assert len(OPERATIONS) > 40
    assert set(OPERATIONS) >= IMPLEMENTED


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - IMPLEMENTED))
def test_an_operation_that_is_not_there_is_unsupported_by_name(
    namespace: MemoryNamespace, server: MemoryServer, name: str
) -> None:
    method = getattr(namespace, name)
    needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    with pytest.raises(errors.UnsupportedOperationError, match=name) as caught:
        method(*([{"id": TABLE}] * len(needed)))
    assert caught.value.code == errors.ErrorCode.UNSUPPORTED
    assert not server.effects


@pytest.mark.parametrize("name", sorted(IMPLEMENTED))
def test_an_operation_that_is_there_is_not_the_interface_s_own(name: str) -> None:
    assert getattr(MemoryNamespace, name) is not getattr(api.LanceNamespace, name)


def test_a_tag_or_branch_that_is_not_there_is_not_found(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.TableTagNotFoundError, match="no tag 'x'"):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, tag="x"))
    with pytest.raises(errors.TableBranchNotFoundError, match="no branch 'x'"):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, branch="x"))


@pytest.mark.parametrize("version", [2, 2**63, 2**64, 2**70])
def test_a_version_that_cannot_be_is_not_found(namespace: MemoryNamespace, version: int) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.TableVersionNotFoundError, match=str(version)):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, version=version))
    with pytest.raises(errors.TableVersionNotFoundError, match=str(version)):
        namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE, version=version))
