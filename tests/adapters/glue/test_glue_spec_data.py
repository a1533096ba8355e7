"""What the spec says of data on Glue's tables, as far as no other case shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import (
    CountTableRowsRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    DropTableRequest,
)
from lance_namespace.errors import (
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    UnauthenticatedError,
)
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, Fault, HttpProxy, Request

from lance_bridge.testing.build import ipc
from lance_bridge_glue import GlueNamespace

from .building import Connect, tables

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2]})
FOREVER = float("inf")
Operation = Callable[[GlueNamespace, list[str]], object]


def refusal(code: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    return Answer(403, body.encode(), {"Content-Type": "application/xml"})


TROUBLE: dict[type[LanceNamespaceError], Answer | Fault] = {
    UnauthenticatedError: refusal("InvalidAccessKeyId"),
    PermissionDeniedError: refusal("AccessDenied"),
    ServiceUnavailableError: Fault.DROP_REQUEST,
}
"""What the storage does, by the error that it comes out as."""


@pytest.fixture
def store(server: GlueServer) -> Iterator[HttpProxy]:
    """A proxy in front of S3."""
    with HttpProxy(server.endpoint) as running:
        yield running


@pytest.fixture
def on_s3(connect: Connect, store: HttpProxy) -> GlueNamespace:
    """A namespace whose storage is behind that proxy."""
    return connect(**{"storage.aws_endpoint": store.endpoint})


@pytest.fixture
def on_disk(connect: Connect, tmp_path: Path) -> GlueNamespace:
    """A namespace that places its tables on local disk."""
    return connect(root=str(tmp_path / "root"))


def create(namespace: GlueNamespace, table_id: list[str], **more: Any) -> None:
    namespace.create_table(CreateTableRequest(id=table_id, **more), ipc(ROWS))


def count(namespace: GlueNamespace, table_id: list[str], **more: Any) -> int | None:
    return namespace.count_table_rows(CountTableRowsRequest(id=table_id, **more)).count


# -- storage that does not serve -----------------------------------------------------------------

NEEDS_STORAGE: dict[str, Operation] = {
    "describe": lambda ns, t: ns.describe_table(DescribeTableRequest(id=t, check_declared=True)),
    "count": count,
    "create": lambda ns, t: create(ns, [t[0], "new"]),
    "overwrite": lambda ns, t: create(ns, t, mode="Overwrite"),
    "drop": lambda ns, t: ns.drop_table(DropTableRequest(id=t)),
}


@pytest.mark.parametrize("expected", TROUBLE)
@pytest.mark.parametrize("operation", NEEDS_STORAGE)
def test_storage_that_does_not_serve_is_told_and_nothing_is_changed(
    on_s3: GlueNamespace,
    store: HttpProxy,
    database: str,
    operation: str,
    expected: type[LanceNamespaceError],
) -> None:
    create(on_s3, [database, "t"])
    store.fail_next("*", TROUBLE[expected], times=FOREVER)
    with pytest.raises(expected):
        NEEDS_STORAGE[operation](on_s3, [database, "t"])
    store.reset()
    assert tables(on_s3, database) == ["t"]
    assert count(on_s3, [database, "t"]) == 3


def test_a_declaration_that_cannot_be_looked_at_is_not_repeated(
    on_s3: GlueNamespace, store: HttpProxy, database: str
) -> None:
    request = DeclareTableRequest(id=[database, "t"])
    first = on_s3.declare_table(request)
    store.fail_next("*", refusal("AccessDenied"), times=FOREVER)
    with pytest.raises(TableAlreadyExistsError, match="cannot be looked at"):
        on_s3.declare_table(request)
    store.reset()
    assert on_s3.declare_table(request).location == first.location


@pytest.mark.parametrize("expected", TROUBLE)
def test_files_that_cannot_be_deleted_are_named(
    on_s3: GlueNamespace, store: HttpProxy, database: str, expected: type[LanceNamespaceError]
) -> None:
    def deletes(request: Request) -> bool:
        return request.method == "DELETE" or request.path.rstrip("=").endswith("?delete")

    create(on_s3, [database, "t"])
    store.fail_next(deletes, TROUBLE[expected], times=FOREVER)
    with pytest.raises(expected, match="is dropped, but files are left at s3://"):
        on_s3.drop_table(DropTableRequest(id=[database, "t"]))
    assert store.fired
    assert tables(on_s3, database) == []


# -- creating ------------------------------------------------------------------------------------


# -- reading -------------------------------------------------------------------------------------
