"""Secrets and credentials of a session: it leaves none behind, and goes on when they end."""

from __future__ import annotations

import json
import logging
import os
import pickle
import time
import uuid
import zlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
import yaml
from core.secret_search import STORAGE, Secrets, command_lines, log_everything
from lance.fragment import write_fragments
from lance_namespace import CreateNamespaceRequest
from pyspark.errors import PySparkException
from servers.glue_server import ACCESS_KEY, ROLE, GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.processes import free_port
from servers.sparks import ROOT, Spark
from servers.unity import UnityServer
from servers.unity.server import UnityProcess

from lance_bridge.credentials import EXPIRES_AT
from lance_bridge_spark import settings
from lance_bridge_spark.addresses import Access, CatalogAddress, TableAddress
from lance_bridge_spark.lookup import create_table, find_table
from lance_bridge_spark.redaction import redact_logs, with_patterns
from lance_bridge_spark.registration import register
from lance_bridge_spark.source.writer import Target

from .processes import FILES, PROVIDED, the_pid

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spec("spark.md#credentials", "common.md#secrets-that-change"),
]

PREFIX = "spark.sql.catalog."
SECONDS = 700.0
AWS = ("aws_secret_access_key",)
"""What moto takes with any value. The rest of a vendor's would change what S3 is asked."""
LIFETIME = 6.0
"""How long credentials last: long enough for a few requests."""
ROWS = pa.table({"id": pa.array(range(4), pa.int64())})
SECRET = "hidden-hidden-hidden"


class Catalogs:
    """Catalogs of a session, and where their secrets are; none in its settings."""

    def __init__(self, directory: Path, secrets: Secrets) -> None:
        self.directory = directory / "kept"
        self.directory.mkdir()
        self.secrets = secrets
        self.conf: dict[str, str] = {}
        self.environment: dict[str, str] = {}

    def add(self, name: str, impl: str, **properties: str) -> None:
        given = {"impl": impl, "root": str(self.directory.parent / "lake"), **properties}
        self.conf |= {f"{PREFIX}{name}.{key}": value for key, value in given.items()}

    def by_file(self, name: str, impl: str, secret: dict[str, str], **properties: str) -> None:
        file = self.directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(secret))
        self.add(name, impl, **{"secrets.file": str(file)}, **properties)

    def by_environment(
        self, name: str, impl: str, secret: dict[str, str], **properties: str
    ) -> None:
        for key, value in secret.items():
            variable = f"LANCE_BRIDGE_{name}_{key}".replace(".", "_").upper()
            self.environment[variable] = value
        self.add(name, impl, **properties)

    def by_provider(self, name: str, impl: str, secret: dict[str, str], **properties: str) -> None:
        self.environment[PROVIDED] = json.dumps(secret)
        self.add(name, impl, **{"secrets.provider": "spark.processes:provide"}, **properties)


@pytest.fixture(scope="module")
def glue() -> Iterator[GlueServer]:
    with GlueServer() as running:
        running.make_bucket("lake")
        yield running


@pytest.fixture(scope="module")
def unity() -> Iterator[UnityProcess]:
    with UnityProcess(catalogs=["main"]) as running:
        yield running


def working_catalogs(
    catalogs: Catalogs, metastore: str, glue: GlueServer, unity: UnityProcess
) -> dict[str, str]:
    """Add a catalog of each adapter, with secrets by each way; return their namespaces."""
    new, storage = catalogs.secrets.new, catalogs.secrets.storage
    catalogs.by_file("by_file", "hive", storage("hive"), uri=metastore)
    secret = {"token": new("unity token"), **storage("unity")}
    catalogs.by_provider("by_provider", "unity", secret, host=unity.url, catalog="main")
    secret = {
        "secret_access_key": new("glue key"),
        "session_token": new("glue token"),
        **storage("glue", AWS),
    }
    plain = {"region": "us-east-1", "endpoint": glue.endpoint, "access_key_id": ACCESS_KEY}
    plain |= {f"storage.{k}": v for k, v in glue.storage_options.items() if "secret" not in k}
    catalogs.by_environment("by_environment", "glue", secret, **{**plain, "root": "s3://lake/x"})
    return dict.fromkeys(("by_file", "by_provider", "by_environment"), f"db_{uuid.uuid4().hex[:8]}")


def dead_catalogs(catalogs: Catalogs) -> list[str]:
    """Add catalogs whose servers are gone, with the secrets that working ones cannot have."""
    new, port = catalogs.secrets.new, free_port()
    quick = {"client.retry-timeout": "0", "client.timeout": "5"}
    catalogs.by_file(
        "dead_hive",
        "hive",
        {"auth.password": new("hive password")},
        uri=f"thrift://127.0.0.1:{port}",
        **{"auth.mechanism": "plain", "auth.username": "ann", **quick},
    )
    catalogs.by_environment(
        "dead_http",
        "hive",
        {"http.token": new("hive token")},
        uri=f"http://127.0.0.1:{port}/x",
        **quick,
    )
    unity = {"host": f"http://127.0.0.1:{port}", "max_retries": "0", "retry_timeout": "0"}
    secret = {"client_secret": new("unity client_secret")}
    catalogs.by_file("dead_unity", "unity", secret, client_id="x", server="databricks", **unity)
    secret = {"auth_token": new("unity auth_token")}
    catalogs.by_file("dead_token", "unity", secret, **unity)
    return ["dead_hive", "dead_http", "dead_unity", "dead_token"]


def spark_with(conf: dict[str, str], environment: dict[str, str], left: Path) -> Spark:
    """Return a session whose parts all say at DEBUG what they do."""
    (left / "events").mkdir(parents=True)
    settings = {
        "spark.log.level": "DEBUG",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{left / 'events'}",
        "spark.python.daemon.module": "pyspark.daemon",
    }
    log_everything(left / "python")
    places = [left / "python", ROOT / "core", ROOT / "adapters", ROOT / "tests"]
    given = {
        "PYTHONPATH": os.pathsep.join(str(place) for place in places),
        "LANCE_LOG": "debug",
        "RUST_LOG": "debug",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return Spark(conf={**settings, **conf}, environment={**given, **environment})


def search_while_it_runs(left: Path, secrets: Secrets) -> dict[str, set[str]]:
    """Return the secrets in files that are there only while a session is."""
    done, deadline = left / "done", time.monotonic() + SECONDS
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert done.exists()
    found = secrets.found_below(left)
    done.unlink()
    return found


def test_no_secret_of_a_file_a_function_or_the_environment_is_in_what_spark_leaves_behind(
    metastores: Metastores, glue: GlueServer, unity: UnityProcess, tmp_path: Path
) -> None:
    secrets, left = Secrets(), tmp_path / "left"
    catalogs = Catalogs(tmp_path, secrets)
    working = working_catalogs(catalogs, metastores.get("2.3").uri, glue, unity)
    dead = dead_catalogs(catalogs)
    spark = spark_with(catalogs.conf, catalogs.environment, left)
    arguments: dict[str, Any] = {"directory": str(left), "working": working, "dead": dead}
    with (
        command_lines(os.getpid()) as lines,
        spark.start("spark.processes:leave_all", left, **arguments) as running,
    ):
        meanwhile = search_while_it_runs(left, secrets)
        assert running.result(SECONDS) == []
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    assert any("pyspark.daemon" in line for line in lines)
    [log] = [path for path in (left / "events").rglob("events*") if path.is_file()]
    assert b"by_environment.access_key_id" in log.read_bytes()
    logged = [path.read_bytes() for path in (left / "python.logs").iterdir()]
    assert any(b"botocore" in log for log in logged)
    assert any(b"py4j" in log for log in logged)
    assert meanwhile == {}
    assert secrets.found_below(left) == {}
    assert secrets.found_in("\n".join(lines).encode()) == set()


def test_secrets_in_plain_settings_are_in_arguments_of_processes_and_in_spark_s_own_debug_logs(
    tmp_path: Path,
) -> None:
    secrets, left = Secrets(), tmp_path / "left"
    unity = {
        "impl": "unity",
        "host": f"http://127.0.0.1:{free_port()}",
        "max_retries": "0",
        "retry_timeout": "0",
        "token": secrets.new("token"),
        **secrets.storage("plain"),
    }
    options = secrets.storage("option")
    conf = with_patterns({f"{PREFIX}plain.{key}": value for key, value in unity.items()})
    spark = spark_with(conf, {}, left)
    arguments = {"directory": str(left), "location": str(tmp_path / "t.lance"), "options": options}
    with command_lines(os.getpid()) as lines:
        spark.run("spark.processes:leave_plain", left, seconds=SECONDS, **arguments)
    settings = {"token", *(f"plain {option}" for option in STORAGE)}
    assert secrets.found_in("\n".join(lines).encode()) == settings
    [log] = left.glob("session-*.log")
    matching = [line for line in log.read_bytes().splitlines() if secrets.found_in(line)]
    assert all(b" DEBUG SharedState: Applying other initial session options" in x for x in matching)
    log.unlink()
    [driver] = {Path(name) for name in secrets.found_below(left)}
    assert driver.parent.name == "python.logs"
    logged = (left / driver).read_bytes()
    assert secrets.found_in(logged) == settings
    # The session has been started by then.
    assert secrets.found_in(logged[logged.index(b"lance_bridge") :]) == set()


# -- credentials that end while tasks run ----------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[GlueServer]:
    with GlueServer() as running:
        running.make_bucket("bucket")
        yield running


@pytest.fixture
def table(
    server: GlueServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[TableAddress]:
    """An empty table whose files are for a role alone, whose sessions are short."""
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/config")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    properties = {
        "impl": "glue",
        **server.properties,
        "root": f"s3://bucket/{tmp_path.name}",
        "assume_role_arn": ROLE,
        "assume_role_endpoint": server.endpoint,
        "storage.aws_endpoint": server.endpoint,
        "storage.allow_http": "true",
    }
    catalog = CatalogAddress("glue", properties)
    database = f"db_{time.time_ns()}"
    with server.short_sessions(LIFETIME):
        catalog.connect().create_namespace(CreateNamespaceRequest(id=[database]))
        address = TableAddress(catalog, (database, "t"))
        create_table(address, ROWS.schema)
        yield address


def access_of(table: TableAddress, *, write: bool) -> Access:
    found = find_table(table)
    return found.access(found.open(), write=write)


def slowly(access: Access) -> Iterator[pa.RecordBatch]:
    """Yield the rows, half of them when the credentials of before have ended."""
    storage = access.storage_options()
    first, second = ROWS.to_batches(2)
    yield first
    assert storage is not None
    wait_until(int(storage[EXPIRES_AT]) / 1000 + LIFETIME)
    yield second


def wait_until(moment: float) -> None:
    while time.time() < moment:
        time.sleep(0.1)


@pytest.mark.servers
def test_readers_writers_and_other_connections_share_no_store_in_a_session() -> None:
    """Lance would use the credentials of the one that came first for all."""

    def identity(*, write: bool, **properties: str) -> str:
        address = TableAddress(CatalogAddress("glue", properties), ("db", "t"))
        access = Access(address, "s3://bucket/t", 1, write=write, storage={EXPIRES_AT: "0"})
        return str(access.renewal_arguments()["namespace_client"].namespace_id())

    found = [
        identity(write=write, access_key_id=key) for write in (True, False) for key in ("a", "b")
    ]
    assert len({*found}) == 4
    assert identity(write=True, access_key_id="a") == found[0]


def test_a_task_writes_on_when_its_credentials_have_ended(table: TableAddress) -> None:
    access = access_of(table, write=True)
    target = Target(
        access,
        access.location,
        ROWS.schema.serialize().to_pybytes(),
        {"id": "id"},
        "append",
        {"max_rows_per_file": 2},
    )
    assert len(target.write(slowly(access)).fragments) == 2


def test_an_open_table_is_written_to_and_read_when_its_credentials_have_ended(
    table: TableAddress,
) -> None:
    access = access_of(table, write=True)
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, slowly(access))
    files = write_fragments(reader, access.open(), max_rows_per_file=2)
    assert len(files) == 2
    place, storage = access.location, access.storage_options()
    append = lance.LanceOperation.Append(files)
    lance.LanceDataset.commit(place, append, read_version=1, storage_options=storage)
    dataset = access_of(table, write=False).open()
    batches = dataset.to_batches(batch_size=1, batch_readahead=1, fragment_readahead=1)
    rows = [next(batches)]
    wait_until(time.time() + LIFETIME)
    rows += list(batches)
    assert sorted(pa.Table.from_batches(rows)["id"].to_pylist()) == [0, 1, 2, 3]


def test_sql_and_the_data_source_write_and_read_with_vended_sessions_alone(
    server: GlueServer, tmp_path: Path
) -> None:
    """A direct catalog whose vendor's sessions end while tasks write; moto refuses ended ones."""
    with HttpProxy(server.endpoint) as sts:
        properties = {
            "impl": "glue",
            **server.properties,
            "root": f"s3://bucket/{tmp_path.name}",
            **{f"storage.{key}": value for key, value in server.storage_options.items()},
            "credentials.vendor": "aws",
            "credentials.role_arn": ROLE,
            "credentials.sts_endpoint": sts.endpoint,
            "credentials.write": "true",
        }
        lake = CatalogAddress("lake", properties)
        database = f"db_{time.time_ns()}"
        lake.connect().create_namespace(CreateNamespaceRequest(id=[database]))
        conf = settings({"lake": properties})
        with server.short_sessions(LIFETIME):
            run = Spark(conf=conf, environment={"AWS_EC2_METADATA_DISABLED": "true"}).run
            found = run(
                "spark.processes:write_and_read",
                tmp_path / "spark",
                seconds=300,
                table=f"lake.{database}.t",
            )
        assert found == [2 * FILES, 2 * FILES]
        assert 4 <= sts.counts["AssumeRole"] <= 60, sts.counts


# -- secrets that change while a session runs ------------------------------------------------------


@pytest.fixture
def catalog_server() -> Iterator[UnityServer]:
    with UnityServer() as server:
        server.add_catalog("main")
        server.token = "first-hush"
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own: a session keeps its catalogs."""
    return f"renewed_{zlib.crc32(request.node.nodeid.encode())}"


@pytest.fixture
def file(spark: Any, catalog_server: UnityServer, name: str, tmp_path: Path) -> Path:
    """The file of secrets of a catalog with a table, which the session has read."""
    file = tmp_path / "secrets.yaml"
    file.write_text("token: first-hush\n")
    given = {
        "impl": "unity",
        "host": catalog_server.url,
        "catalog": "main",
        "root": str(tmp_path / "lake"),
    }
    register(spark, {name: {**given, "secrets.file": str(file)}})
    spark.sql(f"CREATE NAMESPACE {name}.db")
    spark.sql(f"CREATE TABLE {name}.db.t (id BIGINT)")
    spark.sql(f"INSERT INTO {name}.db.t VALUES (1)")
    return file


def rows(spark: Any, name: str) -> list[int]:
    return sorted(row.id for row in spark.table(f"{name}.db.t").collect())


@pytest.mark.servers
def test_the_process_of_the_driver_goes_on_with_the_new_secret(
    spark: Any, catalog_server: UnityServer, name: str, file: Path
) -> None:
    assert rows(spark, name) == [1]
    pid = the_pid(spark)
    for number, token in enumerate(("second-hush", "third-hush"), start=2):
        catalog_server.token = token
        file.write_text(f"token: {token}\n")
        spark.sql(f"INSERT INTO {name}.db.t VALUES ({number})")
        assert rows(spark, name) == list(range(1, number + 1))
    assert the_pid(spark) == pid


@pytest.mark.servers
def test_a_secret_that_is_the_same_is_named(
    spark: Any, catalog_server: UnityServer, name: str, file: Path
) -> None:
    catalog_server.token = "second-hush"
    with pytest.raises(PySparkException, match=r"secrets\.file, and are the same") as caught:
        spark.sql(f"SHOW TABLES IN {name}.db").collect()
    assert "hush" not in str(caught.value)
    file.write_text("token: second-hush\n")
    assert rows(spark, name) == [1]


# -- logs of py4j ----------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("logger", ["py4j.clientserver", "py4j.java_gateway"])
def test_no_function_and_no_secret_setting_is_in_what_py4j_logs(
    logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    function = b64encode(pickle.dumps({"aws_secret_access_key": SECRET})).decode()
    redact_logs()
    redact_logs()
    log = logging.getLogger(logger)
    with caplog.at_level(logging.DEBUG):
        for command in (
            f"i\norg.apache.spark.api.python.SimplePythonFunction\nj{function}\ne\n",
            f"c\no12\nset\nsspark.sql.catalog.x.token\ns{SECRET}\ne\n",
            f"c\no12\nset\nsspark.sql.catalog.x.storage.anything.else\ns{SECRET}\ne\n",
            f"c\no12\noption\nsstorage.anything\ns{SECRET}\ne\n",
            "c\no12\nset\nsspark.sql.catalog.x.storage.aws_region\nseu\ne\n",
        ):
            log.debug("Command to send: {0}".format(command))  # noqa: UP030, UP032 - as py4j does
        log.debug("Command to send: c\no7\nget\nsspark.sql.catalog.x.token\ne\n")
        log.debug(f"Answer received: !ys{SECRET}")
        log.debug("Command to send: c\no14\n_1\ne\n")
        log.debug("Answer received: !ysspark.hadoop.fs.azure.account.key.box")
        log.debug("Command to send: c\no14\n_2\ne\n")
        log.debug(f"Answer received: !ys{SECRET}")
        log.debug("Command to send: c\no7\nget\nsspark.app.name\ne\n")
        log.debug("Answer received: !ysthe name")
    assert len(caplog.records) == 13
    assert SECRET not in caplog.text
    # The text is JSON once another test has made PySpark log so.
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert SECRET not in logged
    assert function[:40] not in logged
    assert "SimplePythonFunction" in logged
    assert "aws_region\nseu\n" in logged
    assert "!ysthe name" in logged
