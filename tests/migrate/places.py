"""Catalogs that tests migrate between, and what they hold, as their own clients see it."""

from __future__ import annotations

import hashlib
import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance_namespace as api
from servers.glue_server import GlueServer
from servers.hive_raw import raw_client

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge_migrate import Migrations

Entries = dict[str, dict[str, Any]]
"""Namespaces and tables by their names joined with dots."""

_RANDOM = (
    "lance_bridge.id", "lance_bridge.revision", "lance_bridge.migration",
    "lance_bridge.declared_at", "transient_lastDdlTime",
)  # fmt: skip
_OF_CHANGES = ("last_modified_by", "last_modified_time")


@dataclass(frozen=True)
class Place:
    """A catalog, and the part of it that is a test's own.

    Attributes:
        properties: With secrets.
        outer: The names above a database or schema.
        prefix: What the names of the test's own databases begin with.
        raw: Reads what they hold, with a client that knows nothing of what is under test.
        directory: For the files and the state of the test.
    """

    impl: str
    properties: dict[str, str]
    outer: tuple[str, ...]
    prefix: str
    raw: Callable[[str], Entries]
    directory: Path

    @property
    def lake(self) -> Path:
        """A directory for tables."""
        place = self.directory / "lake"
        place.mkdir(exist_ok=True)
        return place

    @property
    def migrations(self) -> Migrations:
        """The migrations of a state directory of the test's own."""
        return Migrations(self.directory / "state")

    @property
    def port(self) -> int:
        """Where a metastore listens."""
        return int(self.properties["uri"].rsplit(":", 1)[1])

    @contextmanager
    def connect(self) -> Iterator[LanceBridgeNamespace]:
        namespace = lance_bridge.connect(self.impl, self.properties)
        assert isinstance(namespace, LanceBridgeNamespace)
        with namespace:
            yield namespace

    def namespace(self, name: str = "") -> tuple[str, ...]:
        """Return the identifier of a database of the test's own."""
        return (*self.outer, f"{self.prefix}{name}")

    def table(self, name: str, database: str = "") -> tuple[str, ...]:
        return (*self.namespace(database), name)

    def make_namespace(self, name: str = "") -> tuple[str, ...]:
        with self.connect() as namespace:
            request = api.CreateNamespaceRequest(id=list(self.namespace(name)), mode="exist_ok")
            namespace.create_namespace(request)
        return self.namespace(name)

    def entries(self) -> Entries:
        """Return all that the test's own databases hold, just as it is."""
        return self.raw(self.prefix)

    def state(self) -> Entries:
        """Return the same without values that are others in each run."""
        return {name: _settled(entry) for name, entry in self.entries().items()}


def _settled(entry: dict[str, Any]) -> dict[str, Any]:
    parameters = {k: v for k, v in entry["parameters"].items() if k not in _OF_CHANGES}
    shown = {key: "*" if key in _RANDOM else value for key, value in parameters.items()}
    return {**entry, "parameters": shown}


def without(entries: Entries, *keys: str) -> Entries:
    """Return entries without some of their parameters."""
    return {
        name: {
            **entry,
            "parameters": {k: v for k, v in entry["parameters"].items() if k not in keys},
        }
        for name, entry in entries.items()
    }


def files(directory: Path) -> dict[str, str]:
    """Return a digest of each file below a directory."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _entry(type: str | None, location: str, parameters: dict[str, str] | None) -> dict[str, Any]:
    return {"type": type, "location": location, "parameters": parameters or {}}


def hive_reader(port: int) -> Callable[[str], Entries]:
    def read(prefix: str) -> Entries:
        found: Entries = {}
        with raw_client(port) as client:
            for name in _own(client.get_all_databases(), prefix):
                found[name] = {"parameters": client.get_database(name).parameters or {}}
                for each in client.get_all_tables(name):
                    table = client.get_table(name, each)
                    entry = _entry(table.tableType, table.sd.location, table.parameters)
                    found[f"{name}.{each}"] = entry
        return found

    return read


def _own(names: Iterable[str], prefix: str) -> list[str]:
    return [name for name in names if name.startswith(prefix)]


def drop_in_hive(port: int, prefix: str) -> None:
    """Drop the databases of a test, and no file."""
    with raw_client(port) as client:
        for name in _own(client.get_all_databases(), prefix):
            for table in client.get_all_tables(name):
                client.drop_table(name, table, False)
            client.drop_database(name, False, False)


def glue_reader(server: GlueServer) -> Callable[[str], Entries]:
    def read(prefix: str) -> Entries:
        found: Entries = {}
        databases = {each["Name"]: each for each in server.glue.get_databases()["DatabaseList"]}
        for name in _own(databases, prefix):
            found[name] = {"parameters": databases[name].get("Parameters", {})}
            for table in server.glue.get_tables(DatabaseName=name)["TableList"]:
                location = table["StorageDescriptor"]["Location"]
                entry = _entry(table.get("TableType"), location, table["Parameters"])
                found[f"{name}.{table['Name']}"] = entry
        return found

    return read


def unity_reader(url: str, catalog: str) -> Callable[[str], Entries]:
    def ask(what: str, **query: str) -> list[dict[str, Any]]:
        place = f"{url}/api/2.1/unity-catalog/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(place, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer).get(what, [])
        return found

    def read(prefix: str) -> Entries:
        found: Entries = {}
        schemas = {each["name"]: each for each in ask("schemas", catalog_name=catalog)}
        for name in _own(schemas, prefix):
            found[name] = {"parameters": schemas[name].get("properties") or {}}
            for table in ask("tables", catalog_name=catalog, schema_name=name):
                location = table["storage_location"]
                entry = _entry(table["table_type"], location, table.get("properties"))
                found[f"{name}.{table['name']}"] = entry
        return found

    return read
