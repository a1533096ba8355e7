"""All tables of several catalogs, listed or searched, also while some of these do not answer."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from cli.program import answer_of, run
from core.memory_catalog import MemoryNamespace
from lance_namespace import errors
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.exit_codes import FAILED, MISUSED
from lance_bridge.testing.calls import Calls, collect, ipc, pages
from lance_bridge_federated import FederatedNamespace, Match, Scope, Search

from .conftest import Broken, Recorder, add_tables

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("federated.md#listalltables", "cli.md#search", "federated.md#search"),
]

DOWN = errors.ServiceUnavailableError("connection refused, password=hush")
IN_MEMORY = ["eu.shop.sales.a", "eu.shop.sales.b", "us.shop.sales.a"]
IN_DIRECTORY = ["top", "db.a", "db.b", "db.deep.c", "e.x"]
ALL = [
    *(f"files${name.replace('.', '$')}" for name in IN_DIRECTORY),
    *(f"prod${name.replace('.', '$')}" for name in IN_MEMORY),
]
"""By catalog; a directory's are by namespace."""
NESTED = pa.table({
    "id": [1],
    "Embedding": pa.array([[0.5, 1.5]], pa.list_(pa.float32(), 2)),
    "address": [{"city": "Kiel", "lines": [{"street": "x"}]}],
})  # fmt: skip
EVERYWHERE = tuple(Scope)


@pytest.fixture
def prod(memory: MemoryNamespace) -> MemoryNamespace:
    add_tables(memory, *IN_MEMORY)
    return memory


@pytest.fixture
def files(directory: api.LanceNamespace) -> api.LanceNamespace:
    add_tables(directory, *IN_DIRECTORY)
    return directory


@pytest.fixture
def both(prod: MemoryNamespace, files: api.LanceNamespace) -> FederatedNamespace:
    return FederatedNamespace({"prod": prod, "files": files})


def list_all(namespace: api.LanceNamespace, limit: int | None = None, **more: Any) -> list[str]:
    return collect(Calls(namespace).list_all_tables, "tables", limit, **more)


def test_all_tables_of_all_catalogs_are_listed_at_once_and_in_pages_of_any_size(
    both: FederatedNamespace,
) -> None:
    answer = both.list_all_tables(api.ListTablesRequest())
    assert (answer.tables, answer.context) == (ALL, None)
    for limit in range(1, len(ALL) + 2):
        assert list_all(both, limit) == ALL


def test_a_table_dropped_or_created_between_pages_hides_no_other(
    both: FederatedNamespace, prod: MemoryNamespace, files: api.LanceNamespace
) -> None:
    found: list[str] = []
    for names, _ in pages(Calls(both).list_all_tables, "tables", 1):
        found += names
        if names == ["files$db$a"]:
            files.drop_table(api.DropTableRequest(id=["db", "a"]))
            add_tables(files, "aa.first", "db.c")
        if names == ["prod$eu$shop$sales$a"]:
            prod.drop_table(api.DropTableRequest(id=["eu", "shop", "sales", "b"]))
    expected = [*ALL[:3], "files$db$c", *ALL[3:]]
    expected.remove("prod$eu$shop$sales$b")
    assert found == expected


def test_a_catalog_that_is_gone_from_the_configuration_ends_no_listing(
    both: FederatedNamespace, prod: MemoryNamespace
) -> None:
    token = both.list_all_tables(api.ListTablesRequest(limit=2)).page_token
    assert list_all(FederatedNamespace({"prod": prod}), 2, token=token) == ALL[5:]


@pytest.mark.parametrize("limit", [None, 1, 2, 3, 100])
def test_a_catalog_that_is_down_is_named_on_every_page_from_then_on(
    limit: int | None, prod: MemoryNamespace, files: api.LanceNamespace
) -> None:
    catalogs = {"aws": Broken(DOWN), "files": files, "lake": Broken(DOWN), "prod": prod}
    listing = Calls(FederatedNamespace(catalogs)).list_all_tables
    found: list[str] = []
    token = None
    while True:
        answer = listing(limit=limit, page_token=token)
        found += answer.tables
        assert answer.context is not None
        assert answer.context["unavailable.aws"]
        if any(name.startswith("prod$") for name in answer.tables):
            assert answer.context["unavailable.lake"]
        token = answer.page_token
        if not token:
            break
    assert found == ALL
    assert set(answer.context) == {"unavailable.aws", "unavailable.lake"}
    assert [catalogs["aws"].asked, catalogs["lake"].asked] == [1, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DOWN, "SERVICE_UNAVAILABLE (17): connection refused"),
        (errors.PermissionDeniedError("no"), "PERMISSION_DENIED (15): no (in aws)"),
        (errors.NamespaceNotFoundError("no root"), "NAMESPACE_NOT_FOUND (1)"),
        (RuntimeError("odd"), "INTERNAL (18): list_all_tables failed with RuntimeError: odd"),
    ],
)
def test_any_failure_of_a_catalog_is_named_with_its_code_and_no_secret_until_it_answers_again(
    error: Exception, reason: str, prod: MemoryNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = FederatedNamespace({"aws": prod})
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(prod, "list_all_tables", Broken(error).list_all_tables)
        answer = namespace.list_all_tables(api.ListTablesRequest())
    assert answer.tables == []
    [(key, given)] = (answer.context or {}).items()
    assert key == "unavailable.aws"
    assert given.startswith(reason)
    assert "'aws'" in caplog.text
    assert "hush" not in given + caplog.text
    answer = namespace.list_all_tables(api.ListTablesRequest())
    assert (len(answer.tables), answer.context) == (len(IN_MEMORY), None)


def test_a_catalog_that_fails_half_way_keeps_what_it_gave(files: api.LanceNamespace) -> None:
    class HalfWay(Recorder):
        def list_all_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
            if request.page_token:
                raise DOWN
            return api.ListTablesResponse(tables=["db$a"], page_token="2")

    namespace = FederatedNamespace({"aws": HalfWay(), "files": files})
    answer = namespace.list_all_tables(api.ListTablesRequest())
    assert answer.tables == ["aws$db$a", *ALL[:5]]
    assert set(answer.context or {}) == {"unavailable.aws"}


def test_a_catalog_whose_pages_do_not_end_is_left(files: api.LanceNamespace) -> None:
    class Endless(Recorder):
        def list_all_tables(self, _request: Any) -> api.ListTablesResponse:
            return api.ListTablesResponse(tables=["db$a"], page_token="again")

    namespace = FederatedNamespace({"aws": Endless(), "files": files})
    answer = namespace.list_all_tables(api.ListTablesRequest())
    assert answer.tables[-5:] == ALL[:5]
    assert "repeats itself" in (answer.context or {})["unavailable.aws"]


def test_a_federation_within_one_names_what_it_left_out() -> None:
    inner = FederatedNamespace({"aws": Broken(DOWN)})
    answer = FederatedNamespace({"inner": inner}).list_all_tables(api.ListTablesRequest())
    assert set(answer.context or {}) == {"unavailable.inner.aws"}


def test_a_catalog_that_lists_one_namespace_only_is_walked(files: api.LanceNamespace) -> None:
    class Other(api.LanceNamespace):
        def namespace_id(self) -> str:
            return "other"

        def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
            return files.list_tables(request)

        def list_namespaces(self, request: api.ListNamespacesRequest) -> Any:
            return files.list_namespaces(request)

    with pytest.raises(errors.UnsupportedOperationError):
        Other().list_all_tables(api.ListTablesRequest())
    assert list_all(FederatedNamespace({"files": Other()}), 2) == ALL[:5]


def test_declared_tables_are_left_out_where_asked(
    both: FederatedNamespace, prod: MemoryNamespace, files: api.LanceNamespace
) -> None:
    for namespace, id in ((prod, ["eu", "shop", "sales", "x"]), (files, ["db", "x"])):
        namespace.declare_table(api.DeclareTableRequest(id=id))
    assert set(list_all(both)) - set(ALL) == {"files$db$x", "prod$eu$shop$sales$x"}
    assert list_all(both, 3, include_declared=False) == ALL


def token_of(*content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


def test_a_token_that_this_listing_did_not_give_is_invalid_input(
    both: FederatedNamespace, prod: MemoryNamespace
) -> None:
    listing = Calls(both).list_all_tables
    token = listing(limit=1).page_token or ""
    version, scope, catalog, own = json.loads(base64.urlsafe_b64decode(token))
    foreign = [
        "nonsense",
        token[:-4],
        both.list_namespaces(api.ListNamespacesRequest(limit=1)).page_token,
        prod.list_all_tables(api.ListTablesRequest(limit=1)).page_token,
        token_of(version + 1, scope, catalog, own),
        token_of(version, scope, catalog),
        token_of(version, scope, catalog, "of no catalog"),
        token_of(version, scope, "prod", own),
        token_of(version, scope, catalog, own, *["a"] * 1000),
    ]
    for bad in foreign:
        with pytest.raises(errors.InvalidInputError, match="page_token"):
            listing(limit=1, page_token=bad)


@pytest.mark.parametrize(
    ("request_", "problem"),
    [({"limit": 0}, "limit"), ({"limit": -1}, "limit"), ({"id": ["prod"]}, "use ListTables")],
)
def test_a_bad_limit_and_an_identifier_are_invalid_input(
    request_: dict[str, Any], problem: str, prod: MemoryNamespace
) -> None:
    with pytest.raises(errors.InvalidInputError, match=problem):
        FederatedNamespace({"prod": prod}).list_all_tables(api.ListTablesRequest(**request_))


# -- searches --------------------------------------------------------------------------------------


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


class Hanging(Broken):
    """Answers listings of tables, and others, only when it is allowed to."""

    def __init__(self, *operations: str) -> None:
        super().__init__(None)
        self.operations = operations
        self.answers = threading.Event()

    def answer(self, operation: str, request: Any, *rows: Any) -> Any:
        if operation in self.operations:
            assert self.answers.wait(120)
        super().answer(operation, request, *rows)
        if operation == "list_namespaces":
            return api.ListNamespacesResponse(namespaces=[])
        return api.ListTablesResponse(tables=[])


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging("list_all_tables", "list_tables", "list_namespaces")
    yield made
    made.answers.set()


def test_a_catalog_that_hangs_is_named_and_the_rest_is_listed(
    hanging: Hanging, files: api.LanceNamespace
) -> None:
    both = FederatedNamespace({"dead": hanging, "files": files})
    began = time.monotonic()
    answer = both.list_all_tables(api.ListTablesRequest())
    assert time.monotonic() - began < 20
    assert answer.tables == ALL[:5]
    assert answer.context is not None
    assert "'dead' does not respond: it did not respond" in answer.context["unavailable.dead"]


def test_a_catalog_that_hangs_is_named_and_the_rest_is_searched(
    hanging: Hanging, files: api.LanceNamespace
) -> None:
    search = Search.of(
        FederatedNamespace({"dead": hanging, "files": files}), "all", "top", [Scope.NAME]
    )
    began = time.monotonic()
    assert found(search) == [("files.top", "name", "top")]
    assert time.monotonic() - began < 20
    assert "'dead' does not respond" in search.unavailable["dead"]


def test_a_catalog_that_takes_long_and_responds_to_probes_is_waited_for(
    files: api.LanceNamespace,
) -> None:
    slow = Hanging("list_all_tables")
    both = FederatedNamespace({"files": files, "slow": slow})
    timer = threading.Timer(4.0, slow.answers.set)  # twice as long as a probe may take
    timer.start()
    answer = both.list_all_tables(api.ListTablesRequest())
    assert answer.context is None
    assert timer.finished.is_set()
    assert slow.asked > 1


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
    assert done.stdout == "files.maps.tiles\tname\tmaps.tiles\n"
    assert run("search", "files", "nowhere").stdout == ""
    done = run("search", "files", "i", "--in", "column", "--in", "property")
    assert done.stdout.splitlines() == [
        "files.db.words\tcolumn\tid: int64",
        "files.maps.tiles\tcolumn\tid: int64",
    ]


@pytest.mark.usefixtures("_config")
@pytest.mark.parametrize("catalog", ["all", "federated"])
def test_the_command_searches_the_rest_and_fails_where_a_catalog_does_not_answer(
    catalog: str,
) -> None:
    done = run("search", catalog, "tiles", code=FAILED)
    assert done.stdout == "files.maps.tiles\tname\tmaps.tiles\n"
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
    assert done.stdout == "dir.t\tcolumn\ta\\x1b[31m\\nb: int64\n"
