"""Addresses of what is behind the server: in its log, and in none of its answers."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError
from server.http_requests import refused
from server.serving import serving_namespace
from server.test_answers import Failure

import lance_bridge
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server import hidden_addresses, secret_values
from lance_bridge_server.catalogs import connect_catalogs
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.secret_values import SecretValues

pytestmark = pytest.mark.spec("server.md#responses")


CONFIGURED = {"uri": "thrift://metastore:9083,thrift://hms.internal:9083"}
NOTE = " (the server's log has the addresses)"


@pytest.mark.servers
def test_catalogs_that_are_down_are_named_without_their_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    http = f"http://localhost:{port}"
    keys = {"region": "eu-west-1", "access_key_id": "key", "secret_access_key": "x" * 20}
    catalogs = {
        "hive": {"uri": f"thrift://localhost:{port}", "client.retry-timeout": "0"},
        "over_http": {"impl": "hive", "uri": f"{http}/hms", "client.retry-timeout": "0"},
        "glue": {"endpoint": http, "max_retries": "0", **keys},
        "unity": {"endpoint": http, "max_retries": "0"},
        "rest": {"uri": http},
    }
    settings = ServerSettings.model_validate({"catalogs": catalogs})
    with serving_namespace(FederatedNamespace(connect_catalogs(settings, {}))) as url:
        errors = {
            name: refused(httpx.get(f"{url}/v1/namespace/{name}/list", timeout=60), 503, 17)
            for name in catalogs
        }
        left_out = httpx.get(f"{url}/v1/table", timeout=60).json()["context"]
    assert left_out.keys() == {f"unavailable.{name}" for name in catalogs}
    for name, text in errors.items():
        assert f"(in {name}){NOTE}" in text
        assert f"(in {name})" in left_out[f"unavailable.{name}"] or name == "rest"  # it is long
    for text in (*errors.values(), *left_out.values()):
        assert "[address]" in text
        assert str(port) not in text
        assert "localhost" not in text
    logged = [each.getMessage() for each in caplog.records if each.name.endswith("server.errors")]
    assert len(logged) == 2 * len(catalogs)
    assert all(str(port) in each for each in logged)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = SecretValues("[address]")
    directory = lance_bridge.connect("dir", {"root": str(tmp_path)})
    known.add(hidden_addresses.hosts_of(directory, CONFIGURED))
    monkeypatch.setattr(hidden_addresses, "HOSTS", known)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("thrift://[::1]:9083: timed out", "[address]: timed out" + NOTE),
        ("call to 10.1.2.3 or [fe80::1]:90 failed", "call to [address] or [address] failed" + NOTE),
        ("HTTPPool(host='m', port=80)", "HTTPPool(host='[address]', port=80)" + NOTE),
        ("metastore:9083, a.b:443", "[address], [address]" + NOTE),
        ("not 'hms.internal' or 'metastore'", "not '[address]' or [address]" + NOTE),
        ("metastore: s3://lake/t.lance of db.t at 12:30:45", None),
    ],
)
@pytest.mark.usefixtures("hosts")
def test_addresses_are_hidden_and_other_texts_stay(
    failure: Failure, error: str, text: str | None
) -> None:
    assert refused(failure(ServiceUnavailableError(error)), 503, 17) == (text or error)


@pytest.mark.quick
@pytest.mark.parametrize("known", ["thrift://x:9083", "hms.internal"])
@pytest.mark.usefixtures("hosts")
def test_what_the_client_has_sent_is_repeated(failure: Failure, known: str) -> None:
    error: LanceNamespaceError = InvalidInputError("No store: http://mine.example.com:80/x")
    assert "http://mine.example.com:80/x" in refused(failure(error), 400, 13)
    assert known not in refused(failure(InvalidInputError(f"older: {known}")), 400, 13)


@pytest.mark.quick
def test_settings_of_credentials_are_words_of_answers_and_options_of_vendors_are_not() -> None:
    vendor = {"vendor": "core.vending.NotedVendor", "log": "s3cr3t-of-a-vendor"}
    given = {f"credentials.{key}": value for key, value in vendor.items()}
    storage = {"storage.aws_secret_access_key": "s3cr3t-of-storage", "storage.aws_region": "moon-1"}
    properties = {**given, **storage, "credentials.allowed_roots": "s3://lake/tables"}
    namespace = lance_bridge.connect("hive", {"uri": "thrift://localhost:1", **properties})
    secrets = set(secret_values.secrets_of(namespace, properties))
    assert secrets == {"s3cr3t-of-a-vendor", "s3cr3t-of-storage"}
