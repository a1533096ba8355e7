"""Configured vendors of credentials: which is asked, for how long, and where they may reach."""

from __future__ import annotations

import copy
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors
from servers.object_stores import MotoServer

from lance_bridge.catalog import TableRecord
from lance_bridge.credentials import EXPIRES_AT, REFRESH_OFFSET, Caller, CredentialCache, acting_for
from lance_bridge.credentials.scope import StoragePrefix, parse_root, storage_prefix
from lance_bridge.locations import default_below

from .memory_catalog import (
    ASKED,
    BEFORE,
    BUCKET,
    LOCATION,
    OWN,
    TABLE,
    VENDOR,
    MemoryCatalog,
    MemoryConfig,
    MemoryNamespace,
    MemoryServer,
    at,
    connect,
    described,
    put,
    raiser,
    vendor_properties,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#rights-and-lifetime")]

VendingWith = Callable[..., MemoryNamespace]

# -- who is asked ----------------------------------------------------------------------------------


@pytest.mark.spec("common.md#storage-credentials")
def test_a_table_gets_its_vendors_credentials_in_place_of_the_catalogs_own(
    vending: MemoryNamespace, log: str
) -> None:
    options = described(vending)
    assert options["aws_access_key_id"] == "1-None-read"
    assert "own-secret" not in options.values()
    to_lance = vending.tables.load_by_id(TABLE).storage_options(write=True) or {}
    assert to_lance["aws_access_key_id"] == "2-None-write"
    assert "own-secret" not in to_lance.values()
    reads, writes = ASKED[log]
    assert (reads.store, reads.bucket, reads.prefix) == ("s3", "lake", "tables/t.lance")
    assert (reads.write, writes.write) == (False, True)


def test_the_property_decides_whether_describe_answers_writers(vending_with: VendingWith) -> None:
    writer = vending_with(**{"credentials.write": "true"})
    assert described(writer)["aws_access_key_id"] == "1-None-write"


@pytest.mark.parametrize(
    "error", [errors.PermissionDeniedError, errors.ServiceUnavailableError, errors.ThrottlingError]
)
def test_a_vendor_that_fails_leaves_the_table_describable_without(
    vending: MemoryNamespace, log: str, error: type[Exception]
) -> None:
    BEFORE[log] = raiser(error("said so"))
    with pytest.raises(error, match="said so"):
        described(vending)
    assert described(vending, vend_credentials=False) == {}


@pytest.mark.parametrize("more", [{"check_declared": True}, {"load_detailed_metadata": True}])
def test_no_request_that_declines_needs_the_vendor(
    server: MemoryServer,
    vending_with: VendingWith,
    log: str,
    moto: MotoServer,
    more: dict[str, Any],
) -> None:
    BEFORE[log] = raiser(errors.PermissionDeniedError("said so"))
    location = f"s3://{BUCKET}/{next(iter(more))}/t.lance"
    own = {f"storage.{key}": value for key, value in moto.storage_options.items()}
    roots = {"credentials.allowed_roots": f"s3://{BUCKET}"}
    namespace = vending_with(**roots, **own)
    put(server, TABLE[-1], location)
    asked = api.DescribeTableRequest(id=TABLE, vend_credentials=False, **more)
    assert namespace.describe_table(asked).is_only_declared
    lance.write_dataset(pa.table({"a": [1]}), location, storage_options=moto.storage_options)
    assert namespace.describe_table(asked).is_only_declared is False
    with pytest.raises(errors.TableVersionNotFoundError):
        namespace.describe_table(asked.model_copy(update={"version": 9}))
    assert not ASKED[log]


def test_whether_a_table_exists_takes_no_credentials(vending: MemoryNamespace, log: str) -> None:
    BEFORE[log] = raiser(errors.PermissionDeniedError("said so"))
    vending.table_exists(api.TableExistsRequest(id=TABLE))
    with pytest.raises(errors.PermissionDeniedError, match="said so"):
        vending.table_exists(api.TableExistsRequest(id=TABLE, version=1))


@pytest.mark.spec("common.md#storage-credentials")
def test_none_hands_out_none_and_asks_nobody(
    server: MemoryServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryCatalog, "vend_credentials", None)
    put(server, TABLE[-1], LOCATION)
    namespace = connect(request, **OWN, **{"credentials.vendor": "none", "storage.region": "eu"})
    assert described(namespace) == {"region": "eu"}


@pytest.mark.spec("common.md#vending-rules")
def test_static_hands_out_the_catalogs_own(
    server: MemoryServer, request: pytest.FixtureRequest
) -> None:
    put(server, TABLE[-1], LOCATION)
    roots = {"credentials.allowed_roots": "s3://lake/tables"}
    namespace = connect(request, **OWN, **roots, **{"credentials.vendor": "static"})
    assert described(namespace)["aws_secret_access_key"] == "own-secret"


@pytest.mark.spec("common.md#storage-credentials")
def test_the_longest_prefix_counts(
    server: MemoryServer, request: pytest.FixtureRequest, log: str
) -> None:
    properties = vendor_properties(log)
    for name, prefix in (("raw", "s3://lake/tables/raw"), ("deep", "s3a://lake/tables/raw/deep")):
        properties[f"credentials.{name}.vendor"] = "none" if name == "raw" else VENDOR
        properties[f"credentials.{name}.prefix"] = prefix
    properties["credentials.deep.log"] = log
    properties["credentials.deep.duration_seconds"] = "60"
    put(server, "a", "s3://lake/tables/a")
    put(server, "b", "s3://lake/tables/raw/b")
    put(server, "c", "s3://lake/tables/raw/deep/c")
    put(server, "d", "s3://lake/tables/raw2/d")
    namespace = connect(request, **properties)
    found = {name: described(namespace, name) for name in "abcd"}
    assert [name for name in "abcd" if found[name]] == ["a", "c", "d"]
    lives = {name: int(found[name][EXPIRES_AT]) / 1000 - time.time() for name in "acd"}
    assert lives["c"] < 61 < lives["a"] < lives["d"] + 1


@pytest.mark.spec("common.md#storage-credentials")
def test_where_no_prefix_fits_the_catalog_is_asked(
    server: MemoryServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    def own(_: Any, record: TableRecord, *, write: bool) -> dict[str, str]:  # noqa: ARG001
        return {"aws_access_key_id": "of the catalog"}

    monkeypatch.setattr(MemoryCatalog, "vend_credentials", own)
    given = {"vendor": VENDOR, "prefix": "s3://lake/raw", "log": log}
    namespace = connect(request, **{f"credentials.raw.{key}": given[key] for key in given})
    put(server, "a", "s3://lake/rawer/a")
    put(server, "b", "s3://lake/raw/b")
    assert described(namespace, "a") == {"aws_access_key_id": "of the catalog"}
    assert described(namespace, "b")["aws_access_key_id"] == "1-None-read"


def test_a_store_that_the_vendor_is_not_for_is_refused(
    server: MemoryServer, vending_with: VendingWith
) -> None:
    put(server, TABLE[-1], "gs://lake/tables/t")
    namespace = vending_with(**{"credentials.allowed_roots": "gs://lake"})
    with pytest.raises(errors.InvalidInputError, match="is on gs://, for which no vendor"):
        described(namespace)


# -- properties ------------------------------------------------------------------------------------


def test_a_vendors_options_may_come_from_the_environment(
    server: MemoryServer,
    request: pytest.FixtureRequest,
    log: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(server, TABLE[-1], LOCATION)
    for key, value in vendor_properties(log, **{"credentials.duration_seconds": "120"}).items():
        variable = key.replace(".", "_").upper()
        monkeypatch.setenv(f"LANCE_BRIDGE_MEMORY_{variable}", value)
    options = described(connect(request))
    assert options["aws_access_key_id"] == "1-None-read"
    assert 60_000 < float(options[EXPIRES_AT]) - time.time() * 1000 < 120_000
    assert not caplog.records


def test_a_variable_of_an_option_without_a_vendor_is_an_error_that_names_the_property(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_CREDENTIALS_ROLE_ARN", "arn:aws:iam::1:role/x")
    with pytest.raises(errors.InvalidInputError, match=r"no property 'credentials\.role_arn'"):
        connect(request)


@pytest.mark.spec("common.md#storage-credentials")
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"credentials.vendor": "aw"}, "There is no vendor 'aw'; known vendors: .*aws"),
        ({"credentials.vendor": "os.path.join"}, "is not a vendor"),
        ({"credentials.vendor": "os.path.no_such"}, "There is no vendor 'os.path.no_such'"),
        ({"credentials.vendor": ".vendors.Own"}, "There is no vendor '.vendors.Own'"),
        ({"credentials.vendor": "..Own"}, "There is no vendor '..Own'"),
        ({"credentials.allowed_roots": ""}, "credentials.allowed_roots"),
        ({"credentials.allowed_roots": "lake/tables"}, "Property 'credentials.allowed_roots'"),
        ({"credentials.allowed_roots": "file:///x"}, "Property 'credentials.allowed_roots'"),
        ({"credentials.log": None}, "property 'credentials.log' is required"),
        ({"credentials.duration_seconds": "0"}, "property 'credentials.duration_seconds'"),
        ({"credentials.duration": "9"}, "no property 'credentials.duration': did you mean 'dur"),
        ({"credentials.x.vendor": "none"}, "'credentials.x.prefix' is required"),
        ({"credentials.x.prefix": "s3://a/b"}, "'credentials.x.vendor' is required"),
        ({"credentials.vendor": None}, "has no property 'credentials.log'"),
        ({"credentials.vendor": "none"}, "'credentials.log' has no effect"),
    ],
)
def test_wrong_properties_are_named_when_connecting(
    request: pytest.FixtureRequest, properties: dict[str, str | None], message: str
) -> None:
    given = {**vendor_properties("log"), **properties}
    with pytest.raises(errors.InvalidInputError, match=message):
        connect(request, **{key: value for key, value in given.items() if value is not None})


def test_without_allowed_roots_the_root_is_required(request: pytest.FixtureRequest) -> None:
    given = {k: v for k, v in vendor_properties("log").items() if "roots" not in k}
    with pytest.raises(errors.InvalidInputError, match=r"'credentials.allowed_roots' is required"):
        connect(request, **given)
    connect(request, **given, root="s3://lake/tables")


def test_options_of_unknown_vendors_are_secrets_and_others_are_pickled(
    vending: MemoryNamespace,
) -> None:
    assert MemoryConfig.is_secret("credentials.log")
    assert MemoryConfig.is_secret("credentials.raw.password")
    assert not MemoryConfig.is_secret("credentials.raw.role_arn")
    assert not MemoryConfig.is_secret("credentials.allowed_roots")
    with pytest.raises(errors.InvalidInputError, match=r"pickled without.*credentials\.log"):
        pickle.loads(pickle.dumps(vending))


@pytest.mark.spec("clients.md#several-principals-in-one-process")
def test_namespaces_of_other_vendors_have_other_ids(
    vending: MemoryNamespace, vending_with: VendingWith, log: str
) -> None:
    def same(**more: str) -> bool:
        return vending_with(**{**OWN, **more}).namespace_id() == vending.namespace_id()

    assert same()
    assert not same(**{"credentials.duration_seconds": "60"})
    assert not same(**{"credentials.write": "true"})
    assert not same(**{"storage.aws_secret_access_key": "another"})
    assert not same(**{"storage.aws_session_token": "another"})
    assert same(**{"storage.timeout": "9s"})
    assert OWN["storage.aws_secret_access_key"] not in vending.namespace_id()
    assert log not in vending.namespace_id().replace(f"uri={log}", "")


# -- how long --------------------------------------------------------------------------------------


def test_they_say_when_to_renew_them(vending: MemoryNamespace) -> None:
    options = described(vending)
    assert options[REFRESH_OFFSET] == "300000"
    assert 3590 < int(options[EXPIRES_AT]) / 1000 - time.time() <= 3600


@pytest.mark.parametrize(
    ("clock", "seconds", "offset"), [(0, 8, {"1999", "2000"}), (600, 60, {"15000"})]
)
def test_short_lives_are_renewed_before_their_last_quarter(
    vending_with: VendingWith, clock: int, seconds: int, offset: set[str]
) -> None:
    """By a clock that is behind, too, clients renew none before there are newer ones."""
    short = {"credentials.duration_seconds": str(seconds), "credentials.clock": str(clock)}
    options = described(vending_with(**short))
    assert options[REFRESH_OFFSET] in offset


class Clocks:
    """The clocks of this machine, which a test moves on, or sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._wall, self._monotonic = time.time, time.monotonic
        self.passed = self.set_by = 0.0
        monkeypatch.setattr(time, "time", lambda: self._wall() + self.passed + self.set_by)
        monkeypatch.setattr(time, "monotonic", lambda: self._monotonic() + self.passed)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.mark.parametrize(
    ("ahead", "set_by", "kept"),
    [(0, 0, 1800), (600, 0, 1800), (3700, 0, 1800), (-600, 0, 1500), (-1800, 0, 900),
     (0, -3600, 1800)],
)  # fmt: skip
def test_a_clock_that_is_off_keeps_none_for_more_than_half_of_their_life(
    vending_with: VendingWith, log: str, clocks: Clocks, *, ahead: int, set_by: int, kept: int
) -> None:
    """The vendor's clock is ahead of this machine's or behind it, or this machine's is set back."""
    namespace = vending_with(**{"credentials.clock": str(ahead)})
    described(namespace)
    clocks.set_by = set_by
    clocks.passed = kept - 5
    described(namespace)
    assert len(ASKED[log]) == 1
    clocks.passed = kept + 5
    described(namespace)
    assert len(ASKED[log]) == 2


def test_a_clock_that_is_behind_is_an_error_and_no_key(vending_with: VendingWith) -> None:
    namespace = vending_with(**{"credentials.clock": "-3601"})
    with pytest.raises(errors.ServiceUnavailableError, match="clock"):
        described(namespace)


def test_64_threads_make_one_request_for_each_right(vending: MemoryNamespace, log: str) -> None:
    gate = threading.Barrier(64)

    def ask(number: int) -> str:
        gate.wait(10)
        if number % 2:
            return described(vending)["aws_access_key_id"]
        options = vending.tables.load_by_id(TABLE).storage_options(write=True) or {}
        return options["aws_access_key_id"]

    BEFORE[log] = lambda: time.sleep(0.05)  # for the others to arrive meanwhile
    with ThreadPoolExecutor(64) as threads:
        keys = set(threads.map(ask, range(64)))
    assert len(keys) == len(ASKED[log]) == 2


def test_a_failure_reaches_all_that_waited_for_it(vending: MemoryNamespace, log: str) -> None:
    gate, started = threading.Event(), threading.Event()

    def fail() -> None:
        started.set()
        gate.wait(10)
        raise errors.ThrottlingError("slowly")

    BEFORE[log] = fail
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(described, vending) for _ in range(8)]
        assert started.wait(10)
        gate.set()
        assert all(isinstance(each.exception(10), errors.ThrottlingError) for each in answers)


def errors_of_two(
    cache: CredentialCache, end: Callable[[], dict[str, str]]
) -> tuple[BaseException | None, BaseException | None]:
    """Return the errors of a request to a vendor, and of what waits for it."""
    started, gate = threading.Event(), threading.Event()

    def vend() -> dict[str, str]:
        started.set()
        gate.wait(10)
        return end()

    with ThreadPoolExecutor(2) as threads:
        asking = threads.submit(cache.get, "table", vend, most_seconds=60)
        assert started.wait(10)
        request = cache._requests["table"]
        gate.set()
        return asking.exception(10), request.exception(10)


def test_an_interrupt_is_raised_in_its_own_thread_only() -> None:
    own, found = errors_of_two(CredentialCache(), raiser(KeyboardInterrupt()))
    assert isinstance(own, KeyboardInterrupt)
    assert isinstance(found, errors.ServiceUnavailableError)
    assert "interrupted" in str(found)


def test_options_whose_expiry_is_no_number_reach_all_that_waited_for_them() -> None:
    cache = CredentialCache()
    own, found = errors_of_two(cache, lambda: {EXPIRES_AT: "tomorrow"})
    assert isinstance(own, ValueError)
    assert isinstance(found, ValueError)
    good = {EXPIRES_AT: str(int((time.time() + 60) * 1000))}
    assert cache.get("table", lambda: good, most_seconds=60) == good


def test_options_without_a_life_are_not_kept() -> None:
    cache = CredentialCache()
    cache.get("table", lambda: {"aws_access_key_id": "x"}, most_seconds=60)
    cache.get("other", lambda: {EXPIRES_AT: "1"}, most_seconds=60)
    assert not cache._entries


def test_the_writers_of_a_governed_table_are_told_apart_from_this_process(
    server: MemoryServer, vending_with: VendingWith, log: str
) -> None:
    put(server, TABLE[-1], LOCATION, properties={"managed_by": "impl"})
    namespace = vending_with(**{"credentials.write": "true"})
    described(namespace)
    namespace.tables.load_by_id(TABLE).storage_options(write=True)
    namespace.tables.load_by_id(TABLE).storage_options()
    assert [(each.write, each.governed) for each in ASKED[log]] == [
        (True, True),
        (True, False),
        (False, False),
    ]


@pytest.mark.spec("common.md#vending-rules")
def test_no_secret_is_in_a_repr_or_a_log(
    vending: MemoryNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    options = described(vending)
    vended = vending.connection.credentials.of(vending.tables.load_by_id(TABLE).record, write=False)
    assert options["aws_secret_access_key"] == vended["aws_secret_access_key"] == "hidden"
    assert "hidden" not in repr(vended) + repr(vending.connection) + caplog.text
    assert "hidden" not in repr(copy.copy(vending)) + json.dumps(str(vended))


# -- where they may reach --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/private/t", "s3://lake/tables", "s3://lake/tables2/t", "s3://lakes/tables/t",
        "s3://lake/table", "s3://lake/tables%2F..%2Fprivate/t", "s3://lake/tables/../private/t",
        "s3://lake/tables/%2e%2e/t", "gs://lake/tables/t", "s3://lake/Tables/t",
        "s3://lake/tables/caf%E9/t", "s3://arn:aws:s3:eu-1:1:accesspoint/ap/tables/t",
        "s3://lake-s3alias/tables/t",
    ]
)  # fmt: skip
def test_a_location_outside_the_allowed_roots_gets_none(
    vending: MemoryNamespace, log: str, location: str
) -> None:
    put(vending, "x", location)
    with pytest.raises((errors.PermissionDeniedError, errors.InvalidInputError)):
        described(vending, "x")
    assert ASKED[log] == []


@pytest.mark.spec("common.md#vending-rules")
def test_a_location_that_was_changed_in_the_entry_is_checked_again(
    vending: MemoryNamespace,
) -> None:
    described(vending)
    put(vending, TABLE[-1], "s3://lake/private/t")
    with pytest.raises(errors.PermissionDeniedError, match="inside no root"):
        described(vending)


@pytest.mark.parametrize(
    ("location", "prefix"),
    [
        ("s3a://lake/tables/t/", "tables/t"),
        ("s3://lake/tables/./t", "tables/t"),
        ("s3://lake/tables/a%20b", "tables/a b"),
        ("s3://lake/tables/a%2525b", "tables/a%25b"),
        ("s3://lake/tables%2Ft", "tables/t"),
        ("s3://lake/tables/${aws:username}*?".replace("?", "%3F"), "tables/${aws:username}*?"),
        ("s3://lake/tables/ü😀", "tables/ü😀"),
    ],
)
def test_a_prefix_is_what_lance_makes_of_the_location(
    vending: MemoryNamespace, log: str, location: str, prefix: str
) -> None:
    put(vending, TABLE[-1], location)
    described(vending)
    assert ASKED[log][0].prefix == prefix


@pytest.mark.spec("common.md#vending-rules")
def test_an_account_of_azure_is_part_of_the_root() -> None:
    root = parse_root("abfss://lake@one.dfs.core.windows.net/tables")
    assert root == StoragePrefix("az", "lake", ("tables",), "one")
    assert root.contains(storage_prefix("abfss://lake@one.dfs.core.windows.net/tables/t"))
    assert not root.contains(storage_prefix("abfss://lake@two.dfs.core.windows.net/tables/t"))
    assert not root.contains(storage_prefix("az://lake/tables/t"))


# -- other entries ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [LOCATION, "s3://lake/tables/t.lance/data", "s3a://lake/tables/", "s3n://lake/tables/t.lance/"],
)
@pytest.mark.parametrize("table_type", ["lance", "iceberg"])
def test_a_table_that_shares_its_location_gets_none(
    vending: MemoryNamespace, log: str, other: str, table_type: str
) -> None:
    put(vending, "other", other, properties={"table_type": table_type})
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of .*other"):
        described(vending)
    assert ASKED[log] == []


@pytest.mark.parametrize("other", ["s3://lake/tables/t.lance2", "s3://lake/tables/t", "s3://x/y"])
def test_a_neighbour_is_no_reason_to_refuse(vending: MemoryNamespace, other: str) -> None:
    put(vending, "other", other)
    assert described(vending)


def test_an_entry_that_cannot_be_read_may_be_anywhere(vending: MemoryNamespace) -> None:
    vending.server.tables[at("odd")] = TableRecord.unreadable(at("odd"))
    with pytest.raises(errors.InvalidTableStateError, match=r"odd' cannot be read.*check-sharing"):
        described(vending)


@pytest.mark.spec("common.md#vending-rules")
def test_hidden_entries_count(vending: MemoryNamespace) -> None:
    vending.server.hidden.append(TableRecord(("elsewhere", "h"), LOCATION))
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of 'elsewhere\.h'"):
        described(vending)


def test_only_the_tables_own_namespace_is_read_where_the_property_says_so(
    server: MemoryServer, vending_with: VendingWith
) -> None:
    server.hidden.append(TableRecord(("elsewhere", "h"), LOCATION))
    narrow = {"credentials.check-sharing": "namespace"}
    assert described(vending_with(**narrow))
    put(server, "b", f"{LOCATION}2")
    put(server, "c", f"{LOCATION}2/x")
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        described(vending_with(**narrow), "b")


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The namespaces whose entries were read, in order."""
    found: list[object] = []
    scan = MemoryCatalog.scan_tables

    def counted(self: MemoryCatalog, namespace: Any, **more: Any) -> Any:
        found.append(namespace)
        return scan(self, namespace, **more)

    monkeypatch.setattr(MemoryCatalog, "scan_tables", counted)
    return found


def test_entries_are_read_once_for_many_tables(
    vending: MemoryNamespace, scans: list[object]
) -> None:
    for number in range(20):
        put(vending, f"t{number}", f"s3://lake/tables/n{number}")
        assert described(vending, f"t{number}")
    assert len(scans) == 1


def test_an_entry_that_has_gone_or_moved_since_is_no_reason_to_refuse(
    vending: MemoryNamespace,
) -> None:
    put(vending, "old", "s3://lake/tables/n")
    put(vending, "older", "s3://lake/tables/n/x")
    assert described(vending)
    del vending.server.tables[at("old")]
    put(vending, "older", "s3://lake/tables/m")
    put(vending, "new", "s3://lake/tables/n")
    assert described(vending, "new")


@pytest.fixture
def principal() -> Iterator[None]:
    """Whom a server answers, and who may read and write the tables that it asks for."""
    with acting_for(Caller("anna", lambda _: True)):
        yield


@pytest.mark.spec("common.md#vending-rules")
@pytest.mark.usefixtures("principal")
def test_a_location_that_was_chosen_since_is_compared_with_new_entries(
    vending: MemoryNamespace, log: str
) -> None:
    described(vending)
    put(vending, "new", "s3://lake/tables/new.lance")
    put(vending, "inside", "s3://lake/tables/new.lance/data")
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of .*new"):
        described(vending, "inside")
    put(vending, TABLE[-1], "s3://lake/tables/old.lance")
    put(vending, "around", "s3://lake/tables/old.lance")
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        described(vending, TABLE[-1])
    assert len(ASKED[log]) == 1


@pytest.mark.usefixtures("principal")
def test_entries_are_read_again_for_none_that_is_known_or_at_its_default_location(
    server: MemoryServer, scans: list[object], vending_with: VendingWith
) -> None:
    namespace = vending_with(root="s3://lake/tables")
    known, default, chosen = TABLE[-1], "default", "chosen"
    put(server, known, "s3://lake/tables/known.lance")
    assert described(namespace, known, vend_credentials=True)
    put(server, default, default_below("s3://lake/tables", at(default)))
    assert described(namespace, default)
    assert described(namespace, known)
    assert len(scans) == 1
    put(server, chosen, "s3://lake/tables/chosen.lance")
    assert described(namespace, chosen)
    assert len(scans) == 2


# -- partitions of other entries -------------------------------------------------------------------


@pytest.fixture
def partitioned(vending: MemoryNamespace) -> MemoryServer:
    """The server, with an entry that has partitions inside and outside of its own location."""
    put(vending, "days", "s3://lake/tables/days", is_partitioned=True)
    places = ["s3a://lake/tables/days/d=1", "s3a://lake/tables/far/d=2"]
    vending.server.partitions[at("days")] = places
    return vending.server


@pytest.mark.spec("common.md#vending-rules")
@pytest.mark.usefixtures("principal", "partitioned")
@pytest.mark.parametrize("place", ["far/d=2", "far/d=2/x.lance", "far"])
def test_a_chosen_location_that_overlaps_a_partition_gets_none(
    vending: MemoryNamespace, log: str, place: str
) -> None:
    put(vending, "chosen", f"s3://lake/tables/{place}")
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps .* partition of .*days"):
        described(vending, "chosen")
    assert ASKED[log] == []
    del vending.server.tables[at("chosen")]
    put(vending, "beside", "s3://lake/tables/far/d=22")
    assert described(vending, "beside")


@pytest.mark.usefixtures("principal")
@pytest.mark.parametrize("error", [errors.PermissionDeniedError, errors.InternalError])
def test_partitions_that_cannot_be_read_may_be_anywhere(
    vending: MemoryNamespace,
    partitioned: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    error: type[errors.LanceNamespaceError],
) -> None:
    def refuse(*_: object) -> list[str]:
        raise error("not today")

    assert partitioned.partitions
    monkeypatch.setattr(MemoryCatalog, "partition_locations", refuse)
    denied = error is errors.PermissionDeniedError
    expected = error if denied else errors.InvalidTableStateError
    with pytest.raises(expected, match=r"'.*days' may .*not today.*check-sharing=entries"):
        described(vending)


@pytest.mark.usefixtures("principal")
def test_partitions_are_not_read_where_the_property_says_so(
    server: MemoryServer, vending_with: VendingWith
) -> None:
    namespace = vending_with(**{"credentials.check-sharing": "entries"})
    put(server, "days", "s3://lake/tables/days", is_partitioned=True)
    server.partitions[at("days")] = ["s3://lake/tables/far"]
    put(server, "chosen", "s3://lake/tables/far")
    assert described(namespace, "chosen")


@pytest.mark.usefixtures("partitioned")
def test_partitions_are_read_once_and_only_for_a_location_that_somebody_chose(
    vending: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    partitions = MemoryCatalog.partition_locations

    def counted(self: MemoryCatalog, record: TableRecord) -> Iterable[str]:
        read.append(record.path)
        return partitions(self, record)

    monkeypatch.setattr(MemoryCatalog, "partition_locations", counted)
    put(vending, "a", "s3://lake/tables/a")
    assert described(vending, "a")
    assert read == []
    with acting_for(Caller("anna", lambda _: True)):
        assert described(vending)
        assert described(vending, "a", vend_credentials=True)
    assert read == [at("days")]
