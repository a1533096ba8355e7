"""Resource links, to databases and to tables, and federated databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, HttpProxy, Request

from lance_bridge.testing.calls import Calls

from .conftest import BUCKET, DATA_FILE, Connect, catalog_at, declare, raw

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("glue.md#resource-links-and-federated-databases"),
]

ACCOUNT = "123456789012"
OTHER_ACCOUNT = "777788889999"
ROWS = pa.table({"id": [0, 1, 2]})
CHANGES: dict[str, Callable[[Calls, list[str]], object]] = {
    "rename": lambda ns, t: ns.rename_table(t, "other"),
    "register": lambda ns, t: ns.register_table(t, f"s3://{BUCKET}/elsewhere", mode="Overwrite"),
    "declare": lambda ns, t: ns.declare_table(t, properties={"by": "us"}),
}
"""Operations that change an entry."""


def link_database(server: GlueServer, name: str, target: str, catalog: str = ACCOUNT) -> None:
    to = {"CatalogId": ACCOUNT, "DatabaseName": target}
    made = {"Name": name, "TargetDatabase": to}
    server.glue.create_database(CatalogId=catalog, DatabaseInput=made)


def link_table(server: GlueServer, database: str, name: str, target: str) -> None:
    to = {"CatalogId": ACCOUNT, "DatabaseName": database, "Name": target}
    made = {"Name": name, "TargetTable": to}
    server.glue.create_table(CatalogId=ACCOUNT, DatabaseName=database, TableInput=made)


def shown_as(kind: str, **link: Any) -> Answer:
    """Return an answer that shows a link ``l`` and nothing of its target."""
    return Answer.of_json(200, {kind: {"Name": "l", "CatalogId": ACCOUNT, **link}})


def named(database: str) -> str:
    return f"{database} of catalog {ACCOUNT}"


@pytest.fixture
def linked(calls: Calls, server: GlueServer, database: str) -> tuple[str, str]:
    """A database with the table ``t``, and a link to it in the same catalog."""
    declare(calls, database)
    link_database(server, f"{database}_link", database)
    return database, f"{database}_link"


# -- links to databases --------------------------------------------------------------------------


def test_a_link_to_a_database_is_worked_with_under_its_own_name(
    calls: Calls, server: GlueServer, database: str
) -> None:
    place = {"location": "s3://glue-tests/target", "team": "x"}
    target, link = f"{database}_target", f"{database}_link"
    calls.create_namespace([target], properties=place)
    link_database(server, link, target)
    declare(calls, link)
    assert calls.all_tables([link]) == calls.all_tables([target]) == ["t"]
    described = calls.describe_table([link, "t"])
    assert described.location == f"s3://glue-tests/{link}/t"
    read = calls.describe_namespace([link])
    assert read.properties == place
    calls.rename_table([link, "t"], "u")
    assert calls.all_tables([target]) == ["u"]


@pytest.mark.parametrize(
    ("answer", "location"),
    [
        (
            Answer.of_json(200, {"Database": {"Name": "foreign", "LocationUri": "s3://b/foreign"}}),
            "s3://b/foreign",
        ),
        (Answer.of_aws("EntityNotFoundException"), None),
        (Answer.of_aws("AccessDeniedException"), None),
    ],
    ids=["shown", "not found", "refused"],
)
def test_a_link_has_the_location_of_its_target_where_that_can_be_read(
    server: GlueServer, proxy: HttpProxy, answer: Answer, location: str | None
) -> None:
    target = {"CatalogId": ACCOUNT, "DatabaseName": "foreign"}
    proxy.fail_next("GetDatabase", shown_as("Database", TargetDatabase=target))
    proxy.fail_next("GetDatabase", answer)
    record = catalog_at(proxy.endpoint, server).load_namespace(("l",))
    assert (record.path, record.location) == (("l",), location)
    assert proxy.requests[-1].json == {"Name": "foreign", "CatalogId": ACCOUNT}


@pytest.mark.parametrize("link", ["database", "table"])
def test_a_link_to_another_region_is_not_taken_for_what_has_that_name_here(
    server: GlueServer, proxy: HttpProxy, database: str, link: str
) -> None:
    catalog = catalog_at(proxy.endpoint, server)
    there = {"CatalogId": ACCOUNT, "DatabaseName": database, "Region": "eu-west-1"}
    if link == "database":
        proxy.fail_next("GetDatabase", shown_as("Database", TargetDatabase=there))
        calls = catalog.load_namespace(("l",))
        assert (calls.location, calls.link_to) == (None, f"{named(database)} in eu-west-1")
    else:
        proxy.fail_next("GetTable", shown_as("Table", TargetTable={**there, "Name": "t"}))
        table = catalog.load_table((database, "l"))
        assert (table.location, table.link_path) == (None, None)
    assert len(proxy.requests) == 1


@pytest.mark.spec("glue.md#dropnamespace")
def test_dropping_a_link_to_a_database_drops_nothing_else(
    calls: Calls, server: GlueServer, linked: tuple[str, str]
) -> None:
    target, link = linked
    function = {"FunctionName": "f", "ClassName": "some.Class", "OwnerName": "me"}
    server.glue.create_user_defined_function(
        DatabaseName=target, FunctionInput={**function, "OwnerType": "USER"}
    )
    with pytest.raises(InvalidInputError, match=f"is a link to {named(target)}"):
        calls.drop_namespace([link], behavior="Cascade")
    calls.drop_namespace([link])
    assert link not in calls.all_namespaces([])
    assert calls.all_tables([target]) == ["t"]
    assert server.glue.get_user_defined_functions(DatabaseName=target, Pattern="*")


@pytest.mark.spec("glue.md#createnamespace")
def test_overwriting_a_link_changes_neither_it_nor_its_target(
    calls: Calls, server: GlueServer, linked: tuple[str, str]
) -> None:
    target, link = linked
    calls.deregister_table([target, "t"])
    with pytest.raises(InvalidInputError, match=f"is a link to {named(target)}"):
        calls.create_namespace([link], mode="Overwrite")
    assert server.glue.get_database(Name=link)["Database"]["TargetDatabase"]


@pytest.mark.spec("glue.md#droptable")
def test_a_link_to_a_database_keeps_no_table_of_it_from_being_dropped(
    calls: Calls, server: GlueServer, linked: tuple[str, str]
) -> None:
    target, link = linked
    server.put(BUCKET, f"{target}/t/{DATA_FILE}")
    with pytest.raises(InvalidTableStateError, match=rf"link to {target} of catalog"):
        calls.drop_table([link, "t"])
    assert server.keys(BUCKET).count(f"{target}/t/{DATA_FILE}") == 1
    calls.drop_table([target, "t"])
    assert not [key for key in server.keys(BUCKET) if key.startswith(f"{target}/")]
    assert calls.all_tables([link]) == []


def test_a_database_that_is_linked_to_is_dropped_with_its_tables(
    calls: Calls, linked: tuple[str, str]
) -> None:
    target, link = linked
    calls.drop_namespace([target], behavior="Cascade")
    assert target not in calls.all_namespaces([])
    assert calls.all_tables([link]) == []


def test_a_link_to_another_catalogs_database_keeps_what_lies_there(
    connect: Connect, calls: Calls, server: GlueServer, database: str
) -> None:
    declare(calls, database)
    other_account = connect(catalog_id=OTHER_ACCOUNT)
    for number, link in enumerate((database, f"{database}_link")):
        link_database(server, link, database, catalog=OTHER_ACCOUNT)
        own = f"{database}_own{number}"
        other_account.create_namespace([own])
        place = f"s3://{BUCKET}/{database}/t"
        other_account.register_table([own, "mine"], place)
        with pytest.raises(InvalidTableStateError, match=f"link to {database} of catalog"):
            other_account.drop_table([link, "t"])
        with pytest.raises(InvalidTableStateError, match="overlaps"):
            other_account.drop_table([own, "mine"])
        other_account.deregister_table([own, "mine"])
        server.glue.delete_database(CatalogId=OTHER_ACCOUNT, Name=link)
        server.glue.delete_database(CatalogId=OTHER_ACCOUNT, Name=own)
    assert calls.all_tables([database]) == ["t"]


def test_a_link_takes_one_request_more_than_a_database(
    calls: Calls, server: GlueServer, proxy: HttpProxy, linked: tuple[str, str]
) -> None:
    target, link = linked
    for name in "abcde":
        declare(calls, target, name)
    proxy.reset()
    with server.small_pages(2):
        assert calls.all_tables([link]) == [*"abcde", "t"]
    assert proxy.counts == {"GetTables": 3, "GetDatabase": 1}
    calls.describe_table([link, "t"])
    assert proxy.counts == {"GetTables": 3, "GetDatabase": 2, "GetTable": 1}


def test_tables_behind_an_unreadable_link_are_links(
    server: GlueServer, proxy: HttpProxy, linked: tuple[str, str]
) -> None:
    target, link = linked
    proxy.fail_next("GetDatabase", Answer.of_aws("AccessDeniedException"))
    (record,) = catalog_at(proxy.endpoint, server).scan_tables((link,))
    assert record.link_to == f"{target}.t of catalog {ACCOUNT}"
    assert record.link_path is None


@pytest.mark.parametrize("behavior", ["Restrict", "Cascade"])
def test_an_orphaned_link_to_a_database_holds_nothing_and_stops_nothing(
    calls: Calls,
    server: GlueServer,
    linked: tuple[str, str],
    behavior: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target, link = linked
    orphan = f"{target}_orphan"
    link_database(server, orphan, "gone_for_ever")
    with caplog.at_level("INFO"):
        assert calls.all_tables([orphan]) == []
    assert f"the target of '{orphan}' does not exist" in caplog.text
    listed = calls.list_all_tables().tables
    assert [name for name in listed if name.startswith(target)] == [f"{target}$t", f"{link}$t"]
    calls.drop_table([target, "t"])
    with pytest.raises(TableNotFoundError):
        calls.describe_table([orphan, "t"])
    with pytest.raises(NamespaceNotFoundError):
        declare(calls, orphan)
    if behavior == "Restrict":
        calls.drop_namespace([orphan])
        assert orphan not in calls.all_namespaces([])
    else:
        with pytest.raises(InvalidInputError, match="is a link to gone_for_ever"):
            calls.drop_namespace([orphan], behavior=behavior)


def test_a_database_that_is_gone_is_not_found_in_a_listing(calls: Calls, proxy: HttpProxy) -> None:
    with pytest.raises(NamespaceNotFoundError):
        calls.all_tables(["never_was"])
    assert proxy.counts == {"GetTables": 1, "GetDatabase": 1}


# -- links to tables -----------------------------------------------------------------------------


@pytest.mark.spec("glue.md#droptable", "glue.md#renametable")
def test_a_link_to_a_table_is_described_as_its_target_and_drops_no_data(
    calls: Calls, server: GlueServer, database: str
) -> None:
    declare(calls, database)
    link_table(server, database, "l", "t")
    assert calls.all_tables([database]) == ["l", "t"]
    described = calls.describe_table([database, "l"])
    assert described.location == f"s3://glue-tests/{database}/t"
    with pytest.raises(InvalidTableStateError, match="is a link to"):
        calls.drop_table([database, "l"])
    with pytest.raises(InvalidInputError, match="is a link to"):
        calls.rename_table([database, "l"], "m")
    calls.deregister_table([database, "l"])
    assert calls.all_tables([database]) == ["t"]


def test_what_a_link_is_for_is_read_where_glue_does_not_say(
    calls: Calls, proxy: HttpProxy, database: str
) -> None:
    declare(calls, database)
    target = {"CatalogId": ACCOUNT, "DatabaseName": database, "Name": "t"}
    proxy.fail_next(
        "GetTable", Answer.of_json(200, {"Table": {"Name": "l", "TargetTable": target}})
    )
    described = calls.describe_table([database, "l"])
    assert described.location == f"s3://glue-tests/{database}/t"


@pytest.mark.spec("common.md#describetable")
def test_an_orphaned_link_to_a_table_stays_in_the_listing_of_entries(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    declare(calls, database)
    link_table(server, database, "orphan", "gone")
    assert calls.all_tables([database]) == ["t"]
    catalog = catalog_at(proxy.endpoint, server)
    (link,) = [r for r in catalog.scan_tables((database,)) if r.path[-1] == "orphan"]
    assert (link.location, link.link_to) == (None, f"{database}.gone of catalog {ACCOUNT}")
    with pytest.raises(InvalidInputError, match="resource link"):
        calls.describe_table([database, "orphan"])
    with pytest.raises(NamespaceNotEmptyError):
        calls.drop_namespace([database])


@pytest.mark.spec("glue.md#describetable")
def test_a_target_that_may_not_be_read_is_a_refusal_and_not_an_absence(
    calls: Calls, proxy: HttpProxy, database: str
) -> None:
    link = {"Name": "l", "TargetTable": {"DatabaseName": "foreign", "Name": "t"}}
    proxy.fail_next("GetTable", Answer.of_json(200, {"Table": link}))
    proxy.fail_next(
        "GetTable", Answer.of_aws("AccessDeniedException", "Insufficient Lake Formation")
    )
    with pytest.raises(PermissionDeniedError, match="Lake Formation"):
        calls.describe_table([database, "l"])


@pytest.mark.spec("glue.md#declaretable", "glue.md#registertable", "glue.md#renametable")
@pytest.mark.parametrize("operation", CHANGES)
def test_a_link_to_a_table_is_not_changed(
    calls: Calls, server: GlueServer, database: str, operation: str
) -> None:
    calls.declare_table([database, "t"])
    link_table(server, database, "link", "t")
    before = raw(server, database, "t")
    with pytest.raises(InvalidInputError, match="is a link to"):
        CHANGES[operation](calls, [database, "link"])
    assert raw(server, database, "t") == before
    assert calls.all_tables([database]) == ["link", "t"]


@pytest.mark.spec("glue.md#createtable")
def test_data_is_not_overwritten_through_a_link_whose_properties_would_change(
    calls: Calls, server: GlueServer, database: str
) -> None:
    table_id, link_id = [database, "t"], [database, "link"]
    calls.create_table(table_id, ROWS)
    link_table(server, database, "link", "t")

    def overwrite(properties: dict[str, str] | None) -> int | None:
        calls.create_table(link_id, ROWS.slice(1), mode="Overwrite", properties=properties)
        return calls.count(table_id)

    with pytest.raises(InvalidInputError, match="is a link to"):
        overwrite({"by": "us"})
    assert calls.count(table_id) == 3
    assert overwrite(None) == 2


# -- federated databases -------------------------------------------------------------------------


@pytest.mark.spec("glue.md#declaretable", "glue.md#registertable", "glue.md#renametable")
def test_a_database_of_s3_tables_takes_no_table_of_lances(
    calls: Calls, server: GlueServer, database: str
) -> None:
    federated = {"Identifier": "arn:x", "ConnectionName": "aws:s3tables"}
    name = f"{database}_s3"
    server.glue.create_database(DatabaseInput={"Name": name, "FederatedDatabase": federated})
    with pytest.raises(InvalidInputError, match="S3 Tables"):
        declare(calls, name)
    declare(calls, database)
    with pytest.raises(InvalidInputError, match="S3 Tables"):
        calls.rename_table([database, "t"], "t", new_namespace_id=[name])
    assert calls.all_tables([name]) == []
    assert calls.all_tables([database]) == ["t"]


def test_a_federated_database_whose_source_is_gone_stops_nothing_and_can_be_dropped(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    name = f"{database}_shared"
    federated = {"Identifier": "arn:x", "ConnectionName": "foreign"}
    server.glue.create_database(DatabaseInput={"Name": name, "FederatedDatabase": federated})
    declare(calls, database)
    gone = Answer.of_json(
        400,
        {
            "__type": "FederationSourceException",
            "FederationSourceErrorCode": "EntityNotFoundException",
            "Message": "the share is gone",
        },
    )

    def asks_for_it(request: Request) -> bool:
        reads = ("GetTables", "GetTable", "GetUserDefinedFunctions")
        return request.key in reads and request.json["DatabaseName"] == name

    proxy.fail_next(asks_for_it, gone, times=float("inf"))
    assert f"{database}$t" in calls.list_all_tables().tables
    assert calls.all_tables([name]) == []
    with pytest.raises(TableNotFoundError):
        calls.describe_table([name, "t"])
    calls.drop_table([database, "t"])
    calls.drop_namespace([name])
    assert name not in calls.all_namespaces([])
