"""Migrations with Spark, in the process of a session: what the checks of tests work with."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from migrate.building import Run
from migrate.places import Place, hive_reader
from spark.sql_helpers import setting

from lance_bridge.storage.store import TableStorage
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_migrate import Endpoints, Record, address_of
from lance_bridge_migrate.journal import Event, Journal
from lance_bridge_migrate.migrations import loading
from lance_bridge_migrate.plan import new_id
from lance_bridge_migrate.spark.session import address_of_session
from lance_bridge_spark.source.commit import Commit

_OF_CATALOGS = ("create_namespace", "drop_namespace", "create_table", "alter_table", "drop_table")


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


def dying_before(event: str, step: str) -> AbstractContextManager[None]:
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
    return setting(spark, "spark.sql.files.maxPartitionBytes", least)


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
