"""Every type of Arrow and Lance, converted and exported: the same values, or a blocker by name."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_types import plain, wide
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
UNWRITTEN = {"string_view_in_a_list_of_structs", "binary_view_in_a_list_of_structs"}
"""Columns that pyarrow cannot write to Parquet."""


def writable(rows: pa.Table, format: str) -> pa.Table:
    """Return the columns that pyarrow can write to a format."""
    unwritten = set()
    for name in rows.schema.names:
        try:
            WRITERS[format](rows.select([name]), io.BytesIO())
        except pa.ArrowNotImplementedError:
            unwritten.add(name)
    assert unwritten == (UNWRITTEN if format == "parquet" else set())
    return rows.drop_columns(sorted(unwritten))


def differing(expected: pa.Table, found: pa.Table) -> dict[str, str]:
    """Return the columns of which values differ."""
    order = found.sort_by("id")
    return {
        name: f"{plain(expected[name])} != {plain(order[name])}"[:600]
        for name in expected.schema.names
        if plain(expected[name]) != plain(order[name])
    }


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


def types_of(refused: Refused) -> set[str]:
    """Return the types of refused columns, which are refused in every shape."""
    plain_ones = {each.removesuffix("_plain") for each in refused if each.endswith("_plain")}
    for name in refused:
        assert name.startswith(tuple(plain_ones)), (name, refused[name])
    return plain_ones


REFUSED: dict[tuple[str, str], set[str]] = {
    ("arrow", "pyarrow"): set(),
    ("parquet", "pyarrow"): set(),
    ("parquet", "spark"): set(),
}
"""The types that are refused, by format and reader."""


@pytest.mark.parametrize(
    ("format", "reader"), [("arrow", "pyarrow"), ("parquet", "pyarrow"), ("parquet", "spark")]
)
def test_each_type_is_converted_or_its_column_is_named(
    scene: Scene, format: str, reader: str
) -> None:
    rows = writable(wide(), format)
    with scene.run("convert") as run:
        kept, refused = until_planned(
            rows.schema.names,
            lambda names: plan_files(scene, run, rows.select(names), format, reader),
        )
        assert failed(run.execute(verify="checksums")) == []
        assert failed(run.execute(verify="sample")) == []
    found = scene.dataset("t").to_table(blob_handling="all_binary")
    assert differing(rows.select(kept), found) == {}
    assert types_of(refused) == REFUSED[format, reader]


def plan_files(scene: Scene, run: Run, rows: pa.Table, format: str, reader: str) -> Any:
    """Plan the conversion of a file."""
    place = scene.directory / f"files{len(rows.schema)}"
    place.mkdir()
    WRITERS[format](rows, str(place / f"a.{format}"))
    path = {"path": str(place), "format": format, "table": "t", "reader": reader}
    return run.plan(paths=[path], namespace=[scene.target])


# -- exporting -------------------------------------------------------------------------------------


def test_each_type_is_exported_or_its_column_is_named_and_converted_again(scene: Scene) -> None:
    rows = wide()
    kept, refused = until_planned(
        rows.schema.names, lambda names: plan_export(scene, rows.select(names))
    )
    out = scene.directory / "out"
    name = table_of(kept)
    with exporting(scene, directory=str(out)) as run:
        run.plan(include=[f"{scene.target}.{name}"], directory=str(out))
        assert failed(run.execute(verify="checksums")) == []
    place = out / scene.target / name
    assert differing(rows.select(kept), pq.read_table(place, partitioning=None)) == {}
    assert types_of(refused) == {"null"}
    for reader in ("spark", "pyarrow"):
        path = {"path": str(place), "format": "parquet", "table": reader, "reader": reader}
        with scene.run("convert") as run:
            plan = run.plan(paths=[path], namespace=[scene.target])
            assert [each.blockers for each in plan.blocked] == []
            assert failed(run.execute(verify="checksums")) == []
        found = scene.dataset(reader).to_table()
        assert differing(rows.select(kept), found) == {}


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
