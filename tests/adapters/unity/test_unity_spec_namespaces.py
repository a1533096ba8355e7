"""What the spec promises of namespaces: Cascade in a caller's hands, and the longest texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace import ErrorCode
from servers.http_proxy import HttpProxy
from servers.unity import UnityServer

from lance_bridge.testing.calls import Calls
from lance_bridge.testing.expect import refused
from lance_bridge_unity import UnityNamespace

from .building import API

SCHEMA = ["c", "s"]
TABLE = [*SCHEMA, "t"]
ROWS = pa.table({"i": [0, 1, 2]})


@pytest.fixture
def calls(proxy: HttpProxy, tmp_path: Path) -> Iterator[Calls]:
    with UnityNamespace(host=proxy.endpoint, root=str(tmp_path / "lake")) as namespace:
        yield Calls(namespace)


@pytest.mark.parametrize("refused_route", ["/schemas/{full_name}", "/catalogs/{name}"])
def test_cascade_by_a_caller_without_the_right_to_drop_changes_nothing(
    server: UnityServer, calls: Calls, refused_route: str
) -> None:
    """The server checks permissions before it checks whether the namespace is empty."""
    calls.create_table(TABLE, ROWS)
    calls.create_namespace(["c", "empty"])
    server.refuse(f"DELETE {refused_route}")
    with refused(ErrorCode.PERMISSION_DENIED):
        calls.drop_namespace(["c"], behavior="Cascade")
    assert calls.all_namespaces(["c"]) == ["empty", "s"]
    assert calls.count(TABLE) == 3


def test_a_cascade_without_tables_drops_once(proxy: HttpProxy, calls: Calls) -> None:
    calls.drop_namespace(SCHEMA, behavior="Cascade")
    assert proxy.counts[f"DELETE {API}/schemas/c.s"] == 1


@pytest.mark.parametrize(
    ("level", "key", "limit"),
    [
        (["c"], "schema.comment", 255),
        ([], "catalog.comment", 255),
        (["c"], "schema.storage-root", 194),
        ([], "catalog.storage-root", 194),
    ],
)
def test_the_longest_comment_and_storage_root_are_kept_and_longer_ones_invalid_input(
    proxy: HttpProxy, calls: Calls, level: list[str], key: str, limit: int
) -> None:
    start = "s3://b/" if key.endswith("root") else ""
    longest = start + "x" * (limit - len(start))
    calls.create_namespace([*level, "n"], properties={key: longest})
    assert calls.describe_namespace([*level, "n"]).properties == {key: longest}
    before = sum(proxy.counts.values())
    with refused(ErrorCode.INVALID_INPUT, naming=f"allows {limit}"):
        calls.create_namespace([*level, "m"], properties={key: longest + "x"})
    assert sum(proxy.counts.values()) == before


def test_a_column_whose_name_is_too_long_is_invalid_input_and_nothing_is_made(
    calls: Calls, tmp_path: Path
) -> None:
    with refused(ErrorCode.INVALID_INPUT, naming="has 256 characters; Unity Catalog allows 255"):
        calls.create_table(TABLE, pa.table({"x" * 256: [1]}))
    assert calls.all_tables(SCHEMA) == []
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
    calls.create_table(TABLE, pa.table({"x" * 255: [1]}))
