"""CreateTable where another writer's data comes between the entry and the first write."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.catalog import TableRecord
from lance_bridge.credentials import Caller, acting_for
from lance_bridge.declarations import DECLARED_AT, Declarations, now
from lance_bridge.records import ENTRY_ID

from .building import DATASET, TABLE, at, at_change, count_rows, create, raising
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer
from .writing import place

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#declaretable")]


def other_writes(server: MemoryServer) -> None:
    """Have another client write seven rows to the table as soon as it has its entry."""
    rows = pa.table({"a": list(range(7))})
    at_change(server, "create_table", "after", lambda: lance.write_dataset(rows, place(server)))


@pytest.mark.parametrize(("mode", "version", "rows"), [("ExistOk", 1, 7), ("Overwrite", 2, 3)])
def test_other_modes_keep_or_replace_the_other_writers_data(
    namespace: MemoryNamespace, server: MemoryServer, mode: str, version: int, rows: int
) -> None:
    server.capabilities = replace(CAPABILITIES, no_alter="")
    other_writes(server)
    assert create(namespace, TABLE, rows=3, mode=mode).version == version
    assert count_rows(namespace, TABLE) == rows


def test_overwrite_with_rows_that_are_read_once_is_to_be_repeated(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    """The first write has read them before it found out that another writer was first."""
    server.capabilities = replace(CAPABILITIES, no_alter="")
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        lance.write_dataset(pa.table({"a": [7, 7]}), place(server))

    request = api.CreateTableRequest(id=TABLE, mode="Overwrite")
    with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
        namespace.create_table(request, rows())
    assert count_rows(namespace, TABLE) == 2


@pytest.mark.spec("common.md#createtable")
def test_create_after_another_writer_is_table_already_exists(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    other_writes(server)
    with pytest.raises(errors.TableAlreadyExistsError, match="another writer"):
        create(namespace, TABLE, rows=3)
    assert count_rows(namespace, TABLE) == 7


def test_the_catalog_gets_the_columns_of_the_data_once_there_is_some(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=[*DATASET, "declared"]))
    assert server.tables[at("declared")].columns == ()
    create(namespace, TABLE)
    [column] = server.tables[tuple(TABLE)].columns
    assert (column.name, column.type, column.nullable) == ("a", "long", True)


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_creators_that_get_in_each_others_way_look_again(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    """A catalog may give up both of two changes that met; one client has to try again."""
    conflict = errors.ConcurrentModificationError("others changed it meanwhile")
    at_change(server, "create_table", "before", raising(conflict))
    assert create(namespace, TABLE, rows=3, mode="ExistOk").version == 1
    assert count_rows(namespace, TABLE) == 3


def test_a_thread_that_python_did_not_start_does_not_repeat_a_declaration(
    namespace: MemoryNamespace,
) -> None:
    """LanceDB's writers share such threads, and overwrite each other's rows once they both may."""
    outcomes: SimpleQueue[object] = SimpleQueue()

    def declare_twice() -> None:
        for _ in range(2):
            try:
                outcomes.put(namespace.declare_table(api.DeclareTableRequest(id=TABLE)).location)
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
    request = api.DeclareTableRequest(id=TABLE)
    with acting_for(Caller("ann", lambda _: True)):
        namespace.declare_table(request)
        with pytest.raises(errors.TableAlreadyExistsError, match="declared"):
            namespace.declare_table(request)


def test_a_later_thread_does_not_repeat_the_declaration_of_one_that_ended(
    namespace: MemoryNamespace,
) -> None:
    """The system may give both threads the same number."""
    request = api.DeclareTableRequest(id=TABLE)
    numbers, refused = [], []

    def declare() -> None:
        numbers.append(threading.get_ident())
        try:
            namespace.declare_table(request)
        except errors.TableAlreadyExistsError as error:
            refused.append(error)

    for _ in range(20):
        thread = threading.Thread(target=declare)
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
