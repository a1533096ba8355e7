"""Increments that take long: with concurrent writers, killed at any moment, undone, and merged."""

from __future__ import annotations

import threading
from typing import Any

import lance
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from migrate.building import Run, error_of
from migrate.increments import (
    AT_COMMIT,
    ROW,
    add,
    blocked,
    convert,
    converted,
    done,
    ids,
    only_item,
    plan_next,
    planned_again,
    rows_in_spark,
)
from migrate.sparking import CHANGES, Died, Scene, failed, moments, rows_of

from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_migrate import State
from lance_bridge_spark.source.commit import Commit

pytestmark = [pytest.mark.slow, pytest.mark.spec("migration.md#catch-up")]

_CHANGES = (*CHANGES, (HiveCatalog, "rename_table"), (lance.LanceDataset, "restore"))


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
            assert failed(run.execute(at_once=1, verify="none")) == []
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


def test_rows_that_others_write_while_it_is_cut_off_stay(scene: Scene) -> None:
    with converted(scene) as (run, database):
        add(scene, database, 20, 30)
        first = run.migration
        for options in ({"by": "column", "column": "id"}, {"by": "partition", "key": ["id"]}):
            plan_next(run, after=first, **options)
            with pytest.raises(Died), moments(AT_COMMIT, ((Commit, "run"),)):
                run.execute(at_once=1)
            before, others = scene.dataset("t_new"), scene.dataset("t_new")
            others.delete("id = 1")
            record = run.execute(at_once=1)
            error = error_of(record, f"{database}/t")
            assert error.code == ConcurrentModificationError.code, error
            assert run.undo().state is State.UNDONE, "there is nothing to undo"
            assert ids(scene) == [0, *range(2, 20)]
            before.restore()  # type: ignore[no-untyped-call]  # pylance's


def test_rows_that_the_source_deleted_are_named_with_a_way_out(scene: Scene) -> None:
    with converted(scene) as (run, database):
        first = run.migration
        scene.sql(
            f"INSERT OVERWRITE {database}.t SELECT id, name, part FROM "
            f"(SELECT id, concat('row ', id) AS name, id DIV 10 AS part FROM range(1, 20))"
        )
        plan_next(run, by="column", column="id", key=["id"], switch_to="t")
        [problem] = failed(run.execute(at_once=1, verify="none"))
        assert "run another increment" not in problem
        assert "Rows were deleted in the source" in problem
        assert "run an increment by partition with --key" in problem
        # The advice ends it.
        assert run.undo().state is State.UNDONE
        plan_next(run, after=first, by="partition", key=["id"], switch_to="t")
        place = scene.directory / "raw" / "t" / "part=0"
        place.rename(scene.directory / "away")
        [problem] = failed(run.execute(at_once=1, verify="none"))
        assert "do not exist" in problem, "not taken for deleted"
        assert "do not exist" in blocked(plan_next(run, after=first, by="partition", key=["id"]))
        (scene.directory / "away").rename(place)
        plan_next(run, after=first, by="partition", key=["id"], switch_to="t")
        done(run)
        assert ids(scene, "t") == list(range(1, 20))


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
