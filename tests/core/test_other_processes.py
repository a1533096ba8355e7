"""Namespaces in other processes: pickled, without their secrets, and in forked children.

At a fork, threads of the parent hold locks, and wait for answers.
"""

from __future__ import annotations

import copy
import logging
import pickle
import re
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from lance_namespace import errors
from servers.processes import returns_in_child

import lance_bridge
from lance_bridge import catalog
from lance_bridge import namespace as namespace_module
from lance_bridge.catalog import TableRecord
from lance_bridge.credentials import CredentialCache
from lance_bridge.forks import restart_in_children
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge_glue import GlueNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_unity import UnityNamespace

from .memory_catalog import (
    BEFORE,
    TABLE,
    VENDOR,
    MemoryCatalog,
    MemoryNamespace,
    MemoryServer,
    count_rows,
    create,
    described,
    put,
    raiser,
)

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#security", "common.md#concurrency-and-crash-safety"),
]

TOKEN = "t0p-secret-token"
STORE_SECRET = "very/secret+key"
WAIT = 20


@pytest.fixture
def with_secrets(
    server: MemoryServer, request: pytest.FixtureRequest, tmp_path: Path
) -> dict[str, str]:
    assert not server.effects
    return {
        "uri": request.node.nodeid,
        "root": str(tmp_path / "lake"),
        "token": TOKEN,
        "storage.aws_access_key_id": "known",
        "storage.aws_secret_access_key": STORE_SECRET,
    }


def test_a_pickle_carries_no_secret_and_takes_them_from_the_environment(
    with_secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = MemoryNamespace(**with_secrets)
    create(namespace, TABLE)
    content = pickle.dumps(namespace)
    for secret in (TOKEN, STORE_SECRET):
        assert secret.encode() not in content
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "from the environment")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_STORAGE_AWS_SECRET_ACCESS_KEY", "also")
    other = pickle.loads(content)
    config = other.connection.config
    assert config.token.get_secret_value() == "from the environment"
    assert config.storage == {"aws_access_key_id": "known", "aws_secret_access_key": "also"}
    assert other.describe_connection() == namespace.describe_connection()
    assert count_rows(other, TABLE) == 3


@pytest.mark.parametrize(
    "option", ["proxy_url", "google_service_account", "default_headers", "sas", "unheard_of"]
)
def test_a_pickle_carries_no_storage_option_that_may_be_secret(
    with_secrets: dict[str, str], option: str
) -> None:
    value = "https://me:hunter2@proxy"
    namespace = MemoryNamespace(**with_secrets, **{f"storage.{option}": value})
    content = pickle.dumps(namespace)
    assert value.encode() not in content
    assert pickle.loads(content).connection.config.storage == {"aws_access_key_id": "known"}


# -- secrets that the other side lacks -----------------------------------------------------------

NEED_THEIR_SECRETS = [
    (
        GlueNamespace,
        {
            "region": "eu-central-1",
            "access_key_id": "known",
            "secret_access_key": TOKEN,
            "session_token": STORE_SECRET,
        },
        ["LANCE_BRIDGE_GLUE_SECRET_ACCESS_KEY", "LANCE_BRIDGE_GLUE_SESSION_TOKEN"],
    ),
    (
        HiveNamespace,
        {
            "uri": "thrift://metastore:9083",
            "auth.mechanism": "plain",
            "auth.username": "ann",
            "auth.password": TOKEN,
            "storage.aws_secret_access_key": STORE_SECRET,
        },
        ["LANCE_BRIDGE_HIVE_AUTH_PASSWORD", "LANCE_BRIDGE_HIVE_STORAGE_AWS_SECRET_ACCESS_KEY"],
    ),
    (
        UnityNamespace,
        {"host": "https://unity.invalid", "client_id": "known", "client_secret": TOKEN},
        ["LANCE_BRIDGE_UNITY_CLIENT_SECRET"],
    ),
]


@pytest.mark.parametrize(
    ("adapter", "properties", "variables"), NEED_THEIR_SECRETS, ids=["glue", "hive", "unity"]
)
def test_an_error_for_missing_secrets_says_that_the_pickle_left_them_out(
    adapter: type[LanceBridgeNamespace],
    properties: dict[str, str],
    variables: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    namespace = adapter(**properties)
    content = pickle.dumps(namespace)
    with pytest.raises(errors.InvalidInputError, match="pickled without its secrets") as caught:
        pickle.loads(content)
    said = str(caught.value)
    assert TOKEN not in said
    assert STORE_SECRET not in said
    assert "pickle.secrets=true" in said
    assert re.findall(r"\$(\w+)", said) == variables
    for variable in variables:
        monkeypatch.setenv(variable, "from-here")
    assert pickle.loads(content).describe_connection() == namespace.describe_connection()

    for variable in variables:
        monkeypatch.delenv(variable)
    carrying = adapter(**properties, **{"pickle.secrets": "true"})
    assert pickle.loads(pickle.dumps(carrying)).namespace_id() == namespace.namespace_id()


def test_the_error_names_the_variables_of_a_configured_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "catalogs.yaml"
    path.write_text("catalogs:\n  prod: {impl: glue, region: eu-central-1, access_key_id: known}\n")
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    monkeypatch.setenv("LANCE_BRIDGE_PROD_SECRET_ACCESS_KEY", TOKEN)
    content = pickle.dumps(lance_bridge.connect("prod"))
    monkeypatch.delenv("LANCE_BRIDGE_PROD_SECRET_ACCESS_KEY")
    with pytest.raises(errors.InvalidInputError, match=r"\$LANCE_BRIDGE_PROD_SECRET_ACCESS_KEY"):
        pickle.loads(content)
    monkeypatch.setenv("LANCE_BRIDGE_GLUE_SECRET_ACCESS_KEY", "of-the-implementation")
    assert pickle.loads(content).configured_name == "prod"


def test_a_namespace_that_can_do_without_its_secrets_logs_once_which_are_missing(
    with_secrets: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    namespace_module.warn_once.cache_clear()
    content = pickle.dumps(MemoryNamespace(**with_secrets))
    loaded = pickle.loads(content)
    pickle.loads(content)
    pickle.loads(pickle.dumps(loaded))  # nor does the second pickle carry them
    [said] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "(storage.aws_secret_access_key, token)" in said
    assert "$LANCE_BRIDGE_MEMORY_STORAGE_AWS_SECRET_ACCESS_KEY, $LANCE_BRIDGE_MEMORY_TOKEN" in said
    assert TOKEN not in said

    caplog.clear()
    namespace_module.warn_once.cache_clear()
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "here")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_STORAGE_AWS_SECRET_ACCESS_KEY", "here")
    pickle.loads(content)
    assert not caplog.records


def test_a_secret_that_no_variable_can_have_is_advised_to_be_in_a_file(
    with_secrets: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    namespace_module.warn_once.cache_clear()
    archive = {
        "credentials.archive.vendor": VENDOR,
        "credentials.archive.prefix": "s3://lake/archive",
        "credentials.archive.log": "pickled",
    }
    content = pickle.dumps(MemoryNamespace(**with_secrets, **archive))
    with pytest.raises(errors.InvalidInputError, match=r"credentials\.archive\.log") as caught:
        pickle.loads(content)
    said = str(caught.value)
    assert "set in the file that secrets.file names: credentials.archive.log" in said
    assert "$LANCE_BRIDGE_MEMORY_TOKEN" in said
    assert "ARCHIVE_LOG" not in said

    secrets = {**with_secrets, **archive}
    names = ("token", "storage.aws_secret_access_key", "credentials.archive.log")
    path = tmp_path / "secrets.yaml"
    path.write_text("".join(f"{name}: {secrets[name]}\n" for name in names))
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_SECRETS_FILE", str(path))
    pickle.loads(content)
    assert not caplog.records


def test_an_error_that_is_not_about_secrets_stays_as_it_is(
    with_secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del with_secrets["token"], with_secrets["storage.aws_secret_access_key"]
    content = pickle.dumps(MemoryNamespace(**with_secrets))
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_CLIENT_RETRIES", "many")
    with pytest.raises(errors.InvalidInputError, match=r"client\.retries") as caught:
        pickle.loads(content)
    assert "pickle" not in str(caught.value)


# -- copies, and namespaces whose constructor failed ---------------------------------------------


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_a_copy_has_the_secrets_and_connections_of_its_own(
    make: Any, with_secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_STORAGE_AWS_SESSION_TOKEN", "of the environment")
    namespace = MemoryNamespace(**with_secrets)
    monkeypatch.delenv("LANCE_BRIDGE_MEMORY_STORAGE_AWS_SESSION_TOKEN")
    create(namespace, TABLE)
    other = make({"of": namespace})["of"] if make is copy.deepcopy else make(namespace)
    assert other is not namespace
    assert other.catalog is not namespace.catalog
    assert other.connection.config == namespace.connection.config
    assert other.connection.config.storage["aws_session_token"] == "of the environment"
    assert count_rows(other, TABLE) == 3
    other.close()
    assert TOKEN.encode() not in pickle.dumps(other)


def test_a_copy_of_a_namespace_with_a_client_has_the_same_client() -> None:
    client = boto3.client("glue", region_name="eu-central-1")
    other = copy.deepcopy(GlueNamespace(client=client))
    assert other._client is client


@pytest.mark.parametrize("kind", [GlueNamespace, HiveNamespace, UnityNamespace, MemoryNamespace])
def test_a_namespace_whose_constructor_failed_can_be_shown(
    kind: type[LanceBridgeNamespace],
) -> None:
    half = kind.__new__(kind)
    with pytest.raises(errors.InvalidInputError):
        half.__init__(nothing=TOKEN)  # type: ignore[misc]  # as an error's report finds it
    assert repr(half) == f"<{kind.__name__}, not connected>"


# -- forked children -------------------------------------------------------------------------------


class Held:
    """An object whose lock is held at the fork."""

    def __init__(self) -> None:
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        self.lock = threading.Lock()


def test_objects_restart_in_children_and_in_their_children() -> None:
    held = Held()

    def lock() -> None:
        assert held.lock.acquire(timeout=WAIT)

    def lock_and_fork() -> None:
        with held.lock:
            assert returns_in_child(lock)

    with held.lock:
        assert returns_in_child(lock_and_fork)
    assert held.lock.acquire(blocking=False)


def test_a_child_requests_credentials_that_its_parent_waits_for() -> None:
    cache, started, gate = CredentialCache(), threading.Event(), threading.Event()

    def vend() -> Mapping[str, str]:
        started.set()
        gate.wait(WAIT)
        return {"key": "parent's"}

    def ask_in_child() -> None:
        assert cache.get("table", lambda: {"key": "child's"}, most_seconds=60) == {"key": "child's"}

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(cache.get, "table", vend, most_seconds=60)
        assert started.wait(WAIT)
        try:
            assert returns_in_child(ask_in_child)
        finally:
            gate.set()
        assert waiting.result(WAIT) == {"key": "parent's"}


def test_a_child_has_the_credentials_that_its_parent_cached(
    vending: MemoryNamespace, log: str
) -> None:
    options = described(vending)

    def ask_in_child() -> None:
        BEFORE[log] = raiser(AssertionError("The child has called the vendor"))
        assert described(vending) == options

    assert returns_in_child(ask_in_child)


def test_a_child_reads_the_locations_that_its_parent_is_reading(
    vending: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, gate, scan = threading.Event(), threading.Event(), MemoryCatalog.scan_tables
    put(server, "other", "s3://lake/tables/other.lance")

    def scan_slowly(
        self: MemoryCatalog, namespace: catalog.Path, **more: bool
    ) -> Iterable[TableRecord]:
        started.set()
        gate.wait(WAIT)
        return scan(self, namespace, **more)  # type: ignore[arg-type]  # what it was called with

    def ask_in_child() -> None:
        monkeypatch.setattr(MemoryCatalog, "scan_tables", scan)
        assert described(vending, "other")

    monkeypatch.setattr(MemoryCatalog, "scan_tables", scan_slowly)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(described, vending, TABLE[-1])
        assert started.wait(WAIT)
        try:
            assert returns_in_child(ask_in_child)
        finally:
            gate.set()
        assert waiting.result(WAIT)
