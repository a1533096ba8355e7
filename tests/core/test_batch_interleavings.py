"""Batches, single commits, readers and deaths in any order of their steps: a model of the protocol.

After every turn, the versions of each batch are in all of its tables or in none; what was answered
is true; and nothing that was seen is taken back.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
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
from lance_namespace.errors import LanceNamespaceError

from lance_bridge.catalog import TableRecord
from lance_bridge.dataset.history import batches, versions
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import conversion
from lance_bridge.managed.intents import latest_state
from lance_bridge.managed_state import State, as_managed, parse_state
from lance_bridge.records import LANCE, TABLE_TYPE
from lance_bridge.storage.manifests import Scheme, name_of
from lance_bridge.storage.staging import Staged
from lance_bridge.table import Table

from .building import at, start_server
from .interleaving import Client, MemoryFiles, install_steps, manifest, mark_of
from .managing import MANAGED
from .memory_catalog import CAPABILITIES, REVISION, SERVERS, MemoryNamespace, MemoryServer
from .mortality import Death

pytestmark = pytest.mark.spec(
    "managed.md#invariants-of-batches",
    "managed.md#states-of-a-batch",
    "managed.md#the-record-of-a-batch",
)


NAMES = ("a", "b", "c")
SOME = st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True)
ONE = st.sampled_from(NAMES)
TURNS = st.one_of(st.integers(1, 4), st.integers(1, 40))
MANY = int(os.environ.get("LANCE_BRIDGE_TEST_EXAMPLES", "300"))
"""How many sequences of turns the slow tests try."""
MANY_SECONDS = 3 * MANY
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
        batches.create_versions(wanted)

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
            assert isinstance(error, LanceNamespaceError), error
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
        return conversion.latest_in_storage(table)
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


def _text(server: MemoryServer, name: str) -> str:
    return server.tables[at(name)].properties["lance_bridge.latest"]


@pytest.mark.servers
def test_batches_are_whole_in_every_order_of_steps() -> None:
    run_state_machine_as_test(Batches, settings=settings_of(examples=30))


@pytest.mark.slow
@pytest.mark.timeout(MANY_SECONDS)
def test_batches_are_whole_in_many_more_orders_of_steps() -> None:
    run_state_machine_as_test(Batches, settings=settings_of(examples=MANY))


@pytest.mark.quick
@pytest.mark.parametrize("steps_after", range(6))
def test_a_reader_that_is_overtaken_sees_what_was_committed_meanwhile(steps_after: int) -> None:
    """It has read that an entry depends on a batch, and the batch is finished and removed then."""
    clients = Batches()
    clients.begin()
    writer = clients.begin_batch(["a", "b"])
    while State.from_text(_text(clients.server, "b")).prepared is None:
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


def settings_of(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        derandomize=examples != MANY,  # the few of each run are the same, the many are new ones
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
