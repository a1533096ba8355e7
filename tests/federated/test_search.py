"""Searching the tables of one catalog or of several, by the library and by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from cli.running import answer_of, run
from core.memory_catalog import MemoryNamespace
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.exit_codes import FAILED, MISUSED
from lance_bridge.testing.build import ipc
from lance_bridge_federated import FederatedNamespace, Match, Scope, Search

from .conftest import add_tables
from .recording import Broken

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#search", "federated.md#search")]

NESTED = pa.table({
    "id": [1],
    "Embedding": pa.array([[0.5, 1.5]], pa.list_(pa.float32(), 2)),
    "address": [{"city": "Kiel", "lines": [{"street": "x"}]}],
})  # fmt: skip
EVERYWHERE = tuple(Scope)


@pytest.fixture
def catalogs(memory: MemoryNamespace, directory: api.LanceNamespace) -> FederatedNamespace:
    """``prod`` in memory, with a table of nested columns and a property, and ``files``."""
    add_tables(memory, "eu.shop.sales.orders", "eu.shop.sales.street_names")
    memory.create_table(
        api.CreateTableRequest(id=["eu", "shop", "sales", "people"], properties={"team": "Map"}),
        ipc(NESTED),
    )
    add_tables(directory, "maps.tiles", "db.words")
    return FederatedNamespace({"prod": memory, "files": directory})


def found(search: Search) -> list[tuple[str, str, str]]:
    return [(f"{m.catalog}.{'.'.join(m.table)}", m.scope.value, m.text) for m in search]


@pytest.mark.parametrize(
    ("word", "matches"),
    [
        (
            "STREET",
            [
                ("prod.eu.shop.sales.people", "column", "address.lines.street: utf8"),
                ("prod.eu.shop.sales.street_names", "name", "eu.shop.sales.street_names"),
            ],
        ),
        (
            "map",
            [
                ("files.maps.tiles", "name", "maps.tiles"),
                ("prod.eu.shop.sales.people", "property", "team=Map"),
            ],
        ),
        ("fixed", [("prod.eu.shop.sales.people", "column", "Embedding: fixed_size_list")]),
        ("nothing of this kind", []),
    ],
)
def test_names_columns_and_properties_are_searched_in_any_letter_case(
    word: str, matches: list[tuple[str, str, str]], catalogs: FederatedNamespace
) -> None:
    search = Search.of(catalogs, "all", word, EVERYWHERE)
    assert found(search) == matches
    assert (search.unavailable, search.unread) == ({}, {})


def test_only_what_is_asked_for_is_searched(catalogs: FederatedNamespace) -> None:
    assert found(Search.of(catalogs, "all", "map", [Scope.NAME])) == [
        ("files.maps.tiles", "name", "maps.tiles")
    ]
    assert found(Search.of(catalogs, "all", "street", [Scope.PROPERTY])) == []


def test_one_catalog_is_searched_under_its_name(catalogs: FederatedNamespace) -> None:
    search = Search.of(catalogs.child("files"), "mine", "word", EVERYWHERE)
    # Both the name of the one table, and the second column that add_tables writes into each.
    assert found(search) == [
        ("mine.db.words", "name", "db.words"),
        ("mine.db.words", "column", "word: utf8"),
        ("mine.maps.tiles", "column", "word: utf8"),
    ]


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_catalog_that_is_down_is_named_once_and_the_rest_is_searched(
    catalogs: FederatedNamespace, *, is_connected: bool
) -> None:
    error = ServiceUnavailableError("no route")

    def connect() -> api.LanceNamespace:
        if is_connected:
            return Broken(error)
        raise error

    both = FederatedNamespace({"aws": connect, "files": catalogs.child("files")})
    search = Search.of(both, "all", "tiles", EVERYWHERE)
    assert found(search) == [("files.maps.tiles", "name", "maps.tiles")]
    assert search.unavailable == {"aws": "SERVICE_UNAVAILABLE (17): no route (in aws)"}


def test_a_table_that_cannot_be_read_is_named_and_its_name_is_searched(
    catalogs: FederatedNamespace, memory: MemoryNamespace
) -> None:
    id = ["eu", "shop", "sales", "orders"]
    location = memory.describe_table(api.DescribeTableRequest(id=id)).location or ""
    for manifest in Path(location, "_versions").iterdir():
        manifest.write_bytes(b"broken")
    search = Search.of(catalogs, "all", "orders", EVERYWHERE)
    assert found(search) == [("prod.eu.shop.sales.orders", "name", "eu.shop.sales.orders")]
    [(key, reason)] = search.unread.items()
    assert key == ("prod", tuple(id))
    assert "prod.eu.shop.sales.orders" in reason


def test_a_declared_table_has_no_columns_and_is_no_failure(
    catalogs: FederatedNamespace, memory: MemoryNamespace
) -> None:
    memory.declare_table(
        api.DeclareTableRequest(id=["eu", "shop", "sales", "new"], properties={"a": "b"})
    )
    search = Search.of(catalogs, "all", "new", EVERYWHERE)
    assert found(search) == [("prod.eu.shop.sales.new", "name", "eu.shop.sales.new")]
    assert search.unread == {}


def test_matches_come_while_the_search_goes_on() -> None:
    """A second catalog is not asked before the matches of the first are taken."""
    second = Broken(ServiceUnavailableError("no route"))
    first = FirstOnly()
    search = iter(Search({"a": lambda: first, "b": lambda: second}, "t", frozenset({Scope.NAME})))
    assert next(search) == Match("a", ("t",), Scope.NAME, "t")
    assert second.asked == 0
    assert list(search) == []
    assert second.asked == 1


class FirstOnly(api.LanceNamespace):
    """One table in the root."""

    def namespace_id(self) -> str:
        return "first"

    def list_tables(self, request: Any) -> api.ListTablesResponse:
        return api.ListTablesResponse(tables=[] if request.id else ["t"])


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def _config(tmp_path: Path, directory: api.LanceNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration file with a directory and a catalog that does not answer."""
    add_tables(directory, "maps.tiles", "db.words")
    path = tmp_path / "catalogs.yaml"
    path.write_text(
        "catalogs:\n"
        f"  files: {{impl: dir, root: {tmp_path / 'directory'}}}\n"
        "  far: {impl: rest, uri: 'http://127.0.0.1:9'}\n"
        "  all: {impl: federated, catalogs: [far, files]}\n"
    )
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))


@pytest.mark.usefixtures("_config")
def test_the_command_prints_a_line_for_each_match() -> None:
    done = run("search", "files", "tiles")
    assert done.stdout == "files.maps.tiles  name  maps.tiles\n"
    assert run("search", "files", "nowhere").stdout == "(no matches)\n"
    done = run("search", "files", "i", "--in", "column", "--in", "property")
    assert done.stdout.splitlines() == [
        "files.db.words  column  id: int64",
        "files.maps.tiles  column  id: int64",
    ]


@pytest.mark.usefixtures("_config")
@pytest.mark.parametrize("catalog", ["all", "federated"])
def test_the_command_searches_the_rest_and_fails_where_a_catalog_does_not_answer(
    catalog: str,
) -> None:
    done = run("search", catalog, "tiles", code=FAILED)
    assert done.stdout == "files.maps.tiles  name  maps.tiles\n"
    assert "the catalog 'far' could not be searched: SERVICE_UNAVAILABLE (17)" in done.stderr


@pytest.mark.usefixtures("_config")
def test_the_command_answers_programs_with_one_object() -> None:
    answer = answer_of("search", "all", "tiles", code=FAILED)
    row = {"catalog": "files", "table": "maps.tiles", "in": "name", "text": "maps.tiles"}
    assert answer["matches"] == [row]
    assert set(answer["unavailable"]) == {"far"}
    assert answer["unread"] == []
    assert json.loads(run("search", "files", "i", "-o", "json").stdout)["unavailable"] == {}


@pytest.mark.usefixtures("_config")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["files", "x", "--in", "rows"], MISUSED, "--in is one of name, column, property"),
        (["files", ""], MISUSED, "WORD must not be empty"),
        (["filse", "x"], FAILED, "There is no catalog 'filse'"),
    ],
)
def test_the_command_refuses_wrong_arguments(arguments: list[str], code: int, message: str) -> None:
    assert message in run("search", *arguments, code=code).stderr


def test_no_character_of_a_catalog_acts_on_the_terminal(
    directory: api.LanceNamespace, tmp_path: Path
) -> None:
    odd = pa.table({"a\x1b[31m\nb": [1]})
    directory.create_table(api.CreateTableRequest(id=["t"]), ipc(odd))
    root = f"root={tmp_path / 'directory'}"
    done = run("search", "dir", "31m", "-p", root)
    assert done.stdout == "dir.t  column  a\\x1b[31m\\nb: int64\n"
