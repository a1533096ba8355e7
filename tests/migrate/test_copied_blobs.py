"""Blobs of a copy are compared by their bytes, not by the descriptions that Lance reads of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from arrow_types import CASES, SHAPES, TypeCase, rows_of
from lance_namespace.errors import ServiceUnavailableError
from migrate.places import Place, between, planned, select
from migrate.sessions import failed

from lance_bridge import blobs
from lance_bridge_migrate import Level, State, verify
from lance_bridge_migrate.migrations.verification import compare

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#copy", "migration.md#verifying")]

SMALL, LARGE = b"a small blob", b"z" * 100_000 + b"a large blob"
"""Lance stores a small one beside the other values, and a large one in a file of its own."""
KINDS = [
    replace(case, values=(SMALL, b"", LARGE)) for case in CASES if case.name.startswith("blob")
]
LEVELS = pytest.mark.parametrize("level", [Level.SAMPLE, Level.CHECKSUMS], ids=str)
NAMES = {Level.SAMPLE: "sample", Level.CHECKSUMS: "values"}
"""The name of the check of values, by level."""
quick = pytest.mark.quick


def changed(directory: Path, value: bytes) -> None:
    """Change a byte of a value in the files of a table, whose descriptions remain."""
    [file] = [
        each
        for each in directory.rglob("*")
        if each.suffix in (".lance", ".blob") and value in each.read_bytes()
    ]
    file.write_bytes(file.read_bytes().replace(value, value[:-1] + b"?"))


def tables(place: Path, rows: pa.Table) -> list[lance.LanceDataset]:
    """Write the same rows twice."""
    paths = (str(place / name) for name in ("one", "two"))
    return [lance.write_dataset(rows, path, data_storage_version="2.2") for path in paths]


def differing(place: Path, level: Level) -> list[tuple[str, str]]:
    """Return the checks of two tables that fail, and their columns."""
    one, two = (lance.dataset(str(place / name)) for name in ("one", "two"))
    return [(check.name, check.column) for check in compare(one, two, level) if not check.ok]


@quick
@LEVELS
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_a_changed_byte_of_a_blob_is_noticed(
    tmp_path: Path, case: TypeCase, shape: str, level: Level
) -> None:
    tables(tmp_path, rows_of(case, shape))
    assert differing(tmp_path, level) == []
    for value in (SMALL, LARGE):
        changed(tmp_path / "two", value[-20:])
        assert differing(tmp_path, level) == [(NAMES[level], "c")]
        changed(tmp_path / "one", value[-20:])
        assert differing(tmp_path, level) == []


@quick
@LEVELS
def test_a_missing_file_of_blobs_fails_the_comparison(tmp_path: Path, level: Level) -> None:
    tables(tmp_path, rows_of(KINDS[0], "plain"))
    [file] = (tmp_path / "two").rglob("*.blob")
    file.unlink()
    with pytest.raises(ServiceUnavailableError, match="could not be compared"):
        differing(tmp_path, level)


@quick
@LEVELS
def test_tables_of_blobs_without_rows_are_equal(tmp_path: Path, level: Level) -> None:
    tables(tmp_path, rows_of(KINDS[0], "plain").slice(0, 0))
    assert differing(tmp_path, level) == []


@quick
def test_many_rows_are_compared_in_batches_that_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 300
    values = [b"%03d" % number * 1000 for number in range(rows)]
    columns = pa.schema([pa.field("id", pa.int64()), lance.blob_field("b")])
    table = pa.table([pa.array(range(rows), pa.int64()), lance.blob_array(values)], schema=columns)
    tables(tmp_path, table)
    taken: list[int] = []

    def counted(dataset: Any, ids: pa.Array, names: Any) -> Any:
        taken.append(len(ids))
        return take_rows(dataset, ids, names)

    take_rows = blobs.take_rows
    monkeypatch.setattr(blobs, "_MOST_BYTES", 30_000)
    monkeypatch.setattr(blobs, "take_rows", counted)
    for level in (Level.SAMPLE, Level.CHECKSUMS):
        assert differing(tmp_path, level) == []
    assert set(taken) == {5}, "both tables count"
    changed(tmp_path / "two", b"299" * 10)
    for level in (Level.SAMPLE, Level.CHECKSUMS):
        assert differing(tmp_path, level) == [(NAMES[level], "b")]


def test_a_copy_that_has_lost_bytes_does_not_pass_the_verification(
    hive: Place, glue: Place, tmp_path: Path
) -> None:
    place = str(hive.lake / "b.lance")
    lance.write_dataset(rows_of(KINDS[0], "plain"), place, data_storage_version="2.2")
    hive.make_namespace()
    with hive.connect() as namespace:
        request = api.RegisterTableRequest(id=list(hive.table("b")), location=place)
        namespace.register_table(request)
    target = replace(glue, properties={**glue.properties, "root": str(tmp_path / "copies")})
    options = select(hive, namespace=[target.prefix])
    with planned("copy", between(hive, target), hive.migrations, **options) as run:
        assert failed(run.execute(verify="checksums")) == []
        changed(tmp_path / "copies" / f"{target.prefix}.db" / "b.lance", LARGE[-20:])
        record = verify(run.type, run.endpoints, run.migration, Level.CHECKSUMS)
        assert record.state is State.DIFFERS
        checks = [check for each in record.items.values() for check in each.checks]
        assert [(each.name, each.column) for each in checks if not each.ok] == [("values", "c")]
