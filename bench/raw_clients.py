"""The raw clients of the catalogs, with the fewest possible calls."""

from __future__ import annotations

from typing import Any, Protocol

import boto3
import hmsclient
import hmsclient.genthrift.hive_metastore.ttypes as hms
from botocore.config import Config
from databricks.sdk import WorkspaceClient
from databricks.sdk.service.catalog import ColumnInfo, ColumnTypeName, DataSourceFormat, TableType
from servers.glue_server import ACCESS_KEY, REGION, SECRET_KEY
from servers.hive_raw import raw_table
from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

NAMESPACE = "bench"
"""The namespace with the tables."""
GLUE_PAGE = 100
UNITY_CATALOG = "bench_catalog"
UNITY_API = "/api/2.1/unity-catalog"
_LANCE_PROPERTIES = {"table_type": "lance", "managed_by": "storage"}
_UNITY_COLUMN = ColumnInfo(
    name="id",
    type_name=ColumnTypeName.LONG,
    type_text="bigint",
    type_json='{"name": "id", "type": "long", "nullable": true, "metadata": {}}',
    position=0,
    nullable=True,
)


class RawClient(Protocol):
    """A raw client with the fewest possible calls. For one thread.

    ``list_tables`` reads what distinguishes Lance tables from others; ``create_table`` creates the
    entry of a Lance table, or of an ordinary one.
    """

    def list_tables(self) -> Any: ...
    def list_namespaces(self) -> Any: ...
    def location_of(self, name: str) -> Any: ...
    def create_table(self, name: str, location: str, *, lance: bool = True) -> None: ...
    def drop_table(self, name: str) -> None: ...
    def create_namespace(self, name: str) -> None: ...
    def close(self) -> None: ...


class HiveClient:
    """One open connection of hmsclient; ``accelerated`` takes Thrift's protocol in C."""

    def __init__(self, port: int, *, accelerated: bool = False) -> None:
        protocol = TBinaryProtocolAccelerated if accelerated else TBinaryProtocol
        transport = TBufferedTransport(TSocket("127.0.0.1", port))
        self._client = hmsclient.HMSClient(iprot=protocol(transport))
        self.close = transport.close
        transport.open()

    def list_tables(self) -> Any:
        # The metastore's own limit returns any ten: the first ten need all names.
        lance_tables = 'hive_filter_field_params__table_type like "(?i)lance"'
        return self._client.get_table_names_by_filter(NAMESPACE, lance_tables, -1)

    def list_namespaces(self) -> Any:
        return self._client.get_all_databases()

    def location_of(self, name: str) -> Any:
        request = hms.GetTableRequest(dbName=NAMESPACE, tblName=name)
        return self._client.get_table_req(request).table.sd.location

    def create_table(self, name: str, location: str, *, lance: bool = True) -> None:
        table = raw_table(NAMESPACE, name, location)
        if not lance:
            table.sd.cols = [hms.FieldSchema(name="id", type="bigint", comment="")]
            table.parameters = {"EXTERNAL": "TRUE"}
        self._client.create_table(table)

    def drop_table(self, name: str) -> None:
        self._client.drop_table(NAMESPACE, name, False)

    def create_namespace(self, name: str) -> None:
        self._client.create_database(hms.Database(name=name))

    def root(self) -> Any:
        """Return where the namespace with the tables is."""
        return self._client.get_database(NAMESPACE).locationUri


class GlueClient:
    """boto3's paginators and calls."""

    def __init__(self, endpoint: str) -> None:
        self._client = boto3.client(
            "glue",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(retries={"mode": "standard"}),
        )
        self.close = self._client.close

    def list_tables(self) -> Any:
        found = self._read_pages("get_tables", DatabaseName=NAMESPACE)
        return [table["Name"] for page in found for table in page["TableList"]]

    def list_namespaces(self) -> Any:
        found = self._read_pages("get_databases")
        return [database["Name"] for page in found for database in page["DatabaseList"]]

    def _read_pages(self, operation: str, **arguments: Any) -> Any:
        paginator = self._client.get_paginator(operation)
        return paginator.paginate(**arguments, PaginationConfig={"PageSize": GLUE_PAGE})

    def location_of(self, name: str) -> Any:
        table = self._client.get_table(DatabaseName=NAMESPACE, Name=name)["Table"]
        return table["StorageDescriptor"]["Location"]

    def create_table(self, name: str, location: str, *, lance: bool = True) -> None:
        columns = [] if lance else [{"Name": "id", "Type": "bigint"}]
        entry = {
            "Name": name,
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": [],
            "Parameters": {**(_LANCE_PROPERTIES if lance else {}), "EXTERNAL": "TRUE"},
            "StorageDescriptor": {"Columns": columns, "Location": location},
        }
        self._client.create_table(DatabaseName=NAMESPACE, TableInput=entry)

    def drop_table(self, name: str) -> None:
        self._client.delete_table(DatabaseName=NAMESPACE, Name=name)

    def create_namespace(self, name: str) -> None:
        self._client.create_database(DatabaseInput={"Name": name})


class UnityClient:
    """The SDK's own calls; a delete without reading the reply, which the SDK takes for JSON."""

    def __init__(self, url: str) -> None:
        self._client = WorkspaceClient(host=url, token="not-used", auth_type="pat")

    def list_tables(self) -> Any:
        list_all = self._client.tables.list
        found = list_all(UNITY_CATALOG, NAMESPACE, max_results=0, omit_columns=True)
        return [table.name for table in found]

    def list_namespaces(self) -> Any:
        return [schema.name for schema in self._client.schemas.list(UNITY_CATALOG, max_results=0)]

    def location_of(self, name: str) -> Any:
        return self._client.tables.get(f"{UNITY_CATALOG}.{NAMESPACE}.{name}").storage_location

    def create_table(self, name: str, location: str, *, lance: bool = True) -> None:
        self._client.tables.create(
            name=name,
            catalog_name=UNITY_CATALOG,
            schema_name=NAMESPACE,
            table_type=TableType.EXTERNAL,
            columns=[] if lance else [_UNITY_COLUMN],
            data_source_format=DataSourceFormat.TEXT if lance else DataSourceFormat.PARQUET,
            storage_location=location,
            properties=_LANCE_PROPERTIES if lance else {},
        )

    def drop_table(self, name: str) -> None:
        path = f"{UNITY_API}/tables/{UNITY_CATALOG}.{NAMESPACE}.{name}"
        self._client.api_client.do("DELETE", path, raw=True)

    def create_namespace(self, name: str) -> None:
        self._client.schemas.create(name, UNITY_CATALOG)

    def close(self) -> None:
        """Do nothing: the SDK has no way to close its connections."""
