"""Storage under tables on S3: the same answers, and no trouble that reads as "not there"."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors
from servers.object_stores import SECRET_KEY, MotoServer
from servers.processes import free_port
from servers.replies import unanswered

from lance_bridge.storage.lance_format import RESERVED_FILE
from lance_bridge.storage.store import TableStorage
from lance_bridge.testing.calls import Calls

from .memory_catalog import (
    BUCKET,
    CAPABILITIES,
    DATASET,
    TABLE,
    MemoryNamespace,
    MemoryServer,
    Moment,
    at,
    count_rows,
    create,
    stream,
)

pytestmark = pytest.mark.servers

BOUND = 60.0
"""Seconds in which an answer must come, whatever the trouble: two of the store's own limits."""


@pytest.fixture
def storage(moto: MotoServer) -> TableStorage:
    return TableStorage(moto.storage_options)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A prefix of the test's own."""
    return f"s3://{BUCKET}/{request.node.name}"


def write_table(moto: MotoServer, place: str) -> None:
    lance.write_dataset(pa.table({"a": [1, 2]}), place, storage_options=moto.storage_options)


def keys(moto: MotoServer, place: str) -> list[str]:
    prefix = place.removeprefix(f"s3://{BUCKET}/") + "/"
    return [key.removeprefix(prefix) for key in moto.keys(BUCKET) if key.startswith(prefix)]


# -- what is there ---------------------------------------------------------------------------------


def test_a_dataset_is_seen_in_every_spelling(
    storage: TableStorage, moto: MotoServer, place: str
) -> None:
    write_table(moto, f"{place}/a b.lance")
    for spelling in ("a b.lance", "a b.lance/", "a%20b.lance", "x/../a b.lance"):
        assert storage.has_dataset(f"{place}/{spelling}".replace("s3://", "s3a://"))
        assert storage.is_occupied(f"{place}/{spelling}")
    assert not storage.has_dataset(f"{place}/a")
    assert not storage.is_occupied(f"{place}/a")


def test_a_reserved_prefix_is_taken_and_holds_no_dataset(
    storage: TableStorage, moto: MotoServer, place: str
) -> None:
    storage.reserve(place)
    assert keys(moto, place) == [RESERVED_FILE]
    assert storage.is_occupied(place)
    assert not storage.has_dataset(place)


@pytest.mark.parametrize("objects", [pytest.param(1100, marks=pytest.mark.slow)])
def test_a_table_of_more_objects_than_one_listing_shows_is_deleted_whole(
    storage: TableStorage, moto: MotoServer, place: str, objects: int
) -> None:
    write_table(moto, place)
    prefix = place.removeprefix(f"s3://{BUCKET}/")
    for number in range(objects):
        moto.put(BUCKET, f"{prefix}/data/{number:024b}{number:026x}.lance")
    storage.delete_table(place)
    assert keys(moto, place) == []


@pytest.mark.spec("common.md#files-that-are-deleted")
def test_only_listed_objects_are_deleted_and_versions_since_are_named(
    storage: TableStorage, moto: MotoServer, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_table(moto, place)
    listed = storage.files_of_table(place)
    lance.write_dataset(
        pa.table({"a": [3]}), place, mode="append", storage_options=moto.storage_options
    )
    with caplog.at_level(logging.WARNING):
        storage.delete_table(place, listed)
    (manifest,) = [key for key in keys(moto, place) if key.endswith(".manifest")]
    assert f"1 versions were committed to {place}" in caplog.text
    assert manifest in caplog.text


@pytest.mark.parametrize("endpoint", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
def test_the_environment_alone_configures_a_store(
    moto: MotoServer, monkeypatch: pytest.MonkeyPatch, place: str, endpoint: str
) -> None:
    """Plain HTTP is an option of the client: obstore ignores that variable beside our timeouts."""
    write_table(moto, place)
    given = dict(moto.storage_options)
    monkeypatch.setenv(endpoint, given.pop("aws_endpoint"))
    for option in list(given):
        name = option.upper() if option.startswith("aws_") else f"AWS_{option.upper()}"
        monkeypatch.setenv(name, given.pop(option))
    assert lance.dataset(place).count_rows() == 2
    assert TableStorage({}).has_dataset(place)
    assert TableStorage({"timeout": "20s"}).is_occupied(place)


def test_options_that_are_lance_s_own_do_not_disturb_the_store(
    moto: MotoServer, place: str
) -> None:
    options = {**moto.storage_options, "expires_at_millis": "1", "timeout": "20s", "odd_one": "x"}
    write_table(moto, place)
    assert TableStorage(options).has_dataset(place)


# -- trouble ---------------------------------------------------------------------------------------


def every_look(storage: TableStorage) -> list[Callable[[str], object]]:
    return [storage.has_dataset, storage.is_occupied, storage.reserve, storage.delete_table]


def refused(look: Callable[[str], object], place: str) -> errors.LanceNamespaceError:
    """Return the error of a look that must fail, within its time and without a secret."""
    start = time.monotonic()
    with pytest.raises(errors.LanceNamespaceError) as caught:
        look(place)
    assert time.monotonic() - start < BOUND
    assert place in str(caught.value)
    assert len(str(caught.value)) < 700
    assert SECRET_KEY not in "".join(traceback.format_exception(caught.value))
    return caught.value


def test_a_missing_bucket_is_never_absence(moto: MotoServer) -> None:
    for look in every_look(TableStorage(moto.storage_options)):
        error = refused(look, "s3://no-such-bucket/t.lance")
        assert isinstance(error, errors.ServiceUnavailableError)
        assert "check that it exists" in str(error)


@pytest.mark.spec(
    "common.md#errors-of-every-operation",
    "docs/how-to/s3.md#what-was-run",
    "operations.md#errors-of-every-operation",
)
def test_a_silent_endpoint_is_never_absence(moto: MotoServer, place: str) -> None:
    with unanswered(is_silent=True) as address:
        endpoint = {"aws_endpoint": f"http://{address}", "timeout": "1s"}
        error = refused(TableStorage({**moto.storage_options, **endpoint}).has_dataset, place)
    assert isinstance(error, errors.ServiceUnavailableError)


def test_missing_credentials_are_never_absence(moto: MotoServer, place: str) -> None:
    options = moto.storage_options
    del options["aws_access_key_id"], options["aws_secret_access_key"]
    # Without this, the store asks the address that cloud machines have for credentials.
    options["aws_metadata_endpoint"] = "http://127.0.0.1:9"
    error = refused(TableStorage(options).has_dataset, place)
    assert isinstance(error, errors.ServiceUnavailableError | errors.UnauthenticatedError)


def test_an_option_that_cannot_be_read_is_an_error_with_a_code(
    moto: MotoServer, place: str
) -> None:
    for bad in ({"timeout": "soon"}, {"aws_skip_signature": "maybe"}, {"allow_http": "perhaps"}):
        error = refused(TableStorage({**moto.storage_options, **bad}).is_occupied, place)
        assert isinstance(error, errors.InvalidInputError)


# -- through a namespace ---------------------------------------------------------------------------


def test_an_encoded_way_out_of_a_directory_is_not_followed_to_another_table(
    on_s3: MemoryNamespace, moto: MotoServer
) -> None:
    victim = create(on_s3, TABLE).location or ""
    detour = victim.replace("/sales.db/", "/sales.db/x/%2e%2e/")
    request = api.RegisterTableRequest(id=[*DATASET, "detour"], location=detour)
    with pytest.raises(errors.LanceNamespaceError, match=r"'\.\.'"):
        on_s3.register_table(request)
    on_s3.server.tables[at("detour")] = replace(
        on_s3.server.tables[tuple(TABLE)], path=at("detour"), location=detour
    )
    for name in ("detour", "Orders"):
        with pytest.raises(errors.LanceNamespaceError):
            on_s3.drop_table(api.DropTableRequest(id=[*DATASET, name]))
    assert count_rows(on_s3, TABLE) == 3
    assert keys(moto, victim)


# -- trouble in an operation: it says so, and nothing is changed -----------------------------------

ROOT = f"s3://{BUCKET}/troubled"
Connect = Callable[[dict[str, str]], Calls]
Trouble = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def connect(server: MemoryServer, request: pytest.FixtureRequest) -> Connect:
    """Makes clients of the catalog in memory with these options of the storage."""
    server.capabilities = replace(CAPABILITIES, no_alter="")

    def connected(options: dict[str, str]) -> Calls:
        storage = {f"storage.{key}": value for key, value in options.items()}
        return Calls(MemoryNamespace(uri=request.node.nodeid, root=ROOT, **storage))

    return connected


@pytest.fixture
def owner(connect: Connect, moto: MotoServer) -> Iterator[Calls]:
    """A client that may write to the storage, and has made a table of three rows there."""
    calls = connect(moto.storage_options)
    calls.create_table(TABLE, stream())
    yield calls
    for key in moto.keys(BUCKET):
        moto.client.delete_object(Bucket=BUCKET, Key=key)


@pytest.fixture(scope="module")
def powerless(moto: MotoServer) -> dict[str, str]:
    """Options of a user whom the storage knows, and allows nothing."""
    return moto.powerless_options()


@pytest.fixture(
    params=[
        errors.ServiceUnavailableError,
        errors.UnauthenticatedError,
        errors.PermissionDeniedError,
    ]
)
def expected(request: pytest.FixtureRequest) -> type[errors.LanceNamespaceError]:
    """What the trouble comes out as."""
    found: type[errors.LanceNamespaceError] = request.param
    return found


@pytest.fixture
def troubled(
    connect: Connect,
    moto: MotoServer,
    powerless: dict[str, str],
    expected: type[errors.LanceNamespaceError],
) -> tuple[Calls, Trouble]:
    """A client, and what makes trouble in its storage."""
    if expected is errors.ServiceUnavailableError:
        dead = {"aws_endpoint": f"http://127.0.0.1:{free_port()}"}
        return connect({**moto.storage_options, **dead}), nullcontext
    known = expected is errors.PermissionDeniedError
    return connect(powerless if known else moto.storage_options), moto.refusing_credentials


NEEDS_STORAGE: dict[str, Callable[[Calls], object]] = {
    "describe": lambda calls: calls.describe_table(TABLE, check_declared=True),
    "count": lambda calls: calls.count(TABLE),
    "create": lambda calls: calls.create_table([*DATASET, "new"], stream()),
    "overwrite": lambda calls: calls.create_table(TABLE, stream(), mode="Overwrite"),
    "drop": lambda calls: calls.drop_table(TABLE),
}


@pytest.mark.spec(
    "common.md#createtable",
    "common.md#droptable",
    "common.md#errors-of-every-operation",
    "docs/how-to/s3.md#what-was-run",
    "hive.md#errors-of-every-operation",
)
@pytest.mark.parametrize("operation", NEEDS_STORAGE)
def test_storage_that_fails_is_an_error_of_its_own_and_nothing_is_changed(
    owner: Calls,
    troubled: tuple[Calls, Trouble],
    expected: type[errors.LanceNamespaceError],
    operation: str,
) -> None:
    calls, trouble = troubled
    with trouble(), pytest.raises(expected) as caught:
        NEEDS_STORAGE[operation](calls)
    assert SECRET_KEY not in "".join(traceback.format_exception(caught.value))
    assert owner.all_tables(DATASET) == [TABLE[-1]]
    assert owner.count(TABLE) == 3


@pytest.mark.spec("common.md#declaretable")
def test_a_declaration_whose_location_cannot_be_inspected_is_not_repeated(
    owner: Calls, troubled: tuple[Calls, Trouble]
) -> None:
    calls, trouble = troubled
    declared = [*DATASET, "declared"]
    first = owner.declare_table(declared)
    with trouble(), pytest.raises(errors.TableAlreadyExistsError, match="cannot be read"):
        calls.declare_table(declared)
    assert owner.describe_table(declared).location == first.location


@contextmanager
def after_the_entry_is_dropped(server: MemoryServer, trouble: Trouble) -> Iterator[None]:
    """Make trouble in the storage from the moment on at which an entry is dropped."""
    with ExitStack() as held:

        def begin(change: str, moment: Moment) -> None:
            if (change, moment) == ("drop_table", "after"):
                held.enter_context(trouble())

        server.fault = begin
        yield


@pytest.mark.spec("common.md#droptable")
@pytest.mark.usefixtures("owner")
def test_files_that_cannot_be_deleted_are_named(
    server: MemoryServer,
    connect: Connect,
    moto: MotoServer,
    powerless: dict[str, str],
) -> None:
    location = server.tables[tuple(TABLE)].location
    with (
        after_the_entry_is_dropped(server, moto.refusing_credentials),
        pytest.raises(
            errors.PermissionDeniedError, match=f"is dropped, but files are left at {location}"
        ),
    ):
        connect(powerless).drop_table(TABLE)
    assert server.tables == {}
    assert moto.keys(BUCKET)


@pytest.mark.spec("common.md#droptable")
def test_files_on_storage_that_is_gone_are_named(server: MemoryServer, connect: Connect) -> None:
    @contextmanager
    def stopped() -> Iterator[None]:
        mortal.stop()
        yield

    with MotoServer() as mortal:
        mortal.make_bucket(BUCKET)
        calls = connect(mortal.storage_options)
        calls.create_table(TABLE, stream(1))
        with (
            after_the_entry_is_dropped(server, stopped),
            pytest.raises(
                errors.ServiceUnavailableError, match=f"is dropped, but files are left at {ROOT}"
            ),
        ):
            calls.drop_table(TABLE)
    assert server.tables == {}
