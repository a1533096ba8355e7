"""Storage that does not answer, or refuses: each operation says so, and nothing is changed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

import pytest
from lance_namespace import errors
from servers.objectstore import SECRET_KEY, MotoServer
from servers.processes import free_port

from lance_bridge.testing.calls import Calls

from .building import BUCKET, DATASET, TABLE, stream
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer, Moment

pytestmark = [pytest.mark.servers, pytest.mark.spec("common.md#droptable")]

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
