"""Random changes of a Lance table, with queries between them, give the rows that Spark gives.

Spark makes the same changes of rows of its own, which have no format, and answers the same queries
on them. The table is named by a catalog of its own and by the session catalog, in turn.

There are 500 changes, or LANCE_BRIDGE_TEST_CHANGES. LANCE_BRIDGE_TEST_SEED makes other ones. The
report of a difference has the seed, the step, the settings and the statement; `statements.sql` in
the directory of the test has all statements.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import lance
import pytest
from lance_namespace.errors import LanceNamespaceError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from servers.metastores import Metastores
from servers.sparks import INSTALLED, LOCAL, Spark

import lance_bridge_spark as lb

from .random_changes import KINDS, Change, Changes, State, put
from .random_queries import Queries, Query
from .random_rows import INITIAL, KEY, Columns, null_of
from .sql_helpers import Database, set_conf
from .tables import LOCAL_ROWS

pytestmark = [
    pytest.mark.spec(
        "spark.md#procedures",
        "spark.md#row-level-changes",
        "spark.md#session-catalog",
        "spark.md#statements",
        "spark.md#time-travel",
        "spark.md#what-is-pushed-down",
    ),
]

SEED = int(os.environ.get("LANCE_BRIDGE_TEST_SEED", "1"))
CHANGES = int(os.environ.get("LANCE_BRIDGE_TEST_CHANGES", "500"))
SECONDS = 600.0 + 15.0 * CHANGES
"""Five seconds for each change on a machine that does nothing else."""
DATABASE = "random_changes"
TABLE = f"prod.{DATABASE}.t"
MOST_DIFFERENCES = 10
"""Of one run, which then ends."""
COLUMNAR = "spark.lance_bridge.columnar"
ZONE = "spark.sql.session.timeZone"
EXPECTED, EXPECTED_VERSION = "expected_rows", "expected_version"
SMALL_TASKS = " WITH (`rows_per_task` = '9', `batch_size` = '4')"
FAILURES = (PySparkException, Py4JJavaError, LanceNamespaceError)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_random_changes_and_queries_give_the_rows_of_spark(
    metastores: Metastores, tmp_path: Path
) -> None:
    uri = metastores.get("2.3").uri
    base = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.python.daemon.module": "servers.spark_daemon",
        # Spark takes 0.0D and -0.0D of one projection for one, and answers `d = 0.0D` wrongly.
        "spark.sql.subexpressionElimination.enabled": "false",
    }
    settings = lb.settings({"prod": {"impl": "hive", "uri": uri}}, base, session_catalog=True)
    # With the second compiler, as it takes long enough.
    environment = {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC"}
    found = Spark(INSTALLED, LOCAL, settings, environment).run(
        "spark.test_random_changes:run",
        tmp_path,
        seconds=SECONDS,
        seed=SEED,
        changes=CHANGES,
        log=str(tmp_path / "statements.sql"),
    )
    assert found["differences"] == [], "\n\n".join(found["differences"])
    assert sum(found["made"].values()) == CHANGES
    assert found["failed"] <= CHANGES / 10
    if CHANGES >= 500:
        assert {*KINDS} - {*found["made"]} == set()
        assert found["queries"] > 1.5 * CHANGES


@pytest.mark.quick
def test_a_seed_gives_the_same_changes() -> None:
    def made() -> list[str]:
        found = []
        for step, kind in enumerate(KINDS):
            state = State({**INITIAL}, [*range(40)], [1, 2], {}, lambda: {"a": []}, next_id=40)
            change = Changes(random.Random(step), state, step).make(kind)
            found.append(change.statement)
        return found

    statements = made()
    assert statements == made()
    assert len({*statements}) == len(KINDS)
    assert len({type_.sql for type_ in INITIAL.values()}) >= 19


def run(spark: Any, seed: int, changes: int, log: str) -> dict[str, Any]:
    """Make so many changes; return the differences, kinds of changes, and number of queries."""
    lb.register(spark)
    spark.sql(f"CREATE DATABASE {DATABASE}")
    with Path(log).open("w", encoding="utf-8") as file:

        def write(text: str) -> None:
            file.write(f"{text}\n")
            file.flush()

        comparison = Comparison(spark, seed, write)
        for step in range(1, changes + 1):
            comparison.step(step)
            if len(comparison.differences) >= MOST_DIFFERENCES:
                break
    return {
        "differences": comparison.differences,
        "made": comparison.made,
        "queries": comparison.queries,
        "failed": comparison.failed,
    }


@dataclass(frozen=True)
class Remembered:
    """The rows of a version, as Spark holds them, and a time at which it was the latest one."""

    columns: Columns
    frame: Any
    time: datetime


@dataclass(frozen=True)
class Answer:
    """What a query returned: columns with their types, and rows; or why it failed."""

    columns: Sequence[tuple[str, str]] = ()
    rows: Sequence[Any] = ()
    failure: str | None = None


class Comparison:
    """A table of Lance, and the rows that Spark holds it must have."""

    def __init__(self, spark: Any, seed: int, write: Callable[[str], object]) -> None:
        self.differences: list[str] = []
        self.made: Counter[str] = Counter()
        self.queries = self.failed = 0
        self._spark = spark
        self._seed = seed
        self._write = write
        self._step = 0
        self._chance = random.Random(seed)
        self._versions: dict[int, Remembered] = {}
        self._state = State({**INITIAL}, indices=self._indices)
        listed = ", ".join(f"`{name}` {each.sql}" for name, each in INITIAL.items())
        spark.sql(f"CREATE TABLE {TABLE} ({listed}) TBLPROPERTIES ('vector.vector' = '3')")
        described = Database(spark, "prod", DATABASE).described(TABLE)
        self._location = urlparse(described["Location"]).path
        nulls = ", ".join(f"{null_of(each)} AS `{name}`" for name, each in INITIAL.items())
        self._expect(self._held(f"SELECT * FROM (SELECT {nulls}) WHERE false"))
        self._remember()

    def step(self, number: int) -> None:
        """Make a change, compare all rows, and after every third change the rows of queries."""
        self._step = number
        self._chance = random.Random(f"{self._seed} {number}")
        kind, change = Changes(self._chance, self._state, number).choose()
        self.made[kind] += 1
        self._make(change)
        self._compare_all_rows()
        self._remember()
        if number % 3 == 0:
            for _ in range(4):
                self._ask(Queries(self._chance, self._state.columns).choose(), self._table())
            self._ask_of_a_version()

    # Changes.

    def _make(self, change: Change) -> None:
        table = self._name()
        statement = put(change.statement, table)
        self._write(f"-- step {self._step}\n{statement};")
        old = self._versions[change.version] if change.version else None
        frame, of_spark = self._frame, None
        try:
            if old:
                frame = old.frame
            elif change.expected:
                frame = self._held(put(change.expected, EXPECTED))
        except FAILURES as error:
            of_spark = str(error)
        of_lance = self._failure_of(change, statement, table)
        if (of_spark is None) != (of_lance is None):
            self._differs(statement, f"Spark: {of_spark}\nLance: {of_lance}")
        elif of_spark is not None:
            self.failed += 1
        else:
            self._state.columns = old.columns if old else change.columns or self._state.columns
            self._expect(frame)

    def _failure_of(self, change: Change, statement: str, table: str) -> str | None:
        try:
            if change.run:
                change.run(self._spark, table)
            else:
                self._spark.sql(statement).collect()
        except FAILURES as error:
            return str(error)
        return None

    def _held(self, query: str) -> Any:
        """Return the rows of a query, which Spark computes now and keeps."""
        with (
            self._without_generated_code(),
            # With it, Spark fails to keep some unions: "key not found" of their columns.
            set_conf(self._spark, "spark.sql.constraintPropagation.enabled", "false"),
        ):
            return self._spark.sql(query).coalesce(1).localCheckpoint()

    def _expect(self, frame: Any) -> None:
        """Take rows for those that the table must have."""
        self._frame = frame
        frame.createOrReplaceTempView(EXPECTED)

    def _remember(self) -> None:
        version = lance.dataset(self._location).version
        time = datetime.now(timezone.utc)
        self._versions[version] = Remembered(self._state.columns, self._frame, time)
        self._state.versions = [*self._versions]

    def _indices(self) -> dict[str, list[str]]:
        found = lance.dataset(self._location).list_indices()
        return {each["name"]: each["fields"] for each in sorted(found, key=lambda i: i["name"])}

    # Comparisons.

    def _compare_all_rows(self) -> None:
        expected = self._expected(f"SELECT * FROM {EXPECTED}")
        self._state.ids = [row[KEY] for row in expected.rows]
        with self._settings() as settings:
            statement = f"SELECT * FROM {self._name()}"
            found = self._answer(statement)
        if detail := difference(expected, found):
            self._differs(f"{statement} {settings}", detail)
            # What follows is compared with the rows that are expected again.
            self._spark.sql(f"CREATE OR REPLACE TABLE {TABLE} AS SELECT * FROM {EXPECTED}")

    def _ask(self, query: Query, table: str, view: str = EXPECTED) -> None:
        """Compare the rows of a query of the table with those of a view."""
        self.queries += 1
        statement = put(query.text, table)
        with self._settings() as settings:
            self._write(f"{statement}; -- {settings}")
            found, expected = self._answer(statement), self._expected(put(query.text, view))
        self.failed += expected.failure is not None
        if detail := difference(expected, found, is_ordered=query.is_ordered):
            self._differs(f"{statement} {settings}", detail)

    def _ask_of_a_version(self) -> None:
        version = self._chance.choice([*self._versions])
        remembered = self._versions[version]
        names = [f"VERSION AS OF {version}", f"TIMESTAMP AS OF '{remembered.time.isoformat()}'"]
        labels = self._state.labels.items()
        names += [f"VERSION AS OF '{label}'" for label, of in labels if of == version]
        remembered.frame.createOrReplaceTempView(EXPECTED_VERSION)
        query = Queries(self._chance, remembered.columns).choose()
        self._ask(query, f"{self._name()} {self._chance.choice(names)}", EXPECTED_VERSION)

    def _answer(self, query: str) -> Answer:
        try:
            frame = self._spark.sql(query)
            return Answer(frame.dtypes, frame.collect())
        except FAILURES as error:
            return Answer(failure=str(error))

    def _expected(self, query: str) -> Answer:
        with self._without_generated_code():
            return self._answer(query)

    @contextmanager
    def _without_generated_code(self) -> Iterator[None]:
        """Have Spark interpret expressions: that is faster for few rows, and another way."""
        with (
            set_conf(self._spark, "spark.sql.codegen.wholeStage", "false"),
            set_conf(self._spark, "spark.sql.codegen.factoryMode", "NO_CODEGEN"),
        ):
            yield

    def _differs(self, statement: str, detail: str) -> None:
        text = f"seed {self._seed}, step {self._step}: {statement}\n{detail}"
        self._write(f"-- DIFFERENCE {text}")
        self.differences.append(text)

    # How the table is named and read.

    def _name(self) -> str:
        """Return its name in one of the catalogs that have it."""
        return self._chance.choice((TABLE, f"{DATABASE}.t"))

    def _table(self) -> str:
        return self._name() + self._chance.choice(("", "", SMALL_TASKS))

    @contextmanager
    def _settings(self) -> Iterator[dict[str, str]]:
        """Choose whether tasks read, whether they pass columns, and the session's time zone."""
        chosen = {
            LOCAL_ROWS: self._chance.choice(("0", "10000")),
            COLUMNAR: self._chance.choice(("auto", "auto", "false")),
            ZONE: self._chance.choice(("UTC", "UTC", "America/New_York")),
        }
        with ExitStack() as stack:
            for name, value in chosen.items():
                stack.enter_context(set_conf(self._spark, name, value))
            yield chosen


def difference(expected: Answer, found: Answer, *, is_ordered: bool = False) -> str:
    """Return what only one of two answers has, or nothing; all failures are alike."""
    if expected.failure is not None and found.failure is not None:
        return ""
    if (expected.failure, [*expected.columns]) != (found.failure, [*found.columns]):
        shown = [each.failure or str(each.columns) for each in (expected, found)]
        return f"Spark: {shown[0][:2000]}\nLance: {shown[1][:2000]}"
    texts = [[*map(repr, each.rows)] for each in (expected, found)]
    if texts[0] == texts[1] or (not is_ordered and sorted(texts[0]) == sorted(texts[1])):
        return ""
    spark, ours = (Counter(each) for each in texts)
    parts = [
        f"only {name} ({sum(rows.values())}): {[*rows][:3]}"
        for name, rows in (("Spark", spark - ours), ("Lance", ours - spark))
        if rows
    ]
    return "\n".join(parts) or f"another order: {texts[0]}\n{texts[1]}"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("found", "is_ordered"),
    [
        (Answer([("a", "int")], [(2,), (1,)]), True),
        (Answer([("a", "int")], [(1,), (1,)]), False),
        (Answer([("a", "bigint")], [(1,), (2,)]), False),
        (Answer(failure="no such table"), False),
    ],
)
def test_other_rows_types_orders_and_failures_are_differences(
    found: Answer, is_ordered: bool
) -> None:
    expected = Answer([("a", "int")], [(1,), (2,)])
    assert difference(expected, found, is_ordered=is_ordered)
    assert difference(expected, Answer([("a", "int")], [(2,), (1,)])) == ""
    assert difference(found, found, is_ordered=is_ordered) == ""
