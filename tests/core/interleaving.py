"""Models of clients that take turns at each of their steps, over a catalog and storage in memory.

Each client is a thread that stops before every call of the catalog and of the storage until it is
let go on, or dies there. Only one runs at a time, so that a sequence of turns can be repeated.

After every turn, the versions of each batch are in all of its tables or in none; what was answered
is true; and nothing that was seen is taken back. In a second model, other clients drop, deregister,
rename or release the tables, or write past them. There, this holds for a table under any name, and
for what is left of it: its versions in the storage once it is released or deregistered, and what
was last seen of it once it is dropped.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from lance_namespace import errors

from lance_bridge import managed_state
from lance_bridge.catalog import Path, TableRecord
from lance_bridge.dataset import transactions, versions
from lance_bridge.errors import OutcomeUnknownError, table_not_found
from lance_bridge.managed import batches, compare_and_set, conversion, out_of_band
from lance_bridge.managed.batches import latest_state
from lance_bridge.managed_state import State, as_managed, parse_state
from lance_bridge.records import LANCE, TABLE_TYPE
from lance_bridge.storage.manifests import Scheme, Staged, name_of, parse_name
from lance_bridge.storage.store import TableFiles, TableStorage
from lance_bridge.table import Table
from lance_bridge.tables import collection, dropping

from .managed_tables import MANAGED, Death
from .memory_catalog import (
    CAPABILITIES,
    REVISION,
    SERVERS,
    MemoryCatalog,
    MemoryNamespace,
    MemoryServer,
    Moment,
    at,
    start_server,
)

_SECONDS = 30.0
"""How long a client may take for one step before the test fails."""

_own = threading.local()


class Client:
    """One client, which does one thing and has an outcome then."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.loses: Moment | None = None
        """Whether the reply to its next change of an entry is lost, before or after the effect."""
        self.next_file = ""
        """The file that its next step reads or changes, if it is one of the storage."""
        self.is_changing = False
        """Whether its next step is a change of an entry."""
        self._is_dying = False
        self._goes, self._stops = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()
        self._await()

    def go(self) -> None:
        """Let it do one step, to the next one or to its end."""
        if not self.is_done:
            self._goes.release()
            self._await()

    def finish(self) -> None:
        """Let it go on to its end."""
        while not self.is_done:
            self.go()

    def die(self) -> None:
        """End it where it is."""
        self._is_dying = True
        self.finish()

    def step(self, file: str = "", *, changes: bool = False) -> None:
        """Stop until it is let go on; called by the client itself."""
        if self._is_dying:
            raise Death
        self.next_file, self.is_changing = file, changes
        self._stops.release()
        self._goes.acquire()
        if self._is_dying:
            raise Death

    def lose_reply(self, moment: Moment) -> None:
        """Raise where the reply to a change is to be lost; called by the client itself."""
        if self.loses == moment:
            self.loses = None
            raise OutcomeUnknownError("lost")

    def _run(self, act: Callable[[], Any]) -> None:
        _own.client = self
        try:
            self.step()
            self.result = act()
        except BaseException as error:  # noqa: BLE001 - the outcome, also of a client that died
            self.error = error
        self.is_done = True
        self._stops.release()

    def _await(self) -> None:
        assert self._stops.acquire(timeout=_SECONDS), "a client does not reach its next step"


def step(file: str = "") -> None:
    """Have the running client stop here, if it is one."""
    client = getattr(_own, "client", None)
    if client is not None:
        client.step(file)


class MemoryFiles:
    """What takes the place of all storage: the content of files by location and path."""

    def __init__(self) -> None:
        self.content: dict[tuple[str, str], bytes] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have every table's files be here."""
        for name in ("list", "head", "read", "put_new", "put_over", "remove"):
            patch.setattr(TableFiles, name, self._method(getattr(self, name)))

    def _method(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def method(files: TableFiles, *args: Any) -> Any:
            step(str(args[0]))
            return act(files.location, *args)

        return method

    def list(self, location: str, inside: str) -> list[Any]:
        """As `TableFiles`, and so are the others."""
        return [
            self._meta(path, data)
            for (place, path), data in sorted(self.content.items())
            if place == location and path.startswith(f"{inside}/")
        ]

    def head(self, location: str, path: str) -> Any | None:
        data = self.content.get((location, path))
        return None if data is None else self._meta(path, data)

    def read(self, location: str, path: str) -> bytes | None:
        return self.content.get((location, path))

    def put_new(self, location: str, path: str, data: bytes) -> bool:
        if (location, path) in self.content:
            return False
        self.content[location, path] = data
        return True

    def put_over(self, location: str, path: str, data: bytes) -> None:
        self.content[location, path] = data

    def remove(self, location: str, paths: Sequence[str]) -> None:
        for path in paths:
            self.content.pop((location, path), None)

    def _meta(self, path: str, data: bytes) -> dict[str, Any]:
        now = datetime.now(timezone.utc)
        return {"path": path, "size": len(data), "e_tag": None, "last_modified": now}


def install_steps(patch: pytest.MonkeyPatch, server: MemoryServer) -> None:
    """Make steps of the calls of the catalog; clients wait for nothing but their turn."""
    load, change = MemoryCatalog.load_table, MemoryServer.change

    def load_table(catalog: MemoryCatalog, path: Any) -> Any:
        if not getattr(_own, "is_changing", False):
            step()
        return load(catalog, path)

    def change_at_once(server: MemoryServer, name: str, effect: Callable[[], None]) -> None:
        def act() -> None:
            _own.is_changing = True
            try:
                effect()
            finally:
                _own.is_changing = False

        change(server, name, act)

    def fault(_: str, moment: Moment) -> None:
        client = getattr(_own, "client", None)
        if client is not None:
            client.step(changes=moment == "before")
            client.lose_reply(moment)

    patch.setattr(MemoryCatalog, "load_table", load_table)
    patch.setattr(MemoryServer, "change", change_at_once)
    patch.setattr(batches, "STALLED_SECONDS", 0.0)
    patch.setattr(batches, "SECONDS_PER_TABLE", 0.0)
    patch.setattr(batches, "POLL_SECONDS", 0.0)
    one_by_one = nullcontext(SimpleNamespace(map=map))  # a client does one thing after the other
    patch.setattr(batches, "ThreadPoolExecutor", lambda _: one_by_one)
    server.fault = fault


def manifest(version: int, mark: str) -> bytes:
    """Return the least that is a manifest of a version, with a mark that says whose it is.

    It also names the transaction that it began with, at the version before.
    """
    head = f"{mark}\n{version - 1}-{uuid.UUID(int=0)}.txn\n".encode()
    message = b"\x18" + _varint(version)
    footer = len(head).to_bytes(8, "little") + b"\x00\x00\x02\x00LANC"
    return head + len(message).to_bytes(4, "little") + message + footer


def mark_of(data: bytes) -> str:
    """Return the mark of a manifest."""
    return data.partition(b"\n")[0].decode()


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


# -- models ----------------------------------------------------------------------------------------


NAMES = ("a", "b", "c")
SOME = st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True)
ONE = st.sampled_from(NAMES)
TURNS = st.one_of(st.integers(1, 4), st.integers(1, 40))
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
            collection.rename_entry(table, at(other))

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
