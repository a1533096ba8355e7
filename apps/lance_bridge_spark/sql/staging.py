"""CREATE and REPLACE TABLE with a query: nothing is visible before all rows are written.

A stage names the location that the tasks write to. When they finish, the driver's writer saves the
fragments' JSON in a file of the stage, and `commit` creates the table, or the version that replaces
the old one, in one step.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import lance
from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_bridge import locations
from lance_bridge.catalog import IMPLEMENTATION
from lance_bridge.errors import display, invalid
from lance_bridge.lance_datasets import find_commit
from lance_bridge.records import check_properties, manager_in
from lance_bridge.tables import Tables

from ..addresses import CatalogAddress, TableAddress
from ..lookup import find_table
from ..source.writer import Commit, Stage, kept_fragments, table_of
from . import schemas
from .schemas import Data, Definition, publish_new, remove_files

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

Args = Mapping[str, Any]
Answer = dict[str, Any]

logger = logging.getLogger(__name__)


# -- creating a stage ----------------------------------------------------------------------------


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
    stage = Stage(
        str(uuid.uuid4()),
        definition.path,
        table.location,
        definition.struct,
        _columns_of(definition),
        definition.properties,
        replaces=int(table.open(write=True).version),
    )
    return _stage_answer(stage)


def _parse_definition(tables: Tables, args: Args) -> Definition:
    definition = Definition.of(tables.path_of(args["table"]), args)
    if not definition.has_columns:
        raise invalid(f"Table '{display(definition.path)}' needs at least one column")
    definition.schema()
    return definition


def _new_stage(tables: Tables, definition: Definition) -> Stage:
    tables.wants_management(definition.path, definition.properties)  # raises if unsupported
    name = str(uuid.uuid4())
    location = definition.location
    if location is None:
        # Concurrent creators of the same name get different locations.
        default = tables.default_location(definition.path).removesuffix(".lance")
        location = f"{default}-{name[:8]}.lance"
    return Stage(
        name,
        definition.path,
        location,
        definition.struct,
        _columns_of(definition),
        definition.properties,
        is_own_location=definition.location is None,
    )


def _columns_of(definition: Definition) -> str:
    return base64.b64encode(definition.schema().serialize().to_pybytes()).decode()


def _require_replaceable(table: SparkTable, definition: Definition) -> None:
    given = definition.location
    if given and locations.key(given) != locations.key(table.record.location or "/"):
        raise invalid(
            f"Table '{display(definition.path)}' is at {table.record.location}, and REPLACE cannot "
            "move it: leave LOCATION out"
        )
    table.require_settable(check_properties(definition.properties))


def _stage_answer(stage: Stage) -> Answer:
    schema = schemas.to_spark(stage.schema())
    return {"stage": stage.to_json(), "schema": schema, "properties": dict(stage.properties)}


# -- commit and abort ----------------------------------------------------------------------------


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
    _to_commit(address, stage).run(
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


def _to_commit(address: TableAddress, stage: Stage) -> Commit:
    place = locations.for_lance(stage.location)
    # The query may have read the table itself: rows that are added concurrently must not be lost.
    return Commit(address, place, stage.replaces, stage.uuid, alone=True)


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
