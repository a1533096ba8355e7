"""LanceBridgeNamespace over a catalog that declares other things than Hive does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import TableRecord

from .building import DATASET, TABLE, at, count_rows, create
from .memory_catalog import CAPABILITIES, MemoryCatalog, MemoryNamespace, MemoryServer, Moment


def test_every_level_of_namespaces_is_listed(namespace: MemoryNamespace) -> None:
    def children(path: list[str]) -> list[str]:
        return list(namespace.list_namespaces(api.ListNamespacesRequest(id=path)).namespaces)

    assert children([]) == ["eu"]
    assert children(["eu"]) == ["shop"]
    assert children(["eu", "shop"]) == ["sales"]
    assert children(DATASET) == []


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


def test_what_the_catalog_cannot_do_is_refused_with_its_reason(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    create(namespace, TABLE)
    before = dict(server.tables)
    rename = api.RenameTableRequest(id=TABLE, new_table_name="Other")
    with pytest.raises(errors.UnsupportedOperationError, match="no call for that"):
        namespace.rename_table(rename)
    again = api.RegisterTableRequest(id=TABLE, location=str(tmp_path / "new"), mode="Overwrite")
    with pytest.raises(errors.UnsupportedOperationError, match="entries never change"):
        namespace.register_table(again)
    assert server.tables == before


@pytest.mark.parametrize("mode", ["Create", "ExistOk", "Overwrite"])
def test_properties_that_cannot_be_kept_are_refused_before_data_is_written(
    namespace: MemoryNamespace, mode: str
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties={"owner": "ann"}))
    with pytest.raises(errors.UnsupportedOperationError):
        create(namespace, TABLE, mode=mode, properties={"owner": "bob"})
    with pytest.raises(errors.InvalidTableStateError):
        count_rows(namespace, TABLE)


def test_an_overwrite_that_cannot_keep_properties_is_refused_before_data_is_written(
    namespace: MemoryNamespace,
) -> None:
    create(namespace, TABLE, properties={"owner": "ann"})
    with pytest.raises(errors.UnsupportedOperationError):
        create(namespace, TABLE, 5, mode="Overwrite", properties={"owner": "bob"})
    assert count_rows(namespace, TABLE) == 3


def test_properties_are_replaced_where_entries_can_change(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    server.capabilities = replace(CAPABILITIES, no_alter="")
    create(namespace, TABLE, properties={"owner": "ann"})
    create(namespace, TABLE, 5, mode="Overwrite", properties={"owner": "bob"})
    answer = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert answer.properties == {"owner": "bob"}
    assert count_rows(namespace, TABLE) == 5


def test_cascade_over_levels_drops_tables_and_their_files_only(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    create(namespace, TABLE)
    create(namespace, [*DATASET, "other"])
    kept = tmp_path / "lake/eu/shop/sales.db/mine.txt"
    kept.write_text("mine")
    namespace.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))
    assert not server.namespaces
    assert not server.tables
    assert [p for p in (tmp_path / "lake").rglob("*") if p.is_file()] == [kept]


def test_cascade_changes_nothing_where_a_foreign_table_is_inside(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    server.tables[at("view")] = TableRecord(at("view"), entry_type="VIEW")
    server.effects.clear()
    with pytest.raises(errors.NamespaceNotEmptyError, match="view"):
        namespace.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))
    assert not server.effects
    assert count_rows(namespace, TABLE) == 3


def drop_before(server: MemoryServer, *paths: tuple[str, ...]) -> None:
    """Drop namespaces, as another client, at the first moment when one would be dropped here."""

    def rival(change: str, moment: Moment) -> None:
        if (change, moment) == ("drop_namespace", "before"):
            for path in paths:
                server.namespaces.pop(path, None)

    server.fault = rival


@pytest.mark.parametrize("behavior", ["Restrict", "Cascade"])
def test_skip_succeeds_where_another_client_drops_the_namespace_first(
    namespace: MemoryNamespace, server: MemoryServer, behavior: str
) -> None:
    namespace.create_namespace(api.CreateNamespaceRequest(id=["empty"]))
    drop_before(server, ("empty",))
    request = api.DropNamespaceRequest(id=["empty"], behavior=behavior)
    with pytest.raises(errors.NamespaceNotFoundError):
        namespace.drop_namespace(request)
    server.fault = None
    namespace.create_namespace(api.CreateNamespaceRequest(id=["empty"]))
    drop_before(server, ("empty",))
    answer = namespace.drop_namespace(request.model_copy(update={"mode": "Skip"}))
    assert not answer.properties


def test_skip_fails_where_only_a_namespace_inside_is_dropped_first(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    drop_before(server, tuple(DATASET))
    with pytest.raises(errors.NamespaceNotFoundError):
        namespace.drop_namespace(
            api.DropNamespaceRequest(id=["eu"], behavior="Cascade", mode="Skip")
        )
    assert ("eu",) in server.namespaces


def test_an_interrupted_cascade_names_what_is_gone_and_what_is_left(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    for name in ("a", "b", "c", "d"):
        create(namespace, [*DATASET, name])

    def refuse_the_third(change: str, moment: Moment) -> None:
        if moment == "before" and change == "drop_table" and server.effects.count(change) == 2:
            raise errors.PermissionDeniedError("not yours")

    server.effects.clear()
    server.fault = refuse_the_third
    with pytest.raises(errors.PermissionDeniedError) as caught:
        namespace.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))
    prefix = "eu.shop.sales"
    assert str(caught.value).startswith(
        f"Namespace 'eu' is dropped in part. Dropped with their data: {prefix}.a, {prefix}.b. "
        f"Failed at: {prefix}.c. Not dropped: {prefix}.d. not yours"
    )
    server.fault = None
    assert [count_rows(namespace, [*DATASET, name]) for name in ("c", "d")] == [3, 3]


def test_a_cascade_whose_namespace_cannot_be_dropped_names_the_tables_that_are_gone(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)

    def refuse(change: str, moment: Moment) -> None:
        if (change, moment) == ("drop_namespace", "before"):
            raise errors.PermissionDeniedError("not yours")

    server.fault = refuse
    with pytest.raises(errors.PermissionDeniedError, match=f"data: {'.'.join(TABLE)}. No table"):
        namespace.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))


def test_a_cascade_that_fails_at_its_first_table_says_what_that_says(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)

    def refuse(change: str, moment: Moment) -> None:
        if (change, moment) == ("drop_table", "before"):
            raise errors.PermissionDeniedError("not yours")

    server.fault = refuse
    with pytest.raises(errors.PermissionDeniedError, match=r"^not yours$"):
        namespace.drop_namespace(api.DropNamespaceRequest(id=["eu"], behavior="Cascade"))


def test_cascade_looks_for_shared_places_in_each_of_its_namespaces(
    server: MemoryServer, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    namespace = MemoryNamespace(
        **{"uri": request.node.nodeid, "root": str(tmp_path), "drop.check-sharing": "namespace"}
    )
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
