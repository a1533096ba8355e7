"""How many requests an operation needs, and what each of them is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError
from servers.http_proxy import HttpProxy
from servers.unity import UnityServer

from lance_bridge.testing.build import rows
from lance_bridge.testing.calls import Calls
from lance_bridge_unity import UnityNamespace

from .building import API

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#connections", "unity.md#declaretable"),
]

READ_SCHEMA = f"GET {API}/schemas/c.s"
CREATE = f"POST {API}/tables"


def entry_of(name: str) -> dict[str, int]:
    """Return the requests that add an entry: the second looks whether another client won."""
    return {CREATE: 1, f"GET {API}/tables/c.s.{name}": 1}


def test_a_declaration_needs_no_request_but_those_of_its_entry(
    calls: Calls, proxy: HttpProxy
) -> None:
    calls.declare_table(["c", "s", "t"])
    assert proxy.counts == entry_of("t")
    proxy.reset()
    calls.declare_table(["c", "s", "u"], location="/data/u")
    assert proxy.counts == entry_of("u")
    proxy.reset()
    calls.register_table(["c", "s", "v"], "/data/v")
    assert proxy.counts == entry_of("v")


def test_the_schema_is_read_where_it_gives_the_location(
    server: UnityServer, proxy: HttpProxy, tmp_path: Path
) -> None:
    server.add_schema("c", "own", storage_root=f"file://{tmp_path}/own")
    with UnityNamespace(host=proxy.endpoint) as namespace:
        made = Calls(namespace).declare_table(["c", "own", "t"])
    assert made.location == f"{tmp_path}/own/c/own.db/t.lance"
    assert proxy.counts[f"GET {API}/schemas/c.own"] == 1
    assert sum(proxy.counts.values()) == 3


def test_the_schema_is_read_before_data_is_written(calls: Calls, proxy: HttpProxy) -> None:
    calls.create_table(["c", "s", "t"], rows(range(3)))
    assert proxy.counts == {READ_SCHEMA: 1, **entry_of("t")}


@pytest.mark.parametrize("missing", [["c", "nope"], ["nope", "s"]])
def test_a_namespace_that_is_missing_is_named_and_nothing_stays_in_its_place(
    calls: Calls, tmp_path: Path, missing: list[str]
) -> None:
    with pytest.raises(NamespaceNotFoundError, match="nope"):
        calls.declare_table([*missing, "t"])
    with pytest.raises(NamespaceNotFoundError, match="nope"):
        calls.create_table([*missing, "t"], rows(range(3)))
    assert not (tmp_path / "lake").exists()


def test_without_a_root_a_missing_namespace_is_named(proxy: HttpProxy) -> None:
    with UnityNamespace(host=proxy.endpoint) as namespace:
        with pytest.raises(NamespaceNotFoundError, match="nope"):
            Calls(namespace).declare_table(["c", "nope", "t"])
        with pytest.raises(InvalidInputError, match="root"):
            Calls(namespace).declare_table(["c", "s", "t"])
