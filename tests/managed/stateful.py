"""A model of one governed table: writers by name and by path, clean-ups, and an operator.

The machine knows which rows were acknowledged by name, and which were only written past the
catalog. A read by name returns the former, and of the latter those that were adopted; or it fails
with a message whose commands lead out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    multiple,
    precondition,
    rule,
)
from lance.commit import CommitConflictError
from lance_namespace.errors import InternalError, LanceNamespaceError, NamespaceNotEmptyError
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from lancedb.namespace import LanceNamespaceDBConnection

import _lance_bridge_names
import lance_bridge
from lance_bridge import managed_state
from lance_bridge.dataset import insert
from lance_bridge.entry import TableEntry
from lance_bridge.errors import LANCE_ERRORS, OutcomeUnknownError
from lance_bridge.managed import compare_and_set
from lance_bridge.managed.mark import Mark
from lance_bridge.records import FOREIGN_COMMITS, MARK, ForeignCommits
from lance_bridge.storage.lance_format import MARK_FILE
from lance_bridge.testing.calls import ipc

from .crashes import SECONDS, Clients, Death
from .operator import Operator, Place, asks_to_wait, ways_out
from .tables import Change, Home, Model, Outcome, Values, rows_in, table_of, values_of

X, Y, Z = "x", "y", "z"
"""Entries for the same location: Y in the catalog of X, Z in another one."""
POLICIES = ("hide", "adopt", "refuse")
MOST_STATES, MOSTLY = 8, 4
ROUNDS = 6
"""How often an operator obeys one message after another until the table can be read."""
OLD = 30 * 86400.0

ERRORS = (*LANCE_ERRORS, CommitConflictError, LanceNamespaceError)
"""What operations of this library and of pylance raise."""
_ENTRY_POINTS = _lance_bridge_names._entry_points
READS = ("pylance", "query", "count")
needs_entry = precondition(lambda self: self.entries)


@dataclass
class Handle:
    """A dataset that was opened before, by the name of an entry or by path."""

    dataset: lance.LanceDataset
    key: str
    """The entry; empty if it commits to the storage."""
    rows: list[int]
    """Those that it can delete."""


class GovernedTableMachine(RuleBasedStateMachine):
    """Clients of one table, one after the other."""

    handles = Bundle("handles")

    steps = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 12))
    picks = st.integers(0, 5)
    writes = st.sampled_from(["ours", "pylance"])
    numbers = st.integers(0, 7)

    def __init__(self, new_home: Callable[[], Home]) -> None:
        super().__init__()
        self.new_home = new_home
        self.patch = pytest.MonkeyPatch()
        self.model: Model | None = None
        self.names = {X: "x", Y: "y", Z: "z"}
        self.spaces: dict[str, Any] = {}
        self.offset = 0.0
        self.next_row = 0
        self.values: dict[int, set[int]] = {}
        self.messages: list[tuple[str, str]] = []
        self.present: dict[str, TableEntry] | None = None
        self.has_unknown = False

    @initialize(
        policy=st.sampled_from(POLICIES),
        is_managed=st.sampled_from([True, True, False]),
        ways=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    )
    def begin(self, policy: str, is_managed: bool, ways: list[int]) -> None:
        """Create a table with a row."""
        self.home = self.new_home()
        self.ways = ways
        self.spaces[X] = self.spaces[Y] = lance_bridge.connect(self.home.catalog)
        self.clients = Clients()
        self.clients.install(self.patch, type(self.spaces[X].catalog))
        self._shorten_waits()
        self.operator = Operator(self._choose)
        row = self._new_rows(1)
        properties = {"managed_by": "impl"} if is_managed else {}
        request = api.CreateTableRequest(
            id=self.id(X), properties={**properties, FOREIGN_COMMITS: policy}
        )
        self.spaces[X].create_table(request, ipc(table_of(row)))
        self.present = None
        found = self.entry(X)
        assert found is not None
        self.location = found.uri
        self.directory = Path(self.location.removeprefix("file://"))
        self.model = Model([row])

    def _shorten_waits(self) -> None:
        now = managed_state._now
        self.patch.setattr(managed_state, "_now", lambda: now() + int(self.offset * 1000))
        self.patch.setattr(compare_and_set, "WAIT_SECONDS", 0.0)
        for name in ("_RETRY_SECONDS", "_MOST_RETRY_SECONDS", "_TURN_SECONDS"):
            self.patch.setattr(insert, name, 0.0)
        # Each command looks for installed packages, which takes longer than all else that it does.
        self.patch.setattr(_lance_bridge_names, "_entry_points", cache(_ENTRY_POINTS))

    def _choose(self, ways: Sequence[str]) -> str:
        self.ways.append(self.ways.pop(0))
        return ways[self.ways[-1] % len(ways)]

    # -- what there is -----------------------------------------------------------------------------

    def id(self, key: str) -> list[str]:
        return [*(["db"] if key == Z else self.home.namespace), self.names[key]]

    def place(self, key: str) -> Place:
        catalog = self.home.other if key == Z else self.home.catalog
        return Place(catalog, ".".join(self.id(key)), self.location)

    def entry(self, key: str) -> TableEntry | None:
        """Return an entry as its catalog has it."""
        if key not in self.spaces:
            return None
        tables = self.spaces[key].tables
        record = tables.connection.find_table(tables.path_of(self.id(key)))
        return None if record is None else TableEntry(tables.connection, record)

    @property
    def entries(self) -> dict[str, TableEntry]:
        """All entries for the location, as they were after the last change of any."""
        if self.present is None:
            found = {key: self.entry(key) for key in self.names}
            self.present = {key: each for key, each in found.items() if each is not None}
        return self.present

    def manager(self) -> str | None:
        """Return the entry that manages the versions; None if the storage does."""
        found = [k for k, each in self.entries.items() if each.managed is not None]
        if len(found) > 1:
            found = [k for k in found if self.mark.id == self.entries[k].record.properties[MARK]]
        return next((k for k in found if not self._is_superseded(k)), None)

    @property
    def mark(self) -> Mark:
        """Return the mark in the storage; one of no entry if there is none."""
        file = self.directory / MARK_FILE
        return Mark.parse(file.read_bytes()) if file.exists() else Mark("", (), "", "", "")

    def _is_superseded(self, key: str) -> bool:
        if key not in self.entries:
            return False
        own = self.entries[key].record.properties.get(MARK)
        return own != self.mark.id and own in self.mark.superseded

    def pick(self, pick: int) -> str:
        """Return an entry: mostly one that decides."""
        found = [*self.entries]
        decides = [key for key in found if self.decides(key)] or found
        return decides[pick % len(decides)] if pick < MOSTLY else found[pick % len(found)]

    def pick_writer(self, pick: int) -> str:
        """Return an entry that decides, or the only one there is."""
        return self.manager() or self.pick(pick)

    def decides(self, key: str) -> bool:
        """Return whether what is committed by this name is committed."""
        return self.manager() in (None, key) and not self._is_superseded(key)

    @property
    def known(self) -> Model:
        assert self.model is not None
        return self.model

    def _new_rows(self, count: int) -> Values:
        first, self.next_row = self.next_row, self.next_row + count
        return {u: self._new_value(u) for u in range(first, first + count)}

    def _new_value(self, u: int) -> int:
        values = self.values.setdefault(u, set())
        values.add(100 * u + len(values))
        return max(values)

    def _old_row(self, number: int) -> int | None:
        """Return a row that was acknowledged, if any is left."""
        rows = sorted({u for state in self.known.states for u in state})
        return rows[number % len(rows)] if rows else None

    def _options(self, key: str) -> dict[str, Any]:
        self._end_holds()
        return {"namespace_client": self.spaces[key], "table_id": self.id(key)}

    def _end_holds(self) -> None:
        """Let holds of clients that died end: pylance retries for half a minute until they do."""
        self.offset += managed_state.HOLD_SECONDS + 1

    def _open(self, key: str) -> lance.LanceDataset:
        return lance.dataset(**self._options(key))

    # -- writers -----------------------------------------------------------------------------------

    def _write(
        self, key: str, act: Callable[[], object], change: Change, steps: int | None = None
    ) -> None:
        """Have a client change the table by the name of an entry that decides."""
        self._end_holds()
        if len(self.known.states) > MOST_STATES or self._may_come_late(key):
            steps = None
        outcome = self._run(key, act, steps)
        if outcome is Outcome.DONE:
            self.known.acknowledge(change)
        elif outcome is Outcome.UNKNOWN:
            self.known.suspect(change)
            self.has_unknown = True

    def _may_come_late(self, key: str) -> bool:
        """Return whether a change of a client that died may be adopted by another one."""
        found = self.entry(key)
        return found is not None and found.foreign_commits is ForeignCommits.ADOPT

    def _append(
        self, key: str, act: Callable[[Values], object], count: int = 1, steps: int | None = None
    ) -> Outcome:
        """Have a client add rows by name; by an entry that does not decide, past the catalog."""
        rows, decides = self._new_rows(count), self.decides(key)
        outcome = self._run(key, lambda: act(rows), steps)
        if outcome is Outcome.DONE and decides:
            self.known.acknowledge(lambda known: known | rows)
        elif outcome is not Outcome.REFUSED:
            self.known.others |= rows
        return outcome

    def _run(self, key: str, act: Callable[[], object], steps: int | None = None) -> Outcome:
        """Run a client; return the result for it.

        Args:
            steps: At which of its steps it dies; None if it does not.
        """
        before = time.monotonic()
        try:
            self.clients.run(act, steps)
        except Death:
            return Outcome.UNKNOWN
        except ERRORS as error:
            if isinstance(error, InternalError):
                raise AssertionError(str(error)) from error
            if isinstance(error, OutcomeUnknownError) or "is unknown" in str(error):
                return Outcome.UNKNOWN
            self.messages.append((key, str(error)))
            return Outcome.REFUSED
        finally:
            self.present = None
            took = time.monotonic() - before
            assert took < SECONDS, f"a client takes {took:.1f} s"
        return Outcome.DONE

    def _insert(self, key: str, rows: Values, mode: str = "append") -> None:
        request = api.InsertIntoTableRequest(id=self.id(key), mode=mode)
        self.spaces[key].insert_into_table(request, ipc(table_of(rows)))

    def _insert_as(self, how: str, key: str, rows: Values, mode: str = "append") -> None:
        if how == "ours":
            self._insert(key, rows, mode)
        elif how == "pylance":
            lance.write_dataset(table_of(rows), mode=mode, **self._options(key))
        else:
            self._end_holds()
            connection = LanceNamespaceDBConnection(self.spaces[key])
            *namespace, name = self.id(key)
            connection.open_table(name, namespace_path=namespace).add(table_of(rows))

    @needs_entry
    @rule(
        pick=picks,
        how=st.sampled_from(["ours", "pylance", "lancedb"]),
        count=st.integers(1, 2),
        steps=steps,
    )
    def append_by_name(self, pick: int, how: str, count: int, steps: int | None) -> None:
        key = self.pick(pick)
        decides = self.decides(key)
        outcome = self._append(key, lambda rows: self._insert_as(how, key, rows), count, steps)
        if how == "ours" and not decides:
            assert outcome is not Outcome.DONE, f"{key} does not manage the table, and writes"

    @needs_entry
    @rule(pick=picks, how=writes, steps=steps)
    def overwrite_by_name(self, pick: int, how: str, steps: int | None) -> None:
        key = self.pick_writer(pick)
        rows = self._new_rows(1)
        self._write(
            key, lambda: self._insert_as(how, key, rows, "overwrite"), lambda _: rows, steps
        )

    @needs_entry
    @rule(pick=picks, how=writes, number=numbers, steps=steps)
    def delete_by_name(self, pick: int, how: str, number: int, steps: int | None) -> None:
        key, u = self.pick_writer(pick), self._old_row(number)
        if u is None:
            return

        def act() -> None:
            if how == "ours":
                request = api.DeleteFromTableRequest(id=self.id(key), predicate=f"u = {u}")
                self.spaces[key].delete_from_table(request)
            else:
                self._open(key).delete(f"u = {u}")

        self._write(key, act, lambda known: {k: v for k, v in known.items() if k != u}, steps)

    @needs_entry
    @rule(pick=picks, how=writes, number=numbers, steps=steps)
    def update_by_name(self, pick: int, how: str, number: int, steps: int | None) -> None:
        key, u = self.pick_writer(pick), self._old_row(number)
        if u is None:
            return
        value = self._new_value(u)

        def act() -> None:
            if how == "ours":
                request = api.UpdateTableRequest(
                    id=self.id(key), predicate=f"u = {u}", updates=[["v", str(value)]]
                )
                self.spaces[key].update_table(request)
            else:
                self._open(key).update({"v": str(value)}, where=f"u = {u}")

        self._write(key, act, lambda known: known | ({u: value} if u in known else {}), steps)

    @needs_entry
    @rule(pick=picks, how=writes, number=numbers, steps=steps)
    def merge_by_name(self, pick: int, how: str, number: int, steps: int | None) -> None:
        key, u = self.pick_writer(pick), self._old_row(number)
        if u is None:
            return
        rows = {u: self._new_value(u), **self._new_rows(1)}

        def act() -> None:
            if how == "ours":
                request = api.MergeInsertIntoTableRequest(
                    id=self.id(key),
                    on=["u"],
                    when_matched_update_all=True,
                    when_not_matched_insert_all=True,
                )
                self.spaces[key].merge_insert_into_table(request, ipc(table_of(rows)))
            else:
                builder = self._open(key).merge_insert("u").when_matched_update_all()
                builder.when_not_matched_insert_all().execute(table_of(rows))

        self._write(key, act, lambda known: known | rows, steps)

    @rule(count=st.integers(1, 2))
    def append_by_path(self, count: int) -> None:
        self._add_past_the_catalog(
            lambda rows: lance.write_dataset(table_of(rows), self.location, mode="append"), count
        )

    def _add_past_the_catalog(self, act: Callable[[Values], object], count: int = 1) -> None:
        rows, is_managed = self._new_rows(count), self.manager() is not None
        outcome = self._run("", lambda: act(rows))
        if outcome is Outcome.DONE and not is_managed:
            self.known.acknowledge(lambda known: known | rows)
        elif outcome is not Outcome.REFUSED:
            self.known.others |= rows

    @needs_entry
    @rule(target=handles, pick=picks)
    def open_by_name(self, pick: int) -> Handle | MultipleResults[Handle]:
        key = self.pick(pick)
        found = self.entries[key]
        try:
            opened = self._open(key)
        except ERRORS as error:
            self.messages.append((key, str(error)))
            return multiple()
        return Handle(opened, key if found.record.is_managed else "", values_of(opened))

    @rule(target=handles)
    def open_by_path(self) -> Handle:
        opened = lance.dataset(self.location)
        return Handle(opened, "", values_of(opened))

    @rule(handle=handles)
    def append_to_what_was_open(self, handle: Handle) -> None:
        self._end_holds()

        def act(rows: Values) -> None:
            handle.dataset.insert(table_of(rows))

        if handle.key:
            self._append(handle.key, act)
        else:
            self._add_past_the_catalog(act)

    @rule(handle=handles, number=numbers)
    def delete_in_what_was_open(self, handle: Handle, number: int) -> None:
        # Lance compares a change with the transactions since then: a clean-up deletes them.
        there = [each["version"] for each in lance.dataset(self.location).versions()]
        is_known = handle.rows and handle.dataset.version in there
        if not is_known or self.manager() not in (None, handle.key):
            return
        u = handle.rows[number % len(handle.rows)]
        self._end_holds()
        self._write(
            handle.key,
            lambda: handle.dataset.delete(f"u = {u}"),
            lambda known: {k: v for k, v in known.items() if k != u},
        )

    # -- entries -----------------------------------------------------------------------------------

    @needs_entry
    @rule(pick=picks, force=st.booleans(), steps=steps)
    def manage(self, pick: int, force: bool, steps: int | None) -> None:
        key, before = self.pick(pick), self.manager()
        was_marked = self._is_marked(key)
        if force and self._cannot_know_the_latest(key):
            return
        outcome = self._run(
            key, lambda: self.spaces[key].manage_table(self.id(key), force=force), steps
        )
        if outcome is Outcome.DONE:
            assert self.manager() == key
            may = force or before in (None, key) or was_marked
            assert may, f"{key} becomes the manager after {before}"

    def _cannot_know_the_latest(self, key: str) -> bool:
        """Return whether a commit of a writer that died may be only in another catalog.

        The operator reads by the manager's name before that, which gives it its final name.
        """
        before = self.manager()
        return self.has_unknown and before is not None and (before == Z) is not (key == Z)

    def _is_marked(self, key: str) -> bool:
        """Return whether a client that died had made an entry the manager in the storage."""
        return bool(self.mark.id == Mark.of(self.entries[key]).id)

    @precondition(lambda self: self.manager())
    @rule(pick=picks, steps=steps)
    def release(self, pick: int, steps: int | None) -> None:
        key = self.pick(pick)
        self._run(key, lambda: self.spaces[key].release_table(self.id(key)), steps)

    @needs_entry
    @rule(pick=picks, steps=steps)
    def deregister(self, pick: int, steps: int | None) -> None:
        key = self.pick(pick)
        request = api.DeregisterTableRequest(id=self.id(key))
        self._run(key, lambda: self.spaces[key].deregister_table(request), steps)

    @precondition(lambda self: len(self.entries) < len(self.names))
    @rule(pick=picks, force=st.booleans(), is_managed=st.booleans(), steps=steps)
    def register(self, pick: int, force: bool, is_managed: bool, steps: int | None) -> None:
        missing = [key for key in self.names if key not in self.entries]
        key = missing[pick % len(missing)]
        if force and self._cannot_know_the_latest(key):
            return
        if key not in self.spaces:
            self.spaces[key] = lance_bridge.connect(self.home.other)
            self.spaces[key].create_namespace(api.CreateNamespaceRequest(id=["db"]))
        properties = {"managed.force": "true"} if force else {}
        properties |= {"managed_by": "impl"} if is_managed else {}
        request = api.RegisterTableRequest(
            id=self.id(key), location=self.location, properties=properties
        )
        before = self.manager()
        outcome = self._run(key, lambda: self.spaces[key].register_table(request), steps)
        if outcome is Outcome.DONE and before is not None:
            assert force, f"{key} is registered while {before} manages the table"

    @needs_entry
    @rule(pick=picks, steps=steps)
    def rename(self, pick: int, steps: int | None) -> None:
        key = self.pick(pick)
        old = self.names[key]
        new = old.removesuffix("2") if old.endswith("2") else f"{old}2"
        request = api.RenameTableRequest(id=self.id(key), new_table_name=new)
        self._run(key, lambda: self.spaces[key].rename_table(request), steps)
        if key not in self.entries:
            self.names[key] = new
            self.present = None

    # -- clean-ups by path, and clocks -------------------------------------------------------------

    @rule()
    def compact_by_path(self) -> None:
        lance.dataset(self.location).optimize.compact_files()

    @rule(days=st.sampled_from([0, 0, 14]), is_of_lancedb=st.booleans())
    def clean_up_by_path(self, days: int, is_of_lancedb: bool) -> None:
        if self._would_destroy_rows():
            return
        if is_of_lancedb:
            connection = lancedb.connect(self.directory.parent)
            table = connection.open_table(self.directory.name.removesuffix(".lance"))
            table.optimize(cleanup_older_than=timedelta(days=days))
        else:
            lance.dataset(self.location).cleanup_old_versions(
                older_than=timedelta(days=days), error_if_tagged_old_versions=False
            )

    def _would_destroy_rows(self) -> bool:
        """Return whether a clean-up by path destroys rows that its last version does not have."""
        if self.manager() is None:
            return False
        by_path = rows_in(lance.dataset(self.location).to_table()).items()
        return not any(each.items() <= by_path for each in self.known.states)

    @rule()
    def let_time_pass(self) -> None:
        """All files are a month older, and holds have ended."""
        self.offset += OLD
        for each in self.directory.rglob("*"):
            at = each.stat().st_mtime - OLD
            os.utime(each, (at, at))

    # -- the operator ------------------------------------------------------------------------------

    @needs_entry
    @rule(pick=picks, policy=st.sampled_from(POLICIES))
    def set_policy(self, pick: int, policy: str) -> None:
        key = self.pick(pick)
        found = self.entries[key].reloaded()
        self._run(key, lambda: found.set_properties({**found.properties, FOREIGN_COMMITS: policy}))

    @precondition(lambda self: self.messages)
    @rule()
    def obey_the_last_message(self) -> None:
        key, message = self.messages.pop()
        if key in self.entries and self.decides(key) and ways_out(message, self.place(key)):
            self._obey(key, message)

    @rule()
    def obey_the_doctor(self) -> None:
        self._obey_doctors()

    def _obey(self, key: str, message: str) -> None:
        self.operator.obey(message, self.place(key))
        self.present = None

    def _obey_doctors(self) -> bool:
        found = [self.operator.obey_doctor(self.place(k)) for k in (X, Z) if k in self.spaces]
        self.present = None
        return any(found)

    # -- readers -----------------------------------------------------------------------------------

    @needs_entry
    @rule(pick=picks, how=st.sampled_from(READS))
    def read(self, pick: int, how: str) -> None:
        self._read_until_right(self.pick(pick), how)

    def _read_until_right(self, key: str, how: str) -> None:
        """Read by name; an operator obeys each message until that succeeds."""
        if not self.decides(key):
            self._read_beside(key)
            return
        messages = []
        for _ in range(ROUNDS):
            try:
                found = self._read(how, key)
            except ERRORS as error:
                messages.append(str(error))
                self._lead_out(key, error)
                if key not in self.entries:
                    return
            else:
                self._require(found)
                self.has_unknown = False
                return
        raise AssertionError("obeying messages does not lead out:\n" + "\n".join(messages))

    def _read_beside(self, key: str) -> None:
        """Read through an entry that does not decide: it may be late, and invents nothing."""
        with suppress(*ERRORS):
            for u, v in rows_in(self._open(key).to_table()).items():
                assert v in self.values[u]

    def _require(self, found: Values | int) -> None:
        if isinstance(found, dict):
            self.known.see(found)
            return
        most = len(self.known.others)
        counts = [range(len(each), len(each) + most + 1) for each in self.known.states]
        assert any(found in each for each in counts), f"{found} rows of {self.known}"

    def _lead_out(self, key: str, error: BaseException) -> None:
        text = str(error)
        if asks_to_wait(text):
            self._end_holds()
        else:
            self._obey(key, text)

    def _read(self, how: str, key: str) -> Values | int:
        if how == "pylance":
            return rows_in(self._open(key).to_table())
        if how == "count":
            request = api.CountTableRowsRequest(id=self.id(key))
            return int(self.spaces[key].count_table_rows(request).count)
        nothing = QueryTableRequestVector(single_vector=[])
        query = api.QueryTableRequest(id=self.id(key), k=1000, vector=nothing)
        return rows_in(self.spaces[key].query_table_reader(query).read_all())

    # -- the end -----------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Read, write, and let the doctor be obeyed: all acknowledged rows are there."""
        try:
            if self.model is not None:
                self._require_end()
        except BaseException:
            print(*self.operator.log, sep="\n")
            raise
        finally:
            self.patch.undo()
            if self.model is not None:
                self.clients.end()
                self._leave()
            for each in self.spaces.values():
                each.close()

    def _leave(self) -> None:
        """Remove what is in a catalog that others use."""
        self.present = None
        for each in self.entries.values():
            each.connection.catalog.drop_table(each.record)
        request = api.DropNamespaceRequest(id=self.home.namespace)
        with suppress(NamespaceNotEmptyError):  # in Hive 3.1, a drop that died leaves a view
            self.spaces[X].drop_namespace(request)

    def _require_end(self) -> None:
        self._end_holds()
        self._read_all()
        if self.entries:
            self._require_write()
        for _ in range(ROUNDS):
            if not self._obey_doctors():
                break
        else:
            raise AssertionError(f"the doctor still finds {self.operator.log[-2:]}")
        self._read_all()

    def _read_all(self) -> None:
        """Read by the names of all entries that decide; by path if there is none."""
        for key in self.entries:
            for how in READS:
                self._read_until_right(key, how)
        if not self.entries:
            self.known.see(rows_in(lance.dataset(self.location).to_table()))

    def _require_write(self) -> None:
        key, messages = self.pick_writer(0), []
        for _ in range(ROUNDS):
            if self._append(key, lambda rows: self._insert(key, rows)) is Outcome.DONE:
                return
            _, text = self.messages.pop()
            messages.append(text)
            if asks_to_wait(text):
                self._end_holds()
            else:
                self._obey(key, text)
        raise AssertionError("obeying messages does not lead to a write:\n" + "\n".join(messages))
