"""What others keep in the catalog neither loses its files to DropTable, nor blocks other work."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import ObjectUnavailableError
from lance_bridge_doctor import Kind, diagnose_namespace

from .building import TABLE, at, count_rows, create
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
]
for_each_reason = pytest.mark.parametrize("error", REASONS, ids=lambda each: type(each).__name__)


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
    namespace: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    place: tuple[str, ...],
    error: Exception,
) -> None:
    create(namespace, TABLE)
    fail_at(monkeypatch, method, place, error)
    with caplog.at_level(logging.WARNING):
        found = namespace.list_all_tables(api.ListTablesRequest()).tables
    assert found == ["$".join(TABLE)]
    assert f"listed without '{'.'.join(place)}': {error}" in caplog.text


@pytest.mark.usefixtures("sick")
@for_each_reason
@pytest.mark.parametrize(("method", "place"), [*WHERE, ("scan_tables", (*SICK, "p", "d"))])
def test_a_drop_names_the_namespace_that_cannot_be_read_and_the_remedy(
    *,
    namespace: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    method: str,
    place: tuple[str, ...],
    error: Exception,
) -> None:
    create(namespace, TABLE)
    fail_at(monkeypatch, method, place, error)
    denied = isinstance(error, errors.PermissionDeniedError)
    expected = errors.PermissionDeniedError if denied else errors.InvalidTableStateError
    message = f"'{'.'.join(place)}'.*cannot be read: {error}.*drop.check-sharing=namespace"
    with pytest.raises(expected, match=message):
        namespace.drop_table(api.DropTableRequest(id=TABLE))
    assert count_rows(namespace, TABLE) == 3
    narrow = MemoryNamespace(
        uri=request.node.nodeid,
        root=str(tmp_path / "lake"),
        **{"drop.check-sharing": "namespace"},
    )
    narrow.drop_table(api.DropTableRequest(id=TABLE))


@pytest.mark.usefixtures("sick")
@pytest.mark.parametrize(
    "error", [errors.ServiceUnavailableError("no answer"), errors.ThrottlingError("slow down")]
)
@pytest.mark.parametrize(("method", "place"), WHERE)
def test_an_outage_is_an_error_of_the_listing(
    namespace: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    place: tuple[str, ...],
    error: Exception,
) -> None:
    create(namespace, TABLE)
    fail_at(monkeypatch, method, place, error)
    for call in (
        lambda: namespace.list_all_tables(api.ListTablesRequest()),
        lambda: namespace.drop_table(api.DropTableRequest(id=TABLE)),
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


# -- entries with several locations ----------------------------------------------------------------


@pytest.mark.spec("common.md#droptable")
@pytest.mark.parametrize("spelling", ["{}", "file:{}/", "{}/data/inside", "{}/.."])
def test_files_that_another_entry_names_beside_its_location_are_kept(
    namespace: MemoryNamespace, server: MemoryServer, spelling: str
) -> None:
    location = create(namespace, TABLE).location or ""
    others = ("s3://elsewhere/t", spelling.format(location))
    server.tables[at("other")] = TableRecord(at("other"), "/no/t", other_locations=others)
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of '.*other'"):
        namespace.drop_table(api.DropTableRequest(id=TABLE))
    server.tables[at("other")] = TableRecord(at("other"), None, other_locations=others)
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
