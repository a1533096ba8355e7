"""What the own metadata of Delta and Iceberg says about a snapshot, without Spark."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lance_bridge_migrate.second_reader import lakes
from lance_bridge_migrate.second_reader.storage import Storage, StoredFile, UnreachableError
from lance_bridge_migrate.spark.sources import SourceTable

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#the-second-reader")]

COLUMN = '{"name": "%s", "type": "long", "nullable": true, "metadata": {}}'
COLUMNS = f'{{"type": "struct", "fields": [{COLUMN}]}}'


class Files(Storage):
    """Files in memory, below ``/t``."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def open(self, uri: str) -> BinaryIO:
        try:
            return io.BytesIO(self._files[uri.removeprefix("file:///t/")])
        except KeyError as error:
            raise UnreachableError(uri) from error

    def files_below(self, location: str) -> list[StoredFile]:
        above = location.removeprefix("file:///t/") + "/"
        names = [name.removeprefix(above) for name in self._files if name.startswith(above)]
        return [StoredFile(f"/t/{above}{name}", name, 1) for name in names]


def _added(path: str, rows: int | None, vector: str = "", deleted: int = 0) -> dict[str, Any]:
    file: dict[str, Any] = {"path": path}
    if rows is not None:
        file["stats"] = json.dumps({"numRecords": rows})
    if vector:
        file["deletionVector"] = {"pathOrInlineDv": vector, "offset": 1, "cardinality": deleted}
    return {"add": file}


def _removed(path: str, vector: str = "") -> dict[str, Any]:
    file: dict[str, Any] = {"path": path}
    if vector:
        file["deletionVector"] = {"pathOrInlineDv": vector, "offset": 1}
    return {"remove": file}


def _schema(name: str) -> dict[str, Any]:
    return {"metaData": {"schemaString": COLUMNS % name}}


LOG: tuple[list[dict[str, Any]], ...] = (
    [_schema("a"), _added("one", 10), _added("two", 5)],
    [_removed("one"), _added("one", 10, "v1", 3)],
    [_removed("one", "v1"), _added("one", 10, "v2", 4), _schema("b")],
    [_removed("two"), _added("three", 7)],
)
ROWS = (15, 12, 11, 13)


def _delta(version: int, files: Mapping[str, bytes]) -> lakes.Snapshot | None:
    source = SourceTable(names=("/t",), format="delta", location="/t", snapshot=version)
    return lakes.read(None, Files(files), source)


def _commits(log: tuple[list[dict[str, Any]], ...] = LOG, first: int = 0) -> dict[str, bytes]:
    return {
        f"_delta_log/{number:020d}.json": "\n".join(map(json.dumps, actions)).encode()
        for number, actions in enumerate(log)
        if number >= first
    }


def _checkpoint(version: int, parts: int) -> dict[str, bytes]:
    """Return a checkpoint of version 2 of `LOG`, as a file of that version or in parts."""
    rows = [LOG[2][1], {"metaData": LOG[2][2]["metaData"]}, _added("two", 5)]
    names = [f".{n + 1:010d}.{parts:010d}" for n in range(parts)] if parts > 1 else [""]
    found = {}
    for number, name in enumerate(names):
        data = io.BytesIO()
        kind = pa.struct({"path": pa.string(), "stats": pa.string(), "deletionVector": pa.struct(
            {"pathOrInlineDv": pa.string(), "offset": pa.int32(), "cardinality": pa.int64()}
        )})  # fmt: skip
        schema = pa.schema({"add": kind, "metaData": pa.struct({"schemaString": pa.string()})})
        pq.write_table(pa.Table.from_pylist(rows[number :: len(names)], schema), data)
        found[f"_delta_log/{version:020d}.checkpoint{name}.parquet"] = data.getvalue()
    return found


@pytest.mark.parametrize("version", range(len(LOG)))
def test_rows_of_delta_are_those_of_its_commits(version: int) -> None:
    found = _delta(version, _commits())
    assert found is not None
    assert (found.rows, found.columns.names) == (ROWS[version], ["b" if version > 1 else "a"])
    assert found.file.endswith(f"{2 if version > 1 else 0:020d}.json")


@pytest.mark.parametrize("parts", [1, 2])
def test_rows_of_delta_are_those_of_its_last_checkpoint_and_later_commits(parts: int) -> None:
    files = {**_commits(first=3), **_checkpoint(2, parts)}
    for version in (2, 3):
        found = _delta(version, files)
        assert found is not None
        assert (found.rows, found.columns.names) == (ROWS[version], ["b"])
    if parts > 1:  # a checkpoint that lacks a part is none
        with pytest.raises(UnreachableError, match=f"{0:020d}.json"):
            _delta(3, dict([*files.items()][:-1]))


def test_rows_of_files_without_statistics_are_unknown() -> None:
    found = _delta(0, _commits(([_schema("a"), _added("one", None)],)))
    assert (found and found.rows, found and found.columns) == (None, pa.schema({"a": pa.int64()}))
    with pytest.raises(UnreachableError, match="the metadata of"):
        _delta(0, {f"_delta_log/{0:020d}.json": b"{"})


def test_snapshots_without_rows_have_no_metadata_to_compare() -> None:
    source = SourceTable(names=("/t",), format="iceberg", location="/t")
    assert lakes.read(None, Files({}), source) is None


FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "p", "type": "decimal(9, 2)"},
    {"name": "f", "type": "fixed[4]"},
    {"name": "v", "type": "variant"},
    {"name": "l", "type": {"type": "list", "element": "timestamptz"}},
    {"name": "m", "type": {"type": "map", "key": "string", "value": "uuid"}},
    {"name": "s", "type": {"type": "struct", "fields": [{"name": "x", "type": "date"}]}},
]


@pytest.mark.parametrize(("deletes", "rows"), [("0", 9), ("1", None)])
def test_rows_and_columns_of_iceberg_are_those_of_its_metadata(
    deletes: str, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"schema-id": 1, "type": "struct", "fields": FIELDS[:1]}
    schema = {"schema-id": 2, "type": "struct", "fields": FIELDS}
    summary = {"total-records": "9", "total-position-deletes": deletes}
    snapshot = {"snapshot-id": 7, "schema-id": 1, "summary": summary}
    metadata = {
        "current-schema-id": 2,
        "schemas": [old, schema],
        "snapshots": [{"snapshot-id": 6}, snapshot],
    }
    monkeypatch.setattr(lakes, "_metadata_file", lambda *_: "/t/v1.json")
    source = SourceTable(names=("/t",), format="iceberg", location="/t", snapshot=7)
    found = lakes.read(None, Files({"v1.json": json.dumps(metadata).encode()}), source)
    assert found is not None
    assert (found.rows, found.file) == (rows, "file:///t/v1.json")
    assert found.columns == pa.schema(
        {
            "id": pa.int64(),
            "p": pa.decimal128(9, 2),
            "f": pa.binary(),
            "v": pa.null(),
            "l": pa.list_(pa.timestamp("us", "UTC")),
            "m": pa.map_(pa.string(), pa.string()),
            "s": pa.struct({"x": pa.date32()}),
        }
    )
    with pytest.raises(UnreachableError):
        lakes.read(None, Files({}), source)
