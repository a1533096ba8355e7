"""Every type of Arrow and Lance, converted and exported: the same values, or a blocker by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_types import CASES, SHAPES, TypeCase, as_numbers, plain, wide
from migrate.places import Run
from migrate.sessions import Scene, failed
from migrate.test_export import exporting

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#convert", "migration.md#export")]

Refused = dict[str, str]
"""Why columns cannot be migrated, by their names."""


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
    with exporting(scene) as run:
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
    with exporting(scene) as run:
        return run.plan(include=[f"{scene.target}.{name}"], directory=str(scene.directory / "out"))
