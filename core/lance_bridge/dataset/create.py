"""CreateTable: an entry first, then the data; what fails in between can be tried again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import lance
import pyarrow as pa
from lance.fragment import write_fragments
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
)

from .. import location as locations
from .. import properties as table_properties
from ..catalog import IMPLEMENTATION, Path
from ..connection import Connection
from ..errors import concurrent_modification, invalid, table_already_exists
from ..lance_errors import (
    LANCE_ERRORS,
    as_namespace_error,
    first_line,
    is_refusal,
    translate_lance_errors,
)
from ..managed import conversion
from ..modes import CreateMode
from ..properties import manager_in
from ..table import Table, raise_view_failure
from ..tables import creation
from ..tables.locations import LazyNamespace, allocate
from .data import Rows
from .spark_types import columns_of

FIRST_VERSION = 1


@dataclass(frozen=True)
class NewTable:
    """What a caller wants to create: rows with a schema, and how."""

    path: Path
    rows: Rows
    mode: CreateMode = CreateMode.CREATE
    properties: Mapping[str, str] | None = None
    storage_options: Mapping[str, str] | None = None
    manager: str | None = None
    """Who is to hold its versions, where the properties say so."""


def create_table(connection: Connection, new: NewTable) -> tuple[Table, int]:
    """Create a table with data and return it and its version. Source: CreateTable.

    The entry comes first, without data: the catalog decides between two creators. A write that
    fails leaves a declared table, which the next create completes; so do rows that turn out bad
    after that, which only those can that are read once. Rows that Lance cannot write leave none.

    Raises:
        TableAlreadyExistsError: (5) a table with data has the name and the mode is Create, or an
            entry that is not Lance's has it in any mode.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) bad rows or properties, rows that Lance refuses, or no location can
            be found.
        ConcurrentModificationError: (14)
        UnsupportedOperationError: (0) the catalog is to manage the table, and cannot.
        ServiceUnavailableError: (17) the storage did not take the data.
        InternalError: (18) Lance panicked.
    """
    asked = new.properties
    new = replace(new, properties=_checked(asked), manager=manager_in(asked))
    _check_names(new.rows.schema)
    new.rows.require_storable()
    new.rows.check_ahead()
    namespace = LazyNamespace(connection, new.path[:-1])
    is_managed = creation.wants_management(new.path, namespace, asked)
    table, is_new = creation.add_or_find(
        connection,
        new.path,
        allocate(new.path, namespace, must_read=True),
        new.properties or {},
        declared=True,
        columns=columns_of(new.rows.schema),
    )
    if is_new and is_managed:
        with creation.removed_on_failure(table):
            table = conversion.begin(table)
    try:
        if is_new:
            with _removed_if_refused(table, new.rows):
                return table, write_first(table, new.rows, new.storage_options)
        if table.is_declared():
            table = conversion.begin(table) if is_managed else table
            return _complete(table, new)
    except TableAlreadyExistsError:
        # Another writer's data came first, even where the entry is this one's.
        if new.mode is CreateMode.CREATE:
            raise
    return _write_to_existing(table, new)


@contextmanager
def _removed_if_refused(table: Table, rows: Rows) -> Iterator[None]:
    """Remove a new entry if Lance refuses the rows or panics: a retry would not help."""
    try:
        yield
    except (InvalidInputError, InternalError) as error:
        if rows.failure is error:
            raise
        with creation.removed_on_failure(table):
            raise


def _check_names(schema: pa.Schema) -> None:
    for name in schema.names:
        if locations.is_path(name):
            raise invalid(f"{name[:60]!r} cannot be a column's name: it is a path")


def _checked(properties: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if properties is None else table_properties.checked(properties)


def _complete(table: Table, new: NewTable) -> tuple[Table, int]:
    """Write the data of a table that was declared."""
    if new.properties is not None:
        table.require_settable(new.properties)
    version = write_first(table, new.rows, new.storage_options)
    return table if new.properties is None else table.set_properties(new.properties), version


def _write_to_existing(table: Table, new: NewTable) -> tuple[Table, int]:
    """Apply the mode to a table that has data."""
    table = table.refreshed()
    if new.mode is CreateMode.CREATE:
        raise table_already_exists(new.path)
    if new.mode is CreateMode.EXIST_OK:
        return table, table.open().version
    table.require_settable(new.properties or {})
    if new.manager == IMPLEMENTATION:
        table = conversion.begin(table)
    version = _overwrite(new, table)
    return table.set_properties(new.properties or {}), version


def _overwrite(new: NewTable, table: Table) -> int:
    """Replace the data. Lance does it in one step: readers see the old table or the new one.

    Raises:
        ConcurrentModificationError: (14) another writer committed meanwhile.
    """
    if not new.rows.is_readable:  # the first write took them, and lost the race
        raise concurrent_modification(table.path)
    _, options = _target(table, new.storage_options)
    dataset = table.open(write=True)
    with new.rows.reraise_source_error(), table.committing(dataset, rows=new.rows):
        written = lance.write_dataset(
            new.rows.reader(), dataset, mode="overwrite", storage_options=options
        )
    return int(written.version)


def write_first(
    table: Table,
    rows: Rows,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Commit version 1 and no other.

    ``write_dataset(mode="create")`` only looks for a dataset when it begins: of writers that race,
    several succeed, and each overwrites the one before.

    Raises:
        TableAlreadyExistsError: (5) another writer was first.
        InvalidInputError: (13) bad rows, or rows that Lance refuses; nothing is committed.
        ServiceUnavailableError: (17) the storage did not take the data.
        InternalError: (18) Lance panicked; nothing is committed.
    """
    place, options = _target(table, storage_options)
    transaction, through = None, table.commit_arguments()
    try:
        with rows.reraise_source_error():
            fragments = write_fragments(
                rows.reader(), place, mode="create", storage_options=options
            )
            first = lance.LanceOperation.Overwrite(rows.schema, fragments)
            transaction = lance.Transaction(read_version=0, operation=first)
            lance.LanceDataset.commit(
                place,
                transaction,
                max_retries=0,
                storage_options=options,
                **through,
            )
    except LANCE_ERRORS as error:
        if rows.failure is error:
            raise
        table = table.refreshed()
        if table.is_declared():
            raise_view_failure(through.get("namespace_client"), error)
            hint = "The entry is there; create the table again to complete it"
            raise not_written(table, error, hint) from error
        if transaction is None or not _is_own(table, transaction.uuid):
            raise table_already_exists(table.path, "another writer created its data") from error
    return FIRST_VERSION


def _is_own(table: Table, transaction_id: str) -> bool:
    """Return whether version 1 is of this transaction: its reply may have been lost."""
    with translate_lance_errors(f"Table '{table.name}' could not be read back"):
        transaction = table.open().read_transaction(FIRST_VERSION)
    return transaction is not None and transaction.uuid == transaction_id


def _target(
    table: Table, storage_options: Mapping[str, str] | None
) -> tuple[str, dict[str, str] | None]:
    common = table.storage_options(write=True)
    options = {**(common or {}), **(storage_options or {})}
    return table.uri, options or None


def not_written(table: Table, error: Exception, hint: str) -> LanceNamespaceError:
    """Return the error for rows that Lance refused or that storage did not take.

    Args:
        hint: What to do where storage failed.
    """
    name = table.name
    if is_refusal(error):
        return invalid(f"The rows of table '{name}' cannot be written: {first_line(error)}")
    what = f"The data of table '{name}' could not be written to {table.location}"
    return as_namespace_error(what, error, f". {hint}")
