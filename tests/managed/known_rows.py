"""The rows that a table may have, by the results that its clients got."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import lance
import pyarrow as pa

from lance_bridge.errors import LANCE_ERRORS

Rows = dict[int, int]
"""Values by identifier."""
Change = Callable[[Rows], Rows]


class Outcome(Enum):
    """The result of a change for its client."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass
class Model:
    """What a read by name may return.

    Attributes:
        states: The acknowledged rows; several as long as the outcome of a change is unknown.
        others: Rows that were written past the catalog, or whose outcome is unknown: an operator
            may adopt them at any time, also after a change that would have deleted them.
    """

    states: list[Rows]
    others: Rows = field(default_factory=dict)

    def acknowledge(self, change: Change) -> None:
        """Apply a change that was made."""
        self._set([change(each) for each in self.states])

    def suspect(self, change: Change) -> None:
        """Apply a change that may have been made."""
        self._set([*self.states, *(change(each) for each in self.states)])

    def see(self, found: Rows) -> None:
        """Take what was read by name: it is not taken back.

        Raises:
            AssertionError: it is not what was acknowledged.
        """
        fitting = [each for each in self.states if self._fits(each, found)]
        assert fitting, self._difference(found)
        self.states = [found]

    def _fits(self, state: Rows, found: Rows) -> bool:
        more = {u: v for u, v in found.items() if u not in state}
        return found == {**more, **state} and more.items() <= self.others.items()

    def _difference(self, found: Rows) -> str:
        [state, *more] = self.states
        lost = {u: v for u, v in state.items() if found.get(u) != v}
        wrong = {u: v for u, v in found.items() if u not in state and self.others.get(u) != v}
        return f"lost: {lost}; not expected: {wrong}; found: {found}; other states: {more}"

    def _set(self, states: Sequence[Rows]) -> None:
        self.states = [each for i, each in enumerate(states) if each not in states[:i]]


def table_of(rows: Rows) -> pa.Table:
    """Return rows as pylance takes them."""
    columns = {"u": list(rows.keys()), "v": list(rows.values())}
    return pa.table(columns, schema=pa.schema([("u", pa.int64()), ("v", pa.int64())]))


def rows_in(table: pa.Table) -> Rows:
    """Return the rows of a table, none of which is there twice."""
    pairs = list(zip(table["u"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert len(dict(pairs)) == len(pairs), f"rows are doubled: {sorted(pairs)}"
    return dict(pairs)


def rows_of(dataset: lance.LanceDataset) -> list[int]:
    """Return the rows of a dataset, if its data can be read."""
    try:
        return sorted(rows_in(dataset.to_table()))
    except LANCE_ERRORS:
        return []
