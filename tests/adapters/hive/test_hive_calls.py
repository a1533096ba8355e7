"""How many calls an operation needs, and what each of them is for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.proxy import ThriftProxy

from lance_bridge.testing.build import rows
from lance_bridge.testing.calls import Calls

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#connections", "hive.md#declaretable")]

READ = {"get_database": 1}
ADD = {"create_table_with_environment_context": 1}
STORAGE = {"managed_by": "storage"}


@pytest.fixture
def proxied(proxy: ThriftProxy, database: str, tmp_path: Path) -> Iterator[Calls]:
    """A client behind the proxy, with a root, which has called nothing yet."""
    assert database
    with open_calls(uri=proxy.uri, root=str(tmp_path / "lake")) as calls:
        proxy.reset()
        yield calls


def test_a_new_table_needs_the_database_and_its_entry(
    proxied: Calls, proxy: ThriftProxy, database: str, tmp_path: Path
) -> None:
    proxied.declare_table([database, "t"])
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.declare_table([database, "u"], location=str(tmp_path / "u"))
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.register_table([database, "v"], str(tmp_path / "v"))
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.create_table([database, "w"], rows(range(3)))
    assert dict(proxy.calls) == READ | ADD


def test_a_request_that_says_who_manages_the_table_needs_no_database(
    proxied: Calls, proxy: ThriftProxy, database: str, tmp_path: Path
) -> None:
    proxied.declare_table([database, "t"], properties=STORAGE)
    assert dict(proxy.calls) == ADD
    proxy.reset()
    proxied.declare_table([database, "u"], location=str(tmp_path / "u"), properties=STORAGE)
    assert dict(proxy.calls) == ADD
