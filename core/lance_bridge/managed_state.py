"""The state of an implementation-managed table, stored in its entry: the latest version."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lance_namespace.errors import InvalidTableStateError

from .catalog import (
    GUARD,
    IMPLEMENTATION,
    LATEST,
    MANAGED_BY,
    RESERVED_PREFIX,
    STORAGE,
    Path,
    TableRecord,
)
from .errors import display
from .records import MANAGER, MARK

RELEASED = RESERVED_PREFIX + "released"
"""A random value in the entry of a table that was returned to its storage."""

HOLD_SECONDS = 300.0
"""How long a hold lasts after its holder has died, by the clocks of the clients."""

BRIEF_SECONDS = 20.0
"""The same for a hold under which manifests are quarantined.

A delete of such a holder that arrives later can hide a version; the next reader restores it.
"""

YOUNG_SECONDS = 2.0
"""The age up to which it is worth waiting for a hold, by the clocks of the clients."""


_BATCH_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class PreparedVersion:
    """The next version of a table, which becomes the latest once its batch is committed.

    Attributes:
        batch: The id of the batch.
        table: The path of the table that has the record of the batch.
        location: The location of that table.
        staged: The file name of the manifest that was staged for the version.
    """

    batch: str
    table: Path
    location: str
    staged: str

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PreparedVersion:
        """Parse the fields as they are in `LATEST`. Raises ValueError for anything else."""
        try:
            found = cls(
                str(fields["batch"]),
                tuple(map(str, fields["table"])),
                str(fields["location"]),
                str(fields["staged"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(fields) from error
        names = (found.table, found.location, found.staged)
        if not _BATCH_ID.fullmatch(found.batch) or not all(names) or "/" in found.staged:
            raise ValueError(fields)
        return found


@dataclass(frozen=True)
class State:
    """The latest version of a table; 0 for a declared table without data.

    Attributes:
        staged: The file name of the manifest that was staged for the version, or "" if it is known
            to have its final name.
        held: When a hold began that keeps other writers from committing (milliseconds since 1970).
        other: The other name of a table while it is renamed by a copy.
        holder: The id of the holder.
        brief: Whether the hold ends after `BRIEF_SECONDS`.
        prepared: The next version, if a batch that may be undecided has prepared it.
    """

    version: int
    staged: str = ""
    held: int | None = None
    other: Path = ()
    holder: str = ""
    brief: bool = False
    prepared: PreparedVersion | None = None

    def to_text(self) -> str:
        """Return the value of `LATEST`."""
        fields = {**asdict(self), "brief": self.brief or None}
        return json.dumps({k: v for k, v in fields.items() if v not in ("", None, ())})

    @classmethod
    def from_text(cls, text: str) -> State:
        """Parse the value of `LATEST`. Raises ValueError for any other text."""
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError(text)
        version, held = fields.get("version"), fields.get("held")
        staged, holder = fields.get("staged", ""), fields.get("holder", "")
        if not isinstance(version, int) or not isinstance(staged, str) or "/" in staged:
            raise ValueError(text)
        other = fields.get("other", [])
        if not isinstance(other, list) or not isinstance(holder, str):
            raise ValueError(text)
        brief = fields.get("brief") is True
        since = held if isinstance(held, int) else None
        prepared = fields.get("prepared")
        next_version = None if prepared is None else PreparedVersion.from_json(prepared)
        return cls(version, staged, since, tuple(other), holder, brief, next_version)

    @property
    def is_held(self) -> bool:
        """True while an unexpired hold keeps other writers from committing.

        A hold far in the future comes from a wrong clock; it is ignored, as it would never end.
        """
        seconds = BRIEF_SECONDS if self.brief else HOLD_SECONDS
        return self.held is not None and abs(_now() - self.held) < seconds * 1000

    @property
    def is_held_for_long(self) -> bool:
        """True if it has been held for longer than a quarantine takes.

        The holder is renaming the table or has died: do not wait for it.
        """
        return self.is_held and abs(_now() - (self.held or 0)) > YOUNG_SECONDS * 1000

    def hold(self, other: Path = (), holder: str = "", *, brief: bool = False) -> State:
        """Return the same state, held from now on; by a new holder unless one is named."""
        name = holder or uuid.uuid4().hex[:16]
        return replace(self, held=_now(), other=other, holder=name, brief=brief)

    def without_pending(self) -> State:
        """Return the same latest version, without a hold and without a prepared version."""
        return State(self.version, self.staged)

    def prepare(self, version: PreparedVersion) -> State:
        """Return the same latest version, with a next one that depends on a batch."""
        return replace(self.without_pending(), prepared=version)

    def with_outcome(self, *, committed: bool) -> State:
        """Return the state after the batch that prepared the next version was decided."""
        if self.prepared is None or not committed:
            return self.without_pending()
        return State(self.version + 1, self.prepared.staged)


def parse_state(record: TableRecord) -> State | None:
    """Return the state in the entry of an implementation-managed table; None for any other.

    Raises:
        InvalidTableStateError: (19) the entry has it in an unknown form.
    """
    text = record.properties.get(LATEST)
    if text is None or not record.is_managed:
        return None
    try:
        return State.from_text(text)
    except ValueError as error:
        raise InvalidTableStateError(
            f"Table '{display(record.path)}' is managed by its catalog, but its entry says "
            f"{text[:100]!r} of its latest version: deregister it, and register it again"
        ) from error


def with_state(record: TableRecord, state: State) -> TableRecord:
    """Return an entry with another latest version."""
    return record.with_properties({**record.properties, LATEST: state.to_text()})


def as_managed(record: TableRecord, state: State, guard: str, mark: str = "") -> TableRecord:
    """Return an entry that holds its table's versions.

    Args:
        mark: The id of the file that says so in the storage; earlier releases wrote none.
    """
    own = {MANAGED_BY: IMPLEMENTATION, LATEST: state.to_text(), GUARD: guard}
    own |= {MARK: mark} if mark else {}
    kept = {k: v for k, v in record.properties.items() if k != MANAGER}
    return record.with_properties({**kept, **own})


def as_unmanaged(record: TableRecord) -> TableRecord:
    """Return an entry that leaves its table's versions to the storage.

    `RELEASED` differs each time: a writer that reads it again knows that the catalog held the
    versions in between.
    """
    kept = {k: v for k, v in record.properties.items() if k not in (LATEST, GUARD, MARK)}
    return record.with_properties({**kept, MANAGED_BY: STORAGE, RELEASED: uuid.uuid4().hex[:16]})


def as_second(record: TableRecord, manager: str) -> TableRecord:
    """Return an entry whose table's versions another entry manages: it only reads.

    Args:
        manager: That entry, for people.
    """
    kept = {k: v for k, v in record.properties.items() if k not in (LATEST, GUARD, MARK)}
    own = {MANAGED_BY: IMPLEMENTATION, MANAGER: manager}
    return record.with_properties({**kept, **own})


def _now() -> int:
    return time.time_ns() // 1_000_000
