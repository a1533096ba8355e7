"""Adapters that rename wrongly."""

from __future__ import annotations

from dataclasses import replace

from lance_namespace.errors import (
    LanceNamespaceError,
)

from lance_bridge import TableRecord
from lance_bridge.catalog import GUARD, Path
from lance_bridge.errors import (
    concurrent_modification,
    table_already_exists,
)

from ..adapter import TinyCatalog
from ..server import ServerError
from . import mutant


@mutant
class RenameOverwrites(TinyCatalog):
    """Renames over an entry that exists."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        schema, table = record.path
        guard = record.revision if GUARD in record.properties else None
        self.send(
            "move", record.path, schema=schema, table=table, to=tuple(new_path), if_match=guard,
            force=True,
        )  # fmt: skip


@mutant
class RenamesByCreateAndDrop(TinyCatalog):
    """Makes a new table of the new name, and drops the old one."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        found = self.load_table(record.path)
        if GUARD in record.properties and found.revision != record.revision:
            raise concurrent_modification(record.path)
        self.create_table(replace(found, path=new_path))
        self.drop_table(found)


@mutant
class RenameForgetsTheSchema(TinyCatalog):
    """Renames within the old schema, whatever the new path says."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        super().rename_table(record, (record.path[0], new_path[1]))


@mutant
class RenameBlamesTheOldName(TinyCatalog):
    """Says of the old name that it exists, where the new one is taken."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        try:
            super().rename_table(record, new_path)
        except LanceNamespaceError as error:
            if isinstance(error.__context__, ServerError) or error.code == 5:
                raise table_already_exists(record.path) from error
            raise
