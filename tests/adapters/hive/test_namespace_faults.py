"""Every operation of the namespace while the wire to a real metastore breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    NamespaceExistsRequest,
    RegisterTableRequest,
    RenameTableRequest,
    TableExistsRequest,
)
from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from servers.proxy import Fault, ThriftProxy

from lance_bridge_hive import HiveNamespace

pytestmark = pytest.mark.server

LOST = [Fault.DROP_REQUEST, Fault.LOSE_REPLY, Fault.RESET, Fault.TRUNCATE_REPLY]
"""Faults after which the client cannot know whether its call had an effect."""


@pytest.fixture
def broken(proxy: ThriftProxy) -> Iterator[HiveNamespace]:
    """A namespace behind the proxy, with short limits."""
    properties = {"client.timeout": "3", "client.retry-timeout": "3"}
    with HiveNamespace(uri=proxy.uri, **properties) as connected:
        connected.list_namespaces(ListNamespacesRequest(id=[]))
        yield connected


@pytest.mark.parametrize("fault", LOST)
def test_declare_whose_reply_is_lost_declares_once(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, fault: Fault
) -> None:
    proxy.fail_next("create_table*", fault)
    answer = broken.declare_table(DeclareTableRequest(id=[database, "t"]))
    assert proxy.fired
    described = broken.describe_table(DescribeTableRequest(id=[database, "t"]))
    assert described.location == answer.location


@pytest.mark.parametrize("fault", LOST)
def test_declare_over_a_table_with_data_is_refused_even_if_replies_are_lost(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, fault: Fault
) -> None:
    lance.write_dataset(pa.table({"i": [1]}), namespace_client=broken, table_id=[database, "t"])
    proxy.fail_next("create_table*", fault)
    with pytest.raises(TableAlreadyExistsError):
        broken.declare_table(DeclareTableRequest(id=[database, "t"]))
    assert proxy.fired
    assert lance.dataset(namespace_client=broken, table_id=[database, "t"]).count_rows() == 1


@pytest.mark.parametrize("fault", LOST)
def test_create_namespace_whose_reply_is_lost_creates_once(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, fault: Fault
) -> None:
    request = CreateNamespaceRequest(id=[database + "_new"], properties={"team": "a"})
    proxy.fail_next("create_database", fault)
    broken.create_namespace(request)
    assert proxy.fired
    found = broken.describe_namespace(DescribeNamespaceRequest(id=request.id)).properties or {}
    assert found["team"] == "a"
    with pytest.raises(NamespaceAlreadyExistsError):
        broken.create_namespace(request)
    broken.drop_namespace(DropNamespaceRequest(id=request.id))


@pytest.mark.parametrize("fault", LOST)
def test_drop_namespace_whose_reply_is_lost_drops_it(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, fault: Fault
) -> None:
    proxy.fail_next("drop_database", fault)
    broken.drop_namespace(DropNamespaceRequest(id=[database]))
    assert proxy.fired
    with pytest.raises(LanceNamespaceError, match=database):
        broken.namespace_exists(NamespaceExistsRequest(id=[database]))


@pytest.mark.parametrize("fault", LOST)
def test_deregister_whose_reply_is_lost_keeps_the_files(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, fault: Fault
) -> None:
    written = lance.write_dataset(
        pa.table({"i": [1, 2]}), namespace_client=broken, table_id=[database, "t"]
    )
    proxy.fail_next("drop_table", fault)
    broken.deregister_table(DeregisterTableRequest(id=[database, "t"]))
    assert proxy.fired
    with pytest.raises(TableNotFoundError):
        broken.table_exists(TableExistsRequest(id=[database, "t"]))
    assert lance.dataset(written.uri).count_rows() == 2


@pytest.mark.parametrize("fault", LOST)
def test_drop_table_whose_reply_is_lost_drops_entry_and_files(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, fault: Fault
) -> None:
    written = lance.write_dataset(
        pa.table({"i": [1, 2]}), namespace_client=broken, table_id=[database, "t"]
    )
    proxy.fail_next("drop_table", fault)
    broken.drop_table(DropTableRequest(id=[database, "t"]))
    assert proxy.fired
    with pytest.raises(TableNotFoundError):
        broken.table_exists(TableExistsRequest(id=[database, "t"]))
    assert not Path(written.uri).exists()


@pytest.mark.parametrize("fault", LOST)
def test_rename_whose_reply_is_lost_renames_once(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, fault: Fault
) -> None:
    lance.write_dataset(pa.table({"i": [1, 2]}), namespace_client=broken, table_id=[database, "t"])
    proxy.fail_next("alter_table*", fault)
    broken.rename_table(RenameTableRequest(id=[database, "t"], new_table_name="u"))
    assert proxy.fired
    assert broken.list_tables(ListTablesRequest(id=[database])).tables == ["u"]
    assert lance.dataset(namespace_client=broken, table_id=[database, "u"]).count_rows() == 2


@pytest.mark.parametrize("fault", LOST)
def test_register_overwrite_whose_reply_is_lost_points_to_the_new_place(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, tmp_path: Path, fault: Fault
) -> None:
    for number in (1, 2):
        lance.write_dataset(pa.table({"i": [0] * number}), str(tmp_path / f"{number}.lance"))
    request = RegisterTableRequest(id=[database, "t"], location=str(tmp_path / "1.lance"))
    broken.register_table(request)
    proxy.fail_next("alter_table*", fault)
    request.location, request.mode = str(tmp_path / "2.lance"), "Overwrite"
    broken.register_table(request)
    assert proxy.fired
    assert lance.dataset(namespace_client=broken, table_id=[database, "t"]).count_rows() == 2
    assert lance.dataset(str(tmp_path / "1.lance")).count_rows() == 1


READS: dict[str, Callable[[HiveNamespace, str], object]] = {
    "get_all_databases": lambda ns, _: ns.list_namespaces(ListNamespacesRequest(id=[])),
    "get_database": lambda ns, db: ns.describe_namespace(DescribeNamespaceRequest(id=[db])),
    "get_table_names_by_filter": lambda ns, db: ns.list_tables(ListTablesRequest(id=[db])),
    "get_table_req": lambda ns, db: ns.describe_table(DescribeTableRequest(id=[db, "t"])),
}


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("fault", LOST)
def test_a_read_whose_reply_is_lost_is_repeated(
    broken: HiveNamespace, proxy: ThriftProxy, database: str, call: str, fault: Fault
) -> None:
    broken.declare_table(DeclareTableRequest(id=[database, "t"]))
    expected = READS[call](broken, database)
    proxy.fail_next(call, fault)
    assert READS[call](broken, database) == expected
    assert proxy.fired


@pytest.mark.parametrize("call", READS)
def test_a_read_that_is_never_answered_ends_in_service_unavailable(
    proxy: ThriftProxy, namespace: HiveNamespace, database: str, call: str
) -> None:
    namespace.declare_table(DeclareTableRequest(id=[database, "t"]))
    impatient = {"client.timeout": "0.5", "client.retry-timeout": "1"}
    with HiveNamespace(uri=proxy.uri, **impatient) as connected:
        proxy.fail_next(call, Fault.STALL, times=100)
        started = time.monotonic()
        with pytest.raises(ServiceUnavailableError, match=call):
            READS[call](connected, database)
        assert time.monotonic() - started < 10


def test_a_stalled_reply_is_never_given_to_another_question(
    broken: HiveNamespace, proxy: ThriftProxy, database: str
) -> None:
    names = [f"t{number}" for number in range(8)]
    places = {
        name: broken.declare_table(DeclareTableRequest(id=[database, name])).location
        for name in names
    }
    proxy.fail_next("get_table_req", Fault.DELAY_REPLY, times=5, seconds=4)
    wrong: list[str] = []

    def ask(name: str) -> None:
        for _ in range(20):
            try:
                found = broken.describe_table(DescribeTableRequest(id=[database, name])).location
            except ServiceUnavailableError:
                continue
            if found != places[name]:
                wrong.append(f"{name}: {found}")

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert proxy.fired


def test_listing_makes_one_call_and_describing_one(
    broken: HiveNamespace, proxy: ThriftProxy, database: str
) -> None:
    for number in range(3):
        broken.declare_table(DeclareTableRequest(id=[database, f"t{number}"]))
    proxy.reset()
    assert broken.list_tables(ListTablesRequest(id=[database])).tables == ["t0", "t1", "t2"]
    broken.describe_table(DescribeTableRequest(id=[database, "t1"]))
    assert dict(proxy.calls) == {"get_table_names_by_filter": 1, "get_table_req": 1}
    assert proxy.connections == 0
