"""CREATE and REPLACE TABLE with a query: readers see nothing of it before all of it is written.

A stage says where the tasks write. When they have, the driver's writer leaves the fragments' JSON
in a file of the stage, and `commit` makes the new table, or the version that replaces the old one,
in one step.
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

from lance_bridge import location as locations
from lance_bridge.catalog import IMPLEMENTATION
from lance_bridge.errors import display, invalid
from lance_bridge.lance_datasets import find_commit
from lance_bridge.records import check_properties, manager_in
from lance_bridge.tables import Tables

from ..addresses import CatalogAddress, TableAddress
from ..lookup import find_table
from ..source.commit import Commit
from ..source.staged_writer import Stage, kept_fragments, table_of
from . import publishing, schemas
from .publishing import Definition

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

Args = Mapping[str, Any]
Answer = dict[str, Any]

logger = logging.getLogger(__name__)


# -- beginning -----------------------------------------------------------------------------------


def create(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, schema, properties}`` to ``{stage, schema, properties}``.

    Raises: Unsupported, NamespaceNotFound, InvalidInput.
    """
    tables = catalog.connect().tables
    return _stage_answer(_new(tables, _parse_definition(tables, args)))


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
        return _stage_answer(_new(tables, definition))
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


def _new(tables: Tables, definition: Definition) -> Stage:
    tables.wants_management(definition.path, definition.properties)  # raises where it cannot be
    name = str(uuid.uuid4())
    location = definition.location
    if location is None:
        # No other creator of a table of this name gets the same location.
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


# -- ending --------------------------------------------------------------------------------------


def commit(catalog: CatalogAddress, args: Args) -> Answer:
    """``{stage, written?}`` to ``{}``: the table is there.

    ``written`` says that rows were to be written, so that a missing record of them is an error.

    Raises: Unsupported, NamespaceNotFound, TableNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, ServiceUnavailable, Internal, InvalidTableState.
    """
    stage = Stage.from_json(args["stage"])
    kept = kept_fragments(catalog, stage)
    if kept is None and args.get("written"):
        raise InternalError(
            f"Table '{display(stage.table)}' is not made: there is no record of its rows at "
            f"{stage.location}. Repeat the statement"
        )
    if stage.replaces:
        _replace(catalog, stage, kept or [])
    else:
        data = publishing.Data(
            stage.location, stage.schema(), kept or [], stage.uuid, stage.is_own_location
        )
        definition = Definition(stage.table, stage.struct, stage.properties, stage.location)
        publishing.publish_new(catalog.connect().tables, definition, data)
        _delete_fragment_list(catalog, stage)
    return {}


def _replace(catalog: CatalogAddress, stage: Stage, kept: Sequence[str]) -> None:
    """Make the version that replaces the old ones, then the entry's properties."""
    address = TableAddress(catalog, stage.table)
    _commit_of(address, stage).run(
        kept, lambda fragments: lance.LanceOperation.Overwrite(stage.schema(), fragments)
    )
    # From here on, the files are those of a version: nothing may take them for the stage's own.
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


def _commit_of(address: TableAddress, stage: Stage) -> Commit:
    place = locations.for_lance(stage.location)
    # The query may have read the table itself: what others add meanwhile must not be lost.
    return Commit(address, place, stage.replaces, stage.uuid, alone=True)


def _delete_fragment_list(catalog: CatalogAddress, stage: Stage) -> None:
    try:
        table_of(catalog, stage).files(write=True).remove([stage.file])
    except LanceNamespaceError as error:
        logger.warning("%s remains at %s: %s", stage.file, stage.location, error)


def abort(catalog: CatalogAddress, args: Args) -> Answer:
    """``{stage}`` to ``{}``: what it wrote is deleted, unless a table has it already.

    Of a table that was to be replaced, files of tasks that failed stay, for the clean-up of files
    that no version has.

    Raises: ServiceUnavailable.
    """
    stage = Stage.from_json(args["stage"])
    if _is_committed(catalog, stage):
        return {}
    table = table_of(catalog, stage)
    if stage.is_own_location:
        table.storage(write=True).delete_table(stage.location)
        return {}
    publishing.remove_files(table, kept_fragments(catalog, stage) or [])
    _delete_fragment_list(catalog, stage)
    return {}


def _is_committed(catalog: CatalogAddress, stage: Stage) -> bool:
    """Return whether readers can see what the stage wrote. Raises 17 where that is not known."""
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
