"""What the sessions of `test_killed` do: one is killed while its tasks write, another resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from migrate.sparking import Scene, each_file_by_itself, failed

from lance_bridge_migrate import Migrations, execute, undo
from lance_bridge_migrate.commands.running import reconnected

ROWS, FILES = 240, 60
"""A task for each file: together they take seconds."""


def begin(spark: Any, uri: str, directory: str) -> list[str]:
    """Convert a table; return what went wrong."""
    scene = Scene(spark, uri, directory)
    database = scene.database()
    rows = f"SELECT id FROM range(0, {ROWS}, 1, {FILES})"
    spark.sql(f"CREATE TABLE {database}.t USING parquet AS {rows}")
    with scene.run("convert") as run, each_file_by_itself(spark):
        run.plan(include=[f"{database}.*"], namespace=[scene.target])
        return failed(run.execute())


def resume(spark: Any, state: str) -> dict[str, Any]:  # noqa: ARG001 - found as this process's own
    """Resume the one migration of a state directory, describe its table, and undo it."""
    migrations = Migrations(Path(state))
    [id] = migrations.ids()
    migration = migrations.get(id)
    with reconnected(migration, None, None) as (migration_type, endpoints):
        record = execute(migration_type, endpoints, migration)
        [path] = [each.target for each in record.plan.items if each.rows is not None]
        dataset = endpoints.target_tables.load(path).open()
        named = {file.path for each in dataset.get_fragments() for file in each.data_files()}
        files = {file.name for file in Path(dataset.uri, "data").iterdir()}
        return {
            "wrong": failed(record),
            "ids": sorted(dataset.to_table()["id"].to_pylist()),
            "versions": len(dataset.versions()),
            "orphans": len(files - named),
            "undone": undo(migration_type, endpoints, migration).state.value,
        }
