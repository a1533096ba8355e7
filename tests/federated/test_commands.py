"""Commands on several catalogs as one: those that need only the namespace API work there."""

from __future__ import annotations

from pathlib import Path

import lance_namespace as api
import pytest
from cli.program import answer_of, run
from core.memory_catalog import MemoryNamespace

from lance_bridge.exit_codes import FAILED, MISUSED

from .conftest import add_tables

pytestmark = [pytest.mark.servers, pytest.mark.spec("cli.md#several-catalogs-at-once")]

TABLE = "prod.eu.shop.sales.orders"


@pytest.fixture(autouse=True)
def _config(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    memory: MemoryNamespace,
    directory: api.LanceNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Configure ``all``, of one catalog of lance-bridge and a directory, and ``torn``."""
    add_tables(memory, "eu.shop.sales.orders")
    add_tables(directory, "maps.tiles")
    path = tmp_path / "catalogs.yaml"
    path.write_text(
        "catalogs:\n"
        f"  prod: {{impl: core.memory_catalog.MemoryNamespace, "
        f"uri: '{request.node.nodeid}', root: {tmp_path / 'memory'}}}\n"
        f"  files: {{impl: dir, root: {tmp_path / 'directory'}}}\n"
        "  far: {impl: rest, uri: 'http://127.0.0.1:9'}\n"
        "  all: {impl: federated, catalogs: [prod, files]}\n"
        "  torn: {impl: federated, catalogs: [far, files]}\n"
    )
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))


def test_namespaces_are_listed_created_described_and_dropped() -> None:
    assert answer_of("ns", "list", "all")["namespaces"] == [
        {"namespace": "files"},
        {"namespace": "prod"},
    ]
    run("ns", "create", "all", "prod.eu.shop.archive", "--set", "comment=old")
    described = answer_of("ns", "describe", "all", "prod.eu.shop.archive")
    assert described["properties"]["comment"] == "old"
    run("ns", "drop", "all", "prod.eu.shop.archive", "--yes")
    listed = answer_of("ns", "list", "all", "prod.eu.shop")["namespaces"]
    assert listed == [{"namespace": "prod.eu.shop.sales"}]


@pytest.mark.spec("cli.md#pages")
def test_tables_of_all_catalogs_are_listed_page_by_page() -> None:
    page = answer_of("table", "list", "all", "-n", "1")
    assert page["tables"] == [{"table": "files.maps.tiles"}]
    page = answer_of("table", "list", "all", "-n", "1", "--page-token", page["page_token"])
    assert (page["tables"], page["page_token"]) == ([{"table": TABLE}], None)
    assert answer_of("table", "list", "all", "prod.eu.shop.sales")["tables"] == [{"table": TABLE}]


def test_a_listing_without_a_catalog_names_it_and_fails() -> None:
    done = run("table", "list", "torn", code=FAILED)
    assert "files.maps.tiles" in done.stdout
    assert "the catalog 'far' could not be listed: SERVICE_UNAVAILABLE (17)" in done.stderr


@pytest.mark.parametrize("table", [TABLE, "files.maps.tiles"])
def test_a_table_is_described_and_read(table: str) -> None:
    described = answer_of("table", "describe", "all", table)
    assert {each["name"]: each["sql_type"] for each in described["schema"]}["id"] == "bigint"
    assert described["statistics"]["num_rows"] == 2
    assert [row["id"] for row in answer_of("table", "head", "all", table)] == [0, 1]
    assert [row["id"] for row in answer_of("table", "query", "all", table, "-w", "id>0")] == [1]
    assert answer_of("table", "count", "all", table)["rows"] == 2
    assert [each["version"] for each in answer_of("table", "versions", "all", table)["versions"]]


def test_a_table_is_indexed_deregistered_registered_and_dropped() -> None:
    run("maintain", "index", "all", TABLE, "id")
    assert answer_of("table", "indices", "all", TABLE)["indices"][0]["index"] == "id_idx"
    assert not answer_of("table", "tags", "all", TABLE)["tags"]
    location = answer_of("table", "deregister", "all", TABLE)["location"]
    run("table", "register", "all", TABLE, location)
    error = run("table", "rename", "all", TABLE, "files.maps.orders", code=FAILED).stderr
    assert "One request works in one catalog" in error
    run("table", "drop", "all", TABLE, "--yes")
    assert not Path(location).exists()


@pytest.mark.parametrize(
    "command",
    [
        ("catalogs", "test", "all"),
        ("maintain", "compact", "all", TABLE),
        ("maintain", "index", "all", TABLE, "id", "--spark"),
        ("managed", "begin", "all", TABLE),
        ("doctor", "all"),
    ],
    ids=" ".join,
)
def test_other_commands_ask_for_one_catalog(command: tuple[str, ...]) -> None:
    stderr = run(*command, code=MISUSED).stderr
    assert "'all' is made of others" in stderr
    assert "Name one of its catalogs instead" in stderr
