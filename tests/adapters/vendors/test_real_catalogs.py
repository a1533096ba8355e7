"""Sessions of AWS's vendor on each catalog: a real metastore, Glue, and Unity's double.

The store and its STS are moto's, in a process of its own, behind a proxy that shows what comes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import parse_qs

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError
from servers.glue_server import ACCESS_KEY, GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer
from stores.short_lived import key_of

import lance_bridge
from lance_bridge.credentials import Caller, acting_for
from lance_bridge.testing.calls import Calls

from .building import aws_properties

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("common.md#storage-credentials", "common.md#vending-rules"),
]

CATALOGS = ["hive", "glue", "unity"]
ROWS = pa.table({"a": [1, 2, 3]})


@dataclass
class Lake:
    """An empty namespace of a catalog, whose tables' credentials are the vendor's."""

    calls: Calls
    namespace: api.LanceNamespace
    path: list[str]
    store: HttpProxy
    catalog: HttpProxy | None
    """The catalog, where it speaks HTTP."""

    @property
    def policies(self) -> list[str]:
        """The session policies that STS was asked for."""
        bodies = [each.body for each in self.store.requests if each.key == "AssumeRole"]
        return [parse_qs(body.decode())["Policy"][0] for body in bodies]

    @property
    def keys(self) -> set[str]:
        """The keys that objects were read and written with."""
        objects = [each for each in self.store.requests if each.key != "AssumeRole"]
        return {key_of(request) for request in objects}


@pytest.fixture
def lake(aws: GlueServer, metastores: Metastores, request: pytest.FixtureRequest) -> Iterator[Lake]:
    impl = request.param
    with ExitStack() as stack:
        store = stack.enter_context(HttpProxy(aws.endpoint))
        given = {
            **aws_properties(aws),
            "storage.aws_endpoint": store.endpoint,
            "credentials.endpoint": store.endpoint,
            "credentials.sts_endpoint": store.endpoint,
            "credentials.write": "true",
        }
        catalog, parent = None, []
        if impl == "hive":
            given["uri"] = metastores.get("2.3").uri
        elif impl == "glue":
            catalog = stack.enter_context(HttpProxy(aws.endpoint))
            given |= {**aws.properties, "endpoint": catalog.endpoint}
        else:
            server = stack.enter_context(UnityServer(OPEN_SOURCE_0_6))
            server.add_catalog("c")
            catalog, parent = stack.enter_context(HttpProxy(server.url)), ["c"]
            given["endpoint"] = catalog.endpoint
        namespace = lance_bridge.connect(impl, given)
        assert isinstance(namespace, lance_bridge.LanceBridgeNamespace)
        stack.enter_context(namespace)
        calls, path = Calls(namespace), [*parent, f"db_{uuid.uuid4().hex[:12]}"]
        calls.create_namespace(path)
        store.reset()
        stack.enter_context(aws.known_keys_only())
        yield Lake(calls, namespace, path, store, catalog)


@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_a_table_is_written_and_read_with_sessions_alone(lake: Lake) -> None:
    table = [*lake.path, "t"]
    for mode in ("create", "append"):
        lance.write_dataset(ROWS, namespace_client=lake.namespace, table_id=table, mode=mode)
    assert lance.dataset(namespace_client=lake.namespace, table_id=table).count_rows() == 6
    assert lake.calls.count(table) == 6
    options = lake.calls.describe_table(table).storage_options or {}
    assert options["aws_access_key_id"] in lake.keys
    assert ACCESS_KEY not in {*lake.keys, *options.values()}
    assert all(key.startswith("ASIA") for key in lake.keys)
    # To see that the location is free, before there is an entry; to write; to read.
    assert len(lake.policies) == 3
    if lake.catalog is not None:
        assert not any("temporary" in key.lower() for key in lake.catalog.counts)


@pytest.mark.parametrize("lake", ["hive", "glue"], indirect=True)
def test_writers_of_a_governed_table_are_denied_its_versions(lake: Lake) -> None:
    table = [*lake.path, "t"]
    lake.calls.declare_table(table, properties={"managed_by": "impl"})
    denied = [policy.count('"Deny"') for policy in lake.policies]
    # The last one is the client's; with the others, the namespace itself looks at the location.
    assert denied[-1] == 2
    assert set(denied[:-1]) <= {0}
    lance.write_dataset(ROWS, namespace_client=lake.namespace, table_id=table, mode="append")
    assert lance.dataset(namespace_client=lake.namespace, table_id=table).count_rows() == 3
    request = api.ListTableVersionsRequest(id=table)
    versions = lake.namespace.list_table_versions(request).versions
    assert [each.version for each in versions] == [1]


@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_a_location_inside_another_tables_gets_none(lake: Lake) -> None:
    table, inner = [*lake.path, "t"], [*lake.path, "inner"]
    location = lake.calls.declare_table(table).location
    lake.calls.register_table(inner, f"{location}/data")
    asked = len(lake.policies)
    principal = acting_for(Caller("anna", lambda _: True))
    with principal, pytest.raises(InvalidTableStateError, match="overlaps"):
        lake.calls.describe_table(inner)
    assert len(lake.policies) == asked
    assert lake.calls.describe_table(inner, vend_credentials=False).location
