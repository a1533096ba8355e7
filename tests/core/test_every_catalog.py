"""What the spec of each catalog says of its tables, and core does alike for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.errors import concurrent_modification
from lance_bridge.testing.calls import Calls

from .building import DATASET, TABLE, count_rows, create, stream
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer, Moment

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#createtable", "common.md#declaretable"),
]


def declare(ns: MemoryNamespace, **fields: Any) -> str:
    return ns.declare_table(api.DeclareTableRequest(id=TABLE, **fields)).location or ""


def test_a_declared_table_is_not_declared_again_elsewhere(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    first = declare(namespace)
    with pytest.raises(errors.TableAlreadyExistsError, match="declared at"):
        declare(namespace, location=str(tmp_path / "lake" / "elsewhere.lance"))
    assert declare(namespace, location=first) == first


@pytest.mark.spec("common.md#listalltables")
def test_all_tables_are_not_those_of_one_namespace(namespace: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="ListTables"):
        namespace.list_all_tables(api.ListTablesRequest(id=DATASET))


@pytest.mark.spec("common.md#describetable")
@pytest.mark.parametrize("other", [{"version": 1}, {"branch": "b"}])
def test_a_tag_together_with_a_version_or_branch_is_invalid_input(
    namespace: MemoryNamespace, other: dict[str, Any]
) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.InvalidInputError, match="together"):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, tag="v1", **other))


def test_data_that_cannot_be_written_leaves_a_table_that_can_be_completed(
    namespace: MemoryNamespace,
) -> None:
    location = Path(declare(namespace))
    (location / "data").write_text("a file where Lance wants a directory")
    with pytest.raises(errors.ServiceUnavailableError, match="create the table again"):
        create(namespace, TABLE)
    request = api.DescribeTableRequest(id=TABLE, check_declared=True)
    assert namespace.describe_table(request).is_only_declared
    (location / "data").unlink()
    create(namespace, TABLE)
    assert count_rows(namespace, TABLE) == 3


def test_an_overwrite_that_loses_a_race_is_a_concurrent_modification(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = create(namespace, TABLE, rows=1).location
    write = lance.write_dataset

    def lose(data: Any, where: Any, **options: Any) -> object:
        if getattr(where, "uri", where) != location:  # in memory, only the schema is tried
            return write(data, where, **options)
        write(pa.table({"a": [2]}), location, mode="append")
        raise OSError("Retryable commit conflict")

    monkeypatch.setattr(lance, "write_dataset", lose)
    with pytest.raises(errors.ConcurrentModificationError, match=TABLE[-1]):
        create(namespace, TABLE, mode="Overwrite")
    assert lance.dataset(location).to_table()["a"].to_pylist() == [0, 2]


@pytest.mark.spec("common.md#registertable", "common.md#renametable")
@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("rename_table", lambda calls, _: calls.rename_table(TABLE, "new")),
        ("copy_table", lambda calls, _: calls.rename_table(TABLE, "new")),
        (
            "alter_table",
            lambda calls, place: calls.register_table(TABLE, place, mode="Overwrite"),
        ),
        ("alter_table", lambda calls, _: calls.declare_table(TABLE, properties={"by": "us"})),
        (
            "alter_table",
            lambda calls, _: calls.create_table(
                TABLE, stream(), mode="Overwrite", properties={"by": "us"}
            ),
        ),
    ],
    ids=["rename", "rename by copy", "register", "declare", "create"],
)
def test_an_entry_that_another_client_changes_meanwhile_is_a_concurrent_modification(
    namespace: MemoryNamespace,
    server: MemoryServer,
    tmp_path: Path,
    method: str,
    change: Callable[[Calls, str], object],
) -> None:
    copies = method == "copy_table"
    server.capabilities = replace(
        CAPABILITIES, no_alter="", no_rename="", renames_by_copy=copies, no_rename_across=""
    )
    declare(namespace)
    entry = server.tables[tuple(TABLE)]

    def change_first(name: str, moment: Moment) -> None:
        if (name, moment) == (method, "before"):
            raise concurrent_modification(tuple(TABLE))

    server.fault = change_first
    with pytest.raises(errors.ConcurrentModificationError, match="modified concurrently"):
        change(Calls(namespace), str(tmp_path / "elsewhere"))
    assert server.tables == {tuple(TABLE): entry}


@pytest.mark.spec("common.md#renametable")
def test_a_table_cannot_be_renamed_to_its_own_name(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    server.capabilities = replace(CAPABILITIES, no_rename="", folds_case=True)
    server.tables.clear()
    folded = [each.lower() for each in TABLE]
    namespace.declare_table(api.DeclareTableRequest(id=folded))
    for name in (folded[-1], folded[-1].upper()):
        with pytest.raises(errors.TableAlreadyExistsError, match="the table itself"):
            Calls(namespace).rename_table(folded, name)
    assert list(server.tables) == [tuple(folded)]


def test_the_fresh_declaration_of_another_client_is_kept_until_it_is_old(
    namespace: MemoryNamespace, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    first = declare(namespace)

    def other(**properties: str) -> MemoryNamespace:
        root = str(tmp_path / "lake")
        return MemoryNamespace(uri=request.node.nodeid, root=root, **properties)

    with pytest.raises(errors.TableAlreadyExistsError, match=r"declared .* ago"):
        declare(other())
    assert declare(other(**{"declare.grace": "0"})) == first
