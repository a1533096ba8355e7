"""What `test_plans` checks in the process of a Spark session: what a plan finds before the run."""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any, NamedTuple

from migrate.sparking import Scene, replaced


def check_types_of_later_files_are_in_the_plan(scene: Scene) -> None:
    database, raw = scene.database(), scene.directory / "raw"
    for form in ("parquet", "orc"):
        name = f"later_{form}"
        scene.spark.sql(f"CREATE TABLE {database}.{name} (id STRING, n BIGINT) USING {form}")
        scene.spark.sql(f"INSERT INTO {database}.{name} VALUES ('a', 1)")
        other = scene.spark.sql("SELECT id, CAST(id AS INT) AS n FROM range(3)").coalesce(1)
        other.write.format(form).save(str(scene.directory / form))
        for number, file in enumerate((scene.directory / form).glob(f"part-*.{form}")):
            shutil.copy(file, raw / name / f"zzz-{number}.{form}")
    # Spark reads INT32 as BIGINT.
    scene.spark.sql(f"CREATE TABLE {database}.wider (n BIGINT) USING parquet")
    scene.spark.sql("SELECT CAST(id AS INT) AS n FROM range(3)").write.mode("append").parquet(
        str(raw / "wider")
    )
    with scene.run("convert") as run:
        options: dict[str, Any] = {"include": [f"{database}.*"], "namespace": [scene.target]}
        for count_rows in (True, False):
            plan = run.plan(**options, count_rows=count_rows)
            texts = {item.source[-1]: item.blockers[0].text for item in plan.blocked}
            assert "types of its columns" in texts["later_parquet"]
            assert "zzz-0.parquet" in texts["later_parquet"]
        [wider] = [item for item in plan.to_do if item.source[-1:] == ("wider",)]
        assert wider.problems == ()


def check_rows_of_many_files_are_counted_and_some_types_compared(scene: Scene) -> None:
    database = scene.database()
    scene.spark.sql(
        f"CREATE TABLE {database}.many USING parquet AS SELECT id FROM range(0, 360, 1, 120)"
    )
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        [_, many] = plan.items
        assert many.rows == 360
        [problem] = many.problems
        assert "The types of 100 of its 120 files were compared" in problem.text


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def _always(usage: _Usage, _: Any) -> Any:
    return lambda _: usage


def check_space_that_is_not_free_is_in_the_plan(scene: Scene) -> None:
    database = scene.database()
    scene.spark.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT id FROM range(100)")
    options: dict[str, Any] = {"include": [f"{database}.*"], "namespace": [scene.target]}
    with scene.run("convert") as run:
        [size] = [item.bytes for item in run.plan(**options).items if item.bytes]
        for free, notes in ((size, []), (size - 1, [f"{size:,} bytes, and {size - 1:,} are free"])):
            usage = _Usage(9, 9, free)
            with replaced(shutil, "disk_usage", partial(_always, usage)):
                found = run.plan(**options).notes
            assert len(found) == len(notes)
            assert all(part in note for part, note in zip(notes, found, strict=True))
