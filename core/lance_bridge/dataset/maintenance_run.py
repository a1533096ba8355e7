"""A run of maintenance: carries out a plan, one table at a time, each under a lease."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from ..catalog import Path
from ..managed.lease import Lease, leased
from ..tables import Tables
from .maintenance import clean_up, compact, optimize_indices
from .maintenance_plan import Action, Debt, MaintenancePlan, Policies, TablePlan, plan_table


class Result(str, Enum):
    """What a run did with a table."""

    DONE = "done"
    """What was due is done; nothing, if another worker did it first."""
    LATER = "later"
    """Another worker or writer was first; a later run does what is left."""
    LEFT = "left"
    """The budget was used up before the table's turn, or before all of its actions."""
    FAILED = "failed"


@dataclass(frozen=True)
class Maintained:
    """What a run did with a table.

    Attributes:
        actions: Those that were completed.
        after: The debt afterwards; None if it was not read again.
        reason: Why not all was done.
    """

    path: Path
    result: Result
    actions: tuple[Action, ...]
    before: Debt
    after: Debt | None = None
    reason: str = ""


def run_maintenance(
    tables: Tables, plan: MaintenancePlan, budget: timedelta | None = None
) -> Iterator[Maintained]:
    """Maintain the tables of a plan in its order, and yield what was done with each.

    Args:
        budget: No action begins after this time; one that has begun is completed.
    """
    deadline = None if budget is None else time.monotonic() + budget.total_seconds()
    for each in plan.due:
        yield _Run(tables, each, deadline).run()


class _Run:
    """One table in a run."""

    def __init__(self, tables: Tables, plan: TablePlan, deadline: float | None) -> None:
        self._tables, self._plan, self._deadline = tables, plan, deadline
        self._done: list[Action] = []
        self._after: Debt | None = None

    def run(self) -> Maintained:
        try:
            result, reason = self._maintain(), ""
        except (ConcurrentModificationError, NamespaceNotFoundError, TableNotFoundError) as error:
            result, reason = Result.LATER, str(error)
        except LanceNamespaceError as error:
            result, reason = Result.FAILED, str(error)
        plan = self._plan
        return Maintained(plan.path, result, tuple(self._done), plan.debt, self._after, reason)

    def _maintain(self) -> Result:
        if self._is_over:
            return Result.LEFT
        table = self._tables.load(self._plan.path)
        with leased(table) as lease:
            # Another worker may have maintained it since it was planned, and then ended its lease.
            found = self._read()
            for action in () if found is None else found.actions:
                if self._is_over:
                    return Result.LEFT
                self._do(action, lease)
                self._done.append(action)
            found = self._read()
            self._after = None if found is None else found.debt
        return Result.DONE

    def _read(self) -> TablePlan | None:
        table = self._tables.load(self._plan.path)
        policy = Policies(self._tables.connection).of(table)
        found = plan_table(table, policy)
        return found if policy.enabled else None

    def _do(self, action: Action, lease: Lease) -> None:
        table, policy = self._tables.load(self._plan.path), self._plan.policy
        lease.check()
        if action is Action.COMPACT:
            compact(
                table,
                target_rows=policy.target_rows,
                deleted_share=policy.deleted_share,
                on_progress=lambda done, total: lease.check() if done == total else None,
            )
        elif action is Action.INDEX:
            optimize_indices(table)
        else:
            clean_up(table, older_than=policy.least_age, keep_versions=policy.keep_versions)

    @property
    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline
