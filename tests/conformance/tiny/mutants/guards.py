"""Adapters that change entries without comparing them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from lance_namespace.errors import (
    LanceNamespaceError,
)

from lance_bridge import Catalog, TableRecord
from lance_bridge.catalog import GUARD, Path
from lance_bridge.errors import (
    concurrent_modification,
)

from ..adapter import TinyCatalog
from ..server import ServerError
from . import mutant


@mutant
class NeverCompares(TinyCatalog):
    """Says that it compares, and does not."""

    def alter_table(self, record: TableRecord) -> None:
        super().alter_table(replace(record, revision=None))


@mutant
class ComparesInTheClient(TinyCatalog):
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


@mutant
class ComparesValues(TinyCatalog):
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


@mutant
class RetriesAConflict(TinyCatalog):
    """Loads the entry again and repeats the change where another caller was faster."""

    def alter_table(self, record: TableRecord) -> None:
        try:
            super().alter_table(record)
        except LanceNamespaceError as error:
            if error.code != 14:
                raise
            super().alter_table(replace(record, revision=self.load_table(record.path).revision))


@mutant
class ComparesGuardedRecordsOnly(TinyCatalog):
    """Compares where the record has the guard, whatever the entry has."""

    def alter_table(self, record: TableRecord) -> None:
        guarded = GUARD in record.properties
        super().alter_table(record if guarded else replace(record, revision=None))


@mutant
class AcceptsAnyGuard(TinyCatalog):
    """Writes a guard that it does not know."""

    def alter_table(self, record: TableRecord) -> None:
        schema, table = record.path
        body = {**self.fields(record), "if_match": record.revision}
        self.send("update", record.path, schema=schema, table=table, **body)


@mutant
class ConflictIsInvalidInput(TinyCatalog):
    """Reports a change that lost as a wrong request."""

    def meaning(self, error: ServerError, operation: str, path: Path) -> LanceNamespaceError:
        if error.status == 412:
            error = ServerError(400, error.code)
            error.code = "ETAG"
        return super().meaning(error, operation, path)


@mutant
class WritesTheGuardAtOnce(TinyCatalog):
    """Writes the guard when asked which one there is."""

    def commit_guard(self, record: TableRecord) -> str:
        found = self.load_table(record.path)
        self.alter_table(found.with_properties({**found.properties, GUARD: "etag"}))
        return "etag"


@mutant
class GuardWithoutImplementation(TinyCatalog):
    """Declares managed tables, and inherits commit_guard."""

    commit_guard = Catalog.commit_guard


@mutant
class RenameIgnoresTheGuard(TinyCatalog):
    """Renames an entry that others have changed since."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        super().rename_table(replace(record, revision=None), new_path)


@mutant
class RenameTrustsTheRecordsGuard(TinyCatalog):
    """Compares where the record has the guard, whatever the entry has, when it renames."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        guarded = GUARD in record.properties
        now = self.load_table(record.path)
        super().rename_table(record if guarded else now, new_path)


@mutant
class RenameDemandsTheRevision(TinyCatalog):
    """Refuses to rename an entry without a guard that others have changed."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        if self.load_table(record.path).revision != record.revision:
            raise concurrent_modification(record.path)
        super().rename_table(record, new_path)
