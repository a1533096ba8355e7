"""The tests' Glue keeps to what AWS documents, where plain moto does not; seen with raw boto3."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from servers.glue_server import REGION, GlueServer

pytestmark = pytest.mark.server

THREADS = 8
OTHER_CATALOG = "210987654321"


@pytest.fixture(scope="module")
def server() -> Iterator[GlueServer]:
    with GlueServer() as running:
        yield running


@pytest.fixture
def glue(server: GlueServer) -> Iterator[Any]:
    """A client of a server that knows nothing yet."""
    yield server.glue
    for database in server.glue.get_databases()["DatabaseList"]:
        server.glue.delete_database(Name=database["Name"])


@pytest.fixture
def db(glue: Any) -> str:
    glue.create_database(DatabaseInput={"Name": "db"})
    return "db"


def make(glue: Any, database: str, name: str, **more: Any) -> None:
    glue.create_table(DatabaseName=database, TableInput={"Name": name, **more})


def code(call: Any, **arguments: Any) -> str:
    """Return the code of the error that a call must give."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return str(caught.value.response["Error"]["Code"])


def names(answer: Any) -> list[str]:
    key = "TableList" if "TableList" in answer else "DatabaseList"
    return [entry["Name"] for entry in answer[key]]


# -- pages ---------------------------------------------------------------------------------------


def test_a_page_of_tables_holds_no_more_than_asked_and_leads_to_the_next(
    glue: Any, db: str
) -> None:
    for name in ("c", "a", "d", "b", "e"):
        make(glue, db, name)
    first = glue.get_tables(DatabaseName=db, MaxResults=2)
    assert names(first) == ["a", "b"]
    second = glue.get_tables(DatabaseName=db, MaxResults=2, NextToken=first["NextToken"])
    assert names(second) == ["c", "d"]
    third = glue.get_tables(DatabaseName=db, MaxResults=2, NextToken=second["NextToken"])
    assert names(third) == ["e"]
    assert "NextToken" not in third


def test_a_page_of_tables_holds_100_by_default(glue: Any, db: str) -> None:
    for number in range(101):
        make(glue, db, f"t{number:03}")
    pages = list(glue.get_paginator("get_tables").paginate(DatabaseName=db))
    assert [len(page["TableList"]) for page in pages] == [100, 1]


def test_a_page_of_databases_leads_to_the_next(glue: Any) -> None:
    for name in ("c", "a", "b"):
        glue.create_database(DatabaseInput={"Name": name})
    first = glue.get_databases(MaxResults=2)
    assert names(first) == ["a", "b"]
    assert names(glue.get_databases(NextToken=first["NextToken"])) == ["c"]


def test_only_the_attributes_asked_for_are_given(glue: Any, db: str) -> None:
    make(glue, db, "a", TableType="EXTERNAL_TABLE", Parameters={"k": "v"})
    (table,) = glue.get_tables(DatabaseName=db, AttributesToGet=["NAME"])["TableList"]
    assert table == {"Name": "a"}
    asked = ["NAME", "TABLE_TYPE"]
    (table,) = glue.get_tables(DatabaseName=db, AttributesToGet=asked)["TableList"]
    assert table == {"Name": "a", "TableType": "EXTERNAL_TABLE"}


def version(glue: Any, database: str, name: str) -> str:
    return str(glue.get_table(DatabaseName=database, Name=name)["Table"]["VersionId"])


def test_an_update_under_a_stale_version_changes_nothing(glue: Any, db: str) -> None:
    make(glue, db, "t")
    stale = version(glue, db, "t")
    glue.update_table(DatabaseName=db, TableInput={"Name": "t", "Owner": "a"}, VersionId=stale)
    assert (
        code(
            glue.update_table,
            DatabaseName=db,
            TableInput={"Name": "t", "Owner": "b"},
            VersionId=stale,
        )
        == "ConcurrentModificationException"
    )
    assert glue.get_table(DatabaseName=db, Name="t")["Table"]["Owner"] == "a"


@pytest.mark.parametrize(("skip", "kept"), [(True, 1), (False, 2)])
def test_an_update_archives_the_version_before_by_default(
    glue: Any, db: str, skip: bool, kept: int
) -> None:
    make(glue, db, "t")
    glue.update_table(DatabaseName=db, TableInput={"Name": "t"}, SkipArchive=skip)
    versions = glue.get_table_versions(DatabaseName=db, TableName="t")["TableVersions"]
    assert len(versions) == kept


def test_an_update_replaces_what_the_entry_held(glue: Any, db: str) -> None:
    make(glue, db, "t", Description="old", Parameters={"k": "v"})
    glue.update_table(DatabaseName=db, TableInput={"Name": "t", "Owner": "a"})
    table = glue.get_table(DatabaseName=db, Name="t")["Table"]
    assert "Description" not in table
    assert "Parameters" not in table


def race(call: Any) -> list[str]:
    """Run ``call(number)`` in threads that start together; return each one's error, or ``""``."""
    start = Barrier(THREADS)

    def run(number: int) -> str:
        start.wait(30)
        try:
            call(number)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return ""

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


@pytest.mark.parametrize("turn", range(5))
def test_one_of_many_creators_wins(glue: Any, db: str, turn: int) -> None:
    name = f"t{turn}"
    answers = race(lambda number: make(glue, db, name, Owner=f"o{number}"))
    assert sorted(answers) == ["", *["AlreadyExistsException"] * (THREADS - 1)]
    owner = glue.get_table(DatabaseName=db, Name=name)["Table"]["Owner"]
    assert owner == f"o{answers.index('')}"


def test_one_of_many_who_update_the_same_version_wins(glue: Any, db: str) -> None:
    make(glue, db, "t")
    current = version(glue, db, "t")
    answers = race(
        lambda number: glue.update_table(
            DatabaseName=db, TableInput={"Name": "t", "Owner": f"o{number}"}, VersionId=current
        )
    )
    assert sorted(answers) == ["", *["ConcurrentModificationException"] * (THREADS - 1)]
    owner = glue.get_table(DatabaseName=db, Name="t")["Table"]["Owner"]
    assert owner == f"o{answers.index('')}"


# -- names and limits ----------------------------------------------------------------------------


def test_names_are_kept_in_lower_case_and_found_in_any(glue: Any) -> None:
    glue.create_database(DatabaseInput={"Name": "Sales"})
    make(glue, "SALES", "Orders")
    assert glue.get_database(Name="sAles")["Database"]["Name"] == "sales"
    table = glue.get_table(DatabaseName="Sales", Name="ORDERS")["Table"]
    assert (table["DatabaseName"], table["Name"]) == ("sales", "orders")
    make_again = {"DatabaseName": "sales", "TableInput": {"Name": "ORDERS"}}
    assert code(glue.create_table, **make_again) == "AlreadyExistsException"
    glue.delete_table(DatabaseName="sales", Name="orderS")
    assert names(glue.get_tables(DatabaseName="Sales")) == []


@pytest.mark.parametrize(
    "table",
    [
        {"Name": "t" * 256},
        {"Name": ""},
        {"Name": "a\nb"},
        {"Name": "t", "Parameters": {"k" * 256: "v"}},
        {"Name": "t", "Parameters": {"": "v"}},
        {"Name": "t", "Parameters": {"k": "v" * 512_001}},
        {"Name": "t", "Description": "d" * 2049},
        {"Name": "t", "StorageDescriptor": {"Location": "l" * 2057}},
    ],
    ids=["name", "no name", "lines", "key", "no key", "value", "description", "location"],
)
def test_what_breaks_a_limit_of_the_service_model_is_refused(
    glue: Any, db: str, table: dict[str, Any]
) -> None:
    loose = loose_client(glue)
    broken = code(loose.create_table, DatabaseName=db, TableInput=table)
    assert broken == "ValidationException"
    assert names(glue.get_tables(DatabaseName=db)) == []


def test_what_just_keeps_the_limits_is_taken(glue: Any, db: str) -> None:
    parameters = {"k" * 255: "v" * 512_000, "\U0001f600": "\n"}
    place = {"Location": "l" * 2056}
    make(glue, db, "t" * 255, Parameters=parameters, StorageDescriptor=place)
    found = glue.get_table(DatabaseName=db, Name="t" * 255)["Table"]
    assert found["Parameters"] == parameters


def loose_client(glue: Any) -> Any:
    """Return a client that leaves it to the server to check what is sent."""
    return boto3.client(
        "glue",
        endpoint_url=glue.meta.endpoint_url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(parameter_validation=False),
    )


# -- databases, catalogs and functions -----------------------------------------------------------


def test_a_database_that_is_not_empty_can_be_deleted(glue: Any, db: str) -> None:
    make(glue, db, "t")
    glue.delete_database(Name=db)
    assert code(glue.get_database, Name=db) == "EntityNotFoundException"


def test_a_federated_database_says_so(glue: Any) -> None:
    federated = {"Identifier": "arn:aws:s3tables:b", "ConnectionName": "aws:s3tables"}
    glue.create_database(DatabaseInput={"Name": "f", "FederatedDatabase": federated})
    assert glue.get_database(Name="f")["Database"]["FederatedDatabase"] == federated
    (listed,) = glue.get_databases()["DatabaseList"]
    assert listed["FederatedDatabase"] == federated


def test_each_catalog_has_entries_of_its_own(glue: Any, db: str) -> None:
    make(glue, db, "t")
    assert glue.get_databases(CatalogId=OTHER_CATALOG)["DatabaseList"] == []
    glue.create_database(CatalogId=OTHER_CATALOG, DatabaseInput={"Name": db})
    other = glue.get_tables(CatalogId=OTHER_CATALOG, DatabaseName=db)
    assert other["TableList"] == []
    glue.delete_database(CatalogId=OTHER_CATALOG, Name=db)
    assert names(glue.get_tables(DatabaseName=db)) == ["t"]


def test_functions_are_found_by_pattern_until_they_are_deleted(glue: Any, db: str) -> None:
    find = {"DatabaseName": db, "Pattern": "*"}
    assert glue.get_user_defined_functions(**find)["UserDefinedFunctions"] == []
    wanted = {"FunctionName": "Double", "ClassName": "a.B", "OwnerType": "USER"}
    glue.create_user_defined_function(DatabaseName=db, FunctionInput=wanted)
    (found,) = glue.get_user_defined_functions(**find)["UserDefinedFunctions"]
    assert (found["FunctionName"], found["DatabaseName"]) == ("double", db)
    other = glue.get_user_defined_functions(DatabaseName=db, Pattern="x.*")
    assert other["UserDefinedFunctions"] == []
    glue.delete_user_defined_function(DatabaseName=db, FunctionName="double")
    assert glue.get_user_defined_functions(**find)["UserDefinedFunctions"] == []


# -- resource links ------------------------------------------------------------------------------


@pytest.fixture
def link(glue: Any, db: str) -> str:
    """A database that is a link to ``db``, which has a location and a table ``t``."""
    glue.update_database(Name=db, DatabaseInput={"Name": db, "LocationUri": "s3://b/db"})
    make(glue, db, "t", Parameters={"k": "v"}, StorageDescriptor={"Location": "s3://b/t"})
    target = {"CatalogId": glue.get_database(Name=db)["Database"]["CatalogId"], "DatabaseName": db}
    glue.create_database(DatabaseInput={"Name": "link", "TargetDatabase": target})
    return "link"


def test_a_database_link_shows_what_it_leads_to_under_its_own_name(glue: Any, link: str) -> None:
    database = glue.get_database(Name=link)["Database"]
    assert (database["Name"], database["LocationUri"]) == (link, "s3://b/db")
    assert database["TargetDatabase"]["DatabaseName"] == "db"
    assert names(glue.get_databases()) == ["db", link]


def test_tables_are_found_made_changed_and_deleted_through_a_database_link(
    glue: Any, link: str
) -> None:
    assert names(glue.get_tables(DatabaseName=link)) == ["t"]
    make(glue, link, "new")
    glue.update_table(DatabaseName=link, TableInput={"Name": "new", "Owner": "o"})
    found = glue.get_table(DatabaseName="db", Name="new")["Table"]
    assert (found["DatabaseName"], found["Owner"]) == ("db", "o")
    glue.delete_table(DatabaseName=link, Name="new")
    assert names(glue.get_tables(DatabaseName="db")) == ["t"]


def test_a_database_link_to_nothing_shows_itself_and_holds_no_tables(glue: Any) -> None:
    target = {"CatalogId": OTHER_CATALOG, "DatabaseName": "gone"}
    glue.create_database(DatabaseInput={"Name": "orphan", "TargetDatabase": target})
    assert glue.get_database(Name="orphan")["Database"]["TargetDatabase"] == target
    assert names(glue.get_databases()) == ["orphan"]
    assert code(glue.get_tables, DatabaseName="orphan") == "EntityNotFoundException"


def test_a_table_link_shows_what_it_leads_to_under_its_own_name(glue: Any, link: str) -> None:
    target = {**glue.get_database(Name=link)["Database"]["TargetDatabase"], "Name": "t"}
    glue.create_database(DatabaseInput={"Name": "mine"})
    make(glue, "mine", "alias", TargetTable=target)
    (listed,) = glue.get_tables(DatabaseName="mine")["TableList"]
    described = glue.get_table(DatabaseName="mine", Name="alias")["Table"]
    assert listed == described
    assert (described["DatabaseName"], described["Name"]) == ("mine", "alias")
    assert described["StorageDescriptor"]["Location"] == "s3://b/t"
    assert described["Parameters"] == {"k": "v"}
    assert described["TargetTable"] == target
    glue.update_table(DatabaseName="mine", TableInput={"Name": "alias", "Owner": "o"})
    assert glue.get_table(DatabaseName="db", Name="t")["Table"]["Owner"] == "o"
    glue.delete_table(DatabaseName="mine", Name="alias")
    assert names(glue.get_tables(DatabaseName="db")) == ["t"]


def test_a_table_link_to_nothing_shows_itself_only(glue: Any, db: str) -> None:
    target = {"CatalogId": OTHER_CATALOG, "DatabaseName": "gone", "Name": "t"}
    make(glue, db, "orphan", TargetTable=target)
    for table in (
        glue.get_table(DatabaseName=db, Name="orphan")["Table"],
        *glue.get_tables(DatabaseName=db)["TableList"],
    ):
        assert table["TargetTable"] == target
        assert "StorageDescriptor" not in table


def test_a_table_link_is_not_made_through_a_database_link(glue: Any, link: str) -> None:
    target = {"CatalogId": OTHER_CATALOG, "DatabaseName": "a", "Name": "t"}
    made = code(
        glue.create_table, DatabaseName=link, TableInput={"Name": "x", "TargetTable": target}
    )
    assert made == "InvalidInputException"


def test_an_error_has_the_form_that_aws_gives_it(glue: Any, db: str) -> None:
    with pytest.raises(glue.exceptions.EntityNotFoundException) as caught:
        glue.get_table(DatabaseName=db, Name="missing")
    response = caught.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert response["Message"] == response["Error"]["Message"] == "Table missing not found."


def test_an_operation_that_is_not_served_says_so(glue: Any) -> None:
    assert code(glue.get_catalogs) == "NotImplemented"
