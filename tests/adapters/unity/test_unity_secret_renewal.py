"""Tokens and OAuth secrets that are read again when the server refuses the old ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance_namespace.errors import (
    PermissionDeniedError,
    UnauthenticatedError,
)
from servers.http_proxy import HttpProxy
from servers.unity import UnityServer

from lance_bridge.catalog import TableRecord
from lance_bridge.testing.concurrency import race
from lance_bridge_unity.catalog import UnityCatalog

from .building import TABLE, Connect, record

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#secrets-that-change", "unity.md#login"),
]

THREADS = 10
READ_SCHEMA = "GET /api/2.1/unity-catalog/schemas/c.s"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.yaml"
    path.write_text("token: first\n")
    return path


@pytest.fixture
def ended(server: UnityServer, connect: Connect, file: Path) -> UnityCatalog:
    """A catalog that was used with the token `first`, which has ended; `second` is valid now."""
    server.token = "first"
    catalog = connect(**{"secrets.file": str(file)})
    assert read(catalog) == ("c", "s")
    server.token = "second"
    return catalog


def read(catalog: UnityCatalog) -> tuple[str, ...]:
    return catalog.load_namespace(("c", "s")).path


def test_a_new_token_in_the_file_is_used(ended: UnityCatalog, proxy: HttpProxy, file: Path) -> None:
    file.write_text("token: second\n")
    proxy.reset()
    assert [read(ended) for _ in range(3)] == [("c", "s")] * 3
    assert proxy.counts[READ_SCHEMA] == 4


def test_a_change_is_made_once(
    ended: UnityCatalog, server: UnityServer, proxy: HttpProxy, file: Path
) -> None:
    file.write_text("token: second\n")
    proxy.reset()
    made = ended.create_table(record())
    assert server.table(*TABLE)["storage_location"] == made.location
    assert proxy.counts["POST /api/2.1/unity-catalog/tables"] == 2
    server.token = "third"
    file.write_text("token: third\n")
    ended.drop_table(made)
    assert not list(ended.list_tables(("c", "s")))


def test_a_listing_goes_on_where_its_token_ended(
    ended: UnityCatalog, server: UnityServer, file: Path
) -> None:
    file.write_text("token: second\n")
    for number in range(250):
        server.add_table("c", "s", f"t{number:03}")
    rows = iter(ended.scan_tables(("c", "s")))
    first = next(rows).path
    server.token = "third"
    file.write_text("token: third\n")
    assert len({first, *(each.path for each in rows)}) == 250


def test_a_file_with_the_same_token_is_named_and_the_request_sent_once(
    ended: UnityCatalog, proxy: HttpProxy
) -> None:
    proxy.reset()
    with pytest.raises(UnauthenticatedError, match=r"secrets\.file, and are the same") as caught:
        read(ended)
    assert "first" not in str(caught.value)
    assert proxy.counts[READ_SCHEMA] == 1


def test_a_file_with_a_wrong_token_is_tried_once_and_the_next_one_is_used(
    ended: UnityCatalog, proxy: HttpProxy, file: Path
) -> None:
    file.write_text("token: wrong-hush\n")
    proxy.reset()
    with pytest.raises(UnauthenticatedError, match="the new ones are refused, too") as caught:
        read(ended)
    assert "hush" not in str(caught.value)
    assert proxy.counts[READ_SCHEMA] == 2
    file.write_text("token: second\n")
    assert read(ended) == ("c", "s")


def test_a_file_that_is_gone_is_named_and_read_when_it_is_back(
    ended: UnityCatalog, file: Path
) -> None:
    file.unlink()
    with pytest.raises(UnauthenticatedError, match=r"could not be read again.*No such file"):
        read(ended)
    file.write_text("token: second\n")
    assert read(ended) == ("c", "s")


def test_a_token_that_was_given_is_sent_once_and_no_file_is_named(
    server: UnityServer, connect: Connect, proxy: HttpProxy
) -> None:
    server.token = "second"
    with pytest.raises(UnauthenticatedError) as caught:
        read(connect(token="first"))
    assert "again" not in str(caught.value)
    assert proxy.counts[READ_SCHEMA] == 1


def test_ten_threads_read_the_file_once(
    ended: UnityCatalog, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    read_text = Path.read_text

    def counted(path: Path, *args: str, **more: str) -> str:
        opened.extend([path] if path == file else [])
        return read_text(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", counted)
    file.write_text("token: second\n")
    assert race(lambda _: read(ended), THREADS) == [("c", "s")] * THREADS
    assert opened == [file]


def test_a_right_that_is_missing_reads_nothing(
    ended: UnityCatalog, server: UnityServer, proxy: HttpProxy, file: Path
) -> None:
    file.write_text("token: second\n")
    assert read(ended) == ("c", "s")
    file.unlink()
    server.refuse("GET /schemas*")
    proxy.reset()
    with pytest.raises(PermissionDeniedError):
        read(ended)
    assert proxy.counts[READ_SCHEMA] == 1


# -- Databricks ----------------------------------------------------------------------------------


def test_a_personal_token_of_databricks_is_renewed(
    workspace: UnityServer, databricks: Connect, file: Path
) -> None:
    tokens = workspace.databricks.authority.tokens
    tokens.add("first")
    catalog = databricks(token=None, **{"secrets.file": str(file)})
    assert read(catalog) == ("c", "s")
    tokens.clear()
    tokens.add("second")
    file.write_text("token: second\n")
    assert race(lambda _: read(catalog), THREADS) == [("c", "s")] * THREADS
    made = catalog.create_table(TableRecord(TABLE, "s3://bucket/t", {}))
    assert made.path == TABLE


@pytest.mark.parametrize("secret", ["second", "wrong"])
def test_an_oauth_secret_is_renewed(
    workspace: UnityServer, databricks: Connect, file: Path, secret: str
) -> None:
    authority = workspace.databricks.authority
    authority.clients["double-client"] = "first"
    file.write_text("client_secret: first\n")
    given = {"token": None, "client_id": "double-client", "secrets.file": str(file)}
    catalog = databricks(**given)
    assert read(catalog) == ("c", "s")
    authority.revoke()
    authority.clients["double-client"] = "second"
    file.write_text(f"client_secret: {secret}\n")
    before = authority.issued
    if secret == "wrong":
        with pytest.raises(UnauthenticatedError, match="the new ones are refused, too"):
            read(catalog)
        file.write_text("client_secret: second\n")
    assert race(lambda _: read(catalog), THREADS) == [("c", "s")] * THREADS
    assert authority.issued == before + 1


def test_an_oauth_secret_that_is_the_same_is_named(
    workspace: UnityServer, databricks: Connect, file: Path
) -> None:
    file.write_text("client_id: double-client\nclient_secret: wrong-hush\n")
    catalog = databricks(token=None, **{"secrets.file": str(file)})
    with pytest.raises(UnauthenticatedError, match=r"invalid_client.*are the same") as caught:
        read(catalog)
    assert "hush" not in str(caught.value)
    file.write_text("client_id: double-client\nclient_secret: double-secret\n")
    assert read(catalog) == ("c", "s")
    assert workspace.databricks.authority.issued == 1
