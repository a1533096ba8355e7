"""Random sequences of create, write, drop, undrop, purge, rename and protect, with kills.

Each table has a number of rows of its own, by which it is found again under whatever name.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import lance
import pytest
from lance_namespace.errors import InvalidTableStateError, TableAlreadyExistsError

from lance_bridge.tables.retention import DroppedTable
from lance_bridge.testing.calls import Calls

from .memory_catalog import CAPABILITIES, DATASET, MemoryNamespace, start_server, stream

pytestmark = [pytest.mark.spec("common.md#dropped-tables")]

SPACE = tuple(DATASET)
NAMES = ("a", "b", "c")
STEPS = 12
SEED = int(os.environ.get("LANCE_BRIDGE_TEST_SEED", "0"))


class _Killed(BaseException):
    """Ends an operation between two changes of the catalog, as a kill of the process does."""


State = tuple[str, bool]
"""The name of a table, or the one that it had; and whether it is dropped."""


@dataclass
class Sequence:
    """One sequence, and what it expects."""

    namespace: MemoryNamespace
    random: random.Random
    expected: dict[int, State] = field(default_factory=dict)
    """By the number of rows."""
    protected: set[int] = field(default_factory=set)
    next_rows: int = 1

    @property
    def calls(self) -> Calls:
        return Calls(self.namespace)

    def observed(self) -> dict[int, State]:
        """Read all entries, with the rows at their locations."""
        found: dict[int, State] = {}
        for entry in self.namespace.tables.scan(SPACE):
            rows = lance.dataset(entry.uri).count_rows()
            assert rows not in found
            is_dropped = entry.record.is_dropped
            found[rows] = (
                DroppedTable.of(entry).name if is_dropped else entry.path[-1],
                is_dropped,
            )
        return found

    def run(self) -> None:
        """Do the steps, and compare after each."""
        for _ in range(STEPS):
            step = self.random.choice(
                [self.create, self.create, self.drop, self.drop, self.undrop, self.purge,
                 self.rename, self.write, self.protect]
            )  # fmt: skip
            step()
        listed = set(self.calls.list_tables(DATASET).tables)
        assert listed == {name for name, is_dropped in self.expected.values() if not is_dropped}

    # -- steps -------------------------------------------------------------------------------------

    def create(self) -> None:
        name, rows = self.random.choice(NAMES), self.next_rows
        self.next_rows += 1
        if (*SPACE, name) in self.namespace.server.tables:
            with pytest.raises(TableAlreadyExistsError):
                self.calls.create_table([*DATASET, name], stream(rows))
        else:
            self.calls.create_table([*DATASET, name], stream(rows))
            self.expected[rows] = (name, False)
        self._compare()

    def drop(self) -> None:
        rows = self._any(is_dropped=False)
        if rows is None:
            return
        name, _ = self.expected[rows]

        def act() -> object:
            return self.calls.drop_table([*DATASET, name])

        if rows in self.protected:
            with pytest.raises(InvalidTableStateError, match="protected"):
                act()
            return
        self._try(rows, act, (name, True))

    def undrop(self) -> None:
        rows = self._any(is_dropped=True)
        if rows is None:
            return
        entry = self._entry(rows)
        name = self.random.choice([*NAMES, self.expected[rows][0]])
        undrop = partial(self.namespace.tables.undrop, entry, (*SPACE, name))
        self._try(rows, undrop, (name, False))

    def purge(self) -> None:
        rows = self._any(is_dropped=True)
        if rows is None:
            return
        found = self.namespace.tables.find_dropped(self._entry(rows))
        self._try(rows, lambda: self.namespace.tables.purge(found), None)

    def rename(self) -> None:
        rows = self._any(is_dropped=False)
        if rows is None:
            return
        name, new = self.expected[rows][0], self.random.choice(NAMES)
        self._try(rows, lambda: self.calls.rename_table([*DATASET, name], new), (new, False))

    def write(self) -> None:
        """Replace the rows of a table by others."""
        rows = self._any(is_dropped=False)
        if rows is None:
            return
        state, new = self.expected[rows], self.next_rows
        self.next_rows += 1
        table = [*DATASET, state[0]]
        self.calls.call("insert_into_table", table, stream(new), mode="overwrite")
        del self.expected[rows]
        self.expected[new] = state
        if rows in self.protected:
            self.protected.add(new)
        self._compare()

    def protect(self) -> None:
        rows = self._any(is_dropped=False)
        if rows is None:
            return
        is_protected = rows not in self.protected
        table = self.namespace.tables.load((*SPACE, self.expected[rows][0]))
        table.add_properties({"protected": str(is_protected).lower()})
        (self.protected.add if is_protected else self.protected.discard)(rows)

    # -- what happens ------------------------------------------------------------------------------

    def _any(self, *, is_dropped: bool) -> int | None:
        fitting = [rows for rows, state in self.expected.items() if state[1] is is_dropped]
        return self.random.choice(fitting) if fitting else None

    def _entry(self, rows: int) -> tuple[str, ...]:
        [path] = [
            each.path
            for each in self.namespace.tables.scan(SPACE)
            if lance.dataset(each.uri).count_rows() == rows
        ]
        return path

    def _is_taken(self, name: str, rows: int) -> bool:
        """Return whether another table has a name, or the table itself and is listed."""
        owner = self.namespace.tables.find((*SPACE, name))
        if owner is None:
            return False
        is_own = lance.dataset(owner.uri).count_rows() == rows
        return not (is_own and owner.record.is_dropped)

    def _compare(self) -> None:
        assert self.observed() == self.expected

    def _try(self, rows: int, act: Callable[[], object], after: State | None) -> None:
        """Do something with a table, perhaps killed; it is then as before, or as after that."""
        before = self.expected.get(rows)
        is_taken = after is not None and not after[1] and self._is_taken(after[0], rows)
        with self._killed_at_random() as fate:
            if is_taken:
                with pytest.raises((TableAlreadyExistsError, _Killed)):
                    act()
                after = before
            else:
                act()
        if fate.is_killed:
            found = self.observed()
            possible = [before, after]
            if before is not None and after is not None and before[1] is True:
                possible.append((before[0], True))
            assert found.get(rows) in possible
            after = found.get(rows)
        if after is None:
            self.expected.pop(rows, None)
        else:
            self.expected[rows] = after
        self._compare()

    @contextmanager
    def _killed_at_random(self) -> Iterator[_Fate]:
        fate = _Fate(self.random.choice([0, 0, 1, 2, 3, 4]))
        server = self.namespace.server
        server.fault = fate.strike if fate.left else None
        try:
            yield fate
        except _Killed:
            fate.is_killed = True
        finally:
            server.fault = None


@dataclass
class _Fate:
    left: int
    """How many times changes begin or end until the kill; 0 for none."""
    is_killed: bool = False

    def strike(self, *_: object) -> None:
        self.left -= 1
        if not self.left:
            self.is_killed = True
            raise _Killed


def run_sequences(node: str, directory: Path, seeds: range) -> None:
    for seed in seeds:
        name = f"{node} {seed}"
        start_server(name, replace(CAPABILITIES, no_alter="", no_rename=""))
        namespace = MemoryNamespace(
            uri=name, root=str(directory / str(seed)), **{"drop.retention": "7d"}
        )
        Sequence(namespace, random.Random(f"{SEED} {seed}")).run()


@pytest.mark.quick
def test_no_table_is_lost_or_changed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    run_sequences(request.node.nodeid, tmp_path, range(30))


@pytest.mark.slow
def test_no_table_of_2000_sequences_is_lost_or_changed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run_sequences(request.node.nodeid, tmp_path, range(30, 2030))
