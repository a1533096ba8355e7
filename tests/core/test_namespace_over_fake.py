"""LanceBridgeNamespace over a catalog that declares other things than Hive, or lacks locations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import OutcomeUnknownError

from .managed_tables import another
from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    TABLE,
    MemoryCatalog,
    MemoryNamespace,
    MemoryServer,
    Moment,
    at,
    at_change,
    count_rows,
    create,
    raiser,
)

pytestmark = pytest.mark.quick

REFUSE = raiser(errors.PermissionDeniedError("not yours"))


def test_a_page_of_all_tables_reads_only_the_namespaces_that_it_needs(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for outer in ("us", "za"):
        for depth in (1, 2, 3):
            path = [outer, *DATASET[1:]][:depth]
            namespace.create_namespace(api.CreateNamespaceRequest(id=path))
    for outer in ("eu", "us", "za"):
        create(namespace, [outer, *TABLE[1:]])
    read: list[tuple[str, ...]] = []
    children = MemoryCatalog.list_namespaces

    def list_namespaces(self: MemoryCatalog, parent: tuple[str, ...]) -> Iterable[str]:
        read.append(parent)
        return children(self, parent)

    monkeypatch.setattr(MemoryCatalog, "list_namespaces", list_namespaces)
    found = namespace.list_all_tables(api.ListTablesRequest(limit=1))
    assert found.tables == ["$".join(["eu", *TABLE[1:]])]
    # One table more than the page has tells that there is another page.
    assert read == [(), ("eu",), ("eu", "shop"), ("us",), ("us", "shop")]
    rest = namespace.list_all_tables(api.ListTablesRequest(page_token=found.page_token))
    assert rest.tables == ["$".join([outer, *TABLE[1:]]) for outer in ("us", "za")]


@pytest.mark.spec("unity.md#registertable")
def test_what_the_catalog_cannot_do_is_refused_with_its_reason(
    with_table: MemoryNamespace, tmp_path: Path
) -> None:
    before = dict(with_table.server.tables)
    rename = api.RenameTableRequest(id=TABLE, new_table_name="Other")
    with pytest.raises(errors.UnsupportedOperationError, match="no call for that"):
        with_table.rename_table(rename)
    again = api.RegisterTableRequest(id=TABLE, location=str(tmp_path / "new"), mode="Overwrite")
    with pytest.raises(errors.UnsupportedOperationError, match="entries never change"):
        with_table.register_table(again)
    assert with_table.server.tables == before


@pytest.mark.spec("unity.md#createtable")
@pytest.mark.parametrize("mode", ["Create", "ExistOk", "Overwrite"])
def test_properties_that_cannot_be_kept_are_refused_before_data_is_written(
    namespace: MemoryNamespace, mode: str
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties={"owner": "ann"}))
    with pytest.raises(errors.UnsupportedOperationError):
        create(namespace, TABLE, mode=mode, properties={"owner": "bob"})
    with pytest.raises(errors.InvalidTableStateError):
        count_rows(namespace, TABLE)
    create(namespace, TABLE)
    with pytest.raises(errors.UnsupportedOperationError):
        create(namespace, TABLE, 5, mode="Overwrite", properties={"owner": "bob"})
    assert count_rows(namespace, TABLE) == 3


def test_properties_are_replaced_where_entries_can_change(namespace: MemoryNamespace) -> None:
    namespace.server.capabilities = replace(CAPABILITIES, no_alter="")
    create(namespace, TABLE, properties={"owner": "ann"})
    create(namespace, TABLE, 5, mode="Overwrite", properties={"owner": "bob"})
    answer = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert answer.properties == {"owner": "bob"}
    assert count_rows(namespace, TABLE) == 5


def test_cascade_over_levels_drops_tables_and_their_files_only(
    with_table: MemoryNamespace, tmp_path: Path
) -> None:
    create(with_table, [*DATASET, "other"])
    kept = tmp_path / "lake/eu/shop/sales.db/mine.txt"
    kept.write_text("mine")
    with_table.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))
    assert not with_table.server.namespaces
    assert not with_table.server.tables
    assert [p for p in (tmp_path / "lake").rglob("*") if p.is_file()] == [kept]


def drop_before(client: MemoryNamespace, *paths: tuple[str, ...]) -> None:
    """Drop namespaces, as another client, at the first moment when one would be dropped here."""

    def drop() -> None:
        for path in paths:
            client.server.namespaces.pop(path, None)

    at_change(client, "drop_namespace", "before", drop)


@pytest.mark.spec("common.md#dropnamespace")
@pytest.mark.parametrize("behavior", ["Restrict", "Cascade"])
def test_skip_succeeds_where_another_client_drops_the_namespace_first(
    namespace: MemoryNamespace, behavior: str
) -> None:
    namespace.create_namespace(api.CreateNamespaceRequest(id=["empty"]))
    drop_before(namespace, ("empty",))
    request = api.DropNamespaceRequest(id=["empty"], behavior=behavior)
    with pytest.raises(errors.NamespaceNotFoundError):
        namespace.drop_namespace(request)
    namespace.server.fault = None
    namespace.create_namespace(api.CreateNamespaceRequest(id=["empty"]))
    drop_before(namespace, ("empty",))
    answer = namespace.drop_namespace(request.model_copy(update={"mode": "Skip"}))
    assert not answer.properties


@pytest.mark.spec("common.md#dropnamespace")
def test_skip_fails_where_only_a_namespace_inside_is_dropped_first(
    with_table: MemoryNamespace,
) -> None:
    drop_before(with_table, tuple(DATASET))
    with pytest.raises(errors.NamespaceNotFoundError):
        with_table.drop_namespace(
            api.DropNamespaceRequest(id=["eu"], behavior="Cascade", mode="Skip")
        )
    assert ("eu",) in with_table.server.namespaces


@pytest.mark.spec("unity.md#dropnamespace")
def test_an_interrupted_cascade_names_what_is_gone_and_what_is_left(
    namespace: MemoryNamespace,
) -> None:
    for name in ("a", "b", "c", "d"):
        create(namespace, [*DATASET, name])
    at_change(namespace, "drop_table", "before", REFUSE, number=3)
    with pytest.raises(errors.PermissionDeniedError) as caught:
        namespace.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))
    prefix = "eu.shop.sales"
    assert str(caught.value).startswith(
        f"Namespace 'eu' is dropped in part. Dropped with their data: {prefix}.a, {prefix}.b. "
        f"Failed at: {prefix}.c. Not dropped: {prefix}.d. not yours"
    )
    assert [count_rows(namespace, [*DATASET, name]) for name in ("c", "d")] == [3, 3]


@pytest.mark.parametrize(
    ("change", "said"),
    [("drop_table", "^not yours$"), ("drop_namespace", f"data: {'.'.join(TABLE)}. No table")],
)
def test_a_cascade_that_fails_at_its_first_table_or_at_a_namespace_says_what_is_gone(
    with_table: MemoryNamespace, change: str, said: str
) -> None:
    at_change(with_table, change, "before", REFUSE)
    with pytest.raises(errors.PermissionDeniedError, match=said):
        with_table.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))


@pytest.mark.spec("common.md#dropnamespace")
def test_cascade_looks_for_shared_places_in_each_of_its_namespaces(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    namespace = another(namespace, **{"drop.check-sharing": "namespace"})
    create(namespace, TABLE)
    second = [*DATASET[:2], "zoo"]
    namespace.create_namespace(api.CreateNamespaceRequest(id=second))
    create(namespace, [*second, "a"])
    one, other = (*second, "a"), (*second, "b")
    place = server.tables[one].location
    server.tables[other] = replace(server.tables[one], path=other, location=f"{place}/data")
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        namespace.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))
    assert count_rows(namespace, [*second, "a"]) == 3


# -- tables that are given no location -------------------------------------------------------------


@pytest.fixture
def without_root(server: MemoryServer, request: pytest.FixtureRequest) -> MemoryNamespace:
    """A namespace whose tables go where their namespace says."""
    assert tuple(DATASET) in server.namespaces
    return MemoryNamespace(uri=request.node.nodeid)


@pytest.mark.spec("common.md#createtable", "common.md#declaretable", "glue.md#createnamespace")
@pytest.mark.parametrize(
    "place", ["relative/place", " ", "s3://b/../c", "s3://b/a?x", "hdfs://host/a", "", None]
)
def test_a_namespace_at_a_place_that_lance_cannot_use_needs_a_root(
    without_root: MemoryNamespace, place: str | None
) -> None:
    without_root.server.namespaces[tuple(DATASET)] = NamespaceRecord(tuple(DATASET), {}, place)
    with pytest.raises(errors.InvalidInputError, match=r"eu\.shop\.sales.*Set the property 'root'"):
        without_root.declare_table(api.DeclareTableRequest(id=TABLE))
    assert without_root.server.tables == {}


@pytest.mark.spec("common.md#createtable", "common.md#declaretable", "glue.md#createnamespace")
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_character_is_no_text_for_a_namespace_either(
    namespace: MemoryNamespace, text: str
) -> None:
    for properties in ({"key": text}, {text: "value"}):
        request = api.CreateNamespaceRequest(id=["us"], properties=properties)
        with pytest.raises(errors.InvalidInputError, match="unpaired surrogate"):
            namespace.create_namespace(request)
    assert ("us",) not in namespace.server.namespaces


# -- entries without a location --------------------------------------------------------------------


NEEDS_A_LOCATION: dict[str, Callable[[MemoryNamespace, list[str]], object]] = {
    "describe": lambda ns, t: ns.describe_table(api.DescribeTableRequest(id=t)),
    "exists": lambda ns, t: ns.table_exists(api.TableExistsRequest(id=t)),
    "count": lambda ns, t: ns.count_table_rows(api.CountTableRowsRequest(id=t)),
    "rename": lambda ns, t: ns.rename_table(api.RenameTableRequest(id=t, new_table_name="other")),
    "drop": lambda ns, t: ns.drop_table(api.DropTableRequest(id=t)),
}


@pytest.mark.spec(
    "common.md#describetable",
    "common.md#droptable",
    "common.md#renametable",
    "common.md#tableexists",
    "unity.md#createtable",
)
@pytest.mark.parametrize("operation", NEEDS_A_LOCATION)
def test_an_entry_without_a_location_is_in_an_invalid_state(
    namespace: MemoryNamespace, server: MemoryServer, operation: str
) -> None:
    server.capabilities = replace(CAPABILITIES, no_rename="")
    path = (*DATASET, "nowhere")
    server.tables[path] = TableRecord(path, None, {"table_type": "lance"})
    with pytest.raises(errors.InvalidTableStateError, match="nowhere' has no location"):
        NEEDS_A_LOCATION[operation](namespace, list(path))
    assert path in server.tables
    namespace.deregister_table(api.DeregisterTableRequest(id=list(path)))
    assert path not in server.tables


# -- renames by copying: undone where the removal fails --------------------------------------------


COPYING = replace(CAPABILITIES, no_rename="", no_alter="", renames_by_copy=True)
OLD, NEW = tuple(TABLE), at("Renamed")


@pytest.fixture
def copying(namespace: MemoryNamespace, server: MemoryServer) -> MemoryNamespace:
    """A namespace with one table, in a catalog that renames by copying."""
    server.capabilities = COPYING
    create(namespace, TABLE)
    server.effects.clear()
    return namespace


def rename(ns: MemoryNamespace) -> None:
    ns.rename_table(api.RenameTableRequest(id=TABLE, new_table_name="Renamed"))


@pytest.mark.spec("glue.md#rename-by-copy")
def test_the_entry_moves_with_its_properties_and_location(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    before = server.tables[OLD]
    rename(copying)
    after = server.tables[NEW]
    assert server.effects == ["copy_table", "drop_table"]
    assert list(server.tables) == [NEW]
    assert after.location == before.location
    own = {k: v for k, v in before.properties.items() if k != "lance_bridge.id"}
    assert own.items() <= after.properties.items()
    assert count_rows(copying, list(NEW)) == 3


@pytest.mark.spec("glue.md#rename-by-copy", "glue.md#renametable")
@pytest.mark.parametrize(
    "error",
    [
        errors.PermissionDeniedError("may not"),
        errors.ThrottlingError("slowly"),
        errors.InternalError("broken"),
    ],
)
def test_a_refused_removal_undoes_the_copy(
    copying: MemoryNamespace, error: errors.LanceNamespaceError
) -> None:
    before = dict(copying.server.tables)
    at_change(copying, "drop_table", "before", raiser(error))
    with pytest.raises(type(error), match=str(error)):
        rename(copying)
    assert copying.server.tables == before
    assert copying.server.effects == ["copy_table", "drop_table"]


@pytest.mark.spec("glue.md#rename-by-copy")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("change", ["copy_table", "drop_table"])
def test_a_lost_reply_neither_doubles_nor_loses_the_entry(
    copying: MemoryNamespace, change: str, moment: Moment
) -> None:
    at_change(copying, change, moment, raiser(OutcomeUnknownError("lost")))
    rename(copying)
    assert list(copying.server.tables) == [NEW]
    assert copying.server.effects == ["copy_table", "drop_table"]


@pytest.mark.spec("common.md#renametable", "glue.md#rename-by-copy")
def test_an_entry_that_was_removed_concurrently_is_not_restored(copying: MemoryNamespace) -> None:
    at_change(copying, "drop_table", "before", lambda: copying.server.tables.pop(OLD))
    with pytest.raises(errors.TableNotFoundError):
        rename(copying)
    assert copying.server.tables == {}


@pytest.mark.spec("common.md#renametable", "glue.md#rename-by-copy")
def test_an_entry_that_was_modified_concurrently_stays_as_it_is(copying: MemoryNamespace) -> None:
    def change() -> None:
        copying.server.tables[OLD] = replace(copying.server.tables[OLD], revision="2")

    at_change(copying, "copy_table", "after", change)
    with pytest.raises(errors.ConcurrentModificationError):
        rename(copying)
    assert [(path, record.revision) for path, record in copying.server.tables.items()] == [
        (OLD, "2")
    ]


def test_another_clients_entry_of_the_new_name_is_never_removed(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    foreign = replace(server.tables[OLD], path=NEW)

    def replace_copy() -> None:
        server.tables[NEW] = foreign
        del server.tables[OLD]

    at_change(server, "copy_table", "after", replace_copy)
    with pytest.raises(errors.TableNotFoundError):
        rename(copying)
    assert server.tables == {NEW: foreign}


@pytest.mark.spec("glue.md#rename-by-copy", "glue.md#renametable")
def test_a_copy_that_cannot_be_taken_back_is_reported_with_both_names(
    copying: MemoryNamespace,
) -> None:
    def slow_down() -> None:
        at_change(copying, "drop_table", "before", raiser(slowly))
        raise slowly

    slowly = errors.ThrottlingError("slowly")
    at_change(copying, "drop_table", "before", slow_down)
    with pytest.raises(errors.ThrottlingError, match=r"Renamed.*both names.*deregister"):
        rename(copying)
    assert set(copying.server.tables) == {OLD, NEW}
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        copying.drop_table(api.DropTableRequest(id=TABLE))
