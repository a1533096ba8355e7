"""CREATE and REPLACE TABLE, with a query or without one: no incomplete table is ever visible.

Without a query, version 1 is committed before the entry is added. With one, a stage names the
location that the tasks write to. When they finish, the driver's writer saves the fragments' JSON in
a file of the stage, and `commit` creates the table, or the version that replaces the old one, in
one step.
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_bridge import locations
from lance_bridge.arrow_types import columns_of
from lance_bridge.catalog import IMPLEMENTATION, Path
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
from lance_bridge.records import check_properties, manager_in
from lance_bridge.storage import RESERVED_FILE, VersionDirectory
from lance_bridge.table import Table
from lance_bridge.tables import Tables
from lance_bridge.transaction_versions import find_commit

from ..addresses import CatalogAddress, TableAddress
from ..lookup import find_table
from ..schemas import schema_from_json, schema_to_json
from ..source.options import vectors_in
from ..source.writer import Commit, Stage, kept_fragments, table_of

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

Args = Mapping[str, Any]
Answer = dict[str, Any]

logger = logging.getLogger(__name__)

_PROVIDER = "provider"
LANCE = "lance"
_LOCATION = "location"
_EXTERNAL = "external"
_SPARKS_OWN = frozenset({_PROVIDER, _LOCATION, _EXTERNAL, "owner", "is_managed_location"})
"""Keys that Spark passes with the properties; the catalog tracks the owners of its tables."""
_HINT = "latest_version_hint.json"
"""The file that Lance writes beside a manifest."""

# -- definitions -----------------------------------------------------------------------------------


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
        """Return the table's Arrow schema. Raises InvalidInput (13) as `schema_from_json` does."""
        return schema_from_json(self.struct, vectors_in(self.properties))


def _check_provider(path: Path, provider: str) -> None:
    if provider.lower() != LANCE:
        raise invalid(
            f"Table '{display(path)}' cannot be of {provider[:60]!r}: this catalog makes Lance "
            "tables only. Leave USING out or write USING lance; from a DataFrame, write "
            ".format('lance') before saveAsTable, whose default is another"
        )


# -- version 1 and the entry -----------------------------------------------------------------------


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
        operation=lance.LanceOperation.Overwrite(
            data.schema, [FragmentMetadata.from_json(each) for each in data.fragments]
        ),
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
        files.remove([*versions, transaction, *reservations, *_data_files(data.fragments)])
    except LanceNamespaceError as error:
        logger.warning("files of '%s' remain at %s: %s", table.name, table.record.location, error)


def remove_files(table: Table, fragments: Sequence[str]) -> None:
    """Delete the data files of fragments that no version has."""
    paths = _data_files(fragments)
    if not paths:
        return
    try:
        table.files(write=True).remove(paths)
    except LanceNamespaceError as error:
        logger.warning("files of '%s' remain at %s: %s", table.name, table.record.location, error)


def _data_files(fragments: Sequence[str]) -> list[str]:
    parsed = map(FragmentMetadata.from_json, fragments)
    return [f"data/{file.path}" for each in parsed for file in each.files]


# -- creating a stage ------------------------------------------------------------------------------


def create(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, schema, properties}`` to ``{stage, schema, properties}``.

    Raises: Unsupported, NamespaceNotFound, InvalidInput.
    """
    tables = catalog.connect().tables
    return _stage_answer(_new_stage(tables, _parse_definition(tables, args)))


def replace(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, schema, properties, or_create}`` to the same.

    Raises: Unsupported, NamespaceNotFound, TableNotFound, InvalidInput, PermissionDenied,
        ServiceUnavailable, InvalidTableState.
    """
    tables = catalog.connect().tables
    definition = _parse_definition(tables, args)
    try:
        table = find_table(TableAddress(catalog, definition.path))
    except TableNotFoundError:
        if not args.get("or_create"):
            raise
        return _stage_answer(_new_stage(tables, definition))
    _require_replaceable(table, definition)
    tables.require_unprotected(table, "replaced")
    version = int(table.open(write=True).version)
    return _stage_answer(_stage(definition, table.location, replaces=version))


def _parse_definition(tables: Tables, args: Args) -> Definition:
    definition = Definition.of(tables.path_of(args["table"]), args)
    if not definition.has_columns:
        raise invalid(f"Table '{display(definition.path)}' needs at least one column")
    definition.schema()
    return definition


def _new_stage(tables: Tables, definition: Definition) -> Stage:
    tables.wants_management(definition.path, definition.properties)  # raises if unsupported
    if definition.location is not None:
        return _stage(definition, definition.location)
    # Concurrent creators of the same name get different locations.
    default = tables.default_location(definition.path).removesuffix(".lance")
    location = f"{default}-{uuid.uuid4().hex[:8]}.lance"
    return _stage(definition, location, is_own_location=True)


def _stage(
    definition: Definition, location: str, *, replaces: int = 0, is_own_location: bool = False
) -> Stage:
    columns = base64.b64encode(definition.schema().serialize().to_pybytes()).decode()
    return Stage(
        str(uuid.uuid4()),
        definition.path,
        location,
        definition.struct,
        columns,
        definition.properties,
        replaces,
        is_own_location,
    )


def _require_replaceable(table: SparkTable, definition: Definition) -> None:
    given = definition.location
    if given and locations.key(given) != locations.key(table.record.location or "/"):
        raise invalid(
            f"Table '{display(definition.path)}' is at {table.record.location}, and REPLACE cannot "
            "move it: leave LOCATION out"
        )
    table.require_settable(check_properties(definition.properties))


def _stage_answer(stage: Stage) -> Answer:
    schema = schema_to_json(stage.schema())
    return {"stage": stage.to_json(), "schema": schema, "properties": dict(stage.properties)}


# -- commit and abort ------------------------------------------------------------------------------


def commit(catalog: CatalogAddress, args: Args) -> Answer:
    """``{stage, written?}`` to ``{}``: create or replace the table.

    ``written`` means that rows were written, so that a missing list of fragments is an error.

    Raises: Unsupported, NamespaceNotFound, TableNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, ServiceUnavailable, Internal, InvalidTableState.
    """
    stage = Stage.from_json(args["stage"])
    kept = kept_fragments(catalog, stage)
    if kept is None and args.get("written"):
        raise InternalError(
            f"Table '{display(stage.table)}' was not created: the record of its rows is missing at "
            f"{stage.location}. Repeat the statement"
        )
    if stage.replaces:
        _replace(catalog, stage, kept or [])
    else:
        data = Data(stage.location, stage.schema(), kept or [], stage.uuid, stage.is_own_location)
        definition = Definition(stage.table, stage.struct, stage.properties, stage.location)
        publish_new(catalog.connect().tables, definition, data)
        _delete_fragment_list(catalog, stage)
    return {}


def _replace(catalog: CatalogAddress, stage: Stage, kept: Sequence[str]) -> None:
    """Commit the version that replaces the old rows, then set the entry's properties."""
    address = TableAddress(catalog, stage.table)
    place = locations.for_lance(stage.location)
    # The query may have read the table itself: rows that are added concurrently must not be lost.
    Commit(address, place, stage.replaces, stage.uuid, alone=True).run(
        kept, lambda fragments: lance.LanceOperation.Overwrite(stage.schema(), fragments)
    )
    # The files belong to a version now: without the list, no abort of the stage can delete them.
    _delete_fragment_list(catalog, stage)
    table = find_table(address)
    try:
        if manager_in(stage.properties) == IMPLEMENTATION:
            table = table.manage()
        table.set_properties(check_properties(stage.properties))
    except LanceNamespaceError as error:
        raise type(error)(
            f"Table '{display(stage.table)}' has its new rows, but its new properties are not "
            f"stored: {error}"
        ) from error


def _delete_fragment_list(catalog: CatalogAddress, stage: Stage) -> None:
    try:
        table_of(catalog, stage).files(write=True).remove([stage.file])
    except LanceNamespaceError as error:
        logger.warning("%s remains at %s: %s", stage.file, stage.location, error)


def abort(catalog: CatalogAddress, args: Args) -> Answer:
    """``{stage}`` to ``{}``: delete the files it wrote, unless they are committed.

    If the stage replaces a table, files of failed tasks are left to the clean-up of unreferenced
    files.

    Raises: ServiceUnavailable.
    """
    stage = Stage.from_json(args["stage"])
    if _is_committed(catalog, stage):
        return {}
    table = table_of(catalog, stage)
    if stage.is_own_location:
        table.storage(write=True).delete_table(stage.location)
        return {}
    remove_files(table, kept_fragments(catalog, stage) or [])
    _delete_fragment_list(catalog, stage)
    return {}


def _is_committed(catalog: CatalogAddress, stage: Stage) -> bool:
    """Return whether the stage was committed. Raise 17 if that is unknown."""
    try:
        table = find_table(TableAddress(catalog, stage.table))
    except (TableNotFoundError, NamespaceNotFoundError):
        return False
    if locations.key(table.record.location or "/") != locations.key(stage.location):
        return False
    if not stage.replaces:
        return True
    found = find_commit(table.open(), lambda each: each.uuid == stage.uuid, stage.replaces)
    return found is not None
