"""A gateway over two catalogs, one of which may be down, and pages of it for some principals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import ServiceUnavailableError
from server.gateways import cedar, clients, declare, memory_namespace
from server.ui.browsers import HtmlPage
from server.ui.demo_tables import create_articles

from lance_bridge_federated import FederatedNamespace

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
