"""The Spark session of a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lance_bridge_migrate as migrations

from .common import exit_on_error, parse_key_values
from .output import message

if TYPE_CHECKING:
    from lance_bridge.namespace import LanceBridgeNamespace

SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", "-c", help="A setting of Spark: key=value. Repeatable."),
]
Metastore = Annotated[
    str | None,
    typer.Option("--metastore", help="Where Spark's tables are: thrift://host:9083."),
]
_IMPLEMENTATION = "spark.sql.catalogImplementation"
_REMOTE = "spark.remote"


@contextmanager
def session_beside(
    namespace: LanceBridgeNamespace | None,
    metastore: str | None,
    conf: Sequence[str] | None,
    state: str | None,
) -> Iterator[tuple[Any, migrations.Address]]:
    """Yield a session, which ends with the block, and its address.

    Args:
        namespace: Where this is a Hive Metastore and nothing else is told, Spark reads its tables.
        metastore: A Thrift URI; goes before that.
        conf: Settings, each as key=value.
        state: The state directory, where Spark's log is.
    """
    given = parse_key_values(conf)
    uri = metastore or (None if namespace is None else _uri_of(namespace))
    if uri is not None and (metastore or not {_IMPLEMENTATION, _REMOTE} & set(given)):
        given |= {_IMPLEMENTATION: "hive", "spark.hadoop.hive.metastore.uris": uri}
    with exit_on_error():
        # Imported here, because it needs Spark.
        from lance_bridge_migrate.ends import SPARK  # noqa: PLC0415 - takes seconds to import
        from lance_bridge_migrate.spark.session import address_of_session, session_at  # noqa: PLC0415

        from .spark_log import spark_log  # noqa: PLC0415 - takes seconds to import

        with ExitStack() as stack:
            with spark_log(migrations.Migrations(state).directory.parent) as log:
                spark = stack.enter_context(session_at(migrations.Address(name=SPARK), given))
            message(f"Spark's own log is {log}")
            yield spark, address_of_session(spark)


def is_forgetful(spark: Any) -> bool:
    """Return whether the session's own catalog is in its memory, and ends with it."""
    return bool(spark.conf.get(_IMPLEMENTATION, "in-memory") == "in-memory")


def _uri_of(namespace: LanceBridgeNamespace) -> str | None:
    from lance_bridge_migrate.ends import bridge_of  # noqa: PLC0415 - takes seconds to import

    uri = getattr(bridge_of(namespace).config, "uri", "")
    return uri if uri.startswith("thrift://") else None
