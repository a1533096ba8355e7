"""What is measured against: many namespaces, and in one of them many tables.

Half of the tables are Lance's, and half are ordinary ones. All are made with raw calls.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

NAMESPACE = "bench"
MARKS = {"table_type": "lance", "managed_by": "storage"}
_MAKERS = 4

Thing = TypeVar("Thing")
ClientT = TypeVar("ClientT", bound="RawClient")


@dataclass(frozen=True)
class Fixture:
    """What the catalog holds; ``locations`` are those of the Lance tables, by name."""

    locations: dict[str, str]
    tables: int
    namespaces: int
    root: str

    @classmethod
    def planned(cls, tables: int, namespaces: int, root: str) -> Fixture:
        """Return what is to be made below ``root``."""
        names = _table_names(tables)[::2]
        return cls({name: location(root, name) for name in names}, tables, namespaces, root)

    @property
    def names(self) -> list[str]:
        """The names of the Lance tables, sorted."""
        return sorted(self.locations)

    @property
    def all_names(self) -> list[str]:
        """The names of all tables, sorted."""
        return _table_names(self.tables)

    def other_namespaces(self, there_already: int = 0) -> list[str]:
        """The names of the namespaces without tables, beside those that a catalog begins with."""
        return [f"other_{n:04}" for n in range(self.namespaces - 1 - there_already)]


def _table_names(tables: int) -> list[str]:
    return [f"table_{n:05}" for n in range(tables)]


def location(root: str, name: str) -> str:
    """Return where a Lance table of this name is, as the bridge would place it."""
    return f"{root}/{name}.lance"


@dataclass(frozen=True)
class RawCalls:
    """What the calls of a raw client are, for the report."""

    client: str
    list_tables: str
    list_namespaces: str
    describe_table: str
    declare_table: str
    deregister_table: str


class RawClient(ABC):
    """A client with nothing around it, which does the least that there is to do. For one thread."""

    @abstractmethod
    def list_tables(self) -> Any:
        """Read what tells the Lance tables from others."""

    @abstractmethod
    def list_namespaces(self) -> Any:
        """Read the names of all namespaces."""

    @abstractmethod
    def location_of(self, name: str) -> str:
        """Read one table, and return its location."""

    @abstractmethod
    def create_table(self, name: str, location: str, *, lance: bool = True) -> None:
        """Make one entry, of Lance's or an ordinary one."""

    @abstractmethod
    def drop_table(self, name: str) -> None:
        """Remove one entry."""

    @abstractmethod
    def create_namespace(self, name: str) -> None:
        """Make a namespace."""

    def close(self) -> None:  # noqa: B027 - not all have something to close
        """Let go of connections."""


def fill(connect: Callable[[], RawClient], fixture: Fixture, there_already: int = 0) -> None:
    """Make all that the fixture says, but the namespace of the tables, which is there."""

    def create(client: RawClient, name: str) -> None:
        place = fixture.locations.get(name)
        client.create_table(name, place or f"{fixture.root}/{name}", lance=place is not None)

    others = fixture.other_namespaces(there_already)
    _for_all(connect, others, lambda client, name: client.create_namespace(name))
    _for_all(connect, fixture.all_names, create)


def _for_all(
    connect: Callable[[], ClientT], things: Sequence[Thing], do: Callable[[ClientT, Thing], None]
) -> None:
    mine = threading.local()
    clients: list[ClientT] = []

    def open_one() -> None:
        mine.client = connect()
        clients.append(mine.client)

    with ThreadPoolExecutor(_MAKERS, initializer=open_one) as makers:
        for done in [makers.submit(lambda each: do(mine.client, each), each) for each in things]:
            done.result()
    for client in clients:
        client.close()
