"""Catalogs that tests migrate between, as their own clients see them, and what is migrated."""

from __future__ import annotations

import hashlib
import json
import struct
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hmsclient.genthrift.hive_metastore.ttypes as hive
import lance
import lance_namespace as api
import pyarrow as pa
import pyarrow.parquet as pq
from servers.glue_server import GlueServer
from servers.hive_entries import MARKS, raw_client, raw_table

import lance_bridge
from lance_bridge import LanceBridgeNamespace
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
from lance_bridge_migrate.migration import MigrationType
from lance_bridge_migrate.record import Failure

Entries = dict[str, dict[str, Any]]
"""Namespaces and tables by their names joined with dots."""
_RANDOM = (
    "lance_bridge.id", "lance_bridge.revision", "lance_bridge.migration",
    "lance_bridge.declared_at", "transient_lastDdlTime",
)  # fmt: skip
_OF_CHANGES = ("last_modified_by", "last_modified_time", "lance_bridge.released")
_HIVE = "org.apache.hadoop.hive.ql.io.parquet"


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


# -- tables, and migrations of them ----------------------------------------------------------------


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


def make_foreign_table(hive: Place, *marks: str) -> tuple[str, ...]:
    """Make a table ``foreign`` in Hive as another implementation does."""
    place = hive.lake / "foreign.lance"
    lance.write_dataset(rows(), str(place))
    hive.make_namespace()
    entry = raw_table(hive.prefix, "foreign", str(place))
    for mark in marks:
        MARKS[mark](entry)
    with raw_client(hive.port) as client:
        client.create_table(entry)
    return hive.table("foreign")


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


def plan_registration(target: Place, **options: Any) -> AbstractContextManager[Run]:
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


# -- tables of Parquet, as Hive has them -----------------------------------------------------------


def make_parquet_table(port: int, database: str, name: str, place: Path) -> None:
    """Make a database with an external table of ids and names, without rows."""
    place.mkdir(parents=True)
    with raw_client(port) as client:
        client.create_database(hive.Database(name=database, locationUri=f"file://{place.parent}"))
        client.create_table(external_table(database, name, place))


def external_table(database: str, name: str, place: Path, **parameters: str) -> hive.Table:
    """Return an external table of ids and names."""
    storage = hive.StorageDescriptor(
        cols=[hive.FieldSchema("id", "bigint", ""), hive.FieldSchema("name", "string", "")],
        location=f"file://{place}",
        inputFormat=f"{_HIVE}.MapredParquetInputFormat",
        outputFormat=f"{_HIVE}.MapredParquetOutputFormat",
        serdeInfo=hive.SerDeInfo(
            name=name, serializationLib=f"{_HIVE}.serde.ParquetHiveSerDe", parameters={}
        ),
        parameters={},
    )
    return hive.Table(
        dbName=database,
        tableName=name,
        owner="them",
        sd=storage,
        partitionKeys=[],
        parameters={"EXTERNAL": "TRUE", **parameters},
        tableType="EXTERNAL_TABLE",
    )


def add_rows(place: Path, start: int, stop: int) -> None:
    """Add a file with the rows of some ids."""
    pq.write_table(_rows(start, stop), place / f"part-{start:05}.parquet")


def make_many_tables(port: int, database: str, directory: Path, count: int) -> None:
    """Make external tables of one file with ten rows each, with statistics as Hive keeps them."""
    directory.mkdir(parents=True)
    with raw_client(port) as client:
        client.create_database(hive.Database(name=database, locationUri=f"file://{directory}"))
        for number in range(count):
            place = directory / f"t{number:04}"
            place.mkdir()
            add_rows(place, 0, 10)
            size = (place / "part-00000.parquet").stat().st_size
            sizes = {"numRows": "10", "totalSize": str(size)}
            client.create_table(external_table(database, place.name, place, **sizes))


def _rows(start: int, stop: int) -> pa.Table:
    ids = range(start, stop)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"row {each}" for each in ids]})


# -- files of Avro ---------------------------------------------------------------------------------


_MAGIC, _SYNC = b"Obj\x01", bytes(range(16))


def avro_file(rows: Sequence[dict[str, Any]], block: int = 100) -> bytes:
    """Return a file with rows, whose columns are those of the first row, and may all be null.

    Args:
        block: The number of rows in each block.
    """
    columns = {name: _type_of([row[name] for row in rows], name) for name in rows[0]}
    fields = [{"name": name, "type": ["null", of]} for name, of in columns.items()]
    schema = json.dumps({"type": "record", "name": "Row", "fields": fields})
    header = _number(1) + _text("avro.schema") + _text(schema) + _number(0)
    parts = [_MAGIC, header, _SYNC]
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        data = b"".join(_optional(row[name], of) for row in some for name, of in columns.items())
        parts += [_number(len(some)), _number(len(data)), data, _SYNC]
    return b"".join(parts)


def _type_of(values: Sequence[Any], path: str) -> Any:
    found = [each for each in values if each is not None]
    first = found[0] if found else ""
    if isinstance(first, dict):
        fields = [
            {
                "name": name,
                "type": ["null", _type_of([each[name] for each in found], f"{path}_{name}")],
            }
            for name in first
        ]
        return {"type": "record", "name": f"R_{path}", "fields": fields}
    if isinstance(first, list):
        items = [item for each in found for item in each]
        return {"type": "array", "items": ["null", _type_of(items, f"{path}_item")]}
    return {int: "long", float: "double", str: "string"}[type(first)]


def _optional(value: Any, of: Any) -> bytes:
    return _number(0) if value is None else _number(1) + _value(value, of)


def _value(value: Any, of: Any) -> bytes:
    if of == "long":
        return _number(value)
    if of == "double":
        return struct.pack("<d", value)
    if of == "string":
        return _text(value)
    if of["type"] == "array":
        items = b"".join(_optional(each, of["items"][1]) for each in value)
        return (_number(len(value)) + items if value else b"") + _number(0)
    return b"".join(_optional(value[each["name"]], each["type"][1]) for each in of["fields"])


def _text(value: str) -> bytes:
    data = value.encode()
    return _number(len(data)) + data


def _number(value: int) -> bytes:
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])
