"""Columns that are chosen, their statistics, and values in full."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from server.gateways import cedar, clients, memory_namespace
from server.ui.browsers import HtmlPage

from lance_bridge_server.ui import column_page
from lance_bridge_server.ui.column_page import SAMPLE, statistics_of

from .conftest import png

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#columns-and-values-on-a-page"),
]

POLICIES = """
permit(principal == User::"ann", action, resource);
permit(principal == User::"carl", action in Action::"see", resource);
"""
ROWS = 40
LONG = "<b>long</b> " * 100
IMAGE = png(9, 90, 200)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def table() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "price": pa.array([None if i % 4 == 0 else i / 2 for i in numbers]),
            "word": [f"w{i % 3}" for i in numbers],
            "made": pa.array([START + timedelta(days=i) for i in numbers]),
            "text": [LONG] * ROWS,
            "nested": [{"a": [i] * 60, "b": "x" * 100} for i in numbers],
            "image": [IMAGE] * ROWS,
            "raw": [bytes(range(256)) * 8] * ROWS,
        }
    )


@pytest.fixture(scope="module")
def client_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("columns")
    namespace = memory_namespace(directory)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    lance.write_dataset(table(), namespace_client=namespace, table_id=["db", "t"])
    with clients(namespace, cedar(directory, POLICIES)) as client_of:
        yield client_of


def _get(client_of: Any, path: str, user: str = "ann", status: int = 200) -> HtmlPage:
    response = client_of(user)("GET", path)
    assert response.status_code == status, response.text
    return HtmlPage.of(response.text)


# -- chosen columns --------------------------------------------------------------------------------


def test_only_chosen_columns_are_shown_and_downloaded(client_of: Any) -> None:
    page = _get(client_of, "/ui/rows/db/t?columns=price&columns=id&size=10")
    assert page.cells[:2] == ["id int64", "price float64"]
    assert "2 of 8 columns" in page.text
    assert "the chosen columns" in page.text
    checked = [
        each["value"]
        for tag, each in page.tags
        if tag == "input" and each.get("name") == "columns" and "checked" in each
    ]
    assert checked == ["id", "price"]
    response = client_of("ann")("GET", page.links["CSV"])
    assert response.text.splitlines()[0] == '"id","price"'
    assert page.links["Next rows"].count("columns=") == 2


def test_a_download_says_what_it_holds(client_of: Any) -> None:
    page = _get(client_of, "/ui/rows/db/t?size=10")
    assert "Download these rows: Parquet CSV Arrow" in page.text
    assert "Rows 1\N{EN DASH}10 of 40" in page.text
    response = client_of("ann")("GET", page.links["Arrow"])
    assert pa.ipc.open_file(response.content).read_all().num_columns == 8


def test_columns_that_do_not_exist_choose_nothing(client_of: Any) -> None:
    assert _get(client_of, "/ui/rows/db/t?columns=absent").cells[0] == "id int64"


def test_a_filter_counts_the_rows_that_match(client_of: Any) -> None:
    page = _get(client_of, "/ui/rows/db/t?filter=id+%3C+15&size=10&offset=10")
    assert "Rows 11\N{EN DASH}15 of 15" in page.text
    assert "No rows" in _get(client_of, "/ui/rows/db/t?filter=id+%3C+0").text


# -- statistics ------------------------------------------------------------------------------------


def test_headings_and_schemas_lead_to_the_statistics_of_a_column(client_of: Any) -> None:
    rows = _get(client_of, "/ui/rows/db/t")
    assert rows.links["float64"] == "/ui/column/db/t?column=price"
    assert rows.links["timestamp[us, UTC]"] == "/ui/column/db/t?column=made"
    overview = _get(client_of, "/ui/table/db/t")
    assert overview.links["price"] == "/ui/column/db/t?column=price"
    assert "timestamp[us, UTC]" in overview.cells


def test_a_column_has_its_share_of_nulls_its_extent_and_a_histogram(client_of: Any) -> None:
    page = _get(client_of, "/ui/column/db/t?column=price")
    for text in ("Nulls 10 (25.0 %)", "Distinct 30", "Min 0.5", "Max 19.5", "of all 40 rows"):
        assert text.lower() in page.text.lower()
    bars = [each for tag, each in page.tags if tag == "rect" and each.get("width") == "18"]
    assert len(bars) == 24


def test_a_column_of_words_has_its_most_frequent_values(client_of: Any) -> None:
    page = _get(client_of, "/ui/column/db/t?column=word")
    assert page.cells[2:4] == ["w0", "14"]
    assert "Distinct 3" in page.text
    assert "Longest 2 characters" in page.text


def test_a_nested_column_has_only_nulls(client_of: Any) -> None:
    page = _get(client_of, "/ui/column/db/t?column=nested")
    assert "Nulls 0 (0.0 %)" in page.text
    assert "Min" not in page.text


def test_statistics_are_for_those_who_may_read_the_rows(client_of: Any) -> None:
    page = _get(client_of, "/ui/column/db/t?column=price", "carl")
    assert "carl is not allowed to perform query_table" in page.text
    assert "Nulls" not in page.text
    _get(client_of, "/ui/column/db/t?column=price", "eve", 404)


@pytest.mark.parametrize("column", ["absent", "", "a.b", "`"])
def test_a_column_that_does_not_exist_is_refused(client_of: Any, column: str) -> None:
    response = client_of("ann")("GET", "/ui/column/db/t", params={"column": column})
    assert response.status_code in (400, 404)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([], pa.float64()),
        pa.array([None, None], pa.int32()),
        pa.array([float("nan"), float("inf"), 1.0, 2.0]),
        pa.array([1.5, 1.5]),
        pa.array([-1.7e308, 0.0, 1.7e308]),
        pa.array([True, False, True]),
        pa.array([Decimal("1.50"), Decimal("2.25")]),
        pa.array([date(2026, 1, 1), date(1, 1, 1)]),
        pa.array([1, 2], pa.time32("s")),
        pa.array([1, 2**62], pa.duration("ns")),
        pa.array([-(2**63), 2**63 - 1], pa.int64()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([b"", b"abc"]),
        pa.array([[1.0], None], pa.list_(pa.float32())),
        pa.nulls(3),
    ],
)
def test_values_of_any_type_have_statistics(values: pa.Array) -> None:
    batch = pa.record_batch({"c": values})
    found = statistics_of(pa.RecordBatchReader.from_batches(batch.schema, [batch]))
    assert (found.rows, found.nulls) == (len(values), values.null_count)
    assert sum(each.value for each in found.bars) <= len(values)


def test_statistics_are_of_a_bounded_number_of_rows(
    client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SAMPLE == 10_000
    monkeypatch.setattr(column_page, "SAMPLE", 10)
    page = _get(client_of, "/ui/column/db/t?column=id")
    assert "Of the first 10 of 40 rows" in page.text


# -- values ----------------------------------------------------------------------------------------


def test_a_long_text_is_opened_in_full(client_of: Any) -> None:
    rows = _get(client_of, "/ui/rows/db/t?columns=text&size=10&filter=id+%3D+3")
    page = _get(client_of, rows.links["… 1,060 more"])
    assert page.code == [LONG]


def test_a_nested_value_is_opened_in_lines(client_of: Any) -> None:
    page = _get(client_of, "/ui/value/db/t?column=nested&row=3")
    [code] = page.code
    assert code.count("\n") > 60
    assert '"a": [' in code


def test_bytes_are_opened_as_hexadecimal_numbers(client_of: Any) -> None:
    [code] = _get(client_of, "/ui/value/db/t?column=raw&row=3").code
    assert code.splitlines()[4].startswith("0040  40 41 42 43")
    assert code.splitlines()[4].endswith("@ABCDEFGHIJKLMNO")
    assert "1,024 more bytes" in _get(client_of, "/ui/value/db/t?column=raw&row=3").text


def test_an_image_is_enlarged(client_of: Any) -> None:
    rows = _get(client_of, "/ui/rows/db/t?columns=image&size=10")
    values = {address for address in rows.links.values() if "/ui/value/" in address}
    page = _get(client_of, min(values))
    [image] = [each for tag, each in page.tags if tag == "img" and "/ui/image/" in each["src"]]
    assert image["class"] == "whole"
    assert client_of("ann")("GET", image["src"]).content == IMAGE


def test_a_value_is_for_those_who_may_read_the_rows(client_of: Any) -> None:
    path = "/ui/value/db/t?column=text&row=3"
    assert "long" not in _get(client_of, path, "carl", 403).text
    _get(client_of, path, "eve", 404)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("column=text&row=x", 400),
        ("column=text", 400),
        ("column=text&row=99999", 400),
        ("column=absent&row=1", 404),
    ],
)
def test_a_value_that_does_not_exist_is_refused(client_of: Any, query: str, status: int) -> None:
    _get(client_of, f"/ui/value/db/t?{query}", status=status)
