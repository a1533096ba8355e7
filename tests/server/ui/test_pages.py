"""The catalog page over HTTP: from the catalogs to a table's rows, and the lines to connect."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from server.policies import clients, declare, memory_namespace
from server.serving import serving_namespace
from server.ui.browsers import HtmlPage
from server.ui.conftest import TABLES, DeadNamespace, GetPage
from server.ui.demo_tables import DIMENSION, create_articles

from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.authorization import AllowAll
from lance_bridge_server.lancedb import DatabasePaths
from lance_bridge_server.login import Login
from lance_bridge_server.ui.snippets import snippets_for

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-catalog-page")]

ARTICLES = "prod/sales/articles"
PAGES = [
    "/ui",
    "/ui/namespace/prod",
    "/ui/namespace/prod/sales",
    f"/ui/table/{ARTICLES}",
    f"/ui/rows/{ARTICLES}",
    f"/ui/versions/{ARTICLES}",
    f"/ui/connect/{ARTICLES}",
    "/ui/table/prod/sales/orders",
    "/ui/rows/prod/sales/orders",
    "/ui/search?q=articles&in=name&in=column",
]


# -- the way to rows -------------------------------------------------------------------------------


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_links_lead_from_the_catalogs_to_rows(get: GetPage) -> None:
    catalogs = get("/ui")
    assert {"prod", "many", "dead"} <= set(catalogs.links)
    namespace = get(catalogs.links["prod"])
    tables = get(namespace.links["sales"])
    table = get(tables.links["articles"])
    rows = get(table.links["Rows"])
    assert "20 rows, from row 1" in rows.text
    assert {"5", "Black clock 5", "16.25"} <= set(rows.cells)


def test_an_overview_has_schema_indices_and_storage(get: GetPage) -> None:
    page = get(f"/ui/table/{ARTICLES}")
    assert f"vector[{DIMENSION}] of float32" in page.cells
    assert {"maker", "city", "zip", "list of utf8"} <= set(page.cells)
    assert {"text_idx", "FTS", "id_idx", "BTREE"} <= set(page.cells)
    for fact in ("Rows 75", "Version 5", "Fragments 2", "Deleted rows 5"):
        assert fact in page.text
    assert "articles.lance" in page.text


def test_a_declared_table_has_no_rows(get: GetPage) -> None:
    assert "declared, no data yet" in get("/ui/table/prod/sales/orders").text
    assert "has no rows yet" in get("/ui/rows/prod/sales/orders").text


@pytest.mark.spec("server.md#versions-on-a-page")
def test_versions_say_what_they_changed(get: GetPage) -> None:
    page = get(f"/ui/versions/{ARTICLES}")
    for line in ("Version 2", "Append", "+20 rows", "Delete", "-5 rows", "first", "trial"):
        assert line in page.text
    for line in ("Add the new season", "by=loader"):
        assert line in page.text


@pytest.mark.spec("server.md#versions-on-a-page")
def test_versions_of_a_branch_are_no_links(get: GetPage) -> None:
    page = get(f"/ui/versions/{ARTICLES}?branch=trial")
    assert "Version 2" in page.text  # a link to it would lead to the branch's latest rows
    assert not [each for each in page.links if each.startswith("Version ")]
    assert "Version 2" in get(f"/ui/versions/{ARTICLES}").links


def test_a_page_says_that_it_is_not_of_the_latest_version(get: GetPage) -> None:
    text = "This is not the latest version of the main branch."
    for at in ("v1", "tag:first", "branch:trial"):
        assert text in get(f"/ui/table/{ARTICLES}?at={at}").text
    assert text not in get(f"/ui/table/{ARTICLES}").text


def test_many_tables_come_in_pages(get: GetPage) -> None:
    first = get("/ui/namespace/many/db")
    second = get(first.links["Next page"])
    names = {each for page in (first, second) for each in page.links if each.startswith("t")}
    assert len(names) == TABLES
    assert "t000" not in second.links
    assert "t000" in get(second.links["First page"]).links


def test_the_tree_is_opened_down_to_the_page(get: GetPage) -> None:
    namespace = get("/ui/namespace/prod/sales")
    assert {"many", "hr", "articles", "orders"} <= set(namespace.links)
    table = get(f"/ui/table/{ARTICLES}")
    assert {"many", "hr", "articles", "All of sales …"} <= set(table.links)
    current = [each["href"] for _, each in table.tags if each.get("aria-current") == "page"]
    assert current == [f"/ui/table/{ARTICLES}", f"/ui/table/{ARTICLES}"]  # in the tree, and the tab


def test_a_dead_catalog_leaves_the_others(get: GetPage) -> None:
    page = get("/ui/namespace/dead", status=503)
    assert "Service unavailable" in page.text
    assert "10.9.8.7" not in page.text
    assert {"prod", "many"} <= set(page.links)
    assert "dead unreachable" in get("/ui").text
    assert get("/ui").text.count("unreachable") == 1


def test_a_catalog_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    asked, released, ended = threading.Event(), threading.Event(), threading.Event()

    class Hanging(DeadNamespace):
        def _fail(self, request: Any) -> Any:
            asked.set()
            released.wait(60)
            ended.set()
            return super()._fail(request)

    prod = memory_namespace(tmp_path)
    declare(prod, "db.t")
    catalogs = {"prod": prod, "slow": Hanging()}
    with clients(FederatedNamespace(catalogs), AllowAll(), catalogs=catalogs) as client_of:
        assert "prod" in client_of("ann")("GET", "/ui").text
        assert "db" in client_of("ann")("GET", "/ui/namespace/prod").text
        assert asked.is_set()
        assert not ended.is_set()
        released.set()


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.spec("server.md#rows-on-a-page")
def test_rows_are_filtered_and_sorted(get: GetPage) -> None:
    page = get(f"/ui/rows/{ARTICLES}", filter="id < 8 AND price IS NOT NULL", sort="-id")
    assert [each for each in page.cells if each.isdigit()] == ["7", "6", "5"]


@pytest.mark.spec("server.md#rows-on-a-page")
def test_rows_of_an_earlier_version_a_tag_and_a_branch(get: GetPage) -> None:
    for at, first in (("v1", "0"), ("tag:first", "0"), ("branch:trial", "0"), ("", "5")):
        page = get(f"/ui/rows/{ARTICLES}", at=at, sort="id", size="10")
        assert next(each for each in page.cells if each.isdigit()) == first


@pytest.mark.spec("server.md#rows-on-a-page")
def test_more_rows_follow(get: GetPage) -> None:
    page = get(f"/ui/rows/{ARTICLES}", filter="id < 18", sort="id", size="10")
    assert "10 rows, from row 1" in page.text
    second = get(page.links["Next rows"])
    assert "3 rows, from row 11" in second.text
    assert "Next rows" not in second.links
    assert "10 rows, from row 1" in get(second.links["Previous rows"]).text


@pytest.mark.spec("server.md#rows-on-a-page")
def test_images_and_vectors_are_drawn(get: GetPage) -> None:
    page = get(f"/ui/rows/{ARTICLES}", size="10")
    images = [each for tag, each in page.tags if tag == "img" and "/ui/image/" in each["src"]]
    assert [each["loading"] for each in images] == ["lazy"] * 10
    lines = [each["points"] for tag, each in page.tags if tag == "polyline"]
    assert all(len(each.split()) == DIMENSION for each in lines)
    assert len(lines) == 10


# -- who sees what ---------------------------------------------------------------------------------


def test_what_may_not_be_seen_is_on_no_page(get: GetPage) -> None:
    for path in ["/ui", "/ui/namespace/prod", "/ui/namespace/prod/sales", f"/ui/rows/{ARTICLES}"]:
        page = get(path, "bob")
        assert not {"many", "dead", "hr", "secret"} & set(page.links)
    assert "articles" in get("/ui/namespace/prod/sales", "bob").links


@pytest.mark.parametrize("page", ["table", "rows", "versions", "connect"])
def test_a_hidden_table_is_answered_as_a_missing_one(client_of: Any, page: str) -> None:
    hidden, missing = (
        client_of("bob")("GET", f"/ui/{page}/prod/sales/{name}") for name in ("secret", "absent")
    )
    assert hidden.status_code == missing.status_code == 404
    texts = [
        each.text.replace(each.headers["x-request-id"], "").replace(name, "NAME")
        for each, name in ((hidden, "secret"), (missing, "absent"))
    ]
    assert texts[0] == texts[1]


@pytest.mark.spec("server.md#signing-in")
def test_without_credentials_there_is_a_page_that_says_so(get: GetPage) -> None:
    for path in PAGES:
        page = get(path, user="", status=401)
        assert "Sign in to see this" in page.text
        assert "articles" not in page.text


def test_an_unknown_page_is_not_found(get: GetPage) -> None:
    assert "no page at this address" in get("/ui/nothing/here", status=404).text


# -- safety ----------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"


@pytest.mark.parametrize("path", [*PAGES, "/ui/nothing", "/ui/namespace/dead"])
def test_every_page_runs_only_the_servers_own_script(client_of: Any, path: str) -> None:
    response = client_of("ann")("GET", path)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert_only_own_script(response.text)


def assert_only_own_script(text: str) -> None:
    page = HtmlPage.of(text)
    assert page.scripts == ""
    for tag, attributes in page.tags:
        assert "style" not in attributes
        assert not [each for each in attributes if each.startswith("on")]
        if tag == "script":
            assert attributes["src"].startswith("/ui/static/")


def test_hostile_names_and_values_are_text(tmp_path: Path) -> None:
    namespace = memory_namespace(tmp_path)
    properties = {HOSTILE: HOSTILE}
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"], properties=properties))
    rows = pa.table({HOSTILE: [HOSTILE], "nested": [{HOSTILE: [HOSTILE]}]})
    lance.write_dataset(rows, namespace_client=namespace, table_id=["db", "t"])
    with clients(namespace, AllowAll()) as client_of:
        for path in ("namespace/db", "table/db/t", "rows/db/t", "versions/db/t"):
            response = client_of("eve")("GET", f"/ui/{path}")
            assert response.status_code == 200
            assert_only_own_script(response.text)
            assert "<script>alert" not in response.text
            if not path.startswith("versions"):
                assert "&lt;script&gt;alert(1)" in response.text
        query = {"filter": HOSTILE, "sort": HOSTILE, "at": ""}
        response = client_of("eve")("GET", "/ui/rows/db/t", params=query)
        assert_only_own_script(response.text)
        response = client_of("eve")("GET", "/ui/table/db/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
        assert response.status_code in (400, 404)
        assert_only_own_script(response.text)


# -- the lines of the page Connect, run as they stand there ----------------------------------------


@pytest.fixture
def prod(tmp_path: Path) -> Any:
    namespace = memory_namespace(tmp_path)
    create_articles(namespace)
    return namespace


def test_the_lines_read_the_table(
    prod: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_namespace(FederatedNamespace({"prod": prod})) as url:
        page = HtmlPage.of(httpx.get(f"{url}/ui/connect/prod/sales/articles").text)
        pylance, lancedb, _, curl = page.code  # Spark's: tests/spark/test_configuration.py
        for lines in (pylance, lancedb):
            exec(compile(lines, "page", "exec"), {})
            assert "Black clock 5" in capsys.readouterr().out
        subprocess.run(curl, shell=True, check=True, cwd=tmp_path, timeout=60)
    assert pa.ipc.open_file(tmp_path / "rows.arrow").read_all().num_rows == 10


@pytest.mark.parametrize(
    ("databases", "name"),
    [
        (DatabasePaths(prefix=["prod"]), "sales"),
        (DatabasePaths(names={"shop": ["prod", "sales"]}), "shop"),
        (DatabasePaths(separator="-"), "prod-sales"),
        (DatabasePaths(separator=None), "prod/sales"),
    ],
)
def test_the_lines_of_lancedb_name_the_configured_database(
    prod: Any, databases: DatabasePaths, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_namespace(FederatedNamespace({"prod": prod}), databases=databases) as url:
        page = HtmlPage.of(httpx.get(f"{url}/ui/connect/prod/sales/articles").text)
        lines = page.code[1]
        assert f'"db://{name}"' in lines
        exec(compile(lines, "page", "exec"), {})
        assert "Black clock 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("databases", "path"),
    [
        (DatabasePaths(prefix=["prod"]), ["archive", "sales"]),
        (DatabasePaths(prefix=["prod"]), ["prod"]),
        (DatabasePaths(), []),
        (DatabasePaths(), ["a.b"]),
        (DatabasePaths(names={"sales": ["archive", "sales"]}), ["sales"]),
    ],
)
def test_a_namespace_that_is_no_database_has_no_name(
    databases: DatabasePaths, path: list[str]
) -> None:
    assert databases.name_of(path) is None
    found = snippets_for("http://h", [*path, "t"], "/x", "", database=None, has_catalog=True)
    assert [each.title for each in found] == ["pylance", "Spark", "curl"]


def test_the_lines_have_the_address_in_browsers(prod: Any) -> None:
    address = "https://lake.example.com"
    with serving_namespace(FederatedNamespace({"prod": prod}), login=Login(address=address)) as url:
        page = HtmlPage.of(httpx.get(f"{url}/ui/connect/prod/sales/articles").text)
    pylance, lancedb, _, curl = page.code
    assert all(address in each and url not in each for each in (pylance, lancedb, curl))


def test_hostile_names_stay_within_their_quotes() -> None:
    path = ["prod", 'a"b', "t'; rm -rf /; '"]
    pylance, lancedb, spark, curl = snippets_for(
        "http://h", path, '/x"); exit() #', "api_key", database='prod.a"b', has_catalog=True
    )
    for each in (pylance, lancedb, spark):
        compile(each.text, each.title, "exec")
    command = curl.text.replace("curl", "printf '%s\\n'", 1)
    words = subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
    assert "rm" not in words.split()
    assert 'os.environ["LANCE_KEY"]' in pylance.text
    assert "$LANCE_KEY" in curl.text
