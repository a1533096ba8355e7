"""Processes of Spark that tests start: jobs that fail or die, secrets, and Python beside a JVM."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from lance_namespace.errors import LanceNamespaceError
from pyspark.errors import PySparkException
from pyspark.sql import functions
from stores.short_lived import SECONDS

import lance_bridge_spark as lb
from lance_bridge_spark.addresses import catalogs_of
from lance_bridge_spark.registration import register
from lance_bridge_spark.source import LanceSource
from lance_bridge_spark.source.writer import LanceWriter

ROWS = 2000
RAISE, KILL_WORKER, KILL_EXECUTOR = "raise", "kill the worker", "kill the executor"
MARK = "LANCE_BRIDGE_TEST_MARK"
"""The environment variable that names the file, where no argument can."""
PROVIDED = "SECRETS_OF_THE_PROVIDER"
"""The environment variable with what `provide` returns, as JSON."""
FAILURES = (PySparkException, LanceNamespaceError)
FILES = 6


def once(mark: str) -> bool:
    """Say whether this is the first call of all processes."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def fail_once(how: str, mark: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that lets rows pass, and fails once after some."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if once(mark):
                fail(how)

    return pass_on


def fail(how: str) -> None:
    """Raise, or kill what runs this: the Python worker, or the executor that it belongs to."""
    if how == RAISE:
        raise RuntimeError("a task fails once, as the test wants")
    process = os.getpid() if how == KILL_WORKER else executor_of(os.getpid())
    os.kill(process, signal.SIGKILL)


def executor_of(process: int) -> int:
    """Return the Java process above a Python worker (Linux)."""
    while Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip() != "java":
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        process = int(status.rpartition(")")[2].split()[1])
    return process


class DyingSource(LanceSource):
    """The data source, whose writer is killed once when it has written its files."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        made = super().writer(schema, overwrite)
        made.__class__ = _DyingWriter
        return made


class _DyingWriter(LanceWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        written = super().write(iterator)
        if once(os.environ[MARK]):
            os.kill(os.getpid(), signal.SIGKILL)
        return written


def append_in_spite_of_failures(spark: Any, directory: str) -> dict[str, Any]:
    """Append while a task raises, a worker is killed and an executor is; once in each way."""
    register(spark)
    spark.dataSource.register(DyingSource)
    found = {}
    for how in (RAISE, KILL_WORKER, KILL_EXECUTOR):
        place = f"{directory}/{how.replace(' ', '-')}.lance"
        rows = spark.range(0, ROWS, 1, 4).mapInArrow(fail_once(how, f"{place}.failed"), "id long")
        rows.write.format("lance").mode("append").save(place)
        found[how] = seen(spark, place)
    place = f"{directory}/writer.lance"
    spark.range(0, ROWS, 1, 4).write.format("dying").mode("append").save(place)
    found["kill the writer"] = seen(spark, place)
    return found


def seen(spark: Any, place: str) -> list[int]:
    """Return how many rows a table has, how many different ones, and its versions."""
    ids = [row.id for row in spark.read.format("lance").load(place).collect()]
    return [
        len(ids),
        len({*ids} & {*range(ROWS)}),
        len(list(Path(place, "_versions").glob("*.manifest"))),
    ]


# -- secrets and credentials -----------------------------------------------------------------------


def provide(properties: Mapping[str, str]) -> dict[str, str]:
    """Return secrets, as a function of ``secrets.provider`` does."""
    assert "secrets.provider" in properties
    found: dict[str, str] = json.loads(os.environ[PROVIDED])
    return found


def leave_all(spark: Any, directory: str, working: dict[str, str], dead: list[str]) -> list[str]:
    """Use each working catalog, the last in every way; fail on those whose servers are dead.

    All that the session says goes to files of the directory. The files of Spark's own are there
    while ``done`` is, which the searching process removes.

    Args:
        working: Namespaces by catalog.

    Returns:
        What was tried and went otherwise than it should.
    """
    left = Path(directory)
    lb.register(spark)
    problems = []
    with (left / "shown.txt").open("w") as shown:
        for name, namespace in working.items():
            try:
                _use(spark, f"{name}.{namespace}", shown.write)
                if name == list(working)[-1]:
                    _change(spark, f"{name}.{namespace}.t", left / name, shown.write)
                    _fail(spark, f"{name}.{namespace}.t", shown.write)
            except FAILURES:
                problems.append(traceback.format_exc())
        for name in dead:
            _must_fail(partial(spark.sql, f"SHOW NAMESPACES IN {name}"), shown.write)
        for row in [*spark.sql("SET -v").collect(), *spark.sql("SET").collect()]:
            shown.write(f"{row}\n")
    (left / "addresses.pickle").write_bytes(pickle.dumps(catalogs_of(spark)))
    done = left / "done"
    done.touch()
    deadline = time.monotonic() + 60
    while done.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return problems


def _use(spark: Any, namespace: str, show: Callable[[str], object]) -> None:
    catalog, _, path = namespace.partition(".")
    table = f"{namespace}.t"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    spark.sql(f"CREATE TABLE {table} AS SELECT id, CAST(id AS STRING) AS s FROM range(0, 40, 1, 2)")
    spark.sql(f"INSERT INTO {table} SELECT id, 'more' FROM range(40, 50)")
    query = f"SELECT s, count(*) FROM {table} WHERE id > 3 GROUP BY s"
    assert spark.sql(query).count() > 1
    for mode in ("EXTENDED", "FORMATTED"):
        show(spark.sql(f"EXPLAIN {mode} {query}").collect()[0][0])
    show(str(spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()))
    show(str(spark.sql(f"SHOW TBLPROPERTIES {table}").collect()))
    show(repr(lb.read(spark, table)))
    reader = spark.read.format("lance").option("catalog", catalog)
    assert reader.load(f"{path}.t").count() == 50
    missing = f"SELECT * FROM {table}_missing"
    _must_fail(lambda: spark.sql(missing).collect(), show)


def _change(spark: Any, table: str, files: Path, show: Callable[[str], object]) -> None:
    spark.sql(f"UPDATE {table} SET s = 'five' WHERE id = 5")
    spark.sql(f"DELETE FROM {table} WHERE id = 6")
    source = spark.range(0, 8).selectExpr("id", "'merged' AS s")
    lb.merge_into(source, table, ["id"], when_matched_update="*", when_not_matched_insert="*")
    lb.update(spark, table, {"s": "'u'"}, "id = 7")
    lb.write(spark.range(5).selectExpr("id", "'w' AS s"), table)
    lb.create_index(spark, table, "id", "BTREE")
    lb.compact(spark, table, target_rows_per_fragment=1000)
    stream = spark.readStream.format("lance").option("start_version", "1").load(table)
    writer = stream.writeStream.format("lance").option("checkpointLocation", f"{files}-stream")
    query = writer.option("path", f"{table}_copy").trigger(availableNow=True).start()
    with suppress(*FAILURES):  # rows of this table were changed, which a stream may refuse
        query.awaitTermination(90)
    show(f"{query.lastProgress} {query.status} {query.exception()}")


def _fail(spark: Any, table: str, show: Callable[[str], object]) -> None:
    """Fail on the driver, in a statement, and in a task."""
    bad = spark.range(3).selectExpr("id", "CAST(raise_error('bad row') AS STRING) AS s")
    for call in (
        lambda: spark.sql(f"SELECT id + nothing FROM {table}").collect(),
        lambda: spark.sql(f"SELECT * FROM {table} VERSION AS OF 4711").collect(),
        lambda: lb.write(bad, table),
        lambda: lb.read(spark, table, filter="no such column = 1").collect(),
        lambda: lb.create_index(spark, table, "nothing", "BTREE"),
        lambda: spark.read.format("lance").option("wrong", "1").load(table).count(),
    ):
        _must_fail(call, show)


def _must_fail(call: Callable[[], object], show: Callable[[str], object]) -> None:
    try:
        call()
    except FAILURES:
        show(traceback.format_exc())
    else:
        raise AssertionError("it did not fail")


def leave_plain(spark: Any, directory: str, location: str, options: dict[str, str]) -> None:
    """Use a catalog whose secrets stand in the settings, and options of a DataFrame that hold some.

    Args:
        options: Those of the data source, for a table at a location.
    """
    left = Path(directory)
    lb.register(spark)
    rows = spark.range(4).selectExpr("id")
    rows.write.format("lance").options(**options).mode("append").save(location)
    read = spark.read.format("lance").options(**options).load(location)
    with (left / "shown.txt").open("w") as shown:
        shown.write(spark._jvm.PythonSQLUtils.explainString(_execution(read), "extended"))
        for row in [*spark.sql("SET -v").collect(), *spark.sql("SET").collect()]:
            shown.write(f"{row}\n")
        _must_fail(lambda: spark.sql("SHOW NAMESPACES IN plain"), shown.write)
    assert read.count() == 4


def _execution(frame: Any) -> Any:
    return frame._jdf.queryExecution()


def write_and_read(spark: Any, table: str) -> list[int]:
    """Write and read a table in SQL and as a frame, in tasks longer than credentials last.

    Returns:
        The rows that SQL counts, and those that the data source reads.
    """
    register(spark)
    spark.sql(f"CREATE TABLE {table} (id BIGINT)")
    slowly = functions.udf(_pass_slowly, "long")
    numbers = spark.range(0, FILES, numPartitions=2).withColumn("id", slowly("id"))
    numbers.createOrReplaceTempView("numbers")
    spark.sql(f"INSERT INTO {table} SELECT id FROM numbers")
    numbers.write.format("lance").mode("append").save(table)
    [[counted]] = spark.sql(f"SELECT count(*) FROM {table}").collect()
    read = spark.read.format("lance").load(table)
    return [counted, len(read.collect())]


def _pass_slowly(number: int) -> int:
    import time  # noqa: PLC0415 - runs in workers

    time.sleep(SECONDS / 2)
    return number


# -- Python processes of a JVM ---------------------------------------------------------------------


END_SECONDS = 60.0


DRIVER, SCANS = b"processes\0driver", b"processes\0executor"
"""What the command lines of the processes have: that of the driver, and that of an executor."""


def pids(spark: Any, kind: bytes = DRIVER) -> list[int]:
    """Return the processes of this session's JVM, by what the system says of them."""
    jvm = str(spark._jvm.java.lang.ProcessHandle.current().pid())
    processes = Path("/proc").glob("[0-9]*")
    return [int(each.name) for each in processes if _is_service(each, jvm, kind)]


def the_pid(spark: Any, kind: bytes = DRIVER) -> int:
    """Return the one process that there is."""
    (pid,) = pids(spark, kind)
    return pid


def arguments(pid: int) -> str:
    """Return what any user of the machine can see of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def await_end(pid: int) -> None:
    """Return when a process has ended."""
    deadline = time.monotonic() + END_SECONDS
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} runs after {SECONDS:g} s"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has only not been waited for does not."""
    return _status(Path(f"/proc/{pid}"))[:1] not in ([], ["Z"])


def _is_service(process: Path, jvm: str, kind: bytes) -> bool:
    try:
        is_ours = kind in (process / "cmdline").read_bytes()
    except OSError:
        return False
    return is_ours and _status(process)[1:2] == [jvm] and is_running(int(process.name))


def _status(process: Path) -> list[str]:
    """Return the state and the parent of a process, or nothing where it has ended."""
    try:
        return (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill(pid: int) -> None:
    """End a process at once."""
    os.kill(pid, 9)
    await_end(pid)


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Let a process do nothing for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
