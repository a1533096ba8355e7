"""Adapters that report faults wrongly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
)

from lance_bridge import NamespaceRecord, TableRecord
from lance_bridge.catalog import Path
from lance_bridge.errors import (
    OutcomeUnknownError,
    namespace_not_found,
    table_not_found,
)

from ..server import ConnectionLost, Json, NoAnswerInTime, ServerError
from . import Mutant, wrong_answers

wrong_answers(__name__, "meaning", {
    "Takes a refusal for absence.": lambda found, error, _, path: (
        found if error.status != 403
        else table_not_found(path) if len(path) > 1 else namespace_not_found(path)
    ),
    "Takes a token that is not valid for a missing right.": lambda found, error, *_: (
        PermissionDeniedError(str(error)) if error.status == 401 else found
    ),
    "Reports a busy server as a broken one.": lambda found, error, *_: (
        InternalError(str(error)) if error.status == 503 else found
    ),
})  # fmt: skip
wrong_answers(__name__, "unknown", {
    "Says of a change that was not answered in time that the server cannot be reached.": (
        lambda found, error, *_: ServiceUnavailableError(str(error))
        if isinstance(error, NoAnswerInTime) else found
    ),
})  # fmt: skip


class BusyIsMissing(Mutant):
    """Says that a table does not exist where the server is busy."""

    def load_table(self, path: Path) -> TableRecord:
        try:
            return super().load_table(path)
        except ServiceUnavailableError as error:
            raise table_not_found(path) from error


class ErrorIsMissing(Mutant):
    """Takes every error on reading a schema for its absence."""

    def load_namespace(self, path: Path) -> NamespaceRecord:
        try:
            return super().load_namespace(path)
        except LanceNamespaceError as error:
            raise namespace_not_found(path) from error


class BrokenListingIsEmpty(Mutant):
    """Lists no schema where the server is broken."""

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        try:
            return super().list_namespaces(parent)
        except InternalError:
            return []


class LostIsMade(Mutant):
    """Takes a change whose reply was lost for made."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError:
            if operation == "create":
                return super().send("get", path, schema=path[0], table=path[1])
            return {}


class LostIsUnavailable(Mutant):
    """Says of a change whose reply was lost that the server cannot be reached."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError as error:
            raise ServiceUnavailableError(str(error)) from error


class RepeatsChanges(Mutant):
    """Sends a change again where its reply was lost."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError:
            return super().send(operation, path, **body)


class RepeatsAndSaysSo(Mutant):
    """Sends a change again where its reply was lost, and then says that it is unknown."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError:
            try:
                super().send(operation, path, **body)
            except LanceNamespaceError as error:
                raise OutcomeUnknownError(str(error)) from error
            raise


class RaisesOtherErrors(Mutant):
    """Lets an error of its client out of the library."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError as error:
            cause = error.__cause__
            assert isinstance(cause, ConnectionLost)
            raise cause from None


class FailedIsNotMade(Mutant):
    """Takes a failure of the server after a change for one before it."""

    def unknown(self, error: Exception, operation: str, path: Path) -> LanceNamespaceError:
        if isinstance(error, ServerError):
            return self.meaning(error, operation, path)
        return super().unknown(error, operation, path)
