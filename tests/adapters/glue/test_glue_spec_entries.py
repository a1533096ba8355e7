"""What the spec says of entries on Glue, as far as no other case shows it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
)
from servers.glue_server import ACCOUNT, GlueServer
from servers.http_proxy import Answer, HttpProxy

from lance_bridge.testing.calls import Calls

from .building import BUCKET, raw, raw_table

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2]})
ELSEWHERE = f"s3://{BUCKET}/elsewhere"
Operation = Callable[[Calls, list[str]], object]

CHANGES: dict[str, tuple[str, Operation]] = {
    "rename": (
        "copy_table",
        lambda ns, t: ns.rename_table(t, "other"),
    ),
    "register": (
        "alter_table",
        lambda ns, t: ns.register_table(t, ELSEWHERE, mode="Overwrite"),
    ),
    "declare": (
        "alter_table",
        lambda ns, t: ns.declare_table(t, properties={"by": "us"}),
    ),
    "create": (
        "alter_table",
        lambda ns, t: ns.create_table(t, ROWS, mode="Overwrite", properties={"by": "us"}),
    ),
}
"""Operations that change an entry, each with the method of the catalog that it does so by."""


# -- namespaces ----------------------------------------------------------------------------------


def test_a_namespace_that_is_dropped_while_it_is_overwritten_is_not_found(
    calls: Calls, proxy: HttpProxy, database: str
) -> None:
    proxy.fail_next("UpdateDatabase", Answer.of_aws("EntityNotFoundException"))
    with pytest.raises(NamespaceNotFoundError, match=database):
        calls.create_namespace([database], mode="Overwrite")


def test_overwriting_a_namespace_replaces_its_location_and_description_too(
    calls: Calls, server: GlueServer, database: str
) -> None:
    def overwrite(**properties: str) -> dict[str, object]:
        calls.create_namespace([database], mode="Overwrite", properties=properties)
        found: dict[str, object] = server.glue.get_database(Name=database)["Database"]
        return found

    assert overwrite(location=ELSEWHERE, description="mine")["LocationUri"] == ELSEWHERE
    bare = overwrite(team="x")
    assert not bare.get("LocationUri")
    assert not bare.get("Description")


# -- changing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["rename", "register", "declare"])
def test_a_link_to_a_table_is_not_changed(
    calls: Calls, server: GlueServer, database: str, operation: str
) -> None:
    calls.declare_table([database, "t"])
    target = {"CatalogId": ACCOUNT, "DatabaseName": database, "Name": "t"}
    raw_table(server, database, "link", TargetTable=target)
    before = raw(server, database, "t")
    _, change = CHANGES[operation]
    with pytest.raises(InvalidInputError, match="is a link to"):
        change(calls, [database, "link"])
    assert raw(server, database, "t") == before
    assert calls.all_tables([database]) == ["link", "t"]


def test_data_is_not_overwritten_through_a_link_whose_properties_would_change(
    calls: Calls, server: GlueServer, database: str
) -> None:
    table_id, link_id = [database, "t"], [database, "link"]
    calls.create_table(table_id, ROWS)
    target = {"CatalogId": ACCOUNT, "DatabaseName": database, "Name": "t"}
    raw_table(server, database, "link", TargetTable=target)

    def overwrite(properties: dict[str, str] | None) -> int | None:
        calls.create_table(link_id, ROWS.slice(1), mode="Overwrite", properties=properties)
        return calls.count(table_id)

    with pytest.raises(InvalidInputError, match="is a link to"):
        overwrite({"by": "us"})
    assert calls.count(table_id) == 3
    assert overwrite(None) == 2
