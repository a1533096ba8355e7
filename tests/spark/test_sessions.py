"""What other sessions than the one that called `register` know of its catalogs."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import CreateMaterializedViewRequest
from lance_namespace.errors import LanceNamespaceError
from pyspark.errors import PySparkException
from servers.sparks import INSTALLED, LOCAL, Spark
from servers.unity import UnityServer

import lance_bridge
import lance_bridge_spark as lb
from lance_bridge_spark.addresses import catalogs_of

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#other-sessions")]

RELEASES = [
    INSTALLED,
    pytest.param("4.1", marks=pytest.mark.matrix),
    pytest.param("4.2", marks=pytest.mark.matrix),
]
IN_MATRIX = [pytest.param(each, marks=pytest.mark.matrix) for each in ("4.1", "4.2", INSTALLED)]
Catalogs = Mapping[str, Mapping[str, str]]
PLAIN, SECRET = "plain", "guarded"
TOKEN = "token-of-a-session"
ALL = [3, 3, 3]
"""What `seen` returns if a session knows a table."""
NOT_FOUND = ("REQUIRES_SINGLE_PART_NAMESPACE", "TABLE_OR_VIEW_NOT_FOUND")
"""What Spark says of a name whose first part is no catalog."""
LINE = "lance_bridge_spark.register(spark)"


@contextmanager
def two_catalogs(directory: Path) -> Iterator[dict[str, dict[str, str]]]:
    """Run the servers of two catalogs, one of which has a secret among its properties."""
    with UnityServer() as plain, UnityServer() as secret:
        found = {}
        for name, server in ((PLAIN, plain), (SECRET, secret)):
            server.add_catalog("main")
            root = str(directory / name)
            found[name] = {"impl": "unity", "host": server.url, "catalog": "main", "root": root}
        found[SECRET]["token"] = TOKEN
        yield found


def fill(spark: Any, catalogs: Catalogs) -> None:
    """Register catalogs, and make a table of three rows in each."""
    lb.register(spark, catalogs)
    for name in catalogs:
        spark.sql(f"CREATE NAMESPACE {name}.db")
        spark.sql(f"CREATE TABLE {name}.db.t AS SELECT id FROM range(3)")


def seen(session: Any, catalog: str) -> list[Any]:
    """Return how many rows a session finds, or why it does not, in each of three ways."""
    table = f"{catalog}.db.t"
    return [
        counted(session.read.format("lance").load, table),
        counted(session.table, table),
        said(lambda: lb.count(session, table)),
    ]


def counted(load: Callable[[str], Any], table: str) -> Any:
    return said(lambda: load(table).count())


def said(call: Callable[[], Any]) -> Any:
    """Return the answer to a call, or its error's message."""
    try:
        return call()
    except (PySparkException, LanceNamespaceError) as error:
        return str(error).partition("\n\nJVM stacktrace")[0]


def say(answers: list[Any], line: str = LINE) -> list[bool]:
    """Return which of the answers are errors with a line of Python in them."""
    return [isinstance(each, str) and line in each for each in answers]


@pytest.mark.parametrize("release", RELEASES)
def test_sessions_that_begin_later_know_registered_catalogs(release: str, tmp_path: Path) -> None:
    with two_catalogs(tmp_path) as catalogs:
        run = partial(Spark(release, LOCAL).run, "spark.test_sessions:use_later_sessions")
        found = run(tmp_path, seconds=700.0, catalogs=catalogs)
    assert {key: found[key] for key in ("new", "thread", "cloned", "foreachBatch")} == {
        "new": [ALL, ALL],
        "thread": [ALL, ALL],
        "cloned": [ALL, ALL],
        "foreachBatch": [ALL, ALL],
    }
    assert found["search"] == "[LANCE_INVALID_INPUT]"
    early = found["early"]
    assert say([early[0], early[2]]) == [True, True], early
    assert any(word in early[1] for word in NOT_FOUND), early
    assert found["early, registered"] == [ALL, ALL]
    assert found["root of another registration"] == str(tmp_path / "other")


def use_later_sessions(spark: Any, catalogs: Catalogs) -> dict[str, Any]:
    """Return what sessions find that `register` was not called with."""
    early = spark.newSession()
    early.sql("SELECT 1").collect()
    fill(spark, catalogs)
    found: dict[str, Any] = {}
    found["new"] = [seen(spark.newSession(), name) for name in catalogs]
    nearest = f"SELECT * FROM lance_search('{PLAIN}.db.t', vector => array(1))"
    failure = said(lambda: spark.newSession().sql(nearest).collect())
    found["search"] = str(failure).partition(" ")[0]
    with ThreadPoolExecutor(1) as pool:
        in_thread = pool.submit(lambda: [seen(spark.newSession(), name) for name in catalogs])
        found["thread"] = in_thread.result(120)
    clone = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    found["cloned"] = [seen(clone, name) for name in catalogs]
    found["foreachBatch"] = in_each_batch(spark, catalogs)
    found["early"] = seen(early, PLAIN)
    lb.register(early)
    found["early, registered"] = [seen(early, name) for name in catalogs]
    other = str(Path(catalogs[PLAIN]["root"]).with_name("other"))
    lb.register(spark, {PLAIN: {**catalogs[PLAIN], "root": other}})
    again = catalogs_of(spark.newSession())[PLAIN].properties
    found["root of another registration"] = again["root"]
    return found


def in_each_batch(spark: Any, catalogs: Catalogs) -> list[Any]:
    """Return what the session of a stream's batch finds, which Spark clones."""
    found: list[Any] = []

    def take(rows: Any, _: int) -> None:
        found.extend(seen(rows.sparkSession, name) for name in catalogs)

    rows = spark.readStream.format("lance").load(f"{PLAIN}.db.t")
    query = rows.writeStream.foreachBatch(take).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return found


@pytest.mark.parametrize("release", IN_MATRIX)
def test_a_session_after_stop_knows_catalogs_or_says_the_line(release: str, tmp_path: Path) -> None:
    with two_catalogs(tmp_path) as catalogs:
        run = partial(Spark(release, LOCAL).run, "spark.test_sessions:use_a_session_after_stop")
        found = run(tmp_path, seconds=700.0, catalogs=catalogs)
    assert found["plain"] == ALL
    assert found["new"] == ALL
    assert say(found["secret"]) == [True, True, True], found["secret"]
    assert TOKEN not in str(found)
    assert found["token in properties of the JVM"] is False
    assert found["registered"] == [ALL, ALL]
    assert say(found["with settings"][:1]) == [True]  # its data source knows no names without it
    assert found["with settings"][1:] == ALL[1:]
    assert found["engine"] is True


def use_a_session_after_stop(spark: Any, catalogs: Catalogs) -> dict[str, Any]:
    """Return what the sessions after the first one find, all of one program."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

    fill(spark, catalogs)
    spark.stop()
    found: dict[str, Any] = {}
    again: Any = SparkSession.builder.getOrCreate()
    found["plain"] = seen(again, PLAIN)
    found["new"] = seen(again.newSession(), PLAIN)
    found["secret"] = seen(again, SECRET)
    properties = str(again._jvm.java.lang.System.getProperties().toString())
    found["token in properties of the JVM"] = TOKEN in properties
    lb.register(again)
    found["registered"] = [seen(again, name) for name in catalogs]
    again.stop()
    # A session whose settings bring the jar, in a JVM that runs.
    builder: Any = SparkSession.builder
    third = builder.config(map=lb.settings({"named": catalogs[PLAIN]})).getOrCreate()
    found["with settings"] = seen(third, "named")
    found["engine"] = run_by_the_engine(third, catalogs[PLAIN])
    third.stop()
    return found


def run_by_the_engine(session: Any, properties: Mapping[str, str]) -> bool:
    """Return whether an operation of a namespace is run, whose engine is a stopped session."""
    given = dict(properties)
    namespace = lance_bridge.connect(given.pop("impl"), given)
    schema = pa.schema([("id", pa.int64())]).serialize().to_pybytes()
    request = CreateMaterializedViewRequest(
        id=["db", "view"],
        kind="query",
        source_query=f"SELECT id FROM {PLAIN}.db.t WHERE id > 0",
        output_schema=base64.b64encode(schema).decode(),
        with_no_data=False,
    )
    namespace.create_materialized_view(request)
    return int(session.table(f"{PLAIN}.db.view").count()) == 2


@pytest.mark.matrix
def test_a_session_of_spark_connect_says_the_line_for_it(tmp_path: Path) -> None:
    with two_catalogs(tmp_path) as catalogs, Spark().connect(tmp_path) as remote:
        run = partial(remote.run, "spark.test_sessions:use_remote_sessions")
        found = run(tmp_path, seconds=700.0, catalogs=catalogs)
    assert found["first"] == [ALL, ALL]
    assert found["cloned"] == [ALL, ALL]
    source, sql, function = found["new"]
    assert say([source, function], "register(spark, {'plain': {'impl'") == [True, True], found
    assert any(word in sql for word in NOT_FOUND), sql
    assert found["registered"] == [ALL, ALL]


def use_remote_sessions(spark: Any, catalogs: Catalogs) -> dict[str, Any]:
    """Return what other sessions of a server find."""
    fill(spark, catalogs)
    new = spark.newSession()
    found: dict[str, Any] = {"first": [seen(spark, name) for name in catalogs]}
    clone = spark.cloneSession()
    found["cloned"] = [seen(clone, name) for name in catalogs]
    found["new"] = seen(new, PLAIN)
    lb.register(new, catalogs)
    found["registered"] = [seen(new, name) for name in catalogs]
    for session in (clone, new):
        session.stop()  # Python cannot end before: it would wait for threads of gRPC forever
    return found
