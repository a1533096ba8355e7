"""Adapters that describe, close or share connections wrongly."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lance_namespace.errors import ServiceUnavailableError

from lance_bridge import TableRecord
from lance_bridge.catalog import Path

from ..server import Json
from . import Mutant, wrong_answers, wrong_arguments

wrong_answers(__name__, "describe_connection", {
    "Describes every connection alike.": lambda _: "tiny",
})  # fmt: skip
wrong_answers(__name__, "capabilities", {
    "Declares that the server folds names, which it does not.": lambda found: replace(
        found, folds_case=True
    ),
    "Declares that entries cannot change, and changes them.": lambda found: replace(
        found, no_alter="it has no call for that"
    ),
})  # fmt: skip
wrong_answers(__name__, "vend_credentials", {
    "Gives the end of credentials in seconds.": lambda options, _: {
        **options, "expires_at_millis": options["expires_at_millis"][:-3]
    },
})  # fmt: skip
wrong_arguments(__name__, "vend_credentials", {
    "Vends credentials for another table of the same schema.": lambda self, record: [
        next(iter(self.scan_tables(record.path[:-1])), record)
    ],
})  # fmt: skip


class DescribesItself(Mutant):
    """Describes the object, and not what it is connected to."""

    def describe_connection(self) -> str:
        return f"{super().describe_connection()} at {id(self)}"


class ShowsTheToken(Mutant):
    """Shows the token in the description."""

    def describe_connection(self) -> str:
        token = self._config.token
        return f"{super().describe_connection()}, token={token and token.get_secret_value()}"


class ClosesForGood(Mutant):
    """Cannot be used after it was closed."""

    _closed = False

    def close(self) -> None:
        self._closed = True

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        if self._closed:
            raise ServiceUnavailableError("the catalog is closed")
        return super().send(operation, path, **body)


class CachesEntries(Mutant):
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


class MixesUpThreads(Mutant):
    """Keeps what it was asked for on the object."""

    _asked: Path = ()

    def load_table(self, path: Path) -> TableRecord:
        self._asked = path
        time.sleep(0.001)
        return super().load_table(self._asked)


class CredentialsToWrite(Mutant):
    """Vends credentials to write to readers."""

    def vend_credentials(self, record: TableRecord, *, write: bool) -> Mapping[str, str] | None:
        return super().vend_credentials(record, write=write or True)
