"""Converted tables get the rows that their sources have received since, and their final names."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace import errors
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from migrate.sessions import (
    AT_COMMIT,
    CHANGES,
    ROW,
    Died,
    Scene,
    add,
    again,
    blocked,
    convert,
    converted,
    done,
    failed,
    ids,
    moments,
    only_item,
    plan_next,
    planned_again,
    recreate_table,
    rows_in_spark,
    rows_of,
)
from pydantic import TypeAdapter
from spark.sql_helpers import set_conf

from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_migrate import Endpoints, Plan, State, address_of, targets, verify
from lance_bridge_migrate.migration import StepContext
from lance_bridge_migrate.migrations import catchup
from lance_bridge_migrate.migrations.catchup import CatchUpFacts, CatchUpOptions
from lance_bridge_migrate.plan import Address, Item
from lance_bridge_migrate.spark import changes
from lance_bridge_migrate.spark.changes import ChangeRange
from lance_bridge_migrate.spark.sources import SourceTable
from lance_bridge_spark.source.writer import Commit

from .places import Place, Run, error_of, register_rows

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#catch-up")]

SPARK = Address(name="spark")
_CHANGES = (*CHANGES, (HiveCatalog, "rename_table"), (lance.LanceDataset, "restore"))


def test_a_cutover_that_died_between_two_entries_is_finished(glue: Place, lake: Path) -> None:
    """Glue renames by a copy: an earlier run may have died before it dropped the old entry."""
    glue.make_namespace()
    path = register_rows(glue, "t_new", lake / "t.lance")
    final = (*path[:-1], "t")
    with glue.connect() as namespace:
        tables, catalog = namespace.tables, namespace.catalog
        endpoints = Endpoints(None, namespace, SPARK, address_of(namespace))
        entry = tables.load_entry(path)
        marked = {**entry.record.properties, targets.MARK: "mark"}
        targets.replace_properties(entry, marked)
        facts = CatchUpFacts(
            source=SourceTable(names=("t",), format="parquet"),
            casts={},
            renames={},
            range=ChangeRange(),
            version_before=1,
            mark_of_table="mark",
            switch_to="t",
        )
        work = StepContext(
            endpoints,
            Plan(
                id="id", type="catch-up", created="", source=SPARK, target=endpoints.target_address
            ),
            CatchUpOptions(tables=(), by="snapshot"),
            Item(source=("t",), target=path, facts=facts.to_json()),
            mark="id/0",
            facts={},
            keep=lambda _: None,
            is_repeated=True,
        )
        for old, new, end in (
            (path, final, catchup.switch),
            (final, path, catchup.switch_back),
        ):
            there = catalog.load_table(old)
            catalog.copy_table(there, replace(there, path=new))
            end(work)
            assert tables.find(old) is None
            assert tables.find(new) is not None
            end(work)
            assert tables.find(new) is not None


# -- by a column -----------------------------------------------------------------------------------


def test_rows_with_greater_values_are_added_up_to_those_of_the_plan(scene: Scene) -> None:
    with converted(scene) as (run, database):
        plan = plan_next(run, by="column", column="id")
        assert "There are no new rows" in only_item(plan).nothing_to_do
        add(scene, database, 20, 35)
        plan = plan_next(run, by="column", column="id")
        assert only_item(plan).rows == 15
        add(scene, database, 35, 37)  # after the plan: the increment does not take them
        record = done(run, "counts")
        assert record.items[f"{database}/t"].facts["rows_written"] == 15
        assert ids(scene) == list(range(35))
        plan_next(run, by="column", column="id")
        done(run, "none")
        assert rows_of(scene.dataset("t_new").to_table()) == rows_in_spark(scene, f"{database}.t")


def test_rows_that_changed_later_are_updated_by_key(scene: Scene) -> None:
    database = scene.database()
    rows = "SELECT id, 'row' AS name, timestamp_seconds(id) AS changed, map('a', id) AS tags"
    scene.sql(f"CREATE TABLE {database}.t USING parquet AS {rows} FROM range(5)")
    scene.sql(
        f"CREATE TABLE {database}.u USING parquet AS SELECT * EXCEPT (tags) FROM {database}.t"
    )
    # Row 1 was changed within the last second that is known, in which row 9 came, too.
    now = (
        f"INSERT OVERWRITE {database}.t {rows} FROM range(5) WHERE id != 1 "
        "UNION ALL SELECT 1, 'other', timestamp_seconds(4), map('b', NULL) "
        "UNION ALL SELECT 9, 'row', timestamp_seconds(4), NULL "
        "UNION ALL SELECT 8, 'row', timestamp_seconds(5), map()"
    )
    with scene.run("convert") as run:
        convert(scene, run, database)
        options: dict[str, Any] = {"by": "column", "column": "changed", "key": ["ID"]}
        mapped, plain = plan_next(run, **options).items
        assert "There are no new rows" in plain.nothing_to_do
        assert mapped.rows == 1, "Spark does not compare maps: the last row is merged again"
        scene.sql(now)
        scene.sql(f"INSERT OVERWRITE {database}.u SELECT * EXCEPT (tags) FROM {database}.t")
        mapped, plain = plan_next(run, **options).items
        assert (mapped.rows, plain.rows) == (4, 3)
        done(run)
        for table in ("t", "u"):
            found = scene.dataset(f"{table}_new").to_table()
            expected = rows_in_spark(scene, f"{database}.{table}")
            assert rows_of(found.select(["id", "name", "changed"])) == [
                {key: row[key] for key in ("id", "name", "changed")} for row in expected
            ]
        assert "There are no new rows" in plan_next(run, **options).items[1].nothing_to_do


def test_rows_that_a_column_does_not_show_are_reported(scene: Scene) -> None:
    database = scene.database()
    scene.sql(f"CREATE TABLE {database}.t (id BIGINT, x DOUBLE) USING parquet")
    scene.sql(f"INSERT INTO {database}.t VALUES (1, 1.0), (2, 2.0), (3, NULL)")
    options: dict[str, Any] = {"by": "column", "column": "x", "key": ["id"]}

    def problems() -> list[str]:
        return [each.text for each in only_item(plan_next(run, **options)).problems]

    with scene.run("convert") as run:
        convert(scene, run, database)
        first = run.migration
        item = only_item(plan_next(run, **options))
        assert "There are no new rows" in item.nothing_to_do, "the null was converted"
        plan_next(run, after=first, **options, switch_to="t")
        scene.sql(f"INSERT OVERWRITE {database}.t VALUES (1, 1.0), (2, NULL), (3, NULL)")
        [problem] = failed(run.execute(parallelism=1))
        assert "'x' is null in 2 rows, and in 1 of the table" in problem
        # Row 2 has a greater value now: no row of the table's is missing.
        scene.sql(f"INSERT OVERWRITE {database}.t VALUES (1, 1.0), (2, 5.0), (3, NULL)")
        run.migration = first
        assert problems() == []
        scene.sql(f"INSERT INTO {database}.t VALUES (4, 0.5), (5, NULL), (6, 6.0)")
        run.migration = first
        counted, null = sorted(problems())[::-1]
        assert "6 rows, and the table would have 4: some were deleted, or arrived late" in counted
        assert "'x' is null in 2 rows of the source, and in 1 of the table" in null
        assert run.execute(parallelism=1, verify="counts").state is State.DIFFERS
        scene.sql(f"INSERT OVERWRITE {database}.t VALUES (1, 1.0), (2, double('NaN'))")
        counted, null = sorted(problems())[::-1]
        assert "2 rows, and the table would have 4" in counted
        assert "'x' is null in 0 rows of the source, and in 1 of the table" in null
        done(run, "none")
        assert "is NaN" in blocked(plan_next(run, **options))
        assert "is NaN" in blocked(plan_next(run, by="column", column="x"))


def test_new_rows_are_found_by_columns_of_all_types(scene: Scene) -> None:
    """The greatest value goes through JSON as text, and is the same value then."""
    columns = {
        "stamp": "timestamp_micros(1700000000000001 + id)",
        "local": "CAST(timestamp_micros(1700000000000001 + id) AS TIMESTAMP_NTZ)",
        "day": "date_add(DATE'1960-02-28', CAST(id AS INT))",
        "price": "CAST(id AS DECIMAL(20, 3)) / 7",
        "number": "CAST(id AS DOUBLE) / 3 - 5",
        "text": "concat('it''s ', lpad(CAST(id AS STRING), 3, '0'))",
        "small": "CAST(id AS SMALLINT)",
        "bytes": "unhex(concat('ff00', lpad(hex(id), 2, '0')))",
    }
    shown = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    source = scene.sql(f"SELECT id, {shown} FROM range(0, 11, 1, 1)")
    for column in columns:
        found = changes.column_range(source, source.where("id < 8"), column)
        assert (found.rows, found.source, found.target) == (3, 11, 8), column
        range = TypeAdapter(ChangeRange).validate_json(json.dumps(asdict(found.range)))
        rows = changes.above(source, column, range).collect()
        assert sorted(row["id"] for row in rows) == [8, 9, 10], column
        assert changes.up_to(source, column, range).count() == 11, column
        found = changes.partition_range(source, source.where("id < 8"), [column])
        is_new = changes.in_partitions(source, [column], found.range.new)
        rows = source.where(is_new).collect()
        assert sorted(row["id"] for row in rows) == [8, 9, 10], column


def test_times_are_the_same_in_another_zone(scene: Scene) -> None:
    database = scene.database()
    rows = "SELECT id, timestamp_seconds(1700000000 + id) AS stamp"
    scene.sql(f"CREATE TABLE {database}.t USING parquet AS {rows} FROM range(3)")
    with scene.run("convert") as run:
        convert(scene, run, database)
        scene.sql(f"INSERT INTO {database}.t {rows} FROM range(3, 6)")
        plan_next(run, by="column", column="stamp")
        with set_conf(scene.spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
            done(run)
        assert ids(scene) == list(range(6))


# -- by partition ----------------------------------------------------------------------------------


def test_partitions_that_are_new_are_added(scene: Scene) -> None:
    with converted(scene) as (run, database):
        add(scene, database, 20, 40)
        plan = plan_next(run, by="partition")
        assert only_item(plan).rows == 20
        add(scene, database, 40, 50)  # a partition that is not of the plan
        done(run)
        assert ids(scene) == list(range(40))
        add(scene, database, 5, 6)
        plan = plan_next(run, by="partition")
        assert "(0): give a key" in blocked(plan)


# -- what blocks an increment ---------------------------------------------------------------------


@pytest.mark.spec("migration.md#convert")
def test_what_cannot_be_caught_up_with_is_in_the_plan(scene: Scene) -> None:
    with converted(scene) as (run, database):
        first = run.migration
        scene.sql(f"INSERT INTO {database}.t VALUES (20, 'a', 2), (20, 'b', 2), (NULL, 'c', 2)")
        for options, text in (
            ({"by": "column", "column": "none"}, "There is no column 'none'"),
            ({"by": "snapshot"}, "parquet has no snapshots"),
            ({"by": "partition", "key": ["none"]}, "none"),
            ({"by": "partition", "key": ["id"]}, "key is null in 1 rows, and 2 rows share one"),
            ({"by": "partition", "switch_to": "t_new"}, "already has the name 't_new'"),
        ):
            assert text in blocked(plan_next(run, after=first, **options)), options
        with pytest.raises(errors.InvalidInputError, match="is needed with by=column"):
            plan_next(run, after=first, by="column")
        plan_next(run, after=first, by="column", column="id")
        planned = run.migration
        key = "spark.sql.files.ignoreCorruptFiles"
        with set_conf(scene.spark, key, "true"):
            with pytest.raises(errors.InvalidInputError, match=f"{key}=true"):
                plan_next(run, by="column", column="id")
            again(run)
            assert f"{key}=true" in failed(run.execute())[0]
        run.migration = planned
        scene.sql(f"ALTER TABLE {database}.t ADD COLUMNS (more INT)")
        with pytest.raises(errors.ConcurrentModificationError, match="plan again"):
            run.execute()
        assert "columns of the source changed" in blocked(plan_next(run, by="column", column="id"))


def test_rows_of_others_block_the_next_increment(scene: Scene) -> None:
    with converted(scene) as (run, database):
        first = run.migration
        add(scene, database, 20, 30)
        plan_next(run, by="column", column="id")
        done(run, "none")
        second = run.migration
        # Following the conversion once more would add the same rows again.
        assert "The last increment did not make version" in blocked(
            plan_next(run, after=first, by="column", column="id")
        )
        # Indices, compactions and settings are no rows.
        dataset = scene.dataset("t_new")
        dataset.create_scalar_index("id", "BTREE")
        dataset.optimize.compact_files()
        dataset.update_config({"a": "b"})
        add(scene, database, 30, 40)
        run.migration = second
        plan_next(run, by="column", column="id")
        scene.dataset("t_new").delete("id = 1")
        with pytest.raises(errors.ConcurrentModificationError):
            run.execute()
        assert "The last increment did not make version" in blocked(
            plan_next(run, by="column", column="id")
        )


def test_a_table_of_the_same_name_is_left_alone(scene: Scene) -> None:
    with converted(scene) as (run, database):
        first = run.migration
        add(scene, database, 20, 30)
        plan_next(run, by="column", column="id", switch_to="t")
        with pytest.raises(Died), moments(AT_COMMIT, ((Commit, "run"),)):
            run.execute(parallelism=1)
        recreate_table(scene)
        version = scene.dataset("t_new").version
        assert version == first.record().items[f"{database}/t"].facts["version"]
        [problem] = failed(run.execute(parallelism=1))
        assert "has been recreated since the plan was made" in problem
        assert run.undo().state is State.UNDONE
        increments: tuple[dict[str, Any], ...] = (
            {"by": "column", "column": "id"},
            {"by": "column", "column": "id", "key": ["id"], "switch_to": "t"},
            {"by": "partition", "key": ["id"]},
        )
        for options in increments:
            assert "not the table that was converted" in blocked(
                plan_next(run, after=first, **options)
            )
            with pytest.raises(errors.InvalidInputError, match="are blocked"):
                run.execute()
        assert scene.tables() == ["t_new"]
        assert scene.dataset("t_new").version == version
        assert ids(scene) == [0, 1]


# -- the cutover -----------------------------------------------------------------------------------


def test_the_table_gets_its_final_name_once_nothing_is_missing(scene: Scene) -> None:
    with converted(scene) as (run, database):
        add(scene, database, 20, 25)
        plan_next(run, by="column", column="id", switch_to="{table}")
        add(scene, database, 25, 26)
        record = run.execute()
        error = error_of(record, f"{database}/t")
        assert error.code == errors.ConcurrentModificationError.code
        assert "1 rows have a greater value" in error.message
        assert scene.tables() == ["t_new"]
        assert ids(scene) == list(range(25)), "the increment's rows are in"
        # Run again, it checks again; another increment takes what is missing.
        assert run.execute().state is State.FAILED
        plan_next(run, by="column", column="id", switch_to="{table}")
        done(run, "counts")
        assert scene.tables() == ["t"]
        assert rows_of(scene.dataset("t").to_table()) == rows_in_spark(scene, f"{database}.t")
        # If others write to it by its new name, undoing is refused before anything is done.
        version = scene.dataset("t").version
        scene.dataset("t").delete("id = 0")
        with pytest.raises(errors.InvalidTableStateError, match="did not write"):
            run.undo()
        assert scene.tables() == ["t"]
        uri = scene.dataset("t").uri
        lance.dataset(uri, version=version).restore()  # type: ignore[no-untyped-call]  # pylance's
        assert run.undo().state is State.UNDONE
        assert scene.tables() == ["t_new"]
        assert ids(scene) == list(range(25))
        plan_next(run, by="column", column="id", switch_to="{table}")
        done(run, "none")
        assert scene.tables() == ["t"]


def test_a_table_whose_partition_column_was_renamed_gets_its_final_name(scene: Scene) -> None:
    with scene.run("convert") as run:
        database = scene.database()
        scene.sql(
            f"CREATE TABLE {database}.t USING parquet PARTITIONED BY (part) AS "
            f"SELECT id, {ROW} FROM range(5)"
        )
        convert(scene, run, database, renames={"part": "p"})
        add(scene, database, 20, 22)
        plan_next(run, by="partition", switch_to="t")
        done(run, "counts")
        assert ids(scene, "t") == [0, 1, 2, 3, 4, 20, 21]


def test_a_session_that_skips_files_does_not_rename_a_table(scene: Scene) -> None:
    key = "spark.sql.files.ignoreCorruptFiles"
    with converted(scene) as (run, _):
        plan_next(run, by="column", column="id", switch_to="t")
        with set_conf(scene.spark, key, "true"):
            [problem] = failed(run.execute(verify="none"))
        assert f"The session has {key}=true" in problem
        assert scene.tables() == ["t_new"]
        done(run, "none")
        assert scene.tables() == ["t"]


def test_a_final_name_that_is_taken_is_left_alone(scene: Scene) -> None:
    with converted(scene) as (run, database):
        plan_next(run, by="column", column="id", switch_to="t")
        register_rows(scene.place, "t", scene.directory / "other", "_lance")
        [problem] = failed(run.execute())
        assert "already exists" in problem
        assert run.undo().state is State.UNDONE
        add(scene, database, 20, 21)
        assert "already exists" in blocked(plan_next(run, by="column", column="id", switch_to="t"))


def test_tables_that_an_increment_leaves_out_are_in_the_next(scene: Scene) -> None:
    database = scene.database()
    for table in "ab":
        scene.sql(f"CREATE TABLE {database}.{table} USING parquet AS SELECT 1L AS id")
    with scene.run("convert") as run:
        convert(scene, run, database)
        scene.sql(f"INSERT INTO {database}.a VALUES (2)")
        scene.sql(f"ALTER TABLE {database}.b ADD COLUMNS (more INT)")
        plan = plan_next(run, by="column", column="id")
        assert [item.source[-1] for item in plan.blocked] == ["b"]
        assert failed(run.execute(skip_blocked=True)) == []
        plan = plan_next(run, by="column", column="id")
        assert [item.source[-1] for item in plan.items] == ["a", "b"]
        assert "There are no new rows" in plan.items[0].nothing_to_do
    record = verify(run.type, run.endpoints, run.migrations.get(plan.follows or ""))
    assert record.state is State.DONE


# -- increments that take long ---------------------------------------------------------------------


@pytest.mark.slow
def test_partitions_that_changed_keep_the_table_from_its_final_name(scene: Scene) -> None:
    with converted(scene) as (run, database):
        plan = plan_next(run, by="partition", switch_to="t")
        assert only_item(plan).rows == 0
        add(scene, database, 20, 21)
        [problem] = failed(run.execute())
        assert "1 partitions have other numbers of rows" in problem
        assert run.undo().state is State.UNDONE
        plan_next(run, by="partition", switch_to="t")
        done(run)
        assert ids(scene, "t") == list(range(21))
        plan = plan_next(run, by="partition", switch_to="t")
        assert "already has the name 't'" in blocked(plan)


@pytest.mark.slow
def test_with_concurrent_writers_no_row_is_lost_or_duplicated(scene: Scene) -> None:
    with converted(scene) as (run, database):
        stopping, written = threading.Event(), [20]

        def write() -> None:
            while not stopping.is_set():
                add(scene, database, written[-1], written[-1] + 3)
                written.append(written[-1] + 3)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            options: dict[str, Any] = {"by": "column", "column": "id"}
            plan_next(run, **options)
            done(run, "none")
            assert ids(scene) == list(range(len(ids(scene)))), "nothing twice, nothing missing"
            assert len(ids(scene)) >= 20
            plan_next(run, **options, switch_to="t")
            count = len(written)
            while len(written) < count + 2:
                stopping.wait(0.05)
            [problem] = failed(run.execute())
            assert "run another increment" in problem
        finally:
            stopping.set()
            writer.join()
        plan_next(run, **options, switch_to="t")
        done(run)
        assert ids(scene, "t") == list(range(written[-1]))
        assert rows_of(scene.dataset("t").to_table()) == rows_in_spark(scene, f"{database}.t")


# -- deaths and undoing ----------------------------------------------------------------------------


def _killed(scene: Scene, run: Run, table: str) -> None:
    """Kill an increment at each moment, resume it, and do so with its undoing."""

    def execute(moment: int = -1) -> int:
        with moments(moment, _CHANGES) as passed:
            assert failed(run.execute(parallelism=1, verify="none")) == []
        return passed()

    def undo(moment: int = -1) -> int:
        with moments(moment, _CHANGES) as passed:
            assert run.undo().state is State.UNDONE
        return passed()

    before, running = scene.dataset("t_new").version, execute()
    made, undoing = scene.dataset(table).version - before, undo()
    assert made == 1
    assert min(running, undoing) >= 5
    for moment in range(max(running, undoing)):
        before = scene.dataset("t_new").version
        planned_again(run, before)
        if moment < running:
            with pytest.raises(Died):
                execute(moment)
        execute()
        assert ids(scene, table) == list(range(25)), moment
        assert scene.dataset(table).version == before + 1, "written once"
        if moment < undoing:
            with pytest.raises(Died):
                undo(moment)
        undo()
        assert scene.tables() == ["t_new"], moment
        assert ids(scene) == list(range(20)), moment
        assert scene.dataset("t_new").version == before + 2, "restored once"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "table"),
    [
        ({"by": "column", "column": "id", "switch_to": "t"}, "t"),
        ({"by": "partition", "key": ["id"]}, "t_new"),
    ],
)
def test_rows_are_added_or_merged_once_whenever_it_is_killed(
    scene: Scene, options: dict[str, Any], table: str
) -> None:
    with converted(scene) as (run, database):
        add(scene, database, 20, 25)
        plan_next(run, **options)
        _killed(scene, run, table)


@pytest.mark.slow
def test_increments_are_undone_one_by_one_and_rows_of_others_are_kept(scene: Scene) -> None:
    with converted(scene) as (run, database):
        add(scene, database, 20, 30)
        plan_next(run, by="column", column="id")
        done(run, "none")
        first = run.migration
        scene.dataset("t_new").optimize.compact_files()
        add(scene, database, 30, 31)
        plan_next(run, by="column", column="id")
        done(run, "none")
        second, run.migration = run.migration, first
        with pytest.raises(InvalidTableStateError, match="did not write"):
            run.undo()  # the later increment must be undone first
        run.migration = second
        assert run.undo().state is State.UNDONE
        run.migration = first
        assert run.undo().state is State.UNDONE
        assert ids(scene) == list(range(20))
        plan_next(run, by="column", column="id")
        done(run, "none")
        scene.dataset("t_new").delete("id = 1")
        with pytest.raises(InvalidTableStateError, match="did not write"):
            run.undo()
    assert len(ids(scene)) == 30


@pytest.mark.slow
def test_rows_that_others_write_while_it_is_cut_off_stay(scene: Scene) -> None:
    with converted(scene) as (run, database):
        add(scene, database, 20, 30)
        first = run.migration
        for options in ({"by": "column", "column": "id"}, {"by": "partition", "key": ["id"]}):
            plan_next(run, after=first, **options)
            with pytest.raises(Died), moments(AT_COMMIT, ((Commit, "run"),)):
                run.execute(parallelism=1)
            before, others = scene.dataset("t_new"), scene.dataset("t_new")
            others.delete("id = 1")
            record = run.execute(parallelism=1)
            error = error_of(record, f"{database}/t")
            assert error.code == ConcurrentModificationError.code, error
            assert run.undo().state is State.UNDONE, "there is nothing to undo"
            assert ids(scene) == [0, *range(2, 20)]
            before.restore()  # type: ignore[no-untyped-call]  # pylance's


@pytest.mark.slow
def test_rows_that_the_source_deleted_are_named_with_a_way_out(scene: Scene) -> None:
    with converted(scene) as (run, database):
        first = run.migration
        scene.sql(
            f"INSERT OVERWRITE {database}.t SELECT id, name, part FROM "
            f"(SELECT id, concat('row ', id) AS name, id DIV 10 AS part FROM range(1, 20))"
        )
        plan_next(run, by="column", column="id", key=["id"], switch_to="t")
        [problem] = failed(run.execute(parallelism=1, verify="none"))
        assert "run another increment" not in problem
        assert "Rows were deleted in the source" in problem
        assert "run an increment by partition with --key" in problem
        # The advice ends it.
        assert run.undo().state is State.UNDONE
        plan_next(run, after=first, by="partition", key=["id"], switch_to="t")
        place = scene.directory / "raw" / "t" / "part=0"
        place.rename(scene.directory / "away")
        [problem] = failed(run.execute(parallelism=1, verify="none"))
        assert "do not exist" in problem, "not taken for deleted"
        assert "do not exist" in blocked(plan_next(run, after=first, by="partition", key=["id"]))
        (scene.directory / "away").rename(place)
        plan_next(run, after=first, by="partition", key=["id"], switch_to="t")
        done(run)
        assert ids(scene, "t") == list(range(1, 20))


@pytest.mark.slow
def test_tables_with_renamed_columns_are_caught_up_with(scene: Scene) -> None:
    """By the names of the table, in which two names have changed places."""
    with scene.run("convert") as run:
        database = scene.database()
        scene.sql(
            f"CREATE TABLE {database}.t USING parquet PARTITIONED BY (part) AS "
            f"SELECT id, {ROW} FROM range(20)"
        )
        convert(scene, run, database, renames={"ID": "number", "part": "id", "name": "part"})
        add(scene, database, 20, 25)
        plan = plan_next(run, by="column", column="number")
        assert only_item(plan).rows == 5
        done(run)
        scene.sql(f"INSERT OVERWRITE {database}.t SELECT id, 'new', 9 AS part FROM range(3)")
        add(scene, database, 90, 95)
        plan = plan_next(run, by="partition", key=["number"])
        assert only_item(plan).blockers == []
        done(run)
        found = scene.dataset("t_new").to_table().to_pylist()
        expected = [
            {"number": row["id"], "part": row["name"], "id": row["part"]}
            for row in rows_in_spark(scene, f"{database}.t")
        ]
        assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.slow
def test_partitions_that_changed_are_merged_by_key(scene: Scene) -> None:
    database = scene.database()
    sql = scene.spark.sql
    sql(
        f"CREATE TABLE {database}.t (id BIGINT, name STRING, day DATE, place STRING) USING parquet "
        "PARTITIONED BY (day, place)"
    )
    rows = "(1,'a',DATE'2024-01-01','x'),(2,'b',DATE'2024-01-01','x'),(3,'c',DATE'2024-01-02',NULL)"
    sql(f"INSERT INTO {database}.t VALUES {rows},(4,'d',DATE'2024-01-03','y')")
    with scene.run("convert") as run:
        convert(scene, run, database)
        # One partition has another row and a changed one, one has lost a row, one is gone, and a
        # row has gone to a new one.
        sql(f"INSERT OVERWRITE {database}.t PARTITION (day = DATE'2024-01-02', place = NULL) "
            "VALUES (3, 'changed'), (5, 'e')")  # fmt: skip
        sql(f"INSERT OVERWRITE {database}.t PARTITION (day = DATE'2024-01-01', place = 'x') "
            "VALUES (1, 'a')")  # fmt: skip
        sql(f"ALTER TABLE {database}.t DROP PARTITION (day = DATE'2024-01-03', place = 'y')")
        sql(f"INSERT INTO {database}.t VALUES (2, 'b', DATE'2024-01-04', 'x')")
        plan = plan_next(run, by="partition", key=["id"])
        assert only_item(plan).rows == 5, "four that exist, and one that is gone"
        record = done(run)
        assert record.items[f"{database}/t"].facts["rows_deleted"] == 1
        assert rows_of(scene.dataset("t_new").to_table()) == rows_in_spark(scene, f"{database}.t")
        plan = plan_next(run, by="partition", key=["id"])
        assert "There are no new rows" in only_item(plan).nothing_to_do
