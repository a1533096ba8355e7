"""Storage under tables on S3: the same answers, and no trouble that reads as "not there"."""

from __future__ import annotations

import logging
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from servers.objectstore import SECRET_KEY, MotoServer

from lance_bridge.storage.lance_files import RESERVED_FILE
from lance_bridge.storage.store import TableStorage

from .building import BUCKET, DATASET, TABLE, at, count_rows, create
from .memory_catalog import MemoryConfig, MemoryNamespace, MemoryServer

pytestmark = pytest.mark.server
UUID = "66aac37b-adee-470b-ad57-b83dceeb1373"
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


def test_an_empty_prefix_is_free(storage: TableStorage, place: str) -> None:
    assert not storage.has_dataset(place)
    assert not storage.is_occupied(place)
    storage.delete_table(place)


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


def test_a_table_is_deleted_and_its_neighbours_stay(
    storage: TableStorage, moto: MotoServer, place: str
) -> None:
    for name in ("t.lance", "t.lance2", "t"):
        write_table(moto, f"{place}/{name}")
    storage.delete_table(f"{place}/t.lance")
    storage.delete_table(f"{place}/t.lance")
    assert keys(moto, f"{place}/t.lance") == []
    for name in ("t.lance2", "t"):
        assert storage.has_dataset(f"{place}/{name}")


def test_foreign_objects_stay_and_are_logged(
    storage: TableStorage, moto: MotoServer, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_table(moto, place)
    prefix = place.removeprefix(f"s3://{BUCKET}/")
    moto.put(BUCKET, f"{prefix}/README.md")
    moto.put(BUCKET, f"{prefix}/inner.lance/data/x.lance")
    with caplog.at_level(logging.WARNING):
        storage.delete_table(place)
    assert keys(moto, place) == ["README.md", "inner.lance/data/x.lance"]
    assert "2 entries that are not Lance's were left" in caplog.text


def test_without_any_version_only_lance_s_own_objects_go(
    storage: TableStorage, moto: MotoServer, place: str
) -> None:
    prefix = place.removeprefix(f"s3://{BUCKET}/")
    kept = ["_refs/heads", "_transactions/0.txn", "data/model.lance", "tree/oak.txt"]
    for name in (f"data/{UUID}.lance", f"_transactions/0-{UUID}.txn", *kept):
        moto.put(BUCKET, f"{prefix}/{name}")
    assert storage.delete_table(place) == tuple(kept)
    assert keys(moto, place) == kept


@pytest.mark.slow
def test_a_table_of_more_objects_than_one_listing_shows_is_deleted_whole(
    storage: TableStorage, moto: MotoServer, place: str
) -> None:
    write_table(moto, place)
    prefix = place.removeprefix(f"s3://{BUCKET}/")
    for number in range(1100):
        moto.put(BUCKET, f"{prefix}/data/{number:024b}{number:026x}.lance")
    storage.delete_table(place)
    assert keys(moto, place) == []


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


def test_options_that_are_lance_s_own_do_not_disturb_the_store(
    moto: MotoServer, place: str
) -> None:
    options = {**moto.storage_options, "expires_at_millis": "1", "timeout": "20s", "odd_one": "x"}
    write_table(moto, place)
    assert TableStorage(options).has_dataset(place)


# -- trouble ---------------------------------------------------------------------------------------


@pytest.fixture
def dead_endpoint() -> str:
    """An address of this machine where nothing listens."""
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


@pytest.fixture
def silent_endpoint() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def every_look(storage: TableStorage) -> list[Callable[[str], object]]:
    return [storage.has_dataset, storage.is_occupied, storage.reserve, storage.delete_table]


def refused(look: Callable[[str], object], place: str) -> LanceNamespaceError:
    """Return the error of a look that must fail, within its time and without a secret."""
    start = time.monotonic()
    with pytest.raises(LanceNamespaceError) as caught:
        look(place)
    assert time.monotonic() - start < BOUND
    assert place in str(caught.value)
    assert len(str(caught.value)) < 700
    assert SECRET_KEY not in "".join(traceback.format_exception(caught.value))
    return caught.value


def test_refused_credentials_are_never_absence(
    storage: TableStorage, moto: MotoServer, place: str
) -> None:
    with moto.refusing_credentials():
        for look in every_look(storage):
            assert isinstance(refused(look, place), UnauthenticatedError)


def test_a_caller_without_permission_is_refused(moto: MotoServer, place: str) -> None:
    storage = TableStorage(moto.powerless_options())
    with moto.refusing_credentials():
        for look in every_look(storage):
            assert isinstance(refused(look, place), PermissionDeniedError)


def test_a_missing_bucket_is_never_absence(moto: MotoServer) -> None:
    for look in every_look(TableStorage(moto.storage_options)):
        error = refused(look, "s3://no-such-bucket/t.lance")
        assert isinstance(error, ServiceUnavailableError)
        assert "check that it exists" in str(error)


def test_a_dead_endpoint_is_never_absence(moto: MotoServer, place: str, dead_endpoint: str) -> None:
    storage = TableStorage({**moto.storage_options, "aws_endpoint": dead_endpoint})
    for look in every_look(storage):
        assert isinstance(refused(look, place), ServiceUnavailableError)


def test_a_silent_endpoint_is_never_absence(
    moto: MotoServer, place: str, silent_endpoint: str
) -> None:
    options = {**moto.storage_options, "aws_endpoint": silent_endpoint, "timeout": "1s"}
    assert isinstance(refused(TableStorage(options).has_dataset, place), ServiceUnavailableError)


def test_missing_credentials_are_never_absence(
    moto: MotoServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    options = moto.storage_options
    del options["aws_access_key_id"], options["aws_secret_access_key"]
    # Without this, the store asks the address that cloud machines have for credentials.
    options["aws_metadata_endpoint"] = "http://127.0.0.1:9"
    error = refused(TableStorage(options).has_dataset, place)
    assert isinstance(error, ServiceUnavailableError | UnauthenticatedError)


def test_an_option_that_cannot_be_read_is_an_error_with_a_code(
    moto: MotoServer, place: str
) -> None:
    for bad in ({"timeout": "soon"}, {"aws_skip_signature": "maybe"}, {"allow_http": "perhaps"}):
        error = refused(TableStorage({**moto.storage_options, **bad}).is_occupied, place)
        assert isinstance(error, InvalidInputError)


# -- through a namespace ---------------------------------------------------------------------------


@pytest.fixture
def on_s3(
    server: MemoryServer, moto: MotoServer, place: str, request: pytest.FixtureRequest
) -> MemoryNamespace:
    assert not server.effects
    options = {f"storage.{key}": value for key, value in moto.storage_options.items()}
    return MemoryNamespace(uri=request.node.nodeid, root=place, **options)


def test_a_table_lives_its_whole_life_on_s3(
    on_s3: MemoryNamespace, moto: MotoServer, place: str
) -> None:
    answer = create(on_s3, TABLE)
    assert answer.location == f"{place}/eu/shop/sales.db/Orders.lance"
    assert answer.storage_options == moto.storage_options
    assert count_rows(on_s3, TABLE) == 3
    on_s3.drop_table(api.DropTableRequest(id=TABLE))
    assert keys(moto, place) == []


def test_pylance_writes_and_reads_through_the_namespace(on_s3: MemoryNamespace) -> None:
    rows = pa.table({"a": [1, 2]})
    lance.write_dataset(rows, namespace_client=on_s3, table_id=TABLE, mode="create")
    lance.write_dataset(rows, namespace_client=on_s3, table_id=TABLE, mode="append")
    dataset = lance.dataset(namespace_client=on_s3, table_id=TABLE)
    assert dataset.count_rows() == 4
    assert dataset.version == 2


def test_an_encoded_way_out_of_a_directory_is_not_followed_to_another_table(
    on_s3: MemoryNamespace, moto: MotoServer, server: MemoryServer, place: str
) -> None:
    victim = create(on_s3, TABLE).location or ""
    detour = victim.replace("/sales.db/", "/sales.db/x/%2e%2e/")
    request = api.RegisterTableRequest(id=[*DATASET, "detour"], location=detour)
    with pytest.raises(LanceNamespaceError, match=r"'\.\.'"):
        on_s3.register_table(request)
    server.tables[at("detour")] = replace(
        server.tables[tuple(TABLE)], path=at("detour"), location=detour
    )
    for name in ("detour", "Orders"):
        with pytest.raises(LanceNamespaceError):
            on_s3.drop_table(api.DropTableRequest(id=[*DATASET, name]))
    assert count_rows(on_s3, TABLE) == 3
    assert keys(moto, place)


def look_at_everything(
    namespace: MemoryNamespace, server: MemoryServer, expected: type[LanceNamespaceError]
) -> None:
    """Every operation that needs the storage fails with its code, in time, and changes nothing."""
    server.effects.clear()
    describe = api.DescribeTableRequest(id=TABLE, check_declared=True)
    calls: list[Callable[[], object]] = [
        lambda: count_rows(namespace, TABLE),
        lambda: namespace.describe_table(describe),
        lambda: create(namespace, TABLE, mode="Overwrite"),
        lambda: namespace.drop_table(api.DropTableRequest(id=TABLE)),
    ]
    for call in calls:
        start = time.monotonic()
        with pytest.raises(expected) as caught:
            call()
        assert time.monotonic() - start < 2 * BOUND
        assert SECRET_KEY not in "".join(traceback.format_exception(caught.value))
    assert tuple(TABLE) in server.tables
    assert not server.effects


def test_refused_credentials_are_not_a_missing_table(
    on_s3: MemoryNamespace, server: MemoryServer, moto: MotoServer
) -> None:
    create(on_s3, TABLE)
    with moto.refusing_credentials():
        look_at_everything(on_s3, server, UnauthenticatedError)
    assert count_rows(on_s3, TABLE) == 3


def test_a_missing_bucket_is_not_a_missing_table(
    on_s3: MemoryNamespace, server: MemoryServer, place: str
) -> None:
    create(on_s3, TABLE)
    record = server.tables[tuple(TABLE)]
    lost = place.replace(BUCKET, "no-such-bucket")
    server.tables[tuple(TABLE)] = replace(record, location=f"{lost}/t.lance")
    look_at_everything(on_s3, server, ServiceUnavailableError)


def test_a_dead_endpoint_is_not_a_missing_table(
    on_s3: MemoryNamespace, server: MemoryServer, dead_endpoint: str, place: str
) -> None:
    create(on_s3, TABLE)
    assert isinstance(on_s3.connection.config, MemoryConfig)
    options = {**on_s3.connection.config.storage, "aws_endpoint": dead_endpoint}
    properties = {f"storage.{key}": value for key, value in options.items()}
    elsewhere = MemoryNamespace(uri=on_s3.connection.config.uri, root=place, **properties)
    look_at_everything(elsewhere, server, ServiceUnavailableError)
