"""Migrations with Spark, in the process of a session: what the checks of tests work with."""

from __future__ import annotations

import shutil
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
from migrate.building import Run
from migrate.places import Place, hive_reader

from lance_bridge.migrate import Ends, Migrations, Record, address_of
from lance_bridge.migrate.journal import Event, Journal
from lance_bridge.migrate.spark.session import address_of_session
from lance_bridge.spark.source.commit import Commit


class Scene:
    """A metastore of both Spark's own tables and Lance's, and a directory for all files."""

    def __init__(self, spark: Any, uri: str, directory: str) -> None:
        self.spark = spark
        self.directory = Path(directory) / uuid.uuid4().hex[:8]
        self.directory.mkdir(parents=True)
        self.prefix = f"m_{uuid.uuid4().hex[:10]}"
        properties = {"uri": uri, "root": str(self.directory / "lance")}
        port = int(uri.rsplit(":", 1)[1])
        self.place = Place("hive", properties, (), self.prefix, hive_reader(port))
        self.migrations = Migrations(self.directory / "state")

    def database(self, name: str = "raw") -> str:
        """Make a database of Spark's, and return its name."""
        full = f"{self.prefix}_{name}"
        self.spark.sql(f"CREATE DATABASE {full} LOCATION '{self.directory / name}'")
        return full

    @property
    def target(self) -> str:
        """The database that tables of Lance go to; it is not there at first."""
        return f"{self.prefix}_lance"

    @contextmanager
    def run(self, kind: str) -> Iterator[Run]:
        """Yield a migration from the session to the metastore."""
        with self.place.connect() as namespace:
            yield Run(
                kind,
                Ends(
                    self.spark,
                    namespace,
                    address_of_session(self.spark),
                    address_of(namespace),
                ),
                self.migrations,
            )

    def dataset(self, table: str, database: str = "") -> lance.LanceDataset:
        """Return a table as pylance opens it by its name."""
        with self.place.connect() as namespace:
            identifier = [database or self.target, table]
            return lance.dataset(namespace_client=namespace, table_id=identifier)

    def tables(self) -> list[str]:
        """Return the names of the target's tables; none where its database is not there."""
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


class Died(BaseException):
    """Stands for the death of the process: nothing is caught, noted or cleaned up after it."""


@contextmanager
def moments(dies_at: int = -1) -> Iterator[Callable[[], int]]:
    """Count moments, and die at one: before and after each event and each commit of rows."""
    passed = 0

    def moment() -> None:
        nonlocal passed
        passed += 1
        if passed - 1 == dies_at:
            raise Died

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def between(*arguments: Any, **more: Any) -> Any:
            moment()
            result = call(*arguments, **more)
            moment()
            return result

        return between

    append: Any = Journal.append
    commit: Any = Commit.run

    def counted(journal: Journal, event: Event) -> None:
        around(append)(journal, event)

    Journal.append = counted  # type: ignore[method-assign, assignment]  # counts, and does the same
    Commit.run = around(commit)  # type: ignore[method-assign]  # the same
    try:
        yield lambda: passed
    finally:
        Journal.append = append  # type: ignore[method-assign]
        Commit.run = commit  # type: ignore[method-assign]


def run_checks(
    checks: Mapping[str, Callable[[Scene], None]],
    spark: Any,
    uri: str,
    directory: str,
    names: Sequence[str],
) -> dict[str, str]:
    """Do some of these checks, each in a scene of its own; return the traces of those that fail."""
    found = {}
    for name in names:
        scene = Scene(spark, uri, directory)
        try:
            checks[name](scene)
        except Exception:  # noqa: BLE001 - each is told of, and fails its test
            found[name] = traceback.format_exc()
        finally:
            scene.clean()
    return found
