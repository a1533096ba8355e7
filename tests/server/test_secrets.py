"""Credentials: in nothing that a server answers or prints, renewed, and each principal's own."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import lance
import lancedb
import pyarrow as pa
import pytest
from adapters.vendors.grants import BUCKET, TABLE, aws_properties, memory_namespace
from core.secret_search import hadoop_token
from lance.lance import _Session
from lance_namespace import LanceNamespace
from servers.glue_server import ROLE, GlueServer
from servers.http_proxy import Answer, HttpProxy
from servers.metastores import Metastores
from servers.object_stores import REGION
from servers.unity import OPEN_SOURCE_0_6, Bucket, UnityServer
from stores.short_lived import ShortLivedAws, key_of

import lance_bridge
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import implementation
from lance_bridge.testing.calls import ipc
from lance_bridge.testing.concurrency import race
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.access.authentication import ApiKeyFile
from lance_bridge_server.config import ServerSettings
from lance_bridge_server.operations import OPERATIONS
from lance_bridge_server.redaction import SECRETS
from lance_bridge_server.run.catalogs import check, connect_catalogs, root_namespace

from .authenticated import AUDIENCE, LIST, identity_provider, serve, write_config
from .gateways import ARROW, ROWS, NamedByHeader, cedar, done, refused, request_for, serve_namespace
from .test_http import NOTE

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "clients.md#several-principals-in-one-process",
        "common.md#secrets-that-change",
        "docs/gateway-clients.md#several-users-in-one-process",
        "server.md#storage-options-in-responses",
    ),
]

_NO_RETRY = {"client.retry-timeout": "0", "client.timeout": "3", "client.connect-timeout": "3"}
THREADS = 10
UNAUTHENTICATED = (401, 16)
LIST_IN = "/v1/namespace/{}/list"
FIRST, SECOND, WRONG = "first-hush-token", "second-hush-token", "wrong-hush-token"
POLICIES = """
permit(principal == User::"writer", action, resource);
permit(principal == User::"reader", action in Action::"read", resource);
"""


class _Echo(BaseHTTPRequestHandler):
    """Answers with an error that repeats the request."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        text = f"{self.path} {dict(self.headers)} {self.rfile.read(length)!r}"
        error = {"message": text, "error": text, "error_code": "BAD", "code": 13, "__type": "Bad"}
        body = json.dumps(error).encode()
        self.send_response(400, text.replace("\n", " ")[:200])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def echo() -> Iterator[str]:
    """Serve errors that repeat what they answer; yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Secrets:
    """Makes values that are found again."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def new(self) -> str:
        self.values.append(f"Zq9{len(self.values):03}xSecretValue")
        return self.values[-1]

    def storage(self) -> dict[str, str]:
        """Return options of every store that are secret, and some that are not known."""
        names = (
            "aws_secret_access_key", "aws_session_token", "azure_storage_sas_key", "unheard_of",
            "aws_access_key_id",
            "azure_storage_account_key", "google_service_account_key", "proxy_url",
            "azure_client_secret", "azure_storage_token", "google_storage_token",
        )  # fmt: skip
        return {
            f"storage.{name}": f"http://u:{self.new()}@h" if name == "proxy_url" else self.new()
            for name in names
        }


@contextmanager
def catalogs(
    secrets: Secrets, directory: Path, metastores: Metastores
) -> Iterator[dict[str, dict[str, str]]]:
    """Yield catalogs with every secret property. Those whose names end in _echo repeat them."""
    thrift = f"thrift://127.0.0.1:{metastores.get('2.3').port}"
    with GlueServer() as aws, UnityServer(OPEN_SOURCE_0_6) as unity, echo() as url:
        aws.make_bucket("lake")
        unity.credentials.buckets["s3://lake"] = Bucket("VENDED", "vended-for-the-table")
        unity.add_catalog("main")
        keys = {
            "region": REGION,
            "access_key_id": secrets.new(),
            "secret_access_key": secrets.new(),
            "session_token": secrets.new(),
        }
        storage = {"storage.aws_endpoint": aws.endpoint, "storage.allow_http": "true"}
        glue = {"impl": "glue", **keys, "endpoint": aws.endpoint, "root": "s3://lake/g", **storage}
        sasl = {"auth.mechanism": "plain", "auth.username": "u", "auth.password": secrets.new()}
        token = hadoop_token(secrets.new())
        secrets.values.append(token)
        sasl_token = {"auth.mechanism": "delegation-token", "auth.token": token}
        unity_url = {"impl": "unity", "host": unity.url, "root": "s3://lake/u", **storage}
        yield {
            "glue": glue,
            "role": {**glue, "assume_role_arn": ROLE, "assume_role_endpoint": aws.endpoint},
            "glue_echo": {**glue, "endpoint": url, "max_retries": "0"},
            "hive": {"impl": "hive", "uri": thrift, "root": str(directory), **secrets.storage()},
            "hive_sasl": {"impl": "hive", "uri": thrift, **sasl, **_NO_RETRY},
            "hive_token": {"impl": "hive", "uri": thrift, **sasl_token, **_NO_RETRY},
            "hive_echo": {
                "impl": "hive",
                "uri": f"{url}/metastore",
                "http.token": secrets.new(),
                **_NO_RETRY,
            },
            "unity": {**unity_url, "token": secrets.new(), "credentials.vend": "true"},
            "unity_echo": {"impl": "unity", "host": url, "auth_token": secrets.new()},
            "unity_login": {
                "impl": "unity",
                "host": url,
                "client_id": "c",
                "client_secret": secrets.new(),
                "max_retries": "0",
            },
            "dir": {"impl": "dir", "root": str(directory / "dir"), **secrets.storage()},
            "rest_echo": {"impl": "rest", "uri": url, "header.authorization": secrets.new()},
        }


def secret_keys(impl: str) -> set[str]:
    """Return the secret properties of an implementation of ours."""
    kind = implementation(impl)
    if not issubclass(kind, LanceBridgeNamespace):
        return set()
    return {each.key for each in kind.config_type.declared() if each.secret}


class Everything:
    """What a server has answered."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.text = ""

    def send(self, **request: Any) -> httpx.Response:
        path = request.pop("path")
        answer = self._http.request(request.pop("method"), path, **request)
        content = answer.content.decode("latin-1")
        self.text += f"{path} {answer.status_code} {answer.headers} {content}\n"
        return answer

    def create(self, path: str) -> Any:
        """Create a table of rows."""
        rows = {"content": ipc(ROWS), "headers": {"content-type": ARROW}}
        return done(self.send(method="POST", path=f"/v1/table/{path}/create", **rows))

    def post(self, path: str, body: Any = None) -> Any:
        return done(self.send(method="POST", path=path, json=body or {}))


@pytest.mark.spec("server.md#authentication", "server.md#keys-of-the-configuration")
def test_no_secret_leaves_the_server(
    tmp_path: Path, metastores: Metastores, keys: ApiKeyFile
) -> None:
    secrets = Secrets()
    key, entry = keys.add("ann")
    with (
        catalogs(secrets, tmp_path, metastores) as configured,
        identity_provider("okta") as provider,
    ):
        for impl in lance_bridge.catalogs():
            given = {name for each in configured.values() if each["impl"] == impl for name in each}
            assert secret_keys(impl) <= given, f"{impl} has a secret property without a value here"
        config = write_config(
            tmp_path,
            catalogs=configured,
            listeners=[{"port": 0}],
            authentication=[
                {"method": "api_keys", "file": str(keys.path)},
                {"method": "oidc", "issuer": provider.issuer, "audiences": [AUDIENCE]},
            ],
            audit={"to": str(tmp_path / "audit")},
            log={"level": "debug", "format": "json"},
        )
        good, bad = provider.token(), provider.token(aud="other")
        credentials = [key, f"{key[:-1]}_", good, bad, f"{good}x", "a-password"]
        with serve("--config", str(config)) as served:
            with httpx.Client(base_url=served.url) as http:
                tried = Everything(http)
                statuses = [
                    tried.send(method="GET", path=LIST, headers=headers).status_code
                    for each in credentials
                    for headers in ({"x-api-key": each}, {"authorization": f"Bearer {each}"})
                ]
            headers = {"x-api-key": key}
            with httpx.Client(base_url=served.url, headers=headers, timeout=60) as http:
                everything = Everything(http)
                answers = _use_tables(everything)
                for name in configured:
                    for operation in OPERATIONS:
                        everything.send(**request_for(operation, [*_path(name), "t"]))
                for path in ("/livez", "/readyz", "/metrics"):
                    everything.send(method="GET", path=path)
                keys.path.write_text("{")
                everything.send(method="GET", path=LIST)
            code, out, error = served.stop()
    assert code == 0, error
    assert everything.text.count("\n") > len(OPERATIONS) * len(configured)
    assert "DEBUG" in error or '"debug"' in error
    audit = (tmp_path / "audit").read_text()
    assert Counter(statuses) == {200: 4, 401: 8}
    assert str(keys.path) in error
    secret = [*secrets.values, *credentials, key.split("_", 2)[2], entry.hash, entry.salt]
    answered = tried.text + everything.text
    printed = {"answers": answered, "output": out, "log": error, "audit": audit}
    for where, text in printed.items():
        assert [each for each in secret if each in text] == [], where
    assert answers["unity"]["aws_secret_access_key"] == "vended-for-the-table"
    for name in ("glue", "role"):
        assert set(answers[name]) == {"aws_region", "aws_endpoint", "allow_http"}
    assert answers["hive"] == answers["dir"] == {}


def _path(catalog: str) -> list[str]:
    return [catalog, "main", "db"] if catalog.startswith("unity") else [catalog, "db"]


def _use_tables(everything: Everything) -> dict[str, dict[str, str]]:
    """Create, declare and describe tables in each catalog that works; return storage options."""
    found = {}
    for catalog in ("glue", "role", "hive", "unity", "dir"):
        namespace = "$".join(_path(catalog))
        everything.post(f"/v1/namespace/{namespace}/create", {"mode": "ExistOk"})
        table = f"{namespace}${catalog}_t"
        declared = everything.post(f"/v1/table/{table}/declare")
        names = [*_path(catalog), f"{catalog}_batch"]
        if catalog != "dir":
            batch = {"operations": [{"declare_table": {"id": names}}]}
            everything.post("/v1/table/batch-commit", batch)
        if catalog not in ("unity", "dir"):
            everything.create(f"{namespace}${catalog}_rows")
        described = everything.post(f"/v1/table/{table}/describe", {"vend_credentials": True})
        assert (
            described.get("storage_options", {}).keys()
            == declared.get("storage_options", {}).keys()
        )
        found[catalog] = described.get("storage_options", {})
    return found


def test_a_check_hides_the_secrets_of_its_catalogs() -> None:
    secret = "hunter22-of-a-check"

    class Failing(LanceNamespace):
        def namespace_id(self) -> str:
            return "failing"

        def list_namespaces(self, _: Any) -> Any:
            raise ValueError(f"login failed with {secret}")

    SECRETS.add([secret])
    settings = ServerSettings.model_validate({"catalogs": {"prod": {"impl": "x.Failing"}}})
    [found] = check(settings, {"prod": Failing()}, 5.0)
    assert "login failed with" in found["problem"]
    assert secret not in found["problem"]


@pytest.mark.spec("server.md#responses")
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
    with serve_namespace(FederatedNamespace(connect_catalogs(settings, {}))) as url:
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


# -- secrets that are renewed ----------------------------------------------------------------------


@pytest.fixture
def unity() -> Iterator[UnityServer]:
    """A server with the catalogs `a` and `b`."""
    with UnityServer() as server:
        for name in ("a", "b"):
            server.add_catalog(name)
            server.add_schema(name, f"in_{name}")
        server.token = FIRST
        yield server


@pytest.fixture
def proxy(unity: UnityServer) -> Iterator[HttpProxy]:
    with HttpProxy(unity.url) as running:
        yield running


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The files of secrets of both catalogs."""
    found = {name: tmp_path / f"{name}.yaml" for name in ("a", "b")}
    for file in found.values():
        file.write_text(f"token: {FIRST}\n")
    return found


@pytest.fixture
def client(proxy: HttpProxy, files: dict[str, Path]) -> Iterator[httpx.Client]:
    """A client of a gateway over both, each of which it has called."""
    catalogs = {
        name: {"impl": "unity", "host": proxy.endpoint, "catalog": name, "secrets.file": str(file)}
        for name, file in files.items()
    }
    settings = ServerSettings.model_validate({"catalogs": catalogs})
    root = root_namespace(settings, connect_catalogs(settings, {}))
    with (
        serve_namespace(root) as url,
        closing(httpx.Client(base_url=url, timeout=60)) as client,
    ):
        for name in ("a", "b"):
            done(client.get(LIST_IN.format(name)))
        yield client


def test_each_catalog_of_a_federation_gets_the_new_secret_of_its_file(
    client: httpx.Client, unity: UnityServer, files: dict[str, Path]
) -> None:
    unity.token = SECOND
    files["a"].write_text(f"token: {SECOND}\n")
    assert done(client.get(LIST_IN.format("a")))["namespaces"] == ["in_a"]
    found = refused(client.get(LIST_IN.format("b")), *UNAUTHENTICATED)
    assert "are the same" in found
    files["b"].write_text(f"token: {SECOND}\n")
    assert done(client.get(LIST_IN.format("b")))["namespaces"] == ["in_b"]


def test_many_callers_need_one_reading(
    client: httpx.Client,
    unity: UnityServer,
    files: dict[str, Path],
    reads_of: Callable[..., list[Path]],
) -> None:
    opened = reads_of(*files.values())
    unity.token = SECOND
    files["a"].write_text(f"token: {SECOND}\n")
    answers = race(lambda _: done(client.get(LIST_IN.format("a")))["namespaces"], THREADS)
    assert answers == [["in_a"]] * THREADS
    assert opened == [files["a"]]


def test_a_server_that_repeats_a_new_secret_shows_it_to_nobody(
    client: httpx.Client,
    unity: UnityServer,
    proxy: HttpProxy,
    files: dict[str, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    unity.token = SECOND
    files["a"].write_text(f"token: {WRONG}\n")
    content = {"error_code": "UNAUTHENTICATED", "message": f"'{WRONG}' is not a valid word"}
    proxy.fail_next(
        lambda request: WRONG in request.headers.get("authorization", ""),
        Answer.of_json(401, content),
        times=float("inf"),
    )
    text = refused(client.get(LIST_IN.format("a")), *UNAUTHENTICATED)
    assert "'***' is not a valid word" in text
    assert "hush" not in text + caplog.text


# -- two principals in one process -----------------------------------------------------------------


@dataclass
class Lake:
    """A gateway to one table on a store."""

    url: str
    store: HttpProxy
    open: list[lance.LanceDataset] = field(default_factory=list)

    def properties(self, user: str, **more: str) -> dict[str, str]:
        return {"uri": self.url, "header.x-user": user, **more}

    def read(self, user: str, session: Any = None, **more: str) -> set[str]:
        """Read the table as a principal, and leave it open; return in whose name that was."""
        namespace = lance_bridge.connect("rest", self.properties(user, **more))
        before = len(self.store.requests)
        dataset = lance.dataset(namespace_client=namespace, table_id=TABLE, session=session)
        dataset.to_table()
        self.open.append(dataset)
        return self.used_since(before)

    def used_since(self, before: int) -> set[str]:
        keys = {key_of(each) for each in self.store.requests[before:] if each.key != "AssumeRole"}
        return {str(ShortLivedAws.grants[key].principal) for key in keys}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with GlueServer() as aws, HttpProxy(aws.endpoint) as store:
        aws.make_bucket(BUCKET)
        properties = aws_properties(aws)
        properties |= {
            "credentials.vendor": "server.test_secrets.LongLived",
            "credentials.endpoint": store.endpoint,
        }
        namespace = memory_namespace(__name__, **properties)
        rows = pa.table({"id": range(4), "image": [bytes(1 << 17)] * 4})
        lance.write_dataset(rows, namespace_client=namespace, table_id=TABLE, max_rows_per_file=1)
        authorizer = cedar(Path(tmp_path_factory.mktemp("policies")), POLICIES)
        with serve_namespace(
            namespace, authenticator=NamedByHeader(), authorizer=authorizer
        ) as url:
            yield Lake(url, store)


class LongLived(ShortLivedAws):
    """Sessions of the usual life, of which is known whose they are."""

    seconds = 3600.0


def test_each_principal_uses_its_own_credentials(lake: Lake) -> None:
    assert [lake.read(user) for user in ("writer", "reader")] == [{"writer"}, {"reader"}]


def test_so_does_each_connection_of_lancedb(lake: Lake) -> None:
    *parent, name = TABLE
    for user in ("writer", "reader"):
        before = len(lake.store.requests)
        db = lancedb.connect_namespace("rest", lake.properties(user))
        db.open_table(name, namespace_path=parent).to_arrow()
        assert lake.used_since(before) == {user}


def test_in_one_session_they_use_those_of_the_first(lake: Lake) -> None:
    """If this fails, pylance tells them apart: say so where the documentation warns."""
    session = _Session()
    assert [lake.read(user, session) for user in ("writer", "reader")] == [{"writer"}, {"writer"}]


def test_a_delimiter_of_its_own_tells_a_principal_apart_in_one_session(lake: Lake) -> None:
    session = _Session()
    used = [lake.read(user, session, delimiter=f"${user}$") for user in ("writer", "reader")]
    assert used == [{"writer"}, {"reader"}]
