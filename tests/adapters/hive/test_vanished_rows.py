"""A metastore that loses rows to others, or cannot read some: reads are repeated, changes are not.

Its words are those of real ones, where threads made and dropped tables while others read them.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import hmsclient.genthrift.hive_metastore.ttypes as hive
import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from servers.hive_entries import raw_table
from servers.replies import ScriptedServer
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

import lance_bridge_hive.catalog as adapter
from lance_bridge.catalog import TableRecord
from lance_bridge.config import load
from lance_bridge_hive import entries
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.entries import in_halves

pytestmark = [pytest.mark.quick, pytest.mark.spec("hive.md#errors-of-every-operation")]

HIVE_2_TO_4_0 = "No such database row"
FROM_HIVE_4_1 = (
    'JDOObjectNotFoundException: Object with id "197" not found !\n'
    "Root cause: org.datanucleus.exceptions.NucleusObjectNotFoundException: "
    'Object with id "197" not found !'
)
WITH_CLASS_NAME = (
    "javax.jdo.JDOObjectNotFoundException: No such database row\n"
    "FailedObject:197[OID]org.apache.hadoop.hive.metastore.model.MTable"
)
WITHOUT_CLASS_NAME = 'Object with id "197" not found !'
WORDS = [HIVE_2_TO_4_0, FROM_HIVE_4_1, WITH_CLASS_NAME, WITHOUT_CLASS_NAME]

TABLE = raw_table("db", "t", "/data/db.db/t.lance")
RECORD = TableRecord(("db", "t"), "/data/db.db/t.lance", {"table_type": "lance"}, identity="1")

READS: dict[str, tuple[Callable[[HiveCatalog], object], object]] = {
    "get_all_databases": (lambda catalog: list(catalog.list_namespaces(())), ["db"]),
    "get_database": (lambda catalog: catalog.load_namespace(("db",)).path, ("db",)),
    "get_all_tables": (lambda catalog: list(catalog.list_tables(("db",))), ["t"]),
    "get_table_names_by_filter": (
        lambda catalog: list(catalog.list_tables(("db",), lance_only=True)),
        ["t"],
    ),
    "get_table_objects_by_name_req": (
        lambda catalog: [record.path for record in catalog.scan_tables(("db",))],
        [("db", "t")],
    ),
    "get_table_req": (lambda catalog: catalog.load_table(("db", "t")).path, ("db", "t")),
}
"""What makes each of these calls, and what comes of it."""


class Metastore:
    """One database with one table; some of its calls fail on demand."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.words = ""
        self._failures: Counter[str] = Counter()
        self._answers = {
            "get_all_databases": ["db"],
            "get_database": hive.Database(name="db"),
            "get_all_tables": ["t"],
            "get_table_names_by_filter": ["t"],
            "get_table_objects_by_name_req": hive.GetTablesResult(tables=[TABLE]),
            "get_table_req": hive.GetTableResult(table=TABLE),
        }

    def fail(self, call: str, words: str, times: int = 1_000_000) -> None:
        """Answer ``call`` with a MetaException this many times."""
        self.words = words
        self._failures[call] = times

    def serve(self, client: socket.socket) -> None:
        """Answer what comes over one connection."""
        line = TSocket()
        line.setHandle(client)
        protocol = TBinaryProtocol(TBufferedTransport(line))
        processor = ThriftHiveMetastore.Processor(self)
        try:
            while processor.process(protocol, protocol):
                continue
        except TTransportException:
            return

    def __getattr__(self, call: str) -> Callable[..., Any]:
        def answer(*_: object) -> Any:
            self.calls[call] += 1
            if self._failures[call] > 0:
                self._failures[call] -= 1
                raise hive.MetaException(self.words)
            return self._answers.get(call)

        return answer


@pytest.fixture
def metastore() -> Metastore:
    return Metastore()


Connect = Callable[..., HiveCatalog]


@pytest.fixture
def connect(metastore: Metastore) -> Iterator[Connect]:
    with ExitStack() as stack:
        server = stack.enter_context(closing(ScriptedServer(metastore.serve)))

        def connected(**properties: str) -> HiveCatalog:
            config = load(HiveConfig, "hive", {"uri": server.uri, **properties})
            return stack.enter_context(closing(HiveCatalog(config)))

        yield connected


@pytest.mark.parametrize(
    ("call", "words"),
    [*((call, HIVE_2_TO_4_0) for call in READS), *(("get_table_req", each) for each in WORDS[1:])],
)
def test_a_read_that_met_a_vanishing_row_is_repeated(
    metastore: Metastore, connect: Connect, call: str, words: str
) -> None:
    metastore.fail(call, words, times=2)
    read, answer = READS[call]
    assert read(connect()) == answer
    assert metastore.calls[call] == 3


@pytest.mark.parametrize("call", ["get_table_req", "get_all_tables"])
def test_a_read_whose_rows_go_on_vanishing_ends_as_a_concurrent_modification(
    metastore: Metastore, connect: Connect, call: str
) -> None:
    metastore.fail(call, HIVE_2_TO_4_0)
    with pytest.raises(
        ConcurrentModificationError, match=r"modified concurrently.*No such database row"
    ):
        READS[call][0](connect())
    assert metastore.calls[call] == 10


def test_reads_are_repeated_no_longer_than_the_retry_timeout(
    metastore: Metastore, connect: Connect
) -> None:
    metastore.fail("get_table_req", HIVE_2_TO_4_0)
    catalog = connect(**{"client.retry-timeout": "0"})
    with pytest.raises(ConcurrentModificationError):
        catalog.load_table(("db", "t"))
    assert metastore.calls["get_table_req"] == 1


@pytest.mark.parametrize("words", WORDS)
def test_a_change_that_met_a_vanishing_row_is_a_concurrent_modification_and_not_repeated(
    metastore: Metastore, connect: Connect, words: str
) -> None:
    metastore.fail("drop_table", words)
    with pytest.raises(ConcurrentModificationError, match=r"drop table 'db\.t'"):
        connect().drop_table(RECORD)
    assert metastore.calls["drop_table"] == 1


@pytest.mark.parametrize(
    "words",
    [
        "A lock could not be obtained due to a deadlock",
        "The statement was aborted because it would have caused a duplicate key value",
        "ERROR: duplicate key value violates unique constraint",
        "Duplicate entry 'db-t' for key 'UNIQUETABLE'",
    ],
)
def test_a_change_that_the_database_gave_up_for_another_is_a_concurrent_modification(
    metastore: Metastore, connect: Connect, words: str
) -> None:
    metastore.fail("drop_table", words)
    with pytest.raises(ConcurrentModificationError, match=r"drop table 'db\.t'"):
        connect().drop_table(RECORD)


def test_a_filter_that_meets_vanishing_rows_is_not_taken_for_one_that_cannot_work(
    metastore: Metastore, connect: Connect
) -> None:
    catalog = connect()
    metastore.fail("get_table_names_by_filter", HIVE_2_TO_4_0)
    with pytest.raises(ConcurrentModificationError):
        catalog.list_tables(("db",), lance_only=True)
    assert metastore.calls["get_all_tables"] == 0
    metastore.fail("get_table_names_by_filter", HIVE_2_TO_4_0, times=0)
    assert catalog.list_tables(("db",), lance_only=True) == ["t"]


def test_listings_without_the_filter_do_not_put_off_when_it_is_tried_again(
    metastore: Metastore, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = connect()
    now = time.monotonic()
    metastore.fail("get_table_names_by_filter", "filters are not supported", times=1)
    tries = []
    for seconds in (0, 200, 299, 301):
        monkeypatch.setattr(adapter, "time", SimpleNamespace(monotonic=lambda: now + seconds))  # noqa: B023
        catalog.list_tables(("db",), lance_only=True)
        tries.append(metastore.calls["get_table_names_by_filter"])
    assert tries == [1, 1, 1, 2]


@pytest.mark.parametrize(
    "words",
    ["java.lang.NullPointerException", "Object with id was lost", "No such object store: s3"],
)
def test_a_read_that_fails_for_another_reason_is_internal_and_not_repeated(
    metastore: Metastore, connect: Connect, words: str
) -> None:
    metastore.fail("get_table_req", words)
    with pytest.raises(InternalError, match=words):
        connect().load_table(("db", "t"))
    assert metastore.calls["get_table_req"] == 1


@pytest.mark.spec("hive.md#declaretable", "hive.md#registertable")
def test_a_metastore_without_the_file_system_says_what_to_add(
    metastore: Metastore, connect: Connect
) -> None:
    metastore.fail("get_table_req", "No FileSystem for scheme: s3")
    with pytest.raises(UnsupportedOperationError, match=r"no file system for 's3://'.*class path"):
        connect().load_table(("db", "t"))


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [set(), {0}, {9}, {3, 4}, set(range(10))])
def test_a_batch_is_halved_down_to_the_entries_that_fail(bad: set[int]) -> None:
    def read(names: Any) -> list[str]:
        if bad & {int(each) for each in names}:
            raise InternalError("one of them")
        return [f"entry {each}" for each in names]

    good, failed = in_halves(read, [str(number) for number in range(10)])
    assert list(failed) == [str(number) for number in sorted(bad)]
    assert good == [f"entry {number}" for number in range(10) if number not in bad]


def test_a_server_that_refuses_all_is_not_called_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_MOST_FAILURES", 4)
    calls = 0

    def read(_: Any) -> list[str]:
        nonlocal calls
        calls += 1
        raise PermissionDeniedError("none of them")

    found, failed = in_halves(read, [str(number) for number in range(1024)])
    assert (len(found), len(failed)) == (0, 1024)
    assert calls < 40


def test_an_outage_is_no_property_of_an_entry() -> None:
    def read(_: Any) -> list[str]:
        raise ServiceUnavailableError("the metastore does not respond")

    with pytest.raises(ServiceUnavailableError):
        in_halves(read, ["a", "b"])
