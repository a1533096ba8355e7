"""Fragments as the units of tasks."""

from __future__ import annotations

import lance

from lance_bridge.errors import invalid


def grouped(dataset: lance.LanceDataset, rows_per_task: int) -> list[tuple[int, ...]]:
    """Return the numbers of all fragments in groups of about as many rows, in order.

    Raises:
        InvalidInputError: (13) ``rows_per_task`` is not positive.
    """
    if rows_per_task < 1:
        raise invalid(f"rows_per_task must be 1 or more, not {rows_per_task}")
    groups: list[tuple[int, ...]] = []
    rows = 0
    for fragment in dataset.get_fragments():
        held = fragment.metadata.physical_rows
        if groups and rows + held <= rows_per_task:
            groups[-1] = (*groups[-1], fragment.fragment_id)
            rows += held
        else:
            groups.append((fragment.fragment_id,))
            rows = held
    return groups
