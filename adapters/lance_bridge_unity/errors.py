"""Translates errors of Unity Catalog servers to those of the Lance namespace.

All servers are treated alike: the codes of the open-source server, old and new, of its Delta API,
of Databricks' REST API and of its SQL do not contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_bridge.catalog import NamespaceRecord, Path, TableRecord
from lance_bridge.errors import (
    BrokenNameError,
    ObjectUnavailableError,
    OutcomeUnknownError,
    namespace_not_found,
    reason_in,
    table_not_found,
)

from .mapping import STORAGE_ROOT

_ABSENT = re.compile(
    r"NO_SUCH_(?P<named>CATALOG|SCHEMA|TABLE)"
    r"|(?P<level>CATALOG|SCHEMA|TABLE)(?:_OR_VIEW)?_(?:NOT_FOUND|DOES_NOT_EXIST)"
)
_LEVELS = {"CATALOG": 1, "SCHEMA": 2, "TABLE": 3}
_ABSENT_OF_ANY_LEVEL = {"NOT_FOUND", "RESOURCE_DOES_NOT_EXIST"}
_NOT_EMPTY_TEXT = re.compile(r"\bnot empty\b", re.I)
_MANAGED_STORAGE = re.compile(r"\bmanaged storage\b", re.I)
_AMBIGUOUS = re.compile(r"\bnot return a unique result\b", re.I)
_BAD_TOKEN = re.compile(r"\binvalid access token\b", re.I)
_NO_ROUTE = {"", "ENDPOINT_NOT_FOUND"}

_BY_CODE: dict[str, type[LanceNamespaceError]] = {
    "UNAUTHENTICATED": UnauthenticatedError,
    "NOT_AUTHORIZED": UnauthenticatedError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "INSUFFICIENT_PERMISSIONS": PermissionDeniedError,
    "UNAUTHORIZED_ACCESS": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": ThrottlingError,
    "REQUEST_LIMIT_EXCEEDED": ThrottlingError,
    "TOO_MANY_REQUESTS": ThrottlingError,
    "TEMPORARILY_UNAVAILABLE": ServiceUnavailableError,
    "ABORTED": ConcurrentModificationError,
    "INVALID_PARAMETER_VALUE": InvalidInputError,
    "LOCATION_OVERLAP": InvalidInputError,
    "UNIMPLEMENTED": UnsupportedOperationError,
    "NOT_IMPLEMENTED": UnsupportedOperationError,
}
_BY_STATUS: dict[int, type[LanceNamespaceError]] = {
    HTTPStatus.BAD_REQUEST: InvalidInputError,
    HTTPStatus.UNAUTHORIZED: UnauthenticatedError,
    HTTPStatus.FORBIDDEN: PermissionDeniedError,
    HTTPStatus.METHOD_NOT_ALLOWED: UnsupportedOperationError,
    HTTPStatus.REQUEST_TIMEOUT: ServiceUnavailableError,
    HTTPStatus.CONFLICT: ConcurrentModificationError,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidInputError,
    HTTPStatus.TOO_MANY_REQUESTS: ThrottlingError,
    HTTPStatus.NOT_IMPLEMENTED: UnsupportedOperationError,
}


_BROKEN_NAME = (
    ". Several entries of the server have this name, because several processes created it or "
    "renamed to it at the same time: every call about it fails until all but one are removed from "
    "the server's database. Use another name until then; `lance-bridge doctor` lists the entries"
)
UNIQUE_INDEXES = (
    "CREATE UNIQUE INDEX uc_tables_unique ON uc_tables (schema_id, name);",
    "CREATE UNIQUE INDEX uc_schemas_unique ON uc_schemas (catalog_id, name);",
    "CREATE UNIQUE INDEX uc_catalogs_unique ON uc_catalogs (name);",
)
"""With these in its database, the server lets one of several clients have a name."""
_REMEDY = "\n".join((
    "The server's tables have no unique indexes, without which it happens again: when no name has "
    "several entries any more, run in its database",
    *UNIQUE_INDEXES,
))  # fmt: skip


class LostReply(Exception):
    """A request without a readable reply.

    Args:
        text: What happened, for messages.
        sent: Whether the server may have received the request.
        change: Whether the request changes something.
    """

    def __init__(self, text: str, *, sent: bool, change: bool) -> None:
        super().__init__(text)
        self.was_sent = sent
        self.may_have_changed = sent and change


class ErrorReply(Exception):
    """A reply with an error. ``code`` is the server's, normalized to upper-case words.

    ``advice`` is a sentence for the message.

    Args:
        status: The HTTP status.
        code: ``TABLE_NOT_FOUND``, ``NoSuchTableException``, … or empty.
        text: The server's message; only its first line is kept.
        change: Whether the request changes something.
        retry_after: The seconds after which the server allows a retry.
    """

    def __init__(
        self, status: int, code: str, text: str, *, change: bool, retry_after: float = 0.0
    ) -> None:
        self.status = status
        self.code = _as_words(code)
        self.text = reason_in(text) or f"HTTP status {status}"
        self.change = change
        self.retry_after = retry_after
        self.advice = ""
        known = str(self.code or status)
        super().__init__(self.text if known in self.text else f"{known}: {self.text}")

    @property
    def is_throttled(self) -> bool:
        """True if the server did nothing because of too many requests."""
        return self.error_type is ThrottlingError

    @property
    def is_transient(self) -> bool:
        """True if the same request may succeed a little later."""
        return self.is_throttled or self.status in (408, 502, 503, 504)

    @property
    def is_unauthenticated(self) -> bool:
        """True if the server did nothing because it did not accept the credentials."""
        return self.error_type is UnauthenticatedError

    @property
    def is_duplicate(self) -> bool:
        """True if the name is taken."""
        return self.code.endswith("ALREADY_EXISTS")

    @property
    def is_denied(self) -> bool:
        """True if the server refused the request because of the caller's rights."""
        return self.error_type is PermissionDeniedError

    @property
    def is_not_empty(self) -> bool:
        """True if a delete failed because the object is not empty."""
        matches = self.status in (400, 409) and bool(_NOT_EMPTY_TEXT.search(self.text))
        return self.code == "FAILED_PRECONDITION" or self.code.endswith("NOT_EMPTY") or matches

    @property
    def is_ambiguous(self) -> bool:
        """True if several objects have the name, because two clients used it concurrently."""
        return self.status == HTTPStatus.INTERNAL_SERVER_ERROR and bool(
            _AMBIGUOUS.search(self.text)
        )

    @property
    def lacks_route(self) -> bool:
        """True if the server does not implement the call."""
        return self.status in (404, 405) and self.code in _NO_ROUTE

    @property
    def error_type(self) -> type[LanceNamespaceError]:
        """The type of this error, unless another property is more specific."""
        if self.status == HTTPStatus.FORBIDDEN and _BAD_TOKEN.search(self.text):
            return UnauthenticatedError  # Databricks sends no specific code for it
        if self.lacks_route:
            return UnsupportedOperationError
        if self.is_ambiguous:
            return InternalError
        known = _BY_CODE.get(self.code) or _BY_STATUS.get(self.status)
        if known is not None:
            return known
        if self.status == HTTPStatus.INTERNAL_SERVER_ERROR and not self.change:
            return ObjectUnavailableError  # such as a foreign catalog whose connection is down
        return ServiceUnavailableError if self.status >= 500 else InternalError

    def not_found(self, path: Path) -> LanceNamespaceError | None:
        """Return the error for the level of ``path`` that does not exist, if the reply says so.

        Args:
            path: Catalog, schema and table, or the first of them. Old servers do not say which
                one is missing; then the last is assumed.
        """
        level = self.missing_level(path)
        if level is None:
            return None
        return table_not_found(path) if level == 3 else namespace_not_found(path[:level])

    def missing_level(self, path: Path) -> int | None:
        """Return which part of ``path`` does not exist: 1 for the catalog, to 3 for the table."""
        found = _ABSENT.fullmatch(self.code)
        if not path or (found is None and self.code not in _ABSENT_OF_ANY_LEVEL):
            return None
        named = found["named"] or found["level"] if found else None
        return min(_LEVELS[named] if named else len(path), len(path))


def _as_words(code: str) -> str:
    """Return ``NoSuchTableException`` as ``NO_SUCH_TABLE``, and ``[A.B]`` as ``A``."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code.split(".", maxsplit=1)[0])
    return words.upper().removesuffix("_EXCEPTION")


@contextmanager
def translate_errors(
    what: str,
    path: Path,
    *,
    duplicate: LanceNamespaceError | None = None,
    rights: str = "",
    no_catalog: str = "",
) -> Iterator[None]:
    """Translate the client's errors to those of the library.

    Args:
        what: The action, with its object: "create table 'c.s.t'".
        path: What must exist for it: catalog, schema, table, or the first of them.
        duplicate: What to raise if the name is taken.
        rights: What the request takes, for the message if it is refused.
        no_catalog: What to do if the catalog does not exist.
    """
    try:
        yield
    except LostReply as error:
        raise _unanswered(error, what) from error
    except ErrorReply as error:
        if duplicate is not None and error.is_duplicate:
            raise duplicate from error
        if no_catalog and error.missing_level(path) == 1:
            raise NamespaceNotFoundError(f"Namespace not found: {path[0]}. {no_catalog}") from error
        raise error.not_found(path) or _to_error(error, what, rights) from error


def _unanswered(error: LostReply, what: str) -> ServiceUnavailableError:
    if error.may_have_changed:
        return OutcomeUnknownError(
            f"Unity Catalog sent no readable reply to the request to {what}, which may have "
            f"happened or not: {error}"
        )
    failed = "sent no readable reply to the request" if error.was_sent else "could not be reached"
    return ServiceUnavailableError(
        f"Unity Catalog {failed} to {what}: {error}. Try again, or check that it runs and that "
        "host has its address"
    )


def _to_error(error: ErrorReply, what: str, rights: str) -> LanceNamespaceError:
    error_type = error.error_type
    if error.is_ambiguous:
        text = f"Unity Catalog failed to {what}: {error}{_BROKEN_NAME}"
        return BrokenNameError(text, _REMEDY)
    if error_type is ServiceUnavailableError and error.change:
        return OutcomeUnknownError(
            f"Unity Catalog failed to {what}, which may have happened or not: {error}{_hint(error)}"
        )
    failed = issubclass(error_type, (InternalError, ServiceUnavailableError))
    verb = "failed" if failed else "refused"
    text = f"Unity Catalog {verb} to {what}: {error}{_hint(error)}"
    if rights and error.is_denied:
        text = f"{text.removesuffix('.')}. {rights}"
    return error_type(text)


def _hint(error: ErrorReply) -> str:
    """Return what to do, if the server's message does not say so."""
    if error.advice:
        return f". {error.advice}"
    if error.lacks_route:
        return ". It has no such call: check host and api_path"
    if _MANAGED_STORAGE.search(error.text):
        return (
            ". Use a location outside of the storage that the server manages, or set the property "
            "'root' to one"
        )
    return ""


# -- rights ----------------------------------------------------------------------------------------
# For messages: the open-source server says only "Access denied". Databricks names the right that is
# missing, and has others.

RIGHTS_TO_READ_TABLE = (
    "It takes USE CATALOG on the catalog, USE SCHEMA on the schema, and SELECT or MODIFY on the "
    "table"
)
RIGHTS_TO_CREATE_TABLE = (
    "It takes USE CATALOG on the catalog, USE SCHEMA and CREATE TABLE on the schema, and CREATE "
    "EXTERNAL TABLE on the external location that contains the table, if there is one. The "
    "server also refuses a location that overlaps the location of another table or volume, even "
    "one that you may not see"
)
RIGHTS_TO_DROP_TABLE = (
    "It takes USE CATALOG on the catalog and USE SCHEMA on the schema for the owner of the table; "
    "the owner of the schema or the catalog may do it, too"
)
RIGHTS_TO_RENAME_TABLE = (
    f"{RIGHTS_TO_DROP_TABLE}. It also takes USE SCHEMA and CREATE TABLE on the schema"
)
RIGHTS_TO_READ_NAMESPACE = "It takes USE CATALOG on the catalog, and for a schema USE SCHEMA on it"
RIGHTS_TO_DROP_NAMESPACE = "It takes to be its owner, for a schema with USE CATALOG on the catalog"

_RIGHTS_TO_CREATE = (
    "It takes CREATE CATALOG on the metastore",
    "It takes USE CATALOG and CREATE SCHEMA on the catalog",
)


def rights_to_create(record: NamespaceRecord, level: int) -> str:
    """Return what it takes to create a catalog (level 1) or a schema (level 2)."""
    text = _RIGHTS_TO_CREATE[level - 1]
    if STORAGE_ROOT[level - 1] in record.properties:
        text += (
            ", and for its storage root CREATE MANAGED STORAGE on the external location that has it"
        )
    return text


def rights_to_vend(record: TableRecord, *, write: bool) -> str:
    """Return what temporary credentials take, for a table or for the location of a new one."""
    if record.identity is None:
        databricks = "EXTERNAL USE LOCATION"
        open_source = (
            "CREATE EXTERNAL TABLE on an external location that contains the table"
            if write
            else "READ FILES on an external location that contains the table"
        )
    else:
        databricks = "EXTERNAL USE SCHEMA"
        open_source = (
            "SELECT and MODIFY on the table, or to own it, besides USE CATALOG and USE SCHEMA"
            if write
            else "SELECT on the table, or to own it, besides USE CATALOG and USE SCHEMA"
        )
    return (
        f"On Databricks it takes the privilege {databricks}, and external access enabled on the "
        f"metastore; on the open-source server {open_source}"
    )
