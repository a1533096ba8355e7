"""The tables of a namespace with their figures, and the catalogs with their counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import SERVERS, MemoryNamespace
from lance_namespace.errors import NamespaceNotFoundError, ServiceUnavailableError
from server.gateways import cedar, clients, declare, memory_namespace
from server.ui.browsers import HtmlPage

import lance_bridge
from lance_bridge.catalog import TableRecord
from lance_bridge.dataset import summarize_version
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.access.authentication import Principal
from lance_bridge_server.access.authorizer import AllowAll
from lance_bridge_server.gateway.callers import RootNamespaces
from lance_bridge_server.redaction import PublicAnswers
from lance_bridge_server.ui import browse, caches, figures
from lance_bridge_server.ui.caches import Summaries, TableNames
from lance_bridge_server.ui.request import VisibleNamespace

from .conftest import TABLES, DeadNamespace, GetPage, create_articles

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#tables-of-a-namespace")]

POLICIES = """
permit(principal == User::"ann", action, resource);
permit(principal == User::"bob", action in Action::"see", resource);
forbid(principal == User::"bob", action, resource == Table::"prod.sales.secret");
permit(principal == User::"bob", action in Action::"read", resource == Table::"prod.sales.plain");
"""
FORMATS = ("Delta", "view", "Parquet")


@pytest.fixture(scope="module")
def visit_as(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("namespace")
    prod, dead = memory_namespace(directory / "prod"), DeadNamespace()
    create_articles(prod)
    declare(prod, "sales.declared", "sales.secret", "hr.pay")
    rows = pa.table({"id": range(7)})
    lance.write_dataset(rows, namespace_client=prod, table_id=["sales", "plain"])
    tables = SERVERS[str(directory / "prod")].tables
    for name, entry_type, properties, owner in (
        ("orders", "EXTERNAL_TABLE", {"spark.sql.sources.provider": "delta"}, "ada"),
        ("recent", "VIRTUAL_VIEW", {}, "bob"),
        ("Files", "EXTERNAL_TABLE", {"classification": "parquet"}, ""),
    ):
        path = ("sales", name)
        tables[path] = TableRecord(path, f"s3://lake/{name}", properties, entry_type, owner=owner)
    catalogs = {"prod": prod, "dead": dead}
    authorizer = cedar(directory, POLICIES)
    with clients(FederatedNamespace(catalogs), authorizer, catalogs=catalogs) as found:
        yield found


def _page(visit_as: Any, path: str, user: str = "ann", **query: str) -> HtmlPage:
    response = visit_as(user)("GET", path, params=query) if query else visit_as(user)("GET", path)
    assert response.status_code == 200, response.text
    return HtmlPage.of(response.text)


def _names(page: HtmlPage) -> list[str]:
    """Return the tables of a listing in their order: the headings of its lines."""
    width = next(at for at, each in enumerate(page.cells, 1) if each.startswith("Owner"))
    end = page.cells.index("Property") if "Property" in page.cells else len(page.cells)
    return page.cells[width:end:width]


def _figures(visit_as: Any, *tables: str, user: str = "ann", path: str = "prod/sales") -> Any:
    query = {"table": list(tables)}
    response = visit_as(user)("GET", f"/ui/figures/{path}", params=query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    return response.json()["figures"]


# -- names, formats and order ----------------------------------------------------------------------


def test_tables_of_every_format_are_listed_with_format_and_owner(visit_as: Any) -> None:
    page = _page(visit_as, "/ui/namespace/prod/sales")
    names = ["articles", "declared", "Files", "orders", "plain", "recent", "secret"]
    assert _names(page) == names
    line = page.cells[page.cells.index("orders") :]
    assert (line[1], line[8]) == ("Delta", "ada")
    assert {"view", "Parquet", "Lance"} <= set(page.cells)
    assert "1\N{EN DASH}7 of 7 tables" in page.text


def test_tables_are_filtered_by_name_and_by_format(visit_as: Any) -> None:
    page = _page(visit_as, "/ui/namespace/prod/sales", name="AR")
    assert _names(page) == ["articles", "declared"]
    assert "1\N{EN DASH}2 of 2 tables, 7 in the namespace" in page.text
    assert _names(_page(visit_as, "/ui/namespace/prod/sales", format="Delta")) == ["orders"]
    page = _page(visit_as, "/ui/namespace/prod/sales", name="none-of-them")
    assert "No tables match, 7 in the namespace" in page.text


def test_a_heading_sorts_by_name_format_or_owner(visit_as: Any) -> None:
    page = _page(visit_as, "/ui/namespace/prod/sales")
    down = _page(visit_as, page.links["Name ↑"])
    assert _names(down) == _names(page)[::-1]
    by_format = _page(visit_as, page.links["Format"])
    assert _names(by_format)[0] == "orders"
    assert _names(by_format)[-1] == "recent"
    by_owner = _page(visit_as, "/ui/namespace/prod/sales", sort="-owner")
    assert _names(by_owner)[:2] == ["recent", "orders"]


@pytest.mark.parametrize("query", [{"page": "x"}, {"page": "0"}, {"sort": "rows"}, {"sort": "-"}])
def test_a_malformed_choice_is_the_default(visit_as: Any, query: dict[str, str]) -> None:
    assert _names(_page(visit_as, "/ui/namespace/prod/sales", **query))[0] == "articles"


def test_a_choice_is_kept_on_further_pages(get: GetPage) -> None:
    page = get("/ui/namespace/many/db", sort="-name", name="t")
    assert _names(page)[0] == f"t{TABLES - 1}"
    assert _names(get(page.links["Next page"]))[-1] == "t000"


def test_of_many_tables_only_the_entries_of_the_page_are_read(
    get: GetPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "_MOST_ENTRIES", 5)
    page = get("/ui/namespace/many/db", format="Delta", sort="-format")
    assert _names(page)[0] == "t000"
    assert "Lance" in page.cells
    assert "Format" not in page.links
    assert f"101\N{EN DASH}{TABLES} of {TABLES} tables" in get(page.links["Next page"]).text


def test_more_tables_than_are_counted_are_said_to_be_more(
    get: GetPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "_MOST_CHECKED", 50)
    page = get("/ui/namespace/many/db", sort="-name")
    assert "1\N{EN DASH}100 of 101+ tables" in page.text
    assert _names(page)[0] == "t000"  # the last ones are not known
    assert f"101\N{EN DASH}{TABLES} of {TABLES} tables" in get(page.links["Next page"]).text
    found = get("/ui/namespace/many/db", name="T12")
    assert _names(found) == [f"t12{i}" for i in range(10)]
    assert "1\N{EN DASH}10 of 10 tables, 101+ in the namespace" in found.text


def test_hidden_tables_are_neither_listed_nor_counted(visit_as: Any) -> None:
    page = _page(visit_as, "/ui/namespace/prod/sales", "bob")
    assert "secret" not in page.text
    assert "1\N{EN DASH}6 of 6 tables" in page.text


def test_the_entries_of_hidden_tables_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prod, read = memory_namespace(tmp_path), []
    declare(prod, *(f"sales.{name}" for name in ("plain", "secret")))
    catalogs = FederatedNamespace({"prod": prod})
    entry_of = figures.Entry.of

    def recorded(record: TableRecord) -> figures.Entry:
        read.append(record.path[-1])
        return entry_of(record)

    monkeypatch.setattr(figures.Entry, "of", recorded)
    with clients(catalogs, cedar(tmp_path, POLICIES)) as visit_as:
        page = _page(visit_as, "/ui/namespace/prod/sales", "bob")
    assert _names(page) == read == ["plain"]
    assert "Lance" in page.cells


# -- figures ---------------------------------------------------------------------------------------


def test_figures_are_those_of_the_latest_version(visit_as: Any) -> None:
    found = _figures(visit_as, "articles", "plain")
    assert found["articles"]["rows"] == ["75", 75]
    assert found["articles"]["version"] == ["5", 5]
    assert found["articles"]["fragments"] == ["2", 2]
    assert found["articles"]["indices"] == ["2", 2]
    assert found["plain"]["rows"] == ["7", 7]
    assert found["plain"]["size"][0].endswith("B")
    assert abs(found["plain"]["changed"][1] / 1000 - time.time()) < 3600


def test_a_page_asks_for_the_figures_of_its_lance_tables(visit_as: Any) -> None:
    page = _page(visit_as, "/ui/namespace/prod/sales")
    [source] = [each["data-figures"] for _, each in page.tags if "data-figures" in each]
    names = [each["data-name"] for _, each in page.tags if "data-name" in each]
    assert source == "/ui/figures/prod/sales"
    assert names == ["articles", "declared", "plain", "secret"]
    assert set(_figures(visit_as, *names)) == set(names)


def test_a_table_without_figures_says_why(visit_as: Any) -> None:
    found = _figures(visit_as, "declared", "absent", "orders")
    assert found["declared"] == {"problem": "declared, no data yet"}
    assert "not found" in found["absent"]["problem"].lower()
    assert "not a Lance table" in found["orders"]["problem"]


def test_there_are_no_figures_of_tables_that_may_not_be_read(visit_as: Any) -> None:
    found = _figures(visit_as, "articles", "plain", "secret", user="bob")
    assert "bob is not allowed" in found["articles"]["problem"]
    assert set(found["articles"]) == set(found["secret"]) == {"problem"}
    assert found["plain"]["rows"] == ["7", 7]
    assert "Table not found: prod.sales.secret" in found["secret"]["problem"]


@pytest.mark.parametrize("tables", [[], ["t"] * (figures.MOST_FIGURES + 1)])
def test_a_request_for_no_or_too_many_figures_is_refused(visit_as: Any, tables: list[str]) -> None:
    response = visit_as("ann")("GET", "/ui/figures/prod/sales", params={"table": tables})
    assert response.status_code == 400


def test_tables_for_which_there_is_no_time_have_no_figures(
    visit_as: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "_SECONDS", -1.0)
    assert _figures(visit_as, "plain") == {"plain": {"problem": "The time limit was exceeded"}}


def test_a_version_is_summarized_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = memory_namespace(tmp_path)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    table: Any = {"namespace_client": namespace, "table_id": ["db", "t"]}
    lance.write_dataset(pa.table({"id": [1]}), **table)
    counted: list[int] = []

    def recorded(table: Any, dataset: Any) -> Any:
        counted.append(dataset.version)
        return summarize_version(table, dataset)

    monkeypatch.setattr(caches, "summarize_version", recorded)
    summaries, request = Summaries(), api.GetTableStatsRequest(id=["db", "t"])
    assert [summaries.read(namespace, request).rows for _ in range(3)] == [1, 1, 1]
    assert counted == [1]
    lance.write_dataset(pa.table({"id": [2]}), mode="append", **table)
    assert summaries.read(namespace, request).rows == 2
    assert counted == [1, 2]


def test_a_catalog_of_another_library_has_figures_too(tmp_path: Path) -> None:
    directory = lance_bridge.connect("dir", {"root": str(tmp_path)})
    lance.write_dataset(pa.table({"id": [1, 2]}), str(tmp_path / "t.lance"))
    with clients(PublicAnswers(directory, ()), AllowAll()) as visit_as:
        page = _page(visit_as, "/ui")
        assert _names(page) == ["t"]
        [source] = [each["data-figures"] for _, each in page.tags if "data-figures" in each]
        response = visit_as("ann")("GET", source, params={"table": "t"})
    assert response.json()["figures"]["t"]["rows"] == ["2", 2]


def test_only_pages_with_figures_let_their_script_make_requests(visit_as: Any) -> None:
    policies = {
        path: visit_as("ann")("GET", path).headers["content-security-policy"]
        for path in ("/ui", "/ui/namespace/prod", "/ui/account", "/ui/table/prod/sales/plain")
    }
    assert {path for path, text in policies.items() if "connect-src 'self'" in text} == {
        "/ui", "/ui/namespace/prod",
    }  # fmt: skip
    assert all("default-src 'none'" in each for each in policies.values())


# -- catalogs --------------------------------------------------------------------------------------


@pytest.mark.spec("server.md#the-catalogs-on-a-page")
def test_catalogs_are_shown_with_state_kind_and_address(visit_as: Any) -> None:
    page = _page(visit_as, "/ui")
    line = page.cells[page.cells.index("prod") :]
    assert (line[1], line[4]) == ("online", "memory")
    assert line[5].startswith("uri=")
    assert "dead unreachable" in page.text
    assert "uri=" not in _page(visit_as, "/ui", "bob").text


@pytest.mark.spec("server.md#the-catalogs-on-a-page")
def test_the_counts_of_a_catalog_are_those_that_the_principal_sees(visit_as: Any) -> None:
    found = {
        user: visit_as(user)("GET", "/ui/counts/prod").json()["figures"] for user in ("ann", "bob")
    }
    assert found["ann"] == {"namespaces": ["2", 2], "tables": ["8", 8]}
    assert found["bob"] == {"namespaces": ["2", 2], "tables": ["7", 7]}


def test_a_catalog_that_is_down_has_no_counts(visit_as: Any) -> None:
    response = visit_as("ann")("GET", "/ui/counts/dead")
    assert response.status_code == 503
    assert "10.9.8.7" not in response.text


@pytest.mark.spec("server.md#the-catalogs-on-a-page")
def test_counts_that_are_not_complete_say_so() -> None:
    class Endless(DeadNamespace):
        def list_namespaces(self, request: Any) -> Any:
            if len(request.id) > 1:
                raise ServiceUnavailableError("The time limit of this page was exceeded")
            return api.ListNamespacesResponse(namespaces=["a", "b"])

        def list_tables(self, request: Any) -> Any:
            if request.id == ["b"]:
                raise NamespaceNotFoundError("gone")
            return api.ListTablesResponse(tables=["t"])

    found = figures.count_objects(Endless(), None)
    assert (found.namespaces, found.tables, found.is_complete) == (6, 2, False)
    assert found.figures()["tables"] == ("2+", 2)


@pytest.mark.spec("server.md#the-catalogs-on-a-page")
def test_tables_are_counted_until_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = memory_namespace(tmp_path)
    declare(namespace, *(f"db.t{i}" for i in range(10)))
    monkeypatch.setattr(figures, "_COUNT_PAGE", 3)
    monkeypatch.setattr(figures, "_COUNT_SECONDS", 60.0)
    list_tables = TableNames.list_tables

    def slow(names: TableNames, *given: Any, **more: Any) -> Any:
        answer = list_tables(names, *given, **more)
        if "t5" in answer.tables:
            limits[-1].deadline = float("-inf")
        return answer

    limits: list[VisibleNamespace] = []

    class Recorded(VisibleNamespace):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            limits.append(self)

    monkeypatch.setattr(figures, "VisibleNamespace", Recorded)
    with clients(FederatedNamespace({"prod": namespace}), AllowAll()) as visit_as:
        count = partial(visit_as("ann"), "GET", "/ui/counts/prod")
        assert count().json()["figures"]["tables"] == ["10", 10]
        monkeypatch.setattr(TableNames, "list_tables", slow)
        found = count().json()["figures"]
    assert found == {"namespaces": ["1+", 1], "tables": ["6+", 6]}


@pytest.mark.spec("server.md#the-catalogs-on-a-page")
def test_the_latest_changes_are_of_tables_that_the_principal_may_read(visit_as: Any) -> None:
    _figures(visit_as, "articles", "plain")
    page = _page(visit_as, "/ui")
    changed = page.text.partition("Recently changed")[2]
    assert changed.index("prod.sales.plain") < changed.index("prod.sales.articles")
    text = _page(visit_as, "/ui", "bob").text.partition("Recently changed")[2]
    assert "prod.sales.plain" in text
    assert "articles" not in text


def _written(directory: Path) -> Any:
    """Return a catalog with the table ``db.t``."""
    namespace = memory_namespace(directory)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    lance.write_dataset(pa.table({"id": [1]}), namespace_client=namespace, table_id=["db", "t"])
    return namespace


class _OfCaller:
    """The namespace objects of a catalog that is called as the principal."""

    def __init__(self, namespaces: dict[str, Any]) -> None:
        self._namespaces = namespaces

    def of(self, principal: Principal) -> Any:
        return self._namespaces[principal.name]

    def close(self) -> None:
        for each in self._namespaces.values():
            each.close()


@pytest.mark.spec("server.md#the-catalogs-on-a-page", "server.md#caller-identity")
def test_a_change_that_a_catalog_may_show_to_one_caller_only_is_shown_to_none(
    tmp_path: Path,
) -> None:
    own = {name: _written(tmp_path / name) for name in ("shared", "private")}
    of_caller: Any = _OfCaller(
        {"ann": own["private"], "bob": memory_namespace(tmp_path / "of-bob")}
    )
    server = {**own, "private": memory_namespace(tmp_path / "of-server")}
    callers = RootNamespaces(server, {"private": of_caller})
    options = {"catalogs": server, "callers": callers}
    with clients(FederatedNamespace(server), AllowAll(), **options) as visit_as:
        for catalog in own:
            found = _figures(visit_as, "t", path=f"{catalog}/db")
            assert found["t"]["rows"] == ["1", 1]
        changed = _page(visit_as, "/ui", "bob").text.partition("Recently changed")[2]
    assert "shared.db.t" in changed
    assert "private.db.t" not in changed


def test_a_changed_table_is_named_once_with_its_whole_path(tmp_path: Path) -> None:
    _written(tmp_path)
    catalogs = {"prod": MemoryNamespace(uri=str(tmp_path), **{"default-namespace": "db"})}
    with clients(FederatedNamespace(catalogs), AllowAll(), catalogs=catalogs) as visit_as:
        for path in ("prod", "prod/db"):
            assert _figures(visit_as, "t", path=path)["t"]["rows"] == ["1", 1]
        page = _page(visit_as, "/ui")
    assert page.links["prod.db.t"] == "/ui/table/prod/db/t"
    assert "prod.t" not in page.links


# -- other pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/ui/search?q=plain", "/ui/health", "/ui/doctor", "/ui/account"])
def test_every_page_has_the_tree_and_the_search_box(visit_as: Any, path: str) -> None:
    page = _page(visit_as, path)
    assert page.links["prod"] == "/ui/namespace/prod"
    boxes = [each for tag, each in page.tags if tag == "input" and each.get("id") == "search"]
    assert [each["name"] for each in boxes] == ["q"]
    identifiers = [each["id"] for _, each in page.tags if "id" in each]
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.spec("server.md#signing-in")
def test_the_account_says_what_the_principal_may_do(visit_as: Any) -> None:
    cells = {user: _page(visit_as, "/ui/account", user).cells for user in ("ann", "bob")}
    ann, bob = (each[each.index("prod") + 1 :][:6] for each in cells.values())
    assert ann == ["yes"] * 6
    assert bob == ["yes", "no", "no", "no", "no", "no"]


def test_the_account_of_a_server_without_sign_in_says_so(tmp_path: Path) -> None:
    with clients(memory_namespace(tmp_path), AllowAll()) as visit_as:
        page = _page(visit_as, "/ui/account", "ann")
    assert "What you may do" in page.text
