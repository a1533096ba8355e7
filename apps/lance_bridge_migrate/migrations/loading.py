"""The steps of a table that is written from a DataFrame, and their undo."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from lance_namespace.errors import InvalidTableStateError, TableAlreadyExistsError

from lance_bridge.dataset import (
    FIRST_VERSION,
    Rows,
    branches_of,
    describe_indices,
    write_first,
)
from lance_bridge.errors import table_already_exists, translate_lance_errors
from lance_bridge.lance_datasets import transaction_at
from lance_bridge.requests import Ref
from lance_bridge.spark_types import columns_of
from lance_bridge.table import Table
from lance_bridge_spark.jobs.engine import address_in
from lance_bridge_spark.jobs.indexing import build_index, index_request

from ..migration import Step, Work
from ..plan import Facts, Item
from ..spark import completeness, schema
from ..spark.session import become_active, spark_errors
from ..spark.writing import Loaded, append, transaction_of
from ..targets import (
    AFTER,
    allocate_location,
    create_entry,
    entry_facts,
    find_own_table,
    load_own_table,
    require_unchanged,
    undo_entry,
)
from .arrow_loading import append_files
from .convert_options import ArrowFacts, ConvertFacts, IndexOptions, facts_of
from .provenance import origin_version

_log = logging.getLogger(__name__)

LOAD = "load"
"""The step that writes the rows, and the name in its transaction."""


def loading_steps(item: Item) -> list[Step]:
    """Return the steps of a table, which create its entry, rows and indices."""
    indices = facts_of(item).indices
    built = [Step(f"index {each.index_name}", partial(_build_index, each)) for each in indices]
    return [Step("entry", _create, _undo, _check_undo), Step(LOAD, _load), *built]


# -- the entry -------------------------------------------------------------------------------------


def _create(work: Work) -> Facts:
    facts = facts_of(work.item)
    location = allocate_location(work)
    work.note(location=location)
    columns = columns_of(facts.schema_of_table)
    table = create_entry(work, location, facts.properties, declared=True, columns=columns)
    if facts.managed:
        table = table.manage()
    return {AFTER: entry_facts(table), "location": table.location}


# -- the rows --------------------------------------------------------------------------------------


def _load(work: Work) -> Facts:
    facts, table = facts_of(work.item), load_own_table(work)
    _make_first_version(table, facts.schema_of_table, work)
    removed = _delete_orphans(table, work)
    options = dict(writing_options(work.options))
    if facts.max_rows_per_file is not None:
        options["max_rows_per_file"] = facts.max_rows_per_file
    once: dict[str, Any] = {
        "version": FIRST_VERSION,
        "transaction": transaction_of(work.mark, LOAD),
        "mark": work.mark,
        "options": options,
    }
    address = address_in(work.endpoints.target, work.item.target)
    if isinstance(facts, ArrowFacts):
        loaded = append_files(facts, address, **once)
    else:
        loaded = append(_read(work, facts), address, alone=True, **once)
    noted = _written_facts(work, loaded)
    work.advance(rows=loaded.rows, size=noted["bytes_written"])
    if removed:
        noted["orphaned_bytes_deleted"] = removed
    return noted


def _read(work: Work, facts: ConvertFacts) -> Any:
    """Return the rows of a source whose files all exist, in Spark."""
    spark = work.endpoints.source
    become_active(spark)
    completeness.require_complete(
        spark, facts.source, facts.files, ignore_statistics=work.options.ignore_statistics
    )
    return schema.sort(facts.read(spark), facts.sort_by)


def _written_facts(work: Work, loaded: Loaded) -> Facts:
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


def _delete_orphans(table: Table, work: Work) -> int:
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


def bytes_of(dataset: lance.LanceDataset) -> int:
    """Return the size of a version's data files, as far as its manifest contains it."""
    files = [file for each in dataset.get_fragments() for file in each.metadata.files]
    return sum(int(file.file_size_bytes or 0) for file in files)


def _make_first_version(table: Table, columns: pa.Schema, work: Work) -> None:
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


# -- indices ---------------------------------------------------------------------------------------


def _build_index(index: IndexOptions, work: Work) -> Facts:
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


def _check_undo(work: Work) -> None:
    require_unchanged(work)
    table = find_own_table(work)
    if table is not None:
        _require_own_rows(work, table)


def _require_own_rows(work: Work, table: Table) -> None:
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
    elif not _is_own(dataset, version, transaction_of(work.mark, LOAD)):
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


def _undo(work: Work) -> None:
    undo_entry(work, check_files=partial(_require_own_rows, work))
