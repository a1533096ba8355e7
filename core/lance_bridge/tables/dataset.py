"""Opening a table's dataset, and telling its failures apart by looking, not by their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import lance
from lance_namespace.errors import (
    InvalidTableStateError,
    ServiceUnavailableError,
    TableVersionNotFoundError,
)

from .. import location as locations
from ..bridge import Bridge
from ..catalog import TableRecord
from ..entries.tables import is_only_declared
from ..errors import display
from ..storage import TableStorage

LANCE_FAILURES = (OSError, ValueError, RuntimeError, NotImplementedError, OverflowError)
"""What pylance raises for anything that goes wrong in its Rust half."""


def open_dataset(
    bridge: Bridge, record: TableRecord, version: int | None = None, *, vend: bool | None = None
) -> lance.LanceDataset:
    """Open a table at a version, or at its latest.

    Raises:
        InvalidTableStateError: (19) the table is declared and holds no data yet.
        TableVersionNotFoundError: (11) there is no such version.
        ServiceUnavailableError: (17) the storage does not answer.
    """
    place = locations.for_lance(record.location or "")
    options = bridge.storage_options(record, vend=vend)
    if not locations.is_local(place):
        # Lance waits for minutes for a store that never answers. This look ends in time.
        TableStorage(options or {}).is_occupied(place)
    try:
        return lance.dataset(place, version=version, storage_options=options)
    except LANCE_FAILURES as error:
        name = display(record.path)
        if is_only_declared(bridge, record):
            if version is not None:
                raise _no_version(name, version) from error
            raise InvalidTableStateError(
                f"Table '{name}' is declared and holds no data yet: write to it first"
            ) from error
        if version is not None and not _has_version(place, options, version):
            raise _no_version(name, version) from error
        raise ServiceUnavailableError(
            f"Table '{name}' at {place} could not be opened: {brief(error)}"
        ) from error


def _no_version(name: str, version: int) -> TableVersionNotFoundError:
    return TableVersionNotFoundError(f"Table '{name}' has no version {version}")


def _has_version(place: str, options: dict[str, str] | None, version: int) -> bool:
    with translated(place):
        versions = lance.dataset(place, storage_options=options).versions()
    return any(each["version"] == version for each in versions)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn a failure of storage inside pylance into ServiceUnavailable (17)."""
    try:
        yield
    except LANCE_FAILURES as error:
        raise ServiceUnavailableError(f"{what}: {brief(error)}") from error


def brief(error: BaseException) -> str:
    """Return the first line of what pylance said, without the places in its source."""
    return str(error).split("\n", 1)[0].split(", /", 1)[0][:300]
