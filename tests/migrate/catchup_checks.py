"""What `test_catchup` checks in the process of a Spark session."""

from __future__ import annotations

from typing import Any

import pytest
from lance_namespace.errors import InvalidTableStateError
from migrate.building import Run
from migrate.sparking import Died, Scene, failed, moments, rows_of, run_checks

from lance_bridge.migrate import State, kind_named, make_plan
from lance_bridge.migrate.kinds.catchup import next_round


def _converted(scene: Scene, run: Run) -> str:
    database = scene.database()
    scene.spark.sql(
        f"CREATE TABLE {database}.t USING parquet PARTITIONED BY (part) AS "
        "SELECT id, concat('row ', id) AS name, id DIV 10 AS part FROM range(20)"
    )
    run.plan(include=[f"{database}.*"], namespace=[scene.target], name="{table}_new")
    assert failed(run.execute()) == []
    return database


def _next(run: Run, **options: Any) -> Any:
    """Plan the round after the last one."""
    last = run.migration.record()
    run.kind = kind_named("catch-up")
    plan = make_plan(run.kind, run.ends, next_round(last, **options), follows=last.plan.id)
    run.migration = run.migrations.add(plan)
    return plan


def _add(scene: Scene, database: str, start: int, end: int) -> None:
    scene.spark.sql(
        f"INSERT INTO {database}.t "
        f"SELECT id, concat('row ', id), id DIV 10 FROM range({start}, {end})"
    )


def _ids(scene: Scene, table: str = "t_new") -> list[int]:
    return sorted(scene.dataset(table).to_table()["id"].to_pylist())


def check_by_a_column_with_a_switch_over(scene: Scene) -> None:
    with scene.run("convert") as run:
        database = _converted(scene, run)
        first = run.migration.directory.name
        plan = _next(run, by="column", column="id")
        assert "Nothing has come" in plan.items[0].nothing_to_do
        _add(scene, database, 20, 35)
        plan = _next(run, by="column", column="id")
        assert plan.follows != first
        assert plan.to_do[0].rows == 15
        _add(scene, database, 35, 37)  # after the plan: the round does not take them
        assert failed(run.execute(verify="checksums")) == []
        assert _ids(scene) == list(range(35))
        plan = _next(run, by="column", column="id", switch_to="{table}")
        _add(scene, database, 37, 38)
        [problem] = failed(run.execute())
        assert "make another one" in problem
        assert run.undo().state is State.UNDONE
        assert _ids(scene) == list(range(35))
        again = run.migrations.get(plan.follows)
        run.migration = again
        _next(run, by="column", column="id", switch_to="{table}")
        assert failed(run.execute(verify="checksums")) == []
        assert scene.tables() == ["t"]
        assert _ids(scene, "t") == list(range(38))
        assert run.undo().state is State.UNDONE
        assert scene.tables() == ["t_new"]
        assert _ids(scene) == list(range(35))


def check_by_partition(scene: Scene) -> None:
    with scene.run("convert") as run:
        database = _converted(scene, run)
        _add(scene, database, 20, 40)
        plan = _next(run, by="partition")
        assert plan.to_do[0].facts["since"]["new"] == [["2"], ["3"]] or plan.to_do[0].facts[
            "since"
        ]["new"] == (("2",), ("3",))
        assert failed(run.execute(verify="checksums")) == []
        _add(scene, database, 5, 6)
        plan = _next(run, by="partition")
        assert "give a key" in plan.blocked[0].blockers[0].text
        scene.spark.sql(
            f"INSERT OVERWRITE {database}.t PARTITION (part = 0) SELECT id, 'new' FROM range(5)"
        )
        run.migration = run.migrations.get(plan.follows)
        _next(run, by="partition", key=["id"])
        assert failed(run.execute(verify="checksums")) == []
    assert _ids(scene) == [*range(5), *range(10, 40)]
    assert rows_of(scene.dataset("t_new").to_table())[0]["name"] == "new"


def check_killed_at_every_moment(scene: Scene) -> None:
    with scene.run("convert") as run:
        database = _converted(scene, run)
        _add(scene, database, 20, 30)
        first = run.migration
        for options in ({}, {"key": ["id"]}):
            run.migration = first
            _next(run, by="column", column="id", switch_to="t", **options)
            with moments() as passed:
                assert failed(run.execute(at_once=1)) == []
            run.undo()
            for moment in range(passed()):
                run.migration = first
                _next(run, by="column", column="id", switch_to="t", **options)
                with pytest.raises(Died), moments(moment):
                    run.execute(at_once=1)
                assert failed(run.execute(at_once=1, verify="checksums")) == [], (options, moment)
                assert _ids(scene, "t") == list(range(30)), (options, moment)
                assert run.undo().state is State.UNDONE, (options, moment)
                assert _ids(scene) == list(range(20)), (options, moment)


def check_others_changes_are_not_undone(scene: Scene) -> None:
    with scene.run("convert") as run:
        database = _converted(scene, run)
        _add(scene, database, 20, 30)
        _next(run, by="column", column="id")
        assert failed(run.execute()) == []
        scene.dataset("t_new").delete("id = 1")
        with pytest.raises(InvalidTableStateError, match="not one that migration"):
            run.undo()
    assert len(_ids(scene)) == 29


CHECKS = {name: each for name, each in globals().items() if name.startswith("check_")}


def run(spark: Any, uri: str, directory: str, names: list[str]) -> dict[str, str]:
    """Do checks, and return what failed of each."""
    return run_checks(CHECKS, spark, uri, directory, names)
