"""Reads and writes that the service plans: what tasks get, rows without tasks, commits."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from lance_bridge_spark.source.options import CATALOG_OPTION, SQL_PREFIX, TABLE_OPTION
from lance_bridge_spark.sql import service as sql_service

from .service_requests import NAME, TABLE, Service

pytestmark = pytest.mark.quick

LOCAL: dict[str, Any] = {"local_rows": 3, "local_bytes": 1 << 20}


def call(
    service: Service, op: str, parts: list[bytes], **args: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the answer to a call with byte strings, and those of the answer."""
    answer, found = service.call(op, args, parts)
    assert "error" not in answer, answer
    return answer["answer"], found


def options(service: Service, **asked: dict[str, Any]) -> dict[str, str]:
    """Return the options of the data source for a use of ``TABLE``."""
    texts: dict[str, Any] = {CATALOG_OPTION: service.address, TABLE_OPTION: TABLE}
    texts.update({f"{SQL_PREFIX}{key}": value for key, value in asked.items()})
    return {key: json.dumps(value) for key, value in texts.items()}


def test_a_panic_of_lance_is_a_response(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As PyO3 names its own."""

    PanicException.__module__ = "pyo3_runtime"

    def fail(*_: object) -> dict[str, Any]:
        raise PanicException("index out of bounds")

    monkeypatch.setitem(sql_service._OPERATIONS, "load_table", fail)
    code, message = service.refusal("load_table")
    assert code == 18
    assert "index out of bounds" in message


def plan(
    service: Service, scan: dict[str, Any] | None = None, **args: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Plan a read of all columns of ``TABLE`` as it is."""
    loaded = service.ask("load_table", table=TABLE)
    chosen = {"version": loaded["version"], **(scan or {})}
    given = {"schema": loaded["schema"], "loaded": loaded["loaded"], **args}
    return call(service, "plan_read", [], options=options(service, scan=chosen), **given)


def ids_of_tasks(parts: list[bytes]) -> list[int]:
    """Do all tasks as Spark's workers do, and return the ids of their rows."""
    function, _ = pickle.loads(parts[0])
    found: list[int] = []
    for part in parts[1:]:
        given = pa.record_batch([pa.array([part], pa.binary())], ["partition"])
        found += [i for batch in function(iter([given])) for i in batch["id"].to_pylist()]
    return sorted(found)


@pytest.fixture
def rows(service: Service) -> None:
    """Make ``TABLE`` with the ids 0 to 9, in two fragments."""
    service.create(TABLE)
    service.append(TABLE, *range(5))
    service.append(TABLE, *range(5, 10))


@pytest.mark.usefixtures("rows")
def test_many_rows_are_read_by_tasks_and_few_come_at_once(service: Service) -> None:
    answer, parts = plan(service, **LOCAL)
    assert answer == {"local": False, "rows": 10}
    assert ids_of_tasks(parts) == list(range(10))
    answer, [stream] = plan(service, {"limit": 3}, **LOCAL)
    assert answer == {"local": True, "rows": 3}
    assert pa.ipc.open_stream(stream).read_all().num_rows == 3
    assert not plan(service, {"limit": 4}, **LOCAL)[0]["local"]
    assert not plan(service, {"limit": 3}, **{**LOCAL, "local_bytes": 9})[0]["local"]
    assert not plan(service, {"limit": 3})[0]["local"]


@pytest.mark.spec("spark.md#what-is-pushed-down")
@pytest.mark.usefixtures("rows")
def test_rows_that_an_index_knows_come_at_once(service: Service) -> None:
    some = {"filter": "id IN (2, 7)"}
    assert plan(service, some, **LOCAL)[0] == {"local": False, "rows": 10}
    service.dataset(TABLE).create_scalar_index("id", "BTREE")
    answer, [stream] = plan(service, some, **LOCAL)
    assert answer == {"local": True, "rows": 2}
    assert sorted(pa.ipc.open_stream(stream).read_all()["id"].to_pylist()) == [2, 7]
    answer, parts = plan(service, {"filter": "id > 4"}, **LOCAL)
    assert answer == {"local": False, "rows": 5}
    assert ids_of_tasks(parts) == [5, 6, 7, 8, 9]
    service.append(TABLE, 7)
    assert plan(service, some, **LOCAL)[0] == {"local": False, "rows": 11}


@pytest.mark.usefixtures("rows")
def test_a_table_that_was_loaded_is_not_loaded_again(service: Service) -> None:
    loaded = service.ask("load_table", table=TABLE)
    asked = options(service, scan={"version": loaded["version"]})
    given = {"options": asked, "schema": loaded["schema"]}
    service.server.tables.clear()
    _, parts = call(service, "plan_read", [], loaded=loaded["loaded"], **given)
    assert ids_of_tasks(parts) == list(range(10))
    gone = service.respond("plan_read", {**given, "loaded": "another process's"})
    assert gone["error"]["code"] == 4


@pytest.mark.spec("spark.md#the-python-process-of-the-driver")
def test_a_commit_that_is_repeated_adds_its_rows_once(service: Service) -> None:
    service.create(TABLE)
    schema = service.ask("load_table", table=TABLE)["schema"]
    given = {"options": options(service, write={}), "schema": schema, "overwrite": False}
    planned, [task, writer] = call(service, "plan_write", [], **given)
    function, _ = pickle.loads(task)
    columns = [pa.array([1, 2], pa.int64()), pa.array(["a", None])]
    [message] = function(iter([pa.record_batch(columns, ["id", NAME["name"]])]))
    parts = [writer, message.column(0)[0].as_py()]
    for _ in range(2):
        call(service, "commit_write", parts, transaction=planned["transaction"])
    assert service.ids_in(TABLE) == [1, 2]
    committed = service.dataset(TABLE)
    transaction = committed.read_transaction(committed.version)
    assert transaction is not None
    assert transaction.uuid == planned["transaction"]
    call(service, "abort_write", parts)
    assert service.ids_in(TABLE) == [1, 2]


def test_what_no_one_expected_is_an_internal_error(service: Service) -> None:
    code, message = service.refusal("plan_read")
    assert code == 18
    assert "KeyError" in message
