"""Drops in one catalog of a federation: files that another catalog has an entry for stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from core.memory_catalog import (
    CAPABILITIES,
    DATASET,
    SERVERS,
    TABLE,
    MemoryCatalog,
    MemoryNamespace,
    create,
    raiser,
    rule,
    start_server,
    stream,
)
from lance_namespace import LanceNamespace, errors

from lance_bridge.errors import names_other_entries
from lance_bridge.records import ENTRY_ID
from lance_bridge.testing.calls import Calls
from lance_bridge_federated import FederatedNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("federated.md#drops")]

Connect = Callable[..., MemoryNamespace]
OTHER = [*DATASET, "Copy"]


@pytest.fixture
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Connects to a catalog by its name in the test, with further properties."""
    started = []

    def connect(name: str, levels: int = 3, **more: str) -> MemoryNamespace:
        uri = f"{request.node.nodeid}-{name}"
        if uri not in SERVERS:
            server = start_server(uri)
            server.capabilities = replace(CAPABILITIES, namespace_levels=(rule("level"),) * levels)
            started.append(uri)
        return MemoryNamespace(uri=uri, root=str(tmp_path / name), **more)

    yield connect
    for each in started:
        del SERVERS[each]


def federate(**catalogs: LanceNamespace | Callable[[], LanceNamespace]) -> FederatedNamespace:
    return FederatedNamespace(catalogs)


def location_of(ns: LanceNamespace, table: list[str] = TABLE) -> str:
    found = ns.describe_table(api.DescribeTableRequest(id=table)).location
    assert found is not None
    return found


def register(ns: LanceNamespace, location: str, table: list[str] = OTHER) -> None:
    ns.register_table(api.RegisterTableRequest(id=table, location=location))


def drop(ns: LanceNamespace, *names: str) -> None:
    ns.drop_table(api.DropTableRequest(id=[*names]))


def count(ns: LanceNamespace, table: list[str]) -> int | None:
    return ns.count_table_rows(api.CountTableRowsRequest(id=table)).count


@pytest.fixture
def shared(connect: Connect) -> FederatedNamespace:
    """A federation of ``a`` and ``b``, of which each has an entry for one location."""
    first, second = connect("a"), connect("b")
    create(first, TABLE)
    register(second, location_of(first))
    return federate(a=first, b=second)


def test_a_table_of_which_another_catalog_has_an_entry_is_not_dropped(
    shared: FederatedNamespace,
) -> None:
    with pytest.raises(errors.InvalidTableStateError, match="catalog 'b'") as caught:
        drop(shared, "a", *TABLE)
    assert names_other_entries(caught.value)
    for part in (
        "'a.eu.shop.sales.Orders' is not dropped",
        "eu.shop.sales.Copy",
        "DeregisterTable",
    ):
        assert part in str(caught.value)
    assert count(shared, ["a", *TABLE]) == count(shared, ["b", *OTHER]) == 3
    with pytest.raises(errors.InvalidTableStateError, match="catalog 'a'"):
        drop(shared, "b", *OTHER)
    shared.deregister_table(api.DeregisterTableRequest(id=["a", *TABLE]))
    assert count(shared, ["b", *OTHER]) == 3
    drop(shared, "b", *OTHER)


def test_an_entry_of_the_same_name_is_another_one(connect: Connect) -> None:
    first, second = connect("a"), connect("b")
    create(first, TABLE)
    register(second, location_of(first), TABLE)
    with pytest.raises(errors.InvalidTableStateError, match="catalog 'b'"):
        drop(federate(a=first, b=second), "a", *TABLE)


def test_a_table_that_only_its_catalog_has_is_dropped(connect: Connect) -> None:
    first, second = connect("a"), connect("b")
    create(first, TABLE)
    create(second, TABLE)
    federation = federate(a=first, b=second)
    place = Path(location_of(first).removeprefix("file://"))
    drop(federation, "a", *TABLE)
    assert not place.exists()
    assert count(federation, ["b", *TABLE]) == 3
    with pytest.raises(errors.TableNotFoundError, match=r"a\.eu\.shop\.sales\.Orders"):
        drop(federation, "a", *TABLE)


def test_catalogs_with_other_levels_are_read_too(connect: Connect) -> None:
    first, second = connect("a"), connect("b", levels=1)
    create(first, TABLE)
    second.create_namespace(api.CreateNamespaceRequest(id=["sales"]))
    register(second, location_of(first), ["sales", "orders"])
    federation = federate(a=first, b=second)
    with pytest.raises(errors.InvalidTableStateError, match=r"sales\.orders"):
        drop(federation, "a", *TABLE)
    with pytest.raises(errors.InvalidTableStateError, match="catalog 'a'"):
        drop(federation, "b", "sales", "orders")


@pytest.mark.parametrize("is_own", [True, False])
def test_two_names_of_one_catalog_do_not_prevent_a_drop(connect: Connect, *, is_own: bool) -> None:
    """An entry of another tool has no id: the same path at the same server is the same entry."""
    first = connect("a")
    create(first, TABLE)
    if not is_own:
        record = first.server.tables[tuple(TABLE)]
        properties = {k: v for k, v in record.properties.items() if k != ENTRY_ID}
        first.server.tables[tuple(TABLE)] = record.with_properties(properties)
    drop(federate(a=first, again=connect("a")), "a", *TABLE)
    assert not first.server.tables


@pytest.mark.spec("federated.md#drops", "common.md#dropnamespace")
def test_a_namespace_with_a_shared_table_is_not_dropped_with_its_tables(
    shared: FederatedNamespace,
) -> None:
    create_more = api.CreateTableRequest(id=["a", *DATASET, "More"])
    shared.create_table(create_more, stream(2))
    calls = Calls(shared)
    for inner in (DATASET, DATASET[:1]):
        with pytest.raises(errors.InvalidTableStateError, match="catalog 'b'"):
            calls.call("drop_namespace", ["a", *inner], behavior="Cascade")
    assert count(shared, ["a", *DATASET, "More"]) == 2
    with pytest.raises(errors.NamespaceNotEmptyError):
        calls.call("drop_namespace", ["a", *DATASET])
    shared.deregister_table(api.DeregisterTableRequest(id=["b", *OTHER]))
    calls.call("drop_namespace", ["a", *DATASET], behavior="cascade")
    calls.call("drop_namespace", ["a", *DATASET], behavior="Cascade", mode="Skip")


@pytest.mark.parametrize(
    "error",
    [errors.ServiceUnavailableError("it is down"), errors.PermissionDeniedError("not for you")],
)
def test_nothing_is_deleted_while_a_catalog_does_not_answer(
    shared: FederatedNamespace, monkeypatch: pytest.MonkeyPatch, error: errors.LanceNamespaceError
) -> None:
    listing = MemoryCatalog.list_namespaces

    def list_namespaces(catalog: MemoryCatalog, parent: Any) -> Any:
        if catalog.config.uri.endswith("-b"):
            raise error
        return listing(catalog, parent)

    monkeypatch.setattr(MemoryCatalog, "list_namespaces", list_namespaces)
    shared.deregister_table(api.DeregisterTableRequest(id=["b", *OTHER]))
    with pytest.raises(
        type(error), match="no file is deleted, because of the catalog 'b'"
    ) as found:
        drop(shared, "a", *TABLE)
    assert str(error) in str(found.value)
    assert "DeregisterTable" in str(found.value)
    assert count(shared, ["a", *TABLE]) == 3


def test_nothing_is_deleted_while_a_catalog_cannot_be_connected(connect: Connect) -> None:
    first = connect("a")
    create(first, TABLE)
    refused = raiser(errors.UnauthenticatedError("no token"))
    with pytest.raises(errors.UnauthenticatedError, match="catalog 'b'"):
        drop(federate(a=first, b=refused), "a", *TABLE)
    assert count(first, TABLE) == 3


def test_a_catalog_reads_as_much_as_its_own_property_says(connect: Connect) -> None:
    first, second = connect("a"), connect("b", **{"drop.check-sharing": "namespace"})
    create(first, TABLE)
    far = ["eu", "shop", "archive"]
    second.create_namespace(api.CreateNamespaceRequest(id=far))
    register(second, location_of(first), [*far, "Copy"])
    federation = federate(a=first, b=second)
    register(second, location_of(first), OTHER)
    with pytest.raises(errors.InvalidTableStateError, match=r"eu\.shop\.sales\.Copy"):
        drop(federation, "a", *TABLE)
    second.deregister_table(api.DeregisterTableRequest(id=OTHER))
    drop(federation, "a", *TABLE)


def test_a_table_of_pylance_s_own_namespace_is_kept_for_an_entry(
    connect: Connect, directory: LanceNamespace
) -> None:
    directory.create_table(api.CreateTableRequest(id=["orders"]), stream(2))
    second = connect("b")
    federation = federate(files=directory, b=second)
    register(second, location_of(directory, ["orders"]))
    with pytest.raises(errors.InvalidTableStateError, match="catalog 'b'"):
        drop(federation, "files", "orders")
    second.deregister_table(api.DeregisterTableRequest(id=OTHER))
    drop(federation, "files", "orders")


def test_a_federation_within_one_is_read_too(connect: Connect) -> None:
    first, second = connect("a"), connect("b")
    create(first, TABLE)
    register(second, location_of(first))
    outer = federate(a=first, inner=federate(b=second))
    with pytest.raises(errors.InvalidTableStateError, match="catalog 'inner'"):
        drop(outer, "a", *TABLE)
    with pytest.raises(errors.InvalidTableStateError, match="catalog 'a'"):
        drop(outer, "inner", "b", *OTHER)
