"""What the checks of the SQL catalog share: running statements, expecting them to fail, reports."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lance_namespace import CreateNamespaceRequest
from pyspark.errors import PySparkException

from lance_bridge_spark.addresses import SESSION_CATALOG, catalogs_of
from lance_bridge_spark.registration import register


@contextmanager
def set_conf(spark: Any, name: str, value: str) -> Iterator[None]:
    """Give a setting of the session another value for a while."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def failure_of(action: Callable[[], Any]) -> str | None:
    """Return what Spark says of an action that fails, or None."""
    try:
        action()
    except PySparkException as error:
        return str(error)
    return None


def stream_all(writer: Any, checkpoint: str | Path, table: str = "") -> None:
    """Write all that there is of a stream to a table by its name, or to where its options say."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.toTable(table) if table else writer.start()
    try:
        assert query.awaitTermination(300), "the stream did not end in time"
    finally:
        query.stop()


@dataclass(frozen=True)
class Database:
    """A namespace of a catalog of a session, and statements there.

    Attributes:
        namespace: Its names joined with dots.
    """

    spark: Any
    catalog: str
    namespace: str

    @property
    def name(self) -> str:
        """Its name in a statement."""
        return f"{self.catalog}.{self.namespace}"

    def fresh(self, name: str) -> str:
        """Return the full name of a table that does not exist."""
        table = f"{self.name}.{name}"
        self.sql(f"DROP TABLE IF EXISTS {table}")
        return table

    def made(self, name: str, how: str) -> str:
        """Replace a table by the rest of a CREATE TABLE, and return its full name."""
        table = self.fresh(name)
        self.sql(f"CREATE TABLE {table} {how}")
        return table

    def sql(self, statement: str) -> Any:
        return self.spark.sql(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, in its order."""
        return [tuple(row) for row in self.sql(query).collect()]

    def values(self, query: str) -> list[Any]:
        """Return the first column of a query, in its order."""
        return [row[0] for row in self.rows(query)]

    def fails(self, statement: str, *words: str) -> str:
        """Return the message of a statement that must fail with one of these words in it."""
        message = failure_of(lambda: self.sql(statement).collect())
        assert message is not None, f"{statement!r} was done"
        found = any(word in message for word in words)
        assert found, f"{statement!r}: no {words} in {message[:2000]}"
        return message

    def columns(self, table: str) -> list[tuple[str, str, str | None]]:
        """Return names, types and comments of columns, as DESCRIBE tells them."""
        found = self.rows(f"DESCRIBE TABLE {table}")
        return [(row[0], row[1], row[2] or None) for row in found if not row[0].startswith("#")]

    def described(self, table: str) -> dict[str, str]:
        """Return what DESCRIBE EXTENDED tells besides columns."""
        found = self.rows(f"DESCRIBE TABLE EXTENDED {table}")
        start = next(at for at, row in enumerate(found) if row[0].startswith("# Detailed"))
        return {row[0]: row[1] for row in found[start + 1 :]}

    def properties(self, table: str) -> dict[str, str]:
        """Return what SHOW TBLPROPERTIES tells."""
        return dict(self.rows(f"SHOW TBLPROPERTIES {table}"))

    @property
    def alters(self) -> bool:
        """Whether the catalog can change what it has of a table."""
        connected = catalogs_of(self.spark)[self.catalog].connect()
        return not connected.connection.capabilities.no_alter


def own_catalog(check: Callable[[Database], None]) -> Callable[[Database], None]:
    """Mark a check of what differs where a catalog has the tables of other formats as well."""
    vars(check)["own_catalog"] = True
    return check


def checks(
    spark: Any, modules: Sequence[str], catalogs: dict[str, list[str]], only: Sequence[str] = ()
) -> dict[str, str]:
    """Run all checks of modules, and return what was wrong with which.

    Args:
        catalogs: Namespaces to make and to use, by the name of a catalog of the session.
        only: Names of checks; all where it is empty.
    """
    register(spark)
    wrong, done = {}, 0
    for catalog, path in catalogs.items():
        namespace = catalogs_of(spark)[catalog].connect()
        namespace.create_namespace(CreateNamespaceRequest(id=path, mode="exist_ok"))
        db = Database(spark, catalog, ".".join(path))
        for check in (each for name in modules for each in _checks_of(name, catalog)):
            if only and check.__name__ not in only:
                continue
            done += 1
            started = time.monotonic()
            try:
                check(db)
            except Exception:  # noqa: BLE001 - every failure is reported, and the others run
                wrong[f"{catalog}: {check.__name__}"] = traceback.format_exc()[-3000:]
                print(wrong[f"{catalog}: {check.__name__}"])
            print(f"{time.monotonic() - started:6.1f} s {catalog}: {check.__name__}", flush=True)
    assert done, f"no checks in {modules}"
    return wrong


def _checks_of(name: str, catalog: str) -> Iterator[Callable[[Database], None]]:
    """Yield the checks of a module and of its parts, where they are for a catalog."""
    module = importlib.import_module(name)
    parts: Sequence[ModuleType] = (module, *getattr(module, "PARTS", ()))
    if getattr(module, "ONLY", catalog) == catalog:
        for part in parts:
            for key, each in vars(part).items():
                if key.startswith("check_") and (
                    catalog != SESSION_CATALOG or not vars(each).get("own_catalog")
                ):
                    yield each
