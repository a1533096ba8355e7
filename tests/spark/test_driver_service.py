"""The Python process of a driver: when it starts and ends, and what it may not show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from servers.http_proxy import Fault, HttpProxy, Request

from lance_bridge_spark.addresses import catalogs_of
from lance_bridge_spark.source import with_catalogs

from .catalogs import TOKEN, proxied_catalog, unity_catalog
from .python_processes import arguments, await_end, kill, paused, pids, the_pid
from .sql_helpers import setting

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#the-python-process-of-the-driver")]

IDLE = "spark.lance_bridge.service.idle"
TIMEOUT = "spark.lance_bridge.service.timeout"


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with unity_catalog(spark, "served", tmp_path_factory.mktemp("served")) as name:
        spark.sql(f"CREATE TABLE {name}.db.t (id BIGINT, s STRING)")
        spark.sql(f"INSERT INTO {name}.db.t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
        yield name


def names(spark: Any, catalog: str) -> list[str]:
    return sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN {catalog}.db").collect())


def test_one_process_answers_all_and_shows_no_secret(spark: Any, catalog: str) -> None:
    found = spark.table(f"{catalog}.db.t").collect()
    assert sorted(tuple(row) for row in found) == [(1, "a"), (2, "b"), (3, None)]
    spark.sql(f"CREATE TABLE {catalog}.db.u AS SELECT id FROM {catalog}.db.t WHERE id > 1")
    spark.sql(f"UPDATE {catalog}.db.u SET id = 7 WHERE id = 3")
    assert sorted(row.id for row in spark.table(f"{catalog}.db.u").collect()) == [2, 7]
    spark.sql(f"DROP TABLE {catalog}.db.u")
    assert TOKEN not in arguments(the_pid(spark))


def test_a_process_that_died_is_replaced(spark: Any, catalog: str) -> None:
    names(spark, catalog)
    before = the_pid(spark)
    kill(before)
    assert names(spark, catalog) == ["t"]
    assert the_pid(spark) != before


def test_a_call_that_changes_nothing_is_repeated_and_another_is_not(
    spark: Any, tmp_path: Path
) -> None:
    with proxied_catalog(spark, "broken", tmp_path, _method) as proxy:
        spark.sql("CREATE TABLE broken.db.t (id BIGINT)")
        spark.sql("CREATE TABLE broken.db.u (id BIGINT)")
        for method, statement in (
            ("GET", "SHOW TABLES IN broken.db"),
            ("DELETE", "DROP TABLE broken.db.u"),
        ):
            error = _killed_at(spark, proxy, method, statement)
            if method == "GET":
                assert error is None
            else:
                assert error is not None
                assert "LANCE_SERVICE_UNAVAILABLE" in error
                assert "its outcome is unknown" in error


def test_a_commit_without_a_response_names_its_transaction(spark: Any, tmp_path: Path) -> None:
    """Repeated, the statement would make another transaction, and could insert the rows twice."""
    with proxied_catalog(spark, "cut", tmp_path, _method) as proxy:
        spark.sql("CREATE TABLE cut.db.t (id BIGINT)")

        def kill_in_commit(_: Request) -> bool:
            if any(tmp_path.rglob("data/*.lance")):
                kill(the_pid(spark))
            return False

        proxy.fail_next(kill_in_commit, Fault.RESET)
        with pytest.raises(PySparkException) as failed:
            spark.sql("INSERT INTO cut.db.t VALUES (1)")
        proxy.reset()
        error = str(failed.value)
        assert "LANCE_SERVICE_UNAVAILABLE" in error
        assert re.search(r"commit_write .* outcome is unknown: .* transaction [0-9a-f-]{36}", error)
        assert ": repeat the statement" not in error
        assert spark.table("cut.db.t").count() == 0


def _killed_at(spark: Any, proxy: HttpProxy, method: str, statement: str) -> str | None:
    """Run a statement, kill Python in its first request of a method, and return the error."""
    pid = the_pid(spark)
    proxy.reset()
    killed: list[int] = []

    def kill_at(request: Request) -> bool:
        if request.method == method and not killed:
            killed.append(pid)
            kill(pid)
        return False

    proxy.fail_next(kill_at, Fault.RESET)
    try:
        spark.sql(statement).collect()
    except PySparkException as error:
        return str(error)
    finally:
        assert killed, f"no {method} came"
    return None


def test_concurrent_statements_get_their_own_answers(spark: Any, catalog: str) -> None:
    names(spark, catalog)
    before = the_pid(spark)

    def ask(number: int) -> Any:
        if number % 3 == 0:
            return names(spark, catalog)
        return spark.sql(f"SELECT id + {number} FROM {catalog}.db.t WHERE s = 'b'").collect()

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(ask, range(9)))
    assert answers == [["t"] if n % 3 == 0 else [(2 + n,)] for n in range(9)]
    assert the_pid(spark) == before


def test_sessions_of_one_jvm_have_catalogs_of_their_own(
    spark: Any, catalog: str, tmp_path: Path
) -> None:
    other = spark.newSession()
    with unity_catalog(other, catalog, tmp_path):
        other.sql(f"CREATE TABLE {catalog}.db.other (id BIGINT)")
        assert names(other, catalog) == ["other"]
        assert names(spark, catalog) == ["t"]
        assert len(pids(spark)) == 1


def test_a_process_without_calls_ends(spark: Any, catalog: str) -> None:
    with setting(spark, IDLE, "100ms"):
        names(spark, catalog)
        for pid in pids(spark):
            await_end(pid)
    assert names(spark, catalog) == ["t"]


def test_a_call_takes_no_longer_than_the_session_allows(spark: Any, catalog: str) -> None:
    names(spark, catalog)
    timeout = pytest.raises(PySparkException, match=r"service\.timeout")
    with paused(the_pid(spark)), setting(spark, TIMEOUT, "100ms"), timeout:
        names(spark, catalog)
    assert names(spark, catalog) == ["t"]


@pytest.mark.parametrize(
    ("executable", "problem"),
    [("/no/such/python3", "cannot be started"), ("false", "exited on start")],
)
def test_a_python_that_cannot_answer_is_named(
    spark: Any, catalog: str, monkeypatch: pytest.MonkeyPatch, executable: str, problem: str
) -> None:
    source = with_catalogs(catalogs_of(spark))
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", executable)
        spark.dataSource.register(source)
    try:
        with pytest.raises(PySparkException, match=f"{executable} {problem}.*PYSPARK_PYTHON"):
            names(spark, catalog)
    finally:
        spark.dataSource.register(source)
    assert names(spark, catalog) == ["t"]


def _method(request: Request) -> str:
    return request.method
