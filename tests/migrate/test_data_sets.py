"""Data sets of Hugging Face's are converted from their files as they come, without a setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from migrate.sessions import Scene, failed

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#convert")]

MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""How the library `datasets` stores an image or audio."""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
SHARDS = 3
ROWS = 4
"""Rows in each shard."""


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
