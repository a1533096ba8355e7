"""Files that pyarrow reads for a conversion, for types that Spark does not have."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance_namespace as api
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableNotFoundError,
)
from migrate.sessions import Died, Scene, dying_before, failed, rows_of

from lance_bridge_migrate import Level, State, verify
from lance_bridge_migrate.arrow_files import ArrowFiles
from lance_bridge_migrate.migrations.catchup import next_increment

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("migration.md#convert", "migration.md#files-read-with-pyarrow"),
]

OF_ARROW: dict[str, pa.Array] = {
    "nanoseconds": pa.array([1, None, 2**60], pa.timestamp("ns")),
    "with_zone": pa.array([1, None, 2**60], pa.timestamp("ns", "UTC")),
    "half": pa.array([np.float16(1.5), None, np.float16(-0.0)], pa.float16()),
    "time": pa.array([time(1, 2, 3), None, time(23, 59, 59, 999999)], pa.time64("us")),
    "short_time": pa.array([time(1, 2, 3), None, time(0)], pa.time32("ms")),
    "wide": pa.array([Decimal("1." + "1" * 45), None, Decimal(0)], pa.decimal256(60, 45)),
    "inside": pa.array(
        [{"at": [1]}, None, {"at": []}], pa.struct([("at", pa.list_(pa.timestamp("ns")))])
    ),
}
"""Columns that Spark cannot read from Parquet, each with a null."""


def write(directory: Path, **files: pa.Table) -> Path:
    """Write Parquet files to a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in files.items():
        pq.write_table(table, directory / f"{name}.parquet")
    return directory


def source(path: Path, table: str, reader: str = "pyarrow", format: str = "parquet") -> Any:
    return {"path": str(path), "format": format, "table": table, "reader": reader}


def columns_of_arrow() -> pa.Table:
    return pa.table({"id": [1, 2, 3], **OF_ARROW})


def test_types_that_spark_does_not_have_are_converted(scene: Scene) -> None:
    rows = columns_of_arrow()
    paths = [source(write(scene.directory / "files", a=rows), "t")]
    with scene.run("convert") as run:
        plan = run.plan(
            paths=paths,
            namespace=[scene.target],
            renames={"half": "h"},
            indices=[{"column": "id", "kind": "BTREE"}],
            properties={"team": "a"},
        )
        assert [each.rows for each in plan.to_do] == [None, 3]
        assert failed(run.execute(verify="checksums")) == []
        assert failed(run.execute(verify="sample")) == []
        found = scene.dataset("t")
        names = [name if name != "half" else "h" for name in rows.column_names]
        assert found.to_table().equals(rows.rename_columns(names))
        assert [each.name for each in found.describe_indices()] == ["id_idx"]
        run.undo()
    assert scene.tables() == []


def test_spark_names_the_columns_that_need_pyarrow(scene: Scene) -> None:
    paths = []
    for name, values in OF_ARROW.items():
        rows = pa.table({"id": [1, 2, 3], name: values})
        paths.append(source(write(scene.directory / name, a=rows), name, "spark"))
    with scene.run("convert") as run:
        plan = run.plan(paths=paths, namespace=[scene.target])
    texts = {each.target[-1]: each.blockers[0].text for each in plan.blocked}
    assert set(texts) == set(OF_ARROW)
    for name, text in texts.items():
        assert f"Spark has no type for {name} (" in text
        assert "--reader pyarrow" in text


def test_columns_of_all_files_are_read(scene: Scene) -> None:
    place = scene.directory / "files"
    write(place / "part=1", a=pa.table({"id": pa.array([1], pa.int32()), "s": [{"a": 1}]}))
    write(place / "part=2", b=pa.table({"id": [2**40], "s": [{"a": 2, "b": "x"}], "z": [1.5]}))
    with scene.run("convert") as run:
        run.plan(paths=[source(place, "t")], namespace=[scene.target])
        assert failed(run.execute(verify="checksums")) == []
    assert rows_of(scene.dataset("t").to_table()) == [
        {"id": 1, "s": {"a": 1, "b": None}, "z": None, "part": 1},
        {"id": 2**40, "s": {"a": 2, "b": "x"}, "z": 1.5, "part": 2},
    ]


@pytest.mark.parametrize("format", ["orc", "csv", "json", "arrow"])
def test_other_formats_are_read(scene: Scene, format: str) -> None:
    rows = pa.table({"id": list(range(3000)), "name": [f"row {n}" for n in range(3000)]})
    place = scene.directory / "files"
    place.mkdir()
    WRITERS[format](rows, place / f"a.{format}")
    with scene.run("convert") as run:
        run.plan(paths=[source(place, "t", format=format)], namespace=[scene.target])
        assert failed(run.execute(verify="checksums")) == []
        assert failed(run.execute(verify="sample")) == []
    assert scene.dataset("t").to_table().equals(rows)


def _write_lines(rows: pa.Table, path: Path) -> None:
    path.write_text("\n".join(map(json.dumps, rows.to_pylist())))


def _write_ipc(rows: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), rows.schema) as writer:
        writer.write_table(rows)


WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    "orc": pa_orc.write_table,
    "csv": pa_csv.write_csv,
    "json": _write_lines,
    "arrow": _write_ipc,
}


def test_a_load_that_dies_is_repeated_once(scene: Scene) -> None:
    paths = [source(write(scene.directory / "files", a=columns_of_arrow()), "t")]
    with scene.run("convert") as run:
        run.plan(paths=paths, namespace=[scene.target])
        with pytest.raises(Died), dying_before("done", "load"):
            run.execute()
        assert failed(run.execute(verify="checksums")) == []
        assert scene.dataset("t").count_rows() == 3
        with pytest.raises(InvalidInputError, match="nothing to catch up with"):
            next_increment(run.migration.record(), by="column", column="id")


def test_files_that_changed_since_the_plan_are_not_converted(scene: Scene) -> None:
    place = write(scene.directory / "files", a=columns_of_arrow())
    with scene.run("convert") as run:
        run.plan(paths=[source(place, "t")], namespace=[scene.target])
        write(place, b=columns_of_arrow())
        with pytest.raises(ConcurrentModificationError, match="has changed since the plan"):
            run.execute()
    assert scene.tables() == []


def test_differences_are_found(scene: Scene) -> None:
    place = write(scene.directory / "files", a=columns_of_arrow())
    with scene.run("convert") as run:
        run.plan(paths=[source(place, "t")], namespace=[scene.target])
        assert failed(run.execute()) == []
        other = columns_of_arrow().set_column(1, "nanoseconds", OF_ARROW["nanoseconds"][::-1])
        write(place, a=other)
        for level in (Level.CHECKSUMS, Level.SAMPLE):
            record = verify(run.type, run.endpoints, run.migration, level)
            assert record.state is State.DIFFERS
            [checks] = [each.checks for each in record.items.values() if each.checks]
            assert [each.column for each in checks if not each.ok] == ["nanoseconds"]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": [1]})
    mixed = write(tmp_path / "mixed", a=rows, b=pa.table({"id": ["x"]}))
    with pytest.raises(InvalidInputError, match=r"columns of .*b\.parquet do not fit"):
        ArrowFiles.at_path(str(mixed), "parquet", {})
    other = write(tmp_path / "other", a=rows)
    (other / "README.md").write_text("# Rows")
    with pytest.raises(InvalidInputError, match=r"README\.md cannot be read"):
        ArrowFiles.at_path(str(other), "parquet", {})
    for name in ("none", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(TableNotFoundError, match=name):
            ArrowFiles.at_path(str(tmp_path / name), "parquet", {})
    for path, format, options, said in (
        (tmp_path, "avro", {}, "pyarrow reads none of 'avro'"),
        (tmp_path, "csv", {"header": "true"}, "no options of the reader, such as header"),
        ("ftp://host/files", "parquet", {}, "pyarrow cannot read ftp://host/files"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ArrowFiles.at_path(str(path), format, options)


def test_hidden_files_with_rows_are_named(tmp_path: Path) -> None:
    place = write(tmp_path / "files", a=pa.table({"id": [1]}), _extra=pa.table({"id": [2]}))
    for name in ("_SUCCESS", "._SUCCESS.crc", ".a.parquet.crc"):
        (place / name).touch()
    [problem] = ArrowFiles.at_path(str(place), "parquet", {}).problems()
    assert "_extra.parquet" in problem.text
    assert "_SUCCESS" not in problem.text
    assert ".crc" not in problem.text


def test_options_that_need_spark_are_refused(scene: Scene) -> None:
    place = write(scene.directory / "files", a=columns_of_arrow())
    with scene.run("convert") as run:
        plan = run.plan(
            paths=[source(place, "t")], namespace=[scene.target], casts={"id": "string"}
        )
    [blocked] = plan.blocked
    assert "The option casts needs Spark" in blocked.blockers[0].text


def test_folders_of_images_and_texts_are_converted(scene: Scene) -> None:
    images, texts = scene.directory / "images", scene.directory / "texts"
    for place, name, content in (
        (images, "a.png", b"\x89PNG"),
        (images, "b.jpg", b"\xff\xd8"),
        (texts, "a.txt", b"one\ntwo\n"),
    ):
        place.mkdir(exist_ok=True)
        (place / name).write_bytes(content)
    paths = [
        source(images, "images", "spark", "binaryFile"),
        source(texts, "texts", "spark", "text"),
    ]
    with scene.run("convert") as run:
        run.plan(paths=paths, namespace=[scene.target])
        assert failed(run.execute(verify="checksums")) == []
    found = scene.dataset("images").to_table(["path", "length", "content"])
    assert sorted(found["content"].to_pylist()) == [b"\x89PNG", b"\xff\xd8"]
    assert sorted(scene.dataset("texts").to_table()["value"].to_pylist()) == ["one", "two"]
    with scene.place.connect() as namespace:
        request = api.CountTableRowsRequest(id=[scene.target, "images"])
        assert namespace.count_table_rows(request).count == 2
