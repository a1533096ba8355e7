"""Several operations as one: all or nothing, as far as storage and catalog allow.

All are checked first. Then those that can be undone run, and the one that cannot be undone runs
last. There is no isolation: other clients can see the first ones before the last one is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import InternalError, LanceNamespaceError, TableNotFoundError

from ...catalog import Path
from ...errors import display, table_already_exists, unsupported
from ...managed import conversion
from ...storage.staging import Staged
from ...table import Table
from ...tables import creation
from ...tables.collection import Tables
from . import versions


@dataclass(frozen=True)
class Step:
    """One operation of a batch, whose request was checked.

    ``undo`` reverts what ``do`` changed, or raises InternalError (18) that says what remains.
    """

    key: tuple[Path, str]
    """The table and the branch that it changes."""
    do: Callable[[], Any]
    undo: Callable[[], None]
    is_last: bool = False
    """It cannot be undone."""


def run(steps: Sequence[Step]) -> list[Any]:
    """Do all steps or none, and return their results in the same order.

    Raises:
        UnsupportedOperationError: (0) two steps change the same branch, or two cannot be undone.
        InternalError: (18) a step failed, and not all others could be undone.
        LanceNamespaceError: the error of the failed step; everything else was undone.
    """
    _check_steps(steps)
    results: list[Any] = [None] * len(steps)
    remains: list[str] = []
    try:
        with ExitStack() as undoing:
            for index, step in sorted(enumerate(steps), key=lambda pair: pair[1].is_last):
                undoing.callback(_undo, step, remains)
                results[index] = step.do()
            undoing.pop_all()
    except LanceNamespaceError as error:
        if remains:
            raise InternalError(
                f"The batch failed and was not undone completely: {'; '.join(remains)}. "
                f"The cause: {error}"
            ) from error
        raise
    return results


def _check_steps(steps: Sequence[Step]) -> None:
    seen = set()
    for step in steps:
        if step.key in seen:
            raise unsupported(
                f"A batch can have one operation per table, and this one has two for "
                f"'{display(step.key[0])}'"
            )
        seen.add(step.key)
    if sum(step.is_last for step in steps) > 1:
        raise unsupported(
            "A batch can have one DeleteTableVersions or DeregisterTable: neither can be undone, "
            "so if the second one failed, the first one would remain"
        )


def _undo(step: Step, remains: list[str]) -> None:
    try:
        step.undo()
    except LanceNamespaceError as error:
        remains.append(str(error))


# -- steps -----------------------------------------------------------------------------------------


def create_version(table: Table, staged: Staged) -> Step:
    """Create a version; its result is a `Manifest`.

    Raises what `versions.prepare_creation` raises.
    """
    planned = versions.prepare_creation(table, staged)
    return Step(
        (table.path, planned.directory.inside),
        planned.do,
        planned.undo,
    )


def declare(
    tables: Tables,
    path: Path,
    location: str | None,
    properties: Mapping[str, str] | None,
    *,
    vend: bool | None,
) -> Step:
    """Declare a new table; its result is the table and its storage options.

    Raises:
        TableAlreadyExistsError: (5) also if a declaration could be repeated outside a batch.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13)
    """
    connection = tables.connection
    new = creation.plan_declaration(connection, path, location, properties)
    if _exists(tables, path):
        raise table_already_exists(path)
    created: list[Table] = []

    def do() -> tuple[Table, dict[str, str] | None]:
        created.append(creation.add(connection, path, new.location, new.properties, declared=True))
        if new.is_managed:
            created[0] = conversion.begin(created[0])
        return created[0], created[0].answer_options(vend=vend, write=True)

    def undo() -> None:
        for table in created:
            table.remove()

    return Step((path, ""), do, undo)


def _exists(tables: Tables, path: Path) -> bool:
    """Return whether any entry has the name. Raises NamespaceNotFound (1)."""
    try:
        tables.load_entry(path)
    except TableNotFoundError:
        return False
    return True


def delete_versions(table: Table, branch: str | None, ranges: Sequence[range]) -> Step:
    """Delete versions; its result is their number.

    Raises what `versions.prepare_deletion` raises.
    """
    planned = versions.prepare_deletion(table, branch, ranges)

    def undo() -> None:
        gone = versions.count_missing(planned)
        if gone:
            raise InternalError(f"{gone} versions of table '{table.name}' are deleted")

    return Step(
        (table.path, planned.directory.inside),
        lambda: versions.delete(planned),
        undo,
        is_last=True,
    )


def deregister(tables: Tables, path: Path) -> Step:
    """Remove an entry; its result is that entry. Raises 1, 4, 13 (not a Lance table)."""
    tables.load(path)

    def undo() -> None:
        if not _exists(tables, path):
            raise InternalError(f"table '{display(path)}' is deregistered")

    return Step((path, ""), lambda: tables.remove(path), undo, is_last=True)
