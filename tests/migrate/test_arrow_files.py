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
from migrate.sessions import Died, Scene, die_before, failed, rows_of

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
MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""How the library `datasets` stores an image or audio."""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
SHARDS = 3
ROWS = 4
"""Rows in each shard."""


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
        with pytest.raises(Died), die_before("done", "load"):
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


# -- data sets of Hugging Face ---------------------------------------------------------------------


def images(shard: int) -> pa.Table:
    media: list[Any] = [{"bytes": PNG + bytes([shard, n]), "path": f"{n}.png"} for n in range(3)]
    labels = pa.array([0, 1, -1, None])
    return pa.table({"image": pa.array([*media, None], MEDIA), "label": labels})


def audio(shard: int) -> pa.Table:
    sounds = [{"bytes": None, "path": f"clips/{shard}-{n}.flac"} for n in range(ROWS)]
    texts = pa.array([f"sentence {n}" for n in range(ROWS)], pa.large_string())
    return pa.table({"audio": pa.array(sounds, MEDIA), "sentence": texts})


def messages(shard: int) -> pa.Table:
    talks = [
        [{"role": "user", "content": f'say "{n}"\n'}, {"role": "assistant", "content": None}][:n]
        for n in range(ROWS)
    ]
    chats = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    return pa.table(
        {"id": [f"{shard}-{n}" for n in range(ROWS)], "messages": pa.array(talks, chats)}
    )


def embeddings(shard: int) -> pa.Table:
    vectors = pa.array([[float(n), 0.5, -1.0] for n in range(ROWS)], pa.list_(pa.float32()))
    boxes = pa.array(
        [[[1.0, 2.0]], [], None, [[3.0, 4.0], [5.0, 6.0]]], pa.list_(pa.list_(pa.float64()))
    )
    return pa.table({"id": [shard] * ROWS, "embedding": vectors, "boxes": boxes})  # fmt: skip


SETS: list[Callable[[int], pa.Table]] = [images, audio, messages, embeddings]


def save(directory: Path, make: Callable[[int], pa.Table]) -> pa.Table:
    """Write a split as the library does, with what lies beside it; return its rows."""
    data = directory / "data"
    data.mkdir(parents=True)
    shards = [make(number) for number in range(SHARDS)]
    note = {"huggingface": json.dumps({"info": {"features": {}}})}
    for number, rows in enumerate(shards):
        path = data / f"train-{number:05}-of-{SHARDS:05}.parquet"
        pq.write_table(rows.replace_schema_metadata(note), path)
    pq.write_table(shards[0], data / "test-00000-of-00001.parquet")
    (directory / "README.md").write_text("---\nconfigs: []\n---\n# Data\n")
    (directory / ".gitattributes").write_text("*.parquet filter=lfs\n")
    return pa.concat_tables(shards)


def test_a_split_is_converted_from_its_files(scene: Scene) -> None:
    wanted = {make.__name__: save(scene.directory / make.__name__, make) for make in SETS}
    paths = []
    for name in wanted:
        pattern = f"{scene.directory}/{name}/data/train-*.parquet"
        paths.append({"path": pattern, "format": "parquet", "table": name})
    with scene.run("convert") as run:
        plan = run.plan(paths=paths, namespace=[scene.target])
        assert [each.problems for each in plan.items if each.problems] == []
        assert failed(run.execute(verify="checksums")) == []
    for name, rows in wanted.items():
        found = scene.dataset(name).to_table()
        assert found.column_names == rows.column_names
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, rows.to_pylist()))


def test_all_splits_of_a_directory_are_converted(scene: Scene) -> None:
    rows = save(scene.directory / "images", images)
    path = {"path": f"{scene.directory}/images/data", "format": "parquet", "table": "images"}
    with scene.run("convert") as run:
        run.plan(paths=[path], namespace=[scene.target])
        assert failed(run.execute(verify="checksums")) == []
    assert scene.dataset("images").count_rows() == rows.num_rows + ROWS


def test_lines_of_json_are_converted(scene: Scene) -> None:
    place = scene.directory / "lines"
    place.mkdir()
    rows = [row for number in range(SHARDS) for row in messages(number).to_pylist()]
    for number in range(SHARDS):
        some = rows[number * ROWS : (number + 1) * ROWS]
        lines = "".join(f"{json.dumps(row)}\n" for row in some)
        (place / f"train-{number:05}.jsonl").write_text(lines)
    path = {"path": str(place), "format": "json", "table": "lines"}
    with scene.run("convert") as run:
        run.plan(paths=[path], namespace=[scene.target])
        assert failed(run.execute(verify="checksums")) == []
    [field] = [each for each in scene.dataset("lines").schema if each.name == "messages"]
    assert {each.name for each in field.type.value_type} == {"role", "content"}
    found = scene.dataset("lines").to_table().to_pylist()
    assert sorted(map(_sorted, found)) == sorted(map(_sorted, rows))


def _sorted(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


@pytest.mark.quick
def test_large_values_are_read_in_small_batches(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    rows = pa.table({"id": range(60), "b": [random.bytes(500_000) for _ in range(60)]})
    found = ArrowFiles.at_path(str(write(tmp_path / "files", a=rows)), "parquet", {})
    batches = [*found.batches()]
    assert max(batch.nbytes for batch in batches) < 5 << 20
    assert pa.Table.from_batches(batches).equals(rows)
