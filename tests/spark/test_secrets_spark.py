"""No secret of a catalog is in anything that a session of Spark leaves behind."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from core.secret_search import STORAGE, Secrets, command_lines, log_everything
from servers.glue_server import ACCESS_KEY, GlueServer
from servers.metastores import Metastores
from servers.processes import free_port
from servers.sparks import ROOT, Spark
from servers.unity.process import UnityProcess
from spark.secret_jobs import PROVIDED

from lance_bridge_spark.redaction import with_patterns

pytestmark = [pytest.mark.slow, pytest.mark.spec("spark.md#credentials")]

PREFIX = "spark.sql.catalog."
SECONDS = 700.0
AWS = ("aws_secret_access_key",)
"""What moto takes with any value. The rest of a vendor's would change what S3 is asked."""


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
        self.add(name, impl, **{"secrets.provider": "spark.secret_jobs:provide"}, **properties)


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
        spark.start("spark.secret_jobs:leave_all", left, **arguments) as running,
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
        spark.run("spark.secret_jobs:leave_plain", left, seconds=SECONDS, **arguments)
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
