"""What is measured: one catalog that runs and is filled, and the operations on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from lance_namespace import (
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)

from bench.fixture import NAMESPACE, Fixture, RawCalls, RawClient, location
from bench.measure import Operation, Wire
from lance_bridge.location import for_lance


@dataclass(frozen=True)
class Bars:
    """What must be reached: our time for each of the raw client's, calls on the wire; None: none.

    ``threads`` is our throughput for each of the raw clients'.
    """

    tables: float | None = None
    table_calls: int | None = None
    namespaces: float | None = None
    namespace_calls: int | None = None
    describe: float | None = None
    describe_calls: int | None = 1
    threads: float | None = None


def pages(entries: int, size: int) -> int:
    """Return how many pages so many entries fill."""
    return -(-entries // size)


class Subject(ABC):
    """One catalog: how the bridge gets there, and the raw client of it."""

    calls: RawCalls
    bars: Bars

    def __init__(self, title: str, fixture: Fixture) -> None:
        self.title = title
        self.fixture = fixture

    @abstractmethod
    def connect(self, address: str | None = None) -> Any:
        """Return a namespace on it, or on the proxy at that address; good for many threads."""

    @abstractmethod
    def raw(self) -> RawClient:
        """Return a new raw client."""

    @abstractmethod
    def wire(self) -> AbstractContextManager[Wire]:
        """Return a proxy in front of it that counts."""

    def name_of(self, number: int) -> str:
        """Return the name of some Lance table."""
        names = self.fixture.names
        return names[number * 37 % len(names)]

    def is_right(self, name: str, place: Any) -> bool:
        """Return True where a Lance table is at that place."""
        return bool(for_lance(place) == for_lance(self.fixture.locations[name]))


def operations(subject: Subject, raw: RawClient) -> list[Operation]:
    """Return what is measured, in an order in which each round can be done."""
    return [*_listings(subject, raw), _describe(subject, raw), *_changes(subject, raw)]


def _listings(subject: Subject, raw: RawClient) -> list[Operation]:
    fixture, bars, names = subject.fixture, subject.bars, subject.fixture.names
    return [
        Operation(
            "list_tables",
            lambda ns, _: ns.list_tables(ListTablesRequest(id=[NAMESPACE])).tables,
            lambda _: raw.list_tables(),
            subject.calls.list_tables,
            lambda answer, _: bool(answer == names),
            bars.tables,
            bars.table_calls,
        ),
        Operation(
            "list_tables limit 10",
            lambda ns, _: ns.list_tables(ListTablesRequest(id=[NAMESPACE], limit=10)).tables,
            lambda _: raw.list_tables(),
            subject.calls.list_tables,
            lambda answer, _: bool(answer == names[:10]),
            bars.tables,
            bars.table_calls,
        ),
        Operation(
            "list_namespaces",
            lambda ns, _: ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces,
            lambda _: raw.list_namespaces(),
            subject.calls.list_namespaces,
            lambda answer, _: len(answer) == fixture.namespaces and NAMESPACE in answer,
            bars.namespaces,
            bars.namespace_calls,
        ),
    ]


def _describe(subject: Subject, raw: RawClient) -> Operation:
    name_of = subject.name_of
    return Operation(
        "describe_table",
        lambda ns, n: ns.describe_table(DescribeTableRequest(id=[NAMESPACE, name_of(n)])),
        lambda n: raw.location_of(name_of(n)),
        subject.calls.describe_table,
        lambda answer, n: subject.is_right(name_of(n), answer.location),
        subject.bars.describe,
        subject.bars.describe_calls,
        # Short, and so the more easily disturbed.
        repeats=5,
    )


def _changes(subject: Subject, raw: RawClient) -> list[Operation]:
    root = subject.fixture.root

    def is_new(answer: Any, number: int) -> bool:
        return bool(answer.location == for_lance(location(root, f"ours_{number}")))

    return [
        Operation(
            "declare_table",
            lambda ns, n: ns.declare_table(DeclareTableRequest(id=[NAMESPACE, f"ours_{n}"])),
            lambda n: raw.create_table(f"raw_{n}", location(root, f"raw_{n}")),
            subject.calls.declare_table,
            is_new,
        ),
        Operation(
            "deregister_table",
            lambda ns, n: ns.deregister_table(DeregisterTableRequest(id=[NAMESPACE, f"ours_{n}"])),
            lambda n: raw.drop_table(f"raw_{n}"),
            subject.calls.deregister_table,
            is_new,
        ),
    ]
