"""A gateway that is killed, under clients or within a batch, and a metastore that is."""

from __future__ import annotations

import itertools
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx
import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    ServiceUnavailableError,
)
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from lancedb.remote.errors import HttpError, RetryError
from managed import crashes
from managed.tables import FIRST
from managed.writer import row, stage
from server.gateways import GatewayProcess
from servers.metastores import Metastores
from servers.processes import memory, wait_until

from lance_bridge.testing.calls import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spec("managed.md#failure-cases-of-batches", "server.md#failures"),
]

SCHEMA = pa.schema([pa.field("writer", pa.int64()), pa.field("sequence", pa.int64())])
Row = tuple[int, int]
_FAILURES = (ServiceUnavailableError, ConcurrentModificationError, OSError, HttpError, RetryError)
"""What clients raise where a server went away, or others were first."""
_LOST = {
    InternalError: ("Failed to execute request", "Failed to read response body"),
    RuntimeError: ("Hit retry limit", "error sending request"),
}
"""The texts of other errors that pylance and LanceDB raise where a connection ended. Those that the
gateway answers with the same code have other texts."""
_PAUSE = 0.05
_PACE = 0.5
"""Seconds between two operations of a client. With less, the fastest ones keep the others from
committing, and make ten thousand versions in ten minutes, each with a file of one row."""
_SECONDS = 300.0
"""How long a client may take to succeed again. Lance gives a commit up after 30 s of lost races
with other writers, and a client may see that several times."""
_MEMORY = 1 << 30
"""What a gateway with 16 writers on tables of a thousand versions needs at most, in bytes."""
MANAGED = {"managed_by": "impl"}
BATCH_ROW, NEXT_ROW = (1, 0), (2, 0)


class Client(Protocol):
    """A client that has one table open."""

    def append(self, rows: pa.Table) -> object:
        """Append rows in one commit."""

    def rows(self, predicate: str | None = None) -> pa.Table:
        """Read rows."""


class Pylance:
    """pylance writes files itself, and commits through the gateway where the catalog manages."""

    def __init__(self, url: str, table_id: Sequence[str]) -> None:
        client = RestNamespace(uri=url)  # type: ignore[no-untyped-call]  # pylance has no types
        self._table: dict[str, Any] = {"namespace_client": client, "table_id": list(table_id)}

    def append(self, rows: pa.Table) -> object:
        return lance.write_dataset(rows, mode="append", **self._table)

    def rows(self, predicate: str | None = None) -> pa.Table:
        return lance.dataset(**self._table).to_table(filter=predicate)


class Operations:
    """The operations of the specification, which the gateway carries out."""

    def __init__(self, url: str, table_id: Sequence[str]) -> None:
        self._client = RestNamespace(uri=url)  # type: ignore[no-untyped-call]  # no types
        self._id = list(table_id)

    def append(self, rows: pa.Table) -> object:
        return self._client.insert_into_table(api.InsertIntoTableRequest(id=self._id), ipc(rows))

    def rows(self, predicate: str | None = None) -> pa.Table:
        vector = QueryTableRequestVector()
        request = api.QueryTableRequest(id=self._id, k=0, vector=vector, filter=predicate)
        return pa.ipc.open_file(self._client.query_table(request).data).read_all()


class Lancedb:
    """LanceDB's own protocol."""

    def __init__(self, url: str, table_id: Sequence[str]) -> None:
        *database, self._name = table_id
        self._db = lancedb.connect(f"db://{'$'.join(database)}", api_key="k", host_override=url)

    def append(self, rows: pa.Table) -> object:
        return self._db.open_table(self._name).add(rows)

    def rows(self, predicate: str | None = None) -> pa.Table:
        search = self._db.open_table(self._name).search()
        return (search.where(predicate) if predicate else search).limit(1_000_000).to_arrow()


CLIENTS: tuple[Callable[[str, Sequence[str]], Client], ...] = (Pylance, Operations, Lancedb)


class Load:
    """Threads that write and read tables until they are stopped."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._work: list[Callable[[], None]] = []
        self._futures: list[Future[None]] = []
        self._acknowledged: dict[tuple[str, ...], list[Row]] = {}
        self.done: Counter[int] = Counter()
        """How many operations of each thread have succeeded."""
        self.failures: Counter[type[Exception]] = Counter()
        """What threads were answered instead, by type."""

    def add_writer(self, client: Client, table_id: Sequence[str]) -> None:
        """Have a thread append rows."""
        number = len(self._work)
        acknowledged = self._acknowledged.setdefault(tuple(table_id), [])

        def write() -> None:
            for sequence in itertools.count():
                if self._stopped.is_set():
                    return
                self._commit(client, (number, sequence))
                acknowledged.append((number, sequence))
                self.done[number] += 1
                self._stopped.wait(_PACE)

        self._work.append(write)

    def add_reader(self, client: Client, table_id: Sequence[str]) -> None:
        """Have a thread read all rows, and compare them with those that were acknowledged."""
        acknowledged = self._acknowledged.setdefault(tuple(table_id), [])

        def read() -> bool:
            before = list(acknowledged)
            require_rows(client.rows(), before)
            return True

        self.add_call(read)

    def add_call(self, call: Callable[[], bool]) -> None:
        """Have a thread repeat a call, which raises what it does not expect."""
        number = len(self._work)

        def repeat() -> None:
            while not self._stopped.wait(_PACE):
                self.done[number] += self._attempt(call) is not None

        self._work.append(repeat)

    def _commit(self, client: Client, row: Row) -> None:
        rows = pa.table({"writer": [row[0]], "sequence": [row[1]]}, schema=SCHEMA)
        find = partial(client.rows, f"writer = {row[0]} AND sequence = {row[1]}")
        while self._attempt(lambda: client.append(rows) or True) is None:
            found = None
            while found is None:
                found = self._attempt(find)
            if found.num_rows:
                return

    def _attempt(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (*_FAILURES, *_LOST) as error:
            if not (isinstance(error, _FAILURES) or _is_lost(error)):
                raise
            self.failures[type(error)] += 1
            time.sleep(_PAUSE)  # clients wait before they try again
            return None

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Run the threads; those that found something wrong raise it at the end."""
        with ThreadPoolExecutor(len(self._work)) as pool:
            self._futures = [pool.submit(each) for each in self._work]
            try:
                yield self
            finally:
                self._stopped.set()
        self._raise_faults()

    def _raise_faults(self) -> None:
        for each in self._futures:
            if each.done():
                each.result()

    def await_progress(self, seconds: float) -> None:
        """Wait until every thread has succeeded twice: the second one began after this call."""
        before = Counter(self.done)
        deadline = time.monotonic() + seconds
        waiting = set(range(len(self._work)))
        while waiting:
            self._raise_faults()
            assert time.monotonic() < deadline, (
                f"threads without progress: {waiting}; done {self.done}; failed {self.failures}"
            )
            waiting = {each for each in waiting if self.done[each] < before[each] + 2}
            time.sleep(_PAUSE)

    def require_all(self, read: Callable[[Sequence[str]], pa.Table]) -> None:
        """Check that each acknowledged row is in its table once, and no other row is."""
        for table_id, acknowledged in self._acknowledged.items():
            found = read(table_id)
            require_rows(found, acknowledged)
            assert found.num_rows == len(acknowledged)


def _is_lost(error: Exception) -> bool:
    return any(text in str(error) for text in _LOST.get(type(error), ()))


def require_rows(found: pa.Table, acknowledged: Sequence[Row]) -> None:
    """Check that acknowledged rows are there, and that none is there twice."""
    rows = Counter(zip(found["writer"].to_pylist(), found["sequence"].to_pylist(), strict=True))
    lost = [row for row in acknowledged if row not in rows]
    doubled = [row for row, count in rows.items() if count > 1]
    assert (lost, doubled) == ([], [])


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    return metastores.get("2.3")


@pytest.fixture
def catalog(metastore: Metastore, tmp_path: Path) -> Iterator[Any]:
    """The catalog itself, past the gateway."""
    with HiveNamespace(uri=metastore.uri, root=f"{tmp_path}/root") as namespace:
        yield namespace


def gateway_of(metastore: Metastore, tmp_path: Path) -> GatewayProcess:
    """Return a gateway that is not started."""
    hive = f"prod=hive:uri={metastore.uri}"
    options = ["-c", hive, "-p", f"prod.root={tmp_path}/root", "--root", "prod"]
    options += ["-p", "prod.client.retry-timeout=2"]
    return GatewayProcess(tmp_path / "gateway.log", *options)


@pytest.fixture
def gateway(metastore: Metastore, tmp_path: Path) -> Iterator[GatewayProcess]:
    with gateway_of(metastore, tmp_path) as process:
        yield process


@pytest.fixture
def tables(catalog: Any) -> list[list[str]]:
    """A table whose versions Lance manages in storage, and one whose the catalog does."""
    database = f"kills_{uuid.uuid4().hex[:12]}"
    catalog.create_namespace(api.CreateNamespaceRequest(id=[database]))
    ids = [[database, "stored"], [database, "managed"]]
    for table_id, properties in zip(ids, (None, MANAGED), strict=True):
        request = api.CreateTableRequest(id=table_id, properties=properties)
        catalog.create_table(request, ipc(SCHEMA.empty_table()))
    return ids


@contextmanager
def clients(url: str, tables: Sequence[Sequence[str]], writers: int) -> Iterator[Load]:
    """So many writers of each table, of every protocol in turn, and four readers."""
    load = Load()
    for table_id in tables:
        for connect in itertools.islice(itertools.cycle(CLIENTS), writers):
            load.add_writer(connect(url, table_id), table_id)
    for table_id, connect in itertools.product(tables, CLIENTS[1:]):
        load.add_reader(connect(url, table_id), table_id)
    with load.running():
        load.await_progress(_SECONDS)
        yield load
    print(dict(load.failures), dict(load.done))


def reader(catalog: Any) -> Callable[[Sequence[str]], Any]:
    return lambda table_id: lance.dataset(
        namespace_client=catalog, table_id=list(table_id)
    ).to_table()


# -- the gateway -----------------------------------------------------------------------------------


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(("writers", "kills"), [(3, 2), (8, 10)], ids=["twice", "often"])
def test_a_killed_gateway_loses_no_acknowledged_write_and_doubles_none(
    gateway: GatewayProcess, tables: list[list[str]], catalog: Any, writers: int, kills: int
) -> None:
    with clients(gateway.url, tables, writers) as load:
        for _ in range(kills):
            assert memory(gateway.pid, peak=True) < _MEMORY
            gateway.restart()
            load.await_progress(_SECONDS)
    assert load.failures, "no client noticed"
    load.require_all(reader(catalog))


# -- a batch --------------------------------------------------------------------------------------


class KilledBatch:
    """A batch of one row for each of three tables, whose gateway is killed."""

    def __init__(self, gateway: GatewayProcess, catalog: Any) -> None:
        database = f"batches_{uuid.uuid4().hex[:12]}"
        catalog.create_namespace(api.CreateNamespaceRequest(id=[database]))
        self.tables = [[database, name] for name in ("a", "b", "c")]
        for table_id in self.tables:
            request = api.CreateTableRequest(id=table_id, properties=MANAGED)
            catalog.create_table(request, ipc(row(*FIRST)))
        self._gateway, self._catalog = gateway, catalog
        self._entries = [stage(catalog, each, BATCH_ROW) for each in self.tables]
        self.seen_meanwhile: list[list[Row]] = []
        """The rows of each table while no gateway runs."""

    def lose_gateway(self) -> None:
        """Send the request to the gateway, which dies, and start it again."""
        with pytest.raises(httpx.TransportError):
            self.send()
        assert self._gateway.await_end() == -signal.SIGKILL
        self.seen_meanwhile = self.rows(self._catalog)
        self._gateway.restart()

    def send(self) -> httpx.Response:
        """Send the request to commit all that is staged: the same one each time."""
        operations = [{"create_table_version": each} for each in self._entries]
        url = f"{self._gateway.url}/v1/table/batch-commit"
        return httpx.post(url, json={"operations": operations}, timeout=_SECONDS)

    def append(self, content: Row) -> None:
        """Commit a row to each table by itself, the one with the record of the batch last."""
        for each in reversed(self.tables):
            Operations(self._gateway.url, each).append(row(*content))

    def rows(self, catalog: Any = None) -> list[list[Row]]:
        """Return the rows of each table, by the gateway or past it."""
        read = reader(catalog) if catalog else lambda each: Pylance(self._gateway.url, each).rows()
        found = [read(each) for each in self.tables]
        return [sorted(zip(*each.to_pydict().values(), strict=True)) for each in found]

    def require_settled(self) -> None:
        """Check that no entry depends on a batch."""
        loaded = [self._catalog.tables.load_by_id(each) for each in self.tables]
        assert [each.managed_state().prepared for each in loaded] == [None] * len(loaded)


@pytest.fixture
def killed_batch(
    request: pytest.FixtureRequest, metastore: Metastore, catalog: Any, tmp_path: Path
) -> Iterator[KilledBatch]:
    """The step is the parameter."""
    gateway = gateway_of(metastore, tmp_path)
    batch = KilledBatch(gateway, catalog)
    gateway.start(dies_at=request.param)
    try:
        batch.lose_gateway()
        yield batch
    finally:
        gateway.kill()


def at_steps(steps: Sequence[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("killed_batch", steps, indirect=True)


@at_steps(crashes.BEFORE_OUTCOME)
def test_a_batch_whose_gateway_was_killed_before_its_outcome_is_committed_by_its_repetition(
    killed_batch: KilledBatch,
) -> None:
    assert killed_batch.seen_meanwhile == killed_batch.rows() == [[FIRST]] * 3
    answer = killed_batch.send()
    assert answer.status_code == 200, answer.text
    assert killed_batch.rows() == [[FIRST, BATCH_ROW]] * 3
    killed_batch.require_settled()


@at_steps(crashes.AFTER_OUTCOME)
def test_a_batch_whose_gateway_was_killed_after_its_outcome_is_not_committed_again(
    killed_batch: KilledBatch,
) -> None:
    assert killed_batch.seen_meanwhile == killed_batch.rows() == [[FIRST, BATCH_ROW]] * 3
    answer = killed_batch.send()
    assert answer.status_code == 200, answer.text
    created = [each["create_table_version"] for each in answer.json()["results"]]
    versions = [each["version"]["version"] for each in created]
    assert versions == [2] * 3
    assert killed_batch.rows() == [[FIRST, BATCH_ROW]] * 3
    killed_batch.require_settled()


@at_steps([crashes.HALF_PREPARED, crashes.UNDECIDED, crashes.DECIDED, crashes.HALF_FINISHED])
def test_the_next_writers_settle_a_batch_whose_gateway_was_killed(
    killed_batch: KilledBatch,
) -> None:
    left = killed_batch.seen_meanwhile[0]
    assert killed_batch.seen_meanwhile == [left] * 3
    killed_batch.append(NEXT_ROW)
    killed_batch.require_settled()
    assert killed_batch.rows() == [[*left, NEXT_ROW]] * 3
    # Its client is late, and has to look for its rows: another version is the latest.
    answer = killed_batch.send()
    assert (answer.status_code, answer.json()["code"]) == (409, 14), answer.text
    assert killed_batch.rows() == [[*left, NEXT_ROW]] * 3


# -- the metastore ---------------------------------------------------------------------------------


@pytest.mark.parametrize("load_size", [(1, 1), (2, 10)], ids=["once", "often"])
def test_while_the_metastore_is_down_the_only_error_is_service_unavailable(
    gateway: GatewayProcess,
    tables: list[list[str]],
    metastore: Metastore,
    load_size: tuple[int, int],
) -> None:
    load = Load()
    refusals: list[int] = []
    writers, kills = load_size
    for table_id, connect, _ in itertools.product(tables, CLIENTS, range(writers)):
        load.add_writer(connect(gateway.url, table_id), table_id)
    with httpx.Client(base_url=gateway.url, timeout=_SECONDS) as http:
        for method, path in _requests(tables[1]):
            load.add_call(partial(_ask, http, method, path, refusals))
        with load.running():
            load.await_progress(_SECONDS)
            for _ in range(kills):
                go_down(metastore, refusals)
                load.await_progress(_SECONDS)
    print(dict(load.failures), dict(load.done))
    assert InternalError not in load.failures
    with HiveNamespace(uri=metastore.uri) as catalog:
        load.require_all(reader(catalog))


def go_down(metastore: Metastore, refusals: list[int]) -> None:
    """End a metastore until requests have been refused, and start it again."""
    metastore.kill()
    enough = len(refusals) + 5
    wait_until(lambda: len(refusals) >= enough)
    metastore.start()


def _requests(table_id: Sequence[str]) -> list[tuple[str, str]]:
    database, table = table_id[0], f"/v1/table/{'$'.join(table_id)}"
    reads = [f"{table}/{each}" for each in ("describe", "exists", "count_rows")]
    return [("GET", f"/v1/namespace/{database}/table/list"), *(("POST", each) for each in reads)]


def _ask(http: httpx.Client, method: str, path: str, refusals: list[int]) -> bool:
    """Ask once.

    Raises:
        ServiceUnavailableError: (17) it was answered as the specification has it.
    """
    answer = http.request(method, path)
    if answer.status_code == 200:
        return True
    assert (answer.status_code, answer.json()["code"]) == (503, 17), answer.text
    refusals.append(answer.status_code)
    raise ServiceUnavailableError(answer.json()["error"])
