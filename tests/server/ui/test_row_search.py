"""Searching rows by vector and text on the catalog page, and downloading what it shows."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from server.ui.conftest import GetPage
from server.ui.demo_tables import articles

from lance_bridge_server.ui import download

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#rows-on-a-page")]

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
    invalid = [each["id"] for _, each in page.tags if "aria-invalid" in each]
    assert invalid == [field]
    assert message in page.text


@pytest.mark.parametrize("query", [{}, {"filter": "id < 5"}, {"near": "row:7"}])
def test_an_error_that_no_field_caused_stands_above_the_rows(
    get: GetPage, query: dict[str, str]
) -> None:
    page = get(ROWS, "carl", **query)
    assert [each["id"] for _, each in page.tags if "aria-invalid" in each] == []
    assert "carl is not allowed to perform query_table" in page.text


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
