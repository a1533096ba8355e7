"""What the spec says of entries on Glue, as far as no other case shows it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from lance_namespace import (
    CountTableRowsRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    DropTableRequest,
    RegisterTableRequest,
    RenameTableRequest,
)
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
)
from servers.glue_server import ACCOUNT, GlueServer
from servers.http_proxy import Answer, HttpProxy

from lance_bridge.testing.build import ipc
from lance_bridge_glue import GlueNamespace

from .building import BUCKET, Connect, declare, raw, raw_table, tables

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2]})
MARKS = {"table_type": "lance", "managed_by": "storage"}
ELSEWHERE = f"s3://{BUCKET}/elsewhere"
Operation = Callable[[GlueNamespace, list[str]], object]

CHANGES: dict[str, tuple[str, Operation]] = {
    "rename": (
        "copy_table",
        lambda ns, t: ns.rename_table(RenameTableRequest(id=t, new_table_name="other")),
    ),
    "register": (
        "alter_table",
        lambda ns, t: ns.register_table(
            RegisterTableRequest(id=t, location=ELSEWHERE, mode="Overwrite")
        ),
    ),
    "declare": (
        "alter_table",
        lambda ns, t: ns.declare_table(DeclareTableRequest(id=t, properties={"by": "us"})),
    ),
    "create": (
        "alter_table",
        lambda ns, t: ns.create_table(
            CreateTableRequest(id=t, mode="Overwrite", properties={"by": "us"}), ipc(ROWS)
        ),
    ),
}
"""Operations that change an entry, each with the method of the catalog that it does so by."""

VIEWED: dict[str, Operation] = {
    "describe": lambda ns, t: ns.describe_table(DescribeTableRequest(id=t)),
    "count": lambda ns, t: ns.count_table_rows(CountTableRowsRequest(id=t)),
    "rename": lambda ns, t: ns.rename_table(RenameTableRequest(id=t, new_table_name="other")),
    "deregister": lambda ns, t: ns.deregister_table(DeregisterTableRequest(id=t)),
    "drop": lambda ns, t: ns.drop_table(DropTableRequest(id=t)),
}


# -- namespaces ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "lance_bridge.id", "lance_bridge.x"])
def test_a_key_that_is_empty_or_reserved_is_refused_for_a_namespace(
    namespace: GlueNamespace, proxy: HttpProxy, key: str
) -> None:
    request = CreateNamespaceRequest(id=["never_made"], properties={key: "x"})
    with pytest.raises(InvalidInputError, match="reserved"):
        namespace.create_namespace(request)
    assert proxy.requests == []


def test_half_a_character_is_no_property_of_a_namespace(
    namespace: GlueNamespace, proxy: HttpProxy
) -> None:
    request = CreateNamespaceRequest(id=["never_made"], properties={"team": "\ud800"})
    with pytest.raises(InvalidInputError, match="half of a character"):
        namespace.create_namespace(request)
    assert proxy.requests == []


def test_a_namespace_that_is_dropped_while_it_is_overwritten_is_not_found(
    namespace: GlueNamespace, proxy: HttpProxy, database: str
) -> None:
    proxy.fail_next("UpdateDatabase", Answer.of_aws("EntityNotFoundException"))
    with pytest.raises(NamespaceNotFoundError, match=database):
        namespace.create_namespace(CreateNamespaceRequest(id=[database], mode="Overwrite"))


def test_overwriting_a_namespace_replaces_its_location_and_description_too(
    namespace: GlueNamespace, server: GlueServer, database: str
) -> None:
    def overwrite(**properties: str) -> dict[str, object]:
        namespace.create_namespace(
            CreateNamespaceRequest(id=[database], mode="Overwrite", properties=properties)
        )
        found: dict[str, object] = server.glue.get_database(Name=database)["Database"]
        return found

    assert overwrite(location=ELSEWHERE, description="mine")["LocationUri"] == ELSEWHERE
    bare = overwrite(team="x")
    assert not bare.get("LocationUri")
    assert not bare.get("Description")


# -- declaring -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [None, "hdfs://nodes/sales", "sales", "s3://lake/../sales"])
def test_a_database_without_a_place_for_lance_needs_a_root(
    connect: Connect, server: GlueServer, database: str, place: str | None
) -> None:
    name = f"{database}_bare"
    where = {"LocationUri": place} if place else {}
    server.glue.create_database(DatabaseInput={"Name": name, **where})
    rootless = connect(root="")
    with pytest.raises(InvalidInputError, match="property 'root'"):
        rootless.declare_table(DeclareTableRequest(id=[name, "t"]))
    assert tables(rootless, name) == []
    declare(rootless, name)
    assert tables(rootless, name) == ["t"]


def test_somebody_elses_fresh_declaration_is_kept_until_it_is_old(
    namespace: GlueNamespace, connect: Connect, database: str
) -> None:
    request = DeclareTableRequest(id=[database, "t"])
    first = namespace.declare_table(request)
    with pytest.raises(TableAlreadyExistsError, match=r"declared .* ago"):
        connect().declare_table(request)
    later = connect(**{"declare.grace": "0"})
    assert later.declare_table(request).location == first.location


# -- changing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", CHANGES)
def test_an_entry_that_somebody_changes_meanwhile_is_a_concurrent_modification(
    namespace: GlueNamespace,
    server: GlueServer,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
) -> None:
    method, change = CHANGES[operation]
    namespace.declare_table(DeclareTableRequest(id=[database, "t"]))
    catalog = namespace._bridge.catalog
    ours = getattr(catalog, method)

    def after_somebody(*arguments: object) -> object:
        theirs = {"Name": "t", "Owner": "sales", "Parameters": MARKS}
        server.glue.update_table(DatabaseName=database, TableInput=theirs)
        return ours(*arguments)

    monkeypatch.setattr(catalog, method, after_somebody)
    with pytest.raises(ConcurrentModificationError, match="modified concurrently"):
        change(namespace, [database, "t"])
    found = raw(server, database, "t")
    assert (found["Owner"], found["Parameters"]) == ("sales", MARKS)
    assert tables(namespace, database) == ["t"]


@pytest.mark.parametrize("new_name", ["t", "T"])
def test_a_table_cannot_be_renamed_to_its_own_name(
    namespace: GlueNamespace, database: str, new_name: str
) -> None:
    declare(namespace, database)
    request = RenameTableRequest(id=[database, "t"], new_table_name=new_name)
    with pytest.raises(TableAlreadyExistsError, match="the table itself"):
        namespace.rename_table(request)
    assert tables(namespace, database) == ["t"]


@pytest.mark.parametrize("operation", ["rename", "register", "declare"])
def test_a_link_to_a_table_is_not_changed(
    namespace: GlueNamespace, server: GlueServer, database: str, operation: str
) -> None:
    namespace.declare_table(DeclareTableRequest(id=[database, "t"]))
    target = {"CatalogId": ACCOUNT, "DatabaseName": database, "Name": "t"}
    raw_table(server, database, "link", TargetTable=target)
    before = raw(server, database, "t")
    _, change = CHANGES[operation]
    with pytest.raises(InvalidInputError, match="is a link to"):
        change(namespace, [database, "link"])
    assert raw(server, database, "t") == before
    assert tables(namespace, database) == ["link", "t"]


def test_data_is_not_overwritten_through_a_link_whose_properties_would_change(
    namespace: GlueNamespace, server: GlueServer, database: str
) -> None:
    table_id, link_id = [database, "t"], [database, "link"]
    namespace.create_table(CreateTableRequest(id=table_id), ipc(ROWS))
    target = {"CatalogId": ACCOUNT, "DatabaseName": database, "Name": "t"}
    raw_table(server, database, "link", TargetTable=target)

    def overwrite(properties: dict[str, str] | None) -> int | None:
        request = CreateTableRequest(id=link_id, mode="Overwrite", properties=properties)
        namespace.create_table(request, ipc(ROWS.slice(1)))
        return namespace.count_table_rows(CountTableRowsRequest(id=table_id)).count

    with pytest.raises(InvalidInputError, match="is a link to"):
        overwrite({"by": "us"})
    assert namespace.count_table_rows(CountTableRowsRequest(id=table_id)).count == 3
    assert overwrite(None) == 2


# -- views ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", VIEWED)
def test_a_view_with_the_mark_of_lance_is_no_lance_table(
    namespace: GlueNamespace, server: GlueServer, database: str, operation: str
) -> None:
    raw_table(
        server,
        database,
        "view",
        TableType="VIRTUAL_VIEW",
        Parameters=MARKS,
        StorageDescriptor={"Location": ELSEWHERE},
    )
    with pytest.raises(InvalidInputError, match="VIRTUAL_VIEW"):
        VIEWED[operation](namespace, [database, "view"])
    with pytest.raises(TableAlreadyExistsError, match="VIRTUAL_VIEW"):
        namespace.declare_table(DeclareTableRequest(id=[database, "view"]))
    assert raw(server, database, "view")["TableType"] == "VIRTUAL_VIEW"
