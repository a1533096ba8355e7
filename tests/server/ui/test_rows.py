"""Types, values and images of a page of rows, and what it shows of large tables."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance.arrow import bfloat16_array
from lance_namespace.errors import ErrorCode
from server.gateways import cedar, clients, memory_namespace
from server.ui.browsers import HtmlPage
from servers.processes import public_directory, without_privileges

from lance_bridge_server.access.authorizer import AllowAll
from lance_bridge_server.ui import row_queries as row_reader
from lance_bridge_server.ui import rows_page
from lance_bridge_server.ui.rendering import Cell, format_bytes, format_time, make_cell
from lance_bridge_server.ui.row_queries import MAX_BYTES, parse_vector, read_sample

from .conftest import png

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#rows-on-a-page")]

IMAGE = png(9, 90, 200) + bytes(100_000)
VALUES = [
    IMAGE,
    b"\x00\xffMZ",
    None,
    b"",
    b"plain text that is long",
    png(1, 2, 3) + bytes(5 << 20),
]
CELLS = [
    "blob, 4 B: 00 ff 4d 5a",
    "null",
    "blob, 0 B:",
    "blob, 23 B: 70 6c 61 69 6e 20 74 65 78 74 20 74 …",
    "blob, image/png, 5.24 MB",
]
BLOB = {"lance-encoding:blob": "true"}
KINDS: dict[str, tuple[pa.Field, Any, Any]] = {
    "extension": (lance.blob_field("b"), lance.blob_array, "2.2"),
    "metadata": (pa.field("b", pa.large_binary(), metadata=BLOB), pa.array, "2.1"),
    "old files": (pa.field("b", pa.large_binary(), metadata=BLOB), pa.array, "2.0"),
}


# -- values ----------------------------------------------------------------------------------------


NEW_YEAR = datetime(2026, 1, 1, tzinfo=timezone.utc)


COLUMNS: list[tuple[pa.DataType, Any, str, str]] = [
    (pa.list_(pa.float16(), 2), [1.0, 2.0], "vector[2] of float16", "[1, 2]"),
    (pa.list_(pa.uint8(), 2), [7, 9], "vector[2] of uint8", "[7, 9]"),
    (pa.list_(pa.string()), ["a", None], "list of utf8", '["a", null]'),
    (pa.map_(pa.string(), pa.int32()), [("k", 1)], "map of utf8 to int32", '[["k", 1]]'),
    (pa.decimal128(9, 2), None, "decimal(9, 2)", "null"),
    (pa.timestamp("us", "UTC"), NEW_YEAR, "timestamp[us, UTC]", "2026-01-01"),
    (pa.list_(pa.duration("ms")), None, "list of duration[ms]", "null"),
    (pa.struct([("at", pa.time64("ns"))]), None, "time64[ns]", "null"),
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


def test_the_type_of_a_blob_is_one_word(tmp_path: Path) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table([pa.array([b"x" * 2000], blob.type)], schema=pa.schema([blob]))
    schema, _ = _pages_of(tmp_path, data, data_storage_version="2.1")
    assert schema.cells[5:7] == ["blob", "blob"]


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
    "data", [b"<svg onload='alert(1)'/>", b"\x89PN", b"GIF", b"RIFF....AVI ", b"....ftypheic", b""]
)
def test_only_images_that_run_nothing_are_shown(data: bytes) -> None:
    assert make_cell(data, "binary", source="/ui/image").kind == "binary"


MEDIA = {
    "audio/wav": b"RIFF....WAVE",
    "audio/mpeg": b"ID3\x04",
    "audio/flac": b"fLaC",
    "audio/ogg": b"OggS",
    "audio/mp4": b"\0\0\0\x20ftypM4A ",
    "video/mp4": b"\0\0\0\x20ftypisom",
    "video/webm": b"\x1aE\xdf\xa3",
}


@pytest.mark.parametrize(("media_type", "data"), MEDIA.items())
def test_audio_and_video_are_recognized(media_type: str, data: bytes) -> None:
    cell = make_cell(data + bytes(100), "binary", source="/ui/image")
    assert (cell.kind, cell.source) == (media_type.partition("/")[0], "/ui/image")
    assert cell.text.startswith(media_type)


def test_audio_and_video_are_played_from_the_cells(tmp_path: Path) -> None:
    data = [each + bytes(100) for each in MEDIA.values()]
    namespace = memory_namespace(tmp_path)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    rows = pa.table({"clip": data})
    lance.write_dataset(rows, namespace_client=namespace, table_id=["db", "t"])
    with clients(namespace, AllowAll()) as client_of:
        page = _get(client_of, "/ui/rows/db/t")
        assert "media-src 'self'" in page.headers["content-security-policy"]
        tags = [each for each in HtmlPage.of(page.text).tags if each[0] in ("audio", "video")]
        assert [each["preload"] for _, each in tags] == ["none"] * len(MEDIA)
        for (tag, each), (media_type, sent) in zip(
            tags, zip(MEDIA, data, strict=True), strict=True
        ):
            assert "controls" in each
            response = _get(client_of, each["src"])
            assert response.content == sent
            assert response.headers["content-type"] == media_type
            assert response.headers["x-content-type-options"] == "nosniff"
            whole = HtmlPage.of(_get(client_of, each["src"].replace("image", "value", 1)).text)
            assert tag in [name for name, _ in whole.tags]


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


# -- large tables ----------------------------------------------------------------------------------


POLICIES = """
permit(principal == User::"ann", action, resource);
permit(principal == User::"carl", action in Action::"see", resource);
"""


COUNT = 100


HEAVY = png(9, 90, 200) + bytes(60_000)


HOSTILE = "<&\"'>" * 40


@pytest.fixture(scope="module")
def client_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("limits")
    namespace = memory_namespace(directory)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    vectors = pa.array([[i + j / 7 for j in range(768)] for i in range(COUNT)])
    tables = {
        "heavy": {
            "id": range(COUNT),
            "image": [HEAVY] * COUNT,
            "vector": vectors.cast(pa.list_(pa.float32(), 768)),
            **{f"text{n}": [HOSTILE] * COUNT for n in range(5)},
        },
        "wide": {f"column{n:04}": ["ab" * 100] * COUNT for n in range(1000)},
    }
    for name, columns in tables.items():
        lance.write_dataset(pa.table(columns), namespace_client=namespace, table_id=["db", name])
    with clients(namespace, cedar(directory, POLICIES)) as client_of:
        yield client_of


def _get(client_of: Any, path: str, user: str = "ann", status: int = 200) -> Any:
    response = client_of(user)("GET", path)
    assert response.status_code == status, response.text
    return response


@pytest.mark.parametrize("table", ["heavy", "wide"])
def test_a_page_of_any_rows_stays_under_200_kb(client_of: Any, table: str) -> None:
    text = _get(client_of, f"/ui/rows/db/{table}?size=100").text
    files = {
        each.get("src") or each.get("href", "")
        for _, each in HtmlPage.of(text).tags
        if "/ui/static/" in (each.get("src") or each.get("href", ""))
    }
    static = sum(len(_get(client_of, each).content) for each in files)
    assert len(text.encode()) + static < 200_000


def test_rows_for_which_a_page_has_no_room_are_on_the_next_ones(client_of: Any) -> None:
    path, found = "/ui/rows/db/heavy?size=100&sort=id", []
    while path:
        page = HtmlPage.of(_get(client_of, path).text)
        found += [each for each in page.cells if each.isdigit()]
        path = page.links.get("Next rows", "")
        assert not path or "A page has no room for more of these rows" in page.text
    assert found == [str(each) for each in range(COUNT)]


def test_some_of_many_columns_are_shown(client_of: Any) -> None:
    page = HtmlPage.of(_get(client_of, "/ui/rows/db/wide").text)
    assert "Columns 1\N{EN DASH}50 of 1000" in page.text
    assert page.cells[0].startswith("column0000")
    assert len(page.cells) % 50 == 0
    following = page.links["Next columns"]
    assert "first_column=50" in following
    last = HtmlPage.of(_get(client_of, following.replace("=50", "=950")).text)
    assert "Next columns" not in last.links
    assert "Columns 951\N{EN DASH}1000 of 1000" in last.text
    assert "column0999 utf8" in last.cells
    previous = HtmlPage.of(_get(client_of, last.links["Previous columns"]).text)
    assert "Columns 901\N{EN DASH}950 of 1000" in previous.text


def test_the_filter_has_the_columns_for_the_script(client_of: Any) -> None:
    page = HtmlPage.of(_get(client_of, "/ui/rows/db/heavy").text)
    [columns] = [each["data-columns"] for tag, each in page.tags if "data-columns" in each]
    assert json.loads(columns)[:3] == ["id", "image", "vector"]


def test_other_requests_do_not_wait_for_the_cells(
    client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_in_loop: list[bool] = []

    def watched(*arguments: Any) -> Any:
        are_in_loop.append(asyncio._get_running_loop() is not None)
        return make_cell(*arguments)

    monkeypatch.setattr(rows_page, "make_cell", watched)
    page = HtmlPage.of(_get(client_of, "/ui/rows/db/heavy?size=100&sort=id").text)
    assert "[0, 0.143, 0.286, 0.429, …]" in page.text
    assert not any(are_in_loop)
    assert 0 < len(are_in_loop) < 8 * COUNT  # none of rows for which the page has no room


# -- images ----------------------------------------------------------------------------------------


def _images(client_of: Any) -> list[str]:
    tags = HtmlPage.of(_get(client_of, "/ui/rows/db/heavy").text).tags
    return [each["src"] for tag, each in tags if tag == "img" and "/ui/image/" in each["src"]]


def test_an_image_is_served_as_it_is_and_kept_by_no_cache(client_of: Any) -> None:
    response = _get(client_of, _images(client_of)[0])
    assert response.content == HEAVY
    assert response.headers["content-type"] == "image/png"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert response.headers["cross-origin-resource-policy"] == "same-origin"


def test_an_image_is_for_those_who_may_read_the_rows(client_of: Any) -> None:
    image = _images(client_of)[0]
    _get(client_of, image, "carl", 403)
    _get(client_of, image, "eve", 404)
    _get(client_of, image, "", 401)


@pytest.mark.parametrize(
    "query",
    ["row=0&column=id", "row=0&column=text0", "row=99999&column=image", "row=x&column=image", ""],
)
def test_what_is_no_image_is_not_served(client_of: Any, query: str) -> None:
    response = _get(client_of, f"/ui/image/db/heavy?{query}", status=400)
    assert response.headers["content-type"].startswith("text/html")


# -- bytes and time --------------------------------------------------------------------------------


def _reader(batches: int, rows: int) -> pa.RecordBatchReader:
    batch = pa.record_batch({"b": pa.array([bytes(100_000)] * rows)})
    return pa.RecordBatchReader.from_batches(batch.schema, [batch] * batches)


def test_rows_of_more_than_8_mib_are_shown_in_part() -> None:
    for reader in (_reader(20, 10), _reader(1, 200)):
        sample = read_sample(reader)
        assert sample.table.num_rows in range(60, 90)
        assert sample.table.nbytes <= MAX_BYTES
        assert "exceed 8 MiB" in sample.message
    assert read_sample(_reader(8, 10)).message == ""


def test_one_row_is_shown_however_large_it_is() -> None:
    batch = pa.record_batch({"b": pa.array([bytes(9 << 20)] * 2)})
    sample = read_sample(pa.RecordBatchReader.from_batches(batch.schema, [batch]))
    assert sample.table.num_rows == 1


def test_rows_that_take_too_long_are_shown_in_part(
    client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_reader, "_SECONDS", 0.0)
    assert read_sample(_reader(3, 1)).table.num_rows == 1
    page = HtmlPage.of(_get(client_of, "/ui/rows/db/heavy?sort=id").text)
    assert "Only the rows read within 0 seconds are shown" in page.text
    assert "0" in page.cells


def test_a_page_says_that_its_rows_may_not_be_read() -> None:
    path, query = "/v1/table/db$t/query", {"k": 1, "vector": {}}
    with public_directory() as place:
        namespace = memory_namespace(place)
        namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
        lance.write_dataset(
            pa.table({"id": [1, 2]}), namespace_client=namespace, table_id=["db", "t"]
        )
        for each in place.rglob("data/*"):
            each.chmod(0)
        with clients(namespace, AllowAll()) as client_of, without_privileges():
            page = HtmlPage.of(_get(client_of, "/ui/rows/db/t").text)
            refused = client_of("ann")("POST", path, json=query)
    assert "Permission denied" in page.text
    assert (refused.status_code, refused.json()["code"]) == (403, ErrorCode.PERMISSION_DENIED)


# -- cells of blobs --------------------------------------------------------------------------------


@contextmanager
def serve_blobs(directory: Path, kind: str, values: list[Any], policies: str = "") -> Iterator[Any]:
    """Yield the clients of a server with a table of blobs."""
    field, make, version = KINDS[kind]
    namespace = memory_namespace(directory)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    array = make(values, field.type) if make is pa.array else make(values)
    lance.write_dataset(
        pa.table([array], schema=pa.schema([field])),
        namespace_client=namespace,
        table_id=["db", "t"],
        data_storage_version=version,
        allow_external_blob_outside_bases=True,
    )
    authorizer = cedar(directory, policies) if policies else AllowAll()
    with clients(namespace, authorizer) as client_of:
        yield client_of


def page_of(client_of: Any, query: str = "") -> HtmlPage:
    response = client_of("ann")("GET", f"/ui/rows/db/t{query}")
    assert response.status_code == 200
    return HtmlPage.of(response.text)


def images_of(page: HtmlPage) -> list[str]:
    return [each["src"] for tag, each in page.tags if tag == "img" and "/ui/image/" in each["src"]]


@pytest.mark.parametrize("kind", KINDS)
def test_blobs_are_shown_like_binary_values(tmp_path: Path, kind: str) -> None:
    with serve_blobs(tmp_path, kind, VALUES) as client_of:
        page = page_of(client_of)
        assert [each for each in page.cells if each != "b"][-len(CELLS) :] == CELLS
        [image] = images_of(page)
        response = client_of("ann")("GET", image)
        assert (response.status_code, response.content) == (200, IMAGE)
        assert response.headers["content-type"] == "image/png"
        for row in range(1, len(VALUES)):
            refused = client_of("ann")("GET", f"/ui/image/db/t?column=b&row={row}")
            assert refused.status_code == 400, row
            assert "has no image" in refused.text


@pytest.mark.parametrize("kind", KINDS)
def test_each_page_and_version_has_the_bytes_of_its_own_rows(tmp_path: Path, kind: str) -> None:
    values = [b"row %02d" % number for number in range(15)]
    with serve_blobs(tmp_path, kind, values) as client_of:
        second = page_of(client_of, "?size=10&offset=10")
        texts = [f"blob, 6 B: {value.hex(' ')}" for value in values]
        assert [each for each in second.cells if each.startswith("blob, ")] == texts[10:]
        of_version = page_of(client_of, "?size=20&at=v1")
        assert [each for each in of_version.cells if each.startswith("blob, ")] == texts


def test_an_image_of_a_blob_is_for_those_who_may_read_the_rows(tmp_path: Path) -> None:
    policies = """
    permit(principal == User::"ann", action, resource);
    permit(principal == User::"carl", action in Action::"see", resource);
    """
    with serve_blobs(tmp_path, "extension", [IMAGE], policies) as client_of:
        [image] = images_of(page_of(client_of))
        for user, status in (("ann", 200), ("carl", 403), ("eve", 404), ("", 401)):
            assert client_of(user)("GET", image).status_code == status, user


def test_of_a_blob_that_refers_to_a_file_only_the_size_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret.png"
    file.write_bytes(IMAGE)
    blob = lance.blob.Blob(uri=file.as_uri())
    with serve_blobs(tmp_path, "extension", [blob, b"inside"]) as client_of:
        page = page_of(client_of)
        assert images_of(page) == []
        assert any(each.startswith("blob, ") and ":" not in each for each in page.cells)
        assert "blob, 6 B: 69 6e 73 69 64 65" in page.cells
        assert client_of("ann")("GET", "/ui/image/db/t?column=b&row=0").status_code == 400


def test_a_page_says_why_it_has_no_bytes(tmp_path: Path) -> None:
    with serve_blobs(tmp_path, "extension", [IMAGE]) as client_of:
        [file] = tmp_path.rglob("*.blob")
        file.unlink()
        page = page_of(client_of)
        assert "Of blobs, only sizes are shown: " in page.text
        assert "blob, 100 kB" in page.cells
        assert images_of(page) == []
