"""AWS Glue as a target of the conformance kit: moto's, held to AWS's documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lance_namespace import LanceNamespace
from servers.glue_server import SECRET_KEY, GlueServer
from servers.http_faults import Answer, Request
from servers.http_proxy import HttpProxy

from lance_bridge.catalog import Catalog
from lance_bridge.catalog import Path as TablePath
from lance_bridge.testing import Faults, Features, RawEntry, Target
from lance_bridge.testing.features import from_capabilities, inherited_operations
from lance_bridge_glue import GlueNamespace
from lance_bridge_glue.capabilities import capabilities

from .http_faulty import HttpFaults

Entry = dict[str, Any]

MARKS: dict[str, Callable[[Entry], None]] = {}
"""Lance entries that other implementations make, by name."""

BROKEN_MARKS: dict[str, Callable[[Entry], None]] = {}
"""Entries marked as Lance's that no table can be behind."""


def entry_type(
    entry_types: dict[str, Callable[[Entry], None]],
) -> Callable[..., Callable[[Entry], None]]:
    """Add a function that changes an ordinary Lance entry into one of this type."""

    def add(function: Callable[[Entry], None]) -> Callable[[Entry], None]:
        entry_types[function.__name__] = function
        return function

    return add


def lance_entry(name: str, location: str) -> Entry:
    """Return an external Lance entry, as a TableInput."""
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"table_type": "lance", "managed_by": "storage"},
        "StorageDescriptor": {"Location": location, "Columns": []},
    }


@entry_type(MARKS)
def lance_namespace_impls_in_java(entry: Entry) -> None:
    del entry["TableType"]
    del entry["StorageDescriptor"]["Columns"]
    entry["StorageDescriptor"]["Parameters"] = dict(entry["Parameters"])


@entry_type(MARKS)
def lance_namespace_impls_in_python(entry: Entry) -> None:
    entry["Parameters"] = {"table_type": "LANCE", "managed_by": "storage", "empty_table": "true"}
    entry["StorageDescriptor"].update(
        Columns=[{"Name": "__placeholder_id", "Type": "bigint", "Comment": "Placeholder"}],
        InputFormat="org.apache.hadoop.mapred.TextInputFormat",
        OutputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        SerdeInfo={
            "SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
        },
    )


@entry_type(MARKS)
def marks_in_upper_case(entry: Entry) -> None:
    entry["Parameters"] = {"table_type": "LANCE", "managed_by": "STORAGE"}


@entry_type(MARKS)
def without_managed_by(entry: Entry) -> None:
    del entry["Parameters"]["managed_by"]


@entry_type(MARKS)
def looking_managed(entry: Entry) -> None:
    entry["TableType"] = "MANAGED_TABLE"
    entry["Parameters"]["managed_by"] = "catalog"


@entry_type(MARKS)
def with_fields_of_crawlers_and_athena(entry: Entry) -> None:
    entry.update(Owner="hadoop", Retention=0, PartitionKeys=[], Description="a table")
    entry["Parameters"].update(EXTERNAL="TRUE", transient_lastDdlTime="1700000000")
    entry["StorageDescriptor"].update(
        Columns=[{"Name": "id", "Type": "bigint"}, {"Name": "vector", "Type": "array<float>"}],
        Compressed=False,
        NumberOfBuckets=-1,
        StoredAsSubDirectories=False,
    )


@entry_type(MARKS)
def location_with_slash_at_the_end(entry: Entry) -> None:
    entry["StorageDescriptor"]["Location"] += "/"


@entry_type(MARKS)
def location_spelled_for_hadoop(entry: Entry) -> None:
    location = entry["StorageDescriptor"]["Location"]
    spelled = location.replace("s3://", "s3a://", 1)
    entry["StorageDescriptor"]["Location"] = (
        f"file:{location}" if location.startswith("/") else spelled
    )


@entry_type(BROKEN_MARKS)
def without_storage_descriptor(entry: Entry) -> None:
    del entry["StorageDescriptor"]


@entry_type(BROKEN_MARKS)
def without_location(entry: Entry) -> None:
    del entry["StorageDescriptor"]["Location"]


@entry_type(BROKEN_MARKS)
def with_empty_location(entry: Entry) -> None:
    entry["StorageDescriptor"]["Location"] = ""


@entry_type(BROKEN_MARKS)
def link_to_a_table_that_is_gone(entry: Entry) -> None:
    del entry["StorageDescriptor"]
    entry["TargetTable"] = {
        "CatalogId": "210987654321",
        "DatabaseName": "gone",
        "Name": "gone",
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
        entry = lance_entry(name, location)
        entry["Parameters"] = {"classification": "parquet"}
        entry["StorageDescriptor"]["Columns"] = [{"Name": "id", "Type": "int"}]
        self._server.glue.create_table(DatabaseName=namespace_id[-1], TableInput=entry)

    def make_entry(
        self, namespace_id: Sequence[str], name: str, location: str, entry_type: str
    ) -> None:
        entry = lance_entry(name, location)
        {**MARKS, **BROKEN_MARKS}[entry_type](entry)
        self._server.glue.create_table(DatabaseName=namespace_id[-1], TableInput=entry)

    def make_partitioned_table(
        self, namespace_id: Sequence[str], name: str, location: str, partitions: Sequence[str]
    ) -> None:
        entry = lance_entry(name, location)
        entry.update(Parameters={}, PartitionKeys=[{"Name": "day", "Type": "string"}])
        database, glue = namespace_id[-1], self._server.glue
        glue.create_table(DatabaseName=database, TableInput=entry)
        for number, place in enumerate(partitions):
            partition = {"Values": [str(number)], "StorageDescriptor": {"Location": place}}
            glue.create_partition(DatabaseName=database, TableName=name, PartitionInput=partition)

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
