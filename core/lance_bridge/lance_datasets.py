"""What pylance's datasets say of their versions, read with care for its gaps."""

from __future__ import annotations

import lance

from .lance_errors import LANCE_ERRORS, panics_as_errors


def latest_version(dataset: lance.LanceDataset) -> int:
    """Return the latest version, or 0 where it cannot be read."""
    try:
        with panics_as_errors():
            return int(dataset.latest_version)
    except LANCE_ERRORS:
        return 0


def transaction_at(dataset: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Return what made a version, or None where that is not recorded.

    pylance cannot read back a compaction that has moved an index (its `RewrittenIndex` wants more
    than it is given): such a transaction comes without its identifier and its fragments.
    """
    try:
        return dataset.read_transaction(version)
    except TypeError:
        operation = lance.LanceOperation.Rewrite(groups=[], rewritten_indices=[])
        return lance.Transaction(read_version=version - 1, operation=operation, uuid="")
