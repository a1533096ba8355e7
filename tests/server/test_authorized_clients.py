"""pylance and LanceDB as clients of a gateway with policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from lance_namespace import connect
from lance_namespace.errors import (
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)
from server.policies import NamedByHeader, cedar
from server.serving import serving

import lance_bridge
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway import Gateway

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#authorization")]


ROWS = pa.table({"id": range(3)})
POLICIES = """
permit(principal == User::"ann", action, resource);
permit(principal == User::"bob", action in Action::"read", resource);
permit(principal == User::"bob", action in Action::"write", resource == Table::"films.open");
forbid(principal == User::"bob", action, resource in Namespace::"secret");
forbid(principal == User::"bob", action, resource == Table::"films.pay");
"""


def test_what_may_not_be_seen_or_done_is_refused_to_each_client(tmp_path: Path) -> None:
    """Ann writes tables, and bob tries to reach them."""
    namespace = connect("dir", {"root": str(tmp_path / "root")})
    gateway = Gateway(
        namespace, authenticator=NamedByHeader(), authorizer=cedar(tmp_path, POLICIES)
    )
    with serving(create_app(gateway)) as url:
        ann, bob = (
            lance_bridge.connect("rest", {"uri": url, "header.x-user": name})
            for name in ("ann", "bob")
        )
        for database in ("films", "secret"):
            ann.create_namespace(api.CreateNamespaceRequest(id=[database]))
        for path in (["films", "open"], ["films", "pay"], ["films", "read"], ["secret", "t"]):
            lance.write_dataset(ROWS, namespace_client=ann, table_id=path)
        _check_reads(bob)
        _check_changes(bob)
        options = {"api_key": "none", "host_override": url}
        db = lancedb.connect(
            "db://films", client_config={"extra_headers": {"x-user": "bob"}}, **options
        )
        assert list(db.table_names()) == ["open", "read"]
        assert db.open_table("read").count_rows() == 3
        with pytest.raises(ValueError, match="not found"):
            db.open_table("pay")


def _check_reads(bob: Any) -> None:
    assert "secret" not in bob.list_namespaces(api.ListNamespacesRequest(id=[])).namespaces
    assert bob.list_tables(api.ListTablesRequest(id=["films"])).tables == ["open", "read"]
    assert lance.dataset(namespace_client=bob, table_id=["films", "read"]).count_rows() == 3
    messages = []
    for name in ("pay", "absent"):
        with pytest.raises(TableNotFoundError) as caught:
            bob.describe_table(api.DescribeTableRequest(id=["films", name]))
        messages.append(str(caught.value).replace(name, ""))
    assert messages[0] == messages[1]
    assert _listed(bob, "secret") == _listed(bob, "absent")


def _listed(client: Any, database: str) -> Any:
    """Return what a listing answers; a directory lists what does not exist."""
    try:
        return client.list_tables(api.ListTablesRequest(id=[database])).tables
    except NamespaceNotFoundError as error:
        return str(error).replace(database, "")


def _check_changes(bob: Any) -> None:
    delete = api.DeleteFromTableRequest(id=["films", "read"], predicate="id = 1")
    with pytest.raises(
        PermissionDeniedError, match="bob is not allowed to perform delete_from_table"
    ):
        bob.delete_from_table(delete)
    bob.delete_from_table(delete.model_copy(update={"id": ["films", "open"]}))
    assert lance.dataset(namespace_client=bob, table_id=["films", "open"]).count_rows() == 2
