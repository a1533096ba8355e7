"""Options of migrations name one column each, or are refused: names may differ in letter case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lance_namespace.errors import InvalidInputError
from migrate.sessions import Scene, failed
from spark.sql_helpers import setting

from lance_bridge_migrate.arrow_files import ArrowFiles
from lance_bridge_migrate.migrations import loading
from lance_bridge_migrate.migrations.convert_options import ConvertOptions, LoadFacts
from lance_bridge_migrate.migrations.registration import Candidate
from lance_bridge_migrate.spark import changes

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#convert")]
quick = pytest.mark.quick

ROWS = pa.table(
    {
        "id": [2, 1],
        "Id": [10, 20],
        "v": [[1.0, 2.0], [3.0, 4.0]],
        "V": [[5.0, 6.0], [7.0, 8.0]],
        "n": [5, 6],
    }
)
IDS = "'ID' may mean 'id' and 'Id', which differ only in letter case"


def candidate(directory: Path, **options: Any) -> Candidate:
    """Return what a conversion with pyarrow plans."""
    pq.write_table(ROWS, directory / "a.parquet")
    files = ArrowFiles.at_path(str(directory), "parquet", {})
    return loading.candidate(files, ("db", "t"), ConvertOptions(**options))


def facts(directory: Path, **options: Any) -> LoadFacts:
    found = candidate(directory, **options).facts
    assert isinstance(found, LoadFacts)
    return found


@quick
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"renames": {"ID": "key"}}, IDS),
        ({"indices": [{"column": "ID", "kind": "BTREE"}]}, IDS),
        ({"renames": {"n": "ID"}}, "'n' would have the name of column 'id'"),
        ({"renames": {"n": "a", "N": "b"}}, "'n' is named twice"),
    ],
)
def test_an_option_that_may_mean_two_columns_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        _ = facts(tmp_path, **options).schema_of_table


@quick
def test_an_option_means_the_column_of_its_name(tmp_path: Path) -> None:
    options = {
        "renames": {"Id": "key", "N": "number"},
        "vectors": {"V": 2},
        "indices": [{"column": "id", "kind": "BTREE"}, {"column": "NUMBER", "kind": "BITMAP"}],
    }
    found = facts(tmp_path, **options)
    columns = found.schema_of_table
    assert columns.names == ["id", "key", "v", "V", "number"]
    assert columns.field("v").type == pa.list_(pa.float64())
    assert columns.field("V").type == pa.list_(pa.float64(), 2)
    assert [each.column for each in found.indices] == ["id", "number"]


def test_options_of_spark_mean_one_column(scene: Scene) -> None:
    place = scene.directory / "files"
    place.mkdir()
    pq.write_table(ROWS, place / "a.parquet")
    paths = [{"path": str(place), "format": "parquet", "table": "t"}]
    with setting(scene.spark, "spark.sql.caseSensitive", "true"), scene.run("convert") as run:
        for options, message in (
            ({"casts": {"ID": "string"}}, IDS),
            ({"renames": {"ID": "key"}}, IDS),
            ({"sort_by": ["ID"]}, IDS),
            ({"indices": [{"column": "ID", "kind": "BTREE"}]}, IDS),
            ({"vectors": {"V": 2}}, "Option 'vector.V' may mean each of 'v', 'V'"),
        ):
            plan = run.plan(paths=paths, namespace=[scene.target], **options)
            assert message in plan.blocked[0].blockers[0].text, options
        run.plan(
            paths=paths,
            namespace=[scene.target],
            casts={"Id": "string"},
            renames={"N": "number"},
            sort_by=["id"],
            indices=[{"column": "id", "kind": "BTREE"}],
        )
        assert failed(run.execute(verify="checksums")) == []
    found = scene.dataset("t")
    assert found.schema.names == ["id", "Id", "v", "V", "number"]
    assert found.to_table(["id", "Id", "number"]).to_pylist() == [
        {"id": 1, "Id": "20", "number": 6},
        {"id": 2, "Id": "10", "number": 5},
    ]
    assert [each.field_names for each in found.describe_indices()] == [["id"]]


def test_the_column_of_a_catch_up_means_one(scene: Scene) -> None:
    with setting(scene.spark, "spark.sql.caseSensitive", "true"):
        frame = scene.sql("SELECT 1L AS id, 'x' AS Id")
        assert changes.column_type(frame, "Id").typeName() == "string"
        assert changes.column_type(frame, "id").typeName() == "long"
        with pytest.raises(InvalidInputError, match=IDS):
            changes.column_type(frame, "ID")
