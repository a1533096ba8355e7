"""Random folders of Avro, and tables of Delta and Iceberg that were changed at random."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from migrate.sessions import Checker, Scene, failed
from migrate.test_random_folders import (
    TEXTS,
    Folder,
    Row,
    is_named,
    make_folder,
    settled,
    source_of,
)

pytestmark = [pytest.mark.matrix, pytest.mark.spec("migration.md#the-second-reader")]

BATCHES, FOLDERS, TABLES = 5, 8, 3
_COUNT = 6
"""The changes of each table."""


@pytest.fixture
def scene(beside_lakes: Checker) -> Checker:
    """A `Scene` for the test, in a session with the packages of Avro, Delta and Iceberg."""
    return beside_lakes


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
_COLUMNS = {
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
    columns: dict[str, str] = field(default_factory=lambda: {**_COLUMNS})
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


def _made(scene: Scene, format: str, number: int, chosen: random.Random, database: str) -> Table:
    is_merged = chosen.random() < 0.5
    mode = "merge-on-read" if is_merged else "copy-on-write"
    given = _PROPERTIES[format].format(is_merged=str(is_merged).lower(), mode=mode)
    table = Table(scene, f"{database}.t{number}", chosen)
    columns = ", ".join(f"{name} {of}" for name, of in _COLUMNS.items())
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
    tables = [_made(scene, format, number, chosen, names) for number in range(TABLES)]
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
