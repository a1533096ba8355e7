"""Tables whose files are in an object store (S3, by moto): what is done with their files there.

Moto takes each request by itself and always answers alike; how a real store behaves under load, and
what it costs to list, is not seen here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors
from servers.http_proxy import HttpProxy, Request
from servers.object_stores import MotoServer

from lance_bridge.catalog import TableRecord
from lance_bridge.storage import DataState, TableStorage
from lance_bridge.storage.lance_format import RESERVED_FILE
from lance_bridge.testing.concurrency import race

from .managed_tables import MANAGED, commit_batch
from .memory_catalog import (
    BUCKET,
    CAPABILITIES,
    DATASET,
    TABLE,
    MemoryNamespace,
    MemoryServer,
    at,
    count_rows,
    create,
    creation,
    numbers,
    stream,
    winner_of,
)
from .memory_catalog import stage as stage_local
from .table_data import ipc
from .test_tags_and_branches import (
    branches,
    create_branch,
    create_tag,
    delete_branch,
    rows,
    tagged,
    tags,
)

pytestmark = [pytest.mark.servers, pytest.mark.spec("common.md#presence-of-data")]

OTHER = [*DATASET, "other"]
KEY = tuple(TABLE)
Call = Callable[[MemoryNamespace], object]
CALLS: dict[str, Call] = {
    "count": lambda ns: count_rows(ns, TABLE),
    "insert": lambda ns: ns.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream()),
    "create": lambda ns: create(ns, TABLE, mode="overwrite"),
}


def place(ns: MemoryNamespace, table: list[str] = TABLE) -> str:
    return str(ns.describe_table(api.DescribeTableRequest(id=table)).location)


def keys(ns: MemoryNamespace, moto: MotoServer, inside: str, table: list[str] = TABLE) -> list[str]:
    """Return the names of a table's files in one directory."""
    prefix = f"{place(ns, table).removeprefix(f's3://{BUCKET}/')}/{inside}/"
    return [key.removeprefix(prefix) for key in moto.keys(BUCKET) if key.startswith(prefix)]


def append(ns: MemoryNamespace, value: int = 100, table: list[str] = TABLE) -> int:
    data = ipc(pa.table({"a": [value]}))
    return int(ns.insert_into_table(api.InsertIntoTableRequest(id=table), data).version or 0)


def stage(ns: MemoryNamespace, moto: MotoServer, table: list[str] = TABLE) -> tuple[int, str]:
    """Commit one more version, and take its manifest back to be staged.

    Returns:
        The version, and the path of the staged manifest in the bucket.
    """
    options, rows = moto.storage_options, pa.table({"a": [100]})
    made = lance.write_dataset(rows, place(ns, table), mode="append", storage_options=options)
    inside = f"{place(ns, table).removeprefix(f's3://{BUCKET}/')}/_versions"
    final = f"{inside}/{2**64 - 1 - made.version:020d}.manifest"
    staged = f"{final}-{uuid.uuid4()}"
    source = {"Bucket": BUCKET, "Key": final}
    moto.client.copy_object(Bucket=BUCKET, Key=staged, CopySource=source)
    moto.client.delete_object(**source)
    return made.version, staged


def build(ns: MemoryNamespace, versions: int, table: list[str] = TABLE) -> None:
    create(ns, table)
    assert [append(ns, each, table) for each in range(2, versions + 1)] == [*range(2, versions + 1)]


# -- versions --------------------------------------------------------------------------------------


def test_versions_are_those_whose_manifests_are_in_the_store(
    on_s3: MemoryNamespace, moto: MotoServer
) -> None:
    build(on_s3, 3)
    found = on_s3.list_table_versions(api.ListTableVersionsRequest(id=TABLE)).versions
    assert [each.version for each in found] == [1, 2, 3]
    assert numbers(on_s3, descending=True, limit=2) == [3, 2]
    for each in found:
        head = moto.client.head_object(Bucket=BUCKET, Key=each.manifest_path)
        assert each.manifest_size == head["ContentLength"]
        assert str(each.e_tag).strip('"') == head["ETag"].strip('"')
        assert (each.timestamp_millis or 0) // 1000 == int(head["LastModified"].timestamp())


@pytest.mark.spec("operations.md#createtableversion")
def test_of_several_creators_of_one_version_one_wins(
    on_s3: MemoryNamespace, moto: MotoServer
) -> None:
    build(on_s3, 1)
    staged = [stage(on_s3, moto) for _ in range(4)]
    e_tags = [moto.client.head_object(Bucket=BUCKET, Key=path)["ETag"] for _, path in staged]

    def attempt(number: int) -> object:
        request = creation(TABLE, *staged[number], e_tag=e_tags[number])
        return on_s3.create_table_version(request)

    answers = race(attempt, len(staged))
    winner_of(answers, errors.ConcurrentModificationError)
    assert numbers(on_s3) == [1, 2]
    assert count_rows(on_s3, TABLE) == 4


# -- tags and branches -----------------------------------------------------------------------------


@pytest.mark.spec("operations.md#createtabletag")
def test_of_several_creators_of_one_tag_one_wins(on_s3: MemoryNamespace) -> None:
    build(on_s3, 4)
    answers = race(lambda n: create_tag(on_s3, "best", n + 1), 4)
    won = winner_of(answers, errors.TableTagAlreadyExistsError)
    assert tagged(on_s3, "best")[0] == won + 1


def test_branches_are_made_written_to_and_deleted(on_s3: MemoryNamespace, moto: MotoServer) -> None:
    build(on_s3, 2)
    create_branch(on_s3, "dev")
    with pytest.raises(errors.TableBranchAlreadyExistsError):
        create_branch(on_s3, "dev")
    request = api.InsertIntoTableRequest(id=TABLE, branch="dev")
    on_s3.insert_into_table(request, stream(5))
    assert (rows(on_s3, "dev"), rows(on_s3, None)) == (9, 4)
    assert numbers(on_s3, branch="dev") == [2, 3]
    assert numbers(on_s3) == [1, 2]
    opened = lance.dataset(place(on_s3), storage_options=moto.storage_options)
    assert list(branches(on_s3)) == list(opened.branches.list()) == ["dev"]
    delete_branch(on_s3, "dev")
    assert branches(on_s3) == {}
    assert keys(on_s3, moto, "tree") == []
    with pytest.raises(errors.TableBranchNotFoundError):
        rows(on_s3, "dev")


# -- batches ---------------------------------------------------------------------------------------


@pytest.fixture
def two_on_s3(on_s3: MemoryNamespace) -> MemoryNamespace:
    """The same, with two managed tables."""
    on_s3.server.capabilities = replace(on_s3.server.capabilities, no_alter="")
    for table in (TABLE, OTHER):
        create(on_s3, table, properties=MANAGED)
    return on_s3


def creating(table: list[str], version: int, staged: str) -> dict[str, Any]:
    return {"create_table_version": {"id": table, "version": version, "manifest_path": staged}}


def test_versions_of_several_tables_are_committed_together_or_not_at_all(
    two_on_s3: MemoryNamespace, moto: MotoServer
) -> None:
    version, staged = stage(two_on_s3, moto)
    other = stage(two_on_s3, moto, OTHER)
    with pytest.raises(errors.ConcurrentModificationError):
        commit_batch(two_on_s3, creating(TABLE, version, staged), creating(OTHER, 3, other[1]))
    assert (numbers(two_on_s3), numbers(two_on_s3, OTHER)) == ([1], [1])
    commit_batch(two_on_s3, creating(TABLE, version, staged), creating(OTHER, *other))
    assert (numbers(two_on_s3), numbers(two_on_s3, OTHER)) == ([1, 2], [1, 2])
    assert (count_rows(two_on_s3, TABLE), count_rows(two_on_s3, OTHER)) == (4, 4)
    assert not [each for each in moto.keys(BUCKET) if "/_transactions/" in each and "json" in each]


@pytest.mark.spec("managed.md#commits-to-several-tables")
def test_a_store_without_conditional_writes_takes_no_batch(
    two_on_s3: MemoryNamespace, moto: MotoServer
) -> None:
    operations = [creating(each, *stage(two_on_s3, moto, each)) for each in (TABLE, OTHER)]
    options = {**two_on_s3._properties, "storage.aws_conditional_put": "disabled"}
    with pytest.raises(errors.UnsupportedOperationError, match="aws_conditional_put"):
        commit_batch(MemoryNamespace(**options), *operations)
    assert (numbers(two_on_s3), numbers(two_on_s3, OTHER)) == ([1], [1])
    assert not [each for each in moto.keys(BUCKET) if "/_transactions/" in each and "json" in each]


@pytest.mark.spec("managed.md#limits-of-batches")
@pytest.mark.parametrize("first_on_s3", [True, False])
def test_tables_in_different_stores_are_committed_together(
    on_s3: MemoryNamespace, moto: MotoServer, tmp_path: Path, *, first_on_s3: bool
) -> None:
    """The record of the batch is in the store of the table whose path is the first."""
    on_s3.server.capabilities = replace(on_s3.server.capabilities, no_alter="")
    create(on_s3, TABLE, properties=MANAGED)
    local = [*DATASET, "Y" if first_on_s3 else "A"]
    lance.write_dataset(pa.table({"a": [0, 1, 2]}), str(tmp_path / "local"))
    on_s3.register_table(
        api.RegisterTableRequest(id=local, location=str(tmp_path / "local"), properties=MANAGED)
    )
    version, path = stage_local(on_s3, local)
    operations = creating(local, version, str(path)), creating(TABLE, *stage(on_s3, moto))
    commit_batch(on_s3, *operations)
    assert (numbers(on_s3), numbers(on_s3, local)) == ([1, 2], [1, 2])
    assert (count_rows(on_s3, TABLE), count_rows(on_s3, local)) == (4, 4)


# -- what else -------------------------------------------------------------------------------------


def test_a_managed_table_is_committed_to_through_the_catalog(
    on_s3: MemoryNamespace, moto: MotoServer
) -> None:
    on_s3.server.capabilities = replace(CAPABILITIES, no_alter="", no_rename="")
    create(on_s3, TABLE, properties={"managed_by": "impl"})
    assert append(on_s3) == 2
    lance.write_dataset(pa.table({"a": [7]}), namespace_client=on_s3, table_id=TABLE, mode="append")
    assert on_s3.server.effects.count("alter_table") >= 2
    lance.write_dataset(
        pa.table({"a": [8]}), place(on_s3), mode="append", storage_options=moto.storage_options
    )
    assert (numbers(on_s3), count_rows(on_s3, TABLE)) == ([1, 2, 3], 5)
    assert on_s3.adopt_out_of_band_versions(TABLE) == 4
    on_s3.release_table(TABLE)
    assert (numbers(on_s3), count_rows(on_s3, TABLE)) == ([1, 2, 3, 4], 6)
    assert len(keys(on_s3, moto, "_versions")) == 4


def test_a_table_in_a_store_that_is_gone_is_not_taken_for_empty(on_s3: MemoryNamespace) -> None:
    build(on_s3, 1)
    entry = on_s3.server.tables[tuple(TABLE)]
    lost = str(entry.location).replace(f"s3://{BUCKET}/", "s3://no-such-bucket/")
    on_s3.server.tables[at("Orders")] = replace(entry, location=lost)
    for look in (lambda: numbers(on_s3), lambda: tags(on_s3), lambda: count_rows(on_s3, TABLE)):
        with pytest.raises(errors.ServiceUnavailableError, match="no-such-bucket"):
            look()


# -- how many requests a drop makes ----------------------------------------------------------------


@pytest.fixture
def wire(moto: MotoServer) -> Iterator[HttpProxy]:
    """What counts the requests to S3 by what they do, listings apart."""

    def key(request: Request) -> str:
        return "LIST" if "list-type=2" in request.path else request.method

    with HttpProxy(moto.endpoint, key=key) as proxy:
        yield proxy


@pytest.fixture
def counted(on_s3: MemoryNamespace, wire: HttpProxy) -> MemoryNamespace:
    """A namespace whose requests are counted."""
    return MemoryNamespace(**{**on_s3._properties, "storage.aws_endpoint": wire.endpoint})


def register_others(ns: MemoryNamespace, moto: MotoServer, count: int) -> None:
    """Add Lance tables with one version each."""
    for number in range(count):
        location, path = f"{ns._properties['root']}/other{number}.lance", at(f"other{number}")
        rows = pa.table({"a": [1, 2]})
        lance.write_dataset(rows, location, storage_options=moto.storage_options)
        ns.server.tables[path] = TableRecord(path, location, {"table_type": "lance"})


@pytest.mark.spec("common.md#files-that-are-deleted", "common.md#shared-locations")
def test_a_drop_lists_its_table_once_and_reads_each_manifest_of_others_once(
    counted: MemoryNamespace, moto: MotoServer, wire: HttpProxy
) -> None:
    others = 10
    register_others(counted, moto, others)
    for reads in (others, 0):
        create(counted, TABLE)
        before = wire.counts
        counted.drop_table(api.DropTableRequest(id=TABLE))
        # Of the table: its files, its manifest, and versions that were added since.
        assert wire.counts - before == {"LIST": others + 2, "GET": reads + 1, "POST": 2}


@pytest.mark.spec("common.md#files-that-are-deleted", "common.md#shared-locations")
def test_a_cascade_reads_each_manifest_once(
    counted: MemoryNamespace, moto: MotoServer, wire: HttpProxy
) -> None:
    tables = 6
    register_others(counted, moto, tables)
    counted.drop_namespace(api.DropNamespaceRequest(id=DATASET, behavior="Cascade"))
    # Of each: its files, when checked and when deleted, and whether it is a clone of another.
    assert wire.counts == {"LIST": tables * 3, "GET": tables * 3, "POST": tables * 2}


# -- presence of data ------------------------------------------------------------------------------


@pytest.fixture
def bucket(moto: MotoServer) -> str:
    """The name of a bucket of the test's own."""
    name = f"{BUCKET}-{uuid.uuid4().hex}"
    moto.make_bucket(name)
    return name


@pytest.fixture
def in_own_bucket(
    namespace: MemoryNamespace, server: MemoryServer, moto: MotoServer, bucket: str
) -> MemoryNamespace:
    """A namespace whose tables are in that bucket."""
    assert not server.tables
    return connect(namespace, bucket, moto.storage_options)


@pytest.fixture(scope="module")
def powerless_options(moto: MotoServer) -> dict[str, str]:
    """The options of a user who may do nothing."""
    return moto.powerless_options()


def connect(ns: MemoryNamespace, bucket: str, options: dict[str, str]) -> MemoryNamespace:
    storage = {f"storage.{key}": value for key, value in options.items()}
    return MemoryNamespace(uri=ns._properties["uri"], root=f"s3://{bucket}/lake", **storage)


def empty(moto: MotoServer, bucket: str) -> None:
    for key in moto.keys(bucket):
        moto.client.delete_object(Bucket=bucket, Key=key)


def state_of(ns: MemoryNamespace) -> DataState:
    return ns.tables.load(KEY).presence().state


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_table_whose_objects_were_deleted_is_missing(
    in_own_bucket: MemoryNamespace, moto: MotoServer, bucket: str, call: Call
) -> None:
    create(in_own_bucket, TABLE)
    empty(moto, bucket)
    with pytest.raises(errors.InvalidTableStateError, match=r"is missing: .*s3://"):
        call(in_own_bucket)
    assert moto.keys(bucket) == []
    assert state_of(in_own_bucket) is DataState.MISSING


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_bucket_that_is_gone_is_unreachable(
    in_own_bucket: MemoryNamespace, moto: MotoServer, bucket: str, call: Call
) -> None:
    create(in_own_bucket, TABLE)
    empty(moto, bucket)
    moto.client.delete_bucket(Bucket=bucket)
    with pytest.raises(errors.ServiceUnavailableError, match="check that it exists"):
        call(in_own_bucket)
    assert state_of(in_own_bucket) is DataState.UNREACHABLE


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_credentials_that_are_not_accepted_are_unreachable(
    in_own_bucket: MemoryNamespace, moto: MotoServer, bucket: str, call: Call
) -> None:
    create(in_own_bucket, TABLE)
    empty(moto, bucket)
    with moto.refusing_credentials(), pytest.raises(errors.UnauthenticatedError):
        call(in_own_bucket)
    with moto.refusing_credentials():
        assert state_of(in_own_bucket) is DataState.UNREACHABLE
    assert state_of(in_own_bucket) is DataState.MISSING


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_user_without_rights_finds_nothing_missing(
    in_own_bucket: MemoryNamespace,
    moto: MotoServer,
    bucket: str,
    call: Call,
    powerless_options: dict[str, str],
) -> None:
    create(in_own_bucket, TABLE)
    empty(moto, bucket)
    powerless = connect(in_own_bucket, bucket, powerless_options)
    with moto.refusing_credentials(), pytest.raises(errors.PermissionDeniedError):
        call(powerless)
    with moto.refusing_credentials():
        assert state_of(powerless) is DataState.UNREACHABLE


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_declared_table_takes_its_first_write(
    in_own_bucket: MemoryNamespace, moto: MotoServer, bucket: str, call: Call
) -> None:
    in_own_bucket.declare_table(api.DeclareTableRequest(id=TABLE))
    [reservation] = moto.keys(bucket)
    assert Path(reservation).name == RESERVED_FILE
    assert state_of(in_own_bucket) is DataState.DECLARED
    if call is CALLS["count"]:
        with pytest.raises(errors.InvalidTableStateError, match="is declared"):
            call(in_own_bucket)
    else:
        call(in_own_bucket)
        assert count_rows(in_own_bucket, TABLE) == 3


def test_one_of_two_clients_that_found_a_location_free_reserves_it(
    moto: MotoServer, bucket: str
) -> None:
    storage = TableStorage(moto.storage_options)
    assert storage.reserve(f"s3://{bucket}/t.lance") == []
    assert storage.reserve(f"s3://{bucket}/t.lance") is None


def test_a_declaration_at_a_given_location_makes_no_request_of_the_storage(
    in_own_bucket: MemoryNamespace, moto: MotoServer, bucket: str
) -> None:
    in_own_bucket.declare_table(
        api.DeclareTableRequest(id=TABLE, location=f"s3://{bucket}/given.lance")
    )
    assert moto.keys(bucket) == []
    assert state_of(in_own_bucket) is DataState.UNDECIDED
    create(in_own_bucket, TABLE)
    assert state_of(in_own_bucket) is DataState.PRESENT
