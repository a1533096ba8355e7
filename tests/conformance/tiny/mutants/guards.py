"""Adapters that change entries without comparing them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from lance_namespace.errors import LanceNamespaceError

from lance_bridge import Catalog, TableRecord
from lance_bridge.catalog import GUARD, Path
from lance_bridge.errors import concurrent_modification, invalid

from ..adapter import SERVERS
from . import Mutant, wrong_answers, wrong_arguments

wrong_arguments(__name__, "alter_table", {
    "Says that it compares, and does not.": lambda _, record: [replace(record, revision=None)],
    "Compares where the record has the guard, whatever the entry has.": lambda _, record: [
        record if GUARD in record.properties else replace(record, revision=None)
    ],
})  # fmt: skip
wrong_arguments(__name__, "rename_table", {
    "Renames an entry that others have changed since.": lambda _, record, new: (
        replace(record, revision=None), new
    ),
    "Renames where the record lacks the guard, whatever the entry has.": lambda self, record, new: (
        record if GUARD in record.properties else self.load_table(record.path), new
    ),
})  # fmt: skip
wrong_answers(__name__, "meaning", {
    "Reports a change that lost as a wrong request.": lambda found, error, *_: (
        invalid(str(found)) if error.status == 412 else found
    ),
})  # fmt: skip


class RenameKeepsTheRevision(Mutant):
    """Renames an entry, and leaves it the revision that it had."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        kept = self.load_table(record.path).revision
        super().rename_table(record, new_path)
        SERVERS[self._config.server].tables[new_path[0], new_path[1]]["etag"] = kept


class ComparesInTheClient(Mutant):
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


class ComparesValues(Mutant):
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


class RetriesAConflict(Mutant):
    """Loads the entry again and repeats the change where another caller was faster."""

    def alter_table(self, record: TableRecord) -> None:
        try:
            super().alter_table(record)
        except LanceNamespaceError as error:
            if error.code != 14:
                raise
            super().alter_table(replace(record, revision=self.load_table(record.path).revision))


class AcceptsAnyGuard(Mutant):
    """Writes a guard that it does not know."""

    def alter_table(self, record: TableRecord) -> None:
        schema, table = record.path
        body = {**self.fields(record), "if_match": record.revision}
        self.send("update", record.path, schema=schema, table=table, **body)


class WritesTheGuardAtOnce(Mutant):
    """Writes the guard when asked which one there is."""

    def commit_guard(self, record: TableRecord) -> str:
        found = self.load_table(record.path)
        self.alter_table(found.with_properties({**found.properties, GUARD: "etag"}))
        return "etag"


class GuardWithoutImplementation(Mutant):
    """Declares managed tables, and inherits commit_guard."""

    commit_guard = Catalog.commit_guard


class RenameDemandsTheRevision(Mutant):
    """Refuses to rename an entry without a guard that others have changed."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        if self.load_table(record.path).revision != record.revision:
            raise concurrent_modification(record.path)
        super().rename_table(record, new_path)
