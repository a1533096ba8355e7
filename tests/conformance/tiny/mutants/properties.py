"""Adapters that lose or change properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lance_bridge import NamespaceRecord, TableRecord
from lance_bridge.catalog import RESERVED_PREFIX, Path

from ..adapter import TinyCatalog
from ..server import Json
from . import mutant


@mutant
class CutsValues(TinyCatalog):
    """Cuts values at 255 characters."""

    def fields(self, record: TableRecord) -> Json:
        fields = super().fields(record)
        return {**fields, "options": {k: v[:255] for k, v in fields["options"].items()}}


@mutant
class CutsValuesOnAlter(TinyCatalog):
    """Cuts values at 4000 characters, when an entry changes only."""

    def alter_table(self, record: TableRecord) -> None:
        cut = {key: value[:4000] for key, value in record.properties.items()}
        super().alter_table(record.with_properties(cut))


@mutant
class DropsEmptyValues(TinyCatalog):
    """Leaves out properties whose value is empty."""

    def fields(self, record: TableRecord) -> Json:
        fields = super().fields(record)
        return {**fields, "options": {k: v for k, v in fields["options"].items() if v}}


@mutant
class StripsValues(TinyCatalog):
    """Strips white space around values."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        found = super().record(namespace, row)
        return found.with_properties({k: v.strip() for k, v in found.properties.items()})


@mutant
class AsciiValues(TinyCatalog):
    """Loses what is not ASCII."""

    def fields(self, record: TableRecord) -> Json:
        fields = super().fields(record)
        own = {k: v.encode("ascii", "replace").decode() for k, v in fields["options"].items()}
        return {**fields, "options": own}


@mutant
class LowerCaseKeys(TinyCatalog):
    """Keeps keys in lower case."""

    def fields(self, record: TableRecord) -> Json:
        fields = super().fields(record)
        return {**fields, "options": {k.lower(): v for k, v in fields["options"].items()}}


@mutant
class LosesReservedProperties(TinyCatalog):
    """Hides lance_bridge.* as if they were its own."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        found = super().record(namespace, row)
        own = {k: v for k, v in found.properties.items() if not k.startswith(RESERVED_PREFIX)}
        return found.with_properties(own)


@mutant
class LosesReservedPropertiesOnScan(TinyCatalog):
    """Shows lance_bridge.* when an entry is loaded, and not when it is scanned."""

    def entries(self, namespace: Path) -> Iterator[TableRecord]:
        for found in super().entries(namespace):
            own = {k: v for k, v in found.properties.items() if not k.startswith(RESERVED_PREFIX)}
            yield found.with_properties(own)


@mutant
class AddsProperties(TinyCatalog):
    """Shows what the server keeps for itself among the properties."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        found = super().record(namespace, row)
        return found.with_properties({**found.properties, "etag": row["etag"]})


@mutant
class MergesOnAlter(TinyCatalog):
    """Keeps properties that an alter leaves out."""

    def alter_table(self, record: TableRecord) -> None:
        found = self.load_table(record.path)
        super().alter_table(record.with_properties({**found.properties, **record.properties}))


@mutant
class KeepsTheLocationOnAlter(TinyCatalog):
    """Changes properties, and takes no notice of the location."""

    def alter_table(self, record: TableRecord) -> None:
        found = self.load_table(record.path)
        super().alter_table(replace(record, location=found.location))


@mutant
class MergesNamespaceProperties(TinyCatalog):
    """Keeps a schema's properties that an alter leaves out."""

    def alter_namespace(self, record: NamespaceRecord) -> None:
        found = self.load_namespace(record.path)
        merged = {**found.properties, **record.properties}
        super().alter_namespace(NamespaceRecord(record.path, merged))


@mutant
class NoProperties(TinyCatalog):
    """Gives None where an entry has no properties but its marks."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        found = super().record(namespace, row)
        nothing: Any = None
        plain = set(found.properties) <= {"table_type", "managed_by"}
        return replace(found, properties=nothing) if plain else found
