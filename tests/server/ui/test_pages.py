"""The catalog page over HTTP: from the catalogs to rows, searches, and the lines to connect."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from pyarrow import parquet
from server.gateways import clients, declare, memory_namespace, serve_namespace
from server.ui.browsers import HtmlPage

from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.access.authorizer import AllowAll
from lance_bridge_server.access.login import Login
from lance_bridge_server.lancedb import DatabasePaths
from lance_bridge_server.ui import rendering, rows_page, search_page
from lance_bridge_server.ui.request import VisibleNamespace
from lance_bridge_server.ui.table_page import snippets_for

from .conftest import DIMENSION, TABLES, DeadNamespace, GetPage, articles, create_articles

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#rows-on-a-page", "server.md#the-catalog-page"),
]

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
    assert "Rows 1\N{EN DASH}20 of 75" in rows.text
    assert "Row 1 of 1" in get(f"/ui/rows/{ARTICLES}", filter="id = 7").text
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
    assert f"1\N{EN DASH}100 of {TABLES} tables" in first.text
    assert f"101\N{EN DASH}{TABLES} of {TABLES} tables" in second.text
    assert "t000" in get(second.links["Previous page"]).links


def test_the_tree_is_opened_down_to_the_page(get: GetPage) -> None:
    namespace = get("/ui/namespace/prod/sales")
    assert {"many", "hr", "articles", "orders"} <= set(namespace.links)
    table = get(f"/ui/table/{ARTICLES}")
    assert {"many", "hr", "articles", "All of sales …"} <= set(table.links)
    current = [each["href"] for _, each in table.tags if each.get("aria-current") == "page"]
    assert current == [f"/ui/table/{ARTICLES}", f"/ui/table/{ARTICLES}"]  # in the tree, and the tab


def test_a_dead_catalog_leaves_the_others(get: GetPage) -> None:
    page = get("/ui/namespace/dead", status=503)
    assert "No response 'dead' did not respond" in page.text
    assert page.links["Try again"] == ""
    assert "10.9.8.7" not in page.text
    assert {"prod", "many"} <= set(page.links)
    found = get("/ui").text
    assert found.count("dead unreachable") == found.count("unreachable") == 2  # one in the tree


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
    assert "Rows 1\N{EN DASH}10 of 13" in page.text
    second = get(page.links["Next rows"])
    assert "Rows 11\N{EN DASH}13 of 13" in second.text
    assert "Next rows" not in second.links
    assert "Rows 1\N{EN DASH}10 of 13" in get(second.links["Previous rows"]).text


@pytest.mark.spec("server.md#rows-on-a-page")
def test_images_and_vectors_are_drawn(get: GetPage) -> None:
    page = get(f"/ui/rows/{ARTICLES}", size="10")
    images = [each for tag, each in page.tags if tag == "img" and "/ui/image/" in each["src"]]
    assert [each["loading"] for each in images] == ["lazy"] * 10
    lines = [each["points"] for tag, each in page.tags if tag == "polyline"]
    assert all(len(each.split()) == DIMENSION for each in lines)
    assert len(lines) == 10


@pytest.mark.spec("server.md#versions-on-a-page")
def test_rows_and_fragments_are_drawn_over_the_versions(get: GetPage) -> None:
    page = get(f"/ui/versions/{ARTICLES}")
    rows, fragments = [each["points"].split() for tag, each in page.tags if tag == "polyline"]
    assert len(rows) == len(fragments) > 2
    heights = [float(each.partition(",")[2]) for each in fragments]
    assert heights[0] > heights[1] == heights[-1]  # the second version added a fragment
    assert "60 rows · 1 fragment" in page.text
    assert "75 rows · 2 fragments" in page.text


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


@pytest.mark.spec("server.md#serve")
def test_the_address_of_the_server_leads_a_browser_to_the_pages(client_of: Any) -> None:
    browser = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
    response = client_of("")("GET", "/", headers=browser)
    assert (response.status_code, response.headers["location"]) == (303, "/ui")
    response = client_of("")("GET", "/", headers={"accept": "application/json"})
    assert (response.status_code, response.json()["error"]) == (404, "GET /: Not Found")
    assert client_of("")("POST", "/").status_code == 405


def test_a_server_without_pages_leads_nowhere(tmp_path: Path) -> None:
    with serve_namespace(memory_namespace(tmp_path), ui=False) as url:
        for path in ("/", "/ui"):
            assert httpx.get(f"{url}{path}", headers={"accept": "text/html"}).status_code == 404


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


@pytest.mark.servers  # it runs curl, which a machine may lack
def test_the_lines_read_the_table(
    prod: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_namespace(FederatedNamespace({"prod": prod})) as url:
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
    with serve_namespace(FederatedNamespace({"prod": prod}), databases=databases) as url:
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
    with serve_namespace(FederatedNamespace({"prod": prod}), login=Login(address=address)) as url:
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


# -- searches of tables ----------------------------------------------------------------------------


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_tables_are_found_by_name_in_every_catalog(get: GetPage) -> None:
    page = get("/ui/search", q="ART")
    assert page.links["prod.sales.articles"] == "/ui/table/prod/sales/articles"
    assert "1 match" in page.text
    assert f"{TABLES} matches" in get("/ui/search", q="db.t").text


def test_columns_and_properties_are_searched_where_that_is_asked_for(get: GetPage) -> None:
    assert "0 matches" in get("/ui/search", q="embedd").text
    page = get("/ui/search?in=column&in=property&q=embedd")
    assert "prod.sales.articles" in page.links
    assert "embedding: fixed_size_list" in page.cells


def test_a_catalog_that_is_down_is_named_and_the_others_are_searched(get: GetPage) -> None:
    page = get("/ui/search", q="articles")
    assert "Could not search dead" in page.text
    assert "10.9.8.7" not in page.text


def test_a_catalog_that_is_slow_is_named_and_the_others_are_searched(
    get: GetPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer, list_tables = threading.Event(), VisibleNamespace.list_tables

    def list_slowly(namespace: VisibleNamespace, request: Any) -> Any:
        if namespace.parent == ["many"]:
            may_answer.wait(60)
        return list_tables(namespace, request)

    monkeypatch.setattr(VisibleNamespace, "list_tables", list_slowly)
    monkeypatch.setattr(search_page, "_SEARCH_SECONDS", 3.0)
    monkeypatch.setattr(search_page, "_GRACE_SECONDS", 0.0)
    try:
        page = get("/ui/search", q="articles")
    finally:
        may_answer.set()
    assert page.links["prod.sales.articles"] == "/ui/table/prod/sales/articles"
    assert "Could not search many: 'many' did not respond within 3 s" in page.text


def test_a_search_finds_nothing_that_may_not_be_seen(get: GetPage) -> None:
    for word in ("secret", "pay", "t0"):
        page = get("/ui/search", "bob", q=word)
        assert "0 matches" in page.text
        assert "dead" not in page.text
    assert "1 match" in get("/ui/search", "bob", q="articles").text


def test_a_search_ends_in_time_and_says_so(get: GetPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_page, "_SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(search_page, "_GRACE_SECONDS", 30.0)
    page = get("/ui/search", q="articles")
    assert "Could not search prod" in page.text


def test_matches_are_limited(get: GetPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_page, "_MOST_MATCHES", 5)
    assert "5 matches; more not shown" in get("/ui/search", q="db.t").text


# -- rows ------------------------------------------------------------------------------------------


ROWS = "/ui/rows/prod/sales/articles"
FILE = "/ui/download/prod/sales/articles"


def _vector(row: int) -> str:
    return json.dumps(articles()["embedding"][row].as_py())


def _ids(page: Any) -> list[str]:
    """Return the cells that are whole numbers, without distances of 0."""
    return [each for each in page.cells if each.isdigit() and each != "0"]


def test_the_rows_nearest_to_a_vector_come_with_distances(get: GetPage) -> None:
    page = get(ROWS, near=_vector(7), filter="id < 20", size="10")
    assert page.cells[0] == "distance"
    assert _ids(page)[0] == "7"
    assert "Rows 1\N{EN DASH}10, by distance" in page.text


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_the_rows_nearest_to_a_row_are_a_link_away(get: GetPage) -> None:
    page = get(ROWS, filter="id = 9")
    similar = get(page.links["Similar"].replace("id+%3D+9", ""))
    assert "9" in _ids(similar)[:3]  # rows 38 and 67 have the same vector
    assert similar.cells[0] == "distance"


def test_words_are_searched_in_a_full_text_index(get: GetPage) -> None:
    page = get(ROWS, text="lamp", size="100")
    assert "score" in page.cells[0]
    titles = [each for each in page.cells if each.startswith(("Red", "Green", "Blue"))]
    assert titles
    assert all(each.startswith("Red lamp") for each in titles)


def test_both_together_are_a_hybrid_search(get: GetPage) -> None:
    page = get(ROWS, text="chair", near=_vector(7))
    assert "by vector and text" in page.text
    assert "relevance score" in page.cells
    assert _ids(page)[0] == "7"


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ({"near": "[1, 2]"}, "near", "2"),
        ({"near": "one, two"}, "near", "A vector is numbers"),
        ({"near": "[1e999]"}, "near", "must be finite"),
        ({"near": "row:999999"}, "near", "Row 999999 does not exist"),
        ({"near": "row:7", "column": "title"}, "near", "title"),
        ({"filter": "nope = 1"}, "filter", "nope"),
        ({"filter": "id <"}, "filter", "not"),
        ({"filter": "title = repeat('a', 1000000000)"}, "filter", "repeat is not available"),
        ({"sort": "nope"}, "sort", "nope"),
        ({"filter": "id < 5", "sort": "nope"}, "sort", "nope"),
        ({"filter": "id < 5", "near": "[1, 2]"}, "near", "2"),
        ({"filter": "nope < 5", "near": "row:7", "text": "lamp"}, "filter", "nope"),
    ],
)
def test_an_error_stands_at_the_field_that_it_is_about(
    get: GetPage, query: dict[str, str], field: str, message: str
) -> None:
    page = get(ROWS, **query)
    [(tag, invalid)] = [each for each in page.tags if "aria-invalid" in each[1]]
    assert (invalid["id"], invalid["aria-describedby"]) == (field, f"{field}-error")
    assert tag == "select" or invalid["value"] == query[field]
    assert message in page.text


@pytest.mark.parametrize("query", [{}, {"filter": "id < 5"}, {"near": "row:7"}])
def test_an_error_that_no_field_caused_stands_above_the_rows(
    get: GetPage, query: dict[str, str]
) -> None:
    page = get(ROWS, "carl", **query)
    assert [each["id"] for _, each in page.tags if "aria-invalid" in each] == []
    assert "carl is not allowed to perform query_table" in page.text
    assert "Black clock" not in page.text


# -- downloads -------------------------------------------------------------------------------------


def _download(client_of: Any, user: str = "ann", **query: str) -> Any:
    return client_of(user)("GET", FILE, params=query)


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_what_is_shown_is_downloaded_in_each_format(client_of: Any) -> None:
    query = {"filter": "id < 30", "sort": "-id", "size": "10"}
    files = {each: _download(client_of, format=each, **query) for each in rows_page.FORMATS}
    for format_, response in files.items():
        name = f'attachment; filename="articles.{format_}"'
        assert response.headers["content-disposition"] == name
        assert response.headers["x-content-type-options"] == "nosniff"
    expected = list(range(29, 19, -1))
    arrow = pa.ipc.open_file(files["arrow"].content).read_all()
    assert arrow["id"].to_pylist() == expected
    assert "_rowid" not in arrow.column_names
    assert parquet.read_table(io.BytesIO(files["parquet"].content))["id"].to_pylist() == expected
    lines = list(csv.DictReader(io.StringIO(files["csv"].text)))
    assert [int(each["id"]) for each in lines] == expected
    assert json.loads(lines[0]["maker"])["city"]["zip"] == "00029"


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_texts_that_a_spreadsheet_would_run_begin_with_an_apostrophe() -> None:
    texts = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\tx", "a=b", None]
    rows = pa.table({"text": texts, "number": [-1] * 7, "list": [["=x"]] * 7})
    lines = list(csv.DictReader(io.StringIO(rows_page._to_csv(rows).decode())))
    assert [each["text"] for each in lines] == [
        "'=cmd|' /C calc'!A0", "'+1", "'-1", "'@x", "'\tx", "a=b", "",
    ]  # fmt: skip
    assert {each["number"] for each in lines} == {"-1"}


def test_properties_that_may_be_secrets_are_not_shown() -> None:
    shown = rendering.shown_properties({"password": "hunter22", "owner": "ada", "a": "b"})
    assert shown == {"a": "b", "owner": "ada", "password": "(not shown)"}


def test_a_download_of_a_search_has_what_it_found(client_of: Any, get: GetPage) -> None:
    links = get(ROWS, near="row:7", size="10").links
    response = client_of("ann")("GET", links["Arrow"])
    found = pa.ipc.open_file(response.content).read_all()
    assert found.num_rows == 10
    assert found["_distance"].to_pylist() == sorted(found["_distance"].to_pylist())


def test_who_may_not_read_downloads_nothing(client_of: Any) -> None:
    assert _download(client_of, "carl", format="csv").status_code == 403
    assert _download(client_of, "", format="csv").status_code == 401
    hidden = client_of("bob")("GET", "/ui/download/prod/sales/secret?format=csv")
    assert hidden.status_code == 404


def test_a_file_is_not_cut(client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_page, "_MAX_BYTES", 1000)
    response = _download(client_of, format="csv")
    assert response.status_code == 400
    assert "choose fewer rows" in response.text


def test_an_unknown_format_is_refused(client_of: Any) -> None:
    assert _download(client_of, format="exe").status_code == 400
