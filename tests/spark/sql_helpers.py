"""What the checks of the SQL catalog share: running statements, and expecting them to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException

from lance_bridge_spark.addresses import catalogs_of


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
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


def fresh(spark: Any, catalog: str, namespace: str, name: str) -> str:
    """Return the full name of a table that does not exist."""
    table = f"{catalog}.{namespace}.{name}"
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    return table


def rows(spark: Any, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query, in its order."""
    return [tuple(row) for row in spark.sql(query).collect()]


def values(spark: Any, query: str) -> list[Any]:
    """Return the first column of a query, in its order."""
    return [row[0] for row in rows(spark, query)]


def fails(spark: Any, statement: str, *words: str) -> str:
    """Return the message of a statement that must fail with one of these words in it."""
    message = failure_of(lambda: spark.sql(statement).collect())
    assert message is not None, f"{statement!r} was done"
    assert any(word in message for word in words), f"{statement!r}: no {words} in {message[:2000]}"
    return message


def failure_of(action: Callable[[], Any]) -> str | None:
    """Return what Spark says of an action that fails, or None."""
    try:
        action()
    except PySparkException as error:
        return str(error)
    return None


def columns(spark: Any, table: str) -> list[tuple[str, str, str | None]]:
    """Return names, types and comments of columns, as DESCRIBE tells them."""
    found = rows(spark, f"DESCRIBE TABLE {table}")
    return [(row[0], row[1], row[2] or None) for row in found if not row[0].startswith("#")]


def described(spark: Any, table: str) -> dict[str, str]:
    """Return what DESCRIBE EXTENDED tells besides columns."""
    found = rows(spark, f"DESCRIBE TABLE EXTENDED {table}")
    start = next(at for at, row in enumerate(found) if row[0].startswith("# Detailed"))
    return {row[0]: row[1] for row in found[start + 1 :]}


def properties(spark: Any, table: str) -> dict[str, str]:
    """Return what SHOW TBLPROPERTIES tells."""
    return dict(rows(spark, f"SHOW TBLPROPERTIES {table}"))


def alters(spark: Any, catalog: str) -> bool:
    """Return whether the catalog can change what it has of a table."""
    return not catalogs_of(spark)[catalog].connect().connection.capabilities.no_alter
