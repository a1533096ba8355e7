"""Requests to AWS: how many an operation needs, which errors they become, and faults at each."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

import boto3
import pytest
from lance_namespace import (
    ErrorCode,
)
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    ThrottlingError,
)
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, Delay, Fault, HttpProxy

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import ObjectUnavailableError, OutcomeUnknownError
from lance_bridge.testing.calls import Calls, rows
from lance_bridge_glue.catalog import GlueCatalog
from lance_bridge_glue.errors import translate_errors

from .conftest import BUCKET, DATA_FILE, Connect, catalog_at, raw_table

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "glue.md#connections",
        "glue.md#declaretable",
        "glue.md#concurrency-and-crash-safety",
        "glue.md#errors-of-every-operation",
        "glue.md#renametable",
    ),
]

STORAGE = {"managed_by": "storage"}
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
State = Mapping[str, Mapping[str, str]]
"""Of each database, its tables and where they are; an ``{}`` stands for the test's database."""
BEFORE: State = {"{}": {"t": "t"}, "{}_empty": {}}
RENAMES = {"in a namespace": "", "across namespaces": "_empty"}
"""To which of the databases."""
UNREADABLE = {ErrorCode.INTERNAL, ErrorCode.SERVICE_UNAVAILABLE}
UNAVAILABLE = {ErrorCode.SERVICE_UNAVAILABLE}
FAULTS: dict[str, tuple[Fault | Answer | Delay, set[ErrorCode]]] = {
    "throttling": (Answer.of_aws("ThrottlingException"), {ErrorCode.THROTTLING}),
    "500": (Answer.of_aws("InternalServiceException", status=500), UNREADABLE),
    "silence": (Delay(), UNAVAILABLE),
    "reset": (Fault.RESET, UNAVAILABLE),
    "lost reply": (Fault.LOSE_REPLY, UNAVAILABLE),
    "truncated reply": (Fault.TRUNCATE_REPLY, UNREADABLE),
    "malformed reply": (Fault.MALFORMED_REPLY, UNREADABLE),
    "another server's reply": (Answer.of_json(200, {"message": "hello"}), UNREADABLE),
    "expired credentials": (Answer.of_aws("ExpiredTokenException"), {ErrorCode.UNAUTHENTICATED}),
    "refusal": (Answer.of_aws("AccessDeniedException"), {ErrorCode.PERMISSION_DENIED}),
}
EACH_OUTCOME_OR_ALL = [
    pytest.param(("500", "reset", "lost reply"), id="each outcome"),
    pytest.param(FAULTS, id="all", marks=pytest.mark.slow),
]
"""Refused, not received, and received: what the others lead to as well, with codes of their own."""


def place(database: str, name: str) -> str:
    return f"s3://{BUCKET}/{database}/{name}"


def test_a_declaration_reads_the_database_once(
    connect: Connect, proxy: HttpProxy, database: str
) -> None:
    connect().declare_table([database, "t"], location=place(database, "t"))
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}
    proxy.reset()
    connect().declare_table([database, "u"])
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}
    proxy.reset()
    connect().register_table([database, "v"], place(database, "v"))
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}
    proxy.reset()
    connect().create_table([database, "w"], rows(range(3)))
    # The entry is read again after the commit to the storage.
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1, "GetTable": 1}


def test_a_declaration_that_says_who_manages_the_table_needs_one_call(
    connect: Connect, proxy: HttpProxy, database: str
) -> None:
    calls = connect()
    calls.declare_table([database, "t"], location=place(database, "t"), properties=STORAGE)
    assert proxy.counts == {"GetDatabase": 1, "CreateTable": 1}
    proxy.reset()
    for name in ("u", "v"):
        calls.declare_table([database, name], location=place(database, name), properties=STORAGE)
    assert proxy.counts == {"CreateTable": 2}


def test_a_namespace_that_asks_for_managed_tables_is_never_missed(
    connect: Connect, server: GlueServer, database: str
) -> None:
    calls = connect()
    calls.declare_table([database, "t"], location=place(database, "t"))
    changed = {"Name": database, "Parameters": {"managed_by": "impl"}}
    server.glue.update_database(Name=database, DatabaseInput=changed)
    calls.declare_table([database, "u"], location=place(database, "u"))
    assert not calls.describe_table([database, "t"]).managed_versioning
    assert calls.describe_table([database, "u"]).managed_versioning


def test_a_database_that_is_gone_is_named_whether_it_was_read_or_not(
    connect: Connect, database: str
) -> None:
    calls, other = connect(), connect()
    calls.declare_table([database, "t"], location=place(database, "t"), properties=STORAGE)
    other.drop_namespace([database], behavior="Cascade")
    for client in (calls, connect()):
        with pytest.raises(NamespaceNotFoundError):
            client.declare_table([database, "u"], location=place(database, "u"), properties=STORAGE)


def test_a_database_of_s3_tables_is_refused_each_time_and_another_after_a_minute(
    connect: Connect, proxy: HttpProxy, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    federated = {"Identifier": "arn:x", "ConnectionName": "aws:s3tables"}
    shown = Answer.of_json(200, {"Database": {"Name": database, "FederatedDatabase": federated}})
    calls = connect()

    def declare(name: str) -> None:
        calls.declare_table([database, name], location=place(database, name), properties=STORAGE)

    for _ in range(2):
        proxy.fail_next("GetDatabase", shown)
        with pytest.raises(InvalidInputError, match="S3 Tables"):
            declare("t")
    monkeypatch.setattr("lance_bridge_glue.catalog._KIND_SECONDS", 0.0)
    declare("t")
    proxy.fail_next("GetDatabase", shown)
    with pytest.raises(InvalidInputError, match="S3 Tables"):
        declare("u")
    assert proxy.counts["CreateTable"] == 1


# -- errors, and replies that are lost -------------------------------------------------------------


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


# -- renames, broken at each of their requests -----------------------------------------------------


@dataclass
class Lake:
    """What a test works on: a database behind a proxy, with the table ``t`` in it."""

    server: GlueServer
    proxy: HttpProxy
    namespaces: dict[bool, Calls]
    """One that waits for long, and one that does not (True); neither repeats anything."""
    database: str

    def restore(self) -> None:
        """Make what `BEFORE` says, with data, in place of what there is."""
        glue = self.server.glue
        for name in self.state():
            glue.delete_database(Name=name.format(self.database))
        for name in BEFORE:
            glue.create_database(DatabaseInput={"Name": name.format(self.database)})
        descriptor = {"Location": f"s3://{BUCKET}/{self.database}/t"}
        marks = {"table_type": "lance"}
        raw_table(self.server, self.database, "t", Parameters=marks, StorageDescriptor=descriptor)
        self.server.put(BUCKET, f"{self.database}/t/{DATA_FILE}")

    def state(self) -> State:
        """Return what there is, in the form of `BEFORE`."""
        listed = self.server.glue.get_paginator("get_databases").paginate()
        names = [each["Name"] for page in listed for each in page["DatabaseList"]]
        own = [name for name in names if name.startswith(self.database)]
        return {name.replace(self.database, "{}"): self._tables(name) for name in own}

    def _tables(self, database: str) -> dict[str, str]:
        entries = self.server.glue.get_tables(DatabaseName=database)["TableList"]
        places = {each["Name"]: each["StorageDescriptor"]["Location"] for each in entries}
        return {name: location.rpartition("/")[2] for name, location in places.items()}

    def has_data(self) -> bool:
        return f"{self.database}/t/{DATA_FILE}" in self.server.keys(BUCKET)

    def failure(self, to: str, step: int, fault: str) -> LanceNamespaceError | None:
        """Rename the table, break all requests from one on, and return the error.

        Returns None where the rename is done before that request.
        """
        calls = self.namespaces[fault == "silence"]
        numbers = count()
        self.proxy.reset()
        self.proxy.fail_next(lambda _: next(numbers) >= step, FAULTS[fault][0], times=FOREVER)
        begun, error = time.monotonic(), None
        try:
            calls.rename_table([self.database, "t"], "u", new_namespace_id=[f"{self.database}{to}"])
        except LanceNamespaceError as caught:
            error = caught
        assert time.monotonic() - begun < 30
        assert bool(self.proxy.fired) is (error is not None), f"{self.proxy.fired}: {error!r}"
        assert error is None or error.code in FAULTS[fault][1]
        return error


@pytest.fixture
def lake(server: GlueServer, proxy: HttpProxy, connect: Connect, database: str) -> Lake:
    waits = {False: "10", True: "0.5"}
    namespaces = {
        short: connect(max_retries="0", **{"client.read-timeout": wait})
        for short, wait in waits.items()
    }
    made = Lake(server, proxy, namespaces, database)
    made.restore()
    return made


@pytest.mark.parametrize("faults", EACH_OUTCOME_OR_ALL)
@pytest.mark.parametrize("where", RENAMES)
def test_a_rename_that_fails_anywhere_loses_nothing_and_names_what_is_left(
    lake: Lake, where: str, faults: Iterable[str]
) -> None:
    for fault in faults:
        _break_rename_everywhere(lake, RENAMES[where], fault)
        lake.restore()


def _break_rename_everywhere(lake: Lake, to: str, fault: str) -> None:
    for step in count():
        error = lake.failure(to, step, fault)
        state = lake.state()
        entries = {**state["{}"], **state["{}_empty"]}
        assert set(entries.values()) == {"t"}
        assert lake.has_data()
        if error is None:
            assert set(entries) == {"u"}
            break
        # Whether there is a copy is not known where its reply is lost, and all that follows.
        if len(entries) == 2 and lake.proxy.fired[0][0] != "CreateTable":
            assert "both names" in str(error)
        if state != BEFORE:
            lake.restore()
    assert step >= 4
