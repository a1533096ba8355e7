"""What others keep in the catalog neither loses its files to DropTable, nor blocks other work."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import ObjectUnavailableError
from lance_bridge.testing.calls import Calls
from lance_bridge_doctor import Kind, diagnose_namespace

from .building import DATASET, TABLE, at, count_rows, create, stream
from .managing import another
from .memory_catalog import MemoryCatalog, MemoryNamespace, MemoryServer
from .vending import LOCATION, described, put

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
