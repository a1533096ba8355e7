"""Searching tables on the catalog page, and their rows by vector and text; downloads."""

from __future__ import annotations

import csv
import io
import json
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from server.ui.conftest import TABLES, GetPage
from server.ui.demo_tables import articles

from lance_bridge_server.ui import download, search_page
from lance_bridge_server.ui.visible_namespace import VisibleNamespace

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#rows-on-a-page", "server.md#the-catalog-page"),
]

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
    monkeypatch.setattr(search_page, "_SECONDS", 3.0)
    monkeypatch.setattr(search_page, "_GRACE_SECONDS", 0.0)
    try:
        page = get("/ui/search", q="articles")
    finally:
        may_answer.set()
    assert page.links["prod.sales.articles"] == "/ui/table/prod/sales/articles"
    assert "Could not search many: ui_search did not respond within 3 s" in page.text


def test_a_search_finds_nothing_that_may_not_be_seen(get: GetPage) -> None:
    for word in ("secret", "pay", "t0"):
        page = get("/ui/search", "bob", q=word)
        assert "0 matches" in page.text
        assert "dead" not in page.text
    assert "1 match" in get("/ui/search", "bob", q="articles").text


def test_a_search_ends_in_time_and_says_so(get: GetPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_page, "_SECONDS", 0.0)
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
    assert "10 rows, from row 1, by distance" in page.text


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
    files = {each: _download(client_of, format=each, **query) for each in download.FORMATS}
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
    monkeypatch.setattr(download, "_MAX_BYTES", 1000)
    response = _download(client_of, format="csv")
    assert response.status_code == 400
    assert "choose fewer rows" in response.text


def test_an_unknown_format_is_refused(client_of: Any) -> None:
    assert _download(client_of, format="exe").status_code == 400
