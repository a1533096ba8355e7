"""Forty tables, converted by the wheel in a clean environment: killed, cut off, and incomplete.

Functions of this module are called in the process of a Spark session, too: see `servers.sparks`.
Tables of Delta and Iceberg, whose packages Spark fetches, are in `test_lakes`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from install.environments import Environment, build_wheel
from migrate.sessions import beside
from servers.hive_entries import raw_client
from servers.metastores import Metastores
from servers.proxy import ThriftProxy

import lance_bridge

from .places import drop_in_hive, files

pytestmark = [pytest.mark.slow, pytest.mark.spec("migration.md#convert")]

SEED = 20261123
KILLS = 20
OUTAGE_SECONDS = 6.0
DAMAGED = {"gone", "emptied", "less", "part_gone", "part_less"}
DAMAGED_LATER = {"less_later", "part_gone_later"}
_OF_JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For sessions that are over before the second compiler has been of use."""
_WIDE = ", ".join(f"id * {n} AS c{n}" for n in range(200))
_ROW = "id, concat('row ', id) AS name, CAST(id AS DOUBLE) / 7 AS number"
_PARTS = f"SELECT {_ROW}, id % 3 AS part FROM range(60)"
_TEXTS = (
    "element_at(array('', 'a b', 'zäöü ✓', NULL, '%2F', repeat('x', 5000)), "
    "CAST(1 + id % 6 AS INT))"
)
_NESTED = (
    "SELECT CAST(id AS INT) AS id, array(named_struct('m', map('k', array(id, NULL)), "
    "'s', named_struct('x', CAST(id AS DECIMAL(9,2)), 'y', IF(id % 2 = 0, NULL, 'y')))) AS deep "
    "FROM range(40)"
)
_AS_SELECT = {
    "numbers": "SELECT CAST(id AS TINYINT) AS a, CAST(id AS SMALLINT) AS b, CAST(id AS INT) AS c, "
    "IF(id % 3 = 0, NULL, id) AS d, id % 2 = 0 AS e FROM range(50)",
    "decimals": "SELECT id, CAST(id / 3 AS DECIMAL(5,2)) AS small, CAST(id AS DECIMAL(38,0)) AS "
    "big, CAST(-id AS DECIMAL(38,18)) AS fine FROM range(50)",
    "texts": f"SELECT id, {_TEXTS} AS text FROM range(60)",
    "binaries": f"SELECT id, CAST({_TEXTS} AS BINARY) AS bytes FROM range(60)",
    "dates": "SELECT id, date_add(DATE'1582-12-31', CAST(id * 4000 AS INT)) AS day FROM range(50)",
    "times": "SELECT id, timestamp_micros(id * 987654321987) AS zoned, "
    "CAST(timestamp_micros(id * 123456789123) AS TIMESTAMP_NTZ) AS plain FROM range(50)",
    "floats": "SELECT id, CAST(element_at(array('NaN', 'Infinity', '-0.0', '1e-40', NULL), "
    "CAST(1 + id % 5 AS INT)) AS DOUBLE) AS d, CAST(id / 3 AS FLOAT) AS f FROM range(50)",
    "lists": "SELECT id, IF(id = 3, NULL, sequence(0, id % 4)) AS lists, array(array('a', NULL), "
    "array()) AS nested FROM range(50)",
    "maps": "SELECT id, map(concat('k', id), id, 'n', NULL) AS one FROM range(50)",
    "structs": "SELECT id, named_struct('a', id, 'b', named_struct('c', NULL, 'd', 'x')) AS s "
    "FROM range(50)",
    "deep": _NESTED,
    "vectors": "SELECT id, transform(sequence(1, 16), x -> CAST(x * id AS FLOAT)) AS v "
    "FROM range(200)",
    "many_files": f"SELECT {_ROW} FROM range(0, 800, 1, 16)",
    "larger": f"SELECT {_ROW}, uuid() AS u FROM range(0, 300000, 1, 4)",
    "wide": f"SELECT {_WIDE} FROM range(20)",
    "nulls": "SELECT CAST(NULL AS STRING) AS a, CAST(NULL AS ARRAY<INT>) AS b FROM range(9)",
    "names": "SELECT id AS `a b`, 1 AS `ä,ö`, 2 AS `x-y` FROM range(9)",
    "intervals": "SELECT id, make_dt_interval(CAST(id AS INT), 2, 3, 4.5) AS i FROM range(9)",
}
"""As tables of Parquet that Spark has made."""
_PARTITIONED = {
    "part_number": _PARTS,
    "part_text": f"SELECT {_ROW}, element_at(array('a b', 'ä/ö', '=', NULL), "
    "CAST(1 + id % 4 AS INT)) AS part FROM range(60)",
    "part_date": f"SELECT {_ROW}, date_add(DATE'2024-02-28', CAST(id % 3 AS INT)) AS part "
    "FROM range(60)",
    "part_larger": f"SELECT {_ROW}, id % 10 AS part FROM range(0, 100000, 1, 2)",
}
_OTHERS = {
    "empty": "(id BIGINT, s STRUCT<a: INT>) USING parquet",
    "part_empty": "(id BIGINT, part STRING) USING parquet PARTITIONED BY (part)",
    "limited": "USING parquet AS SELECT id, CAST('ab' AS CHAR(5)) AS c, CAST('xyz' AS VARCHAR(9)) "
    "AS v FROM range(9)",
    "part_two": f"USING parquet PARTITIONED BY (part, other) AS SELECT *, part + 1 AS other "
    f"FROM ({_PARTS})",
    "orc_plain": f"USING orc AS SELECT {_ROW} FROM range(70)",
    "orc_deep": f"USING orc AS {_NESTED}",
    "orc_part": f"USING orc PARTITIONED BY (part) AS {_PARTS}",
    "csv_plain": f"USING csv AS SELECT {_ROW} FROM range(70)",
    "csv_part": f"USING csv PARTITIONED BY (part) AS {_PARTS}",
    "json_deep": f"USING json AS {_NESTED}",
    "json_part": f"USING json PARTITIONED BY (part) AS {_PARTS}",
}
_OF_HIVE = ("PARQUET", "ORC", "AVRO", "TEXTFILE", "SEQUENCEFILE", "RCFILE")
_DAMAGED = ("gone", "emptied", "less", "less_later", "part_gone", "part_less", "part_gone_later")
"""Tables whose files the test removes: the last of them once the plan is made."""
_RUN_SECONDS = 600.0


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with the extras of a migration, and nothing else."""
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    return Environment(tmp_path_factory.mktemp("clean"), wheel, "hive,spark,cli")


class Scene:
    """A metastore behind a proxy, forty tables and some damaged ones, and where Lance's go."""

    def __init__(self, port: int, directory: Path, clean: Environment) -> None:
        self.port, self.directory, self.clean = port, directory, clean
        self.prefix = f"m_{uuid.uuid4().hex[:10]}"
        self.database, self.target = f"{self.prefix}_raw", f"{self.prefix}_lance"
        self.raw, self.root = directory / "raw", directory / "lance"
        self.root.mkdir()
        self.proxy = ThriftProxy("127.0.0.1", port).start()
        self.chance = random.Random(SEED)
        self.id = ""
        self._outputs = 0

    @property
    def properties(self) -> dict[str, str]:
        return {"uri": f"thrift://127.0.0.1:{self.port}", "root": str(self.root)}

    @property
    def journal(self) -> Path:
        return self.directory / "state" / "migrations" / self.id / "journal.jsonl"

    def spark(self, function: str, **arguments: Any) -> Any:
        """Call a function of this module with a session of this project's environment."""
        session = beside(f"thrift://127.0.0.1:{self.port}")
        return session.run(
            f"migrate.test_forty_tables:{function}",
            self.directory / "spark",
            seconds=600,
            database=self.database,
            **arguments,
        )

    def planning(self) -> list[str]:
        """Return the arguments of the command that plans."""
        where = ["-p", f"uri={self.proxy.uri}", "-p", f"root={self.root}"]
        what = ["--include", f"{self.database}.*", "--namespace", self.target]
        settings = ["spark.master=local[2]", "spark.ui.enabled=false", _OF_JAVA]
        how = [word for each in settings for word in ("--spark-conf", each)]
        return ["migrate", "convert", "hive", *what, *where, *how, *self._common()]

    def resuming(self) -> list[str]:
        """Return the arguments of the command that resumes."""
        how = ["--skip-blocked", "--verify", "counts", "--parallelism", "4"]
        how += ["--source-property", _OF_JAVA]
        return ["migrate", "resume", self.id, *how, *self._common()]

    def undoing(self) -> list[str]:
        how = ["--source-property", _OF_JAVA]
        return ["migrate", "undo", self.id, *how, *self._common()]

    def _common(self) -> list[str]:
        return ["--state", str(self.directory / "state"), "--output", "json"]

    def output(self) -> Path:
        """Return a file for what the next command prints."""
        self._outputs += 1
        return self.directory / f"output-{self._outputs:02}.json"

    def run(self, arguments: list[str]) -> tuple[int, dict[str, Any]]:
        """Run a command to its end; return the exit code and its answer."""
        output = self.output()
        with started(self.clean, arguments, output) as command:
            code = command.wait()
            assert output.read_text(), command.shown[-3000:]
            return code, json.loads(output.read_text())


@pytest.fixture
def scene(metastores: Metastores, clean: Environment, tmp_path: Path) -> Iterator[Scene]:
    port = metastores.get("3.1").port
    made = Scene(port, tmp_path, clean)
    yield made
    made.proxy.close()
    drop_in_hive(port, made.prefix)


def remove_files(raw: Path) -> None:
    """Remove files and a partition, before there is a plan."""
    shutil.rmtree(raw / "gone")
    for file in (raw / "emptied").glob("part-*"):
        file.unlink()
    next((raw / "less").glob("part-*")).unlink()
    shutil.rmtree(raw / "part_gone" / "part=1")
    next((raw / "part_less" / "part=0").glob("part-*")).unlink()


def remove_files_later(raw: Path) -> None:
    """Remove files and a partition that the plan has counted."""
    next((raw / "less_later").glob("part-*")).unlink()
    shutil.rmtree(raw / "part_gone_later" / "part=2")


def plan(scene: Scene) -> None:
    """Plan, and kill that once; no plan that is not whole may be kept."""
    with started(scene.clean, scene.planning(), scene.output()) as command:
        command.wait_until(lambda: command.seconds >= scene.chance.uniform(5.0, 15.0))
        assert command.kill()
    code, planned = scene.run(scene.planning())
    assert code == 3
    blocked = {
        item["source"][-1]
        for item in planned["items"]
        if any(each["severity"] == "blocker" for each in item["problems"])
    }
    assert blocked == DAMAGED
    scene.id = planned["id"]


def cut_off_metastore(scene: Scene) -> Callable[[], None]:
    """Have no metastore answer; return what ends that."""
    port = scene.proxy.port
    scene.proxy.close()

    def connect() -> None:
        scene.proxy = ThriftProxy("127.0.0.1", scene.port, port=port).start()

    return connect


def take_away_storage(scene: Scene) -> Callable[[], None]:
    """Have the sources' storage be away; return what ends that."""
    away = scene.raw.with_name("away")
    scene.raw.rename(away)

    def bring_back() -> None:
        away.rename(scene.raw)

    return bring_back


def have_outage(scene: Scene, begin: Callable[[Scene], Callable[[], None]]) -> None:
    """Have something be away for a while as tables are converted, and kill the run after that."""
    with started(scene.clean, scene.resuming(), scene.output()) as command:
        before = events(scene.journal)
        assert command.wait_until(lambda: events(scene.journal) > before), command.shown
        end = begin(scene)
        until = command.seconds + OUTAGE_SECONDS
        command.wait_until(lambda: command.seconds >= until)
        end()
        later = command.seconds + scene.chance.uniform(0.0, 2.0)
        command.wait_until(lambda: command.seconds >= later)
        assert "Traceback" not in command.messages


def test_forty_tables_are_exact_or_named_whatever_happens(scene: Scene) -> None:
    names = scene.spark("make", directory=str(scene.raw))
    assert len(names) == 40
    remove_files(scene.raw)
    plan(scene)
    remove_files_later(scene.raw)
    before, entries_before = files(scene.raw), entries(scene.port, scene.database)
    kills = 1
    outages = {KILLS // 4: cut_off_metastore, KILLS // 2: take_away_storage}
    while kills < KILLS:
        if kills in outages:
            have_outage(scene, outages.pop(kills))
        with started(scene.clean, scene.resuming(), scene.output()) as command:
            assert kill_at_random(command, scene.journal, scene.chance), command.shown[-3000:]
        kills += 1
    code, record = scene.run(scene.resuming())
    print(f"{kills} kills, {events(scene.journal)} events", failures(scene.journal))

    states = {key.split("/")[-1]: each for key, each in record["items"].items()}
    assert code == 1
    failed = {name: each for name, each in states.items() if each["state"] == "failed"}
    assert set(failed) == DAMAGED_LATER
    assert all(name in each["error"]["message"] for name, each in failed.items())
    assert {name for name, each in states.items() if each["state"] == "blocked"} == DAMAGED
    assert {n for n, each in states.items() if each["state"] == "done"} >= set(names)
    found = scene.spark("differences", target=scene.target, properties=scene.properties,
                        names=names)  # fmt: skip
    assert found == {}
    assert files(scene.raw) == before
    assert entries(scene.port, scene.database) == entries_before
    assert scene.spark("left", target=scene.target, properties=scene.properties) == []

    code, undone = scene.run(scene.undoing())
    assert (code, undone["state"]) == (0, "undone")
    assert files(scene.root) == {}
    assert files(scene.raw) == before


# -- the tables, made in the process of a session --------------------------------------------------


def make(spark: Any, database: str, directory: str) -> list[str]:
    """Make the tables; return the names of those that stay whole."""
    spark.sql(f"CREATE DATABASE {database} LOCATION '{directory}'")
    made = {name: f"USING parquet AS {rows}" for name, rows in _AS_SELECT.items()}
    by_part = "USING parquet PARTITIONED BY (part) AS"
    made |= {name: f"{by_part} {rows}" for name, rows in _PARTITIONED.items()}
    made |= _OTHERS
    for name, how in made.items():
        spark.sql(f"CREATE TABLE {database}.{name} {how}")
    hive = [_make_hive(spark, database, form) for form in _OF_HIVE]
    part = "hive_part"
    spark.sql(
        f"CREATE TABLE {database}.{part} (id BIGINT, name STRING, number DOUBLE) "
        "PARTITIONED BY (part BIGINT) STORED AS PARQUET"
    )
    spark.sql(f"INSERT INTO {database}.{part} {_PARTS}")
    for name in _DAMAGED:
        how = by_part if name.startswith("part_") else "USING parquet AS"
        spark.sql(f"CREATE TABLE {database}.{name} {how} {_PARTS.replace('range(60)', _FILES)}")
    spark.sql(f"CREATE VIEW {database}.a_view AS SELECT 1 AS one")
    return sorted([*made, *hive, part])


_FILES = "range(0, 60, 1, 4)"


def _make_hive(spark: Any, database: str, form: str) -> str:
    name = f"hive_{form.lower()}"
    spark.sql(
        f"CREATE TABLE {database}.{name} (id BIGINT, name STRING, number DOUBLE) STORED AS {form}"
    )
    spark.sql(f"INSERT INTO {database}.{name} SELECT {_ROW} FROM range(80)")
    return name


def entries(port: int, database: str) -> dict[str, str]:
    """Return a database's entries as a metastore has them, in text."""
    with raw_client(port) as client:
        names = client.get_all_tables(database)
        return {name: repr(client.get_table(database, name)) for name in names}


# -- their rows ------------------------------------------------------------------------------------


def differences(
    spark: Any, database: str, target: str, properties: dict[str, str], names: list[str]
) -> dict[str, str]:
    """Return the tables that pylance reads other rows of than Spark reads from their sources."""
    found = {}
    connection: Any = lance_bridge.connect("hive", properties)
    with connection as namespace:
        for name in names:
            there = _rows(spark.table(f"{database}.{name}").toArrow())
            here = lance.dataset(namespace_client=namespace, table_id=[target, name])
            rows = _rows(here.to_table())
            if rows != there:
                pair = next((p for p in zip(rows, there, strict=False) if p[0] != p[1]), None)
                found[name] = f"{len(rows)} rows for {len(there)}: {str(pair)[:500]}"
    return found


def _rows(table: Any) -> list[str]:
    return sorted(repr(_plain(row)) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    """Return what is the same for the same value, whichever type of Arrow it had."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).isoformat()
    return value


def left(spark: Any, database: str, target: str, properties: dict[str, str]) -> list[str]:  # noqa: ARG001 - as all are called
    """Return the files below the root that no version of a registered table names."""
    root = Path(properties["root"])
    known: set[Path] = set()
    connection: Any = lance_bridge.connect("hive", properties)
    with connection as namespace:
        request = api.ListTablesRequest(id=[target])
        for name in namespace.list_tables(request).tables:
            described = namespace.describe_table(api.DescribeTableRequest(id=[target, name]))
            known |= _own_files(Path(str(described.location).removeprefix("file://")))
    return sorted(str(each) for each in root.rglob("*") if each.is_file() and each not in known)


def _own_files(place: Path) -> set[Path]:
    """Return the files of one table: the mark that keeps its place, and what versions name."""
    mark = place / ".lance-reserved"
    if not (place / "_versions").is_dir():
        return {mark}
    latest = lance.dataset(str(place))
    kept = {mark} | {
        each for part in ("_versions", "_transactions") for each in (place / part).iterdir()
    }
    for version in latest.versions():
        dataset = lance.dataset(str(place), version=version["version"])
        for fragment in dataset.get_fragments():
            kept |= {place / "data" / file.path for file in fragment.data_files()}
    return kept


# -- commands of the wheel that are killed at random moments ---------------------------------------


class Command:
    """One command of the wheel, in a process group with all that it starts."""

    def __init__(self, clean: Environment, arguments: list[str], output: Path) -> None:
        self._begun = time.monotonic()
        self._output = output
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as error:
            self._process = subprocess.Popen(
                [str(clean.bin / "lance-bridge"), *arguments],
                cwd=clean.directory,
                env=clean.variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=error,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def shown(self) -> str:
        return self._output.read_text() + self._output.with_suffix(".err").read_text()

    @property
    def messages(self) -> str:
        """What it has said on standard error."""
        return self._output.with_suffix(".err").read_text()

    def kill(self) -> bool:
        """End it and Spark's JVM at once; return whether it was still running."""
        was_running = self.is_running
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self._process.wait()
        return was_running

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        return self._process.wait(_RUN_SECONDS)

    def wait_until(self, holds: Callable[[], bool]) -> bool:
        """Wait until something holds; return False where the command ended before."""
        deadline = time.monotonic() + _RUN_SECONDS
        while not holds():
            if not self.is_running:
                return False
            assert time.monotonic() < deadline, self.shown[-3000:]
            time.sleep(0.005)
        return True


@contextmanager
def started(clean: Environment, arguments: list[str], output: Path) -> Iterator[Command]:
    """Start a command; it ends with the block."""
    command = Command(clean, arguments, output)
    try:
        yield command
    finally:
        command.kill()


def events(journal: Path) -> int:
    """Return how many events of items a journal has."""
    if not journal.exists():
        return 0
    return sum('"item"' in line for line in journal.read_text(errors="replace").splitlines())


def failures(journal: Path) -> dict[str, str]:
    """Return the items that have failed in any run, with the last message of each."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return {e["item"]: e["error"]["message"] for e in lines if e["event"] == "failed"}


def kill_at_random(command: Command, journal: Path, chance: random.Random) -> bool:
    """Kill a command after some more events of its journal, or while it prepares for them.

    Returns:
        Whether it was killed, and had not ended before.
    """
    wanted = max(0, chance.randint(-3, 9))
    before = events(journal)
    if wanted == 0:
        after = chance.uniform(1.0, 15.0)
        command.wait_until(lambda: command.seconds >= after)
        return command.kill()
    if not command.wait_until(lambda: events(journal) >= before + wanted):
        return False
    later = command.seconds + chance.uniform(0.0, 0.4)
    command.wait_until(lambda: command.seconds >= later)
    return command.kill()
