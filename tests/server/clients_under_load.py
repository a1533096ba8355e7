"""Clients that write and read one table through a gateway, whatever happens to the gateway.

Each writer appends rows of its own, one a commit. After a failure that says nothing of its outcome
it looks for its row, and repeats only if the row is missing: what every user has to do.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
from lance.namespace import RestNamespace
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    ServiceUnavailableError,
)
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from lancedb.remote.errors import HttpError, RetryError

from lance_bridge.testing.build import ipc

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
