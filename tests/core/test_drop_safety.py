"""DropTable and Cascade delete what was named, whatever lies around it."""

from __future__ import annotations

import logging
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import quote

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.data_locations import other_locations
from lance_bridge.storage.table_files import TableFiles

from .building import DATASET, TABLE, at, at_change, count_rows, create
from .managing import another
from .memory_catalog import MemoryCatalog, MemoryNamespace

pytestmark = pytest.mark.quick


def put_lance_entry(namespace: MemoryNamespace, name: str, location: str) -> list[str]:
    path = (*DATASET, name)
    namespace.server.tables[path] = TableRecord(path, location, {"table_type": "LANCE"})
    return list(path)


def drop_table(namespace: MemoryNamespace) -> None:
    namespace.drop_table(api.DropTableRequest(id=TABLE))


def drop_reading(namespace: MemoryNamespace, entries: str) -> None:
    """Drop the table with a client that reads only some entries of others."""
    drop_table(another(namespace, **{"drop.check-sharing": entries}))


def drop_namespace(namespace: MemoryNamespace) -> None:
    namespace.drop_namespace(api.DropNamespaceRequest(id=list(DATASET), behavior="Cascade"))


@pytest.mark.spec("common.md#droptable")
@pytest.mark.parametrize(
    "location",
    [
        "/",
        "file:///",
        "s3://bucket",
        "s3://bucket/",
        "relative/place",
        "s3://bucket/a/../b.lance",
        "s3://bucket/a/%2e%2e/b.lance",
        "s3://bucket/a?b.lance",
        "hdfs://host/a.lance",
        "oss://bucket/a.lance",
        None,
    ],
)
def test_no_file_is_deleted_where_others_have_put_a_bad_location(
    namespace: MemoryNamespace, location: str | None
) -> None:
    table = put_lance_entry(namespace, "odd", location)  # type: ignore[arg-type]  # as others write it
    with pytest.raises(errors.InvalidTableStateError, match="eregister"):
        namespace.drop_table(api.DropTableRequest(id=table))
    assert tuple(table) in namespace.server.tables
    assert namespace.deregister_table(api.DeregisterTableRequest(id=table)).id == table


@pytest.mark.spec("common.md#droptable")
def test_a_table_whose_manifest_cannot_be_read_is_not_dropped(namespace: MemoryNamespace) -> None:
    place = Path(create(namespace, TABLE).location or "")
    (manifest,) = (place / "_versions").glob("*.manifest")
    manifest.write_text("broken")
    for drop in (drop_table, drop_namespace):
        with pytest.raises(errors.InvalidTableStateError, match=r"Orders.*manifest.*deregister"):
            drop(namespace)
    assert tuple(TABLE) in namespace.server.tables
    assert len(list((place / "data").iterdir())) == 1
    namespace.deregister_table(api.DeregisterTableRequest(id=TABLE))


def test_a_table_whose_files_another_drop_is_deleting_is_not_found(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(create(namespace, TABLE).location or "")
    (manifest,) = (place / "_versions").glob("*.manifest")
    scan = MemoryCatalog.scan_tables

    def drop_elsewhere(catalog: MemoryCatalog, *arguments: Any, **options: Any) -> Any:
        namespace.server.tables.pop(tuple(TABLE), None)
        manifest.write_text("half deleted")
        return scan(catalog, *arguments, **options)

    monkeypatch.setattr(MemoryCatalog, "scan_tables", drop_elsewhere)
    with pytest.raises(errors.TableNotFoundError):
        drop_table(namespace)


def test_dropping_a_declaration_spares_the_table_that_follows_at_once(
    namespace: MemoryNamespace,
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    other_client = another(namespace)
    at_change(namespace, "drop_table", "after", lambda: create(other_client, TABLE))
    drop_table(namespace)
    assert count_rows(other_client, TABLE) == 3


@pytest.mark.spec("common.md#droptable", "docs/write-a-catalog.md#reading")
def test_no_data_is_deleted_while_an_entry_cannot_be_read(with_table: MemoryNamespace) -> None:
    with_table.server.tables[at("other")] = TableRecord.unreadable(at("other"))
    for drop in (drop_table, drop_namespace):
        with pytest.raises(errors.InvalidTableStateError, match=r"other.*cannot|cannot.*other"):
            drop(with_table)
        assert count_rows(with_table, TABLE) == 3
    with_table.deregister_table(api.DeregisterTableRequest(id=TABLE))
    assert list(with_table.server.tables) == [at("other")]


@pytest.mark.spec("common.md#droptable", "docs/write-a-catalog.md#reading")
def test_an_unreadable_entry_of_another_namespace_counts_unless_only_the_own_one_is_read(
    with_table: MemoryNamespace,
) -> None:
    elsewhere = (*DATASET[:-1], "elsewhere")
    with_table.server.namespaces[elsewhere] = NamespaceRecord(elsewhere)
    other = (*elsewhere, "other")
    with_table.server.tables[other] = TableRecord.unreadable(other)
    with pytest.raises(errors.InvalidTableStateError, match=r"drop\.check-sharing=namespace"):
        drop_table(with_table)
    drop_reading(with_table, "namespace")
    assert list(with_table.server.tables) == [other]


@pytest.mark.spec("docs/write-a-catalog.md#hidden-entries-and-partitions")
def test_an_entry_that_no_namespace_lists_keeps_the_files_that_it_shares(
    namespace: MemoryNamespace,
) -> None:
    place = create(namespace, TABLE).location or ""
    namespace.server.hidden = [TableRecord(("other", "catalog", "t"), f"{place}/data/t")]
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps.*other.*catalog"):
        drop_table(namespace)
    namespace.server.hidden = [TableRecord.unreadable(("other", "catalog", "t"))]
    with pytest.raises(errors.InvalidTableStateError, match=r"other.*cannot be read"):
        drop_table(namespace)
    assert count_rows(namespace, TABLE) == 3
    drop_reading(namespace, "namespace")
    assert not Path(place).exists()


@pytest.mark.spec(
    "docs/write-a-catalog.md#hidden-entries-and-partitions",
    "glue.md#deletion-of-data",
    "hive.md#deletion-of-data",
)
def test_a_partition_among_a_tables_files_keeps_it_from_being_dropped(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    place = Path(create(namespace, TABLE).location or "")
    (place / "day=1").mkdir()
    other = at("days")
    namespace.server.tables[other] = TableRecord(other, str(tmp_path / "days"), is_partitioned=True)
    with pytest.raises(errors.PermissionDeniedError, match=r"days.*drop\.check-sharing=entries"):
        drop_table(namespace)
    namespace.server.partitions[other] = [str(tmp_path / "days" / "day=0"), f"file:{place}/day=1"]
    with pytest.raises(errors.InvalidTableStateError, match=r"partition of.*days.*day=1"):
        drop_table(namespace)
    assert count_rows(namespace, TABLE) == 3
    namespace.server.partitions[other] = [str(tmp_path / "days" / "day=0")]
    drop_table(namespace)
    assert [each.name for each in place.iterdir()] == ["day=1"]


@pytest.mark.spec("common.md#droptable")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.PermissionDeniedError, errors.PermissionDeniedError),
        (errors.InternalError, errors.InvalidTableStateError),
        (errors.InvalidInputError, errors.InvalidTableStateError),
    ],
)
def test_partitions_that_cannot_be_read_keep_a_table_from_being_dropped(
    namespace: MemoryNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[errors.LanceNamespaceError],
    expected: type[errors.LanceNamespaceError],
) -> None:
    place = Path(create(namespace, TABLE).location or "")
    (place / "day=1").mkdir()
    days = TableRecord(at("days"), str(tmp_path / "days"), is_partitioned=True)
    namespace.server.tables[at("days")] = days

    def refuse(*_: object) -> list[str]:
        raise error("not today")

    monkeypatch.setattr(MemoryCatalog, "partition_locations", refuse)
    with pytest.raises(expected, match=r"days.* may .*not today.*check-sharing=entries"):
        drop_table(namespace)
    assert count_rows(namespace, TABLE) == 3


@pytest.mark.spec("glue.md#deletion-of-data")
def test_partitions_are_not_read_where_all_files_are_the_tables_own(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    place = Path(create(namespace, TABLE).location or "")
    namespace.server.tables[at("days")] = TableRecord(
        at("days"), str(tmp_path / "x"), is_partitioned=True
    )
    drop_table(namespace)
    assert not place.exists()


@pytest.mark.spec("common.md#shared-locations")
def test_a_shallow_clone_keeps_the_table_whose_files_it_reads(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    place = create(namespace, TABLE).location or ""
    clone = str(tmp_path / "clone.lance")
    lance.dataset(place).shallow_clone(clone, 1)
    table = put_lance_entry(namespace, "clone", clone)
    with pytest.raises(errors.InvalidTableStateError, match=r"clone.*shallow clone"):
        drop_table(namespace)
    assert count_rows(namespace, table) == 3
    namespace.drop_table(api.DropTableRequest(id=table))
    assert count_rows(namespace, TABLE) == 3
    drop_table(namespace)


def is_refused_for_a_clone(namespace: MemoryNamespace) -> bool:
    """Return whether DropTable refuses; else the table is gone."""
    try:
        drop_table(namespace)
    except errors.InvalidTableStateError as error:
        refusal = str(error)
    else:
        return False
    assert "is a shallow clone that reads its files" in refusal
    return True


@pytest.mark.spec("common.md#shared-locations")
@pytest.mark.parametrize("spelling", ["file://{encoded}", "x/../{relative}", "{relative}"])
def test_a_clone_may_spell_the_table_as_lance_reads_it(
    namespace: MemoryNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    place = tmp_path / "lake" / "a é.lance"
    lance.write_dataset(pa.table({"a": [1]}), str(place))
    put_lance_entry(namespace, TABLE[-1], str(place))
    monkeypatch.chdir(tmp_path)
    uri = spelling.format(encoded=quote(str(place)), relative=place.relative_to(tmp_path))
    lance.dataset(uri).shallow_clone(str(tmp_path / "clone.lance"), 1)
    put_lance_entry(namespace, "clone", str(tmp_path / "clone.lance"))
    monkeypatch.chdir("/")
    assert is_refused_for_a_clone(namespace)


def test_an_entry_whose_manifest_is_removed_while_it_is_read_may_be_a_clone(
    namespace: MemoryNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = create(namespace, TABLE).location or ""
    lance.dataset(place).shallow_clone(str(tmp_path / "clone"), 1)
    put_lance_entry(namespace, "clone", str(tmp_path / "clone"))
    with monkeypatch.context() as patched:
        patched.setattr(TableFiles, "read", lambda *_: None)
        with pytest.raises(errors.LanceNamespaceError, match="was removed while it was read"):
            drop_table(namespace)
    assert count_rows(namespace, TABLE) == 3
    assert is_refused_for_a_clone(namespace)


@pytest.mark.spec("common.md#shared-locations")
def test_a_table_that_becomes_a_clone_between_two_drops_is_seen(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    other = str(tmp_path / "other.lance")
    lance.write_dataset(pa.table({"a": [1]}), other)
    put_lance_entry(namespace, "other", other)
    create(namespace, TABLE)
    assert not is_refused_for_a_clone(namespace)
    place = create(namespace, TABLE).location or ""
    rmtree(other)
    lance.dataset(place).shallow_clone(other, 1)
    assert is_refused_for_a_clone(namespace)


@pytest.mark.spec("common.md#files-that-are-deleted")
def test_versions_that_are_committed_during_a_drop_stay_and_are_named(
    namespace: MemoryNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    place = Path(create(namespace, TABLE).location or "")
    (place / "_versions" / "notes.txt").write_text("mine")
    rows = pa.table({"a": [4]})
    at_change(
        namespace.server,
        "drop_table",
        "before",
        lambda: lance.write_dataset(rows, place, mode="append"),
    )
    with caplog.at_level(logging.WARNING):
        drop_table(namespace)
    (manifest,) = (place / "_versions").glob("*.manifest")
    assert f"1 versions were committed to {place}" in caplog.text
    assert f"_versions/{manifest.name}" in caplog.text
    assert len(list((place / "data").iterdir())) == 1


@pytest.mark.spec("common.md#shared-locations")
def test_no_data_is_deleted_while_a_lance_table_that_may_be_a_clone_cannot_be_read(
    with_table: MemoryNamespace, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    put_lance_entry(with_table, "broken", str(tmp_path / "loop"))
    with pytest.raises(errors.InvalidTableStateError, match=r"broken.*may be a.*clone.*=entries"):
        drop_table(with_table)
    assert count_rows(with_table, TABLE) == 3
    drop_reading(with_table, "entries")


# -- where the data of other tools' entries may be ------------------------------------------------

DELTA = {"spark.sql.sources.provider": "delta"}
UNKNOWN = {"spark.sql.sources.provider": "com.example.format"}


@pytest.mark.spec("common.md#droptable")
@pytest.mark.parametrize(
    ("parameters", "options", "expected"),
    [
        pytest.param(DELTA, {"path": "s3://b/t"}, ["s3://b/t"], id="spark"),
        pytest.param(DELTA, {"PATH": "file:/data/t"}, ["file:/data/t"], id="any-case"),
        pytest.param({}, {"path": "/data/t"}, ["/data/t"], id="plain-path"),
        pytest.param(
            DELTA, {"paths": '["s3://b/a", "s3://b/c,d"]'}, ["s3://b/a", "s3://b/c,d"], id="json"
        ),
        pytest.param(
            {}, {"path": "s3://b/a,s3://b/c, /d/e"}, ["s3://b/a", "s3://b/c", "/d/e"], id="commas"
        ),
        pytest.param({}, {"path": "s3://b/t/dt=*/x"}, ["s3://b/t"], id="pattern"),
        pytest.param({}, {"path": "s3://b/t[0-9]"}, ["s3://b"], id="pattern-in-the-last-name"),
        pytest.param(
            {"storage.location.template": "s3://b/t/${day}/${hour}"}, {}, ["s3://b/t"], id="athena"
        ),
        pytest.param(
            {"table_type": "ICEBERG", "metadata_location": "s3://b/t/metadata/1.json"},
            {},
            ["s3://b/t"],
            id="iceberg",
        ),
        pytest.param(
            {"metadata_location": "s3://b/elsewhere/1.json"}, {}, ["s3://b/elsewhere"], id="moved"
        ),
        pytest.param(
            {"table_type": "ICEBERG", "write.data.path": "s3://b/data"},
            {},
            ["s3://b/data"],
            id="iceberg-data",
        ),
        pytest.param(UNKNOWN, {"store": "abfss://c@a/t"}, ["abfss://c@a/t"], id="unknown-format"),
        pytest.param({**UNKNOWN, "store": "/data/t"}, {}, ["/data/t"], id="unknown-property"),
        pytest.param(DELTA, {"store": "s3://b/t"}, [], id="known-format"),
        pytest.param(UNKNOWN, {"docs": "https://b/t", "n": "1"}, [], id="no-location"),
        pytest.param(UNKNOWN, {"bucket": "s3://b", "root": "/", "home": "/data"}, [], id="roots"),
        pytest.param(
            {"table_type": "Lance", "source": "s3://b/t", "path": "/d/t"}, {}, [], id="lance"
        ),
        pytest.param({"table_type": "lance"}, {"path": "/d/t"}, ["/d/t"], id="lance-of-spark"),
    ],
)
def test_other_locations_are_found(
    parameters: dict[str, str], options: dict[str, str], expected: list[str]
) -> None:
    assert list(other_locations("s3://own/t", parameters, [options, None])) == expected


def test_of_the_entry_s_own_location_only_what_is_above_symlinks_is_another_one() -> None:
    assert other_locations("s3://b/t", DELTA, [{"path": "s3://b/t"}]) == ()
    symlinks = "s3://b/delta/_symlink_format_manifest/day=1"
    assert other_locations(symlinks, {}) == ("s3://b/delta",)


def test_an_input_format_makes_an_entry_known() -> None:
    parquet = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
    assert other_locations(None, {"from": "s3://b/t"}, input_format=parquet) == ()
    assert other_locations(None, {"from": "s3://b/t"}, input_format="com.example.Format") == (
        "s3://b/t",
    )
