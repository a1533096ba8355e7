"""Several operations as one: all or nothing, as far as storage and catalog allow.

Everything is checked first. Then what can be undone is done, and the one operation that cannot be
comes last. What is done first can be seen by others before the last is: nothing here isolates.
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

    ``undo`` puts back what ``do`` has changed, if anything, or raises InternalError (18) that says
    what stays.
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
        UnsupportedOperationError: (0) two steps change the same, or two cannot be undone.
        InternalError: (18) a step failed, and not all others could be undone.
        LanceNamespaceError: What the step that failed raised; then all is as it was.
    """
    _check(steps)
    results: list[Any] = [None] * len(steps)
    stays: list[str] = []
    try:
        with ExitStack() as undoing:
            for index, step in sorted(enumerate(steps), key=lambda pair: pair[1].is_last):
                undoing.callback(_undo, step, stays)
                results[index] = step.do()
            undoing.pop_all()
    except LanceNamespaceError as error:
        if stays:
            raise InternalError(
                f"The batch failed, and was not undone as a whole: {'; '.join(stays)}. It failed "
                f"because: {error}"
            ) from error
        raise
    return results


def _check(steps: Sequence[Step]) -> None:
    seen = set()
    for step in steps:
        if step.key in seen:
            raise unsupported(
                f"A batch can hold one operation for each table, and this has two for "
                f"'{display(step.key[0])}'"
            )
        seen.add(step.key)
    if sum(step.is_last for step in steps) > 1:
        raise unsupported(
            "A batch can hold one DeleteTableVersions or DeregisterTable: neither can be undone, "
            "so that of two the second could not fail without leaving the first"
        )


def _undo(step: Step, stays: list[str]) -> None:
    try:
        step.undo()
    except LanceNamespaceError as error:
        stays.append(str(error))


# -- steps -----------------------------------------------------------------------------------------


def create_version(table: Table, staged: Staged) -> Step:
    """Create a version; its result is a `Manifest`.

    Raises what `versions.prepare_creation` raises.
    """
    planned = versions.prepare_creation(table, staged)
    return Step(
        (table.path, planned.directory.inside),
        planned.do,
        planned.take_back,
    )


def declare(
    tables: Tables,
    path: Path,
    location: str | None,
    properties: Mapping[str, str] | None,
    *,
    vend: bool | None,
) -> Step:
    """Declare a table whose name is free; its result is its entry and its storage options.

    Raises:
        TableAlreadyExistsError: (5) also where a declaration could be repeated outside a batch.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13)
    """
    connection = tables.connection
    new = creation.plan_declaration(connection, path, location, properties)
    if _exists(tables, path):
        raise table_already_exists(path)
    made: list[Table] = []

    def do() -> tuple[Table, dict[str, str] | None]:
        made.append(creation.add(connection, path, new.location, new.properties, declared=True))
        if new.is_managed:
            made[0] = conversion.begin(made[0])
        return made[0], made[0].answer_options(vend=vend, write=True)

    def undo() -> None:
        for table in made:
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
