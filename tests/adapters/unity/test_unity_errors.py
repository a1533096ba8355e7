"""Errors of every dialect as errors of the Lance namespace."""

from __future__ import annotations

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_bridge.errors import (
    ObjectUnavailableError,
    OutcomeUnknownError,
    table_already_exists,
)
from lance_bridge_unity.errors import ErrorReply, LostReply, translate_errors

from .building import TABLE

pytestmark = [pytest.mark.quick, pytest.mark.spec("unity.md#errors-of-every-operation")]


def raised(error: Exception, path: tuple[str, ...] = TABLE) -> LanceNamespaceError:
    with pytest.raises(LanceNamespaceError) as caught, translate_errors("do it", path):
        raise error
    assert caught.value.__cause__ is error
    return caught.value


def refused(status: int, code: str, text: str = "no", *, change: bool = False) -> ErrorReply:
    return ErrorReply(status, code, text, change=change)


@pytest.mark.spec("common.md#describetable")
@pytest.mark.parametrize(
    ("code", "kind", "named"),
    [
        ("CATALOG_NOT_FOUND", NamespaceNotFoundError, "c"),
        ("SCHEMA_NOT_FOUND", NamespaceNotFoundError, "c.s"),
        ("TABLE_NOT_FOUND", TableNotFoundError, "c.s.t"),
        ("NOT_FOUND", TableNotFoundError, "c.s.t"),
        ("CATALOG_DOES_NOT_EXIST", NamespaceNotFoundError, "c"),
        ("SCHEMA_DOES_NOT_EXIST", NamespaceNotFoundError, "c.s"),
        ("TABLE_DOES_NOT_EXIST", TableNotFoundError, "c.s.t"),
        ("RESOURCE_DOES_NOT_EXIST", TableNotFoundError, "c.s.t"),
        ("NoSuchCatalogException", NamespaceNotFoundError, "c"),
        ("NoSuchSchemaException", NamespaceNotFoundError, "c.s"),
        ("NoSuchTableException", TableNotFoundError, "c.s.t"),
        ("NotFoundException", TableNotFoundError, "c.s.t"),
        ("NO_SUCH_CATALOG_EXCEPTION", NamespaceNotFoundError, "c"),
        ("TABLE_OR_VIEW_NOT_FOUND", TableNotFoundError, "c.s.t"),
    ],
)
def test_the_level_that_is_missing_is_named(
    code: str, kind: type[LanceNamespaceError], named: str
) -> None:
    error = raised(refused(404, code))
    assert type(error) is kind
    assert f" not found: {named}. " in str(error)


def test_an_old_servers_not_found_is_about_the_namespace_that_was_asked_for() -> None:
    assert " not found: c.s. " in str(raised(refused(404, "NOT_FOUND"), ("c", "s")))


@pytest.mark.parametrize("code", ["METASTORE_DOES_NOT_EXIST", "OTHER"])
def test_a_404_about_something_else_is_never_absence(code: str) -> None:
    assert type(raised(refused(404, code))) is InternalError


@pytest.mark.parametrize("code", ["", "ENDPOINT_NOT_FOUND"])
def test_a_404_of_a_server_without_the_call_is_unsupported(code: str) -> None:
    error = raised(refused(404, code))
    assert type(error) is UnsupportedOperationError
    assert "check host" in str(error)


@pytest.mark.spec("unity.md#renametable")
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "INVALID_ARGUMENT", InvalidInputError),
        (400, "INVALID_PARAMETER_VALUE", InvalidInputError),
        (400, "InvalidParameterValueException", InvalidInputError),
        (401, "", UnauthenticatedError),
        (401, "UNAUTHENTICATED", UnauthenticatedError),
        (401, "NotAuthorizedException", UnauthenticatedError),
        (403, "PERMISSION_DENIED", PermissionDeniedError),
        (403, "PermissionDeniedException", PermissionDeniedError),
        (403, "", PermissionDeniedError),
        (400, "INSUFFICIENT_PERMISSIONS", PermissionDeniedError),
        (409, "ABORTED", ConcurrentModificationError),
        (405, "", UnsupportedOperationError),
        (501, "UNIMPLEMENTED", UnsupportedOperationError),
        (429, "", ThrottlingError),
        (429, "RESOURCE_EXHAUSTED", ThrottlingError),
        (400, "REQUEST_LIMIT_EXCEEDED", ThrottlingError),
        (500, "INTERNAL", ObjectUnavailableError),
        (502, "", ServiceUnavailableError),
        (503, "TEMPORARILY_UNAVAILABLE", ServiceUnavailableError),
        (302, "", InternalError),
    ],
)
def test_answers_are_classified(status: int, code: str, kind: type[LanceNamespaceError]) -> None:
    assert type(raised(refused(status, code))) is kind


def test_databricks_answer_to_a_bad_token_is_unauthenticated() -> None:
    assert type(raised(refused(403, "403", "Invalid access token."))) is UnauthenticatedError


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_failing_server_may_have_made_the_change(status: int) -> None:
    error = raised(refused(status, "INTERNAL", change=True))
    assert type(error) is OutcomeUnknownError
    assert "failed to do it, which may have happened or not" in str(error)
    assert "Unity Catalog failed to do it" in str(raised(refused(status, "INTERNAL")))


@pytest.mark.parametrize(
    ("sent", "change", "kind"),
    [
        (True, True, OutcomeUnknownError),
        (False, True, ServiceUnavailableError),
        (True, False, ServiceUnavailableError),
    ],
)
def test_a_lost_request_is_unknown_only_where_it_may_have_changed_something(
    sent: bool, change: bool, kind: type[LanceNamespaceError]
) -> None:
    assert type(raised(LostReply("gone", sent=sent, change=change))) is kind


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "TABLE_ALREADY_EXISTS"),
        (409, "ALREADY_EXISTS"),
        (409, "AlreadyExistsException"),
        (409, "TABLE_OR_VIEW_ALREADY_EXISTS"),
        (400, "RESOURCE_ALREADY_EXISTS"),
    ],
)
def test_duplicates_of_all_dialects_are_what_the_caller_says(status: int, code: str) -> None:
    taken = table_already_exists(TABLE)
    error = refused(status, code)
    with pytest.raises(type(taken)) as caught, translate_errors("make it", TABLE, duplicate=taken):
        raise error
    assert caught.value is taken


@pytest.mark.spec("common.md#dropnamespace")
@pytest.mark.parametrize(
    ("status", "code", "text", "expected"),
    [
        (400, "FAILED_PRECONDITION", "Cannot delete schema with tables", True),
        (409, "SCHEMA_NOT_EMPTY", "", True),
        (400, "INVALID_STATE", "Schema 'c.s' is not empty. The schema has 1 table(s)", True),
        (400, "INVALID_STATE", "storage root is not there", False),
        (500, "INTERNAL", "the queue is not empty", False),
    ],
)
def test_a_refused_delete_of_what_is_not_empty_is_recognised(
    status: int, code: str, text: str, expected: bool
) -> None:
    assert refused(status, code, text).is_not_empty is expected


def test_only_the_first_line_of_a_servers_message_is_kept() -> None:
    error = raised(refused(400, "INVALID_ARGUMENT", "no good\n\tat io.unitycatalog.Server"))
    assert "no good" in str(error)
    assert "io.unitycatalog" not in str(error)
