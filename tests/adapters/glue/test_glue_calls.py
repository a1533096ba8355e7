"""How many calls an operation needs, and what each of them is for."""

from __future__ import annotations

import pytest
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, HttpProxy

from lance_bridge.testing.build import rows
from lance_bridge_glue import catalog

from .building import BUCKET, Connect

pytestmark = [pytest.mark.servers, pytest.mark.spec("glue.md#connections", "glue.md#declaretable")]

STORAGE = {"managed_by": "storage"}


def place(database: str, name: str) -> str:
    return f"s3://{BUCKET}/{database}/{name}"


def test_a_declaration_reads_the_database_once(
    connect: Connect, proxy: HttpProxy, database: str
) -> None:
    connect().declare_table([database, "t"], location=place(database, "t"))
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}
    proxy.reset()
    connect().declare_table([database, "u"])
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}
    proxy.reset()
    connect().register_table([database, "v"], place(database, "v"))
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}
    proxy.reset()
    connect().create_table([database, "w"], rows(range(3)))
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}


def test_a_declaration_that_says_who_manages_the_table_needs_one_call(
    connect: Connect, proxy: HttpProxy, database: str
) -> None:
    calls = connect()
    calls.declare_table([database, "t"], location=place(database, "t"), properties=STORAGE)
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}
    proxy.reset()
    for name in ("u", "v"):
        calls.declare_table([database, name], location=place(database, name), properties=STORAGE)
    assert proxy.counts == {"CreateTable": 2}


def test_a_namespace_that_asks_for_managed_tables_is_never_missed(
    connect: Connect, server: GlueServer, database: str
) -> None:
    calls = connect()
    calls.declare_table([database, "t"], location=place(database, "t"))
    changed = {"Name": database, "Parameters": {"managed_by": "impl"}}
    server.glue.update_database(Name=database, DatabaseInput=changed)
    calls.declare_table([database, "u"], location=place(database, "u"))
    assert not calls.describe_table([database, "t"]).managed_versioning
    assert calls.describe_table([database, "u"]).managed_versioning


def test_a_database_that_is_gone_is_named_whether_it_was_read_or_not(
    connect: Connect, database: str
) -> None:
    calls, other = connect(), connect()
    calls.declare_table([database, "t"], location=place(database, "t"), properties=STORAGE)
    other.drop_namespace([database], behavior="Cascade")
    for client in (calls, connect()):
        with pytest.raises(NamespaceNotFoundError):
            client.declare_table([database, "u"], location=place(database, "u"), properties=STORAGE)


def test_a_database_of_s3_tables_is_refused_each_time_and_another_after_a_minute(
    connect: Connect, proxy: HttpProxy, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    federated = {"Identifier": "arn:x", "ConnectionName": "aws:s3tables"}
    shown = Answer.of_json(200, {"Database": {"Name": database, "FederatedDatabase": federated}})
    calls = connect()

    def declare(name: str) -> None:
        calls.declare_table([database, name], location=place(database, name), properties=STORAGE)

    for _ in range(2):
        proxy.fail_next("GetDatabase", shown)
        with pytest.raises(InvalidInputError, match="S3 Tables"):
            declare("t")
    monkeypatch.setattr(catalog, "_KIND_SECONDS", 0.0)
    declare("t")
    proxy.fail_next("GetDatabase", shown)
    with pytest.raises(InvalidInputError, match="S3 Tables"):
        declare("u")
    assert proxy.counts["CreateTable"] == 1
