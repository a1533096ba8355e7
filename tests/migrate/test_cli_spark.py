"""The commands that move data, as the installed program runs them with its own Spark."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cli.running import examples, program
from migrate.building import read_by_name
from migrate.parquet_tables import add_rows, make_parquet_table
from migrate.places import Place

pytestmark = [pytest.mark.spec("migration.md#convert")]

ID = re.compile(r"\d{8}-\d{6}-[a-z-]+-[0-9a-f]{6}")

Command = Callable[..., str]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Where the files of ``sales.orders`` are."""
    return tmp_path / "warehouse" / "orders"


@pytest.fixture
def prod(hive: Place, tmp_path: Path, orders: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A Hive Metastore that the configuration file calls ``prod``, with a table of Parquet."""
    config = tmp_path / "catalogs.yaml"
    properties = {"impl": "hive", **hive.properties, "root": str(tmp_path / "lance")}
    config.write_text(yaml.safe_dump({"catalogs": {"prod": properties}}))
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(config))
    monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path / "state"))
    make_parquet_table(hive.port, hive.prefix, "orders", orders)
    add_rows(orders, 0, 10)
    return hive


@pytest.fixture
def pasted(prod: Place, tmp_path: Path) -> Command:
    """Runs a command as it is printed, with the names of this test; returns what it says."""

    def run(command: str, id: str = "", *, code: int = 0) -> str:
        text = command.replace("sales", prod.prefix).replace("/data/", f"{tmp_path}/data/")
        words = shlex.split(ID.sub(id, text) if id else text)
        done = program(*words[1:], seconds=300)
        assert done.returncode == code, f"{text}\n{done.stdout}\n{done.stderr[-3000:]}"
        return done.stdout

    return run


@pytest.mark.slow
def test_sparks_own_messages_are_in_a_log_file_that_is_named(prod: Place, tmp_path: Path) -> None:
    planned = program("migrate", "convert", "prod", "--include", f"{prod.prefix}.orders",
                      "--name", "{table}_lance", seconds=300)  # fmt: skip
    log = tmp_path / "state" / "spark.log"
    assert f"Spark's own log is {log}" in planned.stderr
    done = program("migrate", "resume", _id_in(planned.stdout), seconds=300)
    assert done.returncode == 0, done.stderr
    for shown in (planned, done):
        assert all(line.startswith("lance-bridge: ") for line in shown.stderr.splitlines())
    assert log.read_text().count("Setting default log level") == 2
    assert log.stat().st_mode & 0o077 == 0


def _id_in(shown: str) -> str:
    return str(ID.findall(shown)[0])


@pytest.mark.slow
def test_the_examples_of_help_run(pasted: Command, orders: Path) -> None:
    [convert], [catch_up] = examples("migrate", "convert"), examples("migrate", "catch-up")
    first = _id_in(pasted(f"{convert} --execute --index id:BTREE --cast name=binary"))
    add_rows(orders, 10, 12)
    assert "Nothing was changed" in pasted(catch_up, first)
    [export] = examples("migrate", "export")
    assert "Nothing was changed" in pasted(export)


@pytest.mark.slow
@pytest.mark.parametrize("impl", ["glue", "unity"])
def test_files_are_converted_into_the_other_catalogs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impl: str
) -> None:
    place: Place = request.getfixturevalue(impl)
    config = tmp_path / "catalogs.yaml"
    properties = {"impl": impl, **place.properties, "root": str(tmp_path / "lance")}
    config.write_text(yaml.safe_dump({"catalogs": {"other": properties}}))
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(config))
    source = tmp_path / "files"
    source.mkdir()
    add_rows(source, 0, 7)
    database = ".".join((*place.outer, place.prefix))
    where = ["--path", str(source), "--table", "t", "--namespace", database]
    words = ["migrate", "convert", "other", *where, "--execute", "--verify", "checksums"]
    done = program(*words, "--output", "json", "--state", str(tmp_path / "state"), seconds=300)
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads(done.stdout)
    assert (record["state"], record["counts"]) == ("done", {"done": 2})
    assert sorted(read_by_name(place, (*place.outer, place.prefix, "t"))["id"].to_pylist()) == [
        *range(7)
    ]


@pytest.mark.servers
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--path", "/data/none"], "--table"),
        (["--vector", "embedding"], "key=value"),
        (["--vector", "embedding=many"], "number of 1 or more"),
        (["--index", "id"], "column:KIND"),
        (["--cast", "id"], "key=value"),
    ],
)
@pytest.mark.usefixtures("prod")
def test_misuse_is_reported_before_spark_starts(more: list[str], said: str) -> None:
    done = program("migrate", "convert", "prod", *more)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.servers
@pytest.mark.usefixtures("prod")
def test_without_java_the_message_says_what_is_missing(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = program(
        *("migrate", "convert", "prod", "--path", str(tmp_path), "--table", "t", "-n", "db"),
        environment={"JAVA_HOME": str(empty), "SPARK_CONF_DIR": str(empty)},
    )
    assert done.returncode == 1
    assert "JAVA_HOME" in done.stderr
    assert "Traceback" not in done.stderr
