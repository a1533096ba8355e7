"""Types and values as the catalog page shows them."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance.arrow import bfloat16_array
from server.policies import clients, memory_namespace
from server.ui.html_pages import HtmlPage

from lance_bridge_server.authorization import AllowAll
from lance_bridge_server.ui.cells import Cell, make_cell
from lance_bridge_server.ui.rendering import format_bytes, format_time
from lance_bridge_server.ui.row_search import parse_vector

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#rows-on-a-page")]

NEW_YEAR = datetime(2026, 1, 1, tzinfo=timezone.utc)
COLUMNS: list[tuple[pa.DataType, Any, str, str]] = [
    (pa.list_(pa.float16(), 2), [1.0, 2.0], "vector[2] of float16", "[1, 2]"),
    (pa.list_(pa.uint8(), 2), [7, 9], "vector[2] of uint8", "[7, 9]"),
    (pa.list_(pa.string()), ["a", None], "list of utf8", '["a", null]'),
    (pa.map_(pa.string(), pa.int32()), [("k", 1)], "map of utf8 to int32", '[["k", 1]]'),
    (pa.decimal128(9, 2), None, "decimal(9, 2)", "null"),
    (pa.timestamp("us", "UTC"), NEW_YEAR, "timestamp", "2026-01-01"),
    (pa.binary(), b"\x00\xffMZ", "binary", "4 B: 00 ff 4d 5a"),
    (pa.bool_(), True, "bool", "True"),
    (pa.float64(), math.nan, "float64", "nan"),
]  # fmt: skip


def test_every_type_has_its_words_and_its_cell(tmp_path: Path) -> None:
    values = {f"c{n}": pa.array([value], type_) for n, (type_, value, _, _) in enumerate(COLUMNS)}
    schema, rows = _pages_of(tmp_path, pa.table(values))
    assert {words for _, _, words, _ in COLUMNS} <= set(schema.cells)
    for _, _, _, text in COLUMNS:
        assert any(text in each for each in rows.cells), text


def test_a_blob_has_its_size(tmp_path: Path) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table([pa.array([b"x" * 2000], blob.type)], schema=pa.schema([blob]))
    schema, rows = _pages_of(tmp_path, data, data_storage_version="2.1")
    assert "blob" in schema.cells[5:]
    assert "blob, 2 kB" in rows.cells


def _pages_of(directory: Path, data: pa.Table, **options: Any) -> tuple[HtmlPage, HtmlPage]:
    """Return the pages of a table's schema and of its rows."""
    namespace = memory_namespace(directory)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    lance.write_dataset(data, namespace_client=namespace, table_id=["db", "t"], **options)
    with clients(namespace, AllowAll()) as client_of:
        schema, rows = (
            HtmlPage.of(client_of("ann")("GET", f"/ui/{page}/db/t").text)
            for page in ("table", "rows")
        )
    return schema, rows


def test_a_long_text_is_cut() -> None:
    cell = make_cell("ab" * 500, "text")
    assert (len(cell.text), cell.rest, cell.is_long) == (140, 860, True)


@pytest.mark.parametrize("values", [[], [None, 1.0], [math.nan, math.inf], [3.0], [1e300, -1e300]])
def test_a_vector_of_any_numbers_is_drawn(values: list[float | None]) -> None:
    points = make_cell(values, "vector").points
    assert "nan" not in points
    assert "inf" not in points


def test_a_vector_of_lances_short_numbers_is_drawn(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(bfloat16_array([0.5, -2]), 2)
    schema, rows = _pages_of(tmp_path, pa.table({"vector": vectors}))
    assert "vector[2] of bfloat16" in schema.cells
    assert "[0.5, -2]" in rows.text


def test_a_wide_vector_has_few_points() -> None:
    assert len(make_cell([0.5] * 1536, "vector").points.split()) <= 64


@pytest.mark.parametrize(
    "data", [b"<svg onload='alert(1)'/>", b"\x89PN", b"GIF", b"RIFF....WAVE", b""]
)
def test_only_images_that_run_nothing_are_shown(data: bytes) -> None:
    assert make_cell(data, "binary", source="/ui/image").kind == "binary"


def test_a_large_image_is_named() -> None:
    cell = make_cell(b"\xff\xd8\xff" + bytes(5_000_000), "binary", source="/ui/image")
    assert cell == Cell("binary", "image/jpeg, 5 MB")


def test_vectors_are_read_as_json_and_as_numbers() -> None:
    assert parse_vector("[1, 2.5, -3e2]") == parse_vector(" 1 2.5\n-3e2 ") == [1.0, 2.5, -300.0]


def test_sizes_and_times_have_units() -> None:
    sizes = [format_bytes(each) for each in (0, 999, 1000, 1_500_000, 10**16)]
    assert sizes == ["0 B", "999 B", "1 kB", "1.5 MB", "10 PB"]
    assert format_time(0) == "1970-01-01 00:00:00 UTC"
    assert format_time(10**18) == format_time(None)
