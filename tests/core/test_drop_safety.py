"""DropTable and Cascade delete what was named, whatever others keep in the catalog or around it.

Nor does what others keep there block other work.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
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
from lance_bridge.errors import ObjectUnavailableError
from lance_bridge.locations import other_locations
from lance_bridge.storage.store import TableFiles
from lance_bridge.testing.calls import Calls
from lance_bridge_doctor import Kind, diagnose_namespace

from .managed_tables import another
from .memory_catalog import (
    DATASET,
    LOCATION,
    TABLE,
    MemoryCatalog,
    MemoryNamespace,
    MemoryServer,
    at,
    at_change,
    count_rows,
    create,
    described,
    put,
    stream,
)

pytestmark = pytest.mark.quick

SICK = ("asia",)
REASONS = [
    errors.InvalidInputError("the connection is down"),
    errors.InternalError("the share does not exist"),
    ObjectUnavailableError("an internal error occurred"),
    errors.PermissionDeniedError("no USE CATALOG"),
    errors.UnsupportedOperationError("not for this kind of catalog"),
    errors.NamespaceNotFoundError("the share does not exist"),
]
for_each_reason = pytest.mark.parametrize("error", REASONS, ids=lambda each: type(each).__name__)


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


# -- namespaces that cannot be read ----------------------------------------------------------------


def reason_of(error: Exception) -> str:
    """Return what is said of an error from a namespace that the catalog lists."""
    if isinstance(error, errors.NamespaceNotFoundError):
        return "its catalog lists it, and answers that it does not exist"
    return str(error)


def fail_at(
    monkeypatch: pytest.MonkeyPatch, method: str, place: tuple[str, ...], error: Exception
) -> None:
    """Have a method of the catalog fail for one namespace."""
    call: Callable[..., Iterable[object]] = getattr(MemoryCatalog, method)

    def failing(self: MemoryCatalog, path: tuple[str, ...], **options: object) -> object:
        if path == place:
            raise error
        return call(self, path, **options)

    monkeypatch.setattr(MemoryCatalog, method, failing)


@pytest.fixture
def sick(server: MemoryServer) -> MemoryServer:
    """The server, with a second namespace on each level."""
    for path in (SICK, (*SICK, "p"), (*SICK, "p", "d")):
        server.namespaces[path] = NamespaceRecord(path)
    return server


WHERE = [("list_namespaces", SICK), ("list_namespaces", (*SICK, "p"))]


@pytest.mark.usefixtures("sick")
@for_each_reason
@pytest.mark.parametrize(("method", "place"), [*WHERE, ("list_tables", (*SICK, "p", "d"))])
def test_a_listing_goes_on_past_a_namespace_that_cannot_be_read(
    *,
    with_table: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    place: tuple[str, ...],
    error: Exception,
) -> None:
    fail_at(monkeypatch, method, place, error)
    with caplog.at_level(logging.WARNING):
        found = with_table.list_all_tables(api.ListTablesRequest()).tables
    assert found == ["$".join(TABLE)]
    assert f"listed without '{'.'.join(place)}': {reason_of(error)}" in caplog.text


@pytest.mark.usefixtures("sick")
@pytest.mark.spec(
    "common.md#droptable",
    "common.md#errors-of-every-operation",
    "hive.md#errors-of-every-operation",
)
@for_each_reason
@pytest.mark.parametrize(("method", "place"), [*WHERE, ("scan_tables", (*SICK, "p", "d"))])
def test_a_drop_names_the_namespace_that_cannot_be_read_and_the_remedy(
    *,
    with_table: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    place: tuple[str, ...],
    error: Exception,
) -> None:
    fail_at(monkeypatch, method, place, error)
    denied = isinstance(error, errors.PermissionDeniedError)
    expected = errors.PermissionDeniedError if denied else errors.InvalidTableStateError
    message = (
        f"'{'.'.join(place)}'.*cannot be read: {reason_of(error)}.*drop.check-sharing=namespace"
    )
    with pytest.raises(expected, match=message):
        with_table.drop_table(api.DropTableRequest(id=TABLE))
    assert count_rows(with_table, TABLE) == 3
    narrow = another(with_table, **{"drop.check-sharing": "namespace"})
    narrow.drop_table(api.DropTableRequest(id=TABLE))


@pytest.mark.usefixtures("sick")
@pytest.mark.parametrize(
    "error", [errors.ServiceUnavailableError("no answer"), errors.ThrottlingError("slow down")]
)
@pytest.mark.parametrize(("method", "place"), WHERE)
def test_an_outage_is_an_error_of_the_listing(
    with_table: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    place: tuple[str, ...],
    error: Exception,
) -> None:
    fail_at(monkeypatch, method, place, error)
    for call in (
        lambda: with_table.list_all_tables(api.ListTablesRequest()),
        lambda: with_table.drop_table(api.DropTableRequest(id=TABLE)),
    ):
        with pytest.raises(type(error)):
            call()


def test_a_catalog_of_which_nothing_can_be_read_is_not_empty(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, "list_tables", tuple(TABLE[:-1]), errors.InternalError("its database"))
    with pytest.raises(errors.InternalError, match="its database"):
        namespace.list_all_tables(api.ListTablesRequest())


@pytest.mark.usefixtures("sick")
@pytest.mark.parametrize(("method", "place"), WHERE)
def test_doctor_checks_the_rest_of_the_catalog(
    namespace: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    place: tuple[str, ...],
) -> None:
    location = Path(create(namespace, TABLE).location or "")
    shutil.rmtree(location)
    fail_at(monkeypatch, method, place, errors.InvalidInputError("the connection is down"))
    found = diagnose_namespace(namespace, "prod", idle=timedelta(0)).findings
    assert (Kind.LOCATION_GONE, ".".join(TABLE)) in [(each.kind, each.subject) for each in found]
    unread = [each for each in found if each.subject == ".".join(place)]
    assert [each.message for each in unread] == ["the connection is down"]


# -- entries that are only links to others ---------------------------------------------------------


LINK = [*DATASET[:-1], "links", "orders"]


@pytest.fixture
def linked(namespace: MemoryNamespace, server: MemoryServer) -> MemoryNamespace:
    """A namespace with a table, and a link to it in another namespace."""
    create(namespace, TABLE)
    server.namespaces[tuple(LINK[:-1])] = NamespaceRecord(tuple(LINK[:-1]))
    server.tables[tuple(LINK)] = replace(
        server.tables[tuple(TABLE)],
        path=tuple(LINK),
        link_to="eu.shop.sales.Orders",
        link_path=tuple(TABLE),
    )
    return namespace


CHANGES_OF_A_LINK: dict[str, Callable[[Calls], object]] = {
    "drop": lambda calls: calls.drop_table(LINK),
    "cascade": lambda calls: calls.drop_namespace(LINK[:-1], behavior="Cascade"),
    "overwrite": lambda calls: calls.create_table(
        LINK, stream(9), mode="Overwrite", properties={"new": "yes"}
    ),
    "register elsewhere": lambda calls: calls.register_table(LINK, "/else", mode="Overwrite"),
}


@pytest.mark.spec("common.md#dropnamespace", "glue.md#droptable")
@pytest.mark.parametrize("change", CHANGES_OF_A_LINK)
def test_what_would_change_the_table_of_a_link_is_refused(
    linked: MemoryNamespace, server: MemoryServer, change: str
) -> None:
    server.capabilities = replace(server.capabilities, no_alter="")
    before = dict(server.tables)
    drops = change in ("drop", "cascade")
    error = errors.InvalidTableStateError if drops else errors.InvalidInputError
    remedy = "eregister" if change == "drop" else ""
    with pytest.raises(error, match=rf"link to eu\.shop.*{remedy}"):
        CHANGES_OF_A_LINK[change](Calls(linked))
    assert server.tables == before
    assert count_rows(linked, TABLE) == 3


def test_a_link_does_not_keep_its_table_from_being_dropped(linked: MemoryNamespace) -> None:
    place = Path(linked.server.tables[tuple(TABLE)].location.removeprefix("file://"))  # type: ignore[union-attr]  # it has one
    Calls(linked).drop_table(TABLE)
    assert tuple(TABLE) not in linked.server.tables
    assert not place.exists()


def test_a_link_to_another_catalogs_table_keeps_what_lies_there(linked: MemoryNamespace) -> None:
    linked.server.tables[tuple(LINK)] = replace(linked.server.tables[tuple(LINK)], link_path=None)
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        Calls(linked).drop_table(TABLE)
    assert count_rows(linked, TABLE) == 3


@pytest.fixture
def linked_namespace(linked: MemoryNamespace, server: MemoryServer) -> MemoryNamespace:
    """The same where the other namespace is a link, too."""
    path = tuple(LINK[:-1])
    server.namespaces[path] = NamespaceRecord(path, link_to="eu.shop.sales")
    return linked


def test_of_a_link_to_a_namespace_only_the_link_is_dropped(
    linked_namespace: MemoryNamespace,
) -> None:
    Calls(linked_namespace).drop_namespace(LINK[:-1])
    assert tuple(LINK[:-1]) not in linked_namespace.server.namespaces
    assert count_rows(linked_namespace, TABLE) == 3


def test_no_data_is_deleted_through_a_link_to_a_namespace(
    linked_namespace: MemoryNamespace, server: MemoryServer
) -> None:
    seen_through_it = replace(server.tables[tuple(LINK)], link_to="", link_path=None)
    server.tables[tuple(LINK)] = seen_through_it
    with pytest.raises(errors.InvalidTableStateError, match=r"in a link to eu\.shop\.sales"):
        Calls(linked_namespace).drop_table(LINK)
    assert server.tables[tuple(LINK)] == seen_through_it
    assert count_rows(linked_namespace, TABLE) == 3


@pytest.mark.spec("glue.md#dropnamespace")
def test_cascade_over_a_linked_namespace_changes_nothing(linked_namespace: MemoryNamespace) -> None:
    before = dict(linked_namespace.server.tables)
    with pytest.raises(errors.InvalidInputError, match=r"link to eu\.shop\.sales"):
        Calls(linked_namespace).drop_namespace(LINK[:-1], behavior="Cascade")
    assert linked_namespace.server.tables == before
    assert tuple(LINK[:-1]) in linked_namespace.server.namespaces


# -- entries with several locations ----------------------------------------------------------------


@pytest.mark.spec("common.md#droptable")
@pytest.mark.parametrize("spelling", ["{}", "file:{}/", "{}/data/inside", "{}/.."])
def test_files_that_another_entry_names_beside_its_location_are_kept(
    namespace: MemoryNamespace, spelling: str
) -> None:
    location = create(namespace, TABLE).location or ""
    others = ("s3://elsewhere/t", spelling.format(location))
    namespace.server.tables[at("other")] = TableRecord(at("other"), "/no/t", other_locations=others)
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of '.*other'"):
        namespace.drop_table(api.DropTableRequest(id=TABLE))
    namespace.server.tables[at("other")] = TableRecord(at("other"), None, other_locations=others)
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of '.*other'"):
        namespace.drop_table(api.DropTableRequest(id=TABLE))
    assert count_rows(namespace, TABLE) == 3


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize("other", [LOCATION, f"{LOCATION}/data", LOCATION.rpartition("/")[0]])
def test_no_credentials_are_vended_over_another_entry_s_further_locations(
    server: MemoryServer, vending: MemoryNamespace, other: str
) -> None:
    put(server, "other", "s3://elsewhere/t")
    found = server.tables[at("other")]
    server.tables[at("other")] = TableRecord(found.path, found.location, other_locations=(other,))
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of .*other"):
        described(vending)
