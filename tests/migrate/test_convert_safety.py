"""Conversions that are killed or stopped, and concurrent writers: no rows are lost."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from itertools import count, cycle, product
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    ErrorCode,
    InvalidTableStateError,
    ServiceUnavailableError,
)
from migrate.sessions import (
    Died,
    Scene,
    again,
    each_file_by_itself,
    failed,
    interrupted,
    moments,
    replaced,
    rows_of,
)
from migrate.test_convert import orders

from lance_bridge.tables import dropping
from lance_bridge_migrate import State
from lance_bridge_migrate.migrations import loading
from lance_bridge_migrate.record import leftover_messages
from lance_bridge_migrate.report import report_of

from .places import counts_of, error_of, files

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#convert")]


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_moment_and_run_again_each_row_exists_once(scene: Scene, every: int) -> None:
    """A conversion is resumed or undone; at each moment, where ``every`` is 1, both."""
    database = scene.database()
    scene.sql(
        f"CREATE TABLE {database}.orders USING parquet AS "
        "SELECT id, concat('row ', id) AS name FROM range(0, 5, 1, 1)"
    )
    source = files(scene.directory / "raw")
    with scene.run("convert") as run:
        run.plan(
            include=[f"{database}.*"],
            namespace=[scene.target],
            indices=[{"column": "id", "kind": "BTREE"}],
        )
        with moments() as passed:
            assert failed(run.execute(parallelism=1)) == []
        expected = rows_of(scene.dataset("orders").to_table())
        versions = len(scene.dataset("orders").versions())
        with moments() as undoing:
            assert run.undo().state is State.UNDONE
        assert passed() > 15
        assert undoing() > 8
        assert passed() > undoing()
        at, ways = range(0, passed(), every), (True, False)
        for moment, is_resumed in product(at, ways) if every == 1 else zip(at, cycle(ways)):
            again(run)
            with pytest.raises(Died), moments(moment):
                run.execute(parallelism=1)
            if is_resumed:  # or else it is undone from where it is
                assert failed(run.execute(parallelism=1)) == [], moment
                assert rows_of(scene.dataset("orders").to_table()) == expected, moment
                assert len(scene.dataset("orders").versions()) == versions, moment
            with suppress(Died), moments(moment % undoing()):
                run.undo()
            assert run.undo().state is State.UNDONE, moment
            assert scene.tables() == [], moment
            assert scene.files() == [], moment
    assert files(scene.directory / "raw") == source


def test_rows_and_branches_of_others_are_not_undone(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        assert failed(run.execute()) == []
        made = scene.dataset("orders")
        lance.dataset(made.uri).create_branch("other", made.version)
        with pytest.raises(InvalidTableStateError, match="branch other"):
            run.undo()
        lance.dataset(made.uri).branches.delete("other")
        scene.dataset("orders").delete("id = 1")
        with pytest.raises(InvalidTableStateError, match="delete rows of other writers"):
            run.undo()
    assert scene.dataset("orders").count_rows() == 29


def _failing(_: object) -> Callable[..., None]:
    def fails(*_: object) -> None:
        raise ServiceUnavailableError("The catalog does not answer")

    return fails


def test_files_that_others_took_over_are_not_deleted(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        assert failed(run.execute()) == []
        dataset = scene.dataset("orders")
        before = dataset.count_rows()
        with replaced(dropping, "drop_with_data", _failing):
            assert "does not answer" in failed(run.undo())[0]
        with scene.place.connect() as namespace:
            request = api.DeregisterTableRequest(id=[scene.target, "orders"])
            namespace.deregister_table(request)
        lance.write_dataset(dataset.to_table().slice(0, 1), dataset.uri, mode="append")
        [refused] = failed(run.undo())
        assert "undoing could delete rows of other writers" in refused
    assert lance.dataset(dataset.uri).count_rows() == before + 1


def test_a_source_that_changed_while_a_run_was_cut_off_is_refused(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        for moment in count():
            with pytest.raises(Died), moments(moment):
                run.execute(parallelism=1)
            if "load" in run.migration.record().items[f"{database}/orders"].steps:
                break
        scene.sql(f"ALTER TABLE {database}.orders ADD COLUMNS (more INT)")
        [refused] = failed(run.execute())
        assert "plan again" in refused
        assert run.undo().state is State.UNDONE
    assert scene.tables() == []


def test_sources_that_are_away_fail_their_verification_and_are_verified_again(
    scene: Scene,
) -> None:
    database, raw = scene.database(), scene.directory / "raw"
    for stored in ("rcfile", "textfile", "parquet"):
        scene.sql(f"CREATE TABLE {database}.h_{stored} (id BIGINT) STORED AS {stored}")
        scene.sql(f"INSERT INTO {database}.h_{stored} SELECT id FROM range(5)")
    with scene.run("convert") as run:
        run.plan(include=[f"{database}.*"], namespace=[scene.target])
        assert failed(run.execute(verify="none")) == []
        away = raw.rename(raw.with_name("away"))
        record = run.execute(verify="counts")
        errors = {name: each.error for name, each in record.items.items() if each.error}
        assert {name.split("_")[-1] for name in errors} == {"rcfile", "textfile", "parquet"}
        assert all(str(raw) in each.message or "exist" in each.message for each in errors.values())
        away.rename(raw)
        assert failed(run.execute(verify="counts")) == []


def test_a_source_that_changed_since_the_plan_is_refused(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        scene.sql(f"ALTER TABLE {database}.orders ADD COLUMNS (more INT)")
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            run.execute()
        run.plan(include=[f"{database}.*"], namespace=[scene.target])
        scene.sql(f"DROP TABLE {database}.orders")
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            run.execute()
    assert scene.tables() == []


@pytest.mark.slow
def test_of_several_at_once_one_fails_and_the_others_are_done(scene: Scene) -> None:
    database = scene.database()
    for name in "abcde":
        lists = "array(1.5F, 2.5F, 3.5F)" if name == "c" else "array(1.5F, CAST(id AS FLOAT))"
        scene.sql(
            f"CREATE TABLE {database}.{name} USING parquet AS "
            f"SELECT id, '{name}' AS name, {lists} AS vector FROM range(0, 20, 1, 2)"
        )
    with scene.converting(database, vectors={"vector": 2}) as run:
        for _ in range(2):  # the next run tries it again
            record = run.execute(parallelism=4)
            assert counts_of(record) == {"done": 5, "failed": 1}
            wrong = error_of(record, f"{database}/c")
            assert wrong.code == int(ErrorCode.INVALID_INPUT)
            assert "length is not 2" in wrong.message
        for name in "abde":
            found = scene.dataset(name).to_table()
            assert sorted(found["id"].to_pylist()) == list(range(20))
            assert set(found["name"].to_pylist()) == {name}
        assert scene.dataset("c").count_rows() == 0
        assert run.undo().state is State.UNDONE
    assert scene.files() == []


@pytest.mark.slow
def test_ctrl_c_cancels_the_jobs_of_spark_and_the_next_run_continues(scene: Scene) -> None:
    database, files_of_source = scene.database(), 40
    scene.sql(
        f"CREATE TABLE {database}.t USING parquet AS "
        f"SELECT id FROM range(0, 80, 1, {files_of_source})"
    )

    def written() -> list[str]:
        return [each for each in scene.files() if "/data/" in each]

    with scene.converting(database) as run, each_file_by_itself(scene.spark):
        with interrupted(lambda: bool(written())):
            run.execute()
        assert 0 < len(written()) < files_of_source, "it did not wait for all of them"
        record = run.migration.record()
        assert record.runs[-1].ended is not None
        assert counts_of(record) == {"done": 1, "started": 1}
        assert failed(record) == []
        assert scene.dataset("t").versions()[-1]["version"] == 1
        assert failed(run.execute(verify="checksums")) == []
        assert sorted(scene.dataset("t").to_table()["id"].to_pylist()) == list(range(80))
        assert run.undo().state is State.UNDONE
    assert scene.files() == [], "also those of the tasks that were stopped"


def test_files_and_tables_of_others_are_left_alone(scene: Scene) -> None:
    database = orders(scene)
    occupied = scene.directory / "lance" / f"{scene.target}.db" / "orders.lance"
    with scene.converting(database) as run:
        with run.migration.journal(), pytest.raises(ConcurrentModificationError, match="being run"):
            run.execute()
        occupied.mkdir(parents=True)
        (occupied / "other").write_text("x")
        assert failed(run.execute(verify="checksums")) == []
        assert scene.dataset("orders").uri != str(occupied)
        assert [each.name for each in occupied.iterdir()] == ["other"]
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        assert "already used by a Lance table" in plan.blocked[0].blockers[0].text
        # Lance's own tables are none to be converted.
        plan = run.plan(include=[f"{scene.prefix}_*"], namespace=[scene.target], name="{table}_2")
        assert [item.source for item in plan.to_do] == [(database, "orders")]
        shown = f"1 views and Lance tables are skipped: {scene.target}.orders"
        assert shown in plan.notes


def test_a_table_that_others_write_to_before_the_load_is_not_touched(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:

        def other_first(call: Any) -> Any:
            def between(table: Any, rows: Any) -> Any:
                lance.write_dataset(pa.table({"other": [1]}), table.location)
                return call(table, rows)

            return between

        with replaced(loading, "write_first", other_first):
            record = run.execute()
        assert "another writer" in failed(record)[0]
        assert "another writer has written" in failed(run.execute())[0]
        with pytest.raises(InvalidTableStateError, match="delete rows of other writers"):
            run.undo()
    assert scene.dataset("orders").to_table().to_pylist() == [{"other": 1}]


def test_files_of_failed_tasks_are_named_with_the_command_for_them(scene: Scene) -> None:
    database = scene.database()
    scene.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT id FROM range(5)")

    def leaving_a_file(append: Any) -> Any:
        def leave_and_append(*arguments: Any, **more: Any) -> Any:
            [data] = (scene.directory / "lance").glob("*/*/_versions")
            (data.parent / "data").mkdir(exist_ok=True)
            (data.parent / "data" / f"{uuid.uuid4()}.lance").write_bytes(b"cut off")
            return append(*arguments, **more)

        return leave_and_append

    with scene.converting(database) as run, replaced(loading, "append", leaving_a_file):
        record = run.execute(verify="checksums")
    assert record.state is State.DONE, failed(record)
    state = record.items[f"{database}/t"]
    assert (state.facts["orphaned_files_left"], state.facts["orphaned_bytes_left"]) == (1, 7)
    command = f"lance-bridge maintain clean-up hive {scene.target}.t --older-than 7d"
    [text] = leftover_messages(state, record.plan.target)
    assert text.endswith(command)
    report = report_of(record)
    assert [each.orphaned_bytes_left for each in report.items] == [None, 7]
    assert [each.text for each in report.problems] == [text]
