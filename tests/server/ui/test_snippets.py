"""The lines of the page "Connect", run as they stand there."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from server.policies import memory_namespace
from server.serving import serving
from server.ui.browsers import HtmlPage
from server.ui.demo_tables import create_articles

from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.lancedb import DatabasePaths
from lance_bridge_server.login import Login
from lance_bridge_server.ui.snippets import snippets_for

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-catalog-page")]


@pytest.fixture
def prod(tmp_path: Path) -> Any:
    namespace = memory_namespace(tmp_path)
    create_articles(namespace)
    return namespace


def test_the_lines_read_the_table(
    prod: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(create_app(Gateway(FederatedNamespace({"prod": prod})))) as url:
        page = HtmlPage.of(httpx.get(f"{url}/ui/connect/prod/sales/articles").text)
        pylance, lancedb, _, curl = page.code  # Spark's: tests/spark/test_catalog_page.py
        for lines in (pylance, lancedb):
            exec(compile(lines, "page", "exec"), {})
            assert "Black clock 5" in capsys.readouterr().out
        subprocess.run(curl, shell=True, check=True, cwd=tmp_path, timeout=60)
    assert pa.ipc.open_file(tmp_path / "rows.arrow").read_all().num_rows == 10


@pytest.mark.parametrize(
    ("databases", "name"),
    [
        (DatabasePaths(prefix=["prod"]), "sales"),
        (DatabasePaths(names={"shop": ["prod", "sales"]}), "shop"),
        (DatabasePaths(separator="-"), "prod-sales"),
        (DatabasePaths(separator=None), "prod/sales"),
    ],
)
def test_the_lines_of_lancedb_name_the_configured_database(
    prod: Any, databases: DatabasePaths, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = Gateway(FederatedNamespace({"prod": prod}), databases=databases)
    with serving(create_app(gateway)) as url:
        page = HtmlPage.of(httpx.get(f"{url}/ui/connect/prod/sales/articles").text)
        lines = page.code[1]
        assert f'"db://{name}"' in lines
        exec(compile(lines, "page", "exec"), {})
        assert "Black clock 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("databases", "path"),
    [
        (DatabasePaths(prefix=["prod"]), ["archive", "sales"]),
        (DatabasePaths(prefix=["prod"]), ["prod"]),
        (DatabasePaths(), []),
        (DatabasePaths(), ["a.b"]),
        (DatabasePaths(names={"sales": ["archive", "sales"]}), ["sales"]),
    ],
)
def test_a_namespace_that_is_no_database_has_no_name(
    databases: DatabasePaths, path: list[str]
) -> None:
    assert databases.name_of(path) is None
    found = snippets_for("http://h", [*path, "t"], "/x", "", database=None, has_catalog=True)
    assert [each.title for each in found] == ["pylance", "Spark", "curl"]


def test_the_lines_have_the_address_in_browsers(prod: Any) -> None:
    address = "https://lake.example.com"
    gateway = Gateway(FederatedNamespace({"prod": prod}), login=Login(address=address))
    with serving(create_app(gateway)) as url:
        page = HtmlPage.of(httpx.get(f"{url}/ui/connect/prod/sales/articles").text)
    pylance, lancedb, _, curl = page.code
    assert all(address in each and url not in each for each in (pylance, lancedb, curl))


def test_hostile_names_stay_within_their_quotes() -> None:
    path = ["prod", 'a"b', "t'; rm -rf /; '"]
    pylance, lancedb, spark, curl = snippets_for(
        "http://h", path, '/x"); exit() #', "api_key", database='prod.a"b', has_catalog=True
    )
    for each in (pylance, lancedb, spark):
        compile(each.text, each.title, "exec")
    command = curl.text.replace("curl", "printf '%s\\n'", 1)
    words = subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
    assert "rm" not in words.split()
    assert 'os.environ["LANCE_KEY"]' in pylance.text
    assert "$LANCE_KEY" in curl.text
