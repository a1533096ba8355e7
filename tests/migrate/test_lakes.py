"""Tables of Delta and of Iceberg become tables of Lance, and are caught up with.

Some are random: changed at random, and beside folders of Avro.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import ConcurrentModificationError
from migrate.sessions import (
    Checker,
    Scene,
    back_to,
    blocked,
    done,
    failed,
    only_item,
    plan_next,
    rows_of,
)
from migrate.test_convert_safety import (
    TEXTS,
    Folder,
    Row,
    is_named,
    make_folder,
    settled,
    source_of,
)
from servers.sparks import ICE

from lance_bridge_migrate import State, migration_type
from lance_bridge_migrate.record import ItemState
from lance_bridge_migrate.spark import listing
from lance_bridge_migrate.spark.changes import Changes
from lance_bridge_migrate.spark.delta_iceberg import difference
from lance_bridge_migrate.spark.sources import SourceTable

from .places import Run

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.spec("migration.md#catch-up", "migration.md#the-second-reader"),
]


@dataclass(frozen=True)
class Lake:
    """How tables of one format are made.

    Attributes:
        catalog: Spark's name of the catalog that they are in.
        properties: Of a table whose rows are deleted without their files being written again, and
            whose columns can be renamed.
        maintenance: SQL that rewrites the files of ``{table}``, and changes no row.
        forget: SQL after which older snapshots of ``{table}`` cannot be read.
    """

    format: str
    catalog: str
    properties: str
    maintenance: str
    forget: tuple[str, ...]


DELTA = Lake(
    "delta",
    "spark_catalog",
    "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'",
    "OPTIMIZE {table}",
    ("OPTIMIZE {table}", "REORG TABLE {table} APPLY (PURGE)", "VACUUM {table} RETAIN 0 HOURS"),
)
_REWRITE = (
    f"CALL {ICE}.system.rewrite_data_files(table => '{{table}}', "
    "options => map('rewrite-all', 'true'))"
)
ICEBERG = Lake(
    "iceberg",
    ICE,
    "'format-version' = '2', 'write.delete.mode' = 'merge-on-read', "
    "'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read'",
    _REWRITE,
    (
        _REWRITE,
        f"CALL {ICE}.system.expire_snapshots(table => '{{table}}', "
        "older_than => now(), retain_last => 1)",
    ),
)


@pytest.fixture
def scene(beside_lakes: Checker) -> Checker:
    """A `Scene` for the test, in that session."""
    return beside_lakes


_ICEBERG = "org.apache.iceberg.spark.SparkCatalog"
LAKES = {each.format: each for each in (DELTA, ICEBERG)}
every_lake = pytest.mark.parametrize("name", LAKES)
_COLUMNS = "id BIGINT, old STRING, part BIGINT, tags ARRAY<STRING>"


def _made(scene: Scene, lake: Lake, partitions: str = "part", database: str = "raw") -> str:
    """Make a table of ten rows in two partitions, and return its name in Spark."""
    table = f"{lake.catalog}.{scene.database(database)}.t"
    _create(scene, lake, table, partitions)
    _add(scene, table, 0, 10)
    return table


def _create(scene: Scene, lake: Lake, table: str, partitions: str = "part") -> None:
    scene.sql(
        f"CREATE TABLE {table} ({_COLUMNS}) USING {lake.format} "
        f"PARTITIONED BY ({partitions}) TBLPROPERTIES ({lake.properties})"
    )


def _add(scene: Scene, table: str, start: int, end: int) -> None:
    scene.sql(
        f"INSERT INTO {table} SELECT id, concat('row ', id), id DIV 5, array('a', NULL) "
        f"FROM range({start}, {end}, 1, 1)"
    )


def _sql(scene: Scene, table: str, *statements: str) -> None:
    for each in statements:
        scene.sql(each.format(table=table))


def _rows(scene: Scene, table: str) -> list[dict[str, Any]]:
    return rows_of(scene.spark.table(table).toArrow())


def _plan(run: Run, scene: Scene, lake: Lake, table: str, name: str = "t_new") -> None:
    run.type = migration_type("convert")
    database = table.split(".")[1]
    run.plan(
        catalog=lake.catalog,
        include=[f"{database}.*"],
        namespace=[scene.target],
        name=name.replace("t", "{table}", 1),
    )


@contextmanager
def _planned(scene: Scene, lake: Lake, **how: str) -> Iterator[tuple[Run, str]]:
    """Make a table, and plan its conversion; yield that and the table's name in Spark."""
    table = _made(scene, lake, **how)
    with scene.run("convert") as run:
        _plan(run, scene, lake, table)
        yield run, table


@contextmanager
def _converted(scene: Scene, lake: Lake, **how: str) -> Iterator[tuple[Run, str]]:
    with _planned(scene, lake, **how) as (run, table):
        done(run)
        yield run, table


def _state(run: Run) -> ItemState:
    """Return the state of the one table of a migration."""
    [state] = [each for each in run.migration.record().items.values() if "source" in each.facts]
    return state


@pytest.mark.spec("docs/how-to/migrate.md#other-formats-into-lance", "migration.md#convert")
@every_lake
def test_a_table_is_converted_as_it_was_planned_while_it_changes(scene: Scene, name: str) -> None:
    lake = LAKES[name]
    table = _made(scene, lake)
    _sql(
        scene,
        table,
        "DELETE FROM {table} WHERE id IN (1, 7)",
        "UPDATE {table} SET old = 'changed' WHERE id = 2",
        "ALTER TABLE {table} RENAME COLUMN old TO name",
        "ALTER TABLE {table} ADD COLUMNS (more INT)",
        "INSERT INTO {table} VALUES (10, 'row 10', 2, array(), 5)",
    )
    expected = _rows(scene, table)
    with scene.run("convert") as run:
        _plan(run, scene, lake, table)
        item = run.migration.plan().to_do[-1]
        assert item.rows == 9
        assert item.facts["source"]["format"] == lake.format
        assert item.facts["source"]["partitions"] == ["part"]
        # What comes after the plan is not read, be it of rows or of columns.
        _sql(
            scene,
            table,
            "DELETE FROM {table} WHERE id = 3",
            "INSERT INTO {table} VALUES (11, 'row 11', 2, array(), 5)",
            "ALTER TABLE {table} ADD COLUMNS (later INT)",
            "ALTER TABLE {table} RENAME COLUMN more TO less",
            lake.maintenance,
        )
        done(run)
        assert rows_of(scene.dataset("t_new").to_table()) == expected
        assert scene.dataset("t_new").schema.names == ["id", "name", "part", "tags", "more"]
        _sql(scene, table, "INSERT INTO {table} VALUES (12, 'row 12', 2, array(), 5, 6)")
        now = _rows(scene, table)
        assert run.undo().state is State.UNDONE
    assert scene.tables() == []
    assert scene.files() == []
    assert _rows(scene, table) == now


@every_lake
def test_a_table_is_caught_up_with_by_its_snapshots(scene: Scene, name: str) -> None:
    lake = LAKES[name]
    with _converted(scene, lake) as (run, table):
        assert "There are no new rows" in only_item(plan_next(run, by="snapshot")).nothing_to_do
        _sql(scene, table, lake.maintenance)
        assert "There are no new rows" in only_item(plan_next(run, by="snapshot")).nothing_to_do
        _add(scene, table, 10, 15)
        plan = plan_next(run, by="snapshot")
        assert only_item(plan).rows == 5
        expected = _rows(scene, table)
        _add(scene, table, 15, 16)  # after the plan
        done(run)
        assert rows_of(scene.dataset("t_new").to_table()) == expected
        # A row changed, one is gone, and one has gone to another partition.
        _sql(
            scene,
            table,
            "UPDATE {table} SET old = 'changed' WHERE id = 2",
            "DELETE FROM {table} WHERE id = 3",
            "UPDATE {table} SET part = 9 WHERE id = 4",
        )
        plan = plan_next(run, by="snapshot")
        assert "give a key" in blocked(plan)
        back_to(run, plan)
        plan = plan_next(run, by="snapshot", key=["id"], switch_to="t")
        assert only_item(plan).rows == 4, "one new, two changed, one gone"
        wanted = _rows(scene, table)
        _sql(scene, table, "DELETE FROM {table} WHERE id = 0")
        [problem] = failed(run.execute())
        assert "which was read" in problem
        assert rows_of(scene.dataset("t_new").to_table()) == wanted, "its rows are in"
        plan_next(run, by="snapshot", key=["id"], switch_to="t")
        done(run)
        assert rows_of(scene.dataset("t").to_table()) == _rows(scene, table)
        assert run.undo().state is State.UNDONE
        assert rows_of(scene.dataset("t_new").to_table()) == wanted


@every_lake
def test_a_name_is_switched_to_an_unchanged_table(scene: Scene, name: str) -> None:
    lake = LAKES[name]
    with _converted(scene, lake) as (run, table):
        plan_next(run, by="snapshot", switch_to="t")
        done(run)
        assert rows_of(scene.dataset("t").to_table()) == _rows(scene, table)


def test_only_changes_are_read_where_the_format_has_them(scene: Scene) -> None:
    """Where Iceberg only appended, or Delta has a change data feed."""
    feed = replace(DELTA, properties=f"{DELTA.properties}, 'delta.enableChangeDataFeed' = 'true'")
    for lake, reads_changes in ((feed, True), (ICEBERG, False)):
        table = _made(scene, lake, database=lake.format)
        with scene.run("convert") as run:
            name = f"t_{lake.format}"
            _plan(run, scene, lake, table, name)
            done(run, "none")
            source = SourceTable.model_validate(_state(run).facts["source"])
            _sql(scene, table, lake.maintenance)
            _add(scene, table, 10, 15)
            added, deleted = _difference(scene, source)
            assert added.count() == 5, lake.format
            assert deleted is None or deleted.count() == 0, lake.format
            _sql(scene, table, "UPDATE {table} SET old = 'x' WHERE id = 2")
            _sql(scene, table, "DELETE FROM {table} WHERE id IN (3, 12)")
            added, deleted = _difference(scene, source)
            assert deleted is not None
            counts = (added.count(), deleted.count())
            assert counts == ((6, 3) if reads_changes else (13, 10)), lake.format
            plan_next(run, by="snapshot", key=["id"])
            assert only_item(run.migration.plan()).rows == 6
            done(run, "none")
            assert rows_of(scene.dataset(name).to_table()) == _rows(scene, table)
            if reads_changes:
                off = (
                    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')"
                )
                _sql(scene, table, off, off.replace("false", "true"))
                assert _difference(scene, source)[0].count() == 13, "it was off for a while"


def _difference(scene: Scene, source: SourceTable) -> Changes:
    now = listing.describe(scene.spark, source.catalog, source.names)
    assert now is not None
    return difference(scene.spark, now, source.snapshot)


@every_lake
def test_a_table_is_caught_up_with_by_partition_and_by_a_column(scene: Scene, name: str) -> None:
    lake = LAKES[name]
    with _converted(scene, lake) as (run, table):
        _add(scene, table, 10, 15)
        plan = plan_next(run, by="partition")
        assert only_item(plan).rows == 5
        done(run)
        _add(scene, table, 15, 18)
        plan_next(run, by="column", column="id", switch_to="t")
        _add(scene, table, 18, 19)  # the plan has the snapshot before
        assert "which was read" in failed(run.execute())[0]
        plan_next(run, by="column", column="id", switch_to="t")
        done(run)
        assert rows_of(scene.dataset("t").to_table()) == _rows(scene, table)


@every_lake
def test_a_snapshot_that_is_gone_must_be_planned_again(scene: Scene, name: str) -> None:
    lake = LAKES[name]
    with _planned(scene, lake) as (run, table):
        _sql(scene, table, "DELETE FROM {table} WHERE id IN (1, 7)", *lake.forget)
        problems = _refusal(run).lower()
        assert "plan again" in problems, problems
        assert run.undo().state is State.UNDONE
        assert scene.tables() == []
        _plan(run, scene, lake, table)
        done(run)
        # The snapshot that the table was made of is gone when the increment is planned.
        _sql(scene, table, "DELETE FROM {table} WHERE id IN (2, 8)", *lake.forget)
        text = blocked(plan_next(run, by="snapshot", key=["id"]))
        assert "vacuumed" in text, text
        assert "convert it again" in text, text


def _refusal(run: Run) -> str:
    try:
        return " ".join(failed(run.execute()))
    except ConcurrentModificationError as error:
        return str(error)


@every_lake
def test_a_recreated_table_is_not_caught_up_with(scene: Scene, name: str) -> None:
    lake = LAKES[name]
    with _converted(scene, lake) as (run, table):
        first = run.migration
        _add(scene, table, 10, 11)
        plan_next(run, by="snapshot")
        _sql(scene, table, "DROP TABLE {table} PURGE" if lake is ICEBERG else "DROP TABLE {table}")
        _create(scene, lake, table)
        for start in range(5):
            _add(scene, table, start, start + 1)
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            run.execute()
        text = blocked(plan_next(run, after=first, by="snapshot", key=["id"]))
        assert "convert it again" in text, text


@pytest.mark.spec("migration.md#convert")
def test_directories_of_delta_and_iceberg_have_snapshots_too(scene: Scene) -> None:
    """Directories of Delta and Iceberg are read at the snapshot of the plan, too."""
    files, warehouse = f"files_{scene.prefix}", scene.directory / "warehouse"
    for key, value in (("", _ICEBERG), (".type", "hadoop"), (".warehouse", str(warehouse))):
        scene.spark.conf.set(f"spark.sql.catalog.{files}{key}", value)
    database = scene.database()
    places = {
        f"spark_catalog.{database}.t": ("delta", scene.directory / "raw" / "t"),
        f"{files}.db.t": ("iceberg", warehouse / "db" / "t"),
    }
    for table, (format, place) in places.items():
        scene.sql(f"CREATE TABLE {table} ({_COLUMNS}) USING {format}")
        _add(scene, table, 0, 10)
        path = {"path": str(place), "format": format, "table": format}
        with scene.run("convert") as run:
            run.plan(paths=[path], namespace=[scene.target])
            expected = _rows(scene, table)
            _add(scene, table, 10, 12)
            done(run)
            assert rows_of(scene.dataset(format).to_table()) == expected
            plan = plan_next(run, by="snapshot")
            assert only_item(plan).rows == 2
            done(run)
            assert rows_of(scene.dataset(format).to_table()) == _rows(scene, table)


def test_what_others_wrote_to_iceberg_is_seen(scene: Scene) -> None:
    """Another catalog of Iceberg's stands for another process: each keeps tables for itself."""
    table, other = _made(scene, ICEBERG), f"other_{scene.prefix}"
    for key in ("", ".type", ".uri"):
        value = scene.spark.conf.get(f"spark.sql.catalog.{ICE}{key}")
        scene.spark.conf.set(f"spark.sql.catalog.{other}{key}", value)
    seen_by_others = table.replace(ICE, other, 1)
    with scene.run("convert") as run:
        _plan(run, scene, ICEBERG, table)
        done(run, "none")
        assert len(_rows(scene, table)) == 10
        _add(scene, seen_by_others, 10, 12)
        assert only_item(plan_next(run, by="snapshot", switch_to="t")).rows == 2
        _add(scene, seen_by_others, 12, 13)
        assert "which was read" in failed(run.execute())[0]
        plan_next(run, by="snapshot", switch_to="t")
        done(run)
        assert rows_of(scene.dataset("t").to_table()) == _rows(scene, seen_by_others)


def test_partitions_of_iceberg_that_are_not_columns_are_reported(scene: Scene) -> None:
    with _converted(scene, ICEBERG, partitions="bucket(2, id), part") as (run, table):
        _add(scene, table, 10, 12)
        assert "bucket(2, id)" in blocked(plan_next(run, by="partition"))


@pytest.mark.spec("migration.md#convert")
def test_a_table_of_iceberg_without_a_snapshot_has_no_rows(scene: Scene) -> None:
    table = f"{ICE}.{scene.database()}.t"
    scene.sql(f"CREATE TABLE {table} ({_COLUMNS}) USING iceberg")
    with scene.run("convert") as run:
        _plan(run, scene, ICEBERG, table)
        _add(scene, table, 0, 3)
        done(run)
        assert scene.dataset("t_new").count_rows() == 0, "the plan has no snapshot"
        assert _state(run).facts["rows_written"] == 0
        plan_next(run, by="snapshot")
        done(run)
        assert rows_of(scene.dataset("t_new").to_table()) == _rows(scene, table)


BATCHES, FOLDERS, TABLES = 5, 8, 3
_COUNT = 6
"""The changes of each table."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(BATCHES))
def test_all_rows_of_a_random_folder_of_avro_are_converted_or_the_plan_names_what_is_not(
    scene: Scene, seed: int
) -> None:
    chosen = random.Random(seed)
    place = scene.directory / "folders"
    folders = [make_folder(chosen, place / f"f{n}", ("avro",)) for n in range(FOLDERS)]
    with scene.run("convert") as run:
        plan = run.plan(paths=[*map(source_of, folders)], namespace=[scene.target])
        blocked = {item.target[-1]: item.blockers for item in plan.blocked}
        for each in folders:
            if each.name in blocked:
                named = [is_named(each, problem) for problem in blocked[each.name]]
                assert any(named), (each, blocked[each.name])
        converted = [each for each in folders if each.name not in blocked]
        assert converted, blocked
        assert failed(run.execute(verify="checksums", skip_blocked=True)) == []
    require_equal(scene, converted)


def require_equal(scene: Scene, folders: Sequence[Folder]) -> None:
    for each in folders:
        found = scene.dataset(each.name).to_table().to_pylist()
        assert settled(found) == settled(each.rows), each


# -- Delta and Iceberg -----------------------------------------------------------------------------

_PROPERTIES = {
    "delta": "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true', "
    "'delta.checkpointInterval' = '3', 'delta.enableDeletionVectors' = '{is_merged}'",
    "iceberg": "'format-version' = '2', 'write.delete.mode' = '{mode}', "
    "'write.update.mode' = '{mode}'",
}
_RANDOM_COLUMNS = {
    "id": "BIGINT",
    "text": "STRING",
    "number": "INT",
    "nested": "STRUCT<a: BIGINT, list: ARRAY<STRUCT<b: STRING>>>",
}
_NEW = ("more", "With Space", "größe", "ID2", "a-b")


@dataclass
class Table:
    """A table, and the rows that it has to have."""

    scene: Scene
    name: str
    chosen: random.Random
    columns: dict[str, str] = field(default_factory=lambda: {**_RANDOM_COLUMNS})
    rows: list[Row] = field(default_factory=list)
    columns_written: dict[str, str] = field(default_factory=dict)

    @property
    def is_newer(self) -> bool:
        """Whether its columns were changed after its rows."""
        return self.columns != self.columns_written

    def change(self) -> None:
        """Change the table at random, and its rows in the same way."""
        changes: tuple[Callable[[], None], ...] = (
            self.insert, self.insert, self.add, self.rename, self.drop, self.widen, self.add_field,
            self.delete, self.update,
        )  # fmt: skip
        self.chosen.choice(changes)()

    def sql(self, statement: str) -> None:
        self.scene.sql(statement.replace("{t}", self.name))

    def insert(self) -> None:
        rows = [self._row(len(self.rows) * 100 + n) for n in range(self.chosen.randint(1, 5))]
        ddl = ", ".join(f"`{name}` {of}" for name, of in self.columns.items())
        self.scene.spark.createDataFrame(rows, ddl).writeTo(self.name).append()
        self.rows += rows
        self.columns_written = {**self.columns}

    def _row(self, id: int) -> Row:
        row: Row = {name: self.chosen.choice(TEXTS) for name in self.columns}
        nested = {"a": id, "list": [{"b": self.chosen.choice(TEXTS)}]}
        if "new" in self.columns["nested"]:
            nested["new"] = id / 2
        number = self.chosen.randint(-5, 5) + (2**40 if self.columns["number"] == "BIGINT" else 0)
        return {**row, "id": id, "number": number, "nested": nested}

    def add(self) -> None:
        unused = [each for each in _NEW if each not in self.columns]
        if unused:
            self.sql(f"ALTER TABLE {{t}} ADD COLUMNS (`{unused[0]}` STRING)")
            self.columns[unused[0]] = "STRING"

    def rename(self) -> None:
        old, new = [*self.columns][-1], f"renamed {len(self.columns)} {self.chosen.random()}"
        new = new.replace(".", "")
        if old != "nested":
            self.sql(f"ALTER TABLE {{t}} RENAME COLUMN `{old}` TO `{new}`")
            self.columns[new] = self.columns.pop(old)
            for row in self.rows:
                row[new] = row.pop(old, None)

    def drop(self) -> None:
        last = [*self.columns][-1]
        if last != "nested":
            self.sql(f"ALTER TABLE {{t}} DROP COLUMN `{last}`")
            del self.columns[last]
            for row in self.rows:
                row.pop(last, None)

    def widen(self) -> None:
        self.sql("ALTER TABLE {t} ALTER COLUMN number TYPE BIGINT")
        self.columns["number"] = "BIGINT"

    def add_field(self) -> None:
        if "new" not in self.columns["nested"]:
            self.sql("ALTER TABLE {t} ADD COLUMNS (nested.new DOUBLE)")
            self.columns["nested"] = f"{self.columns['nested'][:-1]}, new: DOUBLE>"

    def delete(self) -> None:
        rest = self.chosen.randint(0, 2)
        self.sql(f"DELETE FROM {{t}} WHERE id % 3 = {rest}")
        self._note_write(rest)
        self.rows = [row for row in self.rows if row["id"] % 3 != rest]

    def _note_write(self, rest: int) -> None:
        if any(row["id"] % 3 == rest for row in self.rows):
            self.columns_written = {**self.columns}

    def update(self) -> None:
        rest = self.chosen.randint(0, 2)
        self.sql(f"UPDATE {{t}} SET text = 'changed' WHERE id % 3 = {rest}")
        self._note_write(rest)
        for row in self.rows:
            if row["id"] % 3 == rest:
                row["text"] = "changed"


def _namespace(scene: Scene, format: str) -> tuple[str, str]:
    """Make a namespace; return the names of its catalog, and its own."""
    if format == "delta":
        return "spark_catalog", scene.database()
    # A Hive Metastore refuses fields that Iceberg adds to structs: this catalog is a directory.
    catalog, conf = f"ice_{scene.prefix}", scene.spark.conf
    conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
    conf.set(f"spark.sql.catalog.{catalog}.warehouse", str(scene.directory))
    scene.sql(f"CREATE NAMESPACE {catalog}.raw")
    return catalog, "raw"


def _made_at_random(
    scene: Scene, format: str, number: int, chosen: random.Random, database: str
) -> Table:
    is_merged = chosen.random() < 0.5
    mode = "merge-on-read" if is_merged else "copy-on-write"
    given = _PROPERTIES[format].format(is_merged=str(is_merged).lower(), mode=mode)
    table = Table(scene, f"{database}.t{number}", chosen)
    columns = ", ".join(f"{name} {of}" for name, of in _RANDOM_COLUMNS.items())
    table.sql(f"CREATE TABLE {{t}} ({columns}) USING {format} TBLPROPERTIES ({given})")
    table.insert()
    for _ in range(_COUNT):
        table.change()
    return table


def _add_foreign(place: Path) -> None:
    """Put files into the directory of a table that are not of it."""
    (place / "README.md").write_text("Nothing to see\n")
    [file, *_] = sorted(place.rglob("*.parquet"))
    shutil.copy(file, place / "stray.parquet")
    (place / "k=7").mkdir()
    shutil.copy(file, place / "k=7" / "part.parquet")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("format", _PROPERTIES)
@pytest.mark.parametrize("seed", range(BATCHES))
def test_all_rows_of_randomly_changed_tables_are_converted(
    scene: Scene, format: str, seed: int
) -> None:
    chosen, (catalog, database) = random.Random(seed), _namespace(scene, format)
    names = f"{catalog}.{database}"
    tables = [_made_at_random(scene, format, number, chosen, names) for number in range(TABLES)]
    for number in range(TABLES):
        _add_foreign(scene.directory / "raw" / f"t{number}")
    with scene.run("convert") as run:
        plan = run.plan(catalog=catalog, include=[f"{database}.*"], namespace=[scene.target])
        changed = {
            f"t{n}" for n, each in enumerate(tables) if format == "iceberg" and each.is_newer
        }
        assert {item.target[-1] for item in plan.blocked} == changed
        for item in plan.blocked:
            assert all("metadata.json" in each.text and each.column for each in item.blockers)
            name = f"{names}.{item.target[-1]}"
            scene.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE false")
        plan = run.plan_again()
        assert {problem for item in plan.items for problem in item.problems} == set()
        assert failed(run.execute(verify="checksums")) == []
    for number, table in enumerate(tables):
        found = scene.dataset(f"t{number}").to_table()
        assert {*found.schema.names} == {*table.columns}
        assert settled(found.to_pylist()) == settled(table.rows), table
