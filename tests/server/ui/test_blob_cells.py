"""A cell of a blob is like that of binary values: its size and first bytes, or an image."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from server.policies import cedar, clients, memory_namespace
from server.ui.browsers import HtmlPage
from server.ui.demo_tables import png

from lance_bridge_server.access.authorizer import AllowAll

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


@contextmanager
def serving(directory: Path, kind: str, values: list[Any], policies: str = "") -> Iterator[Any]:
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
    with serving(tmp_path, kind, VALUES) as client_of:
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
    with serving(tmp_path, kind, values) as client_of:
        second = page_of(client_of, "?size=10&offset=10")
        texts = [f"blob, 6 B: {value.hex(' ')}" for value in values]
        assert [each for each in second.cells if each.startswith("blob, ")] == texts[10:]
        of_version = page_of(client_of, "?size=20&at=v1")
        assert [each for each in of_version.cells if each.startswith("blob, ")] == texts


def test_an_image_is_for_those_who_may_read_the_rows(tmp_path: Path) -> None:
    policies = """
    permit(principal == User::"ann", action, resource);
    permit(principal == User::"carl", action in Action::"see", resource);
    """
    with serving(tmp_path, "extension", [IMAGE], policies) as client_of:
        [image] = images_of(page_of(client_of))
        for user, status in (("ann", 200), ("carl", 403), ("eve", 404), ("", 401)):
            assert client_of(user)("GET", image).status_code == status, user


def test_of_a_blob_that_refers_to_a_file_only_the_size_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret.png"
    file.write_bytes(IMAGE)
    blob = lance.blob.Blob(uri=file.as_uri())
    with serving(tmp_path, "extension", [blob, b"inside"]) as client_of:
        page = page_of(client_of)
        assert images_of(page) == []
        assert any(each.startswith("blob, ") and ":" not in each for each in page.cells)
        assert "blob, 6 B: 69 6e 73 69 64 65" in page.cells
        assert client_of("ann")("GET", "/ui/image/db/t?column=b&row=0").status_code == 400


def test_a_page_says_why_it_has_no_bytes(tmp_path: Path) -> None:
    with serving(tmp_path, "extension", [IMAGE]) as client_of:
        [file] = tmp_path.rglob("*.blob")
        file.unlink()
        page = page_of(client_of)
        assert "Of blobs, only sizes are shown: " in page.text
        assert "blob, 100 kB" in page.cells
        assert images_of(page) == []
