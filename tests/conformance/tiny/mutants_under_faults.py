"""Mutants that are wrong when the catalog is: its connections, faults, races and untidy entries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
)

from lance_bridge import Catalog, NamespaceRecord, TableRecord
from lance_bridge.catalog import GUARD, Path
from lance_bridge.errors import (
    OutcomeUnknownError,
    concurrent_modification,
    invalid,
    namespace_not_found,
    table_not_found,
)

from .adapter import SERVERS, ConnectionLost, Json, NoAnswerInTime, ServerError
from .mutants import Mutant, wrong_answers, wrong_arguments


class Connections(Mutant):
    """Adapters that describe, close or share connections wrongly."""

    group = "connections"


wrong_answers(Connections, "describe_connection", {
    "Describes every connection alike.": lambda _: "tiny",
})  # fmt: skip
wrong_answers(Connections, "capabilities", {
    "Declares that the server folds names, which it does not.": lambda found: replace(
        found, folds_case=True
    ),
    "Declares that entries cannot change, and changes them.": lambda found: replace(
        found, no_alter="it has no call for that"
    ),
})  # fmt: skip
wrong_answers(Connections, "vend_credentials", {
    "Gives the end of credentials in seconds.": lambda options, _: {
        **options, "expires_at_millis": options["expires_at_millis"][:-3]
    },
})  # fmt: skip
wrong_arguments(Connections, "vend_credentials", {
    "Vends credentials for another table of the same schema.": lambda self, record: [
        next(iter(self.scan_tables(record.path[:-1])), record)
    ],
})  # fmt: skip


class DescribesItself(Connections):
    """Describes the object, and not what it is connected to."""

    def describe_connection(self) -> str:
        return f"{super().describe_connection()} at {id(self)}"


class ShowsTheToken(Connections):
    """Shows the token in the description."""

    def describe_connection(self) -> str:
        token = self._config.token
        return f"{super().describe_connection()}, token={token and token.get_secret_value()}"


class ClosesForGood(Connections):
    """Cannot be used after it was closed."""

    _closed = False

    def close(self) -> None:
        self._closed = True

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        if self._closed:
            raise ServiceUnavailableError("the catalog is closed")
        return super().send(operation, path, **body)


class CachesEntries(Connections):
    """Remembers entries, and does not hear of changes by others."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._cache: dict[Path, TableRecord] = {}

    def load_table(self, path: Path) -> TableRecord:
        if path not in self._cache:
            self._cache[path] = super().load_table(path)
        return self._cache[path]

    def alter_table(self, record: TableRecord) -> None:
        self._cache.pop(record.path, None)
        super().alter_table(record)

    def drop_table(self, record: TableRecord) -> None:
        self._cache.pop(record.path, None)
        super().drop_table(record)

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        self._cache.pop(record.path, None)
        super().rename_table(record, new_path)


class MixesUpThreads(Connections):
    """Keeps what it was asked for on the object."""

    _asked: Path = ()

    def load_table(self, path: Path) -> TableRecord:
        self._asked = path
        time.sleep(0.001)
        return super().load_table(self._asked)


class CredentialsToWrite(Connections):
    """Vends credentials to write to readers."""

    def vend_credentials(self, record: TableRecord, *, write: bool) -> Mapping[str, str] | None:
        return super().vend_credentials(record, write=write or True)


class Faults(Mutant):
    """Adapters that report faults wrongly."""

    group = "faults"


wrong_answers(Faults, "meaning", {
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
wrong_answers(Faults, "unknown", {
    "Says of a change that was not answered in time that the server cannot be reached.": (
        lambda found, error, *_: ServiceUnavailableError(str(error))
        if isinstance(error, NoAnswerInTime) else found
    ),
})  # fmt: skip


class BusyIsMissing(Faults):
    """Says that a table does not exist where the server is busy."""

    def load_table(self, path: Path) -> TableRecord:
        try:
            return super().load_table(path)
        except ServiceUnavailableError as error:
            raise table_not_found(path) from error


class ErrorIsMissing(Faults):
    """Takes every error on reading a schema for its absence."""

    def load_namespace(self, path: Path) -> NamespaceRecord:
        try:
            return super().load_namespace(path)
        except LanceNamespaceError as error:
            raise namespace_not_found(path) from error


class BrokenListingIsEmpty(Faults):
    """Lists no schema where the server is broken."""

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        try:
            return super().list_namespaces(parent)
        except InternalError:
            return []


class LostIsMade(Faults):
    """Takes a change whose reply was lost for made."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError:
            if operation == "create":
                return super().send("get", path, schema=path[0], table=path[1])
            return {}


class LostIsUnavailable(Faults):
    """Says of a change whose reply was lost that the server cannot be reached."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError as error:
            raise ServiceUnavailableError(str(error)) from error


class RepeatsChanges(Faults):
    """Sends a change again where its reply was lost."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError:
            return super().send(operation, path, **body)


class RepeatsAndSaysSo(Faults):
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


class RaisesOtherErrors(Faults):
    """Lets an error of its client out of the library."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        try:
            return super().send(operation, path, **body)
        except OutcomeUnknownError as error:
            cause = error.__cause__
            assert isinstance(cause, ConnectionLost)
            raise cause from None


class FailedIsNotMade(Faults):
    """Takes a failure of the server after a change for one before it."""

    def unknown(self, error: Exception, operation: str, path: Path) -> LanceNamespaceError:
        if isinstance(error, ServerError):
            return self.meaning(error, operation, path)
        return super().unknown(error, operation, path)


class Guards(Mutant):
    """Adapters that change entries without comparing them."""

    group = "guards"


wrong_arguments(Guards, "alter_table", {
    "Says that it compares, and does not.": lambda _, record: [replace(record, revision=None)],
    "Compares where the record has the guard, whatever the entry has.": lambda _, record: [
        record if GUARD in record.properties else replace(record, revision=None)
    ],
})  # fmt: skip
wrong_arguments(Guards, "rename_table", {
    "Renames an entry that others have changed since.": lambda _, record, new: (
        replace(record, revision=None), new
    ),
    "Renames where the record lacks the guard, whatever the entry has.": lambda self, record, new: (
        record if GUARD in record.properties else self.load_table(record.path), new
    ),
})  # fmt: skip
wrong_answers(Guards, "meaning", {
    "Reports a change that lost as a wrong request.": lambda found, error, *_: (
        invalid(str(found)) if error.status == 412 else found
    ),
})  # fmt: skip


class RenameKeepsTheRevision(Guards):
    """Renames an entry, and leaves it the revision that it had."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        kept = self.load_table(record.path).revision
        super().rename_table(record, new_path)
        SERVERS[self._config.server].tables[new_path[0], new_path[1]]["etag"] = kept


class ComparesInTheClient(Guards):
    """Compares the revision before it sends the change, and the server compares nothing."""

    _turn = threading.Lock()

    def alter_table(self, record: TableRecord) -> None:
        # Atomic within one process: only what is already on its way shows the difference.
        if self._turn.acquire(timeout=0.5):
            try:
                self._alter(record)
            finally:
                self._turn.release()
        else:
            self._alter(record)

    def _alter(self, record: TableRecord) -> None:
        if self.load_table(record.path).revision != record.revision:
            raise concurrent_modification(record.path)
        super().alter_table(replace(record, revision=None))


class ComparesValues(Guards):
    """Compares what an entry holds, and not its revision."""

    _seen: ClassVar[dict[tuple[Path, str], Mapping[str, str]]] = {}
    _turn = threading.Lock()

    def load_table(self, path: Path) -> TableRecord:
        found = super().load_table(path)
        self._seen[path, found.revision or ""] = dict(found.properties)
        return found

    def alter_table(self, record: TableRecord) -> None:
        with self._turn:
            found = super().load_table(record.path)
            seen = self._seen.get((record.path, record.revision or ""))
            if GUARD in found.properties and seen != found.properties:
                raise concurrent_modification(record.path)
            super().alter_table(replace(record, revision=found.revision))


class RetriesAConflict(Guards):
    """Loads the entry again and repeats the change where another caller was faster."""

    def alter_table(self, record: TableRecord) -> None:
        try:
            super().alter_table(record)
        except LanceNamespaceError as error:
            if error.code != 14:
                raise
            super().alter_table(replace(record, revision=self.load_table(record.path).revision))


class AcceptsAnyGuard(Guards):
    """Writes a guard that it does not know."""

    def alter_table(self, record: TableRecord) -> None:
        schema, table = record.path
        body = {**self.fields(record), "if_match": record.revision}
        self.send("update", record.path, schema=schema, table=table, **body)


class WritesTheGuardAtOnce(Guards):
    """Writes the guard when asked which one there is."""

    def commit_guard(self, record: TableRecord) -> str:
        found = self.load_table(record.path)
        self.alter_table(found.with_properties({**found.properties, GUARD: "etag"}))
        return "etag"


class GuardWithoutImplementation(Guards):
    """Declares managed tables, and inherits commit_guard."""

    commit_guard = Catalog.commit_guard


class RenameDemandsTheRevision(Guards):
    """Refuses to rename an entry without a guard that others have changed."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        if self.load_table(record.path).revision != record.revision:
            raise concurrent_modification(record.path)
        super().rename_table(record, new_path)


class Neighbours(Mutant):
    """Adapters that expect a tidy catalog: entries with one location, and nothing unreadable."""

    group = "neighbours"


wrong_answers(Neighbours, "record", {
    "Reads the location of an entry, and no other field.": lambda found, *_: replace(
        found, other_locations=()
    ),
    "Knows the place of a format that keeps it in path alone.": lambda found, _, row: replace(
        found, other_locations=tuple((row.get("storage") or {}).values())
    ),
    "Takes the other places for the only ones.": lambda found, *_: replace(
        found, location=next(iter(found.other_locations), found.location)
    ),
})  # fmt: skip
wrong_answers(Neighbours, "entries", {
    "Scans without the other places of entries.": lambda found, _: (
        replace(record, other_locations=()) for record in found
    ),
})  # fmt: skip
wrong_answers(Neighbours, "rows", {
    "Leaves an unreadable entry of a batch out.": lambda found, _: [
        row for row in found if "broken" not in row
    ],
})  # fmt: skip


class StopsAtAnUnreadableBatch(Neighbours):
    """Fails the whole listing over an entry that fails its batch."""

    def rows(self, namespace: Path) -> list[Json]:
        return list(self.pages("list", namespace, schema=namespace[0]))


class StopsAtAnUnreadableEntryOfABatch(Neighbours):
    """Reads the entries of a failed batch one by one, up to the one that fails."""

    def row(self, path: Path) -> Json | None:
        return self.send("get", path, schema=path[0], table=path[1])


class AllOfABatchIsUnreadable(Neighbours):
    """Takes all entries of a batch that fails for unreadable ones."""

    def rows(self, namespace: Path) -> list[Json]:
        try:
            return list(self.pages("list", namespace, schema=namespace[0]))
        except InternalError as error:
            names = self.list_tables(namespace)
            return [{"name": name, "broken": str(error)} for name in names]


class UnreadableBatchIsEmpty(Neighbours):
    """Leaves out all entries of a batch that fails."""

    def rows(self, namespace: Path) -> list[Json]:
        try:
            return list(self.pages("list", namespace, schema=namespace[0]))
        except InternalError:
            return []


class UnreadableEntryIsMissing(Neighbours):
    """Reports an entry that cannot be read as one that does not exist."""

    def load_table(self, path: Path) -> TableRecord:
        try:
            return super().load_table(path)
        except InternalError as error:
            raise table_not_found(path) from error


class UnreadableSchemaIsEmpty(Neighbours):
    """Takes a schema that may not be read for one without tables."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        try:
            yield from super().pages(operation, path, **body)
        except PermissionDeniedError:
            if operation != "list":
                raise


class UnreadableSchemaIsMissing(Neighbours):
    """Reports a schema that may not be read as one that does not exist."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        try:
            yield from super().pages(operation, path, **body)
        except PermissionDeniedError as error:
            if operation != "list":
                raise
            raise namespace_not_found(path) from error


class UnreadableSchemaIsNotListed(Neighbours):
    """Lists the schemas whose tables it can read."""

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        return [name for name in super().list_namespaces(parent) if self._is_open(name)]

    def _is_open(self, name: str) -> bool:
        try:
            self.send("list", (name,), schema=name, brief=True)
        except PermissionDeniedError:
            return False
        return True


class KnowsWhatIsListed(Neighbours):
    """Looks an entry up in the listing, and says that it does not exist if that fails over it."""

    def load_table(self, path: Path) -> TableRecord:
        found = [each for each in self.entries(path[:-1]) if each.path == path and each.is_readable]
        if not found:
            raise TableNotFoundError(f"Table not found: {path[-1]}")
        return found[0]
