"""What the entry of an implementation-managed table says of its latest version."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, replace

from lance_namespace.errors import InvalidTableStateError, TableBranchNotFoundError

from .catalog import GUARD, IMPLEMENTATION, LATEST, MANAGED_BY, STORAGE, Path, TableRecord
from .errors import display, invalid, unsupported
from .storage.manifests import MAIN

__all__ = ["BRIEF_SECONDS", "HOLD_SECONDS", "LATEST", "YOUNG_SECONDS", "State"]

HOLD_SECONDS = 300.0
"""How long a table stays held whose holder has died, by the clocks of the clients."""

BRIEF_SECONDS = 20.0
"""The same for a hold that only keeps others from what is moved aside in the storage.

A call of such a holder that arrives after this can hide a version, and the next reader restores it.
"""

YOUNG_SECONDS = 2.0
"""How long a hold lasts that is worth waiting for, by the clocks of the clients."""


@dataclass(frozen=True)
class State:
    """The latest version of a table; 0 for one that is declared and has no data.

    ``staged`` is the file name of the manifest that was staged for it, or "" where it is known to
    have its final name. While a table is ``held``, since so many milliseconds after 1970, nobody
    commits to it; ``holder`` tells apart who holds it; a ``brief`` hold ends sooner. While it is
    renamed by a copy, ``other`` is what its other name is or will be.
    """

    version: int
    staged: str = ""
    held: int | None = None
    other: Path = ()
    holder: str = ""
    brief: bool = False

    def to_text(self) -> str:
        """Return the value of `LATEST`."""
        fields = {
            "version": self.version,
            "staged": self.staged,
            "held": self.held,
            "other": list(self.other),
            "holder": self.holder,
            "brief": self.brief or None,
        }
        return json.dumps({k: v for k, v in fields.items() if v not in ("", None, [])})

    @classmethod
    def from_text(cls, text: str) -> State:
        """Raises ValueError for what `to_text` did not write."""
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
        return cls(version, staged, since, tuple(other), holder, brief)

    @property
    def is_held(self) -> bool:
        """True while somebody keeps others from committing, and has not died long ago.

        A hold that lies far ahead is of a clock that goes wrong, and would never end.
        """
        seconds = BRIEF_SECONDS if self.brief else HOLD_SECONDS
        return self.held is not None and abs(_now() - self.held) < seconds * 1000

    @property
    def is_held_for_long(self) -> bool:
        """True while somebody has held it longer than setting manifests aside takes.

        Who renames the table, or has died: that is not waited for.
        """
        return self.is_held and abs(_now() - (self.held or 0)) > YOUNG_SECONDS * 1000

    def hold(self, other: Path = (), holder: str = "", *, brief: bool = False) -> State:
        """Return the same state, held from now on; by a new holder unless one is named."""
        name = holder or uuid.uuid4().hex[:16]
        return replace(self, held=_now(), other=other, holder=name, brief=brief)

    def free(self) -> State:
        """Return the same state, for all to commit to."""
        return replace(self, held=None, other=(), holder="", brief=False)


def state_of(record: TableRecord) -> State | None:
    """Return the state of a table whose versions the catalog holds; None for any other table.

    Raises:
        InvalidTableStateError: (19) the entry has it in a form that is not ours.
    """
    text = record.properties.get(LATEST)
    if text is None or not _is_by_implementation(record):
        return None
    try:
        return State.from_text(text)
    except ValueError as error:
        raise InvalidTableStateError(
            f"Table '{display(record.path)}' is managed by its catalog, but its entry says "
            f"{text[:100]!r} of its latest version: deregister it, and register it again"
        ) from error


def own_state(record: TableRecord) -> State:
    """Return the state of a table whose versions the catalog holds.

    Raises:
        InvalidInputError: (13) its storage manages the table.
    """
    state = state_of(record)
    if state is None:
        raise invalid(
            f"The versions of table '{display(record.path)}' are managed by its storage, and not "
            "by its catalog"
        )
    return state


def with_state(record: TableRecord, state: State) -> TableRecord:
    """Return an entry with another latest version."""
    return record.with_properties({**record.properties, LATEST: state.to_text()})


def copied(copy: TableRecord, original: Path) -> TableRecord:
    """Return the copy of a held entry, which names the original as the table's other name."""
    state = state_of(copy)
    return copy if state is None else with_state(copy, replace(state, other=original))


def require_own(record: TableRecord) -> None:
    """Check that no other implementation holds the table's versions.

    Raises:
        UnsupportedOperationError: (0)
    """
    if _is_by_implementation(record) and LATEST not in record.properties:
        raise unsupported(
            f"The versions of table '{display(record.path)}' are managed by another implementation "
            f"({MANAGED_BY}={record.properties[MANAGED_BY]}), and only that can change them"
        )


def require_main(record: TableRecord, branch: str | None) -> None:
    """Check that no other branch is meant than the one that a managed table has.

    Raises:
        TableBranchNotFoundError: (22)
    """
    if branch not in (None, MAIN):
        raise TableBranchNotFoundError(
            f"Table '{display(record.path)}' has no branch {branch[:60]!r}: its versions are "
            f"managed by its catalog, and all on '{MAIN}'"
        )


def as_managed(record: TableRecord, state: State, guard: str) -> TableRecord:
    """Return an entry that holds its table's versions."""
    marks = {MANAGED_BY: IMPLEMENTATION, LATEST: state.to_text(), GUARD: guard}
    return record.with_properties({**record.properties, **marks})


def as_unmanaged(record: TableRecord) -> TableRecord:
    """Return an entry that leaves its table's versions to the storage."""
    kept = {k: v for k, v in record.properties.items() if k not in (LATEST, GUARD)}
    return record.with_properties({**kept, MANAGED_BY: STORAGE})


def _is_by_implementation(record: TableRecord) -> bool:
    return record.properties.get(MANAGED_BY, STORAGE).lower() == IMPLEMENTATION


def _now() -> int:
    return time.time_ns() // 1_000_000
