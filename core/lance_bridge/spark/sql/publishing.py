"""A new table whose data is there before its entry: nothing is seen of it until both are.

The data becomes version 1 of a dataset at a place that no entry has, and then the catalog decides
between creators of one name. Those that lose take away what they wrote, and no more.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance_namespace.errors import LanceNamespaceError

from ... import location as locations
from ...bridge import Bridge
from ...catalog import TableRecord
from ...entries import properties as entry_properties
from ...entries import tables as entries
from ...entries.placement import Home
from ...errors import OutcomeUnknownError, display, table_already_exists
from ...managed import conversion
from ...tables.create import FIRST_VERSION, not_written
from ...tables.dataset import LANCE_FAILURES, translated
from ...tables.history.manifests import TableFiles
from ...tables.spark_types import columns_of
from .definitions import Definition

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Data:
    """What is to become version 1, and where."""

    location: str
    schema: pa.Schema
    fragments: Sequence[str] = ()
    """In JSON; their files are at the location already."""
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Names the transaction, so that it is recognised after a lost reply."""

    def metadata(self) -> list[FragmentMetadata]:
        return [FragmentMetadata.from_json(each) for each in self.fragments]


def publish_new(bridge: Bridge, definition: Definition, data: Data) -> TableRecord:
    """Commit version 1, then add the entry; undo the one where the other fails.

    Raises:
        TableAlreadyExistsError: (5) the name is taken, or there is a dataset at the location.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13)
        UnsupportedOperationError: (0) the catalog is to manage the table, and cannot.
        OutcomeUnknownError: (17) the entry may be there; the data stays.
        ServiceUnavailableError: (17) the storage did not take the data.
    """
    managed = is_to_be_managed(bridge, definition)
    place = TableRecord(definition.path, data.location)
    _commit_first(bridge, place, data)
    try:
        record = _add_entry(bridge, definition, data)
        with entries.undone(bridge, record):
            return conversion.begin(bridge, record) if managed else record
    except OutcomeUnknownError:
        raise
    except LanceNamespaceError:
        _take_away(bridge, place)
        raise


def is_to_be_managed(bridge: Bridge, definition: Definition) -> bool:
    """Return whether the catalog is to hold the versions. Raises 0 and 1."""
    home = Home(bridge, definition.path[:-1])
    return conversion.is_wanted(bridge, definition.path, home, definition.properties)


def _add_entry(bridge: Bridge, definition: Definition, data: Data) -> TableRecord:
    record, is_new = entries.add_or_find(
        bridge,
        definition.path,
        data.location,
        entry_properties.checked(definition.properties),
        columns=columns_of(data.schema),
    )
    if not is_new:
        raise table_already_exists(definition.path, "another creator was first")
    return record


def _commit_first(bridge: Bridge, place: TableRecord, data: Data) -> None:
    """Commit version 1 and no other. Raises 5 where there is one, 17."""
    location = place.location or ""
    options = bridge.storage_options(place, vend=None, write=True)
    transaction = lance.Transaction(
        read_version=0,
        operation=lance.LanceOperation.Overwrite(data.schema, data.metadata()),
        uuid=data.uuid,
    )
    try:
        lance.LanceDataset.commit(
            locations.for_lance(location), transaction, max_retries=0, storage_options=options
        )
    except LANCE_FAILURES as error:
        if not bridge.storage(place, write=True).has_dataset(location):
            raise not_written(place, error, "No table was made") from error
        if not _is_first(place, data, options):
            raise table_already_exists(
                place.path, f"there is a Lance table at {location}"
            ) from error


def _is_first(place: TableRecord, data: Data, options: dict[str, str] | None) -> bool:
    """Return whether version 1 is of this very transaction: its reply may have been lost."""
    location = locations.for_lance(place.location or "")
    with translated(f"What became of '{display(place.path)}' could not be read at {location}"):
        dataset = lance.dataset(location, version=FIRST_VERSION, storage_options=options)
        transaction = dataset.read_transaction(FIRST_VERSION)
    return transaction is not None and transaction.uuid == data.uuid


def _take_away(bridge: Bridge, place: TableRecord) -> None:
    """Delete a dataset that was made here and has no entry."""
    try:
        bridge.storage(place, write=True).delete_table(place.location or "")
    except LanceNamespaceError as error:
        logger.warning("files of '%s' stay at %s: %s", place.path, place.location, error)


def remove_files(bridge: Bridge, place: TableRecord, fragments: Sequence[str]) -> None:
    """Delete the data files of fragments that no version has."""
    data = [FragmentMetadata.from_json(each) for each in fragments]
    paths = [f"data/{file.path}" for each in data for file in each.files]
    if not paths:
        return
    try:
        TableFiles(bridge.storage(place, write=True), place.location or "").remove(paths)
    except LanceNamespaceError as error:
        logger.warning("files of '%s' stay at %s: %s", place.path, place.location, error)
