"""Batches beside clients that drop, deregister, rename or release their tables, or write past them.

A model as that of `test_batch_interleavings`, whose invariants hold for a table under any name, and
for what is left of it: its versions in the storage once it is released or deregistered, and what
was last seen of it once it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from lance_bridge import managed_state
from lance_bridge.catalog import Path
from lance_bridge.errors import OutcomeUnknownError, table_not_found
from lance_bridge.managed import compare_and_set, conversion, out_of_band
from lance_bridge.storage.manifests import Scheme, name_of, parse_name
from lance_bridge.storage.store import TableStorage
from lance_bridge.table import Table
from lance_bridge.tables import dropping, rename

from .building import at
from .interleaving import Client, manifest, mark_of, step
from .mortality import Death
from .test_batch_interleavings import (
    MANY,
    MANY_SECONDS,
    NAMES,
    ONE,
    Batches,
    Writer,
    _text,
    history_of,
    settings_of,
)

pytestmark = pytest.mark.spec(
    "managed.md#invariants-of-batches", "managed.md#the-steps-of-a-commit"
)


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
            assert isinstance(each.error, LanceNamespaceError | Death | None), each.error

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
        except TableNotFoundError:
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
        for record in self.server.tables.values():
            state = managed_state.parse_state(record)
            assert state is None or state.prepared is None


@pytest.mark.servers
def test_batches_are_whole_while_their_tables_change() -> None:
    run_state_machine_as_test(ChangedTables, settings=settings_of(examples=20))


@pytest.mark.slow
@pytest.mark.timeout(MANY_SECONDS)
def test_batches_are_whole_in_many_more_orders_while_their_tables_change() -> None:
    run_state_machine_as_test(ChangedTables, settings=settings_of(examples=MANY))


@pytest.mark.quick
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
    while not managed_state.State.from_text(_text(clients.server, "a")).version:
        clients.go_on(writer, 1)
    clients.go_on_to_its_end(getattr(clients, change)("a"))
    clients.go_on_to_its_end(writer)
    assert isinstance(writer.error, outcome)
    clients.require_all_or_nothing()
    clients.teardown()
