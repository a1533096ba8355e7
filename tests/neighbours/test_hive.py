"""A Lance table in a database of a metastore beside an Iceberg table, and what PyIceberg sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from servers.metastores import Metastores

from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveNamespace

from .conftest import Ask

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

DATABASE = "neighbours"


@pytest.fixture
def calls(metastores: Metastores, tmp_path: Path) -> Iterator[Calls]:
    """A client, and a database with a Lance table of three rows."""
    client = HiveNamespace(uri=metastores.get("2.3").uri, root=str(tmp_path / "lance"))
    calls = Calls(client)
    calls.create_namespace([DATABASE])
    calls.create_table([DATABASE, "ours"], pa.table({"id": [1, 2, 3]}))
    yield calls
    calls.drop_namespace([DATABASE], behavior="Cascade")


@pytest.fixture
def ask_iceberg(
    metastores: Metastores,
    calls: Calls,  # noqa: ARG001 - the database
    ask: Ask,
    tmp_path: Path,
) -> Iterator[Callable[[str], Any]]:
    """Ask PyIceberg about the database, where it has a table too."""
    catalog = {
        **{"type": "hive", "uri": metastores.get("2.3").uri},
        "hive.hive2-compatible": "true",
    }
    given = {"database": DATABASE, "root": f"file://{tmp_path}", "catalog": catalog}
    ask("iceberg", "write", {}, **given)
    yield lambda action: ask("iceberg", action, {}, **given)
    ask("iceberg", "drop", {}, **given)


def test_pyiceberg_lists_its_own_alone_and_renames_any(
    ask_iceberg: Callable[[str], Any], calls: Calls
) -> None:
    """It renames an entry before it looks what it is; the table stays whole."""
    found = ask_iceberg("read")
    assert (found["names"], found["rows"]) == (["iceberg"], {"id": [], "name": []})
    assert found["exists"] is False
    assert found["load"].startswith("NoSuchIcebergTableError: ")
    assert found["purge"] == "NotImplementedError: Not yet implemented"
    assert found["rename"].startswith("NoSuchIcebergTableError: ")
    assert calls.all_tables([DATABASE]) == ["renamed"]
    assert calls.call("count_table_rows", [DATABASE, "renamed"]).count == 3
