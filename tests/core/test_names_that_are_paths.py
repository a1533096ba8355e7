"""Names of columns and indices that lead out of a directory are refused."""

from __future__ import annotations

import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError
from lance_namespace_urllib3_client.models import AddColumnsEntry, AlterColumnsEntry

from lance_bridge.locations import is_path
from lance_bridge.testing.build import ipc

from .building import TABLE, create
from .memory_catalog import MemoryNamespace

PATHS = [
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../b",
    "..",
    ".",
    "\\\\host\\share",
    "..\\x",
    "C:\\x",
    "c:/x",
    "file:///etc/passwd",
    "s3://bucket/x",
    "~/x",
]
NAMES = ["km/h", "a..b", "and/or", "été", "a:b", ".hidden", "x~y", "50%", "C:"]


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_no_name_of_an_index_or_a_column(namespace: MemoryNamespace, name: str) -> None:
    create(namespace, TABLE)
    index = api.CreateTableIndexRequest(id=TABLE, column="a", index_type="BTREE", name=name)
    added = api.AlterTableAddColumnsRequest(
        id=TABLE, new_columns=[AddColumnsEntry(name=name, expression="1")]
    )
    renamed = api.AlterTableAlterColumnsRequest(
        id=TABLE, alterations=[AlterColumnsEntry(path="a", rename=name)]
    )
    other = api.CreateTableRequest(id=[*TABLE[:-1], "other"])
    for call in (
        lambda: namespace.create_table_index(index),
        lambda: namespace.alter_table_add_columns(added),
        lambda: namespace.alter_table_alter_columns(renamed),
        lambda: namespace.create_table(other, ipc(pa.table({name: [1]}))),
        lambda: namespace.create_table_tag(
            api.CreateTableTagRequest(id=TABLE, tag=name, version=1)
        ),
    ):
        with pytest.raises(InvalidInputError):
            call()
    assert is_path(name)
    tables = namespace.list_tables(api.ListTablesRequest(id=TABLE[:-1])).tables
    assert tables == [TABLE[-1]]


@pytest.mark.parametrize("name", NAMES)
def test_other_names_may_have_slashes_dots_and_colons(name: str) -> None:
    assert not is_path(name)


LONG = "a" * 5000


def test_what_a_message_repeats_of_a_request_is_cut(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    for predicate in (f"{LONG} = 1", f"`{LONG}` > 1", f"a = '{LONG}", f"a = {LONG}(1)"):
        with pytest.raises(LanceNamespaceError) as failed:
            namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE, predicate=predicate))
        assert len(str(failed.value)) < 1000
        assert "aaa…" in str(failed.value)
        with pytest.raises(LanceNamespaceError) as failed:
            namespace.delete_from_table(api.DeleteFromTableRequest(id=TABLE, predicate=predicate))
        assert len(str(failed.value)) < 1000
    with pytest.raises(LanceNamespaceError) as failed:
        namespace.drop_table_index(api.DropTableIndexRequest(id=TABLE, index_name=LONG))
    assert len(str(failed.value)) < 500
