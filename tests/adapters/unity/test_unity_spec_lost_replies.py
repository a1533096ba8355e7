"""Changes whose reply is lost, through the namespace: nothing doubled, nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from servers.http_proxy import Answer, Fault, HttpProxy, Request
from servers.unity import (
    DATABRICKS,
    DIALECTS,
    OPEN_SOURCE_0_6,
    WAREHOUSE_ID,
    UnityServer,
)

from lance_bridge.testing.calls import Calls
from lance_bridge_unity import UnityNamespace

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#errors-of-every-operation", "unity.md#errors-of-every-operation"),
]

SCHEMA = ["c", "s"]
TABLE = [*SCHEMA, "t"]
NEW = [*SCHEMA, "new"]
ROWS = pa.table({"i": [0, 1, 2]})
READS = ("/volumes", "/functions", "/models", "/temporary-", "/oidc")

FAULTS: dict[str, Fault | Answer] = {
    "lost before the effect": Fault.RESET,
    "lost after the effect": Fault.LOSE_REPLY,
    "truncated": Fault.TRUNCATE_REPLY,
    "malformed": Fault.MALFORMED_REPLY,
    "failed": Answer.of_json(500, {"error_code": "INTERNAL", "message": "no"}),
    "unavailable": Answer.of_json(503, {"error_code": "TEMPORARILY_UNAVAILABLE"}),
    "throttled": Answer.of_json(429, {"error_code": "RESOURCE_EXHAUSTED"}),
}

CHANGES: dict[str, Callable[[Calls], object]] = {
    "create namespace": lambda calls: calls.create_namespace(["c", "n"], properties={"k": "v"}),
    "overwrite namespace": lambda calls: calls.create_namespace(
        ["c", "empty"], mode="Overwrite", properties={"k": "v"}
    ),
    "drop namespace": lambda calls: calls.drop_namespace(["c", "empty"]),
    "declare": lambda calls: calls.declare_table(NEW, properties={"k": "v"}),
    "create": lambda calls: calls.create_table(NEW, ROWS, properties={"k": "v"}),
    "register": lambda calls: calls.register_table(NEW, calls.describe_table(TABLE).location or ""),
    "rename": lambda calls: calls.rename_table(TABLE, "new"),
    "deregister": lambda calls: calls.deregister_table(TABLE),
    "drop": lambda calls: calls.drop_table(TABLE),
}


def is_change(request: Request) -> bool:
    """Return whether a request changes something, or runs a statement that does."""
    reads = any(part in request.path for part in READS)
    return request.method != "GET" and not reads and not request.path.endswith("/cancel")


class Place:
    """A server with a table and an empty schema, and a client behind a proxy."""

    def __init__(self, server: UnityServer, proxy: HttpProxy, root: str) -> None:
        self.server = server
        self.proxy = proxy
        more = {"server": "open-source"}
        if server.dialect.databricks:
            more = {"token": "dapi-double", "warehouse_id": WAREHOUSE_ID}
        namespace = UnityNamespace(
            host=proxy.endpoint, root=root, retry_timeout="2", max_retries="2", **more
        )
        self.calls = Calls(namespace)
        server.add_catalog("c")
        for schema in ("s", "empty"):
            server.add_schema("c", schema)
        self.calls.create_table(TABLE, ROWS)

    def state(self) -> dict[str, Any]:
        """What a caller can tell."""
        calls = self.calls
        tables = calls.all_tables(SCHEMA)
        namespaces = calls.all_namespaces(["c"])
        return {
            "tables": {name: calls.describe_table([*SCHEMA, name]).properties for name in tables},
            "rows": {
                name: calls.count([*SCHEMA, name])
                for name in tables
                if not calls.describe_table([*SCHEMA, name], check_declared=True).is_only_declared
            },
            "namespaces": {
                name: calls.describe_namespace(["c", name]).properties for name in namespaces
            },
        }


@pytest.fixture(params=[OPEN_SOURCE_0_6.name, DATABRICKS.name])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    """Makes servers of one dialect with clients, each with its own root."""
    ends: list[Callable[[], object]] = []

    def make(name: str) -> Place:
        server = UnityServer(DIALECTS[request.param]).start()
        ends.append(server.stop)
        proxy = HttpProxy(server.url).start()
        ends.append(proxy.close)
        place = Place(server, proxy, f"file://{tmp_path}/{name.replace(' ', '_')}")
        ends.append(place.calls.close)
        return place

    yield make
    for end in reversed(ends):
        end()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_with_a_fault_is_made_once(places: Callable[[str], Place], change: str) -> None:
    expected = places("expected")
    CHANGES[change](expected.calls)
    states = {}
    for name, fault in FAULTS.items():
        place = places(name)
        place.proxy.fail_next(is_change, fault)
        CHANGES[change](place.calls)
        assert len(place.proxy.fired) == 1, name
        states[name] = place.state()
    assert states == dict.fromkeys(FAULTS, expected.state())
