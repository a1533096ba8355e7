"""Batches, single commits, readers and deaths in any order of their steps: models of the protocol.

After every turn, the versions of each batch are in all of its tables or in none; what was answered
is true; and nothing that was seen is taken back. In a second model, other clients drop, deregister,
rename or release the tables, or write past them. There, this holds for a table under any name, and
for what is left of it: its versions in the storage once it is released or deregistered, and what
was last seen of it once it is dropped.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from lance_namespace import errors

from lance_bridge import managed_state
from lance_bridge.catalog import Path, TableRecord
from lance_bridge.dataset import transactions, versions
from lance_bridge.errors import OutcomeUnknownError, table_not_found
from lance_bridge.managed import compare_and_set, conversion, out_of_band
from lance_bridge.managed.batches import latest_state
from lance_bridge.managed_state import State, as_managed, parse_state
from lance_bridge.records import LANCE, TABLE_TYPE
from lance_bridge.storage.lance_files import divide
from lance_bridge.storage.manifests import Scheme, Staged, name_of, parse_name
from lance_bridge.storage.store import TableFiles, TableStorage
from lance_bridge.table import Table
from lance_bridge.tables import dropping, rename

from .interleaving import Client, MemoryFiles, install_steps, manifest, mark_of, step
from .managed_tables import MANAGED, Death
from .memory_catalog import (
    CAPABILITIES,
    REVISION,
    SERVERS,
    MemoryNamespace,
    MemoryServer,
    at,
    start_server,
)

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "managed.md#failure-cases-of-batches",
        "managed.md#invariants-of-batches",
        "managed.md#states-of-a-batch",
        "managed.md#the-record-of-a-batch",
        "managed.md#the-steps-of-a-commit",
    ),
]

NAMES = ("a", "b", "c")
SOME = st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True)
ONE = st.sampled_from(NAMES)
TURNS = st.one_of(st.integers(1, 4), st.integers(1, 40))
MANY = int(os.environ.get("LANCE_BRIDGE_TEST_EXAMPLES", "300"))
"""How many sequences of turns the slow tests try."""
FAR = 100
"""More steps than a client takes to the outcome of a batch."""


@dataclass
class Writer:
    """A client that commits to one table or to several."""

    client: Client
    mark: str
    tables: Sequence[str]


@dataclass
class Reader:
    """A client that reads one table after the other, and what it has seen of each."""

    client: Client
    seen: dict[str, list[str]] = field(default_factory=dict)


class Batches(RuleBasedStateMachine):
    """Clients of three tables that take turns."""

    clients = Bundle("clients")

    @initialize()
    def begin(self) -> None:
        """Begin with three managed tables without a version."""
        self.patch = pytest.MonkeyPatch()
        self.name = f"batches-{uuid.uuid4()}"
        self.server = start_server(self.name, replace(CAPABILITIES, no_alter=""))
        for name in NAMES:
            self.server.tables[at(name)] = new_entry(name)
        self.files = MemoryFiles()
        self.files.install(self.patch)
        install_steps(self.patch, self.server)
        self.tables = MemoryNamespace(uri=self.name, root="/lake").tables
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self.last: dict[str, list[str]] = {name: [] for name in NAMES}

    # -- clients -------------------------------------------------------------------------------

    @rule(target=clients, names=SOME)
    def begin_batch(self, names: list[str]) -> Client:
        return self.start(names)

    @rule(target=clients, name=ONE)
    def begin_commit(self, name: str) -> Client:
        return self.start([name])

    @rule(target=clients, names=st.permutations(NAMES))
    def begin_reading(self, names: Sequence[str]) -> Client:
        seen: dict[str, list[str]] = {}

        def read() -> None:
            for name in names:
                self._read(name, seen)

        reader = Reader(Client(read), seen)
        self.readers.append(reader)
        return reader.client

    def _read(self, name: str, seen: dict[str, list[str]]) -> None:
        seen[name] = self._history(name)

    @rule(client=clients, turns=TURNS)
    def go_on(self, client: Client, turns: int) -> None:
        for _ in range(turns):
            client.go()
            self.require_all_or_nothing()

    @rule(client=clients)
    def go_on_to_an_outcome(self, client: Client) -> None:
        """Let it go on until it is about to read or write the outcome of a batch."""
        for turn in range(FAR):
            if turn and client.next_file.endswith(".outcome.batch.json"):
                break
            self.go_on(client, 1)

    @rule(client=clients)
    def go_on_to_its_end(self, client: Client) -> None:
        client.finish()

    @rule(client=clients)
    def die(self, client: Client) -> None:
        client.die()

    @rule(client=clients, moment=st.sampled_from(["before", "after"]), turns=TURNS)
    def lose_the_next_reply(self, client: Client, moment: Any, turns: int) -> None:
        client.loses = moment
        self.go_on(client, turns)

    def start(self, names: Sequence[str]) -> Client:
        """Begin a batch, or a commit to one table."""
        mark = f"{len(self.writers)}-{'-'.join(names)}"
        writer = Writer(Client(lambda: self._commit(names, mark)), mark, names)
        self.writers.append(writer)
        return writer.client

    def _commit(self, names: Sequence[str], mark: str) -> None:
        wanted = []
        for name in names:
            table = self._load(name)
            version = versions_of(table) + 1
            path = f"_versions/{name_of(version, Scheme.V2)}-{uuid.uuid4()}"
            self.files.put_new(table.location, path, manifest(version, mark))
            directory = versions.directory_of(table)
            wanted.append((table, Staged(version, f"{directory.path}/{path.rpartition('/')[2]}")))
        transactions.create_versions(wanted)

    def _load(self, name: str) -> Table:
        return self.tables.load(at(name))

    # -- what holds ----------------------------------------------------------------------------

    @invariant()
    def require_all_or_nothing(self) -> None:
        """The versions of each writer are in all of its tables or in none, and each once."""
        if not hasattr(self, "writers"):
            return
        now = {name: self._history(name) for name in NAMES}
        for name in NAMES:
            assert now[name][: len(self.last[name])] == self.last[name], "a version was taken back"
        self.last = now
        for writer in self.writers:
            counts = {now[name].count(writer.mark) for name in writer.tables}
            assert counts in ({0}, {1}), f"half of {writer.mark} is seen: {now}"
            self._require_true_answer(writer, is_seen=counts == {1})
        for reader in self.readers:
            self._require_whole_batches(reader)

    def _require_true_answer(self, writer: Writer, *, is_seen: bool) -> None:
        if not writer.client.is_done:
            return
        error = writer.client.error
        if error is None:
            assert is_seen, f"{writer.mark} was acknowledged, and is not there"
        elif not isinstance(error, (Death, OutcomeUnknownError)):
            assert isinstance(error, errors.LanceNamespaceError), error
            assert not is_seen, f"{writer.mark} was refused, and is there: {error}"

    def _require_whole_batches(self, reader: Reader) -> None:
        """What a reader has seen in one table it sees in those that it reads afterwards."""
        assert reader.client.error is None or isinstance(reader.client.error, Death)
        marks: set[str] = set()
        for name, seen in reader.seen.items():
            missing = {m for m in marks if name in m.split("-")[1:]} - set(seen)
            assert not missing, f"{name} lacks {missing}"
            marks |= set(seen)

    def _history(self, name: str) -> list[str]:
        """Return the marks of a table's versions, as a client reads them that may not write."""
        return history_of(self.tables.load(at(name)))

    def teardown(self) -> None:
        """Let all clients end, and write to each table once more."""
        if not hasattr(self, "writers"):
            return
        try:
            writers = [each.client for each in self.writers]
            for client in [*writers, *(each.client for each in self.readers)]:
                client.finish()
                self.require_all_or_nothing()
            self._require_end()
        finally:
            self.patch.undo()
            del SERVERS[self.name]

    def _require_end(self) -> None:
        """Write to each table once more."""
        for name in NAMES:
            self._commit_to(name)
            self.require_all_or_nothing()
        self._require_no_batch()

    def _require_no_batch(self) -> None:
        for record in self.server.tables.values():
            state = parse_state(record)
            assert state is None or state.prepared is None

    def _commit_to(self, name: str) -> None:
        mark = f"last-{name}"
        self._commit([name], mark)
        assert self._history(name)[-1] == mark


def versions_of(table: Table) -> int:
    """Return the latest version, also of a table that its storage manages."""
    if table.managed is None:
        return table.latest_in_storage()
    return latest_state(table).version


def history_of(table: Table) -> list[str]:
    """Return the marks of a managed table's versions, as a client reads them without writing."""
    state, files = latest_state(table), table.files()
    found = []
    for version in range(1, state.version + 1):
        path = f"_versions/{name_of(version, Scheme.V2)}"
        data = None
        if version == state.version and state.staged:
            data = files.read(f"_versions/{state.staged}")
        data = data or files.read(path)
        assert data is not None, f"version {version} of {table.name} is gone"
        found.append(mark_of(data))
    return found


def new_entry(name: str) -> TableRecord:
    record = TableRecord(at(name), f"/lake/{name}", {TABLE_TYPE: LANCE, **MANAGED}, revision="0")
    return as_managed(record, State(0), REVISION)


def state_of(server: MemoryServer, name: str) -> State:
    return State.from_text(server.tables[at(name)].properties["lance_bridge.latest"])


# -- tables that change ---------------------------------------------------------------------------

FOREIGN = "foreign"


class ChangedTables(Batches):
    """The same, with clients that change the tables themselves."""

    @initialize(by_copy=st.booleans())
    def begin(self, *, by_copy: bool = False) -> None:
        """As the base class; the catalog renames by a copy of the entry, or not."""
        super().begin()
        self.server.capabilities = replace(
            self.server.capabilities, no_rename="", renames_by_copy=by_copy
        )
        self.by_copy = by_copy
        self.drops: set[str] = set()
        self.changes: list[Client] = []
        self.foreign = 0
        self.patch.setattr(TableStorage, "is_occupied", lambda *_: True)
        self.patch.setattr(TableStorage, "delete_table", self._delete)
        self.patch.setattr(compare_and_set, "WAIT_SECONDS", 0.0)

    # -- clients -------------------------------------------------------------------------------

    @rule(target=Batches.clients, name=ONE)
    def begin_drop(self, name: str) -> Client:
        if self.by_copy:  # what a rename leaves under two names must not be dropped
            return self._deregister(name)
        self.drops.add(name)
        return self._change(lambda: dropping.drop_with_data(self._load(name)))

    @rule(target=Batches.clients, name=ONE)
    def begin_deregister(self, name: str) -> Client:
        return self._deregister(name)

    @rule(target=Batches.clients, name=ONE)
    def begin_rename(self, name: str) -> Client:
        def act() -> None:
            table = self._load(name)
            other = name if table.path != at(name) else f"r{name}"
            rename.rename(table, at(other))

        return self._change(act)

    @rule(target=Batches.clients, name=ONE)
    def begin_release(self, name: str) -> Client:
        return self._change(lambda: conversion.end(self._load(name)))

    @rule(target=Batches.clients, name=ONE)
    def begin_quarantine(self, name: str) -> Client:
        return self._change(lambda: out_of_band.clear_next_version(self._load(name)))

    @rule(name=ONE)
    def write_past_the_catalog(self, name: str) -> None:
        """Give a manifest of another writer the name of the next version."""
        version = len(self.last[name]) + 1
        data = manifest(version, f"{FOREIGN}-{self.foreign}")
        self.foreign += 1
        self.files.put_new(f"/lake/{name}", f"_versions/{name_of(version, Scheme.V2)}", data)

    def _deregister(self, name: str) -> Client:
        return self._change(lambda: self.tables.remove(self._load(name).path))

    def _change(self, act: Callable[[], object]) -> Client:
        self.changes.append(Client(act))
        return self.changes[-1]

    def _paths(self, name: str) -> list[Path]:
        """Return the names that a table has now."""
        found = self.server.tables.items()
        return sorted(path for path, record in found if record.location == f"/lake/{name}")

    def _load(self, name: str) -> Table:
        paths = self._paths(name)
        if not paths:
            raise table_not_found(at(name))
        return self.tables.load(paths[0])

    def _delete(self, location: str, *_: object) -> Sequence[str]:
        """As `TableStorage.delete_table`: the records of batches first, one file at a time."""
        inside = sorted(path for place, path in self.files.content if place == location)
        for path in sorted(inside, key=lambda path: not path.endswith(".record.batch.json")):
            step(path)
            self.files.remove(location, [path])
        return []

    # -- what holds ----------------------------------------------------------------------------

    def _require_true_answer(self, writer: Writer, *, is_seen: bool) -> None:
        super()._require_true_answer(writer, is_seen=is_seen)
        for each in self.changes:
            assert isinstance(each.error, errors.LanceNamespaceError | Death | None), each.error

    def _history(self, name: str) -> list[str]:
        """As the base class, under each name that the table has, or of what is left of it."""
        paths = self._paths(name)
        found = [self._history_at(name, path) for path in paths]
        found = found or [self._left(name)]
        assert found.count(found[0]) == len(found), found
        return found[0]

    def _history_at(self, name: str, path: Path) -> list[str]:
        table = self.tables.load(path)
        return self._in_storage(name) if table.managed is None else history_of(table)

    def _left(self, name: str) -> list[str]:
        return self.last[name] if name in self.drops else self._in_storage(name)

    def _in_storage(self, name: str) -> list[str]:
        versions = {
            parsed[0]: mark_of(data)
            for (place, path), data in self.files.content.items()
            if place == f"/lake/{name}" and (parsed := parse_name(path.rpartition("/")[2]))
        }
        marks = [versions[version] for version in sorted(versions)]
        return [mark for mark in marks if not mark.startswith(FOREIGN)]

    def _read(self, name: str, seen: dict[str, list[str]]) -> None:
        """Read a table as a client does, unless it is gone or has another name by then."""
        paths = self._paths(name)
        try:
            seen[name] = self._history_at(name, self._load(name).path)
        except errors.TableNotFoundError:
            if paths and self._paths(name) == paths and name not in self.drops:
                raise
        except AssertionError:
            if self._paths(name) and name not in self.drops:
                raise

    def _require_end(self) -> None:
        """Write to all that is left once more, after all holds have expired."""
        self.patch.setattr(managed_state, "HOLD_SECONDS", 0.0)
        self.patch.setattr(managed_state, "BRIEF_SECONDS", 0.0)
        for each in self.changes:
            each.finish()
            self.require_all_or_nothing()
        for name in NAMES:
            for path in self._paths(name)[1:]:
                self.tables.remove(path)
                self.require_all_or_nothing()
        for name in NAMES:
            if self._paths(name) and name not in self.drops:
                self._commit_to(name)
                self.require_all_or_nothing()
        self._require_no_batch()


# -- any order ------------------------------------------------------------------------------------


def settings_of(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        derandomize=examples != MANY,  # the few of each run are the same, the many are new ones
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )


ORDERS = [
    pytest.param(30, marks=pytest.mark.servers, id="some_orders"),
    pytest.param(
        MANY, marks=[pytest.mark.slow, pytest.mark.timeout(3 * MANY)], id="many_more_orders"
    ),
]


@pytest.mark.parametrize("examples", ORDERS)
@pytest.mark.parametrize("model", [Batches, ChangedTables])
def test_batches_are_whole_in_every_order_of_steps(model: type[Batches], examples: int) -> None:
    run_state_machine_as_test(model, settings=settings_of(examples))


@pytest.mark.parametrize("steps_after", range(6))
def test_a_reader_that_is_overtaken_sees_what_was_committed_meanwhile(steps_after: int) -> None:
    """It has read that an entry depends on a batch, and the batch is finished and removed then."""
    clients = Batches()
    clients.begin()
    writer = clients.begin_batch(["a", "b"])
    while state_of(clients.server, "b").prepared is None:
        clients.go_on(writer, 1)
    clients.go_on_to_an_outcome(writer)
    reader = clients.begin_reading(["b", "a"])
    clients.go_on(writer, 1)
    clients.go_on(reader, steps_after)
    clients.go_on_to_its_end(writer)
    assert not [path for _, path in clients.files.content if path.endswith(".json")]
    clients.go_on_to_its_end(reader)
    assert clients.readers[0].seen == {"b": ["0-a-b"], "a": ["0-a-b"]}
    clients.teardown()


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ("begin_release", type(None)),
        ("begin_rename", OutcomeUnknownError),
        ("begin_deregister", type(None)),
        ("begin_drop", OutcomeUnknownError),
    ],
)
def test_a_commit_is_not_refused_because_its_table_changed_before_its_reply_was_lost(
    change: str, outcome: Any
) -> None:
    clients = ChangedTables()
    clients.begin()
    writer = clients.start(["a"])
    writer.loses = "after"
    while not state_of(clients.server, "a").version:
        clients.go_on(writer, 1)
    clients.go_on_to_its_end(getattr(clients, change)("a"))
    clients.go_on_to_its_end(writer)
    assert isinstance(writer.error, outcome)
    clients.require_all_or_nothing()
    clients.teardown()


# -- clients that stop at a step, while the next one goes on --------------------------------------

MOST = 80
"""More steps than a client takes."""
ALL = ["a", "b", "c"]


@pytest.fixture
def model() -> Iterator[ChangedTables]:
    """Three tables, and the clients that a test lets take turns."""
    model = ChangedTables()
    model.begin()
    yield model
    model.patch.undo()


def leave(model: Batches, *, committed: bool) -> None:
    """Leave a batch over all tables, as a client does that dies before or after its outcome."""
    writer = model.start(ALL)
    while not writer.next_file.endswith(".outcome.batch.json"):
        model.go_on(writer, 1)
    model.go_on(writer, int(committed))
    model.die(writer)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_client_that_dies_while_it_ends_the_batch_of_another_leaves_the_rest_to_the_next(
    name: str, *, committed: bool
) -> None:
    """It dies at each of its steps; ``a`` has the record of the batch."""
    for steps in range(MOST):
        model = Batches()
        model.begin()
        leave(model, committed=committed)
        second = model.start([name])
        model.go_on(second, steps)
        ended = second.is_done
        model.die(second)
        model.teardown()  # writes to every table, and checks that no entry refers to a batch
        if ended:
            break
    assert ended
    assert steps > len(ALL)


def test_a_slow_client_cannot_commit_after_the_table_with_its_record_was_dropped(
    model: ChangedTables,
) -> None:
    """The batch was aborted first, and its outcome deleted with the files of that table."""
    writer = model.start(ALL)
    while len(prepared_of(model)) < 2:
        model.go_on(writer, 1)
    model.go_on_to_its_end(model.begin_drop("a"))
    assert "a" not in prepared_of(model)
    assert files_of(model.files) == []
    model.go_on_to_its_end(writer)
    assert isinstance(model.writers[0].client.error, errors.ConcurrentModificationError)
    assert prepared_of(model) == []
    model.teardown()


@pytest.mark.spec("managed.md#the-steps-of-a-batch")
@pytest.mark.parametrize("steps", range(12))
def test_an_entry_that_is_removed_takes_no_part_in_a_batch(
    steps: int, model: ChangedTables
) -> None:
    writer = model.start(ALL)
    while not writer.next_file.endswith(".record.batch.json"):
        model.go_on(writer, 1)
    drop = model.begin_deregister("b")
    model.go_on(drop, steps)
    model.go_on_to_its_end(writer)
    model.go_on_to_its_end(drop)
    model.teardown()


def prepared_of(model: ChangedTables) -> list[str]:
    """Return the tables that are part of a batch."""
    loaded = {path[-1]: model.tables.load(path) for path in model.server.tables}
    return sorted(name for name, each in loaded.items() if each.managed_state().prepared)


def files_of(files: MemoryFiles) -> list[str]:
    """Return the files of all batches."""
    return [path for _, path in files.content if path.endswith(".batch.json")]


def test_a_table_that_is_dropped_while_its_batch_is_finished_does_not_stop_the_rest(
    model: ChangedTables,
) -> None:
    leave(model, committed=True)
    second = model.start(["a"])
    while "c" in prepared_of(model) and not is_about_to_finish_c(model, second):
        model.go_on(second, 1)
    del model.server.tables[at("c")]
    model.drops.add("c")
    model.go_on_to_its_end(second)
    assert model.writers[-1].client.error is None
    model.teardown()


def is_about_to_finish_c(model: ChangedTables, client: Client) -> bool:
    """Return whether a client has read the entry of ``c``, and sets it next."""
    return prepared_of(model) == ["a", "c"] and client.is_changing


@pytest.mark.spec("managed.md#why-the-steps-are-in-this-order")
def test_the_record_of_a_batch_is_deleted_before_all_other_files() -> None:
    name = f"_transactions/{'0' * 8}-{'-'.join(['0' * 4] * 3)}-{'0' * 12}"
    record, outcome = f"{name}.record.batch.json", f"{name}.outcome.batch.json"
    found = divide("/lake/a", [outcome, record], lambda _: b"", [])
    assert found.own[0] == (record,)
    assert any(outcome in group for group in found.own[1:])


@pytest.mark.spec("managed.md#commits-to-several-tables")
def test_a_store_that_replaces_files_takes_no_batch(model: ChangedTables) -> None:
    def put_new(files: TableFiles, path: str, data: bytes) -> bool:
        model.files.put_over(files.location, path, data)
        return True

    writer = model.start(ALL)
    model.patch.setattr(TableFiles, "put_new", put_new)
    model.go_on_to_its_end(writer)
    error = model.writers[0].client.error
    assert isinstance(error, errors.UnsupportedOperationError)
    assert "/lake/a ignores conditional writes" in str(error)
    assert prepared_of(model) == files_of(model.files) == []


def test_an_outcome_that_was_neither_written_nor_found_is_written_again(
    model: ChangedTables,
) -> None:
    """A store may refuse one of two writes at once, before it has either."""
    put = TableFiles.put_new
    refused: list[str] = []

    def put_new(files: TableFiles, path: str, data: bytes) -> bool:
        if path.endswith(".outcome.batch.json") and not refused:
            refused.append(path)
            return False
        return put(files, path, data)

    model.patch.setattr(TableFiles, "put_new", put_new)
    model.go_on_to_its_end(model.start(ALL))
    assert refused
    assert model.writers[0].client.error is None
    model.teardown()
