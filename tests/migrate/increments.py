"""Increments of catching up in the process of a Spark session, and the table that they are for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lance
import lance_namespace as api
from migrate.building import Run
from migrate.sparking import Scene, failed, rows_of

from lance_bridge_migrate import Migration, Plan, Record, make_plan, migration_type
from lance_bridge_migrate.migrations.catchup import next_increment
from lance_bridge_migrate.plan import Item, new_id

AT_COMMIT = 2
"""The moment after the events of the run and of its step."""
ROW = "concat('row ', id) AS name, id DIV 10 AS part"


@contextmanager
def converted(scene: Scene, *, rows: int = 20) -> Iterator[tuple[Run, str]]:
    """Make a table ``t`` of Spark's and of it one of Lance, ``t_new``; yield both."""
    with scene.run("convert") as run:
        database = scene.database()
        scene.sql(
            f"CREATE TABLE {database}.t USING parquet PARTITIONED BY (part) AS "
            f"SELECT /*+ COALESCE(1) */ id, {ROW} FROM range({rows})"
        )
        convert(scene, run, database)
        yield run, database


def convert(scene: Scene, run: Run, database: str, **options: Any) -> None:
    """Convert all tables of a database to ``{table}_new``."""
    run.type = migration_type("convert")
    run.plan(include=[f"{database}.*"], namespace=[scene.target], name="{table}_new", **options)
    assert failed(run.execute()) == []


def plan_next(run: Run, after: Migration | None = None, **options: Any) -> Plan:
    """Plan the increment after the last one, or after another migration."""
    last = (after or run.migration).record()
    run.type = migration_type("catch-up")
    plan = make_plan(run.type, run.endpoints, next_increment(last, **options), follows=last.plan.id)
    run.migration = run.migrations.add(plan)
    return plan


def only_item(plan: Plan) -> Item:
    [item] = plan.items
    return item


def blocked(plan: Plan) -> str:
    """Return why the one table of a plan is blocked."""
    [found] = only_item(plan).blockers
    return found.text


def done(run: Run, verify: str = "checksums") -> Record:
    """Run an increment, which must succeed."""
    record = run.execute(at_once=1, verify=verify)
    assert failed(record) == []
    return record


def planned_again(run: Run, version: int) -> None:
    """Plan the same increment again, after it was undone: counting takes most of the time."""
    plan = run.migration.plan()
    item = only_item(plan)
    item = item.model_copy(update={"facts": {**item.facts, "version_before": version}})
    fingerprint = run.type.fingerprint(run.endpoints, item)
    item = item.model_copy(update={"fingerprint": fingerprint})
    new = {"id": new_id(run.type.name), "items": (item,)}
    run.migration = run.migrations.add(plan.model_copy(update=new))


def back_to(run: Run, plan: Plan) -> None:
    """Make the next increment follow the migration that a plan follows."""
    assert plan.follows is not None
    run.migration = run.migrations.get(plan.follows)


def add(scene: Scene, database: str, start: int, end: int) -> None:
    scene.sql(
        f"INSERT INTO {database}.t SELECT /*+ COALESCE(1) */ id, {ROW} FROM range({start}, {end})"
    )


def recreate_table(scene: Scene) -> None:
    """Drop the table ``t_new``, and make another of the name, with as many versions."""
    rows, table = scene.dataset("t_new").to_table().sort_by("id"), [scene.target, "t_new"]
    with scene.place.connect() as namespace:
        namespace.drop_table(api.DropTableRequest(id=table))
        location = str(scene.directory / "again")
        lance.write_dataset(rows.slice(0, 1), location)
        lance.write_dataset(rows.slice(1, 1), location, mode="append")
        namespace.register_table(api.RegisterTableRequest(id=table, location=location))


def ids(scene: Scene, table: str = "t_new") -> list[int]:
    return sorted(scene.dataset(table).to_table(columns=["id"])["id"].to_pylist())


def rows_in_spark(scene: Scene, table: str) -> list[dict[str, Any]]:
    return rows_of(scene.spark.table(table).toArrow())
