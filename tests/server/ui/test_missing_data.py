"""A table whose files are gone, in the gateway and on the catalog page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from server.policies import cedar, clients, declare, memory_namespace
from server.ui.browsers import HtmlPage
from server.ui.conftest import POLICIES
from server.ui.demo_tables import create_articles

from lance_bridge.testing.build import ipc
from lance_bridge_federated import FederatedNamespace

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#presence-of-data", "server.md#health-on-a-page"),
]

ID = ["prod", "sales", "articles"]
STREAM = {"content-type": "application/vnd.apache.arrow.stream"}
ROWS = ipc(pa.table({"id": [1]}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of the table were."""
    return tmp_path_factory.mktemp("missing") / "prod" / "root" / "sales.db" / "articles.lance"


@pytest.fixture(scope="module")
def client_of(place: Path) -> Iterator[Any]:
    """Serve a table that lost its files, and one that was never written."""
    prod = memory_namespace(place.parents[2])
    create_articles(prod)
    declare(prod, "sales.orders")
    shutil.rmtree(place)
    catalogs = {"prod": prod}
    authorizer = cedar(place.parents[3], POLICIES)
    with clients(FederatedNamespace(catalogs), authorizer, catalogs=catalogs) as found:
        yield found


def page_of(client_of: Any, path: str, status: int = 200) -> HtmlPage:
    answer = client_of("ann")("GET", path)
    assert answer.status_code == status, answer.text
    return HtmlPage.of(answer.text)


def test_the_page_of_a_table_says_that_its_data_is_missing(client_of: Any) -> None:
    text = page_of(client_of, "/ui/table/prod/sales/articles").text
    assert "data missing" in text
    assert "is missing: there is no version at" in text
    assert "location-gone: sales.articles" in text
    assert "lance-bridge table deregister prod sales.articles" in text
    assert "no data yet" not in text
    assert "no schema yet" not in text


@pytest.mark.parametrize("page", ["rows", "versions", "connect"])
def test_the_other_pages_of_the_table_say_it(client_of: Any, page: str) -> None:
    text = page_of(client_of, f"/ui/{page}/prod/sales/articles", 409).text
    assert "is missing: there is no version at" in text


def test_a_table_that_was_never_written_is_declared(client_of: Any) -> None:
    text = page_of(client_of, "/ui/table/prod/sales/orders").text
    assert "declared, no data yet" in text
    assert "data missing" not in text


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "count": ("count_rows", {"json": {}}),
    "describe": ("describe?check_declared=true", {"json": {}}),
    "query": ("query", {"json": {"k": 1, "vector": {}}}),
    "insert": ("insert", {"content": ROWS, "headers": STREAM}),
    "create": ("create?mode=create", {"content": ROWS, "headers": STREAM}),
    "overwrite": ("create?mode=overwrite", {"content": ROWS, "headers": STREAM}),
    "declare": ("declare", {"json": {}}),
}


@pytest.mark.parametrize(("call", "given"), CALLS.values(), ids=CALLS)
def test_requests_are_refused(
    client_of: Any, place: Path, call: str, given: dict[str, Any]
) -> None:
    answer = client_of("ann")("POST", f"/v1/table/{'$'.join(ID)}/{call}", **given)
    assert (answer.status_code, answer.json()["code"]) == (409, 19)
    assert "is missing: there is no version at" in answer.json()["error"]
    assert not place.exists()


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_the_table_is_still_listed(client_of: Any, user: str) -> None:
    answer = client_of(user)("GET", "/v1/namespace/prod$sales/table/list?include_declared=false")
    assert answer.json()["tables"] == ["articles"]
