"""What AWS answers, as errors of the library; and changes whose replies are lost."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

import boto3
import pytest
from lance_namespace import (
    ErrorCode,
)
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    TableAlreadyExistsError,
    ThrottlingError,
)
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, Delay, Fault, HttpProxy

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import ObjectUnavailableError, OutcomeUnknownError
from lance_bridge.testing.calls import Calls
from lance_bridge_glue.catalog import GlueCatalog
from lance_bridge_glue.errors import translate_errors

from .building import Connect, catalog_at, raw_table

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("glue.md#concurrency-and-crash-safety", "glue.md#errors-of-every-operation"),
]

FOREVER = float("inf")
IAM = (
    "User: arn:aws:sts::123456789012:assumed-role/r/s is not authorized to perform: glue:GetTable "
    "on resource: arn:aws:glue:us-east-1:123456789012:table/db/t because no identity-based policy "
    "allows the glue:GetTable action"
)
KEY = "User: u is not authorized to perform: kms:Decrypt on resource: k"
LAKE = "Insufficient Lake Formation permission(s): Required Describe on t"
SIGNATURE = (
    "The request signature we calculated does not match the signature you provided.\n\n"
    "The Canonical String for this request should have been\n'x-amz-security-token:hush'"
)


@pytest.fixture
def calls(connect: Connect) -> Calls:
    """One that repeats nothing."""
    return connect(max_retries="0")


def describe(calls: Calls) -> object:
    return calls.describe_table(["db", "t"])


def failure(calls: Calls) -> LanceNamespaceError:
    with pytest.raises(LanceNamespaceError) as caught:
        describe(calls)
    return caught.value


@pytest.mark.spec("glue.md#declaretable", "glue.md#registertable", "glue.md#renametable")
@pytest.mark.parametrize(
    ("answer", "expected", "says"),
    [
        (("AccessDeniedException", IAM), ErrorCode.PERMISSION_DENIED, "must allow glue:GetTable"),
        (("AccessDeniedException", LAKE), ErrorCode.PERMISSION_DENIED, "granted in Lake Formation"),
        (("AccessDeniedException", "no"), ErrorCode.PERMISSION_DENIED, "AWS refused to read table"),
        (("GlueEncryptionException", KEY), ErrorCode.PERMISSION_DENIED, "kms:Decrypt"),
        (("ThrottlingException", "Rate exceeded"), ErrorCode.THROTTLING, "Repeat it later"),
        (("RequestLimitExceeded", "x"), ErrorCode.THROTTLING, "max_retries"),
        (("TooManyRequestsException", "x"), ErrorCode.THROTTLING, "max_retries"),
        (("ResourceNumberLimitExceededException", "x"), ErrorCode.THROTTLING, "quota"),
        (("ExpiredTokenException", "expired"), ErrorCode.UNAUTHENTICATED, "Check the credentials"),
        (
            ("UnrecognizedClientException", "bad"),
            ErrorCode.UNAUTHENTICATED,
            "Check the credentials",
        ),
        (("InvalidSignatureException", SIGNATURE), ErrorCode.UNAUTHENTICATED, "signature"),
        (
            ("InvalidInputException", "odd"),
            ErrorCode.INVALID_INPUT,
            "Glue cannot read table 'db.t'",
        ),
        (("ValidationException", "odd"), ErrorCode.INVALID_INPUT, "odd"),
        (("OperationTimeoutException", "slow"), ErrorCode.SERVICE_UNAVAILABLE, "slow"),
        (("ResourceNotReadyException", "x"), ErrorCode.SERVICE_UNAVAILABLE, "failed to read"),
        (("FederationSourceRetryableException", "x"), ErrorCode.SERVICE_UNAVAILABLE, "failed"),
        (("ConcurrentModificationException", "x"), ErrorCode.CONCURRENT_MODIFICATION, "failed"),
        (("GlueEncryptionException", "key"), ErrorCode.INTERNAL, "GlueEncryptionException: key"),
        (("UnknownOperationException", ""), ErrorCode.UNSUPPORTED, "failed to read table"),
        (("SomethingNewException", "what"), ErrorCode.INTERNAL, "SomethingNewException: what"),
    ],
)
def test_each_error_of_aws_has_its_own_code_and_says_what_to_do(
    calls: Calls,
    proxy: HttpProxy,
    answer: tuple[str, str],
    expected: ErrorCode,
    says: str,
) -> None:
    proxy.fail_next("GetTable", Answer.of_aws(*answer), times=FOREVER)
    error = failure(calls)
    assert error.code == expected
    assert says in str(error)
    assert "db.t" in str(error)


def test_an_error_of_a_federated_source_has_the_code_of_the_source(
    calls: Calls, proxy: HttpProxy
) -> None:
    content = {
        "__type": "FederationSourceException",
        "FederationSourceErrorCode": "ThrottlingException",
        "Message": "the source is busy",
    }
    proxy.fail_next("GetTable", Answer.of_json(400, content), times=FOREVER)
    assert failure(calls).code == ErrorCode.THROTTLING


@pytest.mark.parametrize(
    ("code", "of_source"),
    [
        ("FederationSourceRetryableException", None),
        ("FederationSourceException", "OperationTimeoutException"),
        ("FederationSourceException", "InvalidCredentialsException"),
        ("FederationSourceException", "ServiceUnavailableException"),
    ],
)
def test_a_source_that_does_not_respond_is_no_outage_of_glue(
    calls: Calls, proxy: HttpProxy, code: str, of_source: str | None
) -> None:
    content = {"__type": code, "FederationSourceErrorCode": of_source, "Message": "no answer"}
    proxy.fail_next("GetTable", Answer.of_json(400, content), times=FOREVER)
    error = failure(calls)
    assert isinstance(error, ObjectUnavailableError)
    assert error.code == ErrorCode.SERVICE_UNAVAILABLE
    assert "db.t" in str(error)
    assert "Check the credentials" not in str(error)


def test_a_session_token_in_what_aws_says_is_not_repeated(calls: Calls, proxy: HttpProxy) -> None:
    proxy.fail_next("GetTable", Answer.of_aws("InvalidSignatureException", SIGNATURE))
    error = failure(calls)
    assert "hush" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (500, ErrorCode.INTERNAL),
        (502, ErrorCode.SERVICE_UNAVAILABLE),
        (503, ErrorCode.SERVICE_UNAVAILABLE),
        (429, ErrorCode.THROTTLING),
        (403, ErrorCode.PERMISSION_DENIED),
        (401, ErrorCode.UNAUTHENTICATED),
        (404, ErrorCode.INTERNAL),
    ],
)
def test_a_page_of_a_proxy_is_classified_by_its_status(
    calls: Calls, proxy: HttpProxy, status: int, expected: ErrorCode
) -> None:
    page = Answer(status, b"<html>no</html>", {"Content-Type": "text/html"})
    proxy.fail_next("GetTable", page, times=FOREVER)
    assert failure(calls).code == expected


@pytest.mark.parametrize(
    "reply",
    [
        Answer(200, b"<html>hotel</html>", {"Content-Type": "text/html"}),
        Answer(200, b"{}"),
        Answer(200, b"[]"),
        Answer(200, b""),
        Answer(200, b'{"Table": 7}'),
        Answer(200, b'{"Table": {}}'),
        Answer(200, b'{"TableList": [{"Owner": "me"}]}'),
        Answer(200, b"\xff\xfe"),
        Answer(200, b'{"Table": {"Name": "t", "CreateTime": "yesterday"}}'),
    ],
)
def test_a_reply_that_cannot_be_read_is_an_error_and_not_an_absence(
    calls: Calls, proxy: HttpProxy, reply: Answer
) -> None:
    proxy.fail_next("Get*", reply, times=FOREVER)
    error = failure(calls)
    assert error.code == ErrorCode.INTERNAL
    assert "cannot be read" in str(error)
    for listing in (
        lambda: calls.list_tables(["db"]),
        lambda: calls.all_namespaces([]),
    ):
        with pytest.raises(LanceNamespaceError) as caught:
            listing()
        assert caught.value.code == ErrorCode.INTERNAL


@pytest.mark.parametrize("max_retries", [2, 3])
def test_throttling_is_waited_out_within_the_retries(
    connect: Connect, proxy: HttpProxy, max_retries: int
) -> None:
    calls = connect(max_retries=str(max_retries))
    proxy.fail_next("GetDatabases", Answer.of_aws("ThrottlingException"), times=3)
    if max_retries == 3:
        assert calls.all_namespaces([]) is not None
    else:
        with pytest.raises(ThrottlingError):
            calls.all_namespaces([])
    assert proxy.counts["GetDatabases"] == max_retries + 1


@pytest.mark.parametrize("how", [Delay(), Fault.RESET, Fault.DROP_REQUEST])
def test_a_server_that_does_not_answer_is_unavailable_within_the_time_limits(
    connect: Connect, proxy: HttpProxy, how: Delay | Fault
) -> None:
    calls = connect(**{"client.read-timeout": "0.5"})
    proxy.fail_next("*", how, times=FOREVER)
    begun = time.monotonic()
    error = failure(calls)
    assert error.code == ErrorCode.SERVICE_UNAVAILABLE
    assert time.monotonic() - begun < 30


def test_a_change_that_was_never_sent_is_unavailable_and_not_unknown(
    connect: Connect, proxy: HttpProxy
) -> None:
    calls = connect()
    proxy.stop()
    begun = time.monotonic()
    with pytest.raises(LanceNamespaceError) as caught:
        calls.declare_table(["db", "t"], location="s3://glue-tests/t")
    assert caught.value.code == ErrorCode.SERVICE_UNAVAILABLE
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert time.monotonic() - begun < 30


def test_what_botocore_refuses_to_send_has_its_reason() -> None:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    client = boto3.client("glue", region_name="eu-west-1", **keys)
    with (
        pytest.raises(InvalidInputError, match=r"cannot be sent: .*Invalid length for .*Name"),
        translate_errors("read it"),
    ):
        client.get_database(Name="")


# -- lost replies ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize("mode", ["standard", "adaptive", "legacy"])
@pytest.mark.parametrize(
    "operation", ["CreateTable", "UpdateTable", "DeleteTable", "CreateDatabase"]
)
def test_the_answer_to_a_second_attempt_says_nothing_of_the_first(
    server: GlueServer, proxy: HttpProxy, occupied: str, operation: str, mode: str
) -> None:
    catalog = catalog_at(proxy.endpoint, server, retry_mode=mode)
    proxy.fail_next(operation, Fault.LOSE_REPLY)
    with pytest.raises(OutcomeUnknownError):
        CHANGES[operation](catalog, occupied)
    assert proxy.counts[operation] == 2


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
