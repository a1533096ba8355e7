"""How operations inside a table are measured: each beside the same call of pylance, in turn.

One round makes two tables with the same rows, one through the namespace and one by its path, and
does every step on both. Every round begins anew, so that each meets a table in the same state.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
from lance_namespace import DeregisterTableRequest, LanceNamespace

from bench.fixture import NAMESPACE, RawClient
from bench.measure import Wire
from lance_bridge.location import for_lance

OWN_BAR = 3.0
"""Milliseconds of our own on top of pylance's call and of the one call to the catalog."""
CALLS_BAR = 1


@dataclass
class Table:
    """The table that the namespace's operations are on, for one round."""

    id: list[str]
    answers: dict[str, Any] = field(default_factory=dict)
    """What the earlier steps of the round were answered."""


@dataclass(frozen=True)
class Step:
    """One operation, in both ways.

    ``raw`` gets the place of a table and opens it there. ``same`` says whether the two answers
    agree. Only a step that makes the table itself has no bars.
    """

    name: str
    ours: Callable[[Any, Table], Any]
    raw: Callable[[str], Any]
    same: Callable[[Any, Any], bool]
    makes_table: bool = False


def on(call: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return a call on a dataset as one that opens it by its path before."""
    return lambda place: call(lance.dataset(place))


@dataclass
class Pair:
    """What was measured of one step; times in seconds."""

    ours: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    call: list[float] = field(default_factory=list)
    calls: dict[str, float] = field(default_factory=dict)
    wrong: int = 0

    def medians_ms(self) -> tuple[float, float, float]:
        """Return the medians of ours, of pylance's call and of the catalog's, in milliseconds."""
        ours, raw, call = map(statistics.median, (self.ours, self.raw, self.call))
        return ours * 1000, raw * 1000, call * 1000

    def own_at_best_ms(self) -> float:
        """Return what is our own of the quickest: on a busy machine it is the truest there is."""
        return (min(self.ours) - min(self.raw) - min(self.call)) * 1000

    def own_ms(self) -> tuple[float, float, float]:
        """Return the lower quartile, the median and the upper one of what is our own."""
        own = [o - r - c for o, r, c in zip(self.ours, self.raw, self.call, strict=True)]
        if len(own) == 1:
            return (own[0] * 1000,) * 3
        low, middle, high = statistics.quantiles(own, n=4, method="inclusive")
        return low * 1000, middle * 1000, high * 1000


class Rounds:
    """Does rounds of the steps, on a namespace and by path; ``root`` is where the tables are."""

    def __init__(self, steps: Sequence[Step], client: RawClient, root: str) -> None:
        self._steps = steps
        self._client = client
        self._root = for_lance(root)
        self._number = 0
        self.unlike = 0
        """Rounds after which the two tables were not alike."""

    def measure(self, namespace: LanceNamespace, rounds: int) -> dict[str, Pair]:
        """Time all steps, who goes first changing with every round."""
        pairs = {step.name: Pair() for step in self._steps}
        for _ in range(rounds):
            with self._tables(namespace) as (table, place):
                for step in self._steps:
                    self._take_turn(step, namespace, table, place, pairs[step.name])
                self.unlike += _state(_place_of(table)) != _state(place)
        return pairs

    def count(self, namespace: LanceNamespace, wire: Wire, pairs: dict[str, Pair]) -> None:
        """Count the calls of all steps, on a namespace that goes through the proxy."""
        with self._tables(namespace) as (table, _):
            for step in self._steps:
                wire.reset()
                table.answers[step.name] = step.ours(namespace, table)
                pairs[step.name].calls = {k: float(v) for k, v in wire.calls().items()}

    @contextmanager
    def _tables(self, namespace: LanceNamespace) -> Iterator[tuple[Table, str]]:
        self._number += 1
        name = f"inside_{self._number}"
        place = f"{self._root}/raw_{name}.lance"
        yield Table([NAMESPACE, name]), place
        gone = namespace.deregister_table(DeregisterTableRequest(id=[NAMESPACE, name]))
        for each in (for_lance(gone.location or ""), place):
            if Path(each).exists():
                shutil.rmtree(each)

    def _take_turn(
        self, step: Step, namespace: LanceNamespace, table: Table, place: str, found: Pair
    ) -> None:
        answers: dict[str, Any] = {}
        turns: list[tuple[str, list[float], Callable[[], Any]]] = [
            ("ours", found.ours, lambda: step.ours(namespace, table)),
            ("raw", found.raw, lambda: step.raw(place)),
            ("call", found.call, lambda: self._call(step, table, place)),
        ]
        first = self._number % len(turns)
        for who, seconds, do in turns[first:] + turns[:first]:
            started = time.perf_counter()
            answers[who] = do()
            seconds.append(time.perf_counter() - started)
        if step.makes_table:
            self._client.drop_table(f"raw_{table.id[-1]}")
        table.answers[step.name] = answers["ours"]
        found.wrong += not step.same(answers["ours"], answers["raw"])

    def _call(self, step: Step, table: Table, place: str) -> None:
        """Make the raw call that is the least for the step: read an entry, or make one."""
        if step.makes_table:
            self._client.create_table(f"raw_{table.id[-1]}", place)
        else:
            self._client.location_of(table.id[-1])


def _place_of(table: Table) -> str:
    return str(table.answers["create_table"].location)


def _state(place: str) -> tuple[object, ...]:
    """Return what the steps together have made of a table."""
    dataset = lance.dataset(place)
    versions = [dataset.checkout_version(each["version"]) for each in dataset.versions()]
    indices = [sorted(index.name for index in each.describe_indices()) for each in versions]
    references = sorted(dataset.tags.list()), sorted(dataset.branches.list())
    return [each.count_rows() for each in versions], indices, references
