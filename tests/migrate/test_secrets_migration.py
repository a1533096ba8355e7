"""No secret of either end is in anything that a migration by the command leaves behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cli.running import PROGRAM
from core.secret_search import Secrets, command_lines, log_everything
from migrate.building import write
from migrate.parquet_tables import add_rows, make_parquet_table
from migrate.places import Place
from servers.glue_server import GlueServer

from lance_bridge.exit_codes import FAILED

pytestmark = [pytest.mark.slow, pytest.mark.spec("migration.md#plan")]

SETTING = "spark.hadoop.fs.azure.account.key.box"
"""A setting of Spark's own, whose secret Spark's own patterns do not know."""


class Program:
    """Runs commands whose processes log all they do at DEBUG, and keeps what they say."""

    def __init__(self, left: Path, environment: dict[str, str]) -> None:
        self.left = left
        log_everything(left / "python")
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join([str(left / "python"), *filter(None, inherited)])
        logs = {"LANCE_LOG": "debug", "RUST_LOG": "debug", "PYTHONPATH": path}
        self.environment = {**os.environ, **logs, "TMPDIR": str(left / "tmp"), **environment}
        (left / "tmp").mkdir()
        self.runs = 0

    def __call__(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [PROGRAM, *words],
            cwd=self.left,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr[-4000:]}"
        self.runs += 1
        said = f"{done.stdout}\n{done.stderr}"
        (self.left / f"said-{self.runs}.txt").write_text(said)
        return said


def catalogs(tmp_path: Path, hive: Place, glue: GlueServer, secrets: Secrets) -> Path:
    """Return a configuration file: the metastore with a file of secrets, Glue with its own."""
    file = tmp_path / "secrets.yaml"
    file.write_text(yaml.safe_dump(secrets.storage("hive")))
    prod = {"impl": "hive", **hive.properties, "root": str(tmp_path / "lance")}
    given = {**glue.properties, "secret_access_key": secrets.new("glue key"), "root": "s3://lake/x"}
    options = {f"storage.{key}": value for key, value in glue.storage_options.items()}
    options["storage.aws_secret_access_key"] = secrets.new("glue storage key")
    other = {"impl": "glue", **given, **options}
    config = tmp_path / "catalogs.yaml"
    entries = {"prod": {**prod, "secrets.file": str(file)}, "other": other}
    config.write_text(yaml.safe_dump({"catalogs": entries}))
    return config


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
def program(hive: Place, tmp_path: Path, secrets: Secrets) -> Iterator[Program]:
    """The command, with the catalogs ``prod`` and ``other`` and a state directory."""
    left = tmp_path / "left"
    (left / "events").mkdir(parents=True)
    with GlueServer() as glue:
        glue.make_bucket("lake")
        environment = {
            "LANCE_BRIDGE_CONFIG": str(catalogs(tmp_path, hive, glue, secrets)),
            "LANCE_BRIDGE_STATE": str(left / "state"),
            "LANCE_BRIDGE_OTHER_SESSION_TOKEN": secrets.new("glue token"),
        }
        yield Program(left, environment)


def ids(program: Program) -> list[str]:
    return sorted(path.name for path in (program.left / "state" / "migrations").iterdir())


def test_no_secret_is_in_what_migrations_between_catalogs_leave_behind(
    hive: Place, tmp_path: Path, secrets: Secrets, program: Program
) -> None:
    write(tmp_path / "lake", "a")
    option = f"storage.azure_storage_account_key={secrets.new('source option')}"
    with command_lines(os.getpid()) as lines:
        program(
            *("migrate", "register", str(tmp_path / "lake"), "prod", "-n", hive.prefix),
            *("-s", option, "--execute"),
        )
        program("migrate", "copy", "prod", "other", "-i", f"{hive.prefix}.*", "--execute")
        program("migrate", "report", ids(program)[-1])
        wrong = f"endpoint=http://{secrets.new('wrong')}@h"
        program("migrate", "resume", ids(program)[-1], "-p", wrong, code=FAILED)
        program("config", "show")
    assert len(ids(program)) == 2
    assert secrets.found_in("\n".join(lines).encode()) == {"source option", "wrong"}
    assert secrets.found_below(program.left) == {}


def test_no_secret_is_in_what_a_conversion_by_spark_leaves_behind(
    hive: Place, tmp_path: Path, secrets: Secrets, program: Program
) -> None:
    left, source = program.left, tmp_path / "warehouse" / "orders"
    make_parquet_table(hive.port, hive.prefix, "orders", source)
    add_rows(source, 0, 10)
    spark = ["-c", "spark.eventLog.enabled=true", "-c", "spark.eventLog.compress=false"]
    spark += ["-c", f"spark.eventLog.dir=file://{left / 'events'}"]
    spark += ["-c", f"spark.local.dir={left / 'tmp'}"]
    spark += ["-c", f"{SETTING}={secrets.new('setting')}"]
    with command_lines(os.getpid()) as lines:
        convert = ["migrate", "convert", "prod", "-i", f"{hive.prefix}.orders", *spark]
        program(*convert, "--name", "{table}_lance", "--execute", "--verify", "checksums")
        program("migrate", "report", *ids(program))
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    [log] = [path for path in (left / "events").rglob("events*") if path.is_file()]
    assert SETTING.encode() in log.read_bytes()
    assert secrets.found_in("\n".join(lines).encode()) == {"setting"}
    assert secrets.found_below(left) == {}
