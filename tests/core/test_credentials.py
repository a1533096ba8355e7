"""Vended credentials: one request for many callers, and renewed in time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import TableCredentials, TableRecord
from lance_bridge.credentials import EXPIRES_AT, VendedCredentials, sources

from .memory_catalog import TABLE, MemoryCatalog, MemoryConfig, MemoryNamespace, MemoryServer

pytestmark = pytest.mark.quick

REMOTE = "s3://bucket/t.lance"
CONFIG = MemoryConfig(uri="unused")
RECORD = TableRecord(tuple(TABLE), REMOTE)


class Vending(MemoryCatalog):
    """Vends numbered keys that last for ``lifetime`` seconds; notes whether for writing."""

    def __init__(self, lifetime: float = 3600.0) -> None:
        super().__init__(CONFIG)
        self.lifetime = lifetime
        self.asked: list[bool] = []
        self.failing: errors.LanceNamespaceError | None = None

    def vend_credentials(self, record: TableRecord, *, write: bool) -> Mapping[str, str] | None:
        assert record.location == REMOTE
        self.asked.append(write)
        if self.failing is not None:
            raise self.failing
        end = str(int((time.time() + self.lifetime) * 1000))
        return {"key": str(len(self.asked)), EXPIRES_AT: end}


@pytest.mark.spec("common.md#rights-and-lifetime")
def test_those_of_a_catalog_are_kept_for_half_an_hour_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that is behind, they would seem to live for longer."""
    catalog = Vending(86_400.0)
    credentials = VendedCredentials(catalog, CONFIG)
    credentials.of(RECORD, write=False)
    for passed, asked in ((1795, 1), (1805, 2)):
        now = time.time() + passed
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda now=now: now)
            credentials.of(RECORD, write=False)
        assert len(catalog.asked) == asked


def test_those_to_read_are_never_given_to_a_writer() -> None:
    catalog = Vending()
    credentials = VendedCredentials(catalog, CONFIG)
    assert credentials.of(RECORD, write=False)["key"] == "1"
    assert credentials.of(RECORD, write=True)["key"] == "2"
    assert catalog.asked == [False, True]


def test_a_recreated_table_gets_new_ones() -> None:
    catalog = Vending()
    credentials = VendedCredentials(catalog, CONFIG)
    one = TableRecord(tuple(TABLE), REMOTE, identity="1")
    other = TableRecord(tuple(TABLE), REMOTE, identity="2")
    assert credentials.of(one, write=False) != credentials.of(other, write=False)


def test_a_failure_is_not_kept() -> None:
    catalog = Vending()
    catalog.failing = errors.PermissionDeniedError("no")
    credentials = VendedCredentials(catalog, CONFIG)
    with pytest.raises(errors.PermissionDeniedError):
        credentials.of(RECORD, write=False)
    catalog.failing = None
    assert credentials.of(RECORD, write=False)["key"] == "2"


def test_the_secrets_are_in_no_repr() -> None:
    assert "hidden" not in repr(sources._Entry({"key": "hidden"}, 0.0, 0.0))


@pytest.fixture
def vending(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have catalogs vend, and return what they are asked for: a list of "for writing"."""
    asked: list[bool] = []

    def vend(_: Any, record: TableRecord, *, write: bool) -> Mapping[str, str]:
        asked.append(write)
        return {"aws_access_key_id": f"{record.location}"}

    monkeypatch.setattr(MemoryCatalog, "vend_credentials", vend)
    return asked


def test_a_local_table_needs_none(namespace: MemoryNamespace, vending: list[bool]) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    answer = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert answer.storage_options is None
    assert vending == []


@pytest.mark.spec("common.md#security")
@pytest.mark.parametrize("wanted", [True, None, False])
@pytest.mark.parametrize(
    "vendor",
    [
        {},
        {"credentials.vendor": "none"},
        {"credentials.vendor": "static", "credentials.allowed_roots": "s3://b/lake"},
        {"credentials.lake.vendor": "none", "credentials.lake.prefix": "s3://b/lake"},
    ],
    ids=["no vendor", "none", "static", "of a prefix"],
)
def test_a_local_table_is_returned_without_the_keys_of_stores(
    server: MemoryServer,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    vendor: dict[str, str],
    wanted: bool | None,
) -> None:
    assert not server.effects
    options = {
        "storage.aws_access_key_id": "known",
        "storage.aws_secret_access_key": "hidden",
        "storage.aws_region": "eu-central-1",
    }
    root = str(tmp_path / "lake")
    namespace = MemoryNamespace(uri=request.node.nodeid, root=root, **options, **vendor)
    declared = api.DeclareTableRequest(id=TABLE, vend_credentials=wanted)
    described = api.DescribeTableRequest(id=TABLE, vend_credentials=wanted)
    shown = {"aws_region": "eu-central-1"}
    assert namespace.declare_table(declared).storage_options == shown
    assert namespace.describe_table(described).storage_options == shown


@pytest.mark.parametrize("wanted", [True, None])
def test_describe_asks_for_reading_and_declare_for_writing(
    namespace: MemoryNamespace, vending: list[bool], wanted: bool | None
) -> None:
    request = api.DeclareTableRequest(id=TABLE, location=REMOTE, vend_credentials=wanted)
    assert namespace.declare_table(request).storage_options == {"aws_access_key_id": REMOTE}
    described = api.DescribeTableRequest(id=TABLE, vend_credentials=wanted)
    assert namespace.describe_table(described).storage_options == {"aws_access_key_id": REMOTE}
    assert vending == [True, False]


@pytest.mark.spec("glue.md#declaretable")
@pytest.mark.parametrize("undone", [True, False])
def test_a_table_that_no_credentials_are_given_for_is_not_declared(
    namespace: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    undone: bool,
) -> None:
    def refuse(_: Any, record: TableRecord, *, write: bool) -> Mapping[str, str]:
        raise errors.PermissionDeniedError(
            f"no caller may {'write' if write else 'read'} {record.location}"
        )

    def fail(change: str, moment: str) -> None:
        if (change, moment) == ("drop_table", "before") and not undone:
            raise errors.ThrottlingError("slowly")

    monkeypatch.setattr(MemoryCatalog, "vend_credentials", refuse)
    namespace.server.fault = fail
    with pytest.raises(errors.PermissionDeniedError, match="no caller may write s3://bucket"):
        namespace.declare_table(api.DeclareTableRequest(id=TABLE, location=REMOTE))
    assert (tuple(TABLE) not in namespace.server.tables) is undone
    assert ("stays" in caplog.text) is not undone


def test_who_brings_their_own_credentials_gets_no_secret(
    server: MemoryServer, request: pytest.FixtureRequest, vending: list[bool]
) -> None:
    given = {
        "storage.aws_access_key_id": "known",
        "storage.aws_secret_access_key": "hidden",
        "storage.azure_storage_sas_key": "hidden",
        "storage.proxy_url": "http://me:hidden@proxy",
        "storage.aws_region": "eu-central-1",
        "storage.aws_endpoint": "http://127.0.0.1:9000",
    }
    namespace = MemoryNamespace(uri=request.node.nodeid, **given)
    server.tables[tuple(TABLE)] = TableRecord(tuple(TABLE), REMOTE, {"table_type": "lance"})
    shown = {"aws_region": "eu-central-1", "aws_endpoint": "http://127.0.0.1:9000"}
    described = api.DescribeTableRequest(id=TABLE, vend_credentials=False)
    assert namespace.describe_table(described).storage_options == shown
    other = [*TABLE[:-1], "other"]
    declared = api.DeclareTableRequest(id=other, location=f"{REMOTE}/x", vend_credentials=False)
    assert namespace.declare_table(declared).storage_options == shown
    assert vending == []
    everything = namespace.describe_table(api.DescribeTableRequest(id=TABLE)).storage_options
    assert everything is not None
    assert everything["aws_secret_access_key"] == "hidden"


def test_credentials_for_one_table_are_answered_without_those_of_the_configuration(
    server: MemoryServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    vended = {"azure_storage_sas_token": "of the table", EXPIRES_AT: "1"}

    def vend(_: Any, record: TableRecord, *, write: bool) -> Mapping[str, str]:  # noqa: ARG001
        return TableCredentials(vended)

    monkeypatch.setattr(MemoryCatalog, "vend_credentials", vend)
    given = {
        "storage.azure_storage_account_name": "lake",
        "storage.azure_storage_account_key": "of the account",
        "storage.azure_storage_client_id": "of the account",
        "storage.azure_storage_object_id": "of the account",
        "storage.aws_role_arn": "of the account",
    }
    namespace = MemoryNamespace(uri=request.node.nodeid, **given)
    server.tables[tuple(TABLE)] = TableRecord(tuple(TABLE), REMOTE, {"table_type": "lance"})
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE)).storage_options
    assert described == {"azure_storage_account_name": "lake", **vended}
    assert described == namespace.tables.load_by_id(TABLE).storage_options()
