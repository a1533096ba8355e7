"""Sessions of Spark in processes of their own, beside a real metastore, that call tests.

Also what these tests work with in that process: a scene, moments to die at, and increments.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import signal
import socket
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from servers.sparks import Running, Spark, SparkFailedError
from spark.sql_helpers import set_conf

from lance_bridge.storage.store import TableStorage
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_migrate import (
    Endpoints,
    Migration,
    Plan,
    Record,
    address_of,
    make_plan,
    migration_type,
)
from lance_bridge_migrate.migrations import loading
from lance_bridge_migrate.migrations.catchup import next_increment
from lance_bridge_migrate.plan import Item, new_id
from lance_bridge_migrate.record import Event, Journal
from lance_bridge_migrate.spark.session import address_of_session
from lance_bridge_spark.source.writer import Commit

from .places import Place, Run, hive_reader

_START_SECONDS = 120.0
_CHECK_SECONDS = 280.0
_OF_CATALOGS = ("create_namespace", "drop_namespace", "create_table", "alter_table", "drop_table")
AT_COMMIT = 2
"""The moment after the events of the run and of its step."""
ROW = "concat('row ', id) AS name, id DIV 10 AS part"


def beside(uri: str, conf: Mapping[str, str] | None = None) -> Spark:
    """Return Spark with the tables of a metastore for its own, and as few tasks as may be."""
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.default.parallelism": "2",
        "spark.python.daemon.module": "servers.spark_daemon",
        # A machine with more to do than it can is slow, and nothing has failed.
        "spark.python.authenticate.socketTimeout": "60s",
    }
    # So that times without a zone are the same moments here and in Spark.
    return Spark(conf={**settings, **(conf or {})}, environment={"TZ": "UTC"})


class Checker:
    """A session that calls one test after another."""

    def __init__(self, running: Running, peer: socket.socket) -> None:
        self._running = running
        self._peer = peer
        self._lines = peer.makefile("rw", encoding="utf-8")

    def __call__(self, check: Callable[..., None], **parameters: object) -> None:
        """Call a test in the session's process, with a new scene.

        Raises:
            AssertionError: It failed, with its trace; or the session died or took too long.
        """
        self._lines.write(json.dumps([_module_of(check), check.__name__, parameters]) + "\n")
        try:
            self._lines.flush()
            answer = self._lines.readline()
        except OSError as error:
            self._running.kill()
            raise SparkFailedError(
                f"{check.__name__}: {error}\n{self._running.output()}"
            ) from error
        if not answer:
            raise SparkFailedError(f"{check.__name__}: it died\n{self._running.output()}")
        trace = json.loads(answer)
        if trace is not None:
            raise AssertionError(trace)


def _module_of(check: Callable[..., None]) -> str:
    """Return the name by which the session imports a module; pytest has another one for it."""
    return f"migrate.{Path(inspect.getfile(check)).stem}"


@contextmanager
def checker(spark: Spark, uri: str, directory: Path) -> Iterator[Checker]:
    """Start a session for checks; it ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_START_SECONDS)
        arguments = {"uri": uri, "directory": str(directory), "port": server.getsockname()[1]}
        with spark.start("migrate.sessions:serve", directory, **arguments) as running:
            try:
                peer, _ = server.accept()
            except TimeoutError as error:
                raise SparkFailedError(f"it did not start:\n{running.output()}") from error
            with peer:
                peer.settimeout(_CHECK_SECONDS)
                yield Checker(running, peer)


# -- in the process of a session -------------------------------------------------------------------


class Scene:
    """A metastore of both Spark's own tables and Lance's, and a directory for all files."""

    def __init__(self, spark: Any, uri: str, directory: str) -> None:
        self.spark = spark
        self.directory = Path(directory) / uuid.uuid4().hex[:8]
        self.directory.mkdir(parents=True)
        self.prefix = f"m_{uuid.uuid4().hex[:10]}"
        properties = {"uri": uri, "root": str(self.directory / "lance")}
        port = int(uri.rsplit(":", 1)[1])
        self.place = Place("hive", properties, (), self.prefix, hive_reader(port), self.directory)
        self.migrations = self.place.migrations

    def database(self, name: str = "raw") -> str:
        """Make a database of Spark's, and return its name."""
        full = f"{self.prefix}_{name}"
        self.spark.sql(f"CREATE DATABASE {full} LOCATION '{self.directory / name}'")
        return full

    def sql(self, statement: str) -> Any:
        return self.spark.sql(statement)

    @property
    def target(self) -> str:
        """The database that tables of Lance go to; it does not exist at first."""
        return f"{self.prefix}_lance"

    @contextmanager
    def run(self, name: str) -> Iterator[Run]:
        """Yield a migration from the session to the metastore."""
        with self.place.connect() as namespace:
            addresses = (address_of_session(self.spark), address_of(namespace))
            endpoints = Endpoints(self.spark, namespace, *addresses)
            yield Run(name, endpoints, self.migrations)

    @contextmanager
    def converting(self, database: str, **options: Any) -> Iterator[Run]:
        """Yield a conversion of all tables of a database, planned with more options."""
        with self.run("convert") as run:
            run.plan(include=[f"{database}.*"], namespace=[self.target], **options)
            yield run

    def dataset(self, table: str, database: str = "") -> lance.LanceDataset:
        """Return a table as pylance opens it by its name."""
        with self.place.connect() as namespace:
            identifier = [database or self.target, table]
            return lance.dataset(namespace_client=namespace, table_id=identifier)

    def tables(self) -> list[str]:
        """Return the names of the target's tables; none where its database does not exist."""
        with self.place.connect() as namespace:
            names = namespace.list_namespaces(api.ListNamespacesRequest(id=[])).namespaces
            if self.target not in names:
                return []
            return sorted(namespace.list_tables(api.ListTablesRequest(id=[self.target])).tables)

    def files(self) -> list[str]:
        """Return all that lies where tables of Lance go."""
        root = self.directory / "lance"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    def clean(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def rows_of(table: pa.Table, key: str = "id") -> list[dict[str, Any]]:
    """Return rows in the order of a key."""
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=lambda row: (row[key] is None, row[key]))


def failed(record: Record) -> list[str]:
    """Return what went wrong: errors and checks."""
    errors = [f"{key}: {each.error.message}" for key, each in record.items.items() if each.error]
    checks = [str(c) for each in record.items.values() for c in each.checks if not c.ok]
    return errors + checks


def again(run: Run) -> None:
    """Have the run's plan be that of a new migration: planning takes most of the time."""
    plan = run.migration.plan().model_copy(update={"id": new_id(run.type.name)})
    run.migration = run.migrations.add(plan)


class Died(BaseException):
    """Stands for the death of the process: nothing is caught, noted or cleaned up after it."""


CHANGES: tuple[tuple[Any, str], ...] = (
    *[(HiveCatalog, name) for name in _OF_CATALOGS],
    (Commit, "run"),
    (loading, "write_first"),
    (loading, "build_index"),
    (TableStorage, "delete_table"),
)
"""What changes something that lasts, beside the journal's events."""


@contextmanager
def moments(
    dies_at: int = -1, changes: Iterable[tuple[Any, str]] = CHANGES
) -> Iterator[Callable[[], int]]:
    """Count moments, and die at one: before each event of the journal, and before each change.

    Between two of them nothing lasting happens, or nothing that the moment after does not see.
    """
    passed = 0

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            nonlocal passed
            passed += 1
            if passed - 1 == dies_at:
                raise Died
            return call(*arguments, **more)

        return counted

    with ExitStack() as stack:
        for owner, name in ((Journal, "append"), *changes):
            stack.enter_context(replaced(owner, name, before))
        yield lambda: passed


def die_before(event: str, step: str) -> AbstractContextManager[None]:
    """Die before the journal gets an event of a step."""

    def made(append: Callable[..., None]) -> Callable[..., None]:
        def checked(journal: Journal, each: Event) -> None:
            if (each.event, each.step) == (event, step):
                raise Died
            append(journal, each)

        return checked

    return replaced(Journal, "append", made)


def each_file_by_itself(spark: Any) -> AbstractContextManager[None]:
    """Make each file of a source a task, however small."""
    least = spark.conf.get("spark.sql.files.openCostInBytes")
    return set_conf(spark, "spark.sql.files.maxPartitionBytes", least)


@contextmanager
def interrupted(when: Callable[[], bool]) -> Iterator[None]:
    """Press Ctrl-C once something holds; the block must end by that."""
    press = partial(os.kill, os.getpid(), signal.SIGINT)
    with _once(when, press), pytest.raises(KeyboardInterrupt):
        yield


def jobs_cancelled(spark: Any, when: Callable[[], bool]) -> AbstractContextManager[None]:
    """Cancel all jobs once something holds, as another user of the session does."""
    return _once(when, spark.sparkContext.cancelAllJobs)


@contextmanager
def _once(when: Callable[[], bool], do: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread once something holds."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.01):
            if when():
                do()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def replaced(
    owner: Any, name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Have something of a class or module be what is made of it."""
    before = getattr(owner, name)
    setattr(owner, name, made(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def serve(spark: Any, uri: str, directory: str, port: int) -> None:
    """Call tests that lines of JSON name, each with a new scene; answer with traces."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        lines = peer.makefile("rw", encoding="utf-8")
        for line in lines:
            module, name, parameters = json.loads(line)
            check = getattr(importlib.import_module(module), name)
            lines.write(json.dumps(_trace_of(check, Scene(spark, uri, directory), parameters)))
            lines.write("\n")
            lines.flush()


def _trace_of(check: Callable[..., None], scene: Scene, parameters: dict[str, Any]) -> str | None:
    """Call a test; return the trace of its failure."""
    try:
        check(scene, **parameters)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - returned, and fails its test
        return traceback.format_exc()
    finally:
        scene.clean()
    return None


# -- increments of catching up ---------------------------------------------------------------------


@contextmanager
def converted(scene: Scene, *, rows: int = 20) -> Iterator[tuple[Run, str]]:
    """Make a table ``t`` of Spark's and of it one of Lance, ``t_new``; yield both."""
    with scene.run("convert") as run:
        database = scene.database()
        scene.sql(
            f"CREATE TABLE {database}.t USING parquet PARTITIONED BY (part) AS "
            f"SELECT /*+ COALESCE(1) */ id, {ROW} FROM range({rows})"
        )
        convert(scene, run, database)
        yield run, database


def convert(scene: Scene, run: Run, database: str, **options: Any) -> None:
    """Convert all tables of a database to ``{table}_new``."""
    run.type = migration_type("convert")
    run.plan(include=[f"{database}.*"], namespace=[scene.target], name="{table}_new", **options)
    assert failed(run.execute()) == []


def plan_next(run: Run, after: Migration | None = None, **options: Any) -> Plan:
    """Plan the increment after the last one, or after another migration."""
    last = (after or run.migration).record()
    run.type = migration_type("catch-up")
    plan = make_plan(run.type, run.endpoints, next_increment(last, **options), follows=last.plan.id)
    run.migration = run.migrations.add(plan)
    return plan


def only_item(plan: Plan) -> Item:
    [item] = plan.items
    return item


def blocked(plan: Plan) -> str:
    """Return why the one table of a plan is blocked."""
    [found] = only_item(plan).blockers
    return found.text


def done(run: Run, verify: str = "checksums") -> Record:
    """Run an increment, which must succeed."""
    record = run.execute(parallelism=1, verify=verify)
    assert failed(record) == []
    return record


def planned_again(run: Run, version: int) -> None:
    """Plan the same increment again, after it was undone: counting takes most of the time."""
    plan = run.migration.plan()
    item = only_item(plan)
    item = item.model_copy(update={"facts": {**item.facts, "version_before": version}})
    fingerprint = run.type.fingerprint(run.endpoints, item)
    item = item.model_copy(update={"fingerprint": fingerprint})
    new = {"id": new_id(run.type.name), "items": (item,)}
    run.migration = run.migrations.add(plan.model_copy(update=new))


def back_to(run: Run, plan: Plan) -> None:
    """Make the next increment follow the migration that a plan follows."""
    assert plan.follows is not None
    run.migration = run.migrations.get(plan.follows)


def add(scene: Scene, database: str, start: int, end: int) -> None:
    scene.sql(
        f"INSERT INTO {database}.t SELECT /*+ COALESCE(1) */ id, {ROW} FROM range({start}, {end})"
    )


def recreate_table(scene: Scene) -> None:
    """Drop the table ``t_new``, and make another of the name, with as many versions."""
    rows, table = scene.dataset("t_new").to_table().sort_by("id"), [scene.target, "t_new"]
    with scene.place.connect() as namespace:
        namespace.drop_table(api.DropTableRequest(id=table))
        location = str(scene.directory / "again")
        lance.write_dataset(rows.slice(0, 1), location)
        lance.write_dataset(rows.slice(1, 1), location, mode="append")
        namespace.register_table(api.RegisterTableRequest(id=table, location=location))


def ids(scene: Scene, table: str = "t_new") -> list[int]:
    return sorted(scene.dataset(table).to_table(columns=["id"])["id"].to_pylist())


def rows_in_spark(scene: Scene, table: str) -> list[dict[str, Any]]:
    return rows_of(scene.spark.table(table).toArrow())
