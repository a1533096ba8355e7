"""Tables with everything that the catalog page shows: vectors, images, text, nested types."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa

ARTICLES = ["sales", "articles"]
ROWS = 60
DIMENSION = 16

_TITLES = ("Red lamp", "Green chair", "Blue table", "Grey sofa", "White shelf", "Black clock")


def png(red: int, green: int, blue: int, size: int = 24) -> bytes:
    """Return an image of a colour that becomes lighter from left to right."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    pixels = (min(255, each + 5 * x) for x in range(size) for each in (red, green, blue))
    lines = (b"\0" + bytes(pixels)) * size
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def articles(count: int = ROWS, first: int = 0) -> pa.Table:
    """Return rows of articles."""
    numbers = range(first, first + count)
    vectors = [[((i * 7 + j * 13) % 29) / 29 for j in range(DIMENSION)] for i in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "title": [f"{_TITLES[i % 6]} {i}" for i in numbers],
            "price": pa.array([None if i % 9 == 4 else 10 + i * 1.25 for i in numbers]),
            "image": pa.array([png(i * 4 % 256, 90, 200 - i) for i in numbers], pa.binary()),
            "embedding": pa.array(vectors, pa.list_(pa.float32(), DIMENSION)),
            "maker": [{"name": f"maker {i % 4}", "city": {"zip": f"{i:05}"}} for i in numbers],
            "labels": [[f"l{i % 3}", "sale"] for i in numbers],
            "text": [f"The {_TITLES[i % 6].lower()} number {i}. " * 12 for i in numbers],
        }
    )


def create_articles(namespace: Any) -> None:
    """Create the table, with versions, a tag, a branch, deleted rows and two indices."""
    namespace.create_namespace(api.CreateNamespaceRequest(id=ARTICLES[:1], mode="ExistOk"))
    client = {"namespace_client": namespace, "table_id": ARTICLES}
    lance.write_dataset(articles(), **client)
    lance.write_dataset(
        articles(20, ROWS),
        mode="append",
        commit_message="Add the new season",
        transaction_properties={"by": "loader"},
        **client,
    )
    namespace.create_table_tag(api.CreateTableTagRequest(id=ARTICLES, tag="first", version=1))
    namespace.create_table_branch(api.CreateTableBranchRequest(id=ARTICLES, name="trial"))
    namespace.create_table_scalar_index(
        api.CreateTableIndexRequest(id=ARTICLES, column="text", index_type="FTS")
    )
    namespace.create_table_scalar_index(
        api.CreateTableIndexRequest(id=ARTICLES, column="id", index_type="BTREE")
    )
    namespace.delete_from_table(api.DeleteFromTableRequest(id=ARTICLES, predicate="id < 5"))
