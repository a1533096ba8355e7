"""The clauses of a MERGE: parsing the arguments of `merge_into`, and resolving their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lance_bridge.errors import invalid
from lance_bridge.names import quoted

from .snapshot import Snapshot
from .updates import columns_to_set

if TYPE_CHECKING:
    from pyspark.sql import Column

ALL = "*"
"""Set all columns from the source's columns of the same names."""

TARGET = "target"
SOURCE = "source"


@dataclass(frozen=True)
class Update:
    """Set columns if ``where`` holds; ``set`` is ``"*"``, or expressions by column."""

    set: Mapping[str, Any] | str = ALL
    where: str | Column | None = None


@dataclass(frozen=True)
class Insert:
    """Insert a row if ``where`` holds; ``values`` is ``"*"``, or expressions by column."""

    values: Mapping[str, Any] | str = ALL
    where: str | Column | None = None


@dataclass(frozen=True)
class Delete:
    """Delete a row if ``where`` holds."""

    where: str | Column | None = None


@dataclass(frozen=True)
class Clauses:
    """The clauses for matched and unmatched rows; in a pair, the delete is checked first."""

    matched: tuple[Delete | Update, ...] = ()
    inserted: Insert | None = None
    unmatched: tuple[Delete | Update, ...] = ()
    """Rows of the target that no source row matches."""

    @property
    def texts(self) -> list[Any]:
        """All conditions and expressions, except those over the source alone."""
        found: list[Any] = []
        for clause in (*self.matched, *self.unmatched):
            found.append(clause.where)
            if isinstance(clause, Update) and not isinstance(clause.set, str):
                found += clause.set.values()
        return [each for each in found if each is not None]

    @property
    def needs_one_match(self) -> bool:
        """Whether a target row may match only one source row; as in Spark, not if it is deleted."""
        return bool(self.matched) and self.matched != (Delete(),)


@dataclass(frozen=True)
class Step:
    """A clause with its columns resolved to the table's own names."""

    where: Any
    values: Mapping[str, Any] = field(default_factory=dict)
    inserts: bool = False
    deletes: bool = False


def clauses_of(
    matched_update: Any, matched_delete: Any, not_matched_insert: Any, not_matched_by_source: Any
) -> Clauses:
    """Return the clauses in the arguments of `merge_into`.

    Raises:
        InvalidInputError: (13) none is given, one can never be reached, or one is malformed.
    """
    update, delete = _update("when_matched_update", matched_update), _delete(matched_delete)
    if update is not None and delete is not None and delete.where is None:
        raise invalid(
            "when_matched_delete deletes every match, so that when_matched_update is never "
            "reached: give it a condition"
        )
    matched = tuple(each for each in (delete, update) if each is not None)
    insert = _insert(not_matched_insert)
    unmatched = _unmatched(not_matched_by_source)
    if not (matched or insert or unmatched):
        raise invalid("A merge needs at least one of its clauses")
    return Clauses(matched, insert, unmatched)


def _update(name: str, given: Any) -> Update | None:
    if given is None or isinstance(given, Update):
        return given
    if given is True or given == ALL:
        return Update()
    if isinstance(given, Mapping):
        return Update(given)
    raise invalid(f"{name} must be '*', expressions by column, or Update(…), not {given!r}")


def _delete(given: Any) -> Delete | None:
    if given is None or given is False:
        return None
    if isinstance(given, Delete):
        return given
    if given is True:
        return Delete()
    if isinstance(given, str):
        return Delete(given)
    raise invalid(f"when_matched_delete must be True, a condition or Delete(…), not {given!r}")


def _insert(given: Any) -> Insert | None:
    if given is None or isinstance(given, Insert):
        return given
    if given is True or given == ALL:
        return Insert()
    if isinstance(given, Mapping):
        return Insert(given)
    raise invalid(
        f"when_not_matched_insert must be '*', expressions by column, or Insert(…), not {given!r}"
    )


def _unmatched(given: Any) -> tuple[Delete | Update, ...]:
    if given is None:
        return ()
    if given == "delete":
        return (Delete(),)
    if isinstance(given, Mapping):
        given = Update(given)
    found = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for each in found:
        if not isinstance(each, (Delete, Update)) or (
            isinstance(each, Update) and isinstance(each.set, str)
        ):
            raise invalid(
                "when_not_matched_by_source must be 'delete', expressions by column, Delete(…), "
                f"Update(…) or a list of those two, and has no source to take from, not {each!r}"
            )
    return found


def step_of(target: Snapshot, clause: Update | Delete | Insert, source: list[str]) -> Step:
    """Resolve the columns that a clause sets.

    Args:
        source: The names of the source's columns.

    Raises:
        InvalidInputError: (13) the source lacks columns for ``"*"``, or a column is set twice.
        TableColumnNotFoundError: (12) a column to set does not exist.
    """
    if isinstance(clause, Delete):
        return Step(clause.where, deletes=True)
    inserts = isinstance(clause, Insert)
    given = clause.values if isinstance(clause, Insert) else clause.set
    if isinstance(given, str):
        given = _from_source(target, source)
    values = columns_to_set(target, given)
    if inserts:
        _require_values(target, values)
    return Step(clause.where, values, inserts=inserts)


def _from_source(target: Snapshot, source: list[str]) -> dict[str, Any]:
    folded = {name.lower(): name for name in source}
    if len(folded) < len(source) and not set(target.schema.names) <= set(source):
        raise invalid("'*' is ambiguous: columns of the source differ only in letter case")
    lacking = [name for name in target.schema.names if name.lower() not in folded]
    if lacking:
        raise invalid(
            f"'*' takes every column of table '{target.name}' from the source, which lacks "
            f"{', '.join(lacking)}: give expressions by column"
        )
    names = {name: name if name in source else folded[name.lower()] for name in target.schema.names}
    return {name: quoted((SOURCE, match)) for name, match in names.items()}


def _require_values(target: Snapshot, values: Mapping[str, Any]) -> None:
    missing = [f.name for f in target.schema if not f.nullable and f.name not in values]
    if missing:
        raise invalid(
            f"Rows to insert into table '{target.name}' need values for {', '.join(missing)}, "
            "which cannot be null"
        )
