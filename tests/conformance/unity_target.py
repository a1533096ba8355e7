"""Unity Catalog as targets of the conformance kit: doubles of each kind of server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lance_namespace import LanceNamespace
from servers.http_proxy import Answer, HttpProxy, Request
from servers.neighbours import PROVIDER, VIEW, Fields, neighbours_at
from servers.object_stores import MotoServer
from servers.unity import DATABRICKS, WAREHOUSE_ID, Bucket, UnityServer
from servers.unity.dialects import ErrorKind

from lance_bridge.catalog import Catalog
from lance_bridge.catalog import Path as TablePath
from lance_bridge.testing import Faults, Features, Neighbour, RawEntry, Target
from lance_bridge.testing.target import from_capabilities, inherited_operations
from lance_bridge_unity import UnityNamespace
from lance_bridge_unity.mapping import capabilities

from .faulty_servers import HttpFaults

CATALOG = "lance_kit"
_BASE = Features(
    pickles=True,
    absent=inherited_operations(UnityNamespace),
    # '@' and '-' are letters of names here.
    good_names=(*Features().good_names, "a-b", "-a", "a@b"),
)


def _column(name: str, unity: str, spark: str) -> dict[str, Any]:
    field = {"name": name, "type": spark, "nullable": True, "metadata": {}}
    return {
        "name": name,
        "type_text": spark,
        "type_name": unity,
        "type_json": json.dumps(field),
        "position": 0,
        "nullable": True,
    }


_PLACEHOLDER = _column("__placeholder_id", "LONG", "long") | {"type_json": '{"type":"long"}'}
_LANCE = {"table_type": "lance", "managed_by": "storage"}

MARKS: Mapping[str, Mapping[str, Any]] = {
    "as_lance_namespace_impls_write_it": {
        "columns": [_PLACEHOLDER],
        "properties": {"table_type": "lance", "managed_by": "catalog"},
    },
    "upper_case_type": {"properties": {**_LANCE, "table_type": "LANCE"}},
    "mixed_case_type_alone": {"properties": {"table_type": "Lance"}},
    "version_in_properties": {"properties": {**_LANCE, "version": "1"}},
    "another_format": {"properties": _LANCE, "data_source_format": "PARQUET"},
    "no_format": {"properties": _LANCE, "data_source_format": None},
    "with_columns": {"properties": _LANCE, "columns": [_column("id", "LONG", "long")]},
}
"""Lance entries that other implementations make, or made with older servers, by name."""

BROKEN_MARKS: Mapping[str, Mapping[str, Any]] = {
    "without_location": {"properties": _LANCE, "storage_location": None},
}
"""Databricks shows entries without a location to users who may only browse them; the open-source
server makes none. A name that answers 500 cannot be dropped: see `test_unity`."""


UNREADABLE: Mapping[str, ErrorKind] = {
    "schema_that_may_not_be_read": ErrorKind(403, "PERMISSION_DENIED"),
    "schema_that_the_server_cannot_read": ErrorKind(500, "INTERNAL"),
    "catalog_that_is_foreign": ErrorKind(400, "INVALID_ARGUMENT"),
    "catalog_whose_share_is_withdrawn": ErrorKind(404, "SHARE_DOES_NOT_EXIST"),
    "catalog_that_may_not_be_read": ErrorKind(403, "PERMISSION_DENIED"),
    "catalog_that_the_server_cannot_read": ErrorKind(500, "INTERNAL"),
}
"""Answers to listings inside of what is listed itself."""


def info_of_fields(fields: Fields) -> dict[str, Any]:
    """Return an entry that another tool makes, as the server has it."""
    provider = fields.parameters.get(PROVIDER, "parquet").upper()
    known = provider in ("CSV", "JSON", "AVRO", "DELTA", "PARQUET")
    return {
        "table_type": "VIEW" if fields.entry_type == VIEW else "EXTERNAL",
        "data_source_format": provider if known and fields.location else None,
        "storage_location": None if fields.location is None else _uri(fields.location),
        "properties": {
            **{k: v for k, v in fields.parameters.items() if k != PROVIDER},
            **{f"option.{key}": value for key, value in fields.options.items()},
        },
    }


class UnityTarget(Target):
    """The open-source server; ``pinned`` leaves the catalog out of identifiers."""

    other_entry_types = tuple(MARKS)
    broken_entry_types = tuple(BROKEN_MARKS)
    unreadable_types = tuple(UNREADABLE)

    def __init__(self, server: UnityServer, data_root: str, *, pinned: bool = False) -> None:
        self.server = server
        self.data_root = data_root
        self.parent = () if pinned else (CATALOG,)
        self.features = from_capabilities(
            capabilities(databricks=server.dialect.databricks, pinned=pinned, has_warehouse=True),
            _BASE,
        )
        self._properties = {"catalog": CATALOG} if pinned else {}
        if pinned:
            self.unreadable_types = tuple(n for n in UNREADABLE if n.startswith("schema"))
        server.add_catalog(CATALOG)

    def connect(self) -> LanceNamespace:
        return UnityNamespace(**self.properties())

    def properties(self) -> dict[str, str]:
        """Return the properties of a client; small limits, so that a dead server shows soon."""
        return {
            "endpoint": self.server.url,
            "root": f"{self.data_root}/warehouse",
            "retry_timeout": "3",
            "connect_timeout": "5",
            "read_timeout": "20",
            **self._properties,
        }

    def make_foreign_table(self, namespace_id: Sequence[str], name: str, location: str) -> None:
        columns = [_column("id", "INT", "integer")]
        self._add(namespace_id, name, storage_location=_uri(location), columns=columns)

    def make_entry(
        self, namespace_id: Sequence[str], name: str, location: str, entry_type: str
    ) -> None:
        plain = {"data_source_format": "TEXT", "storage_location": _uri(location)}
        self._add(namespace_id, name, **{**plain, **{**MARKS, **BROKEN_MARKS}[entry_type]})

    def _add(self, namespace_id: Sequence[str], name: str, **more: Any) -> None:
        self.server.add_table(CATALOG, namespace_id[-1], name, **more)

    def inhabit(self, namespace_id: Sequence[str], location: str) -> list[Neighbour]:
        found = neighbours_at(location, odd_name="odd näme's")
        made = [(neighbour, fields) for neighbour, fields in found if not fields.partitions]
        for neighbour, fields in made:
            self.add_entry(namespace_id, neighbour.name, fields)
        return [neighbour for neighbour, _ in made]

    def add_entry(self, namespace_id: Sequence[str], name: str, fields: Fields) -> None:
        """Make an entry as another tool does; the server has no partitions."""
        self._add(namespace_id, name, **info_of_fields(fields))

    @contextmanager
    def unreadable(self, unreadable_type: str) -> Iterator[list[str]]:
        kind, name = UNREADABLE[unreadable_type], f"unreadable_{uuid.uuid4().hex[:8]}"
        if unreadable_type.startswith("catalog"):
            self.server.add_catalog(name)
            found = [name]
        else:
            self.server.add_schema(CATALOG, name)
            found = [*self.parent, name]
        self.server.refuse("GET /*s", kind, "the connection is down", about=name)
        try:
            yield found
        finally:
            self.server.allow_all()
            self.server.remove(*([name] if len(found) == 1 and self.parent else [CATALOG, name]))

    def remove_entry(self, namespace_id: Sequence[str], name: str) -> None:
        self.server.remove_table(CATALOG, namespace_id[-1], name)

    def other_catalog(self) -> Catalog:
        return UnityNamespace(**{**self.properties(), "endpoint": "http://127.0.0.1:1"}).catalog

    def read_entry(self, path: TablePath) -> RawEntry:
        info = self.server.table(CATALOG, *path[-2:])
        properties = {str(key): str(value) for key, value in info["properties"].items()}
        return RawEntry(info["storage_location"], properties, info["table_type"] == "EXTERNAL")

    def write_entry(self, path: TablePath, entry: RawEntry) -> None:
        kind = "EXTERNAL" if entry.is_external else "MANAGED"
        place = None if entry.location is None else _uri(entry.location)
        fields = {"storage_location": place, "properties": dict(entry.properties)}
        self._add(path[:-1], path[-1], table_type=kind, data_source_format="TEXT", **fields)

    @contextmanager
    def faults(self) -> Iterator[Faults]:
        with HttpProxy(self.server.url) as proxy:
            own = {"endpoint": proxy.endpoint, "retry_timeout": "0"}
            namespace = UnityNamespace(**{**self.properties(), **own})
            yield UnityFaults(proxy, namespace.catalog)
            namespace.close()

    def second_user(self) -> LanceNamespace:
        """She owns the schemas that she creates, without USE SCHEMA: no list has them."""
        token = self.server.grants.add_user("second")
        self.server.grants.grant("second", CATALOG, "USE CATALOG", "CREATE SCHEMA")
        return UnityNamespace(**{**self.properties(), "token": token})

    def stop_server(self) -> None:
        self.server.stop()

    def start_server(self) -> None:
        self.server.start()


class UnityFaults(HttpFaults):
    """Trouble on the way to Unity Catalog."""

    refusal = Answer.of_json(403, {"error_code": "PERMISSION_DENIED", "message": "no right"})
    busy = Answer.of_json(429, {"error_code": "RESOURCE_EXHAUSTED", "message": "too much"})
    rejection = Answer.of_json(401, {"error_code": "UNAUTHENTICATED", "message": "who is it"})
    failure = Answer.of_json(500, {"error_code": "INTERNAL", "message": "out of order"})

    def concerns(self, request: Request) -> bool:
        return request.path.startswith("/api/")

    def is_change(self, request: Request) -> bool:
        is_read = request.method == "GET" or "/temporary-" in request.path
        return self.concerns(request) and not is_read


class DatabricksTarget(UnityTarget):
    """Databricks with a SQL warehouse, logged in by OAuth, machine to machine."""

    secrets = ("double-secret",)
    second_user = Target.second_user  # what its listings omit was not seen

    def __init__(self, server: UnityServer, data_root: str) -> None:
        assert server.dialect is DATABRICKS
        super().__init__(server, data_root)
        self._properties = {
            "client_id": "double-client",
            "client_secret": "double-secret",
            "warehouse_id": WAREHOUSE_ID,
            # Or else a pickle has the id of the client without its secret.
            "pickle.secrets": "true",
        }


class UnityOnS3Target(UnityTarget):
    """The open-source server with tables on S3, to which only it has the keys."""

    def __init__(self, server: UnityServer, moto: MotoServer, bucket: str) -> None:
        uri = moto.make_bucket(bucket)
        super().__init__(server, uri)
        self.storage_options = moto.storage_options
        options = moto.storage_options
        keys = Bucket(options["aws_access_key_id"], options["aws_secret_access_key"])
        server.add_bucket(uri, keys)
        for option in ("aws_endpoint", "aws_region", "allow_http"):
            self._properties[f"storage.{option}"] = options[option]


def _uri(location: str) -> str:
    return Path(location).as_uri() if location.startswith("/") else location
