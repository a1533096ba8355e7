"""What `test_convert` checks of settings of single tables, in the process of a Spark session."""

from __future__ import annotations

import pyarrow as pa
from migrate.sparking import Scene, failed


def check_tables_have_settings_of_their_own(scene: Scene) -> None:
    database = scene.database()
    rows = "SELECT id, id * 2 AS `a.b`, array(1F, 2F) AS v FROM range(30)"
    for name in ("one", "other"):
        scene.spark.sql(f"CREATE TABLE {database}.{name} USING parquet AS {rows}")
    with scene.run("convert") as run:
        plan = run.plan(
            include=[f"{database}.*"],
            namespace=[scene.target],
            renames={"a.b": "b"},
            casts={"a.b": "string"},
            tables={
                f"{database}.ONE": {
                    "name": "first",
                    "renames": {"A.B": "c", "v": "vector"},
                    "vectors": {"vector": 2},
                    "sort_by": ["id"],
                    "max_rows_per_file": 10,
                }
            },
        )
        assert plan.blocked == []
        assert failed(run.execute(verify="checksums")) == []
        again = run.plan(include=[f"{database}.one"], name="{table}_2", renames={"v": "ID"})
        assert "Two columns would have one name" in again.blocked[0].blockers[0].text
    first, other = scene.dataset("first"), scene.dataset("other")
    assert first.schema.names == ["id", "c", "vector"]
    assert first.schema.field("vector").type.list_size == 2
    assert max(each.count_rows() for each in first.get_fragments()) <= 10
    assert other.schema.names == ["id", "b", "v"]
    assert other.schema.field("b").type == pa.string()
    assert len(other.get_fragments()) < len(first.get_fragments())
