"""Resource links, to databases and to tables, and federated databases."""

from __future__ import annotations

import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    RenameTableRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, HttpProxy

from lance_bridge_glue import GlueNamespace

from .building import Connect, catalog_at, declare, tables

pytestmark = pytest.mark.server

ACCOUNT = "123456789012"


def link_database(server: GlueServer, name: str, target: str) -> None:
    to = {"CatalogId": ACCOUNT, "DatabaseName": target}
    server.glue.create_database(DatabaseInput={"Name": name, "TargetDatabase": to})


def link_table(server: GlueServer, database: str, name: str, target: str) -> None:
    to = {"CatalogId": ACCOUNT, "DatabaseName": database, "Name": target}
    server.glue.create_table(DatabaseName=database, TableInput={"Name": name, "TargetTable": to})


# -- links to databases --------------------------------------------------------------------------


def test_a_link_to_a_database_is_worked_with_under_its_own_name(
    namespace: GlueNamespace, server: GlueServer, database: str
) -> None:
    place = {"location": "s3://glue-tests/target", "team": "x"}
    target, link = f"{database}_target", f"{database}_link"
    namespace.create_namespace(CreateNamespaceRequest(id=[target], properties=place))
    link_database(server, link, target)
    declare(namespace, link)
    assert tables(namespace, link) == tables(namespace, target) == ["t"]
    described = namespace.describe_table(DescribeTableRequest(id=[link, "t"]))
    assert described.location == f"s3://glue-tests/{link}/t"
    read = namespace.describe_namespace(DescribeNamespaceRequest(id=[link]))
    assert read.properties == place
    namespace.rename_table(RenameTableRequest(id=[link, "t"], new_table_name="u"))
    assert tables(namespace, target) == ["u"]


def test_where_a_link_is_for_is_asked_where_glue_does_not_say(
    server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    target = {"CatalogId": ACCOUNT, "DatabaseName": "theirs"}
    link = {"Database": {"Name": "other", "TargetDatabase": target}}
    place = {"Database": {"Name": "theirs", "LocationUri": "s3://glue-tests/theirs"}}
    catalog = catalog_at(proxy.endpoint, server)
    proxy.fail_next("GetDatabase", Answer.of_json(200, link))
    proxy.fail_next("GetDatabase", Answer.of_json(200, place))
    record = catalog.load_namespace((database,))
    assert (record.path, record.location) == ((database,), "s3://glue-tests/theirs")
    assert proxy.requests[-1].json == {"Name": "theirs", "CatalogId": ACCOUNT}


@pytest.mark.parametrize("code", ["EntityNotFoundException", "AccessDeniedException"])
def test_a_link_whose_target_cannot_be_read_has_no_place(
    server: GlueServer, proxy: HttpProxy, code: str
) -> None:
    target = {"CatalogId": ACCOUNT, "DatabaseName": "theirs"}
    link = {"Database": {"Name": "l", "TargetDatabase": target}}
    proxy.fail_next("GetDatabase", Answer.of_json(200, link))
    proxy.fail_next("GetDatabase", Answer.of_aws(code))
    assert catalog_at(proxy.endpoint, server).load_namespace(("l",)).location is None


def test_a_link_is_not_emptied_in_place_of_its_target(
    namespace: GlueNamespace, server: GlueServer, database: str
) -> None:
    target, link = f"{database}_target", f"{database}_link"
    namespace.create_namespace(CreateNamespaceRequest(id=[target]))
    link_database(server, link, target)
    declare(namespace, target)
    with pytest.raises(InvalidInputError, match="is a link to database"):
        namespace.drop_namespace(DropNamespaceRequest(id=[link], behavior="Cascade"))
    namespace.deregister_table(DeregisterTableRequest(id=[target, "t"]))
    with pytest.raises(InvalidInputError, match="is a link to database"):
        namespace.create_namespace(CreateNamespaceRequest(id=[link], mode="Overwrite"))
    namespace.drop_namespace(DropNamespaceRequest(id=[link]))
    assert tables(namespace, target) == []


def test_an_orphaned_link_to_a_database_stops_no_listing_of_all_tables(
    connect: Connect, server: GlueServer
) -> None:
    namespace = connect(catalog_id="777788889999")
    namespace.create_namespace(CreateNamespaceRequest(id=["here"]))
    to = {"CatalogId": ACCOUNT, "DatabaseName": "gone_for_ever"}
    server.glue.create_database(
        CatalogId="777788889999", DatabaseInput={"Name": "aa_orphan", "TargetDatabase": to}
    )
    declare(namespace, "here")
    assert namespace.list_namespaces(ListNamespacesRequest(id=[])).namespaces == [
        "aa_orphan",
        "here",
    ]
    assert namespace.list_all_tables(ListTablesRequest()).tables == ["here$t"]
    with pytest.raises(NamespaceNotFoundError):
        tables(namespace, "aa_orphan")


# -- links to tables -----------------------------------------------------------------------------


def test_a_link_to_a_table_is_described_as_its_target_and_drops_no_data(
    namespace: GlueNamespace, server: GlueServer, database: str
) -> None:
    declare(namespace, database)
    link_table(server, database, "l", "t")
    assert tables(namespace, database) == ["l", "t"]
    described = namespace.describe_table(DescribeTableRequest(id=[database, "l"]))
    assert described.location == f"s3://glue-tests/{database}/t"
    with pytest.raises(InvalidTableStateError, match="is a link to"):
        namespace.drop_table(DropTableRequest(id=[database, "l"]))
    with pytest.raises(InvalidInputError, match="is a link to"):
        namespace.rename_table(RenameTableRequest(id=[database, "l"], new_table_name="m"))
    namespace.deregister_table(DeregisterTableRequest(id=[database, "l"]))
    assert tables(namespace, database) == ["t"]


def test_what_a_link_is_for_is_read_where_glue_does_not_say(
    namespace: GlueNamespace, proxy: HttpProxy, database: str
) -> None:
    declare(namespace, database)
    target = {"CatalogId": ACCOUNT, "DatabaseName": database, "Name": "t"}
    proxy.fail_next(
        "GetTable", Answer.of_json(200, {"Table": {"Name": "l", "TargetTable": target}})
    )
    described = namespace.describe_table(DescribeTableRequest(id=[database, "l"]))
    assert described.location == f"s3://glue-tests/{database}/t"


def test_an_orphaned_link_to_a_table_stays_in_the_listing_of_entries(
    namespace: GlueNamespace, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    declare(namespace, database)
    link_table(server, database, "orphan", "gone")
    assert tables(namespace, database) == ["t"]
    catalog = catalog_at(proxy.endpoint, server)
    (link,) = [r for r in catalog.scan_tables((database,)) if r.path[-1] == "orphan"]
    assert (link.location, link.link_to) == (None, f"{database}.gone of catalog {ACCOUNT}")
    with pytest.raises(InvalidInputError, match="resource link"):
        namespace.describe_table(DescribeTableRequest(id=[database, "orphan"]))
    with pytest.raises(NamespaceNotEmptyError):
        namespace.drop_namespace(DropNamespaceRequest(id=[database]))


def test_a_target_that_may_not_be_read_is_a_refusal_and_not_an_absence(
    namespace: GlueNamespace, proxy: HttpProxy, database: str
) -> None:
    link = {"Name": "l", "TargetTable": {"DatabaseName": "theirs", "Name": "t"}}
    proxy.fail_next("GetTable", Answer.of_json(200, {"Table": link}))
    proxy.fail_next(
        "GetTable", Answer.of_aws("AccessDeniedException", "Insufficient Lake Formation")
    )
    with pytest.raises(PermissionDeniedError, match="Lake Formation"):
        namespace.describe_table(DescribeTableRequest(id=[database, "l"]))


# -- federated databases -------------------------------------------------------------------------


def test_a_database_of_s3_tables_takes_no_table_of_lances(
    namespace: GlueNamespace, server: GlueServer, database: str
) -> None:
    federated = {"Identifier": "arn:x", "ConnectionName": "aws:s3tables"}
    name = f"{database}_s3"
    server.glue.create_database(DatabaseInput={"Name": name, "FederatedDatabase": federated})
    with pytest.raises(InvalidInputError, match="S3 Tables"):
        declare(namespace, name)
    declare(namespace, database)
    with pytest.raises(InvalidInputError, match="S3 Tables"):
        namespace.rename_table(
            RenameTableRequest(id=[database, "t"], new_namespace_id=[name], new_table_name="t")
        )
    assert tables(namespace, name) == []
    assert tables(namespace, database) == ["t"]
