"""Fixtures for tests of many writers: their processes, and tables on real catalogs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import lance_namespace as api
import pytest
from managed.tables import Table
from managed.writers import Writers
from servers.glue_server import GlueServer
from servers.hive_entries import raw_client
from servers.metastores import Metastores

from lance_bridge_hive.commit_records import RECORDS

BUCKET = "managed-tests"
GLUE, GLUE_S3 = "glue", "glue on s3"


@pytest.fixture(scope="package")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writers]:
    """Processes that commit, shared by tests."""
    with Writers(tmp_path_factory.mktemp("writers")) as running:
        yield running


@pytest.fixture(scope="package")
def glue_server() -> Iterator[GlueServer]:
    """Glue, held to AWS's documentation of VersionId, and S3."""
    with GlueServer() as running:
        running.make_bucket(BUCKET)
        yield running


NewTable = Callable[[str], Table]
"""Creates a table on the catalog that is named: `GLUE`, `GLUE_S3` or a release of Hive."""


@pytest.fixture
def new_table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewTable]:
    """Creates managed tables; their entries and namespaces are dropped afterwards."""
    made: list[Table] = []

    def make(catalog: str) -> Table:
        if catalog in (GLUE, GLUE_S3):
            server = request.getfixturevalue("glue_server")
            made.append(on_glue(server, tmp_path, in_s3=catalog == GLUE_S3))
        else:
            metastores: Metastores = request.getfixturevalue("metastores")
            made.append(on_hive(metastores.get(catalog).port, tmp_path))
        return made[-1].create()

    yield make
    for table in made:
        _drop(table)


def on_glue(server: GlueServer, directory: Path, *, in_s3: bool = False) -> Table:
    """Return a table that is still to be created, with its data on local disk or in S3."""
    properties = {**server.properties, "root": str(directory)}
    if in_s3:
        options = {f"storage.{key}": value for key, value in server.storage_options.items()}
        properties |= {"root": f"s3://{BUCKET}/{uuid.uuid4().hex}", **options}
    return Table("glue", properties, _new_id(), partial(_in_glue, server))


def on_hive(port: int, directory: Path, **properties: str) -> Table:
    """Return a table that is still to be created, with its data on local disk."""
    uri = f"thrift://127.0.0.1:{port}"
    given = {"uri": uri, "root": str(directory), **properties}
    return Table("hive", given, _new_id(), partial(_in_hive, port))


def _new_id() -> list[str]:
    return [f"db_{uuid.uuid4().hex[:12]}", "t"]


def _in_glue(server: GlueServer, table_id: Sequence[str]) -> dict[str, str]:
    found = server.glue.get_table(DatabaseName=table_id[0], Name=table_id[1])
    return dict(found["Table"]["Parameters"])


def _in_hive(port: int, table_id: Sequence[str]) -> dict[str, str]:
    with raw_client(port) as client:
        request = hive.GetTablesRequest(dbName=table_id[0], tblNames=[table_id[1]])
        [found] = client.get_table_objects_by_name_req(request).tables
        parameters = dict(found.parameters)
        if RECORDS in parameters:
            place = parameters[RECORDS].split(".", 1)
            # One that was removed while it was read has no values.
            records = [each for each in client.get_partitions(*place, -1) if each.values]
            latest = max(records, key=lambda each: int(each.values[0]))
            parameters |= latest.parameters
        return parameters


def _drop(table: Table) -> None:
    with table.connect() as namespace:
        for name in namespace.list_tables(api.ListTablesRequest(id=table.id[:-1])).tables:
            namespace.deregister_table(api.DeregisterTableRequest(id=[*table.id[:-1], name]))
        namespace.drop_namespace(api.DropNamespaceRequest(id=table.id[:-1]))
