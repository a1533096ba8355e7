"""AWS Glue as a target of the conformance kit: moto's, held to AWS's documentation."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lance_namespace import LanceNamespace
from servers.glue_server import SECRET_KEY, GlueServer
from servers.http_proxy import Answer, HttpProxy, Request
from servers.neighbours import FORMATS, Fields, neighbours_at

from lance_bridge.catalog import Catalog
from lance_bridge.catalog import Path as TablePath
from lance_bridge.testing import Faults, Features, Neighbour, RawEntry, Target
from lance_bridge.testing.target import from_capabilities, inherited_operations
from lance_bridge_glue import GlueNamespace
from lance_bridge_glue.mapping import capabilities

from .faulty_servers import HttpFaults

_LANCE = {"table_type": "lance", "managed_by": "storage"}

MARKS: Mapping[str, Mapping[str, Any]] = {
    "lance_namespace_impls_in_java": {
        "TableType": None,
        "StorageDescriptor": {"Columns": None, "Parameters": _LANCE},
    },
    "lance_namespace_impls_in_python": {
        "Parameters": {"table_type": "LANCE", "empty_table": "true"},
        "StorageDescriptor": {
            "Columns": [{"Name": "__placeholder_id", "Type": "bigint", "Comment": "Placeholder"}],
            "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            },
        },
    },
    "marks_in_upper_case": {"Parameters": {"table_type": "LANCE", "managed_by": "STORAGE"}},
    "without_managed_by": {"Parameters": {"managed_by": None}},
    "looking_managed": {"TableType": "MANAGED_TABLE", "Parameters": {"managed_by": "catalog"}},
    "with_fields_of_crawlers_and_athena": {
        **{"Owner": "hadoop", "Retention": 0, "PartitionKeys": [], "Description": "a table"},
        "Parameters": {"EXTERNAL": "TRUE", "transient_lastDdlTime": "1700000000"},
        "StorageDescriptor": {
            "Columns": [{"Name": "id", "Type": "bigint"}, {"Name": "v", "Type": "array<float>"}],
            **{"Compressed": False, "NumberOfBuckets": -1, "StoredAsSubDirectories": False},
        },
    },
    "location_with_slash_at_the_end": {"StorageDescriptor": {"Location": "{location}/"}},
    "location_spelled_for_hadoop": {"StorageDescriptor": {"Location": "{spelled_for_hadoop}"}},
}
"""Lance entries that other implementations make, by name: what they have in place of ours."""

BROKEN_MARKS: Mapping[str, Mapping[str, Any]] = {
    "without_storage_descriptor": {"StorageDescriptor": None},
    "without_location": {"StorageDescriptor": {"Location": None}},
    "with_empty_location": {"StorageDescriptor": {"Location": ""}},
    "link_to_a_table_that_is_gone": {
        "StorageDescriptor": None,
        "TargetTable": {"CatalogId": "210987654321", "DatabaseName": "gone", "Name": "gone"},
    },
}
"""Entries marked as Lance's that no table can be behind."""


_UNREADABLE = {
    "database_that_may_not_be_read": Answer.of_aws("AccessDeniedException"),
    "federated_database_without_its_source": Answer.of_aws("FederationSourceException"),
    "federated_database_whose_source_is_down": Answer.of_aws("FederationSourceRetryableException"),
    "database_that_glue_cannot_read": Answer.of_aws("InternalServiceException", status=500),
}
"""Answers to GetTables and GetTable of a database that GetDatabases lists."""


def lance_entry(name: str, location: str, changes: Mapping[str, Any] | None = None) -> Any:
    """Return an external Lance entry, as a TableInput, with changes to it; None removes a field."""
    scheme = "file:{0}" if location.startswith("/") else "{0}"
    hadoop = scheme.format(location.replace("s3://", "s3a://", 1))

    def changed(entry: Any, changes: Any) -> Any:
        if isinstance(changes, str):
            return changes.format(location=location, spelled_for_hadoop=hadoop)
        if not isinstance(changes, Mapping):
            return changes
        found = entry if isinstance(entry, Mapping) else {}
        merged = {**found, **{k: changed(found.get(k), v) for k, v in changes.items()}}
        return {key: value for key, value in merged.items() if value is not None}

    entry = {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": _LANCE,
        "StorageDescriptor": {"Location": location, "Columns": []},
    }
    return changed(entry, changes or {})


def entry_of_fields(name: str, fields: Fields) -> dict[str, Any]:
    """Return an entry that another tool makes, as a TableInput."""
    descriptor: dict[str, Any] = {
        "Columns": [{"Name": "id", "Type": "int"}],
        "InputFormat": fields.input_format,
        "SerdeInfo": {"Parameters": dict(fields.options)},
    }
    if fields.location is not None:
        descriptor["Location"] = fields.location
    keys = [{"Name": "day", "Type": "string"}] if fields.partitions else []
    return {
        "Name": name,
        "TableType": fields.entry_type,
        "Parameters": dict(fields.parameters),
        "StorageDescriptor": descriptor,
        "PartitionKeys": keys,
    }


class GlueTarget(Target):
    """One server of the tests' own, seen through a proxy, so that it can be out of reach."""

    features = from_capabilities(
        capabilities(),
        Features(
            pickles=True,
            absent=inherited_operations(GlueNamespace),
            good_names=(*Features.good_names, "a-b", "a.b"),
        ),
    )
    other_entry_types = tuple(MARKS)
    broken_entry_types = tuple(BROKEN_MARKS)
    unreadable_types = tuple(_UNREADABLE)
    secrets = (SECRET_KEY,)
    identity_resolution = 1.1  # the time of creation, in seconds

    def __init__(
        self, server: GlueServer, proxy: HttpProxy, data_root: str, **properties: str
    ) -> None:
        self._server = server
        self._proxy = proxy
        self._properties = {
            **server.properties,
            "endpoint": proxy.endpoint,
            "max_retries": "1",
            "client.connect-timeout": "2",
            **properties,
        }
        self.data_root = data_root

    def connect(self) -> LanceNamespace:
        return GlueNamespace(**self._properties)

    def make_foreign_table(self, namespace_id: Sequence[str], name: str, location: str) -> None:
        columns = {"Columns": [{"Name": "id", "Type": "int"}]}
        entry = lance_entry(name, location, {"StorageDescriptor": columns})
        entry["Parameters"] = {"classification": "parquet"}
        self._server.glue.create_table(DatabaseName=namespace_id[-1], TableInput=entry)

    def make_entry(
        self, namespace_id: Sequence[str], name: str, location: str, entry_type: str
    ) -> None:
        entry = lance_entry(name, location, {**MARKS, **BROKEN_MARKS}[entry_type])
        self._server.glue.create_table(DatabaseName=namespace_id[-1], TableInput=entry)

    def make_partitioned_table(
        self, namespace_id: Sequence[str], name: str, location: str, partitions: Sequence[str]
    ) -> None:
        entry = lance_entry(name, location)
        entry.update(Parameters={}, PartitionKeys=[{"Name": "day", "Type": "string"}])
        database, glue = namespace_id[-1], self._server.glue
        glue.create_table(DatabaseName=database, TableInput=entry)
        self._add_partitions(database, name, partitions)

    def _add_partitions(self, database: str, name: str, partitions: Sequence[str]) -> None:
        for number, place in enumerate(partitions):
            partition = {"Values": [str(number)], "StorageDescriptor": {"Location": place}}
            self._server.glue.create_partition(
                DatabaseName=database, TableName=name, PartitionInput=partition
            )

    def inhabit(self, namespace_id: Sequence[str], location: str) -> list[Neighbour]:
        made = []
        for neighbour, fields in neighbours_at(location, odd_name="odd näme/1"):
            self.add_entry(namespace_id, neighbour.name, fields)
            made.append(neighbour)
        entry = entry_of_fields("additional", FORMATS["parquet"](f"{location}/none"))
        entry["StorageDescriptor"]["AdditionalLocations"] = [f"{location}/additional"]
        self._server.glue.create_table(DatabaseName=namespace_id[-1], TableInput=entry)
        return [*made, Neighbour("additional", [f"{location}/additional"])]

    def add_entry(self, namespace_id: Sequence[str], name: str, fields: Fields) -> None:
        """Make an entry as another tool does."""
        database, entry = namespace_id[-1], entry_of_fields(name, fields)
        self._server.glue.create_table(DatabaseName=database, TableInput=entry)
        self._add_partitions(database, name, fields.partitions)

    @contextmanager
    def unreadable(self, unreadable_type: str) -> Iterator[list[str]]:
        database, glue = f"unreadable_{uuid.uuid4().hex[:8]}", self._server.glue
        glue.create_database(DatabaseInput={"Name": database})
        self._proxy.fail_next(
            lambda request: (
                request.key.startswith("GetTable") and request.json["DatabaseName"] == database
            ),
            _UNREADABLE[unreadable_type],
            times=float("inf"),
        )
        try:
            yield [database]
        finally:
            self._proxy.reset()
            glue.delete_database(Name=database)

    def remove_entry(self, namespace_id: Sequence[str], name: str) -> None:
        glue = self._server.glue
        try:
            glue.delete_table(DatabaseName=namespace_id[-1], Name=name)
        except glue.exceptions.EntityNotFoundException:
            return

    def other_catalog(self) -> Catalog:
        return GlueNamespace(**{**self._properties, "catalog_id": "210987654321"}).catalog

    def read_entry(self, path: TablePath) -> RawEntry:
        table = self._server.glue.get_table(DatabaseName=path[0], Name=path[1])["Table"]
        parameters = dict(table["Parameters"])
        marks = (table.get("TableType"), parameters.get("EXTERNAL"))
        location = table["StorageDescriptor"]["Location"]
        return RawEntry(location, parameters, marks == ("EXTERNAL_TABLE", "TRUE"))

    def write_entry(self, path: TablePath, entry: RawEntry) -> None:
        table = lance_entry(path[1], entry.location or "")
        table["Parameters"] = dict(entry.properties)
        if entry.location is None:
            table["TableType"] = "VIRTUAL_VIEW"
            del table["StorageDescriptor"]["Location"]
        if entry.is_external and entry.location is not None:
            table["Parameters"]["EXTERNAL"] = "TRUE"
        elif not entry.is_external:
            table["TableType"] = "MANAGED_TABLE"
        self._server.glue.create_table(DatabaseName=path[0], TableInput=table)

    @contextmanager
    def faults(self) -> Iterator[Faults]:
        # botocore repeats changes by itself, and the adapter then says that all is unknown.
        namespace = GlueNamespace(**{**self._properties, "max_retries": "0"})
        yield GlueFaults(self._proxy, namespace.catalog)
        namespace.close()

    def stop_server(self) -> None:
        self._proxy.stop()

    def start_server(self) -> None:
        self._proxy.start()


class GlueFaults(HttpFaults):
    """Trouble on the way to Glue, as AWS words it."""

    refusal = Answer.of_aws("AccessDeniedException")
    busy = Answer.of_aws("ThrottlingException")
    rejection = Answer.of_aws("UnrecognizedClientException")
    failure = Answer.of_aws("InternalServiceException", status=500)

    def concerns(self, request: Request) -> bool:
        return bool(request.key)

    def is_change(self, request: Request) -> bool:
        return any(fnmatchcase(request.key, f"{verb}*") for verb in ("Create", "Update", "Delete"))


class GlueOnDiskTarget(GlueTarget):
    """With the data on local disk."""

    def __init__(self, server: GlueServer, proxy: HttpProxy, directory: Path) -> None:
        super().__init__(server, proxy, str(directory), root=str(directory / "root"))


class GlueOnS3Target(GlueTarget):
    """With the data in a bucket of the same server."""

    def __init__(self, server: GlueServer, proxy: HttpProxy) -> None:
        self.storage_options = server.storage_options
        options = {f"storage.{key}": value for key, value in self.storage_options.items()}
        root = server.make_bucket("lance-kit")
        super().__init__(server, proxy, f"{root}/data", root=f"{root}/root", **options)
