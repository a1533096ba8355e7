"""What only Glue has: versions, links, federated databases, functions, many pages, own fields."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    UnsupportedOperationError,
)
from servers.glue_server import ACCESS_KEY, REGION, SECRET_KEY, GlueServer
from servers.http_proxy import Answer, HttpProxy
from servers.object_stores import MotoServer

from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueNamespace

from .conftest import BUCKET, Connect, catalog_at, declare, raw, raw_table

pytestmark = [pytest.mark.servers, pytest.mark.spec("glue.md#compatibility")]

MARKS = {"table_type": "LANCE", "managed_by": "storage"}
OWN_FIELDS: dict[str, Any] = {
    "Owner": "finance",
    "Description": "kept for the auditors",
    "Retention": 7,
    "TableType": "EXTERNAL_TABLE",
    "Parameters": {**MARKS, "EXTERNAL": "TRUE", "transient_lastDdlTime": "17"},
    "StorageDescriptor": {
        "Columns": [{"Name": "id", "Type": "bigint", "Comment": "a key"}],
        "Location": "s3://glue-tests/own",
        "InputFormat": "some.Format",
        "OutputFormat": "some.OutputFormat",
        "SerdeInfo": {"SerializationLibrary": "some.SerDe"},
        "StoredAsSubDirectories": True,
    },
    "PartitionKeys": [],
}


@pytest.fixture(scope="module")
def plain_moto() -> Iterator[MotoServer]:
    """moto as it is published, which takes no notice of a VersionId."""
    with MotoServer() as moto:
        yield moto


# -- requests ------------------------------------------------------------------------------------


def test_a_listing_takes_as_many_requests_as_there_are_pages_and_a_describe_one(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    for number in range(25):
        kind = MARKS if number % 2 else {}
        place = {"Location": f"s3://{BUCKET}/t{number:02}"}
        raw_table(server, database, f"t{number:02}", Parameters=kind, StorageDescriptor=place)
    with server.small_pages(10):
        found = calls.all_tables([database])
    assert found == [f"t{number:02}" for number in range(1, 25, 2)]
    calls.describe_table([database, "t01"])
    assert proxy.counts == {"GetTables": 3, "GetTable": 1}


def test_the_catalogs_id_is_sent_with_every_request(connect: Connect, proxy: HttpProxy) -> None:
    calls = connect(catalog_id="444455556666")
    calls.create_namespace(["elsewhere"])
    declare(calls, "elsewhere")
    calls.rename_table(["elsewhere", "t"], "u")
    calls.register_table(["elsewhere", "u"], "s3://glue-tests/x", mode="Overwrite")
    assert calls.all_tables(["elsewhere"]) == ["u"]
    calls.deregister_table(["elsewhere", "u"])
    calls.create_namespace(["elsewhere"], mode="Overwrite")
    calls.drop_namespace(["elsewhere"], behavior="Cascade")
    assert calls.all_namespaces([]) == []
    sent = {request.json.get("CatalogId") for request in proxy.requests}
    assert sent == {"444455556666"}
    assert {"UpdateTable", "UpdateDatabase", "GetUserDefinedFunctions"} <= set(proxy.counts)


def test_without_a_catalogs_id_none_is_sent(calls: Calls, proxy: HttpProxy, database: str) -> None:
    calls.all_tables([database])
    assert "CatalogId" not in proxy.requests[0].json


# -- entries of others ---------------------------------------------------------------------------


def test_a_change_and_a_rename_keep_what_else_is_in_the_entry_and_archive_nothing(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    before = raw_table(server, database, "t", **OWN_FIELDS)
    catalog = catalog_at(proxy.endpoint, server)
    record = catalog.load_table((database, "t"))
    assert "transient_lastDdlTime" not in record.properties
    catalog.alter_table(record.with_properties({**record.properties, "new": "one"}))
    after = raw(server, database, "t")
    changing = ("Parameters", "VersionId", "UpdateTime")
    assert {k: v for k, v in after.items() if k not in changing} == {
        k: v for k, v in before.items() if k not in changing
    }
    assert after["Parameters"] == {**before["Parameters"], "new": "one"}
    assert after["VersionId"] != before["VersionId"]
    versions = server.glue.get_table_versions(DatabaseName=database, TableName="t")
    assert len(versions["TableVersions"]) == 1
    other = f"{database}_other"
    calls.create_namespace([other])
    calls.rename_table([database, "t"], "u", new_namespace_id=[other])
    assert calls.all_tables([database]) == []
    renamed = raw(server, other, "u")
    kept = OWN_FIELDS.keys() - {"Parameters"}
    assert {key: renamed[key] for key in kept} == {key: before[key] for key in kept}
    assert after["Parameters"].items() <= renamed["Parameters"].items()


@pytest.mark.spec("common.md#registertable")
def test_glue_itself_refuses_a_change_that_another_came_before(
    server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    raw_table(server, database, "t", **OWN_FIELDS)
    catalog = catalog_at(proxy.endpoint, server)
    record = catalog.load_table((database, "t"))
    stale = server.glue.get_table(DatabaseName=database, Name="t")
    server.glue.update_table(DatabaseName=database, TableInput={"Name": "t", "Owner": "sales"})
    table = {k: v for k, v in stale["Table"].items() if "Time" not in k}
    table["CreateTime"] = stale["Table"]["CreateTime"].timestamp()
    proxy.fail_next("GetTable", Answer.of_json(200, {"Table": table}))
    with pytest.raises(ConcurrentModificationError):
        catalog.alter_table(record.with_properties({"a": "b"}))
    assert proxy.counts["UpdateTable"] == 1
    assert raw(server, database, "t")["Owner"] == "sales"


def test_an_entry_is_what_other_implementations_look_for(
    calls: Calls, server: GlueServer, database: str
) -> None:
    declare(calls, database)
    made = raw(server, database, "t")
    assert made["TableType"] == "EXTERNAL_TABLE"
    assert made["StorageDescriptor"]["Location"] == f"s3://glue-tests/{database}/t"
    marks = {"table_type": "lance", "managed_by": "storage", "EXTERNAL": "TRUE"}
    assert marks.items() <= made["Parameters"].items()


# -- dropping ------------------------------------------------------------------------------------


@pytest.mark.spec("common.md#dropnamespace")
def test_a_database_is_not_dropped_for_an_entry_on_its_last_page(
    calls: Calls, server: GlueServer, database: str
) -> None:
    for name in ("a", "b", "c"):
        raw_table(server, database, name)
    with server.small_pages(1), pytest.raises(NamespaceNotEmptyError):
        calls.drop_namespace([database])
    assert len(server.glue.get_tables(DatabaseName=database)["TableList"]) == 3


@pytest.mark.spec("glue.md#dropnamespace")
@pytest.mark.parametrize("behavior", ["Restrict", "Cascade"])
def test_a_database_with_functions_is_not_dropped(
    calls: Calls, server: GlueServer, database: str, behavior: str
) -> None:
    function = {"FunctionName": "f", "ClassName": "some.Class", "OwnerName": "me"}
    server.glue.create_user_defined_function(
        DatabaseName=database, FunctionInput={**function, "OwnerType": "USER"}
    )
    declare(calls, database)
    if behavior == "Restrict":
        calls.deregister_table([database, "t"])
    with pytest.raises(NamespaceNotEmptyError, match="function f"):
        calls.drop_namespace([database], behavior=behavior)
    assert calls.all_tables([database]) == (["t"] if behavior == "Cascade" else [])


@pytest.mark.spec("glue.md#dropnamespace")
def test_a_drop_needs_the_permission_to_list_functions(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    said = "User: u is not authorized to perform: glue:GetUserDefinedFunctions on resource: r"
    proxy.fail_next("GetUserDefinedFunctions", Answer.of_aws("AccessDeniedException", said))
    with pytest.raises(PermissionDeniedError, match="must allow glue:GetUserDefinedFunctions"):
        calls.drop_namespace([database])
    assert server.glue.get_database(Name=database)


@pytest.mark.parametrize("behavior", ["Restrict", "Cascade"])
def test_plain_moto_which_does_not_know_functions_drops_a_namespace(
    behavior: str, connect: Connect, plain_moto: MotoServer
) -> None:
    """moto as it comes answers GetUserDefinedFunctions with werkzeug's page for errors."""
    calls = connect(endpoint=plain_moto.endpoint, max_retries="0")
    calls.create_namespace(["d"])
    calls.drop_namespace(["d"], behavior=behavior)
    assert "d" not in calls.all_namespaces([])


@pytest.mark.parametrize(
    "answer",
    [
        Answer.of_aws("UnknownOperationException", ""),
        Answer.of_aws("InvalidAction", "The action GetUserDefinedFunctions is not valid"),
        Answer.of_aws("InternalFailure", "not yet implemented", status=501),
    ],
    ids=["unknown operation", "invalid action", "501"],
)
def test_a_server_that_does_not_know_functions_drops_a_namespace(
    calls: Calls, proxy: HttpProxy, database: str, answer: Answer
) -> None:
    proxy.fail_next("GetUserDefinedFunctions", answer)
    calls.drop_namespace([database])
    assert database not in calls.all_namespaces([])


_PAGE = b"<!doctype html>\n<title>500 Internal Server Error</title>"


@pytest.mark.parametrize(
    "answer",
    [
        Answer.of_aws("InternalServiceException", "try again", status=500),
        Answer.of_aws("InternalFailure", "The action has not been implemented", status=500),
        Answer(500),
        Answer(500, _PAGE, {"Content-Type": "text/html", "Server": "nginx"}),
        Answer(500, _PAGE, {"Server": "Werkzeug/3.1.3 Python/3.11.7", "x-amzn-RequestId": "1"}),
        Answer.of_json(500, {"message": "broken"}, Server="Werkzeug/3.1.3 Python/3.11.7"),
    ],
    ids=["of AWS", "by its text", "empty", "of another", "with a request id", "in JSON"],
)
def test_a_failure_to_list_functions_keeps_a_namespace(
    connect: Connect, server: GlueServer, proxy: HttpProxy, database: str, answer: Answer
) -> None:
    calls = connect(max_retries="0")
    proxy.fail_next("GetUserDefinedFunctions", answer)
    with pytest.raises(InternalError, match=f"list the functions of '{database}'"):
        calls.drop_namespace([database])
    assert server.glue.get_database(Name=database)


@pytest.mark.spec("glue.md#deletion-of-data")
def test_projected_partitions_inside_the_location_count(
    calls: Calls, server: GlueServer, database: str
) -> None:
    place = f"s3://{BUCKET}/{database}/t.lance"
    lance.write_dataset(pa.table({"id": [0]}), place, storage_options=server.storage_options)
    calls.register_table([database, "t"], place)
    server.put(BUCKET, f"{database}/t.lance/days/2026/0001.parquet")
    raw_table(
        server,
        database,
        "projected",
        TableType="EXTERNAL_TABLE",
        StorageDescriptor={"Location": f"s3://{BUCKET}/{database}/own"},
        PartitionKeys=[{"Name": "day", "Type": "string"}],
        Parameters={"storage.location.template": f"{place}/days/${{day}}/"},
    )
    with pytest.raises(InvalidTableStateError, match=r"overlaps.*projected"):
        calls.drop_table([database, "t"])


# -- a client of the caller's --------------------------------------------------------------------


def test_a_client_of_the_callers_is_used_and_left_open(proxy: HttpProxy, database: str) -> None:
    client = boto3.client(
        "glue",
        region_name=REGION,
        endpoint_url=proxy.endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
    namespace = GlueNamespace(client=client, **{"drop.check-functions": "true"})
    declare(Calls(namespace), database)
    namespace.close()
    assert Calls(namespace).all_tables([database]) == ["t"]
    assert REGION in namespace.namespace_id()
    with pytest.raises(UnsupportedOperationError, match="cannot be pickled"):
        namespace.__reduce__()
    with pytest.raises(InvalidInputError, match="'region' has no effect with a client"):
        GlueNamespace(client=client, region=REGION)


# -- overwriting a namespace -------------------------------------------------------------------


@pytest.mark.spec("glue.md#createnamespace")
def test_a_namespace_that_is_dropped_while_it_is_overwritten_is_not_found(
    calls: Calls, proxy: HttpProxy, database: str
) -> None:
    proxy.fail_next("UpdateDatabase", Answer.of_aws("EntityNotFoundException"))
    with pytest.raises(NamespaceNotFoundError, match=database):
        calls.create_namespace([database], mode="Overwrite")


# -- whether version ids are compared --------------------------------------------------------------


ROWS = pa.table({"a": [1, 2]})


@pytest.mark.spec("glue.md#implementation-managed-tables")
def test_a_server_that_ignores_version_ids_manages_no_table(
    connect: Connect, plain_moto: MotoServer, tmp_path: Path
) -> None:
    calls = connect(endpoint=plain_moto.endpoint, root=str(tmp_path))
    table = ["db", "t"]
    calls.create_namespace(["db"])
    calls.create_table(table, ROWS)
    before = calls.describe_table(table)
    with pytest.raises(UnsupportedOperationError, match="ignores the VersionId"):
        manage(calls, table)
    assert calls.describe_table(table) == before


@pytest.mark.spec("glue.md#implementation-managed-tables")
def test_one_refused_update_proves_that_version_ids_are_compared(
    connect: Connect, server: GlueServer, database: str, tmp_path: Path
) -> None:
    calls = connect(root=str(tmp_path))
    calls.create_table([database, "t"], ROWS)
    before = raw(server, database, "t")["VersionId"]
    manage(calls, [database, "t"])
    # It becomes managed while it is held, and then the hold ends.
    assert int(raw(server, database, "t")["VersionId"]) == int(before) + 2


def manage(calls: Calls, table: list[str]) -> None:
    assert isinstance(calls.client, GlueNamespace)
    calls.client.manage_table(table)
