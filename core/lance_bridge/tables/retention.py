"""Dropped tables that can be taken back, while their retention lasts.

The entry of such a table stays, with its files. It has a mark in place of ``table_type=lance``, so
that no listing of Lance tables has it, and another name, so that the old one is free. The mark is
set before the name changes, and removed after that: a table with a mark is dropped, whatever a
process that was killed in between had still to do.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from ..catalog import NamespaceRecord, Path, TableRecord
from ..connection import Connection
from ..entry import EntryT, TableEntry
from ..errors import display, retry_after_readback, unsupported
from ..managed import batches, compare_and_set
from ..records import DROPPED, DROPPED_TYPE, LANCE, RETENTION, TABLE_TYPE, parse_retention


@dataclass(frozen=True)
class DroppedTable:
    """A table that was dropped and can be taken back.

    Attributes:
        entry: Its entry, under the name that it has now.
        name: The name that it had.
        dropped_at: When it was dropped.
        kept_until: When it may be deleted.
    """

    entry: TableEntry
    name: str
    dropped_at: datetime
    kept_until: datetime

    @classmethod
    def of(cls, entry: TableEntry) -> DroppedTable:
        """Read the mark of an entry.

        Raises:
            InvalidTableStateError: (19) it is malformed.
        """
        try:
            mark = json.loads(entry.record.properties[DROPPED])
            times = (datetime.fromisoformat(mark[key]) for key in ("at", "until"))
            dropped_at, kept_until = (each.astimezone(timezone.utc) for each in times)
            return cls(entry, str(mark["name"]), dropped_at, kept_until)
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidTableStateError(
                f"'{entry.name}' is a dropped table whose property '{DROPPED}' cannot be read"
            ) from error

    @property
    def path(self) -> Path:
        """The path that it had."""
        return (*self.entry.path[:-1], self.name)

    def is_overdue(self, now: datetime | None = None) -> bool:
        """Return whether it may be deleted, now or at another time."""
        return (now or datetime.now(timezone.utc)) >= self.kept_until


def period_of(connection: Connection, namespace: NamespaceRecord) -> timedelta:
    """Return how long dropped tables of a namespace are kept; zero if they are deleted at once.

    The namespace's property decides, else that of the catalog.

    Raises:
        InvalidTableStateError: (19) the property of the namespace is malformed.
    """
    own = namespace.properties.get(RETENTION)
    try:
        return parse_retention(connection.config.drop_retention if own is None else own)
    except InvalidInputError as error:
        raise InvalidTableStateError(
            f"Nothing is dropped in namespace '{display(namespace.path)}': {error}"
        ) from error


def require_possible(table: TableEntry) -> None:
    """Check that the catalog can keep a dropped table.

    Raises:
        UnsupportedOperationError: (0) it cannot change or rename entries.
    """
    capabilities = table.connection.capabilities
    if reason := capabilities.no_alter or capabilities.no_rename:
        raise unsupported(
            f"Table '{table.name}' cannot be dropped so that it can be taken back, as "
            f"'{RETENTION}' requires: {reason}. Delete it at once (purge), or set '{RETENTION}' "
            "of its namespace to 0"
        )


def hidden_path(table: TableEntry) -> Path:
    """Return a path under which a dropped table can be kept."""
    suffix = f"__dropped_{uuid.uuid4().hex[:8]}"
    kept = table.connection.capabilities.table_rule.max_length - len(suffix)
    return (*table.path[:-1], table.path[-1][:kept] + suffix)


def set_mark(table: EntryT, period: timedelta) -> EntryT:
    """Mark an entry as dropped, and return it as the catalog has it then.

    Raises:
        ConcurrentModificationError: (14) another client commits, or holds the table.
        TableNotFoundError: (4) it was dropped concurrently.
    """
    now = datetime.now(timezone.utc)
    mark = {"name": table.path[-1], "at": now.isoformat(), "until": (now + period).isoformat()}
    table = batches.resolve_batch(table)
    if table.managed is not None:
        compare_and_set.require_unlocked(table)
    return _replace_mark(table, {TABLE_TYPE: DROPPED_TYPE, DROPPED: json.dumps(mark)})


def remove_mark(table: EntryT) -> EntryT:
    """Make a dropped table one that is listed. Raises as `set_mark`."""
    return _replace_mark(table, {TABLE_TYPE: LANCE})


def _replace_mark(table: EntryT, properties: Mapping[str, str]) -> EntryT:
    kept = {k: v for k, v in table.record.properties.items() if k not in (TABLE_TYPE, DROPPED)}
    changed = table.with_record(table.record.with_properties({**kept, **properties}))
    catalog = table.connection.catalog

    def has_mark(record: TableRecord) -> bool:
        return all(record.properties.get(key) == value for key, value in properties.items())

    retry_after_readback(
        lambda: catalog.alter_table(changed.record),
        lambda: has_mark(catalog.load_table(table.path)),
    )
    return changed.reloaded()
