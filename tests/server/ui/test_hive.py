"""The catalog page over a real Hive Metastore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import lance_namespace as api
import pytest
from server.serving import serving
from server.ui.demo_tables import ARTICLES, create_articles
from server.ui.html_pages import HtmlPage
from servers.metastores import Metastores

from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway import Gateway

pytestmark = pytest.mark.server


@pytest.fixture
def client(metastores: Metastores, tmp_path: Path) -> Iterator[httpx.Client]:
    uri = f"thrift://127.0.0.1:{metastores.get('2.3').port}"
    with HiveNamespace(uri=uri, root=str(tmp_path)) as hive:
        create_articles(hive)
        # The catalog cannot hold branches.
        hive.delete_table_branch(api.DeleteTableBranchRequest(id=ARTICLES, name="trial"))
        hive.manage_table(ARTICLES)
        app = create_app(Gateway(FederatedNamespace({"prod": hive})))
        with serving(app) as url, httpx.Client(base_url=url, timeout=60) as client:
            yield client
        request = api.DropNamespaceRequest(id=ARTICLES[:1], behavior="Cascade")
        hive.drop_namespace(request)


def follow(client: httpx.Client, page: HtmlPage, link: str) -> HtmlPage:
    """Return the page behind a link, which may be on a later page of a listing.

    Other tests share the metastore, and may have left more databases than one page lists.
    """
    while link not in page.links:
        page = HtmlPage.of(client.get(page.links["Next page"]).text)
    return HtmlPage.of(client.get(page.links[link]).text)


def test_links_lead_from_the_catalog_to_rows(client: httpx.Client) -> None:
    page = HtmlPage.of(client.get("/ui").text)
    for link in ("prod", "sales", "articles"):
        page = follow(client, page, link)
    assert "versions managed by the catalog" in page.text
    assert "vector[16] of float32" in page.cells
    rows = HtmlPage.of(client.get(page.links["Rows"]).text)
    assert "Black clock 5" in rows.cells
    versions = HtmlPage.of(client.get(page.links["Versions"]).text)
    assert "Append +20 rows" in versions.text
    similar = HtmlPage.of(client.get(rows.links["Similar"]).text)
    assert similar.cells[0] == "distance"
