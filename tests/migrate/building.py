"""Tables that tests migrate, and migrations of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
from migrate.places import Place
from servers.hive_raw import MARKS, raw_client, raw_table

from lance_bridge_migrate import (
    Directory,
    Endpoints,
    Migration,
    Migrations,
    Plan,
    Record,
    RunOptions,
    address_of,
    execute,
    make_plan,
    migration_type,
    undo,
)
from lance_bridge_migrate.journal import Failure
from lance_bridge_migrate.migration import MigrationType


def rows(count: int = 3, start: int = 0) -> pa.Table:
    """Return rows of an integer, a text and a vector."""
    ids = list(range(start, start + count))
    vectors = pa.array([[float(i), 0.0] for i in ids], pa.list_(pa.float32(), 2))
    return pa.table({"id": ids, "name": [f"row {i}" for i in ids], "vector": vectors})


def write(directory: Path, *names: str, count: int = 3) -> None:
    """Write tables as the directory namespace's first version has them."""
    for name in names:
        lance.write_dataset(rows(count), str(directory / f"{name}.lance"))


def register_rows(
    place: Place, name: str, location: Path | None = None, database: str = ""
) -> tuple[str, ...]:
    """Write a table at a location, by default in the lake, and register it in a catalog."""
    location = location or place.lake / f"{name}.lance"
    lance.write_dataset(rows(), str(location))
    place.make_namespace(database)
    table = place.table(name, database)
    with place.connect() as namespace:
        namespace.register_table(api.RegisterTableRequest(id=list(table), location=str(location)))
    return table


def make_theirs(hive: Place, *marks: str) -> tuple[str, ...]:
    """Make a table ``theirs`` in Hive as another implementation does."""
    place = hive.lake / "theirs.lance"
    lance.write_dataset(rows(), str(place))
    hive.make_namespace()
    entry = raw_table(hive.prefix, "theirs", str(place))
    for mark in marks:
        MARKS[mark](entry)
    with raw_client(hive.port) as client:
        client.create_table(entry)
    return hive.table("theirs")


def set_parameter(hive: Place, name: str, key: str, value: str | None) -> None:
    """Change a parameter of an entry as another client does; None removes it."""
    with raw_client(hive.port) as client:
        entry = client.get_table(hive.prefix, name)
        entry.parameters.pop(key, None)
        if value is not None:
            entry.parameters[key] = value
        client.alter_table(hive.prefix, name, entry)


def make_managing(place: Place) -> None:
    """Make the test's own namespace, in which the catalog manages the versions of new tables."""
    with place.connect() as namespace:
        namespace.create_namespace(
            api.CreateNamespaceRequest(
                id=list(place.namespace()), properties={"managed_by": "impl"}
            )
        )


@contextmanager
def from_directory(directory: Path | str, target: Place) -> Iterator[Endpoints]:
    source = Directory.at(str(directory))
    with target.connect() as namespace:
        yield Endpoints(source, namespace, source.address, address_of(namespace))


@contextmanager
def between(source: Place, target: Place) -> Iterator[Endpoints]:
    with source.connect() as one, target.connect() as other:
        yield Endpoints(one, other, address_of(one), address_of(other))


@contextmanager
def within(place: Place) -> Iterator[Endpoints]:
    with place.connect() as namespace:
        address = address_of(namespace)
        yield Endpoints(namespace, namespace, address, address)


class Run:
    """One migration of a test, over endpoints that stay connected."""

    def __init__(self, name: str, endpoints: Endpoints, migrations: Migrations) -> None:
        self.type: MigrationType = migration_type(name)
        self.endpoints = endpoints
        self.migrations = migrations
        self.migration: Migration
        self.options: dict[str, Any] = {}

    def plan(self, **options: Any) -> Plan:
        """Plan it, and keep the plan."""
        self.options = options
        plan = make_plan(self.type, self.endpoints, options)
        self.migration = self.migrations.add(plan)
        return plan

    def plan_again(self, **more: Any) -> Plan:
        """Plan it with the options of before, and more."""
        return self.plan(**{**self.options, **more})

    def another(self, **options: Any) -> Run:
        """Return one more migration of the same kind, which is planned."""
        run = Run(self.type.name, self.endpoints, self.migrations)
        run.plan(**options)
        return run

    def execute(self, **options: Any) -> Record:
        chosen = RunOptions.model_validate(options) if options else None
        return execute(self.type, self.endpoints, self.migration, chosen)

    def undo(self, *, skip_changed: bool = False) -> Record:
        return undo(self.type, self.endpoints, self.migration, skip_changed=skip_changed)


@contextmanager
def planned(
    name: str, endpoints: AbstractContextManager[Endpoints], migrations: Migrations, **options: Any
) -> Iterator[Run]:
    """Yield a migration that is planned with these options."""
    with endpoints as connected:
        run = Run(name, connected, migrations)
        run.plan(**options)
        yield run


def registering(target: Place, **options: Any) -> AbstractContextManager[Run]:
    """Return `planned` for the lake's tables, which go into the test's own database."""
    given = {"namespace": target.namespace(), **options}
    return planned("register", from_directory(target.lake, target), target.migrations, **given)


def select(place: Place, **options: Any) -> dict[str, Any]:
    """Return options, and that for all tables of the test's own databases."""
    return {"include": [".".join((*place.outer, f"{place.prefix}*"))], **options}


def in_place(name: str, place: Place, **options: Any) -> AbstractContextManager[Run]:
    """Return `planned` for the test's own tables, within their catalog."""
    return planned(name, within(place), place.migrations, **select(place, **options))


def plan_in_place(name: str, place: Place, **options: Any) -> Plan:
    with in_place(name, place, **options) as run:
        return run.migration.plan()


def counts_of(record: Record) -> Mapping[str, int]:
    """Return how many items stand where, by the words for it."""
    return {state.value: count for state, count in record.counts.items()}


def error_of(record: Record, key: str) -> Failure:
    """Return why an item of a record has failed."""
    error = record.items[key].error
    assert error is not None, record.items[key]
    return error


def read_by_name(place: Place, table: tuple[str, ...]) -> pa.Table:
    """Return a table's rows as pylance reads them through the catalog."""
    with place.connect() as namespace:
        return lance.dataset(namespace_client=namespace, table_id=list(table)).to_table()
