"""Reads and writes that the service plans: what tasks get, rows without tasks, commits."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from core.memory_catalog import MemoryServer

from lance_bridge_spark.addresses import CatalogAddress
from lance_bridge_spark.source import requests
from lance_bridge_spark.sql import service

from .service_requests import NAME, TABLE, append, ask, create, dataset, ids_in, respond

pytestmark = pytest.mark.quick

LOCAL: dict[str, Any] = {"local_rows": 3, "local_bytes": 1 << 20}


def call(
    catalog: CatalogAddress, op: str, parts: list[bytes], **args: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the answer to a call with byte strings, and those of the answer."""
    address = {"name": catalog.name, "properties": dict(catalog.properties)}
    answer, found = service.respond({"op": op, "args": args, "catalog": address}, parts)
    assert "error" not in answer, answer
    return answer["answer"], found


def options(catalog: CatalogAddress, **asked: dict[str, Any]) -> dict[str, str]:
    """Return the options of the data source for a use of ``TABLE``."""
    address = {"name": catalog.name, "properties": dict(catalog.properties)}
    texts: dict[str, Any] = {requests.CATALOG: address, requests.TABLE: TABLE}
    texts.update({f"{requests.PREFIX}{key}": value for key, value in asked.items()})
    return {key: json.dumps(value) for key, value in texts.items()}


def test_a_panic_of_lance_is_a_response(
    catalog: CatalogAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        """As PyO3 names its own."""

    PanicException.__module__ = "pyo3_runtime"

    def fail(*_: object) -> dict[str, Any]:
        raise PanicException("index out of bounds")

    monkeypatch.setitem(service._OPERATIONS, "load_table", fail)
    address = {"name": catalog.name, "properties": dict(catalog.properties)}
    answer, parts = service.respond({"op": "load_table", "args": {}, "catalog": address}, [])
    assert answer["error"]["code"] == 18
    assert "index out of bounds" in answer["error"]["message"]
    assert parts == []


def plan(
    catalog: CatalogAddress, scan: dict[str, Any] | None = None, **args: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Plan a read of all columns of ``TABLE`` as it is."""
    loaded = ask(catalog, "load_table", table=TABLE)
    chosen = {"version": loaded["version"], **(scan or {})}
    given = {"schema": loaded["schema"], "loaded": loaded["loaded"], **args}
    return call(catalog, "plan_read", [], options=options(catalog, scan=chosen), **given)


def ids_of_tasks(parts: list[bytes]) -> list[int]:
    """Do all tasks as Spark's workers do, and return the ids of their rows."""
    function, _ = pickle.loads(parts[0])
    found: list[int] = []
    for part in parts[1:]:
        given = pa.record_batch([pa.array([part], pa.binary())], ["partition"])
        found += [i for batch in function(iter([given])) for i in batch["id"].to_pylist()]
    return sorted(found)


@pytest.fixture
def rows(catalog: CatalogAddress) -> None:
    """Make ``TABLE`` with the ids 0 to 9, in two fragments."""
    create(catalog, TABLE)
    append(catalog, TABLE, *range(5))
    append(catalog, TABLE, *range(5, 10))


@pytest.mark.usefixtures("rows")
def test_many_rows_are_read_by_tasks_and_few_come_at_once(catalog: CatalogAddress) -> None:
    answer, parts = plan(catalog, **LOCAL)
    assert answer == {"local": False, "rows": 10}
    assert ids_of_tasks(parts) == list(range(10))
    answer, [stream] = plan(catalog, {"limit": 3}, **LOCAL)
    assert answer == {"local": True, "rows": 3}
    assert pa.ipc.open_stream(stream).read_all().num_rows == 3
    assert not plan(catalog, {"limit": 4}, **LOCAL)[0]["local"]
    assert not plan(catalog, {"limit": 3}, **{**LOCAL, "local_bytes": 9})[0]["local"]
    assert not plan(catalog, {"limit": 3})[0]["local"]


@pytest.mark.spec("spark.md#what-is-pushed-down")
@pytest.mark.usefixtures("rows")
def test_rows_that_an_index_knows_come_at_once(catalog: CatalogAddress) -> None:
    some = {"filter": "id IN (2, 7)"}
    assert plan(catalog, some, **LOCAL)[0] == {"local": False, "rows": 10}
    dataset(catalog, TABLE).create_scalar_index("id", "BTREE")
    answer, [stream] = plan(catalog, some, **LOCAL)
    assert answer == {"local": True, "rows": 2}
    assert sorted(pa.ipc.open_stream(stream).read_all()["id"].to_pylist()) == [2, 7]
    answer, parts = plan(catalog, {"filter": "id > 4"}, **LOCAL)
    assert answer == {"local": False, "rows": 5}
    assert ids_of_tasks(parts) == [5, 6, 7, 8, 9]
    append(catalog, TABLE, 7)
    assert plan(catalog, some, **LOCAL)[0] == {"local": False, "rows": 11}


@pytest.mark.usefixtures("rows")
def test_a_table_that_was_loaded_is_not_loaded_again(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    loaded = ask(catalog, "load_table", table=TABLE)
    asked = options(catalog, scan={"version": loaded["version"]})
    given = {"options": asked, "schema": loaded["schema"]}
    server.tables.clear()
    _, parts = call(catalog, "plan_read", [], loaded=loaded["loaded"], **given)
    assert ids_of_tasks(parts) == list(range(10))
    gone = respond(catalog, "plan_read", {**given, "loaded": "another process's"})
    assert gone["error"]["code"] == 4


@pytest.mark.spec("spark.md#the-python-process-of-the-driver")
def test_a_commit_that_is_repeated_adds_its_rows_once(catalog: CatalogAddress) -> None:
    create(catalog, TABLE)
    schema = ask(catalog, "load_table", table=TABLE)["schema"]
    given = {"options": options(catalog, write={}), "schema": schema, "overwrite": False}
    planned, [task, writer] = call(catalog, "plan_write", [], **given)
    function, _ = pickle.loads(task)
    columns = [pa.array([1, 2], pa.int64()), pa.array(["a", None])]
    [message] = function(iter([pa.record_batch(columns, ["id", NAME["name"]])]))
    parts = [writer, message.column(0)[0].as_py()]
    for _ in range(2):
        call(catalog, "commit_write", parts, transaction=planned["transaction"])
    assert ids_in(catalog, TABLE) == [1, 2]
    committed = dataset(catalog, TABLE)
    transaction = committed.read_transaction(committed.version)
    assert transaction is not None
    assert transaction.uuid == planned["transaction"]
    call(catalog, "abort_write", parts)
    assert ids_in(catalog, TABLE) == [1, 2]


def test_what_no_one_expected_is_an_internal_error(catalog: CatalogAddress) -> None:
    answer = respond(catalog, "plan_read", {})
    assert answer["error"]["code"] == 18
    assert "KeyError" in answer["error"]["message"]
