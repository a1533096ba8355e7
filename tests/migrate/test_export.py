"""Tables of Lance are written as Parquet by a real session, and undone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_types import CASES, SHAPES, TypeCase, as_numbers, plain, wide
from lance_namespace import errors
from migrate.sessions import (
    Died,
    Scene,
    again,
    failed,
    jobs_cancelled,
    moments,
    replaced,
)

from lance_bridge_migrate import Endpoints, Level, State, address_of, verify
from lance_bridge_migrate.migrations import export
from lance_bridge_migrate.spark import files
from lance_bridge_migrate.spark.session import address_of_session

from .places import Run, counts_of
from .places import files as files_below

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#export", "migration.md#convert")]

_CHANGES = (
    (files, "delete"),
    (files, "rename"),
    (export, "create_table"),
    (export, "add_partitions"),
)
Refused = dict[str, str]
"""Why columns cannot be migrated, by their names."""


def _rows(count: int = 20) -> pa.Table:
    vectors = pa.array([[float(i), 0.5] for i in range(count)], pa.list_(pa.float32(), 2))
    return pa.table(
        {
            "id": range(count),
            "part": [i % 2 for i in range(count)],
            "vector": vectors,
            "half": pa.array(np.arange(count, dtype=np.float16)),
        }
    )


def _made(scene: Scene, *names: str, rows: pa.Table | None = None) -> Path:
    """Make tables of Lance; return the place of the last."""
    place = scene.directory / "lance"
    with scene.place.connect() as namespace:
        request = api.CreateNamespaceRequest(id=[scene.target], mode="exist_ok")
        namespace.create_namespace(request)
        for name in names:
            place = scene.directory / "lance" / f"{name}.lance"
            lance.write_dataset(_rows() if rows is None else rows, str(place))
            where = api.RegisterTableRequest(id=[scene.target, name], location=str(place))
            namespace.register_table(where)
    return place


@contextmanager
def open_export(scene: Scene, **options: Any) -> Iterator[Run]:
    """Yield a migration from the metastore to the session; with options, of all tables."""
    with scene.place.connect() as namespace:
        source, target = address_of(namespace), address_of_session(scene.spark)
        run = Run("export", Endpoints(namespace, scene.spark, source, target), scene.migrations)
        if options:
            run.plan(include=[f"{scene.target}.*"], **options)
        yield run


def test_a_table_is_exported_verified_and_undone(scene: Scene) -> None:
    source = files_below(_made(scene, "t"))
    database = scene.database("out")
    out = scene.directory / "parquet"
    with open_export(scene) as run:
        plan = run.plan(
            include=[f"{scene.target}.*"],
            directory=str(out),
            database=database,
            partition_by=["part"],
        )
        [item] = plan.to_do
        assert item.rows == 20
        assert {p.column for p in item.problems} == {"vector", "half"}
        record = run.execute(verify="checksums")
        assert failed(record) == []
        assert {c.column for c in record.items[item.key].checks} == {"", *_rows().column_names}
        found = scene.spark.table(f"{database}.t")
        assert found.count() == 20
        assert found.where("id = 3").collect()[0]["vector"] == [3.0, 0.5]
        place = out / scene.target / "t"
        parts = [pq.ParquetFile(each) for each in place.rglob("*.parquet")]
        assert {each.metadata.row_group(0).column(0).compression for each in parts} == {"ZSTD"}
        assert {each.name for each in place.iterdir() if each.is_dir()} == {"part=0", "part=1"}
        facts = record.items[item.key].facts
        assert facts["rows_written"] == 20
        assert facts["bytes_after"] == sum(
            each.stat().st_size for each in place.rglob("*.parquet") if each.name[0] != "."
        )
        assert facts["bytes_before"] > 0
        for level in ("counts", "sample"):
            assert failed(run.execute(verify=level)) == []
        assert run.undo().state is State.UNDONE
        assert not place.exists()
        assert not scene.spark.catalog.tableExists(f"{database}.t")
    assert files_below(scene.directory / "lance" / "t.lance") == source
    assert scene.dataset("t").count_rows() == 20


@pytest.mark.spec("spark.md#blobs")
def test_blobs_are_exported_with_their_bytes(scene: Scene) -> None:
    values = [b"first", b"", None, b"x" * 300_000]
    columns = pa.schema([("id", pa.int64()), lance.blob_field("b")])
    rows = pa.table([pa.array(range(4), pa.int64()), lance.blob_array(values)], schema=columns)
    _made(scene, "t", rows=rows)
    out = scene.directory / "parquet"
    with open_export(scene, directory=str(out)) as run:
        assert failed(run.execute(verify="checksums")) == []
    found = pq.read_table(out / scene.target / "t", partitioning=None)
    assert dict(zip(found["id"].to_pylist(), found["b"].to_pylist(), strict=True)) == dict(
        enumerate(values)
    )


def test_the_version_of_the_plan_is_exported_or_nothing(scene: Scene) -> None:
    place = _made(scene, "t", "u")
    out = scene.directory / "parquet"
    options = {"include": [f"{scene.target}.?"], "directory": str(out)}
    with open_export(scene) as run:
        run.plan(**options)
        lance.write_dataset(_rows(3), str(place), mode="append")
        assert failed(run.execute()) == []
        assert pq.read_table(out / scene.target / "u").num_rows == 20
        run.undo()
        run.plan(**options)
        lance.write_dataset(_rows(3), str(place), mode="append")
        lance.dataset(str(place)).cleanup_old_versions(retain_versions=1)
        with pytest.raises(errors.ConcurrentModificationError, match="plan again"):
            run.execute()
        run.plan(**options)
        with scene.place.connect() as namespace:
            namespace.deregister_table(api.DeregisterTableRequest(id=[scene.target, "u"]))
            with pytest.raises(errors.ConcurrentModificationError, match="plan again"):
                run.execute()
    assert not (out / scene.target / "u").exists()


def test_what_cannot_be_exported_is_in_the_plan(scene: Scene) -> None:
    _made(scene, "t")
    _made(scene, "n", rows=pa.table({"id": [1], "name": [""], "nothing": pa.nulls(1)}))
    out = str(scene.directory / "parquet")
    options = {"include": [f"{scene.target}.*"], "directory": out}
    with open_export(scene) as run:
        with pytest.raises(errors.InvalidInputError, match="relative"):
            run.plan(include=["*"], directory="parquet")
        plan = run.plan(**options)
        assert [(i.source[-1], i.blockers[0].column) for i in plan.blocked] == [("n", "nothing")]
        plan = run.plan(**options, partition_by=["vector"], database="none_of_this_name")
        [item] = [each for each in plan.blocked if each.source[-1] == "t"]
        assert {p.column for p in item.blockers} == {"vector", ""}
        assert "Database 'none_of_this_name' does not exist" in item.blockers[0].text
        assert "cannot be in the names of directories" in item.blockers[1].text
        plan = run.plan(**options, partition_by=["name"])
        texts = {i.source[-1]: [p.text for p in i.problems] for i in plan.items}
        assert "It is not partitioned: it has no column name" in texts["t"]
        assert any(text.startswith("An empty text becomes null") for text in texts["n"])
        moment = pa.array([0], pa.timestamp("us", "UTC"))
        _made(scene, "b", rows=pa.table({"id": [1], "bytes": [b"\xff"], "moment": moment}))
        for kind in (pa.large_binary(), pa.binary(1)):
            name = str(kind).split("[")[0]
            rows = pa.table({"id": [1], "bytes": pa.array([b"\xff"], kind)})
            _made(scene, name, rows=rows)
        plan = run.plan(**options, partition_by=["bytes"])
        texts = {i.source[-1]: [p.text for p in i.blockers] for i in plan.blocked}
        for name in ("b", "large_binary", "fixed_size_binary"):
            assert "Binary values cannot be" in texts[name][0]
        plan = run.plan(**options, partition_by=["moment"])
        [item] = [each for each in plan.to_do if each.source[-1] == "b"]
        assert ["the session's zone" in p.text for p in item.problems] == [True]
        plan = run.plan(**options, partition_by=["id", "part", "vector", "half"])
        assert any("leave one" in p.text for i in plan.blocked for p in i.blockers)


def test_files_and_tables_of_others_are_left_alone(scene: Scene) -> None:
    _made(scene, "t")
    database = scene.database("out")
    out = scene.directory / "parquet"
    options = {"include": [f"{scene.target}.*"], "directory": str(out), "database": database}
    with open_export(scene) as run:
        run.plan(**options)
        place = out / scene.target / "t"
        place.mkdir(parents=True)
        (place / "other").write_text("x")
        record = run.execute()
        assert "was created after the plan" in failed(record)[0]
        assert (place / "other").exists()
        plan = run.plan(**options)
        assert "already exists" in plan.blocked[0].blockers[0].text
        (place / "other").unlink()
        place.rmdir()
        run.plan(**options)
        scene.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT 1 AS other")
        assert "already exists" in failed(run.execute())[0]
        with pytest.raises(errors.InvalidTableStateError, match="not the one that migration"):
            run.undo()
        scene.sql(f"DROP TABLE {database}.t")
        assert failed(run.execute()) == []
        (place / "other").write_text("x")
        with pytest.raises(errors.InvalidTableStateError, match="they were changed since"):
            run.undo()
        assert (place / "other").exists()
        assert scene.spark.table(f"{database}.t").count() == 20


def test_what_another_migration_exported_concurrently_is_left_alone(scene: Scene) -> None:
    _made(scene, "t")
    out = scene.directory / "parquet"
    place = out / scene.target / "t"
    options = {"include": [f"{scene.target}.*"], "directory": str(out)}
    with open_export(scene) as one, open_export(scene) as other:
        one.plan(**options)
        out.mkdir()
        place.parent.write_text("no directory")
        assert len(failed(one.execute())) == 1, "it wrote no file"
        place.parent.unlink()
        other.plan(**options)
        assert failed(other.execute()) == []
        written = files_below(place)
        assert "was created after the plan was made" in failed(one.execute())[0]
        assert files_below(place) == written
        assert one.undo().state is State.UNDONE
        assert files_below(place) == written
        assert other.undo().state is State.UNDONE
        assert list(place.parent.iterdir()) == []


def test_what_others_make_while_it_is_written_is_left_alone(scene: Scene) -> None:
    _made(scene, "t")
    _made(scene, "empty", rows=_rows(1).slice(0, 0))
    out = scene.directory / "parquet" / scene.target
    with open_export(scene) as one, open_export(scene) as other:
        for name in ("t", "empty"):
            options = {
                "include": [f"{scene.target}.{name}"],
                "directory": str(out.parent),
                "partition_by": ["part"],
            }
            one.plan(**options)
            with pytest.raises(Died), replaced(files, "rename", _dying):
                one.execute()
            other.plan(**options)
            assert failed(other.execute()) == []
            written = files_below(out / name)
            assert "was created after the plan was made" in failed(one.execute())[0]
            assert one.undo().state is State.UNDONE
            assert files_below(out / name) == written
    assert sorted(each.name for each in out.iterdir()) == ["empty", "t"]


def _dying(_: Callable[..., Any]) -> Callable[..., Any]:
    def die(*_: Any) -> bool:
        raise Died

    return die


def test_a_rename_that_was_cut_off_is_repeated(scene: Scene) -> None:
    _made(scene, "t")
    out = scene.directory / "parquet"
    place = out / scene.target / "t"

    def copying(_: Callable[..., Any]) -> Callable[..., Any]:
        """As object stores rename: the first file is copied, and then the process dies."""

        def copy(_: Any, directory: str, to: str) -> bool:
            Path(to).mkdir()
            shutil.copy(next(Path(directory).glob("part-*")), to)
            raise Died

        return copy

    with open_export(scene) as run:
        for is_resumed in (True, False):
            run.plan(include=[f"{scene.target}.*"], directory=str(out))
            with pytest.raises(Died), replaced(files, "rename", copying):
                run.execute()
            assert len(list(place.iterdir())) == 1
            if is_resumed:
                assert failed(run.execute(verify="checksums")) == []
            assert run.undo().state is State.UNDONE
            assert list(place.parent.iterdir()) == []


def test_differences_are_found(scene: Scene) -> None:
    _made(scene, "t")
    out = scene.directory / "parquet"
    with open_export(scene, directory=str(out)) as run:
        assert failed(run.execute()) == []
        [file, *_] = (out / scene.target / "t").glob("*.parquet")
        read = pq.read_table(file)
        changed = [each if each != 3 else 4 for each in read["part"].to_pylist()]
        changed[0] = 7
        file.with_name(f".{file.name}.crc").unlink()
        pq.write_table(read.set_column(1, "part", pa.array(changed)), file)
        assert verify(run.type, run.endpoints, run.migration).state is State.DONE
        record = verify(run.type, run.endpoints, run.migration, Level.CHECKSUMS)
        assert record.state is State.DIFFERS
        [state] = record.items.values()
        assert [c.column for c in state.checks if not c.ok] == ["part"]


@pytest.mark.slow
def test_killed_at_any_moment_and_run_again_each_row_exists_once(scene: Scene) -> None:
    _made(scene, "t", rows=_rows(4))
    database = scene.database("out")
    place = scene.directory / "parquet" / scene.target / "t"
    options = {"directory": str(scene.directory / "parquet"), "partition_by": ["part"]}
    with open_export(scene, **options, database=database) as run:
        with moments(changes=_CHANGES) as passed:
            assert failed(run.execute(parallelism=1)) == []
        with moments(changes=_CHANGES) as undoing:
            assert run.undo().state is State.UNDONE
        assert passed() >= 10
        assert undoing() >= 5
        for moment, is_resumed in product(range(passed()), (True, False)):
            again(run)
            with pytest.raises(Died), moments(moment, _CHANGES):
                run.execute(parallelism=1)
            if is_resumed:  # or else it is undone from where it is
                assert failed(run.execute(parallelism=1)) == [], moment
                ids = [row["id"] for row in scene.spark.table(f"{database}.t").collect()]
                assert sorted(ids) == [0, 1, 2, 3], moment
            with suppress(Died), moments(moment % undoing(), _CHANGES):
                run.undo()
            assert run.undo().state is State.UNDONE, moment
            assert list(place.parent.iterdir()) == [], moment
            assert not scene.spark.catalog.tableExists(f"{database}.t"), moment


@pytest.mark.spec("migration.md#running")
@pytest.mark.slow
def test_a_table_whose_job_others_cancel_fails_and_the_next_run_continues(scene: Scene) -> None:
    rows = pa.table({"id": range(3_000_000)})
    _made(scene, "t", rows=rows)
    out = scene.directory / "parquet"
    with open_export(scene, directory=str(out)) as run:
        with jobs_cancelled(scene.spark, lambda: any(out.rglob("part-*.parquet"))):
            record = run.execute()
        assert counts_of(record) == {"failed": 1}
        [message] = failed(record)
        assert "its Spark job was cancelled" in message
        assert failed(run.execute(verify="checksums")) == []
        assert pq.read_table(out / scene.target / "t")["id"].sort().equals(rows["id"])


# -- every type ------------------------------------------------------------------------------------


def _write_parquet(rows: pa.Table, target: Any) -> None:
    pq.write_table(rows, target)


def _write_arrow(rows: pa.Table, target: Any) -> None:
    with pa.ipc.new_file(target, rows.schema) as writer:
        writer.write_table(rows)


WRITERS: dict[str, Callable[[pa.Table, Any], None]] = {
    "parquet": _write_parquet,
    "arrow": _write_arrow,
}


VIEWS_IN_STRUCTS = re.compile("(string|binary)_view_in_a_list_of_structs")
"""Columns that pyarrow cannot write to Parquet."""


def writable(rows: pa.Table, format: str) -> pa.Table:
    """Return the columns that pyarrow can write to a format."""
    names = rows.schema.names
    unwritten = filter(VIEWS_IN_STRUCTS.fullmatch, names if format == "parquet" else [])
    return rows.drop_columns(list(unwritten))


def require_same(expected: pa.Table, found: pa.Table) -> None:
    """Fail with the columns of which values differ."""
    order = found.sort_by("id")
    pairs = {name: (plain(expected[name]), plain(order[name])) for name in expected.schema.names}
    differing = [
        f"{name}: {one} != {other}"[:300] for name, (one, other) in pairs.items() if one != other
    ]
    if differing:
        pytest.fail("\n".join(differing))


def until_planned(
    columns: list[str], plan: Callable[[list[str]], Any]
) -> tuple[list[str], Refused]:
    """Plan without the columns that blockers name, until there are none."""
    refused: Refused = {}
    while True:
        blocked = plan(columns).blocked
        if not blocked:
            return columns, refused
        named = dict(_named(blocked[0].blockers, columns))
        assert named, blocked[0].blockers
        refused |= named
        columns = [name for name in columns if name not in named]


def _named(blockers: Any, columns: list[str]) -> Iterator[tuple[str, str]]:
    for each in blockers:
        words = each.text.replace("'", " ").replace('"', " ").replace("`", " ").split()
        for name in columns:
            if name == each.column or name in words:
                yield name, each.text


# -- converting ------------------------------------------------------------------------------------


REFUSED: dict[str, set[str]] = {
    "pyarrow": set(),
    "spark": {
        *(f"{kind}_{unit}" for kind in ("duration", "time") for unit in ("s", "ms", "us", "ns")),
        *("float16", "vector_of_float16", "timestamp_ns", "timestamp_ns_with_zone", "uuid"),
    },
}
"""The types that are refused, by reader."""


SOME_SHAPES = [
    pytest.param(shape, marks=[] if shape == "plain" else [pytest.mark.slow]) for shape in SHAPES
]


@pytest.mark.parametrize("format", WRITERS)
def test_pyarrow_converts_each_type(scene: Scene, format: str) -> None:
    check_conversion(scene, wide(), format, "pyarrow")


@pytest.mark.parametrize("shape", SOME_SHAPES)
def test_spark_converts_each_type_or_names_its_column(scene: Scene, shape: str) -> None:
    expected = wide([shape], map(as_struct, CASES))
    check_conversion(scene, wide([shape]), "parquet", "spark", expected)


def as_struct(case: TypeCase) -> TypeCase:
    """Return the case as which Spark reads a blob in a file of pyarrow's: all fields of it."""
    if not isinstance(case.type, lance.blob.BlobType):
        return case
    empty = dict.fromkeys(each.name for each in case.type.storage_type)
    values = tuple({**empty, "data": value} for value in case.values)
    return replace(case, type=case.type.storage_type, values=values)


def check_conversion(
    scene: Scene, rows: pa.Table, format: str, reader: str, expected: pa.Table | None = None
) -> None:
    rows = writable(rows, format)
    with scene.run("convert") as run:
        kept, refused = until_planned(
            rows.schema.names,
            lambda names: plan_files(scene, run, rows.select(names), format, reader),
        )
        assert failed(run.execute(verify="checksums")) == []
    types = {each.split("_plain")[0].split("_in_a_")[0] for each in refused}
    if types != REFUSED[reader]:
        pytest.fail(f"refused: {sorted(types)}: {refused}"[:5000])
    found = scene.dataset("t").to_table(blob_handling="all_binary")
    require_same((rows if expected is None else expected).select(kept), found)


def plan_files(scene: Scene, run: Run, rows: pa.Table, format: str, reader: str) -> Any:
    """Plan the conversion of a file."""
    place = scene.directory / f"files{len(rows.schema)}"
    place.mkdir()
    WRITERS[format](rows, str(place / f"a.{format}"))
    path = {"path": str(place), "format": format, "table": "t", "reader": reader}
    return run.plan(paths=[path], namespace=[scene.target])


# -- exporting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SOME_SHAPES)
def test_each_type_is_exported_or_its_column_is_named_and_converted_again(
    scene: Scene, shape: str
) -> None:
    rows = wide([shape])
    kept, refused = until_planned(
        rows.schema.names, lambda names: plan_export(scene, rows.select(names))
    )
    assert {each.partition("_")[0] for each in refused} == {"null"}
    out, name = scene.directory / "out", table_of(kept)
    with open_export(scene) as run:
        run.plan(include=[f"{scene.target}.{name}"], directory=str(out))
        assert failed(run.execute(verify="checksums")) == []
    place = out / scene.target / name
    numbers = wide([shape], [as_numbers(case, durations=True) for case in CASES]).select(kept)
    require_same(numbers, pq.read_table(place, partitioning=None))
    # Spark keeps the types of Lance in the files' metadata.
    for reader, expected in (("spark", rows.select(kept)), ("pyarrow", numbers)):
        path = {"path": str(place), "format": "parquet", "table": reader, "reader": reader}
        with scene.run("convert") as run:
            plan = run.plan(paths=[path], namespace=[scene.target])
            assert [each.blockers for each in plan.blocked] == []
            assert failed(run.execute(verify="checksums")) == []
        found = scene.dataset(reader).to_table(blob_handling="all_binary")
        require_same(expected, found)


def table_of(columns: list[str]) -> str:
    return f"t{len(columns)}"


def plan_export(scene: Scene, rows: pa.Table) -> Any:
    """Write a table of Lance, and plan its export."""
    name = table_of(rows.schema.names)
    place = scene.directory / "lance" / f"{name}.lance"
    lance.write_dataset(rows, str(place))
    with scene.place.connect() as namespace:
        namespace.create_namespace(api.CreateNamespaceRequest(id=[scene.target], mode="exist_ok"))
        where = api.RegisterTableRequest(id=[scene.target, name], location=str(place))
        namespace.register_table(where)
    with open_export(scene) as run:
        return run.plan(include=[f"{scene.target}.{name}"], directory=str(scene.directory / "out"))
