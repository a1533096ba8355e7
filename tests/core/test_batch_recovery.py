"""Batches whose client died or is slow: readers never see half, and the next writer goes on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from threading import Event, Thread
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.managed import batches, compare_and_set
from lance_bridge.managed.batches import BatchRecord, Outcome
from lance_bridge.managed_state import PreparedVersion, State
from lance_bridge.storage.store import TableFiles
from lance_bridge.table import Table

from .interleaving import MemoryFiles, new_entry
from .managed_tables import (
    HOME,
    OTHER,
    THIRD,
    Death,
    DyingClient,
    another,
    batch_files,
    create_all,
    create_and_stage,
    create_managed_tables,
    die,
    insert,
    rows,
    stage_all,
    state,
)
from .memory_catalog import (
    CAPABILITIES,
    SERVERS,
    MemoryNamespace,
    MemoryServer,
    at,
    count_rows,
    directory,
    numbers,
    raiser,
    start_server,
)

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able", "impatient"),
    pytest.mark.spec("managed.md#failure-cases-of-batches", "managed.md#the-steps-of-a-batch"),
]

TABLES = [HOME, OTHER, THIRD]
BEFORE, AFTER = [0, 1, 2], [0, 1, 2, 100]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have stalled batches aborted soon."""
    monkeypatch.setattr(batches, "STALLED_SECONDS", 0.05)
    monkeypatch.setattr(batches, "SECONDS_PER_TABLE", 0.0)
    monkeypatch.setattr(batches, "POLL_SECONDS", 0.01)


def seen(ns: MemoryNamespace) -> list[list[int]]:
    """Return the rows of all tables, as a client reads them that has met none before."""
    return [rows(another(ns), each) for each in TABLES]


@pytest.mark.spec("managed.md#invariants-of-batches")
def test_a_batch_whose_client_dies_at_any_step_is_made_whole_or_not_at_all(
    namespace: MemoryNamespace,
) -> None:
    pair, outcomes = [HOME, OTHER], []
    for steps in count():
        create_managed_tables(namespace, *pair)
        entries = stage_all(namespace, *pair)
        with pytest.MonkeyPatch.context() as patch:
            client = DyingClient(namespace.server, patch, steps)
            with suppress(Death):
                create_all(another(namespace), entries)
        namespace.server.fault = None
        found = [rows(another(namespace), each) for each in pair]
        assert found in ([BEFORE] * 2, [AFTER] * 2), steps
        outcomes.append(found[0])
        for each in reversed(pair):
            insert(namespace, each)
            assert state(namespace, each).prepared is None
            assert rows(namespace, each) == sorted([0, *found[0]])
            namespace.drop_table(api.DropTableRequest(id=each))
        if client.left >= 0:
            break
    began = outcomes.index(AFTER)
    assert outcomes == [BEFORE] * began + [AFTER] * (len(outcomes) - began)
    assert 0 < began < len(outcomes) - len(pair)


# -- batches that are left in one of their states --------------------------------------------------


@pytest.fixture(params=[BEFORE, AFTER], ids=["undecided", "committed"])
def left(
    request: pytest.FixtureRequest, namespace: MemoryNamespace, able: MemoryServer
) -> list[int]:
    """The rows of each table of a batch whose client died before or after its outcome."""
    is_committed = request.param == AFTER
    entries = create_and_stage(namespace, *TABLES)
    steps = [len(TABLES) + is_committed]

    def fault(change: str, moment: str) -> None:
        if change == "alter_table":
            steps[0] -= moment == ("before" if is_committed else "after")
            if steps[0] <= 0:  # no thread of the client goes on
                die()

    able.fault = fault
    with pytest.raises(Death):
        create_all(another(namespace), entries)
    able.fault = None
    assert all(state(able, each).prepared for each in TABLES)
    assert len(batch_files(able, HOME)) == 1 + is_committed
    return list(request.param)


def test_readers_change_no_entry_and_agree(namespace: MemoryNamespace, left: list[int]) -> None:
    before = dict(namespace.server.tables)
    for each in TABLES:
        assert rows(namespace, each) == left
        assert numbers(namespace, each) == list(range(1, len(left) - 1))
        assert count_rows(namespace, each) == len(left)
        version = api.DescribeTableVersionRequest(id=each)
        assert namespace.describe_table_version(version).version.version == len(left) - 2
    assert namespace.server.tables == before


def test_a_reader_that_may_not_write_sees_what_is_committed(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    for name in ("put_new", "put_over", "remove"):
        read_only = raiser(errors.PermissionDeniedError("read only"))
        monkeypatch.setattr(TableFiles, name, read_only)
    assert seen(namespace) == [left] * 3


def test_pylance_writes_after_a_batch_that_was_left(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    dataset = lance.dataset(namespace_client=namespace, table_id=OTHER)
    dataset.insert(pa.table({"a": [7]}))
    assert rows(namespace, OTHER) == sorted([*left, 7])


def test_a_table_that_a_batch_has_left_is_renamed(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    namespace.rename_table(api.RenameTableRequest(id=HOME, new_table_name="z"))
    renamed = [*HOME[:-1], "z"]
    assert state(namespace, renamed).prepared is None
    found = [rows(namespace, each) for each in (renamed, OTHER, THIRD)]
    assert found == [left] * 3


def test_a_table_that_a_batch_has_left_is_released(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    namespace.release_table(HOME)
    assert seen(namespace) == [left] * 3


def test_a_table_that_a_batch_has_left_is_deregistered_with_all_its_versions(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    place = directory(namespace, HOME)
    namespace.deregister_table(api.DeregisterTableRequest(id=HOME))
    assert sorted(lance.dataset(str(place)).to_table()["a"].to_pylist()) == left
    assert [rows(namespace, each) for each in (OTHER, THIRD)] == [left] * 2


def test_a_table_with_the_record_of_a_batch_is_dropped_after_the_batch_is_finished(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    place = directory(namespace, HOME)
    namespace.drop_table(api.DropTableRequest(id=HOME))
    assert not (place / "_versions").exists()
    assert [state(namespace, each).prepared for each in (OTHER, THIRD)] == [None] * 2
    assert [rows(namespace, each) for each in (OTHER, THIRD)] == [left] * 2


@pytest.mark.usefixtures("left")
def test_a_table_is_dropped_with_the_records_of_its_batches(namespace: MemoryNamespace) -> None:
    insert(namespace, THIRD)  # the record stays where its client died
    assert len(batch_files(namespace, HOME)) == 2
    place = directory(namespace, HOME)
    namespace.drop_table(api.DropTableRequest(id=HOME))
    assert not place.exists()


def test_the_clean_up_of_lance_keeps_the_record(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    before = batch_files(namespace, HOME)
    dataset = lance.dataset(namespace_client=namespace, table_id=HOME)
    dataset.cleanup_old_versions(older_than=timedelta(0))
    assert batch_files(namespace, HOME) == before
    assert seen(namespace) == [left] * 3


def test_properties_change_while_a_batch_is_left(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    namespace.tables.load(tuple(OTHER)).set_properties({"team": "search"})
    assert namespace.server.tables[tuple(OTHER)].properties["team"] == "search"
    assert state(namespace, OTHER).prepared is not None
    assert seen(namespace) == [left] * 3


def test_the_next_batch_finishes_the_one_that_was_left(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    assert seen(namespace) == [left] * 3
    entries = stage_all(namespace, THIRD, OTHER)
    assert create_all(namespace, entries) == [len(left) - 1] * 2
    assert state(namespace, HOME).prepared is None
    assert rows(namespace, OTHER) == rows(namespace, THIRD) == sorted([*left, 100])


# -- slow clients ----------------------------------------------------------------------------------


def meanwhile_at_outcome(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have something happen before the client of a batch writes the outcome."""
    decide = BatchRecord.decide

    def slow(intent: BatchRecord, wanted: Outcome) -> Outcome | None:
        if wanted is Outcome.COMMITTED:
            act()
        return decide(intent, wanted)

    patch.setattr(BatchRecord, "decide", slow)


@pytest.mark.spec("operations.md#batchcreatetableversions")
def test_a_batch_that_others_have_aborted_is_not_committed(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = create_and_stage(namespace, *TABLES)
    meanwhile_at_outcome(monkeypatch, lambda: insert(another(namespace), OTHER))
    with pytest.raises(errors.ConcurrentModificationError):
        create_all(namespace, entries)
    assert seen(namespace) == [BEFORE, [0, *BEFORE], BEFORE]
    assert [state(namespace, each).prepared for each in TABLES] == [None] * 3


def test_a_batch_is_waited_for_before_it_is_aborted(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def await_outcome(*args: Any) -> Any:
        is_waiting.set()
        return await_outcome_of(*args)

    def write() -> None:
        writer.start()
        assert is_waiting.wait(timeout=30)

    entries = create_and_stage(namespace, *TABLES)
    is_waiting, await_outcome_of = Event(), batches._await_outcome
    monkeypatch.setattr(batches, "_await_outcome", await_outcome)
    monkeypatch.setattr(batches, "STALLED_SECONDS", 60.0)
    writer = Thread(target=insert, args=(another(namespace), OTHER))
    meanwhile_at_outcome(monkeypatch, write)
    assert create_all(namespace, entries) == [2, 2, 2]
    writer.join()
    assert seen(namespace) == [AFTER, [0, *AFTER], AFTER]


# -- records that are gone or broken ---------------------------------------------------------------


def spoil(ns: MemoryNamespace, name: str, content: bytes | None) -> None:
    """Remove or overwrite the files of all batches that have an ending."""
    for path in (directory(ns, HOME) / "_transactions").glob(f"*.{name}.batch.json"):
        path.unlink() if content is None else path.write_bytes(content)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"perhaps"])
def test_a_batch_whose_outcome_cannot_be_known_is_neither_committed_nor_aborted(
    namespace: MemoryNamespace, content: bytes | None, left: list[int]
) -> None:
    if content is None:
        spoil(namespace, "record", None)
        spoil(namespace, "outcome", None)
    else:
        spoil(namespace, "record" if left == BEFORE else "outcome", content)
    before = dict(namespace.server.tables)
    for act in (count_rows, insert):
        with pytest.raises(errors.LanceNamespaceError, match="unknown") as caught:
            act(namespace, OTHER)
        assert caught.value.code == errors.ErrorCode.INVALID_TABLE_STATE
    assert namespace.server.tables == before
    location = str(directory(namespace, OTHER))
    namespace.deregister_table(api.DeregisterTableRequest(id=OTHER))
    namespace.register_table(api.RegisterTableRequest(id=OTHER, location=location))
    assert rows(namespace, OTHER) == BEFORE


def test_a_storage_that_does_not_answer_is_no_outcome(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    read = TableFiles.read

    def failing(files: TableFiles, path: str) -> bytes | None:
        if path.startswith("_transactions/"):
            raise errors.ServiceUnavailableError("away")
        return read(files, path)

    before = dict(namespace.server.tables)
    with monkeypatch.context() as patch:
        patch.setattr(TableFiles, "read", failing)
        for act in (
            lambda: insert(namespace, OTHER),
            lambda: namespace.drop_table(api.DropTableRequest(id=OTHER)),
            lambda: namespace.deregister_table(api.DeregisterTableRequest(id=OTHER)),
        ):
            with pytest.raises(errors.ServiceUnavailableError, match="away"):
                act()
    assert namespace.server.tables == before
    assert seen(namespace) == [left] * 3


def test_a_participant_that_was_dropped_by_others_does_not_stop_the_rest(
    namespace: MemoryNamespace, left: list[int]
) -> None:
    del namespace.server.tables[tuple(THIRD)]
    insert(namespace, OTHER)
    assert rows(namespace, HOME) == left
    assert state(namespace, HOME).prepared is None


# -- how long a writer waits, by a clock that only waiting moves ----------------------------------

MANY = 60
NAMES = [f"t{number:02}" for number in range(MANY)]
PATIENT = {
    name: getattr(batches, name)
    for name in ("STALLED_SECONDS", "SECONDS_PER_TABLE", "POLL_SECONDS")
}
LONGEST = batches.STALLED_SECONDS + 3 * batches.POLL_SECONDS


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
    for name, value in {**PATIENT, "time": clock}.items():
        monkeypatch.setattr(batches, name, value)
    return clock


class Batch:
    """A batch over all tables, whose client does one step when it is asked to."""

    def __init__(self, name: str) -> None:
        self._tables = MemoryNamespace(uri=name, root="/lake").tables
        self.intent = BatchRecord.new(self.load(0))
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
        found = [self.load(number).managed_state() for number in range(MANY)]
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


@pytest.mark.parametrize("prepared", [1, 2, 31, MANY])
def test_a_dead_client_is_waited_for_as_long_whatever_the_number_of_tables(
    prepared: int, batch: Batch, clock: Clock
) -> None:
    batch.prepare(prepared)
    batches.resolve_batch(batch.load(0))
    assert batches.STALLED_SECONDS < clock.now < LONGEST
    assert batch.states() == {(0, False)}


def test_a_client_that_makes_progress_is_waited_for(batch: Batch, clock: Clock) -> None:
    def go_on() -> None:
        if batch.prepared < MANY:
            batch.prepare()
        else:
            batch.intent.decide(Outcome.COMMITTED)

    batch.prepare()
    clock.act = go_on
    batches.resolve_batch(batch.load(0))
    assert clock.now > batches.STALLED_SECONDS
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
    batches.resolve_batch(batch.load(0))
    assert batches.STALLED_SECONDS < clock.now < ends + LONGEST
    assert batch.states() == {(0, False)}


def test_a_client_that_is_far_too_slow_is_aborted_in_spite_of_its_progress(
    batch: Batch, clock: Clock
) -> None:
    def go_on() -> None:
        clock.now += 1.0
        batch.prepare()

    batch.prepare()
    clock.act = go_on
    batches.resolve_batch(batch.load(0))
    limit = batches.STALLED_SECONDS + batches.SECONDS_PER_TABLE * MANY
    assert limit < clock.now < limit + 3
    assert batch.states() == {(0, False)}


def test_few_entries_are_read_to_see_how_far_a_client_is(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.prepare(40)
    table = batch.load(0)
    reads: list[Any] = []

    def find_table(connection: Any, path: Any) -> Any:
        reads.append(path)
        return connection.catalog.load_table(path)

    monkeypatch.setattr(type(table.connection), "find_table", find_table)
    progress = batches._Progress(table.connection, batch.intent)
    paths = [at(name) for name in NAMES]
    assert progress._count_prepared(paths) == 40
    assert len(reads) < 10


# -- the entry -------------------------------------------------------------------------------------

PREPARED = PreparedVersion(
    "0" * 8 + "-0000" * 3 + "-" + "0" * 12, ("a", "b"), "/lake/b", "x.manifest-1"
)


def test_a_prepared_version_is_kept_in_the_entry() -> None:
    prepared = State(4, "y.manifest-1").prepare(PREPARED)
    assert State.from_text(prepared.to_text()) == prepared
    assert prepared.with_outcome(committed=True) == State(5, "x.manifest-1")
    assert prepared.with_outcome(committed=False) == State(4, "y.manifest-1")


@pytest.mark.parametrize(
    "wrong", [{"batch": "../x"}, {"staged": "a/b"}, {"staged": ""}, {"location": ""}, {"table": ()}]
)
def test_a_prepared_version_that_is_none_of_ours_is_not_parsed(wrong: dict[str, object]) -> None:
    bad = replace(PREPARED, **wrong)  # type: ignore[arg-type]  # of any field
    with pytest.raises(ValueError, match=r"\{.*\}"):
        State.from_text(State(4).prepare(bad).to_text())
