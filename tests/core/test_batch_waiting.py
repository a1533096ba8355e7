"""How long a writer waits for the batch of another client, by a clock that only waiting moves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from lance_bridge.managed import compare_and_set, recovery
from lance_bridge.managed.intents import Intent, Outcome
from lance_bridge.managed_state import State
from lance_bridge.table import Table

from .building import at, start_server
from .interleaving import MemoryFiles
from .memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace
from .test_batch_interleavings import new_entry

pytestmark = [pytest.mark.quick, pytest.mark.spec("managed.md#the-steps-of-a-batch")]

TABLES = 60
NAMES = [f"t{number:02}" for number in range(TABLES)]
LONGEST = recovery.STALLED_SECONDS + 3 * recovery.POLL_SECONDS


@dataclass
class Clock:
    """What takes the place of the module `time`; ``act`` is called whenever a client waits."""

    now: float = 0.0
    act: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        """Return the seconds that were waited."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Wait, and let another client do something."""
        self.now += seconds
        self.act()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which a writer waits for a batch."""
    clock = Clock()
    monkeypatch.setattr(recovery, "time", clock)
    return clock


class Batch:
    """A batch over all tables, whose client does one step when it is asked to."""

    def __init__(self, name: str) -> None:
        self._tables = MemoryNamespace(uri=name, root="/lake").tables
        self.intent = Intent.new(self.load(0))
        self.prepared = 0

    def load(self, number: int) -> Table:
        return self._tables.load(at(NAMES[number]))

    def write(self) -> None:
        self.intent.write([at(name) for name in NAMES])

    def prepare(self, count: int = 1) -> None:
        """Prepare the next entries."""
        for number in range(self.prepared, self.prepared + count):
            staged = self.intent.prepared(f"{number}.manifest-{uuid.uuid4()}")
            compare_and_set.swap(self.load(number), State(0).prepare(staged))
        self.prepared += count

    def states(self) -> set[tuple[int, bool]]:
        """Return which versions the entries have, and whether any has a prepared one."""
        found = [self.load(number).managed_state() for number in range(TABLES)]
        return {(each.version, each.prepared is not None) for each in found}


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Batch]:
    """A batch whose record is written."""
    name = f"waiting-{uuid.uuid4()}"
    server = start_server(name, replace(CAPABILITIES, no_alter=""))
    server.tables |= {at(each): new_entry(each) for each in NAMES}
    MemoryFiles().install(monkeypatch)
    made = Batch(name)
    made.write()
    yield made
    del SERVERS[name]


@pytest.mark.parametrize("prepared", [1, 2, 31, TABLES])
def test_a_dead_client_is_waited_for_as_long_whatever_the_number_of_tables(
    prepared: int, batch: Batch, clock: Clock
) -> None:
    batch.prepare(prepared)
    recovery.settle(batch.load(0))
    assert recovery.STALLED_SECONDS < clock.now < LONGEST
    assert batch.states() == {(0, False)}


def test_a_client_that_makes_progress_is_waited_for(batch: Batch, clock: Clock) -> None:
    def go_on() -> None:
        if batch.prepared < TABLES:
            batch.prepare()
        else:
            batch.intent.decide(Outcome.COMMITTED)

    batch.prepare()
    clock.act = go_on
    recovery.settle(batch.load(0))
    assert clock.now > recovery.STALLED_SECONDS
    assert batch.states() == {(1, False)}


def test_a_client_that_dies_on_its_way_is_waited_for_from_its_last_progress(
    batch: Batch, clock: Clock
) -> None:
    ends = 4.0

    def go_on() -> None:
        if clock.now < ends:
            batch.prepare()

    batch.prepare()
    clock.act = go_on
    recovery.settle(batch.load(0))
    assert recovery.STALLED_SECONDS < clock.now < ends + LONGEST
    assert batch.states() == {(0, False)}


def test_a_client_that_is_far_too_slow_is_aborted_in_spite_of_its_progress(
    batch: Batch, clock: Clock
) -> None:
    def go_on() -> None:
        clock.now += 1.0
        batch.prepare()

    batch.prepare()
    clock.act = go_on
    recovery.settle(batch.load(0))
    limit = recovery.STALLED_SECONDS + recovery.SECONDS_PER_TABLE * TABLES
    assert limit < clock.now < limit + 3
    assert batch.states() == {(0, False)}


def test_few_entries_are_read_to_see_how_far_a_client_is(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.prepare(40)
    table = batch.load(0)
    reads: list[Any] = []
    monkeypatch.setattr(type(table.connection), "find_table", counted(reads))
    progress = recovery._Progress(table.connection, batch.intent)
    paths = [at(name) for name in NAMES]
    assert progress._count_prepared(paths) == 40
    assert len(reads) < 10


def counted(reads: list[Any]) -> Callable[..., Any]:
    """Return `Connection.find_table` that writes down its calls."""

    def find_table(connection: Any, path: Any) -> Any:
        reads.append(path)
        return connection.catalog.load_table(path)

    return find_table
