"""Names that several processes broke: doctor finds each, says why, and how to prevent more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from servers.unity import ErrorKind, UnityServer

from lance_bridge.errors import BrokenNameError
from lance_bridge.testing.build import rows
from lance_bridge.testing.calls import Calls
from lance_bridge_doctor import Finding, Kind, diagnose_namespace
from lance_bridge_unity import UnityNamespace
from lance_bridge_unity.errors import UNIQUE_INDEXES

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#concurrent-changes", "cli.md#findings"),
]

LANCE: dict[str, Any] = {"properties": {"table_type": "lance"}, "data_source_format": "TEXT"}


@pytest.fixture
def client(server: UnityServer, tmp_path: Path) -> Iterator[UnityNamespace]:
    with UnityNamespace(host=server.url, root=str(tmp_path / "lake")) as namespace:
        yield namespace


def diagnosed(client: UnityNamespace) -> list[Finding]:
    return list(diagnose_namespace(client, "prod", idle=timedelta(0)).findings)


def break_table(server: UnityServer, name: str = "t", **kind: Any) -> None:
    for number in range(2):
        server.add_table("c", "s", name, storage_location=f"file:///data/{name}{number}", **kind)


@pytest.mark.parametrize("kind", [LANCE, {}], ids=["Lance", "Delta"])
def test_a_broken_name_of_a_table_is_found_with_its_cause_and_the_statements(
    server: UnityServer, client: UnityNamespace, kind: dict[str, Any]
) -> None:
    break_table(server, **kind)
    [found] = diagnosed(client)
    assert (found.kind, found.subject) == (Kind.BROKEN_NAME, "c.s.t")
    assert "several processes created it or renamed to it at the same time" in found.message
    assert "The server's tables have no unique indexes" in found.message
    for place in ("/data/t0", "/data/t1"):
        assert place in found.message
    assert found.message.splitlines()[-3:] == list(UNIQUE_INDEXES)


def test_a_name_of_which_one_entry_is_lances_is_found_once(
    server: UnityServer, client: UnityNamespace
) -> None:
    server.add_table("c", "s", "t", storage_location="file:///data/t1", **LANCE)
    server.add_table("c", "s", "t", storage_location="file:///data/t2")
    assert [each.subject for each in diagnosed(client) if each.kind is Kind.BROKEN_NAME] == [
        "c.s.t"
    ]


@pytest.mark.parametrize("level", ["schema", "catalog"])
def test_a_broken_name_of_a_schema_or_catalog_is_found(
    server: UnityServer, client: UnityNamespace, level: str
) -> None:
    Calls(client).create_table(["c", "s", "whole"], rows(range(3)))
    if level == "schema":
        server.add_schema("c", "twice")
        server.add_schema("c", "twice")
    else:
        server.add_catalog("twice")
        server.add_catalog("twice")
    [found] = diagnosed(client)
    name = "c.twice" if level == "schema" else "twice"
    assert (found.kind, found.subject) == (Kind.BROKEN_NAME, name)
    assert found.message.splitlines()[-3:] == list(UNIQUE_INDEXES)
    assert found.command == "lance-bridge doctor prod"


def test_each_broken_name_is_found_once_in_pages(
    server: UnityServer, client: UnityNamespace, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        break_table(server, name, **LANCE)
        break_table(server, f"{name}_delta")
    (tmp_path / "lake" / "c" / "s.db" / "empty.lance").mkdir(parents=True)
    found: list[str] = []
    token = None
    for _ in range(9):
        page = diagnose_namespace(client, "prod", limit=1, page_token=token, idle=timedelta(0))
        found += [each.subject for each in page.findings if each.kind is Kind.BROKEN_NAME]
        token = page.page_token
        if token is None:
            break
    assert sorted(found) == ["c.s.a", "c.s.a_delta", "c.s.b", "c.s.b_delta"]


def test_a_server_that_fails_otherwise_is_no_broken_name(
    server: UnityServer, client: UnityNamespace
) -> None:
    server.refuse("GET /tables", ErrorKind(500, "INTERNAL"), "out of order")
    assert {each.kind for each in diagnosed(client)} == {Kind.CATALOG}


def test_an_error_about_a_broken_name_has_the_statements_apart(
    server: UnityServer, client: UnityNamespace
) -> None:
    break_table(server, **LANCE)
    with pytest.raises(BrokenNameError, match="Several entries of the server") as error:
        Calls(client).describe_table(["c", "s", "t"])
    assert "CREATE UNIQUE INDEX" not in str(error.value)
    assert [line for line in error.value.remedy.splitlines() if line in UNIQUE_INDEXES] == list(
        UNIQUE_INDEXES
    )


def test_the_pages_have_the_statements() -> None:
    top = Path(__file__).parents[3]
    for page in ("docs/how-to/unity.md", "specs/unity.md"):
        text = (top / page).read_text(encoding="utf-8")
        assert all(statement in text for statement in UNIQUE_INDEXES), page
