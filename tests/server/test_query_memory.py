"""The memory of all queries together: which of them end, and that others are answered meanwhile."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import lance
import lance_namespace as api
import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError
from server import query_methods
from server.gateways import GatewayProcess, done, operation_named, refused
from servers.processes import wait_until

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.transaction_versions import VersionChanges
from lance_bridge_server.operations import Operation
from lance_bridge_server.queries.memory import find_crowding, find_excess, own_memory
from lance_bridge_server.queries.pool import QueryProcesses, QuerySettings
from lance_bridge_server.queries.process import Query
from lance_bridge_server.queries.runs import Run

pytestmark = pytest.mark.spec("server.md#queries")

MIB = 1 << 20
READ, WRITE = operation_named("query_table"), operation_named("update_table")


class Sized(NamedTuple):
    """A process as `find_excess` sees it."""

    number: int
    owner: str


def sized(*sizes: tuple[str, int]) -> dict[Sized, int]:
    return {Sized(number, owner): size for number, (owner, size) in enumerate(sizes)}


# -- which queries end -----------------------------------------------------------------------------


@pytest.mark.quick
def test_nothing_ends_while_all_queries_take_as_much_as_they_may() -> None:
    assert find_excess(100, sized(("", 20)), sized(("ada", 80))) == []


@pytest.mark.quick
def test_the_largest_query_of_the_principal_that_takes_most_ends() -> None:
    running = sized(("many", 30), ("many", 40), ("many", 20), ("one", 50))
    assert find_excess(130, {}, running) == [Sized(1, "many")]


@pytest.mark.quick
def test_processes_without_a_query_end_first() -> None:
    idle = {Sized(8, "ada"): 10, Sized(9, "ada"): 30}
    assert find_excess(100, idle, sized(("ada", 80))) == [Sized(9, "ada")]


@pytest.mark.quick
@given(
    running=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100)), max_size=12),
    most=st.integers(1, 300),
)
def test_no_query_of_a_principal_below_its_part_ends(
    running: list[tuple[str, int]], most: int
) -> None:
    left = sized(*running)
    for each in find_excess(most, {}, left):
        taken = Counter[str]()
        for process, size in left.items():
            taken[process.owner] += size
        assert taken[each.owner] * len(taken) > most
        del left[each]
    assert sum(left.values()) <= most


@pytest.mark.quick
@pytest.mark.parametrize(
    ("running", "found"),
    [
        ([], set()),
        ([("many", 70)], set()),
        ([("many", 80)], {"many"}),
        ([("many", 70), ("one", 10)], {"many"}),
        ([("many", 40), ("one", 40)], {"many", "one"}),
    ],
)
def test_a_principal_whose_queries_fill_the_memory_waits(
    running: list[tuple[str, int]], found: set[str]
) -> None:
    assert find_crowding(100, sized(*running)) == found


# -- processes -------------------------------------------------------------------------------------


class Queries:
    """Queries of several principals at once, which take memory and keep it until they may end."""

    def __init__(self, directory: Path, total_bytes: int) -> None:
        self.ended: list[str] = []
        self.processes = QueryProcesses(
            QuerySettings(processes=8, kept=1, memory_bytes=1 << 30, total_memory_bytes=total_bytes)
        )
        self.processes.on_end = self.ended.append
        self._directory = directory
        self._source = pickle.dumps(partial(query_methods.lake, str(directory)))
        self._threads = ThreadPoolExecutor(8)
        self._names = iter(range(100))

    def start(self, owner: str, size: int, **more: Any) -> Held:
        """Begin a query, and return when it has its memory, or has failed."""
        file = self._directory / f"query-{next(self._names)}"
        held = Held(self._threads.submit(self.run, owner, size, file, **more), file)
        wait_until(lambda: held.future.done() or any(file.parent.glob(f"{file.name}.*")))
        return held

    def run(
        self,
        owner: str,
        size: int,
        until: Path,
        *,
        operation: Operation = READ,
        wait: float = 120,
        is_kept: bool = False,
    ) -> int:
        """Run a query that takes memory until a file exists; return the number of its process."""
        method = partial(query_methods.hold_memory, size=size, until=until, is_kept=is_kept)
        request = api.DescribeTableRequest(id=["t"])
        query = Query(self._source, operation, request, owner, method=method)
        found: int = self.processes.run(query, Run(wait), None, VersionChanges())
        return found

    def run_small(self, owner: str, wait: float = 120) -> int:
        """Run a query that ends at once."""
        return self.run(owner, 0, self._directory, wait=wait)

    def close(self) -> None:
        self._threads.shutdown()
        self.processes.close()


class Held(NamedTuple):
    """A query that has its memory, or has failed."""

    future: Future[int]
    file: Path

    def end(self) -> int:
        """Let the query end, and return the number of its process."""
        self.file.touch()
        return self.future.result(60)


@pytest.fixture
def queries(tmp_path: Path) -> Iterator[Queries]:
    made = Queries(tmp_path, 600 * MIB)
    yield made
    made.close()


@pytest.mark.servers
@pytest.mark.parametrize(
    ("operation", "error", "words"),
    [
        (READ, InvalidInputError, "took more than 0.6 GiB of memory.*send fewer queries"),
        (WRITE, OutcomeUnknownError, "took more than 0.6 GiB of memory.*is unknown"),
    ],
    ids=["read", "write"],
)
def test_the_largest_query_ends_when_all_take_too_much(
    queries: Queries, operation: Operation, error: type[Exception], words: str
) -> None:
    kept = [queries.start("many", 150 * MIB), queries.start("one", 150 * MIB)]
    largest = queries.start("many", 400 * MIB, operation=operation)
    try:
        with pytest.raises(error, match=words):
            largest.future.result(60)
    finally:
        largest.file.touch()
        numbers = [each.end() for each in kept]
    assert all(numbers)
    assert queries.ended == ["memory"]


@pytest.mark.servers
def test_what_processes_share_is_not_counted(queries: Queries) -> None:
    """Each has some 200 MB of the process that it was forked from."""
    running = [queries.start(owner, 30 * MIB) for owner in ("ada", "bob") for _ in range(4)]
    assert len({each.end() for each in running}) == 8
    assert not queries.ended


@pytest.mark.servers
def test_a_process_without_a_query_ends_before_a_query_does(queries: Queries) -> None:
    kept = [queries.start("ada", 200 * MIB, is_kept=True) for _ in range(2)]
    idle = {each.end() for each in kept}
    assert len(idle) == 2
    large = queries.start("ada", 250 * MIB)
    used = {each for each in idle if psutil.pid_exists(each)}
    wait_until(lambda: sum(map(psutil.pid_exists, idle)) < 2)
    number = large.end()
    assert number in idle
    assert number in used
    assert not queries.ended


@pytest.mark.servers
def test_a_principal_whose_queries_fill_the_memory_begins_no_other(queries: Queries) -> None:
    large = queries.start("many", 500 * MIB)
    try:
        wait_until(lambda: queries.processes._crowding == {"many"})
        with pytest.raises(ServiceUnavailableError, match="nothing was changed"):
            queries.run_small("many", wait=1)
        assert queries.run_small("one")
    finally:
        number = large.end()
    assert number
    assert queries.run_small("many")
    assert not queries.ended


# -- a gateway -------------------------------------------------------------------------------------


TOTAL = 800 * MIB
LARGEST = 450 * MIB
CONFIGURATION = """
catalogs: {{lake: {{impl: dir, root: '{root}'}}}}
authentication: [{{method: proxy, networks: ['127.0.0.0/8'], header: x-user}}]
queries: {{processes: 8, kept: 1, memory_bytes: {memory}, total_memory_bytes: {total}}}
"""
TABLE = "/v1/table/lake$t"
TERMS = " or ".join(f"length(concat(repeat(word, 100), 'n{i}')) < 0" for i in range(8))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    rows = pa.table({"id": range(8192), "word": ["w" * 256] * 8192})
    lance.write_dataset(rows, str(tmp_path / "lake" / "t.lance"))
    file = tmp_path / "server.yaml"
    file.write_text(CONFIGURATION.format(root=tmp_path / "lake", memory=1 << 30, total=TOTAL))
    with GatewayProcess(tmp_path / "log", "--config", str(file)) as process:
        yield process


def sizes_of_queries(gateway: GatewayProcess) -> list[int]:
    """Return the sizes of a gateway's query processes."""
    parents = dict[int, int]()
    for each in psutil.Process(gateway.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            parents[each.pid] = each.ppid()
    servers = set(parents.values()) - {gateway.pid}
    return [own_memory(pid) for pid, parent in parents.items() if parent in servers]


@pytest.mark.servers
def test_large_queries_of_one_principal_end_and_others_are_answered(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    """Each of the six takes up to 412 MiB at the same time as the others, several times."""
    found = Found()
    with ThreadPoolExecutor(8) as threads:
        large = [threads.submit(count_large, gateway) for _ in range(6)]
        while not all(each.done() for each in large):
            found.size = max(found.size, sum(sizes_of_queries(gateway)))
            ask_little(gateway, found)
        responses = [each.result() for each in large]
    ended = [each for each in responses if each.status_code != 200]
    assert 1 <= len(ended) < 6
    for each in ended:
        assert "all queries took more than 0.8 GiB" in refused(each, 400, 13)
    assert found.size < TOTAL + LARGEST
    assert found.count > 3
    assert found.longest_describe < 1.0
    metrics = httpx.get(f"{gateway.url}/metrics", headers={"x-user": "one"}).text
    counted = f'lance_bridge_query_process_ends_total{{reason="memory"}} {len(ended)}.0'
    assert counted in metrics.splitlines()
    assert "Traceback" not in (tmp_path / "log").read_text()


@dataclass
class Found:
    """What was seen while large queries ran."""

    size: int = 0
    count: int = 0
    longest_describe: float = 0.0


def count_large(gateway: GatewayProcess) -> httpx.Response:
    url, user = f"{gateway.url}{TABLE}/count_rows", {"x-user": "many"}
    return httpx.post(url, json={"predicate": TERMS}, headers=user, timeout=200)


def ask_little(gateway: GatewayProcess, found: Found) -> None:
    """Describe the table and query it, as another principal."""
    with httpx.Client(base_url=gateway.url, headers={"x-user": "one"}, timeout=60) as http:
        begin = time.monotonic()
        done(http.post(f"{TABLE}/describe", json={}))
        found.longest_describe = max(found.longest_describe, time.monotonic() - begin)
        query = {"vector": {}, "k": 5, "filter": "id >= 3"}
        response = http.post(f"{TABLE}/query", json=query)
        assert response.status_code == 200, response.text
        assert pa.ipc.open_file(response.content).read_all().num_rows == 5
        found.count += 1
