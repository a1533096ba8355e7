"""A gateway over two catalogs, one of which may be down, and pages of it for some principals."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import ServiceUnavailableError
from server.gateways import cedar, clients, declare, memory_namespace
from server.ui.browsers import HtmlPage

from lance_bridge_federated import FederatedNamespace

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


TABLES = 130
POLICIES = """
permit(principal == User::"ann", action, resource);
permit(principal == User::"bob", action, resource in Namespace::"prod.sales");
permit(principal == User::"bob", action in Action::"see", resource == Namespace::"prod");
forbid(principal == User::"bob", action, resource == Table::"prod.sales.secret");
permit(principal == User::"carl", action in Action::"see", resource);
"""

GetPage = Callable[..., HtmlPage]


class DeadNamespace(LanceNamespace):
    """A catalog that does not answer."""

    def namespace_id(self) -> str:
        return "DeadNamespace"

    def list_namespaces(self, request: Any) -> Any:
        return self._fail(request)

    list_tables = describe_namespace = describe_table = list_namespaces

    def _fail(self, request: Any) -> Any:  # noqa: ARG002 - it fails whatever it is asked
        raise ServiceUnavailableError("The metastore at thrift://10.9.8.7:9083 does not answer")


def make_catalogs(directory: Path) -> dict[str, Any]:
    prod, many = (memory_namespace(directory / name) for name in ("prod", "many"))
    create_articles(prod)
    declare(prod, "sales.secret", "sales.orders", "hr.pay")
    declare(many, *(f"db.t{i:03}" for i in range(TABLES)))
    return {"prod": prod, "many": many, "dead": DeadNamespace()}


@pytest.fixture(scope="session")
def client_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function that returns the HTTP client of a principal."""
    directory = tmp_path_factory.mktemp("ui")
    catalogs = make_catalogs(directory)
    authorizer = cedar(directory, POLICIES)
    with clients(FederatedNamespace(catalogs), authorizer, catalogs=catalogs) as client_of:
        yield client_of


@pytest.fixture(scope="session")
def get(client_of: Any) -> GetPage:
    """Return a function that gets a page, which is as `status` says."""

    def get(path: str, user: str = "ann", status: int = 200, **query: str) -> HtmlPage:
        response: httpx.Response = (
            client_of(user)("GET", path, params=query) if query else client_of(user)("GET", path)
        )
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        return HtmlPage.of(response.text)

    return get
