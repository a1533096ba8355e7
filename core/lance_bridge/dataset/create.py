"""CreateTable: the entry first, then the data, so that a failed creation can be retried."""

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

from .. import blobs, locations
from ..arrow_types import columns_of
from ..catalog import IMPLEMENTATION, Path
from ..connection import Connection
from ..errors import (
    LANCE_ERRORS,
    as_namespace_error,
    concurrent_modification,
    first_line,
    invalid,
    is_refusal,
    table_already_exists,
    translate_lance_errors,
)
from ..managed import conversion, mark
from ..records import check_properties, manager_in
from ..requests import CreateMode
from ..table import Table, raise_view_failure, transaction_properties
from ..tables import creation
from ..tables.creation import LazyNamespace, allocate
from ..tables.protection import RemovalProtection
from .rows import Rows

FIRST_VERSION = 1


@dataclass(frozen=True)
class NewTable:
    """A table to create: its rows, the mode and properties."""

    path: Path
    rows: Rows
    mode: CreateMode = CreateMode.CREATE
    properties: Mapping[str, str] | None = None
    storage_options: Mapping[str, str] | None = None
    manager: str | None = None
    """The manager of its versions, if the properties name one."""


def create_table(connection: Connection, new: NewTable) -> tuple[Table, int]:
    """Create a table with data and return it and its version. Source: CreateTable.

    The entry is created first, without data, so the catalog decides which of two creators wins. A
    failed write leaves a declared table, which the next create completes. So do bad rows from a
    source that can be read only once. Rows that Lance cannot write leave no entry.

    Raises:
        TableAlreadyExistsError: (5) a table with data exists and the mode is Create, or the
            entry is not a Lance table.
        InvalidTableStateError: (19) the data of the existing table is missing.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) bad rows or properties, rows that Lance refuses, or no
            location.
        ConcurrentModificationError: (14)
        UnsupportedOperationError: (0) the properties ask the catalog to manage the
            table, and it cannot.
        ServiceUnavailableError: (17) the data could not be written to storage.
        InternalError: (18) Lance panicked.
    """
    requested = new.properties
    if requested is not None:
        new = replace(new, properties=check_properties(requested))
    new = replace(new, manager=manager_in(requested))
    _check_names(new.rows.schema)
    new.rows.require_storable()
    new.rows.check_ahead()
    namespace = LazyNamespace(connection, new.path[:-1])
    is_managed = creation.wants_management(new.path, namespace, requested)
    location = allocate(new.path, namespace, must_read=True)
    table, is_new = creation.add_or_find(
        connection,
        new.path,
        location,
        creation.with_publishing(namespace, new.properties or {}),
        declared=True,
        columns=columns_of(new.rows.schema),
    )
    with creation.after_drops(new.path):
        if is_new:
            with creation.removed_on_failure(table, is_declared=True):
                if not location.is_free:
                    table.storage_options(write=True)  # the entry's own, which may be refused, too
                if is_managed:
                    table = conversion.begin(table)
        return _write(table, new, is_new=is_new, is_managed=is_managed)


def _write(table: Table, new: NewTable, *, is_new: bool, is_managed: bool) -> tuple[Table, int]:
    """Write the rows to a table that was created or found, as the mode says."""
    try:
        if is_new:
            with _remove_if_refused(table, new.rows):
                return table, write_first(table, new.rows, new.storage_options)
        if table.is_declared():
            table = conversion.begin(table) if is_managed else table
            return _complete(table, new)
    except TableAlreadyExistsError:
        # Another writer wrote data first, even if this call created the entry.
        if new.mode is CreateMode.CREATE:
            raise
    return _write_to_existing(table, new)


@contextmanager
def _remove_if_refused(table: Table, rows: Rows) -> Iterator[None]:
    """Remove a new entry if Lance refuses the rows or panics, since a retry would not help."""
    try:
        yield
    except (InvalidInputError, InternalError) as error:
        if rows.failure is error:
            raise
        with creation.removed_on_failure(table, is_declared=True):
            raise


def _check_names(schema: pa.Schema) -> None:
    for name in schema.names:
        if locations.is_path(name):
            raise invalid(f"{name[:60]!r} cannot be a column's name: it is a path")


def _complete(table: Table, new: NewTable) -> tuple[Table, int]:
    """Write the data of a declared table."""
    if new.properties is not None:
        table.require_settable(new.properties)
    version = write_first(table, new.rows, new.storage_options)
    return table if new.properties is None else table.set_properties(new.properties), version


def _write_to_existing(table: Table, new: NewTable) -> tuple[Table, int]:
    """Apply the mode to a table that has data."""
    table = table.refreshed()
    if new.mode is CreateMode.CREATE:
        if table.managed is not None:
            table.require_data()
        raise table_already_exists(new.path)
    if new.mode is CreateMode.EXIST_OK:
        version = int(table.open().version)
        table.note_commit(version, version)
        return table, version
    table.require_settable(new.properties or {})
    RemovalProtection(table.connection).require_table(table.record, "overwritten")
    if new.manager == IMPLEMENTATION:
        table = conversion.begin(table)
    version = _overwrite(new, table)
    return table.set_properties(new.properties or {}), version


def _overwrite(new: NewTable, table: Table) -> int:
    """Replace the data in one step: readers see the old table or the new one.

    Raises:
        ConcurrentModificationError: (14) another writer committed concurrently.
    """
    if not new.rows.is_readable:  # the first write read them, and lost the race
        raise concurrent_modification(table.path)
    options = _options(table, new.storage_options)
    dataset = table.open(write=True)
    with new.rows.reraise_source_error(), table.committing(dataset, rows=new.rows):
        written = lance.write_dataset(
            new.rows.reader(),
            dataset,
            mode="overwrite",
            storage_options=options,
            transaction_properties=transaction_properties(),
        )
    table.note_commit(int(dataset.version), int(written.version), written)
    return int(written.version)


def write_first(
    table: Table,
    rows: Rows,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Commit version 1, or raise if it exists.

    ``write_dataset(mode="create")`` checks for a dataset only when it starts. Several concurrent
    writers would succeed, and each would overwrite the previous one.

    Raises:
        TableAlreadyExistsError: (5) another writer was first.
        InvalidInputError: (13) bad rows, or rows that Lance refuses; nothing is committed.
        ServiceUnavailableError: (17) the data could not be written to storage.
        InternalError: (18) Lance panicked; nothing is committed.
    """
    if table.managed is None:
        mark.require_manager(table)
    uri, options = table.uri, _options(table, storage_options)
    transaction, through = None, table.commit_arguments()
    try:
        with rows.reraise_source_error():
            schema = blobs.as_extensions(rows.schema)
            reader = blobs.to_extensions(rows.reader(), schema)
            fragments = write_fragments(reader, uri, mode="create", storage_options=options)
            first = lance.LanceOperation.Overwrite(schema, fragments)
            transaction = lance.Transaction(
                read_version=0, operation=first, transaction_properties=transaction_properties()
            )
            lance.LanceDataset.commit(
                uri,
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
            hint = "The entry exists; create the table again to complete it"
            raise not_written(table, error, hint) from error
        if transaction is None or not _made_first_version(table, transaction.uuid):
            raise table_already_exists(table.path, "another writer created its data") from error
    table.note_commit(0, FIRST_VERSION, transaction.uuid)
    return FIRST_VERSION


def _made_first_version(table: Table, transaction_id: str) -> bool:
    """Return whether this transaction made version 1, and only its reply was lost."""
    with translate_lance_errors(f"Table '{table.name}' could not be read back"):
        transaction = table.open().read_transaction(FIRST_VERSION)
    return transaction is not None and transaction.uuid == transaction_id


def _options(table: Table, given: Mapping[str, str] | None) -> dict[str, str] | None:
    return {**(table.storage_options(write=True) or {}), **(given or {})} or None


def not_written(table: Table, error: Exception, hint: str) -> LanceNamespaceError:
    """Return the error for rows that Lance refused or that could not be stored.

    Args:
        hint: What to do if storage failed.
    """
    name = table.name
    if is_refusal(error):
        return invalid(f"The rows of table '{name}' cannot be written: {first_line(error)}")
    what = f"The data of table '{name}' could not be written to {table.location}"
    return as_namespace_error(what, error, f". {hint}")
