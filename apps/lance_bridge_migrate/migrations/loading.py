"""Load a table with the rows of its source: its facts, its steps, and how they are undone.

Spark reads the source, or this process does with pyarrow. In the second case, the rows are compared
here, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from lance_namespace.errors import InvalidTableStateError, TableAlreadyExistsError
from pydantic import Field

from lance_bridge.arrow_types import columns_of
from lance_bridge.catalog import Column
from lance_bridge.dataset import FIRST_VERSION, Rows, branches_of, describe_indices, write_first
from lance_bridge.dotted_names import by_name
from lance_bridge.errors import table_already_exists, translate_lance_errors
from lance_bridge.records import ENTRY_ID
from lance_bridge.requests import Ref
from lance_bridge.table import Table
from lance_bridge.transaction_versions import find_commit, keeps_rows, transaction_at
from lance_bridge_spark.rows import (
    Commit,
    TableAddress,
    Target,
    ToLance,
    TransactionSpec,
    address_in,
    build_index,
    find_table,
    index_request,
)
from lance_bridge_spark.schemas import as_new

from .. import Level
from ..arrow_files import ArrowFiles
from ..migration import Step, StepContext
from ..plan import Facts, Item, Options
from ..record import Check
from ..spark import listing, writing
from ..spark.files import Size
from ..spark.session import become_active, col, spark_errors
from ..spark.sources import SourceTable
from ..spark.writing import Loaded, append, bytes_of, rows_added
from ..targets import EntryFacts, load_own_table, step_with_data
from .verification import (
    compare_values,
    read_all,
    read_rows,
    rows_per_batch,
    sample_row_numbers,
    sizes_of,
)

_log = logging.getLogger(__name__)

LOAD = "load"
"""The step that writes the rows, and the name in its transaction."""


# -- facts -----------------------------------------------------------------------------------------


class IndexOptions(Options):
    """An index to build on each table that has the column.

    Attributes:
        kind: As for `lance_bridge_spark.create_index`; likewise parameters.
        name: ``<column>_idx`` by default.
    """

    column: str
    kind: str
    name: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @property
    def index_name(self) -> str:
        return self.name or f"{self.column}_idx"


class LoadFacts(EntryFacts):
    """The facts about a table that is written with the rows of a source.

    Attributes:
        renames: See `ConvertOptions`; likewise its other options.
        bytes_before: The size of the source; None if unknown.
    """

    renames: dict[str, str] = Field(default_factory=dict)
    max_rows_per_file: int | None = None
    vectors: dict[str, int] = Field(default_factory=dict)
    indices: tuple[IndexOptions, ...] = ()
    bytes_before: int | None = None

    @property
    def schema_of_table(self) -> pa.Schema:
        """The schema of the new table."""
        raise NotImplementedError


class ConvertFacts(LoadFacts):
    """The facts about a table to convert with Spark.

    Attributes:
        source: The source when the plan was made.
        columns: The schema that Spark reads, with casts and renames, in JSON.
        casts: See `ConvertOptions`; likewise its other options.
        files: The number of files of the source and their bytes; None if unknown.
        accepts_differences: Whether it is converted as Spark reads it, whatever the files have.
    """

    source: SourceTable
    columns: str
    casts: dict[str, str] = Field(default_factory=dict)
    sort_by: tuple[str, ...] = ()
    files: Size | None = None
    accepts_differences: bool = False

    @property
    def schema_of_table(self) -> pa.Schema:
        return writing.schema_for(writing.schema_from_json(self.columns), self.vectors)

    def read(self, spark: Any) -> Any:
        """Return the rows of the source, with the types and names of the target."""
        return writing.as_target(self.source.read(spark), self.casts, self.renames)


class ArrowFacts(LoadFacts):
    """The facts about files to convert with pyarrow.

    Attributes:
        arrow_files: The files when the plan was made.
    """

    arrow_files: ArrowFiles

    @property
    def schema_of_table(self) -> pa.Schema:
        read = self.arrow_files.schema
        found = pa.schema([as_new(each, keep_dictionaries=True) for each in read])
        names = writing.renamed(found.names, self.renames)
        lengths = by_name(self.vectors, names)
        return pa.schema(
            [
                _with_vectors(each, lengths.get(name)).with_name(name)
                for name, each in zip(names, found, strict=True)
            ]
        )


def _with_vectors(field: pa.Field, length: int | None) -> pa.Field:
    of = field.type
    if length is None or not (pa.types.is_list(of) or pa.types.is_large_list(of)):
        return field
    return field.with_type(pa.list_(of.value_type, length))


def facts_of(item: Item) -> ConvertFacts | ArrowFacts:
    """Return the facts of a table's item."""
    return ArrowFacts.of(item) if "arrow_files" in item.facts else ConvertFacts.of(item)


# -- steps -----------------------------------------------------------------------------------------


def loading_steps(item: Item) -> list[Step]:
    """Return the steps of a table, which create its entry, rows and indices."""
    built = [
        Step(f"index {each.index_name}", partial(_build_index, each))
        for each in facts_of(item).indices
    ]
    entry = step_with_data(_describe, _require_own_rows, manages=facts_of(item).managed)
    return [entry, Step(LOAD, _load), *built]


def _describe(work: StepContext) -> tuple[Mapping[str, str], tuple[Column, ...]]:
    facts = facts_of(work.item)
    return facts.properties, columns_of(facts.schema_of_table)


# -- the rows --------------------------------------------------------------------------------------


def _load(work: StepContext) -> Facts:
    facts, table = facts_of(work.item), load_own_table(work)
    _make_first_version(table, facts.schema_of_table, work)
    removed = _delete_orphans(table, work)
    options = dict(writing_options(work.options))
    if facts.max_rows_per_file is not None:
        options["max_rows_per_file"] = facts.max_rows_per_file
    transaction = writing.once(work.mark, LOAD)
    address = address_in(work.endpoints.target, work.item.target)
    if isinstance(facts, ArrowFacts):
        loaded = append_files(facts, address, transaction, options)
    else:
        rows = _read(work, facts)
        loaded = append(rows, address, FIRST_VERSION, transaction, options)
    noted = _written_facts(work, loaded)
    work.advance(rows=loaded.rows, size=noted["bytes_written"])
    if removed:
        noted["orphaned_bytes_deleted"] = removed
    return noted


def _read(work: StepContext, facts: ConvertFacts) -> Any:
    """Return the rows of a source whose files all exist, in Spark."""
    spark = work.endpoints.source
    become_active(spark)
    listing.require_complete(
        spark, facts.source, facts.files, ignore_statistics=work.options.ignore_statistics
    )
    rows = facts.read(spark)
    return rows.orderBy(*map(col, facts.sort_by)) if facts.sort_by else rows


def _written_facts(work: StepContext, loaded: Loaded) -> Facts:
    """Return the facts of a write for the report."""
    # Load the entry again, because it may contain the latest version.
    table = work.target_tables.load(work.item.target)
    size = bytes_of(table.open(Ref(version=loaded.version)))
    return {
        "version": loaded.version,
        "rows_written": loaded.rows,
        "bytes_written": size,
        "bytes_after": size,
        **_orphans_left(table),
    }


def _orphans_left(table: Table) -> Facts:
    """Return the number and size of orphaned data files, or no facts if there are none.

    Tasks that failed and were repeated wrote them. They are not deleted, because the table is now
    visible, and uncommitted files of another writer look the same.
    """
    fragments = table.open().get_fragments()
    named = {f"data/{file.path}" for each in fragments for file in each.data_files()}
    found = table.storage().sizes(table.location, "data")
    left = {name: size for name, size in found.items() if name not in named}
    if not left:
        return {}
    return {"orphaned_files_left": len(left), "orphaned_bytes_left": sum(left.values())}


def _delete_orphans(table: Table, work: StepContext) -> int:
    """Delete the data files of interrupted attempts, and return their size.

    While the table, which this migration made, has only its empty first version, all its data files
    belong to such attempts. If the catalog holds the versions, nothing is deleted, because the
    commit of an earlier attempt may be in progress.
    """
    if not work.is_repeated or table.managed is not None:
        return 0
    dataset = table.open(write=True)
    if int(dataset.version) != FIRST_VERSION or branches_of(dataset):
        return 0
    with translate_lance_errors(f"The files of interrupted loads of '{table.name}' remain"):
        stats = dataset.cleanup_old_versions(
            older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
        )
    if stats.bytes_removed:
        _log.warning(
            "%s: %s bytes that interrupted loads had left were deleted",
            table.name,
            f"{stats.bytes_removed:,}",
        )
    return int(stats.bytes_removed)


def writing_options(options: Any) -> Mapping[str, Any]:
    """Return the options for the writer."""
    return {
        "data_storage_version": options.data_storage_version,
        "max_rows_per_file": options.max_rows_per_file,
    }


def _make_first_version(table: Table, columns: pa.Schema, work: StepContext) -> None:
    """Create the empty version 1, unless an earlier run did."""
    if table.is_declared():
        try:
            write_first(table, Rows.from_data(pa.Table.from_batches([], columns)))
        except TableAlreadyExistsError:
            if not work.is_repeated:
                raise
        else:
            return
    first = table.open(Ref(version=FIRST_VERSION))
    is_ours = first.count_rows() == 0 and first.schema.equals(columns)
    if not (work.is_repeated and is_ours):
        raise table_already_exists(table.path, "another writer has written to it")


def _build_index(index: IndexOptions, work: StepContext) -> Facts:
    table = load_own_table(work)
    dataset = table.open()
    with translate_lance_errors(f"The indices of '{table.name}' could not be read"):
        existing = {each.name for each in describe_indices(dataset)}
    if index.index_name in existing or index.column not in dataset.schema.names:
        return {}
    if not dataset.count_rows():
        return {f"index {index.index_name}": "not built: there are no rows"}
    become_active(work.endpoints.source)
    request = index_request(index.column, index.kind, index.index_name, index.parameters)
    address = address_in(work.endpoints.target, work.item.target)
    with spark_errors(f"No index was built on column '{index.column}'"):
        built = build_index(work.endpoints.source, address, request)
    return {f"index {index.index_name}": {"version": built.version, "kind": built.kind}}


# -- undoing ---------------------------------------------------------------------------------------


def _require_own_rows(work: StepContext, table: Table) -> None:
    """Raise InvalidTableState (19) unless this migration wrote all rows of a table."""
    if table.is_declared():
        return
    dataset = table.open()
    version = origin_version(dataset, FIRST_VERSION)
    branches = sorted(branches_of(dataset))
    if branches:
        reason = f"it did not make branch {', '.join(branches)}"
    elif version is None:
        reason = "its versions were cleaned up"
    elif not _is_own(dataset, version, writing.once(work.mark, LOAD).uuid):
        reason = f"it did not write version {version}"
    else:
        return
    raise InvalidTableStateError(
        f"The rows of '{table.name}' are not known to be those of migration "
        f"{work.plan.id} ({reason}): undoing could delete rows of other writers. Skip the table, "
        "or drop it"
    )


def _is_own(dataset: lance.LanceDataset, version: int, transaction: str) -> bool:
    with translate_lance_errors(f"Version {version} of {dataset.uri} could not be read"):
        if version == FIRST_VERSION:
            return not dataset.count_rows()
        made_by = transaction_at(dataset, version)
    return made_by is not None and bool(made_by.uuid == transaction)


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


# -- files that pyarrow reads ----------------------------------------------------------------------

_ROWS = 1024
"""The most rows that are compared at once."""


def append_files(
    facts: ArrowFacts,
    address: TableAddress,
    transaction: TransactionSpec,
    options: Mapping[str, Any],
) -> Loaded:
    """Append the rows of files to a table in one commit, unless that was done already.

    Raises:
        InvalidInputError: (13) values that the table cannot hold, or a file that cannot be read.
        ConcurrentModificationError: (14) another writer has written to the table.
        LanceNamespaceError: What finding, opening and committing raises.
    """
    table, version = find_table(address), FIRST_VERSION
    dataset = table.open(Ref(version=version), write=True)
    made = find_commit(dataset, lambda each: each.uuid == transaction.uuid, version)
    if made is not None:
        return Loaded(made, rows_added(address, made))
    access = table.access_version(version, write=True)
    target = Target.appending(access, dataset.schema, options)
    written = replace(target, names=_names(facts)).write(facts.arrow_files.batches())
    if not written.fragments:
        return Loaded(version, 0)
    commit = Commit(
        address,
        access.location,
        version,
        transaction.uuid,
        properties=dict(transaction.properties),
        alone=transaction.alone,
        entry=table.record.properties.get(ENTRY_ID),
    )
    return Loaded(commit.run(written.fragments, lance.LanceOperation.Append), written.rows)


def _names(facts: ArrowFacts) -> dict[str, str]:
    """Return the name in the files of each column of the table."""
    return dict(zip(facts.schema_of_table.names, facts.arrow_files.schema.names, strict=True))


def checks(work: StepContext, facts: ArrowFacts, level: Level) -> Iterator[Check]:
    """Compare the files with the version that the migration wrote."""
    files, columns = facts.arrow_files, facts.schema_of_table
    dataset = load_own_table(work).open(Ref(version=int(work.facts["version"])))
    yield writing.schema_check(columns, dataset.schema)
    rows, found = files.count_rows(), dataset.count_rows()
    yield Check(name="rows", ok=rows == found, expected=rows, found=found)
    if rows != found or not level.includes(Level.SAMPLE):
        return
    size = min(_ROWS, rows_per_batch(dataset))
    source = _of_size(ToLance(files.batches(), columns, _names(facts)), size)
    if level.includes(Level.CHECKSUMS):
        with translate_lance_errors(f"The rows of {dataset.uri} could not be compared"):
            target = _of_size(read_all(dataset, size), size)
            yield from compare_values("values", source, target, columns.names)
        return
    chosen = sample_row_numbers(rows)
    with translate_lance_errors(f"Rows of {dataset.uri} could not be read"):
        taken = pa.concat_tables(read_rows(dataset, chosen, sizes_of(dataset, chosen)))
    yield from compare_values("sample", iter([_take(source, chosen)]), iter([taken]), columns.names)


def _of_size(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of so many rows, but for the last one."""
    left: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        left.append(batch)
        count += batch.num_rows
        if count < size:
            continue
        whole = pa.Table.from_batches(left)
        for start in range(0, count - count % size, size):
            yield whole.slice(start, size)
        left = whole.slice(count - count % size).to_batches()
        count %= size
    if count:
        yield pa.Table.from_batches(left)


def _take(tables: Iterator[pa.Table], numbers: list[int]) -> pa.Table:
    """Return the rows of some numbers, which are in order."""
    found, start = [], 0
    for table in tables:
        inside = [each - start for each in numbers if start <= each < start + table.num_rows]
        found.append(table.take(inside))
        start += table.num_rows
    return pa.concat_tables(found)
