"""The double of the open-source server: pages, races for a name, refusals, stops."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import requests
from databricks.sdk import WorkspaceClient

from servers.unity import ErrorKind, UnityServer
from servers.unity.raw import Raw, column, table

# -- pages ---------------------------------------------------------------------------------------


def fill(server: UnityServer, count: int) -> None:
    server.add_catalog("c")
    server.add_schema("c", "s")
    for number in range(count):
        server.add_table(
            "c", "s", f"t{number:04}", storage_location=f"file:///t{number}",
            properties={"k": "v"}, columns=[column(position=number)],
        )  # fmt: skip


@pytest.mark.parametrize(("count", "pages"), [(0, 1), (99, 1), (100, 2), (200, 3), (250, 3)])
def test_pages_have_100_rows_and_a_full_last_one_costs_one_more(
    new: UnityServer, count: int, pages: int
) -> None:
    fill(new, count)
    names = [
        row.name
        for row in WorkspaceClient(host=new.url, token="not-used").tables.list(
            "c", "s", max_results=1000
        )
    ]
    assert names == [f"t{number:04}" for number in range(count)]
    assert new.counts["GET /tables"] == pages


def test_a_token_is_the_last_name_and_max_results_the_size_of_a_page(new: UnityServer) -> None:
    fill(new, 5)
    raw = Raw(new.url)
    page = raw.get("/tables", catalog_name="c", schema_name="s", max_results="2")
    assert (len(page["tables"]), page["next_page_token"]) == (2, "t0001")
    page = raw.get("/tables", catalog_name="c", schema_name="s", page_token="t0003")
    assert ([row["name"] for row in page["tables"]], page["next_page_token"]) == (["t0004"], None)
    query = {"catalog_name": "c", "schema_name": "s", "max_results": "-1"}
    assert raw.error("GET", "/tables", **query) == (400, "INVALID_ARGUMENT")


def test_columns_and_properties_can_be_left_out_of_a_listing(new: UnityServer) -> None:
    fill(new, 1)
    names = {"catalog_name": "c", "schema_name": "s"}
    [row] = Raw(new.url).get("/tables", **names, omit_columns="true")["tables"]
    assert (row["columns"], row["properties"]) == ([], {"k": "v"})
    [row] = Raw(new.url).get("/tables", **names, omit_properties="true")["tables"]
    assert (len(row["columns"]), row["properties"]) == (1, {})


# -- races, permissions, life --------------------------------------------------------------------


def test_two_creators_at_once_both_win_and_break_the_name_for_ever(new: UnityServer) -> None:
    raw = Raw.with_schema(new.url)
    new.state.race_window = 10.0
    start = threading.Barrier(2)

    def create(_: int) -> int:
        start.wait(10)
        return Raw(new.url).send("POST", "/tables", table()).status_code

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(create, range(2))) == [200, 200]
    for method, path in (("GET", "/tables/c.s.t"), ("DELETE", "/tables/c.s.t")):
        assert raw.error(method, path) == (500, "INTERNAL")
    assert raw.error("POST", "/tables", table()) == (500, "INTERNAL")
    listed = raw.get("/tables", catalog_name="c", schema_name="s")["tables"]
    assert [row["name"] for row in listed] == ["t", "t"]


def test_routes_can_be_refused_and_allowed_again(new: UnityServer) -> None:
    raw = Raw.with_schema(new.url)
    new.refuse("POST /tables")
    assert raw.error("POST", "/tables", table()) == (403, "PERMISSION_DENIED")
    new.refuse("GET *", ErrorKind(429, "RESOURCE_EXHAUSTED"))
    assert raw.error("GET", "/catalogs/c") == (429, "RESOURCE_EXHAUSTED")
    new.allow_all()
    raw.post("/tables", table())


def test_a_stopped_server_refuses_connections_and_comes_back_with_what_it_knew(
    new: UnityServer,
) -> None:
    raw, url = Raw.with_schema(new.url), new.url
    new.stop()
    with pytest.raises(requests.ConnectionError):
        raw.get("/catalogs/c")
    new.start()
    assert new.url == url
    assert raw.get("/catalogs/c")["name"] == "c"


def test_a_request_that_is_cut_off_never_came(new: UnityServer) -> None:
    address = urlsplit(new.url)
    with socket.create_connection((address.hostname or "", address.port or 0), 10) as cut:
        cut.sendall(b"POST /api/2.1/unity-catalog/catalogs HTTP/1.1\r\ncontent-length: 99\r\n\r\n{")
        cut.shutdown(socket.SHUT_WR)
        assert cut.recv(100) == b""
    assert not new.requests
    assert not new.take_violations()
