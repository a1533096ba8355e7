"""Compaction in this process: small fragments become few, and deleted rows go. No row changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lance import optimize

from ..errors import invalid
from ..lance_errors import translate_lance_errors
from ..table import Table
from .sizes import SMALL_FRAGMENT

_lance: Any = optimize
"""Untyped: pylance's stub has not all that the module has."""

Told = Callable[[int, int | None], None]
"""Is told how many of how many tasks are done."""


@dataclass(frozen=True)
class Compacted:
    """What a compaction did, or would do; its version is the one that it read where nothing was."""

    version: int
    tasks: int
    fragments_removed: int
    fragments_added: int | None
    """None where it was only planned."""


def compact(
    table: Table,
    *,
    target_rows: int = SMALL_FRAGMENT,
    dry_run: bool = False,
    told: Told = lambda _done, _total: None,
) -> Compacted:
    """Rewrite small fragments, and those with many deleted rows, one after another; one commit.

    Args:
        target_rows: Rows of a fragment; smaller ones are joined.
        dry_run: Whether to write nothing, and only tell what would be.

    Raises:
        InvalidInputError: (13) a number is not positive.
        ConcurrentModificationError: (14) rows in these fragments changed meanwhile.
        ServiceUnavailableError: (17) the table is as it was; files that no version names may be
            left, which clean-up deletes.
    """
    if target_rows < 1:
        raise invalid(f"target_rows must be 1 or more, not {target_rows}")
    options = {"target_rows_per_fragment": target_rows}
    dataset = table.open(write=True)
    with translate_lance_errors(f"No compaction of table '{table.name}' could be planned"):
        tasks = list(_lance.Compaction.plan(dataset, options).tasks)
    replaced = sum(len(task.fragments) for task in tasks)
    if dry_run or not tasks:
        return Compacted(int(dataset.version), len(tasks), replaced, None if tasks else 0)
    with table.committing(dataset, "it was not compacted"):
        rewrites = []
        for number, task in enumerate(tasks):
            told(number, len(tasks))
            rewrites.append(task.execute(dataset))
        told(len(tasks), len(tasks))
        metrics = _lance.Compaction.commit(dataset, rewrites, options)
    return Compacted(
        int(dataset.version), len(tasks), metrics.fragments_removed, metrics.fragments_added
    )
