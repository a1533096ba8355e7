"""Publishing a new table: its data is written before its entry, and visible when both exist.

The data becomes version 1 of a dataset at a location that no entry has. If several writers create
the same name, the catalog accepts one entry, and the others delete only the files they wrote.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import locations
from lance_bridge.catalog import Path
from lance_bridge.dataset import FIRST_VERSION, not_written
from lance_bridge.errors import (
    LANCE_ERRORS,
    OutcomeUnknownError,
    display,
    invalid,
    table_already_exists,
    translate_lance_errors,
    unsupported,
)
from lance_bridge.records import check_properties
from lance_bridge.spark_types import columns_of
from lance_bridge.storage import RESERVED_FILE, VersionDirectory
from lance_bridge.table import Table
from lance_bridge.tables import Tables

from . import schemas

logger = logging.getLogger(__name__)

_HINT = "latest_version_hint.json"
"""The file that Lance writes beside a manifest."""


@dataclass(frozen=True)
class Data:
    """The data and location of version 1 of a new table."""

    location: str
    schema: pa.Schema
    fragments: Sequence[str] = ()
    """In JSON; their files exist at the location already."""
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Identifies the transaction, so that it is recognised after a lost reply."""
    is_own_location: bool = False
    """Whether no other writer can use the location."""

    def metadata(self) -> list[FragmentMetadata]:
        return [FragmentMetadata.from_json(each) for each in self.fragments]


def publish_new(tables: Tables, definition: Definition, data: Data) -> Table:
    """Commit version 1, then add the entry; if that fails, delete the data.

    Raises:
        TableAlreadyExistsError: (5) the name is taken, or a dataset exists at the location.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13)
        UnsupportedOperationError: (0) the catalog should manage the table, and cannot.
        OutcomeUnknownError: (17) the entry may exist; the data is kept.
        ServiceUnavailableError: (17) the storage did not accept the data.
    """
    path, properties = definition.path, definition.properties
    tables.wants_management(path, properties)  # raises before anything is written
    new = tables.at(path, data.location)
    had_reservation = (
        not data.is_own_location and new.files(write=True).head(RESERVED_FILE) is not None
    )
    _commit_first(new, data)
    try:
        return tables.add(path, data.location, properties, columns=columns_of(data.schema))
    except OutcomeUnknownError:
        raise
    except LanceNamespaceError:
        _remove_dataset(new, data, [] if had_reservation else [RESERVED_FILE])
        raise


def _commit_first(table: Table, data: Data) -> None:
    """Commit version 1 and no later one. Raise 5 if the version exists, or 17."""
    location = table.location
    options = table.storage_options(write=True)
    transaction = lance.Transaction(
        read_version=0,
        operation=lance.LanceOperation.Overwrite(data.schema, data.metadata()),
        uuid=data.uuid,
    )
    try:
        lance.LanceDataset.commit(
            locations.for_lance(location), transaction, max_retries=0, storage_options=options
        )
    except LANCE_ERRORS as error:
        if not table.storage(write=True).has_dataset(location):
            raise not_written(table, error, "No table was made") from error
        if not _is_first(table, data, options):
            raise table_already_exists(
                table.path, f"there is a Lance table at {location}"
            ) from error


def _is_first(table: Table, data: Data, options: dict[str, str] | None) -> bool:
    """Return whether this transaction made version 1: its reply may have been lost."""
    location = table.uri
    with translate_lance_errors(f"Version 1 of '{table.name}' could not be read at {location}"):
        dataset = lance.dataset(location, version=FIRST_VERSION, storage_options=options)
        transaction = dataset.read_transaction(FIRST_VERSION)
    return transaction is not None and transaction.uuid == data.uuid


def _remove_dataset(table: Table, data: Data, reservations: Sequence[str]) -> None:
    """Delete a dataset that was created here and has no entry.

    At a location that other writers may use, delete only the files written here.
    """
    try:
        if data.is_own_location:
            table.storage(write=True).delete_table(data.location)
            return
        files = table.files(write=True)
        directory = VersionDirectory(files)
        made = directory.list()
        if [each.version for each in made] != [FIRST_VERSION]:
            logger.warning(
                "%s has been written to concurrently: its version 1 is kept", data.location
            )
            return
        versions = [directory.within(name) for name in (made[0].name, _HINT)]
        transaction = f"_transactions/0-{data.uuid}.txn"
        files.remove([*versions, transaction, *reservations, *_data_files(data.metadata())])
    except LanceNamespaceError as error:
        logger.warning("files of '%s' remain at %s: %s", table.name, table.record.location, error)


def remove_files(table: Table, fragments: Sequence[str]) -> None:
    """Delete the data files of fragments that no version has."""
    paths = _data_files([FragmentMetadata.from_json(each) for each in fragments])
    if not paths:
        return
    try:
        table.files(write=True).remove(paths)
    except LanceNamespaceError as error:
        logger.warning("files of '%s' remain at %s: %s", table.name, table.record.location, error)


def _data_files(fragments: Sequence[FragmentMetadata]) -> list[str]:
    return [f"data/{file.path}" for each in fragments for file in each.files]


_PROVIDER = "provider"
LANCE = "lance"
_LOCATION = "location"
_EXTERNAL = "external"
_SPARKS_OWN = frozenset({_PROVIDER, _LOCATION, _EXTERNAL, "owner", "is_managed_location"})
"""Keys that Spark passes with the properties; the catalog tracks the owners of its tables."""


@dataclass(frozen=True)
class Definition:
    """The definition of a new table. ``properties`` are the user's, including ``comment``."""

    path: Path
    struct: str
    """The JSON text of its ``StructType``."""
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    """The requested location; None leaves the choice to the catalog."""

    @classmethod
    def of(cls, path: Path, args: Mapping[str, Any]) -> Definition:
        """Return the definition in a call's arguments.

        Raises:
            InvalidInputError: (13) a provider other than ``lance``, a bad location or property.
            UnsupportedOperationError: (0) an external table.
        """
        given: Mapping[str, str] = args.get("properties") or {}
        _check_provider(path, given.get(_PROVIDER) or LANCE)
        if given.get(_EXTERNAL, "false").lower() == "true":
            raise unsupported(
                f"Table '{display(path)}' cannot be EXTERNAL: DROP TABLE deletes the data of every "
                "Lance table. Leave EXTERNAL out"
            )
        location = given.get(_LOCATION)
        own = {key: value for key, value in given.items() if key not in _SPARKS_OWN}
        check_properties(own)
        place = None if location is None else locations.check(location)
        return cls(path, args["schema"], own, place)

    @property
    def has_columns(self) -> bool:
        return bool(json.loads(self.struct).get("fields"))

    def schema(self) -> pa.Schema:
        """Return the table's Arrow schema. Raises InvalidInput (13) as `schemas.to_arrow` does."""
        return schemas.to_arrow(self.struct, self.properties)


def _check_provider(path: Path, provider: str) -> None:
    if provider.lower() != LANCE:
        raise invalid(
            f"Table '{display(path)}' cannot be of {provider[:60]!r}: this catalog makes Lance "
            "tables only. Leave USING out or write USING lance; from a DataFrame, write "
            ".format('lance') before saveAsTable, whose default is another"
        )
