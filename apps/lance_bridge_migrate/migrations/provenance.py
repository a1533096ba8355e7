"""Find the version that a table's current rows come from."""

from __future__ import annotations

import lance

from lance_bridge.errors import translate_lance_errors
from lance_bridge.lance_datasets import keeps_rows, transaction_at


def origin_version(dataset: lance.LanceDataset, floor: int) -> int | None:
    """Return the version that the rows of the dataset's latest version come from.

    That is the version that last changed rows or, after a restore, the restored version; `floor`
    if no row has changed since.

    Args:
        floor: The version at which the search ends.

    Returns:
        None if a version in between was cleaned up, or its transaction is unknown.

    Raises:
        ServiceUnavailableError: (17)
    """
    version = int(dataset.version)
    if version <= floor:
        return version
    with translate_lance_errors(f"The versions of {dataset.uri} could not be read"):
        kept = {int(each["version"]) for each in dataset.versions()}
        while version > floor:
            made_by = transaction_at(dataset, version) if version in kept else None
            if made_by is None:
                return None
            if isinstance(made_by.operation, lance.LanceOperation.Restore):
                version = int(made_by.operation.version)
            elif keeps_rows(made_by.operation):
                version -= 1
            else:
                break
    return version
