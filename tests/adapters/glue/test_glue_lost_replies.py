"""Changes whose replies are lost: the adapter says that it does not know, and core finds out."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceAlreadyExistsError,
    TableAlreadyExistsError,
)
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, Fault, HttpProxy

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.testing.calls import Calls
from lance_bridge_glue.catalog import GlueCatalog

from .building import catalog_at, raw_table

pytestmark = [pytest.mark.servers, pytest.mark.spec("glue.md#concurrency-and-crash-safety")]

FOREVER = float("inf")
NOTHING = Answer(200, b"<html>hotel</html>", {"Content-Type": "text/html"})
NOT_GLUE = Answer.of_json(200, {"message": "hello from the gateway"})
BROKEN = Answer.of_aws("InternalServiceException", status=500)
Act = Callable[[GlueCatalog, str], object]


def record(database: str, name: str = "t") -> TableRecord:
    return TableRecord((database, name), f"s3://glue-tests/{name}", {"table_type": "lance"})


def alter(catalog: GlueCatalog, database: str) -> None:
    catalog.alter_table(catalog.load_table((database, "there")).with_properties({"a": "b"}))


CHANGES: dict[str, Act] = {
    "CreateTable": lambda c, db: c.create_table(record(db)),
    "UpdateTable": alter,
    "DeleteTable": lambda c, db: c.drop_table(record(db, "there")),
    "CreateDatabase": lambda c, db: c.create_namespace(NamespaceRecord((f"{db}_2",))),
    "UpdateDatabase": lambda c, db: c.alter_namespace(NamespaceRecord((db,), {"a": "b"})),
    "DeleteDatabase": lambda c, db: c.drop_namespace((db,)),
}


@pytest.fixture
def catalog(proxy: HttpProxy, server: GlueServer) -> GlueCatalog:
    return catalog_at(proxy.endpoint, server)


@pytest.fixture
def occupied(server: GlueServer, database: str) -> str:
    """A database with the table ``there``."""
    raw_table(server, database, "there", StorageDescriptor={"Location": "s3://glue-tests/there"})
    return database


@pytest.mark.spec("common.md#errors-of-every-operation")
@pytest.mark.parametrize("operation", CHANGES)
@pytest.mark.parametrize("how", [Fault.LOSE_REPLY, Fault.RESET, BROKEN, NOTHING, NOT_GLUE])
def test_a_change_without_a_sure_reply_is_unknown(
    catalog: GlueCatalog,
    proxy: HttpProxy,
    occupied: str,
    operation: str,
    how: Fault | Answer,
) -> None:
    proxy.fail_next(operation, how, times=FOREVER)
    with pytest.raises(OutcomeUnknownError, match="may or may not"):
        CHANGES[operation](catalog, occupied)


@pytest.mark.parametrize(
    "operation", ["CreateTable", "UpdateTable", "DeleteTable", "CreateDatabase"]
)
def test_the_answer_to_a_second_attempt_says_nothing_of_the_first(
    catalog: GlueCatalog, proxy: HttpProxy, occupied: str, operation: str
) -> None:
    proxy.fail_next(operation, Fault.LOSE_REPLY)
    with pytest.raises(OutcomeUnknownError):
        CHANGES[operation](catalog, occupied)
    assert proxy.counts[operation] == 2


@pytest.mark.parametrize("mode", ["standard", "adaptive", "legacy"])
def test_lost_attempts_are_noticed_in_every_retry_mode(
    proxy: HttpProxy, server: GlueServer, database: str, mode: str
) -> None:
    catalog = catalog_at(proxy.endpoint, server, retry_mode=mode)
    proxy.fail_next("CreateTable", Fault.LOSE_REPLY)
    with pytest.raises(OutcomeUnknownError):
        catalog.create_table(record(database))
    assert proxy.counts["CreateTable"] == 2
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(record(database))


def test_a_session_token_in_what_aws_says_after_a_lost_attempt_is_not_repeated(
    catalog: GlueCatalog, proxy: HttpProxy, occupied: str
) -> None:
    said = "The signature does not match.\n\nThe Canonical String was\n'x-amz-security-token:hush'"
    proxy.fail_next("CreateTable", Fault.LOSE_REPLY)
    proxy.fail_next("CreateTable", Answer.of_aws("InvalidSignatureException", said))
    with pytest.raises(OutcomeUnknownError) as caught:
        CHANGES["CreateTable"](catalog, occupied)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_a_name_that_is_taken_after_throttling_is_taken(
    catalog: GlueCatalog, proxy: HttpProxy, occupied: str
) -> None:
    proxy.fail_next("CreateTable", Answer.of_aws("ThrottlingException"))
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(record(occupied, "there"))
    assert proxy.counts["CreateTable"] == 2


def test_a_plain_refusal_is_sure(catalog: GlueCatalog, proxy: HttpProxy, occupied: str) -> None:
    proxy.fail_next("CreateTable", Answer.of_aws("InvalidInputException", "odd"))
    with pytest.raises(InvalidInputError, match="odd"):
        catalog.create_table(record(occupied))
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(NamespaceRecord((occupied,)))


@pytest.mark.spec("common.md#errors-of-every-operation")
@pytest.mark.parametrize("operation", ["CreateTable", "DeleteTable"])
def test_a_rename_that_something_else_than_glue_says_yes_to_loses_nothing(
    calls: Calls, proxy: HttpProxy, server: GlueServer, database: str, operation: str
) -> None:
    table = [database, "t"]
    calls.declare_table(table, location="s3://glue-tests/yes/t")
    proxy.fail_next(operation, NOT_GLUE)
    calls.rename_table(table, "u")
    listed = server.glue.get_tables(DatabaseName=database)["TableList"]
    assert [each["Name"] for each in listed] == ["u"]
