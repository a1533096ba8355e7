"""Tables are declared and created, also beside other writers: what holds on every catalog."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from shutil import rmtree
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.catalog import TableRecord
from lance_bridge.connection import DECLARED_AT, Declarations, now
from lance_bridge.credentials import Caller, acting_for
from lance_bridge.errors import concurrent_modification
from lance_bridge.records import ENTRY_ID
from lance_bridge.testing.calls import Calls

from .managed_tables import another
from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    TABLE,
    MemoryCatalog,
    MemoryNamespace,
    MemoryServer,
    Moment,
    at,
    at_change,
    count_rows,
    create,
    raiser,
    stream,
)
from .table_data import place

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
    with_table: MemoryNamespace, other: dict[str, Any]
) -> None:
    with pytest.raises(errors.InvalidInputError, match="together"):
        with_table.describe_table(api.DescribeTableRequest(id=TABLE, tag="v1", **other))


def test_data_that_cannot_be_written_leaves_a_table_that_can_be_completed(
    namespace: MemoryNamespace,
) -> None:
    location = Path(declare(namespace))
    location.mkdir(parents=True, exist_ok=True)
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


BY_US: dict[str, Any] = {"properties": {"by": "us"}}
OVER: dict[str, Any] = {**BY_US, "mode": "Overwrite"}
CHANGES: dict[str, tuple[str, Callable[[Calls, str], object]]] = {
    "rename": ("rename_table", lambda calls, _: calls.rename_table(TABLE, "new")),
    "rename by copy": ("copy_table", lambda calls, _: calls.rename_table(TABLE, "new")),
    "register": ("alter_table", lambda calls, to: calls.register_table(TABLE, to, **OVER)),
    "declare": ("alter_table", lambda calls, _: calls.declare_table(TABLE, **BY_US)),
    "create": ("alter_table", lambda calls, _: calls.create_table(TABLE, stream(), **OVER)),
}


@pytest.mark.spec("common.md#registertable", "common.md#renametable")
@pytest.mark.parametrize("case", CHANGES)
def test_an_entry_that_another_client_changes_meanwhile_is_a_concurrent_modification(
    namespace: MemoryNamespace, tmp_path: Path, case: str
) -> None:
    method, change = CHANGES[case]
    copies = method == "copy_table"
    namespace.server.capabilities = replace(
        CAPABILITIES, no_alter="", no_rename="", renames_by_copy=copies, no_rename_across=""
    )
    declare(namespace)
    entry = namespace.server.tables[tuple(TABLE)]

    def change_first(name: str, moment: Moment) -> None:
        if (name, moment) == (method, "before"):
            raise concurrent_modification(tuple(TABLE))

    namespace.server.fault = change_first
    with pytest.raises(errors.ConcurrentModificationError, match="modified concurrently"):
        change(Calls(namespace), str(tmp_path / "elsewhere"))
    assert namespace.server.tables == {tuple(TABLE): entry}


@pytest.mark.spec("common.md#renametable")
def test_a_table_cannot_be_renamed_to_its_own_name(namespace: MemoryNamespace) -> None:
    namespace.server.capabilities = replace(CAPABILITIES, no_rename="", folds_case=True)
    namespace.server.tables.clear()
    folded = [each.lower() for each in TABLE]
    namespace.declare_table(api.DeclareTableRequest(id=folded))
    for name in (folded[-1], folded[-1].upper()):
        with pytest.raises(errors.TableAlreadyExistsError, match="the table itself"):
            Calls(namespace).rename_table(folded, name)
    assert list(namespace.server.tables) == [tuple(folded)]


def test_the_fresh_declaration_of_another_client_is_kept_until_it_is_old(
    namespace: MemoryNamespace,
) -> None:
    first = declare(namespace)
    with pytest.raises(errors.TableAlreadyExistsError, match=r"declared .* ago"):
        declare(another(namespace))
    assert declare(another(namespace, **{"declare.grace": "0"})) == first


# -- where another writer's data comes between the entry and the first write -----------------------


def other_writes(server: MemoryServer) -> None:
    """Have another client write seven rows to the table as soon as it has its entry."""
    rows = pa.table({"a": list(range(7))})
    at_change(server, "create_table", "after", lambda: lance.write_dataset(rows, place(server)))


@pytest.mark.parametrize(("mode", "version", "rows"), [("ExistOk", 1, 7), ("Overwrite", 2, 3)])
def test_other_modes_keep_or_replace_the_other_writers_data(
    namespace: MemoryNamespace, mode: str, version: int, rows: int
) -> None:
    namespace.server.capabilities = replace(CAPABILITIES, no_alter="")
    other_writes(namespace.server)
    assert create(namespace, TABLE, rows=3, mode=mode).version == version
    assert count_rows(namespace, TABLE) == rows


def test_overwrite_with_rows_that_are_read_once_is_to_be_repeated(
    namespace: MemoryNamespace,
) -> None:
    """The first write has read them before it found out that another writer was first."""
    namespace.server.capabilities = replace(CAPABILITIES, no_alter="")
    declare(namespace)

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        lance.write_dataset(pa.table({"a": [7, 7]}), place(namespace))

    request = api.CreateTableRequest(id=TABLE, mode="Overwrite")
    with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
        namespace.create_table(request, rows())
    assert count_rows(namespace, TABLE) == 2


@pytest.mark.spec("common.md#createtable")
def test_create_after_another_writer_is_table_already_exists(namespace: MemoryNamespace) -> None:
    other_writes(namespace.server)
    with pytest.raises(errors.TableAlreadyExistsError, match="another writer"):
        create(namespace, TABLE, rows=3)
    assert count_rows(namespace, TABLE) == 7


def test_the_catalog_gets_the_columns_of_the_data_once_there_is_some(
    namespace: MemoryNamespace,
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=[*DATASET, "declared"]))
    assert namespace.server.tables[at("declared")].columns == ()
    create(namespace, TABLE)
    [column] = namespace.server.tables[tuple(TABLE)].columns
    assert (column.name, column.type, column.nullable) == ("a", "long", True)


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_creators_that_get_in_each_others_way_look_again(namespace: MemoryNamespace) -> None:
    """A catalog may give up both of two changes that met; one client has to try again."""
    conflict = errors.ConcurrentModificationError("others changed it meanwhile")
    at_change(namespace, "create_table", "before", raiser(conflict))
    assert create(namespace, TABLE, rows=3, mode="ExistOk").version == 1
    assert count_rows(namespace, TABLE) == 3


@pytest.mark.spec("common.md#createtable", "common.md#declaretable")
@pytest.mark.parametrize("mode", ["Create", "ExistOk", "Overwrite", "declare"])
def test_a_table_that_is_dropped_after_it_was_found_is_a_concurrent_modification(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The request did not ask for a table that exists."""
    create(namespace, TABLE)
    location = place(namespace)
    add, load = MemoryCatalog.create_table, MemoryCatalog.load_table

    def load_and_drop(catalog: MemoryCatalog, path: Any) -> Any:
        found = load(catalog, path)
        del namespace.server.tables[tuple(path)]
        rmtree(location)
        return found

    def add_and_watch(catalog: MemoryCatalog, record: TableRecord) -> Any:
        monkeypatch.setattr(MemoryCatalog, "load_table", load_and_drop)
        return add(catalog, record)

    monkeypatch.setattr(MemoryCatalog, "create_table", add_and_watch)
    calls = Calls(namespace)
    again = calls.declare_table if mode == "declare" else partial(calls.create_table, mode=mode)
    arguments = () if mode == "declare" else (stream(1),)
    with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
        again(TABLE, *arguments)
    assert tuple(TABLE) not in namespace.server.tables


def test_a_thread_that_python_did_not_start_does_not_repeat_a_declaration(
    namespace: MemoryNamespace,
) -> None:
    """LanceDB's writers share such threads, and overwrite each other's rows once they both may."""
    outcomes: SimpleQueue[object] = SimpleQueue()

    def declare_twice() -> None:
        for _ in range(2):
            try:
                outcomes.put(declare(namespace))
            except errors.LanceNamespaceError as error:
                outcomes.put(error)

    _thread.start_new_thread(declare_twice, ())
    first, second = outcomes.get(timeout=30), outcomes.get(timeout=30)
    assert isinstance(first, str)
    assert isinstance(second, errors.TableAlreadyExistsError), second
    assert "declared" in str(second)


def test_requests_that_share_a_thread_of_a_server_do_not_repeat_a_declaration(
    namespace: MemoryNamespace,
) -> None:
    with acting_for(Caller("ann", lambda _: True)):
        declare(namespace)
        with pytest.raises(errors.TableAlreadyExistsError, match="declared"):
            declare(namespace)


def test_a_later_thread_does_not_repeat_the_declaration_of_one_that_ended(
    namespace: MemoryNamespace,
) -> None:
    """The system may give both threads the same number."""
    numbers, refused = [], []

    def declare_in_thread() -> None:
        numbers.append(threading.get_ident())
        try:
            declare(namespace)
        except errors.TableAlreadyExistsError as error:
            refused.append(error)

    for _ in range(20):
        thread = threading.Thread(target=declare_in_thread)
        thread.start()
        thread.join(30)
    assert len(set(numbers)) < 20
    assert len(refused) == 19


def test_a_forked_child_does_not_repeat_its_parents_declaration() -> None:
    declarations = Declarations(grace=60)
    record = TableRecord(tuple(TABLE), properties={ENTRY_ID: "1", DECLARED_AT: now()})
    declarations.remember(record)
    assert declarations.may_repeat(record)
    child = os.fork()
    if child == 0:
        os._exit(declarations.may_repeat(record))
    assert os.waitpid(child, 0)[1] == 0
